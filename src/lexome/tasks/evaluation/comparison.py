"""Predicted and gold documents, loaded and paired by id if their texts are equal; and the records of an evaluation."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from lexome.document import Document, shorten
from lexome.errors import FormatError, UsageError
from lexome.formats import Tally, expand, get_format, read
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
from lexome.tasks.metrics.spans import NO_COUNTS, Agreement, ratio, sum_agreements

Sentence = tuple[tuple[str, str], ...]
"""Words and their tags."""

_DOCSTART = b"-DOCSTART-"

# How many characters of context are shown on each side of a mention.
_CONTEXT = 30


@dataclass(frozen=True, slots=True)
class Resampling:
    """The settings of intervals and tests."""

    samples: int = 1000
    level: float = 0.95
    seed: int = 0


@dataclass(frozen=True, slots=True)
class MetricResult:
    """One metric of one system.

    section    what it is about: mentions, tokens, relations, labels or questions
    name       the metric
    score      the name of its score: F1, accuracy, ...
    rows       a row for each gold document
    statistic  from rows to the score
    agreement  the counts that the score is made of, if any
    documents  the agreement of each document, if any
    others     further scores by name
    """

    section: str
    name: str
    score: str
    rows: Rows
    statistic: Statistic
    agreement: Agreement | None = None
    documents: tuple[Agreement, ...] = ()
    others: Mapping[str, float] = field(default_factory=dict)

    @property
    def value(self) -> float:
        """The score of all documents."""
        return self.statistic(self.rows)

    def interval(self, settings: Resampling) -> Interval:
        """The score with its bootstrap interval."""
        return bootstrap_interval(self.rows, self.statistic, **asdict(settings))

    def type_intervals(self, settings: Resampling) -> dict[str, Interval]:
        """Each type's F1 with its bootstrap interval."""
        if self.agreement is None or not self.agreement.types:
            return {}
        names = list(self.agreement.types)
        counts = _count_matrix(self.documents, names).reshape(len(self.documents), len(names), 3)
        return dict(zip(names, f1_intervals(counts, **asdict(settings)), strict=True))


def micro_f1_result(
    section: str, name: str, documents: Sequence[Agreement], others: Mapping[str, float] | None = None
) -> MetricResult:
    """Micro F1, from each document's counts."""
    total = sum_agreements(documents)
    return MetricResult(section, name, "F1", count_rows(documents), micro_f1, total, tuple(documents), others or {})


def mean_result(section: str, name: str, score: str, values: Sequence[Sequence[float]]) -> MetricResult:
    """A mean over texts or questions, from the values of each document."""
    rows = np.asarray([(sum(own), len(own)) for own in values], dtype=np.float64).reshape(-1, 2)
    return MetricResult(section, name, score, rows, mean_of_rows)


def macro_f1_result(section: str, name: str, documents: Sequence[Agreement], classes: Sequence[str]) -> MetricResult:
    """Macro F1 over these classes, from each document's counts."""
    return MetricResult(section, name, "macro F1", _count_matrix(documents, classes), macro_f1(len(classes)))


def macro_f1(classes: int) -> Statistic:
    """The mean F1 of this many classes, where rows hold the counts of one after the other."""

    def statistic(rows: Rows) -> float:
        sums = rows.sum(axis=0).reshape(classes, 3)
        return ratio(sum(ratio(2 * right, 2 * right + spurious + missed) for right, spurious, missed in sums), classes)

    return statistic


def _count_matrix(documents: Sequence[Agreement], names: Sequence[str]) -> Rows:
    """True positives, false positives and false negatives of each type in each document, (D, 3 T)."""
    counts = ([part.types.get(name, NO_COUNTS) for name in names] for part in documents)
    rows = [
        [number for one in own for number in (one.true_positives, one.false_positives, one.false_negatives)]
        for own in counts
    ]
    return np.asarray(rows, dtype=np.float64).reshape(len(documents), 3 * len(names))


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """The documents of a file and, for CoNLL files, the tagged sentences of each."""

    name: str
    docs: tuple[Document, ...]
    tags: tuple[tuple[Sentence, ...], ...] | None


def load(path: Path, format: str | None = None, options: Mapping[str, str] | None = None) -> LoadedFile:
    """All documents of a file, folder or archive; a bad document raises, because it would be scored as missing."""
    if str(path) == "-":
        message = "standard input cannot be evaluated: it can be read only once. Write it to a file."
        raise FormatError(message, code="unsupported-input", value="-")
    tally = Tally()
    read_options: dict[str, Any] = dict(options or {})
    docs = tuple(read(path, format, tally=tally, options_if_supported={"offsets": "strict"}, **read_options))
    if set(tally.files) != {"conll"}:
        return LoadedFile(str(path), docs, None)
    encoding = read_options.get("encoding", "utf-8")
    tally = Tally()
    tags = tuple(
        sentences
        for file in expand([path], get_format(format) if format is not None else None, tally)
        for source in open_sources(file, tally)
        for sentences in read_tagged(source, encoding)
    )
    return LoadedFile(str(path), docs, tags if len(tags) == len(docs) else None)


def read_tagged(source: Source, encoding: str = "utf-8") -> Iterator[tuple[Sentence, ...]]:
    """The sentences of each document of a CoNLL file; without -DOCSTART- lines each sentence is a document."""
    sentences: list[Sentence] = []
    words: list[tuple[str, str]] = []
    in_document = False
    for line in _lines(source, encoding):
        if not line:
            if words:
                sentences.append(tuple(words))
                words = []
            if (line is None and (in_document or sentences)) or (sentences and not in_document):
                yield tuple(sentences)
                sentences = []
            in_document = in_document or line is None
        elif line[0] not in "\t ":  # a line without a token is no part of the document either
            separator = "\t" if "\t" in line else " "
            words.append((line.partition(separator)[0], line.rpartition(separator)[2]))
    if words:
        sentences.append(tuple(words))
    if sentences or in_document:
        yield tuple(sentences)


