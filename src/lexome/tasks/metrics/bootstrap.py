"""How far a score can be trusted: intervals by resampling documents, and tests of two systems on the same ones.

D documents, K numbers of each, T types

A score is a function of rows, one a document: three counts make an F1, a number and its gold one make a correlation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lexome.errors import UsageError
from lexome.tasks.metrics.spans import Agreement, share

Rows = NDArray[np.float64]
Measure = Callable[[Rows], float]


@dataclass(frozen=True, slots=True)
class Interval:
    """A score and the range in which most resampled ones lie."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Paired:
    """The difference of two systems' scores, the range of resampled differences, and the chance of it by luck alone."""

    difference: float
    low: float
    high: float
    p_value: float


def count_rows(agreements: Sequence[Agreement]) -> Rows:
    """A row a document: right, spurious and missed."""
    rows = [(part.total.true_positives, part.total.false_positives, part.total.false_negatives) for part in agreements]
    return np.asarray(rows, dtype=np.float64).reshape(-1, 3)


def micro_f1(rows: Rows) -> float:
    """F1 of rows of right, spurious and missed."""
    right, spurious, missed = rows.sum(axis=0)
    return share(2 * float(right), float(2 * right + spurious + missed))


def mean_of_rows(rows: Rows) -> float:
    """The mean where rows are a sum and how many it is of: accuracy of right and all."""
    total, number = rows.sum(axis=0)
    return share(float(total), float(number))


def bootstrap_interval(
    rows: Rows, measure: Measure, *, samples: int = 1000, level: float = 0.95, seed: int = 0
) -> Interval:
    """The score of all documents, and the range that holds `level` of the scores of as many drawn with replacement."""
    rows = _checked(rows, samples, level)
    rng = np.random.default_rng(seed)
    scores = [measure(rows[rng.integers(len(rows), size=len(rows))]) for _ in range(samples)]
    return Interval(measure(rows), *_range(scores, level))


def f1_intervals(
    counts: NDArray[np.float64], *, samples: int = 1000, level: float = 0.95, seed: int = 0
) -> list[Interval]:
    """What bootstrap_interval says of micro_f1 for each of T types, of (D, T, 3) counts, all from the same draws."""
    documents, types = counts.shape[:2]
    rows = _checked(counts.reshape(documents, types * 3), samples, level)
    rng = np.random.default_rng(seed)
    drawn = [np.bincount(rng.integers(documents, size=documents), minlength=documents) @ rows for _ in range(samples)]
    scores = _f1_of_sums(np.asarray(drawn).reshape(samples, types, 3))
    seen = _f1_of_sums(counts.sum(axis=0))
    return [Interval(float(seen[place]), *_range(scores[:, place], level)) for place in range(types)]


def paired_bootstrap(
    ours: Rows, theirs: Rows, measure: Measure, *, samples: int = 1000, level: float = 0.95, seed: int = 0
) -> Paired:
    """How much better ours is than theirs, both on the same documents, resampled together.

    The p-value is two-sided: how often a resampled difference is as far from the one seen as that is from none.
    """
    ours, theirs = _checked_pair(ours, theirs, samples, level)
    rng = np.random.default_rng(seed)
    seen = measure(ours) - measure(theirs)
    drawn: list[float] = []
    for _ in range(samples):
        places = rng.integers(len(ours), size=len(ours))
        drawn.append(measure(ours[places]) - measure(theirs[places]))
    return Paired(seen, *_range(drawn, level), _p_value(np.asarray(drawn) - seen, seen))


def approximate_randomization(
    ours: Rows, theirs: Rows, measure: Measure, *, samples: int = 10_000, level: float = 0.95, seed: int = 0
) -> Paired:
    """How much better ours is than theirs, and how often a difference as large comes of swapping them at random.

    Each sample swaps the two systems' rows of every document or doesn't, by the toss of a coin: if they were equally
    good, that would change nothing. Low and high are the range of differences so made, and so lie round 0.
    """
    ours, theirs = _checked_pair(ours, theirs, samples, level)
    rng = np.random.default_rng(seed)
    seen = measure(ours) - measure(theirs)
    swapped: list[float] = []
    for _ in range(samples):
        swap = rng.integers(2, size=(len(ours), 1)).astype(bool)
        swapped.append(measure(np.where(swap, theirs, ours)) - measure(np.where(swap, ours, theirs)))
    return Paired(seen, *_range(swapped, level), _p_value(np.asarray(swapped), seen))


def _f1_of_sums(sums: Rows) -> Rows:
    """F1 of (..., 3) sums of right, spurious and missed."""
    right, wrong = 2 * sums[..., 0], sums[..., 1] + sums[..., 2]
    return np.asarray(right / np.maximum(right + wrong, 1.0))


def _p_value(differences: Rows, seen: float) -> float:
    """The share of differences at least as large as the one seen, which is counted as one of them."""
    # Sums in another order differ in their last bits, which must not make a tie a miss.
    as_large = int((np.abs(differences) >= abs(seen) - 1e-12).sum())
    return (as_large + 1) / (len(differences) + 1)


def _range(scores: Sequence[float] | Rows, level: float) -> tuple[float, float]:
    """The quantiles that hold `level` of the scores; draws that have none, as a correlation may, are left out."""
    tail = (1 - level) / 2
    known = np.asarray(scores)[~np.isnan(scores)]
    low, high = np.quantile(known, (tail, 1 - tail)) if len(known) else (np.nan, np.nan)
    return float(low), float(high)


def _checked(rows: Rows, samples: int, level: float) -> Rows:
    rows = np.asarray(rows, dtype=np.float64)
    if rows.ndim != 2 or not len(rows):
        raise UsageError(f"rows have the shape {rows.shape}; expected documents by numbers, and at least one document.")
    if samples < 1 or not 0 < level < 1:
        raise UsageError(f"samples={samples}, level={level} was asked; expected at least one and a level in between.")
    return rows


def _checked_pair(ours: Rows, theirs: Rows, samples: int, level: float) -> tuple[Rows, Rows]:
    ours, theirs = _checked(ours, samples, level), _checked(theirs, samples, level)
    if ours.shape != theirs.shape:
        raise UsageError(f"the systems have rows of {ours.shape} and {theirs.shape}; expected the same documents.")
    return ours, theirs
