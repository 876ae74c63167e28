"""Document, Passage, Span, Relation: frozen, in BioC's shape, offsets checked on construction.

Offsets are in characters of the whole document: `start` inclusive, `end` exclusive. A passage has the offset
of its text; no span may reach into the gap between two passages. A Document with a span whose offsets do not
slice to its text cannot be constructed.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import fields
from itertools import count, pairwise
from math import isfinite
from typing import Any

from lexome.errors import DocumentError, UsageError
from lexome.frozen import fast_dataclass
from lexome.metadata import Metadata

Range = tuple[int, int]

# Fills the gaps between passages in doc.text: no mention matches across a line break by accident.
GAP = "\n"

# No document is this long; without a bound, one line of input could request terabytes of text.
MAX_OFFSET = 1 << 26

NO_METADATA = Metadata()


@fast_dataclass
class Passage:
    """A block of text at `offset` in its document.

    `kind` is one of title, abstract, heading, paragraph, list, caption, table, formula, code, footnote, reference,
    note, snippet and sentence; `section` are the headings above it, outermost first; `category` is the role of the
    section (METHODS, RESULTS, ...) if the source gives one. `sentences` and `tokens` are document ranges, if the
    source has them.
    """

    offset: int
    text: str
    kind: str = "paragraph"
    section: tuple[str, ...] = ()
    category: str | None = None
    language: str | None = None
    source: str | None = None
    sentences: tuple[Range, ...] = ()
    tokens: tuple[Range, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.offset <= MAX_OFFSET:
            raise DocumentError(
                "bad_offset", f"a passage has offset {self.offset}; expected 0 to {MAX_OFFSET}", value=self.offset
            )
        if not isinstance(self.text, str):
            # Without a type checker, the text may be a missing value of a table.
            seen = shorten(repr(self.text))  # type: ignore[unreachable]
            message = f"a passage has the text {seen} of type {type(self.text).__name__}; expected a str"
            raise DocumentError("not_text", message, value=self.text)
        if not self.text.isascii():
            encode_utf8(self.text, "a passage")
        if self.sentences or self.tokens:
            _require_inside(self.sentences, self.offset, self.end, "sentences")
            _require_inside(self.tokens, self.offset, self.end, "tokens")

    @property
    def end(self) -> int:
        """End of the passage in the document, exclusive."""
        return self.offset + len(self.text)


@fast_dataclass
class Span:
    """A mention: its document ranges, their text, an entity type and the concepts it refers to.

    Most spans have one part. A discontinuous span has several, in reading order, and its text joins theirs with
    spaces: in "left and right ventricle", "left ventricle" has two parts.
    `concepts` are CURIEs such as mesh:D001943 or NCBIGene:672.
    """

    id: str
    type: str
    parts: tuple[Range, ...]
    text: str
    concepts: tuple[str, ...] = ()
    score: float | None = None

    def __post_init__(self) -> None:
        if not self.parts:
            raise DocumentError("bad_span", f"span {self.id!r} has no parts; expected at least one", value=self.id)
        if not isinstance(self.parts[0], tuple):
            seen = self.parts  # type: ignore[unreachable]
            message = f"span {self.id!r} has the parts {seen!r}; expected a tuple of ranges: ((start, end),)"
            raise DocumentError("bad_span", message, value=self.id)
        if self.parts[0][0] >= self.parts[0][1] or (
            len(self.parts) > 1
            and (
                any(start >= end for start, end in self.parts)
                or any(left[1] > right[0] for left, right in pairwise(self.parts))
            )
        ):
            raise DocumentError(
                "bad_span",
                f"span {self.id!r} has parts {self.parts}; expected non-empty, ascending ranges that do not overlap",
                value=self.id,
            )
        if self.concepts:
            require_curies(self.concepts, owner=f"span {self.id!r}")
        if self.score is not None and not isfinite(self.score):
            raise DocumentError(
                "bad_score", f"span {self.id!r} has score {self.score}; expected a finite number", value=self.score
            )

    @property
    def start(self) -> int:
        """Start of the first part, inclusive."""
        return self.parts[0][0]

    @property
    def end(self) -> int:
        """End of the last part, exclusive."""
        return self.parts[-1][1]


@fast_dataclass
class Argument:
    """An argument of a relation: a role, and either the id of a span or relation, or a concept."""

    role: str
    target: str | None = None
    concept: str | None = None

    def __post_init__(self) -> None:
        if (self.target is None) == (self.concept is None):
            raise DocumentError(
                "bad_relation",
                f"argument {self.role!r} has target {self.target!r} and concept {self.concept!r}; "
                "expected exactly one of the two",
                value=self.role,
            )
        if self.concept is not None:
            require_curies((self.concept,), owner=f"argument {self.role!r}")


@fast_dataclass
class Relation:
    """A typed relation between spans, other relations or concepts, each in a role.

    An event is a relation with a Trigger argument. `novel` is set if the source marks novelty.
    """

    id: str
    type: str
    arguments: tuple[Argument, ...]
    novel: bool | None = None
    score: float | None = None

    def __post_init__(self) -> None:
        if self.score is not None and not isfinite(self.score):
            message = f"relation {self.id!r} has score {self.score}; expected a finite number"
            raise DocumentError("bad_score", message, value=self.score)


@fast_dataclass
class Attribute:
    """An attribute of a span or relation, such as Negation, with an optional value."""

    id: str
    target: str
    name: str
    value: str | None = None


@fast_dataclass
class Answer:
    """An answer to a question; `start` is its offset if it is a span of the document, `score` a model's."""

    text: str
    start: int | None = None
    synonyms: tuple[str, ...] = ()
    score: float | None = None

    def __post_init__(self) -> None:
        if self.score is not None and not isfinite(self.score):
            message = f"the answer {shorten(self.text)!r} has score {self.score}; expected a finite number"
            raise DocumentError("bad_score", message, value=self.score)


