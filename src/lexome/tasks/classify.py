"""Labels of whole documents: classification, inference over two passages, and similarity of two passages.

C labels
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from lexome.document import Document, shorten
from lexome.errors import BadDocument, UsageError
from lexome.tasks.metrics import accuracy, classification, multilabel, pearson, spearman
from lexome.tasks.metrics.spans import NO_COUNTS, Agreement
from lexome.tasks.task import (
    Example,
    Floats,
    Frame,
    Ints,
    Scores,
    Task,
    TokenizedText,
    Tokenizer,
    Types,
    label_index,
    pair_example,
    pair_windows,
    require_choice,
    require_logits,
    require_names,
    require_overlap,
    require_same_length,
    single_example,
    text_capacity,
    tokenize,
    windows,
)

Pool = Literal["mean", "max"]
Average = Literal["micro", "macro", "accuracy", "examples"]

_METRIC_NAMES = {"micro": "f1", "macro": "macro_f1", "accuracy": "accuracy", "examples": "example_f1"}


class Classes(Task):
    """Document classification: one or several labels of a document.

    labels     all labels; a document with another one is an error
    several    whether a document may have any number of labels, or has exactly one
    threshold  the minimum probability of each of several labels
    pool       how logits of a long document's windows are combined: "mean" or "max"
    overlap    the minimum number of tokens that two windows of a long text share
    empty      the label of a document without one, if one is expected
    scored     the labels that count in F1, if not all: relations are scored without "none"
    average    the metric that selects models: micro F1, macro F1, the accuracy of whole documents, or example-based F1
               as in BLUE ("examples")
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
            message = f"threshold is {threshold}; expected a probability between 0 and 1."
            raise UsageError(message, code="out-of-range", value=threshold)
        self.loss = "binary" if several else "choice"
        self.labels, self.groups = tuple(labels), (len(labels),)
        self.several, self.threshold, self.pool, self.overlap = several, threshold, pool, overlap
        self.empty, self.average = empty, average
        self.scored = tuple(scored) if scored is not None else tuple(labels)
        self.notes = Counter()

    @classmethod
    def infer_settings(cls, docs: Iterable[Document]) -> dict[str, Any]:
        """The labels of the documents, and whether some have none or several."""
        labels = [doc.labels for doc in docs]
        several = any(len(own) != 1 for own in labels)
        return {"kind": cls.kind, "labels": sorted({label for own in labels for label in own}), "several": several}

    @property
    def closed_labels(self) -> tuple[str, ...]:
        """All labels: another one is an error."""
        return self.labels

    def encode(self, doc: Document, tokenizer: Tokenizer, frame: Frame, *, with_targets: bool) -> list[Example]:
        """An example for each window of the document, each with the document's labels as targets."""
        tokens = tokenize(doc.passages, tokenizer)
        if not len(tokens):
            self.notes["document without text"] += 1
        targets: NDArray[Any] | None = self._label_indices(doc) if with_targets else None
        if targets is not None and self.several:
            targets = np.isin(np.arange(len(self.labels)), targets).astype(np.float32)
        return text_examples(tokens, frame, overlap=self.overlap, targets=targets)

    def _label_indices(self, doc: Document) -> Ints:
        """The indices of a document's labels; BadDocument if the task does not have one."""
        if not self.several:
            return label_target(doc, self.labels, self.empty)
        return np.array([label_index(label, self.labels, doc) for label in doc.labels], np.int64)

    def decode(
        self, doc: Document, examples: Sequence[Example], logits: Sequence[Floats], *, types: Types | None = None
    ) -> Document:
        """The document with predicted labels and their probabilities, in the task's order."""
        require_same_length(len(examples), len(logits), "examples", "arrays of logits")
        pooled = pool_logits(logits, self.pool, doc, outputs=len(self.labels))
        if not self.several:
            return with_best_label(doc, self.labels, pooled)
        # The threshold as a logit: no overflow, and the same decision.
        least = np.log(self.threshold / (1 - self.threshold))
        places = np.flatnonzero(pooled >= least)
        probabilities = 1 / (1 + np.exp(-pooled[places].astype(np.float64)))
        return replace(
            doc, labels=tuple(self.labels[place] for place in places), label_scores=tuple(probabilities.tolist())
        )

    def score(self, gold: Sequence[Document], predicted: Sequence[Document]) -> Scores:
        """Micro and macro F1 over the scored labels, and accuracy; the metric named by `average` first."""
        require_same_length(len(gold), len(predicted), "gold documents", "predicted ones")
        both = [[[self.labels[n] for n in self._label_indices(doc)] for doc in docs] for docs in (gold, predicted)]
        return label_scores(*both, scored=self.scored, several=self.several, average=self.average)

    def predictions(self, doc: Document) -> set[Hashable]:
        """The labels."""
        return set(doc.labels)


