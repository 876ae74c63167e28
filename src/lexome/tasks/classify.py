"""Labels of whole documents, one or several each.

C labels
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from lexome.document import Document, shorten
from lexome.errors import BadDocument, UsageError
from lexome.tasks.metrics import accuracy, classification, multilabel, pearson, spearman
from lexome.tasks.metrics.spans import NONE, agreement
from lexome.tasks.task import (
    Example,
    Floats,
    Frame,
    Ints,
    Scores,
    Task,
    Tokenizer,
    label_index,
    require_choice,
    require_logits,
    require_names,
    require_overlap,
    require_same_length,
)
from lexome.tasks.windows import Tokens, pair_example, pair_windows, single_example, text_capacity, tokenize, windows

Pool = Literal["mean", "max"]


def text_examples(
    tokens: Tokens, frame: Frame, *, overlap: int, targets: NDArray[Any] | None, key: tuple[str, ...] = ()
) -> list[Example]:
    """A row for each window of a text; a text without tokens has one row of special tokens alone."""
    return [
        single_example(tokens.part(start, end), frame, targets=targets, key=key)
        for start, end in windows(tokens.begins, size=text_capacity(frame), overlap=overlap)
    ]


def pair_examples(
    first: Tokens,
    second: Tokens,
    frame: Frame,
    *,
    overlap: int,
    targets: NDArray[Any] | None,
    key: tuple[str, ...] = (),
) -> list[Example]:
    """A row for each meeting of a window of one text with one of the other."""
    return [
        pair_example(first.part(*left), second.part(*right), frame, targets=targets, key=key)
        for left, right in pair_windows(first, second, frame, overlap=overlap)
    ]


def tokenize_pair(doc: Document, tokenizer: Tokenizer) -> tuple[Tokens, Tokens]:
    """The tokens of the two passages of a pair."""
    if len(doc.passages) != 2:
        raise BadDocument(
            "not_a_pair",
            f"document {shorten(doc.id)!r} has {len(doc.passages)} passages; expected two, the texts of a pair.",
        )
    first, second = (tokenize((passage,), tokenizer) for passage in doc.passages)
    return first, second


def pool_logits(logits: Sequence[Floats], pool: Pool, doc: Document, *, outputs: int) -> Floats:
    """One answer (C,) of the answers of all rows: their mean, or the largest of each."""
    if not len(logits):
        raise UsageError(f"there are no numbers for document {shorten(doc.id)!r}; expected those of all its rows.")
    for numbers in logits:
        require_logits(numbers, (outputs,), doc)
    stacked = np.stack([np.asarray(numbers, np.float64) for numbers in logits])
    return np.asarray(stacked.mean(0) if pool == "mean" else stacked.max(0))


def label_target(doc: Document, labels: Sequence[str], empty: str | None = None) -> Ints:
    """The number of the one label of a document, (1,); `empty` is what no label means."""
    own = doc.labels or ((empty,) if empty is not None else ())
    if len(own) != 1:
        raise BadDocument(
            "no_label" if not own else "several_labels",
            f"document {shorten(doc.id)!r} has {len(own)} labels; expected one of {', '.join(map(repr, labels))}.",
        )
    return np.array([label_index(own[0], labels, doc)], np.int64)


Average = Literal["micro", "macro", "accuracy", "examples"]

_NAMES = {"micro": "f1", "macro": "macro_f1", "accuracy": "accuracy", "examples": "example_f1"}


class Classes(Task):
    """A document's labels.

    labels     all there are; a document with another is refused
    several    whether a document may have any number of them, each true or not, or has exactly one
    threshold  how probable each of several has to be
    pool       whether the windows of a long document have a say each ("mean"), or one is enough ("max")
    overlap    how many tokens two windows of a long text share at least
    empty      the label that a document without one has, where one is expected
    scored     the labels that count in F1, where not all do: relations are scored without "none"
    average    what models are chosen by: F1 of all decisions together ("micro"), the mean of the labels' F1 ("macro"),
               the share of documents that are all right ("accuracy"), or example-based F1, as BLUE has it ("examples")
    """

    kind = "classes"
    head = "sequence"

    def __init__(
        self,
        labels: Sequence[str],
        *,
        several: bool = False,
        threshold: float = 0.5,
        pool: Pool = "mean",
        overlap: int = 64,
        empty: str | None = None,
        scored: Sequence[str] | None = None,
        average: Average = "micro",
    ) -> None:
        require_names(labels, "labels")
        require_choice(pool, get_args(Pool), "pool")
        require_overlap(overlap)
        require_choice(average, get_args(Average), "average")
        for label in (*(scored or ()), *((empty,) if empty is not None else ())):
            require_choice(label, labels, "scored or empty label")
        if not 0 < threshold < 1:
            raise UsageError(f"threshold is {threshold}; expected a probability between 0 and 1.")
        self.loss = "binary" if several else "choice"
        self.labels, self.groups = tuple(labels), (len(labels),)
        self.several, self.threshold, self.pool, self.overlap = several, threshold, pool, overlap
        self.empty, self.average = empty, average
        self.scored = tuple(scored) if scored is not None else tuple(labels)
        self.notes: Counter[str] = Counter()

    def encode(self, doc: Document, tokenizer: Tokenizer, frame: Frame, *, with_targets: bool) -> list[Example]:
        """A row for each window of the document, with the document's labels as targets of each."""
        tokens = tokenize(doc.passages, tokenizer)
        if not len(tokens):
            self.notes["document without text"] += 1
        return text_examples(tokens, frame, overlap=self.overlap, targets=self._targets(doc) if with_targets else None)

    def decode(
        self, doc: Document, rows: Sequence[Example], logits: Sequence[Floats], *, types: Collection[str] | None = None
    ) -> Document:
        """The document with the labels found, in the task's order."""
        require_same_length(len(rows), len(logits), "rows", "arrays of numbers")
        numbers = pool_logits(logits, self.pool, doc, outputs=len(self.labels))
        if not self.several:
            return replace(doc, labels=(self.labels[int(numbers.argmax())],))
        # The threshold on the logits' own scale: no overflow, and the same answer.
        least = np.log(self.threshold / (1 - self.threshold))
        return replace(doc, labels=tuple(self.labels[place] for place in np.flatnonzero(numbers >= least)))

    def score(self, gold: Sequence[Document], found: Sequence[Document]) -> Scores:
        """Micro and macro F1 over the scored labels, and accuracy; the one that `average` names first."""
        require_same_length(len(gold), len(found), "gold documents", "found ones")
        own = [self._known(doc) for doc in gold]
        other = [self._known(doc) for doc in found]
        return label_scores(own, other, scored=self.scored, several=self.several, average=self.average)

    def settings(self) -> Mapping[str, Any]:
        """All arguments, as JSON has them."""
        return {
            "kind": self.kind,
            "labels": list(self.labels),
            "several": self.several,
            "threshold": self.threshold,
            "pool": self.pool,
            "overlap": self.overlap,
            "empty": self.empty,
            "scored": list(self.scored),
            "average": self.average,
        }

    def _targets(self, doc: Document) -> NDArray[Any]:
        if not self.several:
            return label_target(doc, self.labels, self.empty)
        targets = np.zeros(len(self.labels), np.float32)
        targets[[label_index(label, self.labels, doc) for label in doc.labels]] = 1
        return targets

    def _known(self, doc: Document) -> tuple[str, ...]:
        """The labels of a document, each known to the task."""
        if not self.several:
            return (self.labels[int(label_target(doc, self.labels, self.empty)[0])],)
        return tuple(self.labels[label_index(label, self.labels, doc)] for label in doc.labels)


