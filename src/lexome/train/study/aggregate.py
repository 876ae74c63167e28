"""What a paper makes of the scores of many runs: folds first, then seeds, as mean or median, with an interval."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal

from lexome.errors import UsageError
from lexome.recipe import Table
from lexome.values import value

Statistic = Literal["mean", "median"]

LEVEL = 0.95
# Student's t, of which 95% lies between the number and its negative, by degrees of freedom from 1 on.
T_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120),
    *(2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@value
class Scored:
    """One run's scores on test, by measure; `fold` is None where the set has none."""

    seed: int
    fold: int | None
    scores: Mapping[str, float]


class Estimate(Table):
    """A number in percent, what it is of, and an interval.

    low, high  the interval, None where one run alone says nothing about it
    level      how sure it is: 0.95, or what so few runs allow
    over       what varies inside the interval: "seeds", "folds" or "documents"
    each       the numbers that the last step was made of
    """

    value: float
    runs: int
    low: float | None = None
    high: float | None = None
    level: float | None = None
    over: str | None = None
    each: tuple[float, ...] = ()


def aggregated(runs: Sequence[Scored], measure: str, *, folds: Statistic | None, seeds: Statistic) -> Estimate:
    """The paper's number: of each seed's folds, and of these over seeds.

    Where there is one seed and there are several folds, the interval is over folds.
    """
    numbers = {(run.seed, run.fold): 100 * _of(run, measure) for run in runs}
    if len(numbers) < len(runs):
        raise UsageError("a seed is there twice for one fold; expected each run once.")
    if any(run.fold is not None for run in runs) and folds is None:
        raise UsageError("the runs are of folds, and the protocol does not say what is taken over them. Say folds.")
    by_seed: dict[int, list[float]] = {}
    for (seed, _), number in sorted(numbers.items(), key=lambda item: (item[0][0], item[0][1] or 0)):
        by_seed.setdefault(seed, []).append(number)
    if len({len(found) for found in by_seed.values()}) > 1:
        raise UsageError("seeds have different numbers of folds; expected the same. Run the study again to fill them.")
    if len(by_seed) == 1 and len(runs) > 1:
        return _estimate(next(iter(by_seed.values())), folds or seeds, over="folds", runs=len(runs))
    each = [_taken(found, folds or "mean") for found in by_seed.values()]
    return _estimate(each, seeds, over="seeds", runs=len(runs))


def _of(run: Scored, measure: str) -> float:
    if measure not in run.scores:
        raise UsageError(f"the runs have no measure {measure!r}; they have {', '.join(run.scores)}. Name one of these.")
    return run.scores[measure]


def _taken(numbers: Sequence[float], statistic: Statistic) -> float:
    return statistics.fmean(numbers) if statistic == "mean" else statistics.median(numbers)


def _estimate(numbers: Sequence[float], statistic: Statistic, *, over: str, runs: int) -> Estimate:
    taken = _taken(numbers, statistic)
    if len(numbers) == 1:
        return Estimate(value=taken, runs=runs, each=tuple(numbers))
    low, high, level = _mean_interval(numbers) if statistic == "mean" else _median_interval(numbers)
    return Estimate(value=taken, runs=runs, low=low, high=high, level=level, over=over, each=tuple(numbers))


def _mean_interval(numbers: Sequence[float]) -> tuple[float, float, float]:
    """Student's interval of the mean."""
    degrees = len(numbers) - 1
    quantile = T_95[degrees - 1] if degrees <= len(T_95) else 1.96
    half = quantile * statistics.stdev(numbers) / math.sqrt(len(numbers))
    mean = statistics.fmean(numbers)
    return mean - half, mean + half, LEVEL


def _median_interval(numbers: Sequence[float]) -> tuple[float, float, float]:
    """The narrowest pair of the numbers themselves, as far from both ends, that holds the median with 95%.

    This needs no assumption. Of five numbers even least and most hold it with 93.75% only: then these, and that.
    """
    count, ordered = len(numbers), sorted(numbers)
    sure = [1 - 2 * sum(math.comb(count, k) for k in range(place + 1)) / 2**count for place in range((count + 1) // 2)]
    place = max((place for place, level in enumerate(sure) if level >= LEVEL), default=0)
    return ordered[place], ordered[-1 - place], sure[place]
