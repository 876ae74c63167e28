"""Aggregates as papers report them: medians over folds, means over seeds, and their intervals."""

import statistics

import pytest
from errors import raises

from lexome.errors import UsageError
from lexome.reproduce.aggregate import RunScores, aggregate


def runs(*numbers: float) -> list[RunScores]:
    """A run for each number, each with a seed of its own."""
    return [RunScores(seed, None, {"f1": number}) for seed, number in enumerate(numbers)]


def folded(table: dict[int, list[float]]) -> list[RunScores]:
    """Runs of seeds by folds."""
    return [RunScores(seed, fold, {"f1": number}) for seed, row in table.items() for fold, number in enumerate(row, 1)]


def test_the_mean_of_five_seeds_has_students_interval() -> None:
    numbers = [0.80, 0.82, 0.81, 0.84, 0.83]
    found = aggregate(runs(*numbers), "f1", folds=None, seeds="mean")
    # 2.776 is Student's t with four degrees of freedom.
    half = 100 * 2.776 * statistics.stdev(numbers) / 5**0.5
    assert (found.value, found.low, found.high) == pytest.approx((82, 82 - half, 82 + half))
    assert (found.runs, found.level, found.over) == (5, 0.95, "seeds")


def test_the_interval_of_five_seeds_is_their_range() -> None:
    found = aggregate(runs(0.9, 0.5, 0.7, 0.8, 0.6), "f1", folds=None, seeds="median")
    assert (found.value, found.low, found.high) == pytest.approx((70, 50, 90))
    assert found.level == pytest.approx(1 - 2 / 2**5)


def test_the_interval_of_nine_values_is_narrower_than_their_range() -> None:
    found = aggregate(runs(*(number / 10 for number in range(1, 10))), "f1", folds=None, seeds="median")
    # Two of nine outside on either side: 1 - 2 (1 + 9) / 512.
    assert (found.low, found.high, found.level) == pytest.approx((20, 80, 1 - 20 / 512))


def test_folds_are_aggregated_before_seeds() -> None:
    table = {0: [0.1, 0.2, 0.9], 1: [0.3, 0.4, 0.5], 2: [0.6, 0.7, 0.8]}
    medians = aggregate(folded(table), "f1", folds="median", seeds="median")
    assert medians.each == pytest.approx((20, 40, 70))
    assert medians.value == pytest.approx(40)
    means = aggregate(folded(table), "f1", folds="mean", seeds="mean")
    assert means.each == pytest.approx((40, 40, 70))
    assert means.value == pytest.approx(50)


def test_one_seed_of_many_folds_has_an_interval_over_folds() -> None:
    found = aggregate(folded({0: [0.5, 0.7, 0.9]}), "f1", folds="mean", seeds="mean")
    assert (found.value, found.over, found.runs) == (pytest.approx(70), "folds", 3)


def test_one_run_alone_has_no_interval() -> None:
    found = aggregate(runs(0.5), "f1", folds=None, seeds="mean")
    assert (found.value, found.low, found.over) == (50, None, None)


@pytest.mark.parametrize(
    ("given", "metric", "code", "value"),
    [
        (runs(0.5), "mrr", "unknown-metric", "mrr"),
        (folded({0: [0.5, 0.6]}), "f1", "no-fold-statistic", None),
        ([*runs(0.5), *runs(0.6)], "f1", "duplicate-run", 0),
    ],
)
def test_runs_that_cannot_be_aggregated_are_refused(
    given: list[RunScores], metric: str, code: str, value: object
) -> None:
    with raises(UsageError, code=code, value=value):
        aggregate(given, metric, folds=None, seeds="mean")


def test_seeds_with_different_folds_are_refused() -> None:
    with raises(UsageError, code="incomplete-folds"):
        aggregate(folded({0: [0.5, 0.6], 1: [0.5]}), "f1", folds="mean", seeds="mean")