@fast_dataclass
class Question:
    """A question about a document, with its answers.

    `type` is the dataset's question type (factoid, list, yesno, summary); `ideal` are answers in full sentences.
    """

    id: str
    text: str
    type: str | None = None
    answers: tuple[Answer, ...] = ()
    impossible: bool = False
    ideal: tuple[str, ...] = ()
    documents: tuple[str, ...] = ()
    concepts: tuple[str, ...] = ()


@fast_dataclass
class Document:
    """A text with its annotations and metadata.

    `label_scores` are the probabilities of predicted labels, in the order of `labels`; empty for annotated labels.
    """

    id: str
    passages: tuple[Passage, ...] = ()
    spans: tuple[Span, ...] = ()
    relations: tuple[Relation, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    questions: tuple[Question, ...] = ()
    labels: tuple[str, ...] = ()
    meta: Metadata = NO_METADATA
    label_scores: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.id, str):
            seen = type(self.id).__name__  # type: ignore[unreachable]
            message = f"a document has the id {self.id!r} of type {seen}; expected a str. Convert it with str()."
            raise DocumentError("bad_id", message, value=self.id)
        if type(self.passages) is not tuple or type(self.spans) is not tuple:
            raise DocumentError(
                "bad_type",
                f"document {self.id!r}: passages is a {type(self.passages).__name__} and spans a "
                f"{type(self.spans).__name__}; expected tuples",
                value=self.id,
            )
        if self.label_scores:
            self._check_label_scores()
        for left, right in pairwise(self.passages):
            if right.offset < left.end:
                raise DocumentError(
                    "passage_overlap",
                    f"document {self.id!r}: a passage begins at {right.offset}, before the previous one ends at "
                    f"{left.end}; expected ordered passages that do not overlap",
                    value=right.offset,
                )
        if self.spans:
            self._check_spans()
        if self.spans or self.relations or self.attributes:
            self._check_links()
        if self.questions:
            self._check_answers()

    @classmethod
    def from_text(cls, text: str, *, id: str = "text") -> "Document":
        """A document with the text as its only passage, or without passages if the text is empty.

        >>> Document.from_text("BRCA1 binds RAD51.", id="a").text
        'BRCA1 binds RAD51.'
        """
        return cls(id, (Passage(0, text),) if text != "" else ())

    @property
    def text(self) -> str:
        """The full text: passages at their offsets, gaps filled with line breaks."""
        pieces: list[str] = []
        end = 0
        for passage in self.passages:
            pieces += (GAP * (passage.offset - end), passage.text)
            end = passage.end
        return "".join(pieces)

    @property
    def concepts(self) -> dict[str, tuple[Span, ...]]:
        """The document's concepts in order of first mention, each with its mentions."""
        mentions: dict[str, list[Span]] = {}
        for span in sorted(self.spans, key=lambda span: span.start):
            for concept in dict.fromkeys(span.concepts):
                mentions.setdefault(concept, []).append(span)
        return {concept: tuple(spans) for concept, spans in mentions.items()}

    @property
    def title(self) -> str | None:
        """The text of the first title passage, or None."""
        return next((passage.text for passage in self.passages if passage.kind == "title"), None)

    def text_of(self, span: Span) -> str:
        """The text at the span's parts, joined by spaces."""
        return " ".join(self.slice(start, end) for start, end in span.parts)

    def slice(self, start: int, end: int) -> str:
        """The text of a range inside one passage."""
        passage = self.passage_at(start)
        if passage is None or end > passage.end:
            raise DocumentError(
                "bad_offset",
                f"document {self.id!r}: {start}-{end} is not inside one passage; the document ends at "
                f"{self.passages[-1].end if self.passages else 0}",
                value=(start, end),
            )
        return passage.text[start - passage.offset : end - passage.offset]

    def passage_at(self, offset: int) -> Passage | None:
        """The passage with the character at this offset, or None."""
        index = bisect_right(self.passages, offset, key=lambda passage: passage.offset) - 1
        if index < 0 or offset >= self.passages[index].end:
            return None
        return self.passages[index]

    def to_dict(self) -> dict[str, Any]:
        """The document as written to JSON Lines: dictionaries, lists and plain values, always with every key.

        >>> Document("d1", (Passage(0, "BRCA1"),)).to_dict()["id"]
        'd1'
        """
        content: dict[str, Any] = _plain(self)
        return content

    def _repr_html_(self) -> str:
        """The document with highlighted mentions, as notebooks show it."""
        # Imported on demand: this module is below all formats, and only notebooks need the HTML.
        from lexome.formats.html import notebook_view

        return notebook_view(self)

    def _check_spans(self) -> None:
        low = high = 0
        own = ""
        for span in self.spans:
            start, end = span.parts[0]
            if len(span.parts) == 1:
                # Most spans are in the passage of the one before.
                if not low <= start < high and (passage := self.passage_at(start)) is not None:
                    low, high, own = passage.offset, passage.end, passage.text
                if low <= start < end <= high and own[start - low : end - low] == span.text:
                    continue
            text = self.text_of(span)
            if text != span.text:
                raise DocumentError(
                    "offset_mismatch",
                    f"document {self.id!r}, span {span.id!r} at {span.parts}: the text there is "
                    f"{shorten(text)!r}, but the span's text is {shorten(span.text)!r}",
                    value=span.id,
                )

    def _check_label_scores(self) -> None:
        if len(self.label_scores) != len(self.labels) or not all(map(isfinite, self.label_scores)):
            raise DocumentError(
                "bad_score",
                f"document {self.id!r} has labels {self.labels} with scores {self.label_scores}; expected a finite "
                "number for each label, or none",
                value=self.label_scores,
            )

    def _check_links(self) -> None:
        ids = [span.id for span in self.spans] + [relation.id for relation in self.relations]
        known = set(ids)
        if len(known) < len(ids):
            duplicate = Counter(ids).most_common(1)[0][0]
            message = f"document {self.id!r}: the id {duplicate!r} is used twice; expected unique ids"
            raise DocumentError("duplicate_id", message, value=duplicate)
        targets = [argument.target for relation in self.relations for argument in relation.arguments]
        for target in (*targets, *(attribute.target for attribute in self.attributes)):
            if target is not None and target not in known:
                raise DocumentError(
                    "unknown_target",
                    f"document {self.id!r}: a relation or attribute refers to {target!r}; the document has no span or "
                    "relation of that id",
                    value=target,
                )

    def _check_answers(self) -> None:
        for question in self.questions:
            for answer in question.answers:
                if answer.start is None:
                    continue
                text = self.slice(answer.start, answer.start + len(answer.text))
                if text != answer.text:
                    raise DocumentError(
                        "offset_mismatch",
                        f"document {self.id!r}, question {question.id!r}: the text at {answer.start} is "
                        f"{shorten(text)!r}, but the answer is {shorten(answer.text)!r}",
                        value=question.id,
                    )


