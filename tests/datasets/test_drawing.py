"""Splits that are drawn: the same ones each time, articles together, labels spread."""

import pytest

from lexome import Document
from lexome.datasets.splits import fold_numbers, part_off, pubmedqa_parts
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


def test_a_share_is_drawn_whatever_the_order() -> None:
    rest, drawn = part_off(docs(50), share=0.2, seed=3)
    assert (len(rest), len(drawn)) == (40, 10)
    assert {doc.id for doc in part_off(docs(50)[::-1], share=0.2, seed=3)[1]} == {doc.id for doc in drawn}
    assert [doc.id for doc in part_off(docs(50), share=0.2, seed=4)[1]] != [doc.id for doc in drawn]


def test_an_article_is_on_one_side() -> None:
    rest, drawn = part_off(docs(100, articles=10), share=0.2, seed=0)
    assert not {doc.meta.pmid for doc in rest} & {doc.meta.pmid for doc in drawn}
    assert len(drawn) == 20


@pytest.mark.parametrize("share", [0, 1, -0.1, 2])
def test_a_share_that_is_none(share: float) -> None:
    with pytest.raises(UsageError, match="between 0 and 1"):
        part_off(docs(3), share=share, seed=0)


def test_folds_have_both_labels() -> None:
    given = docs(40)
    numbers = fold_numbers(given, folds=10, seed=0)
    assert sorted(set(numbers)) == list(range(10))
    for fold in range(10):
        own = [doc.labels for doc, number in zip(given, numbers, strict=True) if number == fold]
        assert sorted(own) == [("0",), ("0",), ("1",), ("1",)]
    assert numbers == fold_numbers(given, folds=10, seed=0)


def test_more_folds_than_documents() -> None:
    with pytest.raises(UsageError, match="10 folds of 3 documents"):
        fold_numbers(docs(3), folds=10, seed=0)


def test_more_folds_than_articles_would_leave_some_empty() -> None:
    with pytest.raises(UsageError, match="which are of 4 articles"):
        fold_numbers(docs(40, articles=4), folds=5, seed=0)
    assert set(fold_numbers(docs(40, articles=4), folds=4, seed=0)) == set(range(4))


def test_a_share_that_leaves_nothing_to_learn_from() -> None:
    with pytest.raises(UsageError, match="which are of 1 articles; expected it to leave some"):
        part_off(docs(10, articles=1), share=0.1, seed=0)


def test_pubmedqa_s_parts_are_apart_and_complete() -> None:
    labelled = [(str(number), ("yes", "no", "maybe")[number % 3]) for number in range(1000)]
    test, folds = pubmedqa_parts(labelled)
    assert len(test) == 500
    assert [len(fold) for fold in folds] == [50] * 10
    assert len({*test, *(pmid for fold in folds for pmid in fold)}) == 1000
