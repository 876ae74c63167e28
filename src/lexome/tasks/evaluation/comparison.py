"""Predicted and gold documents brought together: by id, and never with another text."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lexome.document import Document, shorten
from lexome.errors import FormatError, UsageError
from lexome.formats import Tally, expand, read
from lexome.formats.registry import get_format
from lexome.formats.streams import Source, decode, open_sources
from lexome.tasks.metrics.bootstrap import (
    Interval,
    Rows,
    Statistic,
    bootstrap_interval,
    count_rows,
    f1_intervals,
    mean_of_rows,
    micro_f1,
)
from lexome.tasks.metrics.spans import Agreement, Counts, ratio, together


@dataclass(frozen=True, slots=True)
class Draws:
    """How intervals and tests are resampled."""

    samples: int = 1000
    level: float = 0.95
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Measured:
    """One measure of one system.

    section    what it is of: mentions, tokens, relations, labels or questions
    name       the measure
    score      what its one number is called: F1, accuracy, ...
    rows       the numbers of each gold document
    measure    from rows to the score
    agreement  the counts, where the score is made of them
    documents  the agreement of each document, likewise
    others     further numbers by name
    """

    section: str
    name: str
    score: str
    rows: Rows
    measure: Statistic
    agreement: Agreement | None
    documents: tuple[Agreement, ...]
    others: Mapping[str, float]

    @property
    def value(self) -> float:
        """The score of all documents."""
        return self.measure(self.rows)

    def interval(self, draws: Draws) -> Interval:
        """The score with its interval."""
        return bootstrap_interval(self.rows, self.measure, samples=draws.samples, level=draws.level, seed=draws.seed)

    def type_intervals(self, draws: Draws) -> dict[str, Interval]:
        """Each type's F1 with its interval."""
        if self.agreement is None or not self.agreement.types:
            return {}
        names = list(self.agreement.types)
        empty = Counts(0, 0, 0)
        counts = [[_numbers(part.types.get(name, empty)) for name in names] for part in self.documents]
        intervals = f1_intervals(
            np.asarray(counts, dtype=np.float64), samples=draws.samples, level=draws.level, seed=draws.seed
        )
        return dict(zip(names, intervals, strict=True))


def counted(
    section: str, name: str, documents: Sequence[Agreement], others: Mapping[str, float] | None = None
) -> Measured:
    """A measure that is micro F1 of counts, from each document's."""
    whole = together(documents)
    return Measured(section, name, "F1", count_rows(documents), micro_f1, whole, tuple(documents), others or {})


def averaged(section: str, name: str, score: str, values: Sequence[Sequence[float]]) -> Measured:
    """A measure that is a mean over texts or questions, from the values of each document's."""
    rows = np.asarray([(sum(own), len(own)) for own in values], dtype=np.float64).reshape(-1, 2)
    return Measured(section, name, score, rows, mean_of_rows, None, (), {})


def macro_f1_of(classes: int) -> Statistic:
    """The mean of F1 over this many classes, where rows are the right, spurious and missed of one after the other."""

    def measure(rows: Rows) -> float:
        sums = rows.sum(axis=0).reshape(classes, 3)
        return ratio(sum(ratio(2 * right, 2 * right + spurious + missed) for right, spurious, missed in sums), classes)

    return measure


def macro(section: str, name: str, documents: Sequence[Agreement], classes: Sequence[str]) -> Measured:
    """A measure that is the mean of F1 over these classes, from each document's counts."""
    empty = Counts(0, 0, 0)
    rows = [[number for name in classes for number in _numbers(part.types.get(name, empty))] for part in documents]
    matrix = np.asarray(rows, dtype=np.float64).reshape(len(documents), 3 * len(classes))
    return Measured(section, name, "macro F1", matrix, macro_f1_of(len(classes)), None, (), {})


def _numbers(counts: Counts) -> tuple[int, int, int]:
    return counts.true_positives, counts.false_positives, counts.false_negatives


