"""What became of everything that was read: counts, notes, and documents set aside with their reason."""

import base64
import json
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, Self, TypeVar

from lexome.document import NO_METADATA, Attribute, Document, Passage, Range, Relation, Span
from lexome.errors import BadDocument, FormatError

T = TypeVar("Made")

# The reason that stands for a file which broke inside an archive.
BROKEN_FILE = "broken_file"

# A rejected document is kept whole up to this size; a larger one is named by its place alone.
MAX_RAW_BYTES = 1 << 20


class Tally:
    """Counts of one reading or writing, and the place where rejected documents go.

    Without `rejects` the first bad document raises. With a path, bad documents are written there,
    one JSON object a line, and reading goes on.
    """

    def __init__(self, rejects: str | Path | None = None) -> None:
        self.rejects_path = Path(rejects) if rejects is not None else None
        self.documents = 0
        self.written = 0
        self.spans: Counter[str] = Counter()
        self.relations: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()
        self.notes: Counter[str] = Counter()
        self.files: Counter[str] = Counter()
        self.failures: list[str] = []
        self.member_failures: list[str] = []  # those of the failures that broke a file inside an archive and no more
        self.bytes_read = 0
        self._rejects: IO[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the rejects file, if one was begun."""
        if self._rejects is not None:
            self._rejects.close()
            self._rejects = None

    def count(self, doc: Document) -> None:
        """Add a document that was read."""
        self.documents += 1
        for span in doc.spans:
            self.spans[span.type] += 1
        for relation in doc.relations:
            self.relations[relation.type] += 1

    def note(self, what: str, times: int = 1) -> None:
        """Add something smaller than a document that was left out or changed, such as an unknown field."""
        self.notes[what] += times

    def attempt(
        self, make: Callable[[], T], *, where: str, id: str | None = None, raw: bytes | None = None
    ) -> T | None:
        """What `make` returns, or None where it raises BadDocument and the document was set aside.

        `where` names file and place; `raw` is the source's own bytes, kept with the reject.
        """
        try:
            return make()
        except BadDocument as error:
            self.reject(error, where=where, id=id, raw=raw)
            return None

    def reject(self, error: BadDocument, *, where: str, id: str | None = None, raw: bytes | None = None) -> None:
        """Set a bad document aside; raises it instead where there is no place for rejects."""
        if self.rejects_path is None:
            raise type(error)(error.reason, f"{where}: {error}", value=error.value) from error
        self.rejected[error.reason] += 1
        if self._rejects is None:
            begun = sum(self.rejected.values()) > 1
            # Half a surrogate pair, in an id or a file's name, becomes its own JSON escape.
            try:
                self.rejects_path.parent.mkdir(parents=True, exist_ok=True)
                self._rejects = self.rejects_path.open(
                    "a" if begun else "w", encoding="utf-8", errors="backslashreplace"
                )
            except OSError as problem:
                raise FormatError(
                    f"{self.rejects_path}: bad documents cannot go there ({problem.strerror}). Name another file."
                ) from problem
        line = {"where": where, "id": id, "reason": error.reason, "message": str(error), **_kept(raw)}
        self._rejects.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._rejects.flush()

    def raise_failures(self, where: str) -> None:
        """FormatError where a file broke; one inside an archive, which ends no other, is set aside instead."""
        for failure in self.member_failures:
            self.reject(BadDocument(BROKEN_FILE, failure), where=where)
        if broken := [failure for failure in self.failures if failure not in self.member_failures]:
            raise FormatError(broken[0])

    def summary(self) -> dict[str, object]:
        """Everything counted, as plain values for JSON."""
        return {
            "documents": self.documents,
            "written": self.written,
            "spans": dict(self.spans.most_common()),
            "relations": dict(self.relations.most_common()),
            "rejected": dict(self.rejected.most_common()),
            "notes": dict(self.notes.most_common()),
            "files": dict(self.files.most_common()),
            "failures": list(self.failures),
        }


def _kept(raw: bytes | None) -> dict[str, object]:
    """The fields of a reject that hold the source's own bytes."""
    if raw is None:
        return {}
    if len(raw) > MAX_RAW_BYTES:
        return {"raw_bytes": len(raw), "raw_start": _as_text(raw[:1000])["raw"]}
    return _as_text(raw)


def _as_text(raw: bytes) -> dict[str, object]:
    try:
        return {"raw": raw.decode()}
    except UnicodeDecodeError:
        return {"raw": raw.decode(errors="backslashreplace"), "raw_base64": base64.b64encode(raw).decode()}


def note_losses(
    doc: Document, tally: Tally, *, supported: frozenset[str] = frozenset(), lost: tuple[str, ...] = ()
) -> None:
    """Note everything the document has that is not among what the format has `held`, and what else was `lost`."""
    present = {
        "relations": doc.relations,
        "attributes": doc.attributes,
        "questions": doc.questions,
        "labels": doc.labels,
        "metadata": doc.meta != NO_METADATA,
        "concepts": any(span.concepts for span in doc.spans),
        "scores": any(span.score is not None for span in doc.spans)
        or any(relation.score is not None for relation in doc.relations),
        "novelty of relations": any(relation.novel is not None for relation in doc.relations),
        "places of passages": len(doc.passages) > 1 or (doc.passages and doc.passages[0].offset),
        "kinds and sections of passages": any(map(_is_described, doc.passages)),
        "sentences and tokens": any(passage.sentences or passage.tokens for passage in doc.passages),
    }
    for name, has in present.items():
        if has and name not in supported:
            tally.note(f"{name} not written")
    for name in lost:
        tally.note(f"{name} not written")


def _is_described(passage: Passage) -> bool:
    told = passage.section or passage.category or passage.language or passage.source
    return bool(told) or passage.kind not in ("sentence", "paragraph")


# A mention further away than this is more likely another one of the same name.
MAX_SHIFT = 100


def repair_spans(
    passages: Sequence[Passage],
    spans: Iterable[Span],
    relations: Iterable[Relation] = (),
    attributes: Iterable[Attribute] = (),
    *,
    tally: Tally,
) -> tuple[tuple[Span, ...], tuple[Relation, ...], tuple[Attribute, ...]]:
    """The spans that stand in the text, moved by up to REACH characters where that finds them, and what hangs on them.

    A span that is found nowhere is dropped, and with it the relations and attributes that refer to it.
    """
    kept: list[Span] = []
    dropped: set[str] = set()
    for span in spans:
        placed = _placed(passages, span)
        if placed is None:
            dropped.add(span.id)
            tally.note("span dropped: its text stands nowhere near its offsets")
            continue
        if placed is not span:
            tally.note("span moved to where its text stands")
        kept.append(placed)
    return tuple(kept), *drop_dependents(dropped, relations, attributes, tally=tally)


def find_nearest(text: str, mention: str, start: int) -> int | None:
    """Where the mention begins in the text, nearest to `start` and at most REACH away, or None."""
    if not mention:
        return None
    before = text.rfind(mention, max(0, start - MAX_SHIFT), max(0, start + len(mention)))
    after = text.find(mention, max(0, start), max(0, start + MAX_SHIFT + len(mention)))
    found = [place for place in (before, after) if place >= 0]
    return min(found, key=lambda place: abs(place - start), default=None)


def text_at(passages: Sequence[Passage], part: Range) -> str | None:
    """The text of a range, or None where it is not inside one passage."""
    start, end = part
    index = bisect_right(passages, start, key=lambda passage: passage.offset) - 1
    if index < 0 or end > passages[index].end:
        return None
    passage = passages[index]
    return passage.text[start - passage.offset : end - passage.offset]


def drop_dependents(
    dropped: set[str],
    relations: Iterable[Relation],
    attributes: Iterable[Attribute],
    *,
    tally: Tally,
) -> tuple[tuple[Relation, ...], tuple[Attribute, ...]]:
    """The relations and attributes that refer to none of these ids, nor to a relation that falls with them."""
    related = tuple(relations)
    referring: defaultdict[str | None, set[str]] = defaultdict(set)
    for relation in related:
        for argument in relation.arguments:
            referring[argument.target].add(relation.id)
    gone = set(dropped)
    ahead = list(dropped)
    fallen: set[str] = set()
    while ahead:
        new = referring.get(ahead.pop(), set()) - fallen
        fallen |= new
        ahead += new
    left = tuple(relation for relation in related if relation.id not in fallen)
    if fallen:
        tally.note("relation dropped: it refers to a span that was dropped", len(fallen))
    gone |= fallen
    standing = tuple(attributes)
    remaining = tuple(attribute for attribute in standing if attribute.target not in gone)
    if len(remaining) < len(standing):
        tally.note("attribute dropped: it refers to something that was dropped", len(standing) - len(remaining))
    return left, remaining


def _placed(passages: Sequence[Passage], span: Span) -> Span | None:
    """The span itself where it is right, a moved one, or None."""
    found = [text_at(passages, part) for part in span.parts]
    if None not in found and " ".join(map(str, found)) == span.text:
        return span
    if len(span.parts) > 1:
        return _shifted(passages, span)
    # Some mentions were cut with the spaces around them, which the text may lack.
    for mention in dict.fromkeys((span.text, span.text.strip())):
        start = _nearest_in(passages, mention, span.start)
        if start is not None:
            return replace(span, parts=((start, start + len(mention)),), text=mention)
    return None


def _nearest_in(passages: Sequence[Passage], mention: str, start: int) -> int | None:
    places = (
        (passage.offset, find_nearest(passage.text, mention, start - passage.offset))
        for passage in passages
        if passage.offset - MAX_SHIFT <= start <= passage.end + MAX_SHIFT
    )
    found = [offset + place for offset, place in places if place is not None]
    return min(found, key=lambda place: abs(place - start), default=None)


def _shifted(passages: Sequence[Passage], span: Span) -> Span | None:
    """A discontinuous span with all its parts moved by the same distance."""
    for distance in sorted(range(-MAX_SHIFT, MAX_SHIFT + 1), key=abs):
        parts = tuple((start + distance, end + distance) for start, end in span.parts)
        found = [text_at(passages, part) for part in parts]
        if None not in found and " ".join(map(str, found)) == span.text:
            return replace(span, parts=parts)
    return None