class Inference(Classes):
    """One label for the two passages of a document, premise and hypothesis; accuracy selects models.

    `overlap` is the minimum number of tokens that two windows share if a pair does not fit into one example; the
    prediction is then the mean over its examples.
    """

    kind = "inference"

    def __init__(
        self, labels: Sequence[str] = ("entailment", "neutral", "contradiction"), *, overlap: int = 64
    ) -> None:
        super().__init__(labels, overlap=overlap, average="accuracy")

    @classmethod
    def infer_settings(cls, docs: Iterable[Document]) -> dict[str, Any]:
        """The labels of the documents."""
        return {"kind": cls.kind, "labels": sorted({label for doc in docs for label in doc.labels})}

    def require_input(self, doc: Document) -> None:
        """BadDocument unless the document is a pair."""
        require_pair(doc)

    def encode(self, doc: Document, tokenizer: Tokenizer, frame: Frame, *, with_targets: bool) -> list[Example]:
        """One example, or several for a pair that is too long for one."""
        targets = label_target(doc, self.labels) if with_targets else None
        return pair_examples(doc, tokenizer, frame, overlap=self.overlap, targets=targets)


class Similarity(Task):
    """The similarity of the two passages of a document, a number as its label: "3.4". Pearson's r selects models.

    Labels are between `low` and `high`, scaled to 0 to 1 for the model; a label outside is an error.
    """

    kind = "similarity"
    head = "sequence"
    loss = "value"
    labels = ("similarity",)
    groups = (1,)

    def __init__(self, *, low: float = 0.0, high: float = 5.0, overlap: int = 64) -> None:
        if not low < high:
            raise UsageError(
                f"low is {low} and high {high}; expected low to be smaller.", code="out-of-range", value=(low, high)
            )
        require_overlap(overlap)
        self.low, self.high, self.overlap = low, high, overlap
        self.notes = Counter()

    def require_input(self, doc: Document) -> None:
        """BadDocument unless the document is a pair."""
        require_pair(doc)

    def encode(self, doc: Document, tokenizer: Tokenizer, frame: Frame, *, with_targets: bool) -> list[Example]:
        """One example, or several for a pair that is too long for one."""
        targets = np.array([self._scaled_label(doc)], np.float32) if with_targets else None
        return pair_examples(doc, tokenizer, frame, overlap=self.overlap, targets=targets)

    def _scaled_label(self, doc: Document) -> float:
        """A document's label, scaled from low..high to 0..1."""
        label = numeric_label(doc)
        if not self.low <= label <= self.high:
            raise BadDocument(
                "bad_number",
                f"document {shorten(doc.id)!r} has the label {label}; expected one from {self.low} to {self.high}. "
                "Set low and high to the range of the labels.",
            )
        return (label - self.low) / (self.high - self.low)

    def decode(
        self, doc: Document, examples: Sequence[Example], logits: Sequence[Floats], *, types: Types | None = None
    ) -> Document:
        """The document with the predicted number as its label."""
        require_same_length(len(examples), len(logits), "examples", "arrays of logits")
        scaled = float(np.clip(pool_logits(logits, "mean", doc, outputs=1)[0], 0, 1))
        return replace(doc, labels=(f"{self.low + scaled * (self.high - self.low):.6g}",), label_scores=())

    def score(self, gold: Sequence[Document], predicted: Sequence[Document]) -> Scores:
        """Pearson's r and Spearman's rank correlation."""
        require_same_length(len(gold), len(predicted), "gold documents", "predicted ones")
        both = [[numeric_label(doc) for doc in docs] for docs in (gold, predicted)]
        return {"pearson": pearson(*both), "spearman": spearman(*both)}

    def predictions(self, doc: Document) -> set[Hashable]:
        """The label, rounded to one decimal."""
        return {round(float(label), 1) for label in doc.labels}


