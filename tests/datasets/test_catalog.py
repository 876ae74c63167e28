"""The cards: each has what a user needs, a task that can be made, and files that can be found."""

from pathlib import Path

import pytest
from errors import raises

from lexome import datasets
from lexome.datasets import FOLDER, GROUPS, cards, read_cards
from lexome.datasets.dataset import READERS, DatasetCard
from lexome.errors import DataSetError
from lexome.formats import BY_NAME
from lexome.tasks import KINDS, task_of

ALL = pytest.mark.parametrize("card", cards().values(), ids=list(cards()))


def test_every_set_of_the_papers_is_known() -> None:
    papers = {"lee2020": 0, "lewis2020": 0, "fang2023": 0, "shin2020": 0}
    for card in cards().values():
        for paper in card.papers:
            papers[paper] += 1
    # DDI is there in two forms; SQuAD is what models learn before BioASQ.
    assert papers == {"lee2020": 15, "lewis2020": 19, "fang2023": 17, "shin2020": 7}


@ALL
def test_a_card_is_complete(card: DatasetCard) -> None:
    assert all((card.description, card.metric, card.license, card.citation, card.source, card.folders, card.splits))
    assert card.task["kind"] in KINDS
    assert all(note.endswith(".") for note in card.notes)


@ALL
def test_its_task_can_be_made_and_names_what_is_scored(card: DatasetCard) -> None:
    task = task_of(card.task)
    assert task.labels
    assert set(card.positive) <= {*task.labels, *task.document_labels}


@ALL
def test_its_files_are_of_known_formats(card: DatasetCard) -> None:
    for alternatives in card.splits.values():
        assert alternatives
        for files in alternatives:
            assert files.reader in BY_NAME or files.reader in READERS
            assert files.patterns


def test_counts_are_expected_of_splits_that_there_are() -> None:
    drawn = {"dev", "train", "test"}
    assert [card.name for card in cards().values() if not card.expected.keys() <= card.splits.keys() | drawn] == []


def test_names_are_the_cards_names() -> None:
    assert datasets.names() == [card.name for card in cards().values()]
    assert len({name.lower() for name in datasets.names()}) == len(cards())


def test_every_file_of_cards_is_a_group() -> None:
    assert {path.stem for path in FOLDER.glob("*.toml")} == set(GROUPS)


CARD = """
[Genes]
description = "genes"
metric = "F1"
folders = ["genes"]
license = "none"
source = "nowhere"
reader = "conll"
task = { kind = "ner", types = ["Gene"] }
"""


@pytest.mark.parametrize(
    ("text", "code", "value"),
    [
        (CARD, "missing-key", "splits"),
        (CARD + 'splits = { train = "a.tsv" }\nlicence = "MIT"\n', "unknown-key", "licence"),
        (CARD + 'splits = { train = "a.tsv" }\nnotes = "one"\n', "wrong-type", "notes"),
        (CARD + 'splits = { train = "a.tsv" }\nchanges = ["shuffle"]\n', "unknown-change", "shuffle"),
        (CARD + 'splits = { train = "a.tsv" }\nrefine = "mine"\n', "unknown-refinement", "mine"),
        (CARD + 'splits = { train = [{ pattern = ["a.tsv"] }] }\n', "unknown-key", "pattern"),
    ],
)
def test_a_mistake_in_a_card_is_named(tmp_path: Path, text: str, code: str, value: str) -> None:
    path = tmp_path / "cards.toml"
    path.write_text(text)
    with raises(DataSetError, code=code, value=value):
        read_cards(path)


def test_files_of_a_split_are_alternatives_or_read_together(tmp_path: Path) -> None:
    path = tmp_path / "cards.toml"
    path.write_text(CARD + 'splits = { train = "a", dev = ["b", ["c", "d"], { patterns = ["e"], reader = "tsv" }] }\n')
    (card,) = read_cards(path)
    assert {name: [files.patterns for files in options] for name, options in card.splits.items()} == {
        "train": [("a",)],
        "dev": [("b",), ("c", "d"), ("e",)],
    }
    assert [files.reader for files in card.splits["dev"]] == ["conll", "conll", "tsv"]