# Words and their tags.
Sentence = tuple[tuple[str, str], ...]

_DOCSTART = b"-DOCSTART-"


@dataclass(frozen=True, slots=True)
class Loaded:
    """The documents of a file and, where it is in columns, the tagged sentences of each."""

    name: str
    docs: tuple[Document, ...]
    tags: tuple[tuple[Sentence, ...], ...] | None


def load(path: Path, format: str | None = None, options: Mapping[str, str] | None = None) -> Loaded:
    """All documents of a file, folder or archive; a bad one raises, for it would be scored as if it weren't there."""
    if str(path) == "-":
        raise FormatError("standard input cannot be compared: it can be read only once. Write it to a file.")
    tally = Tally()
    given: dict[str, Any] = dict(options or {})
    docs = tuple(read(path, format, tally=tally, **given))
    if set(tally.files) != {"conll"}:
        return Loaded(str(path), docs, None)
    tags = tuple(_tags(path, format, (options or {}).get("encoding", "utf-8")))
    return Loaded(str(path), docs, tags if len(tags) == len(docs) else None)


def _tags(path: Path, format: str | None, encoding: str) -> Iterator[tuple[Sentence, ...]]:
    """The tagged sentences of each document of files in columns."""
    tally = Tally()
    for file in expand([path], get_format(format) if format is not None else None, tally):
        for source in open_sources(file, tally):
            yield from tagged_documents(source, encoding)


def tagged_documents(source: Source, encoding: str = "utf-8") -> Iterator[tuple[Sentence, ...]]:
    """The sentences of each document of a file in columns; without -DOCSTART- lines each is a document."""
    sentences: list[Sentence] = []
    words: list[tuple[str, str]] = []
    opened = False
    for line in _lines(source, encoding):
        if line is None or not line:
            if words:
                sentences.append(tuple(words))
                words = []
            if (line is None and (opened or sentences)) or (sentences and not opened):
                yield tuple(sentences)
                sentences = []
            opened = opened or line is None
        elif line[0] not in "\t ":  # a line without a token is no part of the document either
            words.append(_word_and_tag(line))
    if words:
        sentences.append(tuple(words))
    if sentences or opened:
        yield tuple(sentences)


def _lines(source: Source, encoding: str) -> Iterator[str | None]:
    """The lines, None for one that begins a document, "" for a blank one."""
    for _, line in source.lines():
        if line.startswith(_DOCSTART) and line[len(_DOCSTART) : len(_DOCSTART) + 1] in (b"", b" ", b"\t"):
            yield None
        else:
            yield "" if line.isspace() else decode(line, encoding).rstrip(" \t")


def _word_and_tag(line: str) -> tuple[str, str]:
    separator = "\t" if "\t" in line else " "
    return line.partition(separator)[0], line.rpartition(separator)[2]


def tags_of(sentences: Iterable[Sentence]) -> list[list[str]]:
    """The tags of sentences, without their words."""
    return [[tag for _, tag in sentence] for sentence in sentences]


@dataclass(frozen=True, slots=True)
class Pair:
    """A gold document, what was predicted for it, and both files' own tags where they are in columns."""

    gold: Document
    found: Document
    gold_tags: tuple[Sentence, ...] = ()
    found_tags: tuple[Sentence, ...] = ()


@dataclass(frozen=True, slots=True)
class Pairs:
    """All gold documents in their order, and how the predicted ones were matched to them."""

    pairs: tuple[Pair, ...]
    matched: int
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    by_place: bool

    @property
    def with_tags(self) -> bool:
        """Whether both files gave their own tags."""
        return all(pair.gold_tags or not pair.gold.passages for pair in self.pairs) and any(
            pair.gold_tags for pair in self.pairs
        )


