"""Intervals and paired tests: known cases, and the same numbers for the same seed."""

import numpy as np
import pytest
import scipy.stats
from errors import raises

from lexome.errors import UsageError
from lexome.tasks.metrics import (
    Mention,
    approximate_randomization,
    bootstrap_interval,
    count_rows,
    mean_of_rows,
    micro_f1,
    paired_bootstrap,
    spans_strict,
)
from lexome.tasks.metrics.bootstrap import f1_intervals
from lexome.tasks.metrics.classification import correlation


def right_or_wrong(right: int, documents: int) -> np.ndarray:
    return np.array([(float(place < right), 1.0) for place in range(documents)])


def test_rows_are_the_counts_of_each_document() -> None:
    gold, found = [[Mention("G", ((0, 2),))], [], []], [[Mention("G", ((0, 2),)), Mention("G", ((3, 4),))], [], []]
    each = [spans_strict([left], [right]) for left, right in zip(gold, found, strict=True)]
    assert count_rows(each).tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 0]]
    assert micro_f1(count_rows(each)) == spans_strict(gold, found).f1


def test_the_interval_is_that_of_the_binomial() -> None:
    # Resampling n answers of which k are right draws from the binomial distribution of n and k / n.
    interval = bootstrap_interval(right_or_wrong(70, 100), mean_of_rows, samples=4000)
    low, high = scipy.stats.binom(100, 0.7).ppf([0.025, 0.975]) / 100
    assert interval.value == 0.7
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=0.0101)


def test_the_same_seed_gives_the_same_interval() -> None:
    rows = right_or_wrong(30, 50)
    first, second, other = (bootstrap_interval(rows, mean_of_rows, seed=seed, samples=99) for seed in (7, 7, 8))
    assert first == second != other


def test_the_intervals_of_types_are_those_of_each_alone() -> None:
    counts = np.random.default_rng(1).integers(0, 4, (40, 3, 3)).astype(float)
    counts[:, 2] = 0
    together = f1_intervals(counts, samples=50, seed=3)
    alone = [bootstrap_interval(counts[:, type], micro_f1, samples=50, seed=3) for type in range(3)]
    assert [(one.value, one.low, one.high) for one in together] == [
        pytest.approx((one.value, one.low, one.high)) for one in alone
    ]


def test_a_system_does_not_differ_from_itself() -> None:
    rows = right_or_wrong(30, 50)
    for test in (paired_bootstrap, approximate_randomization):
        result = test(rows, rows, mean_of_rows, samples=200)
        assert (result.difference, result.p_value) == (0, 1)


def test_a_system_that_is_always_better_differs() -> None:
    ours, theirs = right_or_wrong(40, 40), right_or_wrong(0, 40)
    bootstrap = paired_bootstrap(ours, theirs, mean_of_rows, samples=200)
    assert (bootstrap.difference, bootstrap.low, bootstrap.high) == (1, 1, 1)
    assert approximate_randomization(ours, theirs, mean_of_rows, samples=999).p_value == 1 / 1000


def test_randomization_is_the_sign_test_where_rows_are_right_or_wrong() -> None:
    # 9 documents only ours has right, 2 only theirs: the sign test's p is known exactly.
    ours = np.array([(1.0, 1.0)] * 9 + [(0.0, 1.0)] * 2 + [(1.0, 1.0)] * 20)
    theirs = np.array([(0.0, 1.0)] * 9 + [(1.0, 1.0)] * 2 + [(1.0, 1.0)] * 20)
    result = approximate_randomization(ours, theirs, mean_of_rows, samples=5000)
    assert result.difference == pytest.approx(7 / 31)
    assert result.p_value == pytest.approx(scipy.stats.binomtest(9, 11).pvalue, abs=0.02)


def test_bootstrap_p_is_large_for_noise_and_small_for_a_real_difference() -> None:
    rng = np.random.default_rng(0)
    base = np.column_stack([rng.integers(0, 5, 200), rng.integers(0, 3, 200), rng.integers(0, 3, 200)]).astype(float)
    noise = base[rng.permutation(200)]
    worse = base + np.array([0.0, 1.0, 1.0])
    assert paired_bootstrap(base, noise, micro_f1, samples=300).p_value > 0.5
    assert paired_bootstrap(base, worse, micro_f1, samples=300).p_value < 0.01


def test_draws_without_a_score_are_left_out() -> None:
    # Three documents: now and then all draws are of the same one, and a correlation has nothing to go by.
    rows = np.array([(1.0, 1.0), (2.0, 3.0), (3.0, 2.0)])
    interval = bootstrap_interval(rows, lambda drawn: correlation(drawn[:, 0], drawn[:, 1]), samples=200)
    assert -1 <= interval.low < interval.high <= 1


def test_what_cannot_be_resampled_is_an_error() -> None:
    with raises(UsageError, code="shape-mismatch"):
        bootstrap_interval(np.zeros((0, 3)), micro_f1)
    with raises(UsageError, code="shape-mismatch"):
        paired_bootstrap(np.zeros((2, 3)), np.zeros((3, 3)), micro_f1)
    with raises(UsageError, code="out-of-range", value=0):
        bootstrap_interval(np.zeros((2, 3)), micro_f1, samples=0)
