"""Classes, sets of labels and numbers: by hand, and against scikit-learn and scipy."""

import random
from math import isnan

import pytest
import scipy.stats
from errors import raises
from sklearn.metrics import precision_recall_fscore_support

from lexome.errors import UsageError
from lexome.tasks.metrics import (
    CLASS_SETS,
    Counts,
    accuracy,
    classification,
    multilabel,
    pearson,
    pool_labels,
    spearman,
)


def test_only_the_positive_classes_count() -> None:
    gold = ["CPR:3", "CPR:4", "NA", "NA", "CPR:9"]
    found = ["CPR:3", "CPR:3", "NA", "CPR:4", "NA"]
    score = classification(gold, found, labels=CLASS_SETS["chemprot"])
    assert score.total == Counts(1, 2, 2)
    assert score.f1 == 1 / 3
    assert score.macro_f1 == (2 / 3) / 5
    assert list(score.types) == ["CPR:3", "CPR:4", "CPR:5", "CPR:6", "CPR:9"]


def test_micro_f1_over_all_classes_is_accuracy() -> None:
    gold, found = list("aabbc"), list("abbcc")
    assert classification(gold, found).f1 == accuracy(gold, found) == 3 / 5


@pytest.mark.parametrize("average", ["micro", "macro", "weighted"])
def test_averages_are_those_of_scikit_learn(average: str) -> None:
    rng = random.Random(4)
    gold, found = ([rng.choice("abcde0") for _ in range(500)] for _ in range(2))
    ours = classification(gold, found, labels=list("abcde"))
    theirs = precision_recall_fscore_support(gold, found, labels=list("abcde"), average=average)
    f1 = {"micro": ours.f1, "macro": ours.macro_f1, "weighted": ours.weighted_f1}[average]
    assert f1 == pytest.approx(theirs[2])


def test_labels_that_occur_nowhere_are_an_error() -> None:
    with raises(UsageError, code="unknown-labels"):
        classification(["Cpr3"], ["Cpr3"], labels=CLASS_SETS["chemprot"])
    with raises(UsageError, code="no-labels"):
        multilabel([{"a"}], [{"a"}], labels=[])


def test_sets_of_labels_by_hand() -> None:
    gold: list[set[str]] = [{"a", "b"}, {"c"}, {"a"}, set()]
    found: list[set[str]] = [{"a"}, {"c", "b"}, set(), set()]
    score = multilabel(gold, found)
    assert score.agreement.types == {"a": Counts(1, 0, 1), "b": Counts(0, 1, 1), "c": Counts(1, 0, 0)}
    assert score.agreement.f1 == 4 / 7
    assert score.agreement.macro_f1 == pytest.approx((2 / 3 + 0 + 1) / 3)
    assert score.precision == (1 + 1 / 2 + 0 + 1) / 4
    assert score.recall == (1 / 2 + 1 + 0 + 1) / 4
    assert score.f1 == pytest.approx(2 * 0.625 * 0.625 / 1.25)
    assert score.mean_f1 == pytest.approx((2 / 3 + 2 / 3 + 0 + 1) / 4)
    assert score.exact == 1 / 4
    assert score.hamming == 3 / 12


def test_sentences_of_a_document_are_pool_labels() -> None:
    documents = ["1", "1", "2", "1"]
    assert pool_labels(documents, [{"a"}, set(), {"b"}, {"c", "a"}]) == [{"a", "c"}, {"b"}]


def test_hoc_has_ten_hallmarks_and_each_set_its_classes() -> None:
    assert {name: len(classes) for name, classes in CLASS_SETS.items()} == {
        "chemprot": 5, "ddi": 4, "gad": 1, "euadr": 1, "i2b2-2010-relations": 8, "hoc": 10, "litcovid": 7
    }  # fmt: skip


def test_correlations_are_those_of_scipy() -> None:
    rng = random.Random(5)
    gold = [rng.randint(0, 8) / 2 for _ in range(200)]
    found = [number + rng.gauss(0, 1) for number in gold]
    assert pearson(gold, found) == pytest.approx(scipy.stats.pearsonr(gold, found).statistic)
    assert spearman(gold, found) == pytest.approx(scipy.stats.spearmanr(gold, found).statistic)
    ties = [round(number) for number in found]
    assert spearman(gold, ties) == pytest.approx(scipy.stats.spearmanr(gold, ties).statistic)


def test_a_correlation_with_what_does_not_vary_is_no_number() -> None:
    assert isnan(pearson([1, 2, 3], [5, 5, 5]))
    assert isnan(spearman([1], [1]))


def test_numbers_must_be_finite_and_in_pairs() -> None:
    with raises(UsageError, code="not-finite"):
        pearson([1.0, float("nan")], [1.0, 2.0])
    with raises(UsageError, code="length-mismatch", value=(2, 1)):
        spearman([1, 2], [1])
