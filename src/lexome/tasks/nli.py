"""Inference: what a first sentence says about a second, such as that it follows from it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lexome.document import Document
from lexome.tasks.checks import require_names, require_overlap, require_same
from lexome.tasks.classify import label_scores
from lexome.tasks.sequences import one_label, over_rows, pair_rows, two_texts
from lexome.tasks.task import Floats, Frame, Row, Scores, Task, Tokenizer


class Inference(Task):
    """One label for the two passages of a document, premise and hypothesis.

    `overlap` is how many tokens two windows share at least where the two do not fit into one row; then the answer is
    the mean of what the model says to all of them. Models are chosen by accuracy.
    """

    head = "sequence"
    loss = "choice"

    def __init__(
        self, labels: Sequence[str] = ("entailment", "neutral", "contradiction"), *, overlap: int = 64
    ) -> None:
        require_overlap(overlap)
        require_names(labels, "labels")
        self.labels, self.groups, self.overlap = tuple(labels), (len(labels),), overlap
        self.notes: Counter[str] = Counter()

    def rows(self, doc: Document, tokenizer: Tokenizer, frame: Frame, *, known: bool) -> list[Row]:
        """One row, or several where the pair is longer than a row."""
        first, second = two_texts(doc, tokenizer)
        targets = one_label(doc, self.labels) if known else None
        return pair_rows(first, second, frame, overlap=self.overlap, targets=targets)

    def decode(self, doc: Document, rows: Sequence[Row], logits: Sequence[Floats]) -> Document:
        """The document with the label found."""
        require_same(len(rows), len(logits), "rows", "arrays of numbers")
        numbers = over_rows(logits, "mean", doc, outputs=len(self.labels))
        return replace(doc, labels=(self.labels[int(numbers.argmax())],))

    def score(self, gold: Sequence[Document], found: Sequence[Document]) -> Scores:
        """Accuracy, then micro and macro F1."""
        require_same(len(gold), len(found), "gold documents", "found ones")
        both = [[(self.labels[int(one_label(doc, self.labels)[0])],) for doc in docs] for docs in (gold, found)]
        return label_scores(*both, scored=self.labels, several=False, average="accuracy")

    def settings(self) -> Mapping[str, Any]:
        """All arguments, as JSON has them."""
        return {"kind": "inference", "labels": list(self.labels), "overlap": self.overlap}
