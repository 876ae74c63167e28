"""Counts of what was read, skipped and changed, the file of rejected documents, and span repair.

The option `offsets` of readers decides what happens to annotations that do not match their text:

keep    the document is kept: a mention at the right place takes the text's own spelling, any other is dropped, both
        with a note; if most of a document's mentions fail, its offsets count something else: this is noted too, or
        raised if there is no rejects file
strict  the document is rejected
repair  a mention is moved to the nearest occurrence of its text, or dropped
"""

import base64
import json
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from html import unescape
from pathlib import Path
from typing import IO, Literal, Self, TypeVar

from lexome.document import NO_METADATA, Attribute, Document, Passage, Range, Relation, Span
from lexome.errors import BadDocument, DocumentError, FormatError, UsageError

T = TypeVar("T")

# The reason counted for a damaged file inside an archive.
BROKEN_FILE = "broken_file"

# Of documents that are skipped without a rejects file, this many have their reasons kept.
MAX_REASONS = 5

# The source bytes of a rejected document are stored up to this size; of a larger one, only the beginning.
MAX_RAW_BYTES = 1 << 20

# A mention further away than this is more likely another occurrence of the same name.
MAX_SHIFT = 100

# The id of a document that may be bad: a function is called only if the document is rejected.
Id = str | Callable[[], str | None] | None

_COUNTERS = ("spans", "relations", "rejected", "notes", "files")
# What passages have besides their text, for note_losses.
PASSAGE_DETAILS = frozenset({"passage offsets", "passage kinds and sections", "sentences and tokens"})


# How each line of a file of rejected documents begins.
_REJECT_BEGIN = b'{"where": '


def require_rejects(path: Path) -> None:
    """UsageError for a file with anything but rejected documents, which those of this run would replace."""
    with suppress(OSError):
        if not path.is_file():
            return
        with path.open("rb") as stream:
            head = stream.read(len(_REJECT_BEGIN))
        if head not in (b"", _REJECT_BEGIN):
            message = f"{path}: exists, and is no file of rejected documents. Name another file for these, or move it."
            raise UsageError(message, code="foreign-output", value=path)


def known_id(id: Id) -> str | None:
    """The id of a bad document, or None if it cannot be told either."""
    with suppress(BadDocument):
        return id() if callable(id) else id
    return None


