"""Accuracy, and how closely two series of numbers go together."""

from collections.abc import Sequence
from math import isfinite, sqrt

import numpy as np
from numpy.typing import NDArray

from lexome.errors import UsageError
from lexome.tasks.metrics.counts import mean, require_pairs

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
