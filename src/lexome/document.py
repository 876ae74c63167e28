"""Document, Passage, Span, Relation: frozen, in BioC's shape, offsets checked on construction.

`start` is inclusive, `end` exclusive, both counted in characters over the whole document. A passage
knows where its text begins; what lies between two passages is a gap that no span may touch.
A Document whose spans do not slice to their own text cannot be constructed.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from math import isfinite
from typing import Any

from lexome.errors import DocumentError
from lexome.metadata import Metadata, fast_dataclass

Range = tuple[int, int]

# What doc.text puts between two passages: a line break never occurs inside a mention by accident.
GAP = "\n"

# No text of the field is as long; without a bound, one line of input could ask for a text of terabytes.
MAX_OFFSET = 1 << 26

NO_METADATA = Metadata()


@fast_dataclass
class Passage:
    """A stretch of text that belongs together, placed at `offset` in its document.

    `kind` is what it is (title, abstract, heading, paragraph, list, caption, table, formula, code,
    footnote, reference, note, snippet, sentence); `section` the headings above it, outermost first;
    `category` the section's role where the source names one (METHODS, RESULTS, ...). `sentences` and
    `tokens` are ranges of the document, kept where the source has them.
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
            raise DocumentError("bad_offset", f"a passage begins at {self.offset}; expected 0 to {MAX_OFFSET}")
        if not self.text.isascii():
            _require_unicode(self.text)
        if self.sentences or self.tokens:
            _require_inside(self.sentences, self.offset, self.end, "sentences")
            _require_inside(self.tokens, self.offset, self.end, "tokens")

    @property
    def end(self) -> int:
        """Where the passage ends in the document, exclusive."""
        return self.offset + len(self.text)