def _plain(value: Any) -> Any:
    """A record as a dictionary of all its fields, a tuple as a list; other values unchanged."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    return value


def lay_out(parts: Iterable[tuple[str, str, *tuple[Any, ...]]], *, gap: int = 1) -> tuple[Passage, ...]:
    """Passages `gap` characters apart, each from its kind, its text and, optionally, section, category and language."""
    passages: list[Passage] = []
    offset = 0
    for kind, text, *rest in parts:
        passages.append(Passage(offset, text, kind, *rest))
        offset += len(text) + gap
    return tuple(passages)


def numbered_ids(prefix: str) -> Iterator[str]:
    """T1, T2, ... for the prefix T."""
    return (f"{prefix}{number}" for number in count(1))


def shorten(text: str, limit: int = 60) -> str:
    """The text, truncated for an error message."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def documents_of(docs: object) -> Iterator[Document]:
    """Iterate over one document or an iterable of them; UsageError for anything else, such as a string."""
    if isinstance(docs, str | bytes) or not isinstance(docs, Document | Iterable):
        message = f"a {type(docs).__name__}; expected documents, as from lexome.read or an annotator."
        raise UsageError(message, code="not-a-document", value=docs)
    for number, doc in enumerate([docs] if isinstance(docs, Document) else docs, 1):
        if not isinstance(doc, Document):
            message = (
                f"item {number} is a {type(doc).__name__}; expected documents, as from lexome.read or an annotator."
            )
            raise UsageError(message, code="not-a-document", value=doc)
        yield doc