def _lines(source: Source, encoding: str) -> Iterator[str | None]:
    """The lines, None for one that begins a document, "" for a blank one."""
    for _, line in source.lines():
        if line.startswith(_DOCSTART) and line[len(_DOCSTART) : len(_DOCSTART) + 1] in (b"", b" ", b"\t"):
            yield None
        else:
            yield "" if line.isspace() else decode(line, encoding).rstrip(" \t")


def sentence_tags(sentences: Iterable[Sentence]) -> list[list[str]]:
    """The tags of sentences, without their words."""
    return [[tag for _, tag in sentence] for sentence in sentences]


@dataclass(frozen=True, slots=True)
class DocumentPair:
    """A gold document and the predicted one, and both files' own tags if they are CoNLL files."""

    gold: Document
    predicted: Document
    gold_tags: tuple[Sentence, ...] = ()
    predicted_tags: tuple[Sentence, ...] = ()


@dataclass(frozen=True, slots=True)
class DocumentPairs:
    """All gold documents in their order, and how predicted ones were matched to them."""

    pairs: tuple[DocumentPair, ...]
    matched: int
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    by_place: bool

    @property
    def with_tags(self) -> bool:
        """Whether both files have their own tags."""
        return all(pair.gold_tags or not pair.gold.passages for pair in self.pairs) and any(
            pair.gold_tags for pair in self.pairs
        )


def pair_documents(predicted: LoadedFile, gold: LoadedFile) -> DocumentPairs:
    """Each gold document with the predicted one of its id, the second with the second if an id occurs twice.

    Files that share no id, but have the same texts in the same order, are matched by place: ids made of a file's name
    differ. A gold document without a prediction is paired with one without annotations.
    """
    if not gold.docs:
        raise UsageError(
            f"{gold.name}: there is no document; expected gold ones.", code="no-documents", value=gold.name
        )
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, doc in reversed(list(enumerate(predicted.docs))):
        places[doc.id].append(place)
    partners = [places[doc.id].pop() if places.get(doc.id) else None for doc in gold.docs]
    by_place = all(partner is None for partner in partners)
    if by_place:
        if [doc.text for doc in predicted.docs] != [doc.text for doc in gold.docs]:
            raise UsageError(
                f"no document of {predicted.name} ({_some_ids(predicted.docs)}) is in {gold.name} "
                f"({_some_ids(gold.docs)}): no ids are the same, nor are the texts in their order. Check that both are "
                "of the same dataset.",
                code="no-common-documents",
                value=predicted.name,
            )
        partners = list(range(len(gold.docs)))
    tagged = predicted.tags is not None and gold.tags is not None
    pairs = tuple(_pair(predicted, gold, place, partner, tagged=tagged) for place, partner in enumerate(partners))
    used = {partner for partner in partners if partner is not None}
    return DocumentPairs(
        pairs,
        len(used),
        tuple(doc.id for doc, partner in zip(gold.docs, partners, strict=True) if partner is None),
        tuple(doc.id for place, doc in enumerate(predicted.docs) if place not in used),
        by_place,
    )


def _pair(predicted: LoadedFile, gold: LoadedFile, place: int, partner: int | None, *, tagged: bool) -> DocumentPair:
    doc = gold.docs[place]
    tags = gold.tags[place] if tagged and gold.tags is not None else ()
    if partner is None:
        empty = replace(doc, spans=(), relations=(), attributes=(), questions=(), labels=(), label_scores=())
        return DocumentPair(doc, empty, tags, tuple(tuple((word, "O") for word, _ in sentence) for sentence in tags))
    other = predicted.docs[partner]
    if doc.passages and other.passages:
        _require_same_text(doc, other, predicted.name, gold.name)
    other_tags = predicted.tags[partner] if tagged and predicted.tags is not None else ()
    return DocumentPair(doc, other, tags, other_tags)


def _require_same_text(gold: Document, predicted: Document, predicted_name: str, gold_name: str) -> None:
    left, right = gold.text, predicted.text
    if left == right:
        return
    pairs = zip(left, right, strict=False)
    place = next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(left), len(right)))
    raise UsageError(
        f"document {shorten(gold.id)!r}: the texts differ from character {place:,} on: "
        f"{left[max(0, place - 10) : place + 20]!r} in {gold_name}, {right[max(0, place - 10) : place + 20]!r} in "
        f"{predicted_name}. Offsets in two texts cannot be compared; predict on the text of {gold_name}.",
        code="text-mismatch",
        value=gold.id,
    )


def _some_ids(docs: Sequence[Document]) -> str:
    ids = ", ".join(repr(shorten(doc.id, 30)) for doc in docs[:2])
    return f"{len(docs):,} documents: {ids}, ..." if len(docs) > 2 else f"{len(docs):,}: {ids or 'none'}"


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference between predictions and gold.

    section    what it is about: mentions, tokens, relations, labels or questions
    kind       how they differ, such as "missed" or "wrong type"
    document   the document's id
    gold       the gold annotation, or None
    predicted  the prediction, or None
    context    the text around it, if it has a place
    """

    section: str
    kind: str
    document: str
    gold: str | None
    predicted: str | None
    context: str | None = None


def context_of(doc: Document, start: int, end: int) -> str:
    """The text of a range in square brackets, with its context, on one line."""
    text = doc.text
    low, high = max(0, start - _CONTEXT), min(len(text), end + _CONTEXT)
    before, after = ("…" if low else "") + text[low:start], text[end:high] + ("…" if high < len(text) else "")
    return " ".join(f"{before}[{text[start:end]}]{after}".split())
