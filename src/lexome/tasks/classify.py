"""Labels of whole documents, one or several each.

C labels
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from lexome.document import Document
from lexome.errors import UsageError
from lexome.tasks.checks import label_number, require_choice, require_names, require_overlap, require_same
from lexome.tasks.metrics import accuracy, classification, multilabel
from lexome.tasks.metrics.counts import NONE, agreement
from lexome.tasks.sequences import Pool, one_label, over_rows, text_rows
from lexome.tasks.task import Floats, Frame, Row, Scores, Task, Tokenizer
from lexome.tasks.windows import tokens_of

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

    def rows(self, doc: Document, tokenizer: Tokenizer, frame: Frame, *, known: bool) -> list[Row]:
        """A row for each window of the document, with the document's labels as targets of each."""
        tokens = tokens_of(doc.passages, tokenizer)
        if not len(tokens):
            self.notes["document without text"] += 1
        return text_rows(tokens, frame, overlap=self.overlap, targets=self._targets(doc) if known else None)

    def decode(self, doc: Document, rows: Sequence[Row], logits: Sequence[Floats]) -> Document:
        """The document with the labels found, in the task's order."""
        require_same(len(rows), len(logits), "rows", "arrays of numbers")
        numbers = over_rows(logits, self.pool, doc, outputs=len(self.labels))
        if not self.several:
            return replace(doc, labels=(self.labels[int(numbers.argmax())],))
        # The threshold on the logits' own scale: no overflow, and the same answer.
        least = np.log(self.threshold / (1 - self.threshold))
        return replace(doc, labels=tuple(self.labels[place] for place in np.flatnonzero(numbers >= least)))

    def score(self, gold: Sequence[Document], found: Sequence[Document]) -> Scores:
        """Micro and macro F1 over the scored labels, and accuracy; the one that `average` names first."""
        require_same(len(gold), len(found), "gold documents", "found ones")
        own = [self._known(doc) for doc in gold]
        other = [self._known(doc) for doc in found]
        return label_scores(own, other, scored=self.scored, several=self.several, average=self.average)

    def settings(self) -> Mapping[str, Any]:
        """All arguments, as JSON has them."""
        return {
            "kind": "classes",
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
            return one_label(doc, self.labels, self.empty)
        targets = np.zeros(len(self.labels), np.float32)
        targets[[label_number(label, self.labels, doc) for label in doc.labels]] = 1
        return targets

    def _known(self, doc: Document) -> tuple[str, ...]:
        """The labels of a document, each known to the task."""
        if not self.several:
            return (self.labels[int(one_label(doc, self.labels, self.empty)[0])],)
        return tuple(self.labels[label_number(label, self.labels, doc)] for label in doc.labels)


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
