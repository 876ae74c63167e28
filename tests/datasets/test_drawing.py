"""Splits that are drawn: the same ones each time, articles together, labels spread."""

import pytest
from errors import raises

from lexome import Document
from lexome.datasets.dataset import assign_folds, pubmedqa_splits, split_off
from lexome.document import lay_out
from lexome.errors import UsageError
from lexome.metadata import Metadata


def docs(count: int, *, articles: int = 0) -> list[Document]:
    return [
        Document(
            f"d{number}",
            lay_out([("sentence", f"text {number}")]),
            labels=(str(number % 2),),
            meta=Metadata(pmid=str(number % articles) if articles else None),
        )
        for number in range(count)
    ]


def test_a_fraction_is_sampled_whatever_the_order() -> None:
    rest, drawn = split_off(docs(50), fraction=0.2, seed=3)
    assert (len(rest), len(drawn)) == (40, 10)
    assert {doc.id for doc in split_off(docs(50)[::-1], fraction=0.2, seed=3)[1]} == {doc.id for doc in drawn}
    assert [doc.id for doc in split_off(docs(50), fraction=0.2, seed=4)[1]] != [doc.id for doc in drawn]


def test_an_article_is_on_one_side() -> None:
    rest, drawn = split_off(docs(100, articles=10), fraction=0.2, seed=0)
    assert not {doc.meta.pmid for doc in rest} & {doc.meta.pmid for doc in drawn}
    assert len(drawn) == 20


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 2])
def test_a_fraction_out_of_range(fraction: float) -> None:
    with raises(UsageError, code="out-of-range", value=fraction):
        split_off(docs(3), fraction=fraction, seed=0)


def test_folds_have_both_labels() -> None:
    given = docs(40)
    numbers = assign_folds(given, folds=10, seed=0)
    assert sorted(set(numbers)) == list(range(10))
    for fold in range(10):
        own = [doc.labels for doc, number in zip(given, numbers, strict=True) if number == fold]
        assert sorted(own) == [("0",), ("0",), ("1",), ("1",)]
    assert numbers == assign_folds(given, folds=10, seed=0)


def test_more_folds_than_documents() -> None:
    with raises(UsageError, code="out-of-range", value=10):
        assign_folds(docs(3), folds=10, seed=0)


def test_more_folds_than_articles_would_leave_some_empty() -> None:
    with raises(UsageError, code="out-of-range", value=5):
        assign_folds(docs(40, articles=4), folds=5, seed=0)
    assert set(assign_folds(docs(40, articles=4), folds=4, seed=0)) == set(range(4))


def test_a_fraction_that_leaves_no_training_data() -> None:
    with raises(UsageError, code="too-few-documents", value=1):
        split_off(docs(10, articles=1), fraction=0.1, seed=0)


def test_pubmedqa_s_parts_are_apart_and_complete() -> None:
    labeled = [(str(number), ("yes", "no", "maybe")[number % 3]) for number in range(1000)]
    test, folds = pubmedqa_splits(labeled)
    assert len(test) == 500
    assert [len(fold) for fold in folds] == [50] * 10
    assert len({*test, *(pmid for fold in folds for pmid in fold)}) == 1000
