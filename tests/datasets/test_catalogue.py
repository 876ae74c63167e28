"""The cards: each has what a user needs, a task that can be made, and files that can be found."""

import pytest

from lexome import datasets
from lexome.datasets.catalogue import CARDS
from lexome.datasets.dataset import Card
from lexome.formats.registry import BY_NAME
from lexome.tasks import KINDS, task_of

ALL = pytest.mark.parametrize("card", CARDS.values(), ids=list(CARDS))


def test_every_set_of_the_papers_is_known() -> None:
    papers = {"lee2020": 0, "lewis2020": 0, "fang2023": 0, "shin2020": 0}
    for card in CARDS.values():
        for paper in card.papers:
            papers[paper] += 1
    # DDI is there in two forms; SQuAD is what models learn before BioASQ.
    assert papers == {"lee2020": 15, "lewis2020": 19, "fang2023": 17, "shin2020": 7}


@ALL
def test_a_card_is_complete(card: Card) -> None:
    assert all((card.about, card.measure, card.licence, card.citation, card.get, card.folders, card.splits))
    assert card.task["kind"] in KINDS
    assert all(note.endswith(".") for note in card.notes)


@ALL
def test_its_task_can_be_made_and_names_what_is_scored(card: Card) -> None:
    task = task_of(card.task)
    assert task.labels
    assert set(card.positive) <= set(task.labels)


@ALL
def test_its_files_are_of_known_formats(card: Card) -> None:
    for alternatives in card.splits.values():
        assert alternatives
        for files in alternatives:
            assert callable(files.reader) or files.reader in BY_NAME
            assert files.patterns


def test_counts_are_expected_of_splits_that_there_are() -> None:
    drawn = {"dev", "train", "test"}
    assert [card.name for card in CARDS.values() if not card.expected.keys() <= card.splits.keys() | drawn] == []


def test_names_are_the_cards_names() -> None:
    assert datasets.names() == [card.name for card in CARDS.values()]
    assert len({name.lower() for name in datasets.names()}) == len(CARDS)