def label_scores(
    gold: Sequence[Sequence[str]],
    found: Sequence[Sequence[str]],
    *,
    scored: Sequence[str],
    several: bool,
    average: Average,
) -> Scores:
    """Micro and macro F1 over some labels, with precision and recall, and accuracy; the one asked for first.

    Where none of these labels is there or was found, as in a small split, F1 is 0: a task knows how its labels are
    written.
    """
    if several:
        counted = ([[name for name in names if name in scored] for names in docs] for docs in (gold, found))
        measured = multilabel(*counted, labels=scored)
        agreed, right, examples = measured.agreement, measured.exact, measured.f1
    else:
        own, other = [names[0] for names in gold], [names[0] for names in found]
        there = not {*own, *other}.isdisjoint(scored)
        agreed = classification(own, other, labels=scored) if there else agreement(dict.fromkeys(scored, NONE))
        right = examples = accuracy(own, other)
    scores = {"micro": agreed.f1, "macro": agreed.macro_f1, "accuracy": right, "examples": examples}
    ordered = {name: scores[name] for name in (average, *(name for name in scores if name != average))}
    return {_NAMES[name]: score for name, score in ordered.items()} | {
        "precision": agreed.precision,
        "recall": agreed.recall,
    }


class Inference(Task):
    """One label for the two passages of a document, premise and hypothesis.

    `overlap` is how many tokens two windows share at least where the two do not fit into one row; then the answer is
    the mean of what the model says to all of them. Models are chosen by accuracy.
    """

    kind = "inference"
    head = "sequence"
    loss = "choice"

    def __init__(
        self, labels: Sequence[str] = ("entailment", "neutral", "contradiction"), *, overlap: int = 64
    ) -> None:
        require_overlap(overlap)
        require_names(labels, "labels")
        self.labels, self.groups, self.overlap = tuple(labels), (len(labels),), overlap
        self.notes: Counter[str] = Counter()

    def encode(self, doc: Document, tokenizer: Tokenizer, frame: Frame, *, with_targets: bool) -> list[Example]:
        """One row, or several where the pair is longer than a row."""
        first, second = tokenize_pair(doc, tokenizer)
        targets = label_target(doc, self.labels) if with_targets else None
        return pair_examples(first, second, frame, overlap=self.overlap, targets=targets)

    def decode(
        self, doc: Document, rows: Sequence[Example], logits: Sequence[Floats], *, types: Collection[str] | None = None
    ) -> Document:
        """The document with the label found."""
        require_same_length(len(rows), len(logits), "rows", "arrays of numbers")
        numbers = pool_logits(logits, "mean", doc, outputs=len(self.labels))
        return replace(doc, labels=(self.labels[int(numbers.argmax())],))

    def score(self, gold: Sequence[Document], found: Sequence[Document]) -> Scores:
        """Accuracy, then micro and macro F1."""
        require_same_length(len(gold), len(found), "gold documents", "found ones")
        both = [[(self.labels[int(label_target(doc, self.labels)[0])],) for doc in docs] for docs in (gold, found)]
        return label_scores(*both, scored=self.labels, several=False, average="accuracy")

    def settings(self) -> Mapping[str, Any]:
        """All arguments, as JSON has them."""
        return {"kind": self.kind, "labels": list(self.labels), "overlap": self.overlap}


