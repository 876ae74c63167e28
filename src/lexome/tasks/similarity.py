"""Similarity: a number for two sentences."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

import numpy as np

from lexome.document import Document, shorten
from lexome.errors import BadDocument, UsageError
from lexome.tasks.checks import require_overlap, require_same
from lexome.tasks.metrics import pearson, spearman
from lexome.tasks.sequences import over_rows, pair_rows, two_texts
from lexome.tasks.task import Floats, Frame, Row, Scores, Task, Tokenizer


class Similarity(Task):
    """How alike the two passages of a document are, as its label says: "3.4". Models are chosen by Pearson's r.

    Labels go from `low` to `high`; a model learns them as 0 to 1. One beyond is an error, and so none is said.
    """

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

    def rows(self, doc: Document, tokenizer: Tokenizer, frame: Frame, *, known: bool) -> list[Row]:
        """One row, or several where the pair is longer than a row."""
        first, second = two_texts(doc, tokenizer)
        targets = np.array([self._part(doc)], np.float32) if known else None
        return pair_rows(first, second, frame, overlap=self.overlap, targets=targets)

    def decode(self, doc: Document, rows: Sequence[Row], logits: Sequence[Floats]) -> Document:
        """The document with the number found as its label."""
        require_same(len(rows), len(logits), "rows", "arrays of numbers")
        part = float(np.clip(over_rows(logits, "mean", doc, outputs=1)[0], 0, 1))
        return replace(doc, labels=(f"{self.low + part * (self.high - self.low):.6g}",))

    def score(self, gold: Sequence[Document], found: Sequence[Document]) -> Scores:
        """Pearson's r and Spearman's rank correlation."""
        require_same(len(gold), len(found), "gold documents", "found ones")
        own, other = ([number_of(doc) for doc in docs] for docs in (gold, found))
        return {"pearson": pearson(own, other), "spearman": spearman(own, other)}

    def settings(self) -> Mapping[str, Any]:
        """All arguments, as JSON has them."""
        return {"kind": "similarity", "low": self.low, "high": self.high, "overlap": self.overlap}

    def _part(self, doc: Document) -> float:
        """Where a document's number lies between the lowest and the highest."""
        number = number_of(doc)
        if not self.low <= number <= self.high:
            raise BadDocument(
                "bad_number",
                f"document {shorten(doc.id)!r} has the label {number}; expected one from {self.low} to {self.high}. "
                "Set low and high to what the labels are between.",
            )
        return (number - self.low) / (self.high - self.low)


def number_of(doc: Document) -> float:
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