@fast_dataclass
class Span:
    """A mention: its ranges in the document, the text they cover, a type and what it refers to.

    Most spans have one part. A discontinuous one has several, in reading order, and its text is
    theirs joined by a space: "left and right ventricle" holds "left ventricle" as two parts.
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
            raise DocumentError("bad_span", f"span {self.id!r} has no parts; at least one was expected")
        if any(start >= end for start, end in self.parts) or any(
            left[1] > right[0] for left, right in pairwise(self.parts)
        ):
            raise DocumentError(
                "bad_span",
                f"span {self.id!r} has parts {self.parts}; expected ranges that are not empty, in ascending "
                "order and apart",
            )
        require_curies(self.concepts, owner=f"span {self.id!r}")
        if self.score is not None and not isfinite(self.score):
            raise DocumentError("bad_score", f"span {self.id!r} has the score {self.score}; expected a finite number")

    @property
    def start(self) -> int:
        """The first character, inclusive."""
        return self.parts[0][0]

    @property
    def end(self) -> int:
        """The last character, exclusive."""
        return self.parts[-1][1]


@fast_dataclass
class Argument:
    """One side of a relation: a role, and either the id of a span or relation, or a concept."""

    role: str
    target: str | None = None
    concept: str | None = None

    def __post_init__(self) -> None:
        if (self.target is None) == (self.concept is None):
            raise DocumentError(
                "bad_relation",
                f"an argument {self.role!r} has target {self.target!r} and concept {self.concept!r}; "
                "expected exactly one of them",
            )
        if self.concept is not None:
            require_curies((self.concept,), owner=f"argument {self.role!r}")


@fast_dataclass
class Relation:
    """A typed link between spans, other relations or concepts, each in its role.

    An event is a relation with a Trigger argument. `novel` is set where the source says whether the
    finding is new.
    """

    id: str
    type: str
    arguments: tuple[Argument, ...]
    novel: bool | None = None
    score: float | None = None


@fast_dataclass
class Attribute:
    """A named judgement on a span or relation, such as Negation, with a value where it takes one."""

    id: str
    target: str
    name: str
    value: str | None = None


@fast_dataclass
class Answer:
    """An answer to a question; `start` is set where it stands in the document, `score` where a model gave it."""

    text: str
    start: int | None = None
    synonyms: tuple[str, ...] = ()
    score: float | None = None

    def __post_init__(self) -> None:
        if self.score is not None and not isfinite(self.score):
            raise DocumentError(
                "bad_score", f"the answer {shorten(self.text)!r} has the score {self.score}; expected a finite number"
            )


@fast_dataclass
class Question:
    """A question asked of a document, with what is known of its answer.

    `type` is the source's word (factoid, list, yesno, summary); `ideal` are answers in sentences.
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
    """One text with everything said about it."""

    id: str
    passages: tuple[Passage, ...] = ()
    spans: tuple[Span, ...] = ()
    relations: tuple[Relation, ...] = ()
    attributes: tuple[Attribute, ...] = ()
    questions: tuple[Question, ...] = ()
    labels: tuple[str, ...] = ()
    meta: Metadata = NO_METADATA

    def __post_init__(self) -> None:
        for left, right in pairwise(self.passages):
            if right.offset < left.end:
                raise DocumentError(
                    "passage_overlap",
                    f"document {self.id!r}: a passage begins at {right.offset}, inside the one that ends at "
                    f"{left.end}; expected passages in order and apart",
                )
        if self.spans:
            self._check_spans()
        if self.spans or self.relations or self.attributes:
            self._check_links()
        if self.questions:
            self._check_answers()

    @property
    def text(self) -> str:
        """The whole text: passages at their offsets, gaps filled with line breaks."""
        pieces: list[str] = []
        end = 0
        for passage in self.passages:
            pieces += (GAP * (passage.offset - end), passage.text)
            end = passage.end
        return "".join(pieces)

    @property
    def title(self) -> str | None:
        """The text of the first passage that is a title, if there is one."""
        return next((passage.text for passage in self.passages if passage.kind == "title"), None)

    def text_of(self, span: Span) -> str:
        """What the document says at the span's parts."""
        return " ".join(self.slice(start, end) for start, end in span.parts)

    def slice(self, start: int, end: int) -> str:
        """The text of a range that lies inside one passage."""
        passage = self.passage_at(start)
        if passage is None or end > passage.end:
            raise DocumentError(
                "bad_offset",
                f"document {self.id!r}: {start}-{end} is not inside one passage; its text is "
                f"{self.passages[-1].end if self.passages else 0} characters long",
            )
        return passage.text[start - passage.offset : end - passage.offset]

    def passage_at(self, offset: int) -> Passage | None:
        """The passage that holds the character at this offset."""
        index = bisect_right(self.passages, offset, key=lambda passage: passage.offset) - 1
        if index < 0 or offset >= self.passages[index].end:
            return None
        return self.passages[index]

    def _check_spans(self) -> None:
        for span in self.spans:
            found = self.text_of(span)
            if found != span.text:
                raise DocumentError(
                    "offset_mismatch",
                    f"document {self.id!r}, span {span.id!r} at {span.parts}: the text there is "
                    f"{shorten(found)!r}, but the span says {shorten(span.text)!r}",
                )

    def _check_links(self) -> None:
        ids = [span.id for span in self.spans] + [relation.id for relation in self.relations]
        known = set(ids)
        if len(known) < len(ids):
            twice = Counter(ids).most_common(1)[0][0]
            raise DocumentError(
                "duplicate_id", f"document {self.id!r}: the id {twice!r} is used twice; expected ids apart"
            )
        wanted = [argument.target for relation in self.relations for argument in relation.arguments]
        for target in (*wanted, *(attribute.target for attribute in self.attributes)):
            if target is not None and target not in known:
                raise DocumentError(
                    "unknown_target",
                    f"document {self.id!r}: something refers to {target!r}, which is no span or relation of it",
                )

    def _check_answers(self) -> None:
        for question in self.questions:
            for answer in question.answers:
                if answer.start is None:
                    continue
                found = self.slice(answer.start, answer.start + len(answer.text))
                if found != answer.text:
                    raise DocumentError(
                        "offset_mismatch",
                        f"document {self.id!r}, question {question.id!r}: the text at {answer.start} is "
                        f"{shorten(found)!r}, but the answer says {shorten(answer.text)!r}",
                    )


def lay_out(parts: Iterable[tuple[str, str, *tuple[Any, ...]]], *, gap: int = 1) -> tuple[Passage, ...]:
    """Passages `gap` characters apart, each from its kind, its text and, optionally, section, category and language."""
    passages: list[Passage] = []
    offset = 0
    for kind, text, *rest in parts:
        passages.append(Passage(offset, text, kind, *rest))
        offset += len(text) + gap
    return tuple(passages)


def numbered_ids(prefix: str) -> Iterator[str]:
    """Ids in order: T1, T2, ... for the prefix T."""
    number = 0
    while True:
        number += 1
        yield f"{prefix}{number}"


def shorten(text: str, limit: int = 60) -> str:
    """The text cut for an error message."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def require_curies(concepts: tuple[str, ...], *, owner: str) -> None:
    """Raise unless each concept is a CURIE, prefix:id."""
    for concept in concepts:
        prefix, colon, local = concept.partition(":")
        if not (prefix and colon and local):
            raise DocumentError(
                "bad_concept",
                f"{owner} refers to the concept {concept!r}; expected a CURIE such as mesh:D001943",
            )


def _require_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DocumentError(
            "not_unicode",
            f"the text has half a surrogate pair, {text[error.start]!r}, at character {error.start}; "
            "expected whole characters",
        ) from None


def _require_inside(ranges: tuple[Range, ...], low: int, high: int, name: str) -> None:
    last = low
    for start, end in ranges:
        if not last <= start <= end <= high:
            raise DocumentError(
                "bad_offset",
                f"{name} hold {start}-{end}, outside {last}-{high}; expected ranges in order inside the passage",
            )
        last = end