class Similarity(Task):
    """How alike the two passages of a document are, as its label says: "3.4". Models are chosen by Pearson's r.

    Labels go from `low` to `high`; a model learns them as 0 to 1. One beyond is an error, and so none is said.
    """

    kind = "similarity"
    head = "sequence"
    loss = "value"
    labels = ("similarity",)
    groups = (1,)

    def __init__(self, *, low: float = 0.0, high: float = 5.0, overlap: int = 64) -> None:
        if not low < high:
            raise UsageError(f"labels are to go from {low} to {high}; expected the first to be the smaller.")
        require_overlap(overlap)
        self.low, self.high, self.overlap = low, high, overlap
        self.notes: Counter[str] = Counter()

    def encode(self, doc: Document, tokenizer: Tokenizer, frame: Frame, *, with_targets: bool) -> list[Example]:
        """One row, or several where the pair is longer than a row."""
        first, second = tokenize_pair(doc, tokenizer)
        targets = np.array([self._part(doc)], np.float32) if with_targets else None
        return pair_examples(first, second, frame, overlap=self.overlap, targets=targets)

    def decode(
        self, doc: Document, rows: Sequence[Example], logits: Sequence[Floats], *, types: Collection[str] | None = None
    ) -> Document:
        """The document with the number found as its label."""
        require_same_length(len(rows), len(logits), "rows", "arrays of numbers")
        part = float(np.clip(pool_logits(logits, "mean", doc, outputs=1)[0], 0, 1))
        return replace(doc, labels=(f"{self.low + part * (self.high - self.low):.6g}",))

    def score(self, gold: Sequence[Document], found: Sequence[Document]) -> Scores:
        """Pearson's r and Spearman's rank correlation."""
        require_same_length(len(gold), len(found), "gold documents", "found ones")
        own, other = ([numeric_label(doc) for doc in docs] for docs in (gold, found))
        return {"pearson": pearson(own, other), "spearman": spearman(own, other)}

    def settings(self) -> Mapping[str, Any]:
        """All arguments, as JSON has them."""
        return {"kind": self.kind, "low": self.low, "high": self.high, "overlap": self.overlap}

    def _part(self, doc: Document) -> float:
        """Where a document's number lies between the lowest and the highest."""
        number = numeric_label(doc)
        if not self.low <= number <= self.high:
            raise BadDocument(
                "bad_number",
                f"document {shorten(doc.id)!r} has the label {number}; expected one from {self.low} to {self.high}. "
                "Set low and high to what the labels are between.",
            )
        return (number - self.low) / (self.high - self.low)


def numeric_label(doc: Document) -> float:
    """The number that a document's label is."""
    try:
        number = float(doc.labels[0]) if len(doc.labels) == 1 else float("nan")
    except ValueError:
        number = float("nan")
    if not isfinite(number):
        raise BadDocument(
            "not_a_number", f"document {shorten(doc.id)!r} has the labels {doc.labels!r}; expected one number."
        )
    return number
