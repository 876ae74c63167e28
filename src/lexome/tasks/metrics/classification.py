"""Metrics of labels: one per text, any number per text, or a number."""

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt

import numpy as np
from numpy.typing import NDArray

from lexome.errors import UsageError
from lexome.tasks.metrics.spans import NO_COUNTS, Agreement, Counts, mean, ratio, require_pairs

_HALLMARKS = (
    "activating invasion and metastasis",
    "avoiding immune destruction",
    "cellular energetics",
    "enabling replicative immortality",
    "evading growth suppressors",
    "genomic instability and mutation",
    "inducing angiogenesis",
    "resisting cell death",
    "sustaining proliferative signaling",
    "tumor promoting inflammation",
)
_LITCOVID = ("Case Report", "Diagnosis", "Epidemic Forecasting", "Mechanism", "Prevention", "Transmission", "Treatment")

CLASS_SETS: Mapping[str, tuple[str, ...]] = {
    "chemprot": ("CPR:3", "CPR:4", "CPR:5", "CPR:6", "CPR:9"),
    "ddi": ("DDI-advise", "DDI-effect", "DDI-int", "DDI-mechanism"),
    "gad": ("1",),
    "euadr": ("1",),
    "i2b2-2010-relations": ("PIP", "TeCP", "TeRP", "TrAP", "TrCP", "TrIP", "TrNAP", "TrWP"),
    "hoc": _HALLMARKS,
    "litcovid": _LITCOVID,
}
"""The classes of each dataset that are scored: of ChemProt, DDI and i2b2 by micro average in every paper (the one that
says macro computes micro as well), of GAD and EU-ADR the positive class only."""


@dataclass(frozen=True, slots=True)
class MultiLabel:
    """The agreement of sets of labels.

    agreement  micro and macro averages, and counts by label
    precision  example-based: the mean over texts of each one's precision
    recall     example-based: the mean over texts of each one's recall
    f1         the harmonic mean of these two, as BLUE scores HoC
    mean_f1    the mean over texts of each one's F1
    exact      subset accuracy: the fraction of texts whose labels are exactly right
    hamming    Hamming loss: the fraction of all decisions, text by label, that are wrong
    """

    agreement: Agreement
    precision: float
    recall: float
    mean_f1: float
    exact: float
    hamming: float

    @property
    def f1(self) -> float:
        """The harmonic mean of example-based precision and recall."""
        return ratio(2 * self.precision * self.recall, self.precision + self.recall)


def classification(
    gold: Sequence[str], predicted: Sequence[str], *, labels: Collection[str] | None = None
) -> Agreement:
    """The agreement of one label per text, over `labels`, or over all that occur.

    With the positive classes as `labels`, true negatives are not counted, as usual for relation datasets. Over all
    labels, micro F1 is accuracy.
    """
    require_pairs(gold, predicted, what="labels")
    names = _scored_labels(labels, {*gold, *predicted})
    right = Counter(label for label, other in zip(gold, predicted, strict=True) if label == other)
    missed, spurious = Counter(gold) - right, Counter(predicted) - right
    return Agreement.from_types({name: Counts(right[name], spurious[name], missed[name]) for name in names})


def multilabel(
    gold: Sequence[Collection[str]], predicted: Sequence[Collection[str]], *, labels: Collection[str] | None = None
) -> MultiLabel:
    """The agreement of one set of labels per text, over `labels`, or over all that occur.

    Precision, recall and F1 of a text without gold labels are 1 if nothing was predicted, and 0 otherwise. Precision of
    a text with gold labels is 0 if nothing was predicted.
    """
    require_pairs(gold, predicted, what="sets of labels")
    names = _scored_labels(labels, {name for names in (*gold, *predicted) for name in names})
    types = dict.fromkeys(names, NO_COUNTS)
    rows = []
    for gold_labels, predicted_labels in zip(gold, predicted, strict=True):
        left, right = types.keys() & set(gold_labels), types.keys() & set(predicted_labels)
        for name in left | right:
            types[name] += Counts(name in left and name in right, name not in left, name not in right)
        rows.append(example_scores(left, right))
    whole = Agreement.from_types(types)
    wrong = whole.total.false_positives + whole.total.false_negatives
    precision, recall, mean_f1, exact = (mean([row[place] for row in rows]) for place in range(4))
    return MultiLabel(whole, precision, recall, mean_f1, exact, ratio(wrong, len(gold) * len(names)))