def label_scores(
    gold: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    *,
    scored: Sequence[str],
    several: bool,
    average: Average,
) -> Scores:
    """Micro and macro F1 over the scored labels, with precision and recall, and accuracy; `average` comes first.

    F1 is 0 if none of the scored labels occurs or is predicted, as in a small split: their spelling was checked when
    the labels were read.
    """
    if several:
        counted = ([[name for name in names if name in scored] for names in docs] for docs in (gold, predicted))
        result = multilabel(*counted, labels=scored)
        agreed, right, examples = result.agreement, result.exact, result.f1
    else:
        own, other = [names[0] for names in gold], [names[0] for names in predicted]
        occurs = not {*own, *other}.isdisjoint(scored)
        no_counts = Agreement.from_types(dict.fromkeys(scored, NO_COUNTS))
        agreed = classification(own, other, labels=scored) if occurs else no_counts
        right = examples = accuracy(own, other)
    scores = {"micro": agreed.f1, "macro": agreed.macro_f1, "accuracy": right, "examples": examples}
    ordered = {name: scores[name] for name in (average, *(name for name in scores if name != average))}
    named = {_METRIC_NAMES[name]: score for name, score in ordered.items()}
    return named | {"precision": agreed.precision, "recall": agreed.recall}


def text_examples(
    tokens: TokenizedText, frame: Frame, *, overlap: int, targets: NDArray[Any] | None, key: tuple[str, ...] = ()
) -> list[Example]:
    """An example for each window of a text; an empty text has one of special tokens alone."""
    return [
        single_example(tokens.part(start, end), frame, targets=targets, key=key)
        for start, end in windows(tokens.begins, size=text_capacity(frame), overlap=overlap)
    ]


def require_pair(doc: Document) -> None:
    """BadDocument unless the document has two passages."""
    if len(doc.passages) != 2:
        raise BadDocument(
            "not_a_pair",
            f"document {shorten(doc.id)!r} has {len(doc.passages)} passages; expected two, the texts of a pair, such "
            "as sentence1 and sentence2 in a table or in JSON Lines.",
        )


def pair_examples(
    doc: Document, tokenizer: Tokenizer, frame: Frame, *, overlap: int, targets: NDArray[Any] | None
) -> list[Example]:
    """An example for each pair of windows of a document's two passages."""
    require_pair(doc)
    first, second = (tokenize((passage,), tokenizer) for passage in doc.passages)
    return [
        pair_example(first.part(*left), second.part(*right), frame, targets=targets)
        for left, right in pair_windows(first, second, frame, overlap=overlap)
    ]


def pool_logits(logits: Sequence[Floats], pool: Pool, doc: Document, *, outputs: int) -> Floats:
    """The mean or maximum (C,) of the logits of a document's examples."""
    if not len(logits):
        message = f"there are no logits for document {shorten(doc.id)!r}; expected those of all its examples."
        raise UsageError(message, code="missing-example", value=doc.id)
    for array in logits:
        require_logits(array, (outputs,), doc)
    stacked = np.stack([np.asarray(array, np.float64) for array in logits])
    return np.asarray(stacked.mean(0) if pool == "mean" else stacked.max(0))


def with_best_label(doc: Document, labels: Sequence[str], logits: Floats) -> Document:
    """The document with the most probable label and its probability, by softmax."""
    best = int(logits.argmax())
    exponents = np.exp(logits.astype(np.float64) - logits.max())
    return replace(doc, labels=(labels[best],), label_scores=(float(exponents[best] / exponents.sum()),))


def label_target(doc: Document, labels: Sequence[str], empty: str | None = None) -> Ints:
    """The index of a document's only label, (1,); `empty` is the label of a document without one."""
    own = doc.labels or ((empty,) if empty is not None else ())
    if len(own) != 1:
        raise BadDocument(
            "no_label" if not own else "several_labels",
            f"document {shorten(doc.id)!r} has {len(own)} labels; expected one of {', '.join(map(repr, labels))}.",
        )
    return np.array([label_index(own[0], labels, doc)], np.int64)


def numeric_label(doc: Document) -> float:
    """A document's only label as a number."""
    try:
        number = float(doc.labels[0]) if len(doc.labels) == 1 else float("nan")
    except ValueError:
        number = float("nan")
    if not isfinite(number):
        raise BadDocument(
            "not_a_number", f"document {shorten(doc.id)!r} has the labels {doc.labels!r}; expected one number."
        )
    return number
