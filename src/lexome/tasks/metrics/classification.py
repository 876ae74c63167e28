"""Classes of texts and of pairs: one label each, or any number of them."""

from collections import defaultdict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt

import numpy as np
from numpy.typing import NDArray

from lexome.errors import UsageError
from lexome.tasks.metrics.spans import NO_COUNTS, Agreement, Counts, agreement, mean, ratio, require_pairs

_CHEMPROT = ("CPR:3", "CPR:4", "CPR:5", "CPR:6", "CPR:9")
_DDI = ("DDI-advise", "DDI-effect", "DDI-int", "DDI-mechanism")
_I2B2_2010 = ("PIP", "TeCP", "TeRP", "TrAP", "TrCP", "TrIP", "TrNAP", "TrWP")
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
_LITCOVID = (
    "Case Report",
    "Diagnosis",
    "Epidemic Forecasting",
    "Mechanism",
    "Prevention",
    "Transmission",
    "Treatment",
)

CLASS_SETS: Mapping[str, tuple[str, ...]] = {
    "chemprot": _CHEMPROT,
    "ddi": _DDI,
    "gad": ("1",),
    "euadr": ("1",),
    "i2b2-2010-relations": _I2B2_2010,
    "hoc": _HALLMARKS,
    "litcovid": _LITCOVID,
}
"""The classes of each set whose counts make the score: of ChemProt, DDI and i2b2 as micro averages in every paper (the
one that says macro computes micro as well), of GAD and EU-ADR the positive pairs alone."""


@dataclass(frozen=True, slots=True)
class MultiLabel:
    """How far sets of labels agree.

    agreement  micro and macro averages, and each label on its own
    precision  example-based: the mean over texts of the share of its found labels that are right
    recall     example-based: the mean over texts of the share of its gold labels that were found
    f1         the harmonic mean of these two, as BLUE scores HoC
    mean_f1    the mean over texts of each one's F1
    exact      the share of texts whose labels are exactly right
    hamming    the share of all decisions, text by label, that are wrong
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


def classification(gold: Sequence[str], found: Sequence[str], *, labels: Collection[str] | None = None) -> Agreement:
    """The agreement of one label a text with its gold one, over `labels`, or over all that occur.

    With the positive classes as `labels`, a text that is of none of them and is said to be of none counts nowhere: that
    is how relation sets are scored. Over all labels, micro F1 is accuracy.
    """
    require_pairs(gold, found, what="labels")
    names = _names(labels, {*gold, *found})
    right: defaultdict[str, int] = defaultdict(int)
    missed: defaultdict[str, int] = defaultdict(int)
    spurious: defaultdict[str, int] = defaultdict(int)
    for wanted, given in zip(gold, found, strict=True):
        if wanted == given:
            right[wanted] += 1
        else:
            missed[wanted] += 1
            spurious[given] += 1
    return agreement({name: Counts(right[name], spurious[name], missed[name]) for name in names})


def multilabel(
    gold: Sequence[Collection[str]], found: Sequence[Collection[str]], *, labels: Collection[str] | None = None
) -> MultiLabel:
    """The agreement of sets of labels, a set a text, over `labels`, or over all that occur.

    Of a text without gold labels precision, recall and F1 are 1 where nothing was found for it, and 0 otherwise. Where
    something is to be found and nothing was, precision is 0.
    """
    require_pairs(gold, found, what="sets of labels")
    names = _names(labels, {name for names in (*gold, *found) for name in names})
    types = dict.fromkeys(names, NO_COUNTS)
    rows = []
    for wanted, given in zip(gold, found, strict=True):
        left, right = types.keys() & set(wanted), types.keys() & set(given)
        for name in left | right:
            types[name] += Counts(name in left and name in right, name not in left, name not in right)
        rows.append(example(left, right))
    whole = agreement(types)
    wrong = whole.total.false_positives + whole.total.false_negatives
    return MultiLabel(
        whole,
        mean([row[0] for row in rows]),
        mean([row[1] for row in rows]),
        mean([row[2] for row in rows]),
        mean([row[3] for row in rows]),
        ratio(wrong, len(gold) * len(names)),
    )


def example(gold: Collection[str], found: Collection[str]) -> tuple[float, float, float, float]:
    """Precision, recall and F1 of one text's labels, and 1 where they are exactly right."""
    if not gold:
        return (0.0, 0.0, 0.0, 0.0) if found else (1.0, 1.0, 1.0, 1.0)
    right = len(set(gold) & set(found))
    return (
        ratio(right, len(found)),
        ratio(right, len(gold)),
        ratio(2 * right, len(gold) + len(found)),
        float(right == len(gold) == len(found)),
    )


def pooled(documents: Sequence[Hashable], labels: Sequence[Collection[str]]) -> list[set[str]]:
    """The labels of each document, in the order of first sight: all those of its sentences.

    `documents` says for each sentence whose it is. So sentence-level predictions are scored on documents, as HoC is.
    """
    require_pairs(documents, labels, what="sentences")
    pools: dict[Hashable, set[str]] = {}
    for document, names in zip(documents, labels, strict=True):
        pools.setdefault(document, set()).update(names)
    return list(pools.values())


def _names(labels: Collection[str] | None, seen: set[str]) -> list[str]:
    """The labels to count; an error where the ones that were named occur nowhere, which makes every score 0."""
    if labels is None:
        return sorted(seen)
    if not labels:
        raise UsageError("no label is to be counted; expected at least one. Name the classes of the score.")
    if seen and not seen & set(labels):
        raise UsageError(
            f"none of the labels to count ({', '.join(sorted(labels)[:5])}) occurs; seen were "
            f"{', '.join(sorted(seen)[:5])}. Check how the labels are written."
        )
    return sorted(set(labels))


Numbers = NDArray[np.float64]


def accuracy(gold: Sequence[object], found: Sequence[object]) -> float:
    """The share of predictions that are right."""
    require_pairs(gold, found, what="labels")
    return mean([left == right for left, right in zip(gold, found, strict=True)])


def pearson(gold: Sequence[float], found: Sequence[float]) -> float:
    """Pearson's correlation; nan where one of the series doesn't vary, or there are fewer than two numbers."""
    require_pairs(gold, found, what="numbers")
    return correlation(_checked(gold), _checked(found))


def spearman(gold: Sequence[float], found: Sequence[float]) -> float:
    """Spearman's correlation: Pearson's of the ranks, where equal numbers share the mean of their ranks."""
    require_pairs(gold, found, what="numbers")
    return correlation(ranks(_checked(gold)), ranks(_checked(found)))


def correlation(left: Numbers, right: Numbers) -> float:
    """Pearson's correlation of two arrays."""
    if len(left) < 2 or np.ptp(left) == 0 or np.ptp(right) == 0:
        return float("nan")
    left, right = left - left.mean(), right - right.mean()
    return float((left @ right) / sqrt((left @ left) * (right @ right)))


def ranks(numbers: Numbers) -> Numbers:
    """The rank of each number, from 1; equal ones have the mean of theirs."""
    _, place, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[place], dtype=np.float64)


def _checked(numbers: Sequence[float]) -> Numbers:
    for number in numbers:
        if not isfinite(number):
            raise UsageError(f"one of the numbers is {number}; expected finite ones.")
    return np.asarray(numbers, dtype=np.float64)