class Tally:
    """Counts of one read or write, and where rejected documents go.

    Without `rejects` the first bad document raises. With a path, bad documents are written there as JSON Lines,
    and reading continues. With `skip`, they are only counted, and `reasons` has the messages of the first ones.
    """

    def __init__(self, rejects: str | Path | None = None, *, skip: bool = False) -> None:
        self.rejects_path = Path(rejects) if rejects is not None else None
        self._skip = skip
        self.reasons: list[str] = []
        if self.rejects_path is not None:
            require_rejects(self.rejects_path)
        self.documents = 0
        self.written = 0
        self.spans: Counter[str] = Counter()
        self.relations: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.files: Counter[str] = Counter()
        self.failures: list[str] = []
        self.member_failures: list[str] = []  # the failures that affected only one file inside an archive
        self.bytes_read = 0
        self._rejects: IO[str] | None = None
        self._rejects_begun = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the rejects file if it is open."""
        if self._rejects is not None:
            self._rejects.close()
            self._rejects = None

    @property
    def strict(self) -> bool:
        """Whether the first bad document raises."""
        return self.rejects_path is None and not self._skip

    def redirect(self, rejects: Path) -> None:
        """Write documents that are rejected from now on to another file, which is overwritten."""
        self.close()
        rejects.unlink(missing_ok=True)
        self.rejects_path, self._rejects_begun = rejects, False

    def count(self, doc: Document) -> None:
        """Count a document that was read, with its spans and relations."""
        self.documents += 1
        for span in doc.spans:
            self.spans[span.type] += 1
        for relation in doc.relations:
            self.relations[relation.type] += 1

    def note(self, what: str, times: int = 1) -> None:
        """Count something smaller than a document that was ignored or changed, such as an unknown field."""
        self.notes[what] += times

    def attempt(self, make: Callable[[], T], *, where: str, id: Id = None, raw: bytes | None = None) -> T | None:
        """The result of `make`, or None if it raised BadDocument and the document was rejected.

        `where` names the file and line; `raw` are the source's bytes, stored with the reject. `id` may be a function,
        which is called only for a reject.
        """
        try:
            return make()
        except BadDocument as error:
            self.reject(error, where=where, id=known_id(id), raw=raw)
            return None

    def accept(self, make: Callable[[], T], *, where: str, id: Id = None, raw: bytes | None = None) -> Iterator[T]:
        """Yield the result of `make`, or nothing if the document was rejected."""
        result = self.attempt(make, where=where, id=id, raw=raw)
        if result is not None:
            yield result

    def convert(self, docs: Iterable[Document], make: Callable[[Document], T]) -> Iterator[T]:
        """Yield what `make` returns for each document that a format can represent, and count these as written."""
        for doc in docs:
            for result in self.accept(partial(make, doc), where=f"document {doc.id!r}", id=doc.id):
                yield result
                self.written += 1

    def reject(self, error: BadDocument, *, where: str, id: str | None = None, raw: bytes | None = None) -> None:
        """Write a bad document to the rejects file; without one, raise its error, unless it is to be skipped."""
        if self.strict:
            raise type(error)(error.reason, f"{where}: {error}", value=error.value) from error
        self.rejected[error.reason] += 1
        if self.rejects_path is None:
            if len(self.reasons) < MAX_REASONS:
                self.reasons.append(f"{where}: {error}")
            return
        if self._rejects is None:
            # A lone surrogate, in an id or a file name, becomes its JSON escape.
            try:
                self.rejects_path.parent.mkdir(parents=True, exist_ok=True)
                self._rejects = self.rejects_path.open(
                    "a" if self._rejects_begun else "w", encoding="utf-8", errors="backslashreplace"
                )
            except OSError as problem:
                raise FormatError(
                    f"{self.rejects_path}: rejected documents cannot be written there ({problem.strerror}). "
                    "Name another file.",
                    code="not-writable",
                    value=self.rejects_path,
                ) from problem
            self._rejects_begun = True
        line = {"where": where, "id": id, "reason": error.reason, "message": str(error), **_raw_fields(raw)}
        try:
            self._rejects.write(json.dumps(line, ensure_ascii=False) + "\n")
            self._rejects.flush()
        except OSError as problem:
            message = (
                f"{self.rejects_path}: rejected documents cannot be written ({problem.strerror}). Free some space."
            )
            raise FormatError(message, code="not-writable", value=self.rejects_path) from problem

    def raise_failures(self, where: str) -> None:
        """Raise FormatError if a file was damaged; a damaged file inside an archive is rejected instead."""
        for failure in self.member_failures:
            self.reject(BadDocument(BROKEN_FILE, failure), where=where)
        if broken := [failure for failure in self.failures if failure not in self.member_failures]:
            raise FormatError(broken[0], code="broken-file", value=where)

    def summary(self) -> dict[str, object]:
        """All counts as plain values for JSON."""
        return {
            "documents": self.documents,
            "written": self.written,
            **{name: dict(getattr(self, name).most_common()) for name in _COUNTERS},
            "failures": list(self.failures),
        }


def _raw_fields(raw: bytes | None) -> dict[str, object]:
    if raw is None:
        return {}
    if len(raw) > MAX_RAW_BYTES:
        return {"raw_bytes": len(raw), "raw_start": raw[:1000].decode(errors="backslashreplace")}
    try:
        return {"raw": raw.decode()}
    except UnicodeDecodeError:
        return {"raw": raw.decode(errors="backslashreplace"), "raw_base64": base64.b64encode(raw).decode()}


def note_losses(
    doc: Document, tally: Tally, *, supported: frozenset[str] = frozenset(), lost: tuple[str, ...] = ()
) -> None:
    """Note what the document has and the format does not support, and what else was `lost`."""
    present = {
        "relations": doc.relations,
        **{f"attribute {name!r}": True for name in sorted({one.name for one in doc.attributes})},
        "questions": doc.questions,
        "labels": doc.labels,
        "label scores": doc.label_scores,
        "metadata": doc.meta != NO_METADATA,
        "concepts": any(span.concepts for span in doc.spans),
        "scores": any(span.score is not None for span in doc.spans)
        or any(relation.score is not None for relation in doc.relations),
        "relation novelty": any(relation.novel is not None for relation in doc.relations),
        "passage offsets": len(doc.passages) > 1 or (doc.passages and doc.passages[0].offset),
        "passage kinds and sections": any(
            passage.section or passage.category or passage.language or passage.source for passage in doc.passages
        )
        or not {passage.kind for passage in doc.passages} <= {"sentence", "paragraph"},
        "sentences and tokens": any(passage.sentences or passage.tokens for passage in doc.passages),
    }
    supported |= {name for name in present if name.startswith("attribute ") and "attributes" in supported}
    for name in (*(name for name, has in present.items() if has and name not in supported), *lost):
        tally.note(f"{name} not written")


def repair_spans(
    passages: Sequence[Passage],
    spans: Iterable[Span],
    relations: Iterable[Relation] = (),
    attributes: Iterable[Attribute] = (),
    *,
    tally: Tally,
) -> tuple[tuple[Span, ...], tuple[Relation, ...], tuple[Attribute, ...]]:
    """The spans whose text is in the document, moved by up to MAX_SHIFT characters, with their dependents.

    A span whose text is not found is dropped, and with it the relations and attributes that refer to it.
    """
    kept: list[Span] = []
    dropped: set[str] = set()
    for span in spans:
        relocated = _relocate(passages, span)
        if relocated is None:
            dropped.add(span.id)
            tally.note("span dropped: its text is not near its offsets")
            continue
        if relocated is not span:
            tally.note("span moved to its text")
        kept.append(relocated)
    return tuple(kept), *drop_dependents(dropped, relations, attributes, tally=tally)


def drop_dependents(
    dropped: set[str], relations: Iterable[Relation], attributes: Iterable[Attribute], *, tally: Tally
) -> tuple[tuple[Relation, ...], tuple[Attribute, ...]]:
    """The relations and attributes that refer, directly or through other relations, to none of these ids."""
    relations, attributes = tuple(relations), tuple(attributes)
    referrers: defaultdict[str | None, set[str]] = defaultdict(set)
    for relation in relations:
        for argument in relation.arguments:
            referrers[argument.target].add(relation.id)
    queue = list(dropped)
    dropped_relations: set[str] = set()
    while queue:
        new = referrers.get(queue.pop(), set()) - dropped_relations
        dropped_relations |= new
        queue += new
    if dropped_relations:
        tally.note("relation dropped: it refers to a dropped span", len(dropped_relations))
    removed = dropped | dropped_relations
    remaining = tuple(attribute for attribute in attributes if attribute.target not in removed)
    if len(remaining) < len(attributes):
        tally.note("attribute dropped: its target was dropped", len(attributes) - len(remaining))
    return tuple(relation for relation in relations if relation.id not in dropped_relations), remaining


def text_at(passages: Sequence[Passage], part: Range) -> str | None:
    """The text of a range, or None if it is not inside one passage."""
    start, end = part
    index = bisect_right(passages, start, key=lambda passage: passage.offset) - 1
    if index < 0 or end > passages[index].end:
        return None
    passage = passages[index]
    return passage.text[start - passage.offset : end - passage.offset]


def find_nearest(text: str, mention: str, start: int) -> int | None:
    """The position of the mention nearest to `start`, at most MAX_SHIFT away, or None."""
    if not mention:
        return None
    before = text.rfind(mention, max(0, start - MAX_SHIFT), max(0, start + len(mention)))
    after = text.find(mention, max(0, start), max(0, start + MAX_SHIFT + len(mention)))
    return min((at for at in (before, after) if at >= 0), key=lambda at: abs(at - start), default=None)


def _relocate(passages: Sequence[Passage], span: Span) -> Span | None:
    """The span itself if its text matches, a moved copy, or None."""
    if _matches(passages, span.parts, span.text):
        return span
    if len(span.parts) > 1:
        # The parts of a discontinuous span move by the same distance.
        for shift in sorted(range(-MAX_SHIFT, MAX_SHIFT + 1), key=abs):
            parts = tuple((start + shift, end + shift) for start, end in span.parts)
            if _matches(passages, parts, span.text):
                return replace(span, parts=parts)
        return None
    # Some mentions include surrounding spaces that the text may lack.
    for mention in dict.fromkeys((span.text, span.text.strip())):
        starts = [
            passage.offset + at
            for passage in passages
            if passage.offset - MAX_SHIFT <= span.start <= passage.end + MAX_SHIFT
            and (at := find_nearest(passage.text, mention, span.start - passage.offset)) is not None
        ]
        if starts:
            start = min(starts, key=lambda at: abs(at - span.start))
            return replace(span, parts=((start, start + len(mention)),), text=mention)
    return None


def _matches(passages: Sequence[Passage], parts: tuple[Range, ...], text: str) -> bool:
    texts = [text_at(passages, part) for part in parts]
    return None not in texts and " ".join(map(str, texts)) == text


# The option `offsets` of readers: what happens to annotations that do not match their text

Offsets = Literal["keep", "strict", "repair"]
# Reasons of documents with mentions whose offsets do not fit the text.
OFFSET_REASONS = ("offset_mismatch", "bad_offset")
Make = Callable[[tuple[Span, ...], tuple[Relation, ...], tuple[Attribute, ...]], Document]

# Of fewer mentions than this, more than half may fail by chance.
MIN_FAILURES = 3


def settle(
    make: Make,
    passages: Sequence[Passage],
    spans: tuple[Span, ...],
    relations: tuple[Relation, ...],
    attributes: tuple[Attribute, ...],
    *,
    offsets: Offsets,
    tally: Tally,
) -> Document:
    """The document that `make` builds from its annotations, with bad ones handled as `offsets` says."""
    if offsets == "repair":
        return make(*repair_spans(passages, spans, relations, attributes, tally=tally))
    try:
        return make(spans, relations, attributes)
    except DocumentError as error:
        if offsets == "strict" or error.reason not in (*OFFSET_REASONS, "unknown_target"):
            raise
        failure = error
    kept, dropped = _matching(make((), (), ()), spans, failure, tally)
    known = {span.id for span in kept} | {relation.id for relation in relations}
    targets = {argument.target for relation in relations for argument in relation.arguments}
    targets |= {attribute.target for attribute in attributes}
    unknown = {target for target in targets if target is not None and target not in known}
    return make(kept, *drop_dependents(dropped | unknown, relations, attributes, tally=tally))


def _matching(
    bare: Document, spans: tuple[Span, ...], failure: BadDocument, tally: Tally
) -> tuple[tuple[Span, ...], set[str]]:
    """The spans with the spelling of the text, and the ids of those dropped."""
    kept: list[Span] = []
    respelled = 0
    for span in spans:
        try:
            text = bare.text_of(span)
        except BadDocument:  # beyond the end
            continue
        if text == span.text:
            kept.append(span)
        elif len(text) == sum(end - start for start, end in span.parts) + len(span.parts) - 1 and is_respelling(
            span.text, text
        ):
            respelled += 1
            kept.append(replace(span, text=text))
    dropped = {span.id for span in spans} - {span.id for span in kept}
    if len(dropped) >= MIN_FAILURES and 2 * len(dropped) > len(spans):
        if tally.strict:
            raise failure
        tally.note("document kept without most of its mentions, which do not fit its text: try --set offsets=repair")
    if respelled:
        tally.note("mention spelled as in the text", respelled)
    if dropped:
        tally.note("mention dropped: the text at its offsets is another", len(dropped))
    return tuple(kept), dropped


def is_respelling(mention: str, text: str) -> bool:
    """Whether a mention is the text in another spelling: escaped, with other spaces, or with letters replaced.

    Many tools write a for α, a plain space for a no-break space, and ? for what they do not know.
    """
    if unescape(mention) == text:
        return True
    if len(mention) != len(text):
        return False
    pairs = [(one, other) for one, other in zip(mention, text, strict=True) if one != other]
    replaced = all((one.isspace() and other.isspace()) or not (one + other).isascii() for one, other in pairs)
    # A mention of one replaced letter is its text; of longer ones, half must be the same.
    return replaced and (len(text) <= 2 or 2 * len(pairs) <= len(text))
