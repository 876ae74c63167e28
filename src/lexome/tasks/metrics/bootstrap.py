"""Bootstrap confidence intervals over documents, and significance tests of two systems on the same documents.

D documents, K columns, T types

A score is a statistic of a matrix with a row for each document: three counts make an F1, a prediction and its gold
value make a correlation.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lexome.errors import UsageError
from lexome.tasks.metrics.spans import Agreement, ratio

Rows = NDArray[np.float64]
Statistic = Callable[[Rows], float]

LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A score and its confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class PairedTest:
    """The difference of two systems' scores, its confidence interval, and the p-value of no difference."""

    difference: float
    low: float
    high: float
    p_value: float


def count_rows(agreements: Sequence[Agreement]) -> Rows:
    """True positives, false positives and false negatives of each document, (D, 3)."""
    rows = [(part.total.true_positives, part.total.false_positives, part.total.false_negatives) for part in agreements]
    return np.asarray(rows, dtype=np.float64).reshape(-1, 3)


def micro_f1(rows: Rows) -> float:
    """F1 of rows of true positives, false positives and false negatives."""
    right, spurious, missed = rows.sum(axis=0)
    return ratio(2 * float(right), float(2 * right + spurious + missed))


def mean_of_rows(rows: Rows) -> float:
    """The mean over rows that are a sum and the number of its terms."""
    total, number = rows.sum(axis=0)
    return ratio(float(total), float(number))


def resample(count: int, *, samples: int, seed: int) -> Iterator[NDArray[np.int64]]:
    """Bootstrap samples of `count` places: as many, drawn with replacement."""
    rng = np.random.default_rng(seed)
    for _ in range(samples):
        yield rng.integers(count, size=count)


def percentile_interval(scores: Sequence[float] | Rows, level: float = LEVEL) -> tuple[float, float]:
    """The quantiles that hold `level` of the scores; NaN, as a correlation may be, is left out."""
    tail = (1 - level) / 2
    finite = np.asarray(scores)[~np.isnan(scores)]
    low, high = np.quantile(finite, (tail, 1 - tail)) if len(finite) else (np.nan, np.nan)
    return float(low), float(high)


def score_intervals(scores: Iterable[Mapping[str, float]], level: float = LEVEL) -> dict[str, tuple[float, float]]:
    """The interval of each metric, from the scores of bootstrap samples."""
    columns: dict[str, list[float]] = {}
    for sample in scores:
        for name, score in sample.items():
            columns.setdefault(name, []).append(score)
    return {name: percentile_interval(column, level) for name, column in columns.items()}


def bootstrap_interval(
    rows: Rows, statistic: Statistic, *, samples: int = 1000, level: float = LEVEL, seed: int = 0
) -> Interval:
    """The score of all documents with its bootstrap interval."""
    rows = _check(rows, samples, level)
    scores = [statistic(rows[places]) for places in resample(len(rows), samples=samples, seed=seed)]
    return Interval(statistic(rows), *percentile_interval(scores, level))


def f1_intervals(
    counts: NDArray[np.float64], *, samples: int = 1000, level: float = LEVEL, seed: int = 0
) -> list[Interval]:
    """The bootstrap_interval of micro_f1 for each of T types, from (D, T, 3) counts, all from the same samples."""
    documents, types = counts.shape[:2]
    rows = _check(counts.reshape(documents, types * 3), samples, level)
    sums = [
        np.bincount(places, minlength=documents) @ rows for places in resample(documents, samples=samples, seed=seed)
    ]
    scores = _f1_of_sums(np.asarray(sums).reshape(samples, types, 3))
    whole = _f1_of_sums(counts.sum(axis=0))
    return [Interval(float(whole[place]), *percentile_interval(scores[:, place], level)) for place in range(types)]


def paired_bootstrap(
    ours: Rows, theirs: Rows, statistic: Statistic, *, samples: int = 1000, level: float = LEVEL, seed: int = 0
) -> PairedTest:
    """The difference of two systems on the same documents, which are resampled together.

    The p-value is two-sided: how often a resampled difference is as far from the observed one as that is from zero.
    """
    ours, theirs = _check_pair(ours, theirs, samples, level)
    observed = statistic(ours) - statistic(theirs)
    differences = [
        statistic(ours[places]) - statistic(theirs[places])
        for places in resample(len(ours), samples=samples, seed=seed)
    ]
    return PairedTest(
        observed, *percentile_interval(differences, level), _p_value(np.asarray(differences) - observed, observed)
    )


def approximate_randomization(
    ours: Rows, theirs: Rows, statistic: Statistic, *, samples: int = 10_000, level: float = LEVEL, seed: int = 0
) -> PairedTest:
    """The difference of two systems, and how often randomly swapping their results gives one at least as large.

    Each sample swaps the two systems' rows of every document with probability 1/2, which would change nothing if they
    were equally good. Low and high are quantiles of the differences of these samples, and so lie around 0.
    """
    ours, theirs = _check_pair(ours, theirs, samples, level)
    rng = np.random.default_rng(seed)
    observed = statistic(ours) - statistic(theirs)
    differences: list[float] = []
    for _ in range(samples):
        swap = rng.integers(2, size=(len(ours), 1)).astype(bool)
        differences.append(statistic(np.where(swap, theirs, ours)) - statistic(np.where(swap, ours, theirs)))
    return PairedTest(observed, *percentile_interval(differences, level), _p_value(np.asarray(differences), observed))


def _f1_of_sums(sums: Rows) -> Rows:
    """F1 of (..., 3) sums of true positives, false positives and false negatives."""
    right, wrong = 2 * sums[..., 0], sums[..., 1] + sums[..., 2]
    return np.asarray(right / np.maximum(right + wrong, 1.0))


def _p_value(differences: Rows, observed: float) -> float:
    """The fraction of differences at least as large as the observed one, which counts as one of them."""
    # Sums in another order differ in their last bits, which must not make a tie a miss.
    as_large = int((np.abs(differences) >= abs(observed) - 1e-12).sum())
    return (as_large + 1) / (len(differences) + 1)


def _check(rows: Rows, samples: int, level: float) -> Rows:
    rows = np.asarray(rows, dtype=np.float64)
    if rows.ndim != 2 or not len(rows):
        message = f"rows have the shape {rows.shape}; expected two dimensions, and at least one document."
        raise UsageError(message, code="shape-mismatch", value=rows.shape)
    if samples < 1 or not 0 < level < 1:
        message = f"samples is {samples} and level {level}; expected at least one sample, and a level between 0 and 1."
        raise UsageError(message, code="out-of-range", value=samples if samples < 1 else level)
    return rows


def _check_pair(ours: Rows, theirs: Rows, samples: int, level: float) -> tuple[Rows, Rows]:
    ours, theirs = _check(ours, samples, level), _check(theirs, samples, level)
    if ours.shape != theirs.shape:
        message = f"the systems have rows of {ours.shape} and {theirs.shape}; expected the same documents."
        raise UsageError(message, code="shape-mismatch", value=theirs.shape)
    return ours, theirs