def paired(found: Loaded, gold: Loaded) -> Pairs:
    """Each gold document with the predicted one of its id, the second with the second where an id comes twice.

    Where the files share no id, but have the same texts in the same order, they are matched by place: ids made of a
    file's name differ. A gold document without a prediction is paired with one that says nothing.
    """
    if not gold.docs:
        raise UsageError(f"{gold.name}: there is no document; expected gold ones.")
    partners, by_place = _partners(found, gold), False
    if not any(partner is not None for partner in partners):
        if [doc.text for doc in found.docs] != [doc.text for doc in gold.docs]:
            raise UsageError(_strangers(found, gold))
        partners, by_place = list(range(len(gold.docs))), True
    tagged = found.tags is not None and gold.tags is not None
    pairs = tuple(_pair(found, gold, place, partner, tagged=tagged) for place, partner in enumerate(partners))
    used = {partner for partner in partners if partner is not None}
    return Pairs(
        pairs,
        len(used),
        tuple(doc.id for doc, partner in zip(gold.docs, partners, strict=True) if partner is None),
        tuple(doc.id for place, doc in enumerate(found.docs) if place not in used),
        by_place,
    )


def _partners(found: Loaded, gold: Loaded) -> list[int | None]:
    """For each gold document the place of the predicted one of its id."""
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, doc in enumerate(found.docs):
        places[doc.id].append(place)
    for own in places.values():
        own.reverse()
    return [places[doc.id].pop() if places.get(doc.id) else None for doc in gold.docs]


def _pair(found: Loaded, gold: Loaded, place: int, partner: int | None, *, tagged: bool) -> Pair:
    doc = gold.docs[place]
    own = gold.tags[place] if tagged and gold.tags is not None else ()
    if partner is None:
        silent = replace(doc, spans=(), relations=(), attributes=(), questions=(), labels=())
        return Pair(doc, silent, own, tuple(tuple((word, "O") for word, _ in sentence) for sentence in own))
    other = found.docs[partner]
    if doc.passages and other.passages:
        _require_same_text(doc, other, found.name, gold.name)
    theirs = found.tags[partner] if tagged and found.tags is not None else ()
    return Pair(doc, other, own, theirs)


def _require_same_text(gold: Document, found: Document, found_name: str, gold_name: str) -> None:
    left, right = gold.text, found.text
    if left == right:
        return
    pairs = zip(left, right, strict=False)
    place = next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(left), len(right)))
    raise UsageError(
        f"document {shorten(gold.id)!r}: the texts differ from character {place:,} on: "
        f"{left[max(0, place - 10) : place + 20]!r} in {gold_name}, {right[max(0, place - 10) : place + 20]!r} in "
        f"{found_name}. Places in two texts cannot be compared; predict on the text of {gold_name}."
    )


def _strangers(found: Loaded, gold: Loaded) -> str:
    return (
        f"no document of {found.name} ({_some(found.docs)}) is one of {gold.name} ({_some(gold.docs)}): no id is the "
        "same, nor are the texts in their order. Check that both are of the same set."
    )


def _some(docs: Sequence[Document]) -> str:
    ids = ", ".join(repr(shorten(doc.id, 30)) for doc in docs[:2])
    return f"{len(docs):,} documents: {ids}, ..." if len(docs) > 2 else f"{len(docs):,}: {ids or 'none'}"


# How much of the text is shown on each side of a mention.
_AROUND = 30


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing on which predictions and gold differ.

    section   what it is of: mentions, tokens, relations, labels or questions
    kind      how they differ, such as "missed" or "wrong type"
    document  the document's id
    gold      what gold says, or None
    found     what was predicted, or None
    context   the text around it, where it has a place
    """

    section: str
    kind: str
    document: str
    gold: str | None
    found: str | None
    context: str | None = None


def around(doc: Document, start: int, end: int) -> str:
    """The text of a range in square brackets, with what stands before and after it, on one line."""
    text = doc.text
    low, high = max(0, start - _AROUND), min(len(text), end + _AROUND)
    before, after = ("…" if low else "") + text[low:start], text[end:high] + ("…" if high < len(text) else "")
    return " ".join(f"{before}[{text[start:end]}]{after}".split())