def example_scores(gold: Collection[str], predicted: Collection[str]) -> tuple[float, float, float, float]:
    """Precision, recall and F1 of one text's labels, and 1 if they are exactly right."""
    if not gold:
        return (0.0, 0.0, 0.0, 0.0) if predicted else (1.0, 1.0, 1.0, 1.0)
    right = len(set(gold) & set(predicted))
    return (
        ratio(right, len(predicted)),
        ratio(right, len(gold)),
        ratio(2 * right, len(gold) + len(predicted)),
        float(right == len(gold) == len(predicted)),
    )


def pool_labels(documents: Sequence[Hashable], labels: Sequence[Collection[str]]) -> list[set[str]]:
    """The labels of each document, in order of first occurrence: the union of those of its sentences.

    `documents` has the document of each sentence. Use this to score sentence-level predictions by document, as for HoC.
    """
    require_pairs(documents, labels, what="sentences")
    pools: dict[Hashable, set[str]] = {}
    for document, names in zip(documents, labels, strict=True):
        pools.setdefault(document, set()).update(names)
    return list(pools.values())


def _scored_labels(labels: Collection[str] | None, occurring: set[str]) -> list[str]:
    """The labels to score; an error if none of those named occurs, which would make every score 0."""
    if labels is None:
        return sorted(occurring)
    if not labels:
        raise UsageError("there are no labels to score; expected at least one.", code="no-labels", value=labels)
    if occurring and not occurring & set(labels):
        raise UsageError(
            f"none of the labels to score ({', '.join(sorted(labels)[:5])}) occurs; the labels are "
            f"{', '.join(sorted(occurring)[:5])}. Check their spelling.",
            code="unknown-labels",
            value=sorted(labels),
        )
    return sorted(set(labels))


Numbers = NDArray[np.float64]


def accuracy(gold: Sequence[object], predicted: Sequence[object]) -> float:
    """The fraction of predictions that are correct."""
    require_pairs(gold, predicted, what="labels")
    return mean([left == right for left, right in zip(gold, predicted, strict=True)])


def pearson(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Pearson's correlation; NaN if one of the series is constant, or there are fewer than two numbers."""
    require_pairs(gold, predicted, what="numbers")
    return correlation(_finite(gold), _finite(predicted))


def spearman(gold: Sequence[float], predicted: Sequence[float]) -> float:
    """Spearman's correlation: Pearson's of the ranks, where ties have their mean rank."""
    require_pairs(gold, predicted, what="numbers")
    return correlation(ranks(_finite(gold)), ranks(_finite(predicted)))


def correlation(left: Numbers, right: Numbers) -> float:
    """Pearson's correlation of two arrays."""
    if len(left) < 2 or np.ptp(left) == 0 or np.ptp(right) == 0:
        return float("nan")
    left, right = left - left.mean(), right - right.mean()
    return float((left @ right) / sqrt((left @ left) * (right @ right)))


def ranks(numbers: Numbers) -> Numbers:
    """The rank of each number, from 1; ties have their mean rank."""
    _, place, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[place], dtype=np.float64)


def _finite(numbers: Sequence[float]) -> Numbers:
    for number in numbers:
        if not isfinite(number):
            raise UsageError(f"one of the numbers is {number}; expected finite ones.", code="not-finite", value=number)
    return np.asarray(numbers, dtype=np.float64)