def as_names(names: str | Iterable[str]) -> tuple[str, ...]:
    """Names as a tuple; a string is one name, not an iterable of letters.

    >>> as_names("Gene"), as_names(["Gene", "Disease"])
    (('Gene',), ('Gene', 'Disease'))
    """
    result = (names,) if isinstance(names, str) else tuple(names)
    for name in result:
        if not isinstance(name, str):
            raise UsageError(f"name {name!r}; expected a string, or several strings.", code="not-a-name", value=name)
    return result


# Control characters, and characters that change the direction of text.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The text as one line that is safe to print on a terminal: control characters become symbols.

    >>> printable("a\\tb\\x1b[31m")
    'a b␛[31m'
    """

    def symbol(match: re.Match[str]) -> str:
        code = ord(match[0])
        return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else "\ufffd"

    return text if text.isprintable() else _UNPRINTABLE.sub(symbol, text.replace("\t", " ").replace("\n", " "))


def require_curies(concepts: str | tuple[str, ...], *, owner: str) -> None:
    """Raise DocumentError unless each concept is a CURIE, prefix:id."""
    if isinstance(concepts, str):
        message = f"{owner} has the concepts {concepts!r}, a str; expected a tuple of CURIEs, such as ({concepts!r},)"
        raise DocumentError("bad_concept", message, value=concepts)
    for concept in concepts:
        prefix, colon, local = concept.partition(":")
        if not (prefix and colon and local):
            message = f"{owner} has the concept {concept!r}; expected a CURIE such as mesh:D001943"
            raise DocumentError("bad_concept", message, value=concept)


def encode_utf8(text: str, owner: str = "the document") -> bytes:
    """The text in UTF-8; DocumentError for a lone surrogate."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise DocumentError(
            "not_unicode",
            f"{owner} has a lone surrogate, {text[error.start]!r}, at character {error.start}; expected valid Unicode",
            value=error.start,
        ) from None


def _require_inside(ranges: tuple[Range, ...], low: int, high: int, name: str) -> None:
    last = low
    for start, end in ranges:
        if not last <= start <= end <= high:
            message = f"{name} has {start}-{end}, outside {last}-{high}; expected ordered ranges inside the passage"
            raise DocumentError("bad_offset", message, value=(start, end))
        last = end
