"""A user's folder as a set: files by their names, in any form that is read."""

from pathlib import Path

from errors import raises
from made_sets import GENES, write

from lexome import datasets
from lexome.errors import DataSetError, UsageError


def test_columns_named_as_biobert_names_them(tmp_path: Path) -> None:
    files = ("train.tsv", "devel.tsv", "test.tsv", "train_dev.tsv")
    found = datasets.folder(write(tmp_path, dict.fromkeys(files, GENES)), task={"kind": "ner", "types": ["Entity"]})
    # train_dev is train and dev together, so it is neither.
    assert {name: len(docs) for name, docs in found.splits().items()} == {"train": 1, "dev": 1, "test": 1}
    assert found.available
    assert found.task.labels == ("O", "B-Entity", "I-Entity")


def test_options_of_the_format(tmp_path: Path) -> None:
    found = datasets.folder(write(tmp_path, {"train.tsv": GENES}), task="ner", format="conll", type="Gene")
    assert found.settings["types"] == ["Gene"]


def test_subfolders_in_brat_s_form(tmp_path: Path) -> None:
    for split in ("train", "validation"):
        write(tmp_path, {f"{split}/a.txt": "TP53 acts.", f"{split}/a.ann": "T1\tGene 0 4\tTP53\n"})
    splits = datasets.folder(tmp_path, task="ner").splits()
    assert [span.text for span in splits["dev"][0].spans] == ["TP53"]


def test_pubtator_files_under_names_of_their_own(tmp_path: Path) -> None:
    text = "1|t|TP53 acts\n1|a|On cells.\n1\t0\t4\tTP53\tGene\t7157\n\n"
    write(tmp_path, {"first.PubTator": text, "second.PubTator": text.replace("1|", "2|").replace("1\t0", "2\t0")})
    found = datasets.folder(tmp_path, task="ner", files={"train": "first.PubTator", "test": "second.PubTator"})
    assert [doc.id for doc in found.splits()["test"]] == ["2"]


def test_dev_is_drawn_on_request(tmp_path: Path) -> None:
    rows = "".join(f"text number {number} says much\t{number % 2}\n" for number in range(20))
    found = datasets.folder(write(tmp_path, {"train.tsv": rows}), task="classes")
    assert {name: len(docs) for name, docs in found.splits(dev_fraction=0.1).items()} == {"train": 18, "dev": 2}


def test_a_folder_with_nothing_of_the_kind(tmp_path: Path) -> None:
    write(tmp_path, {"notes.txt": "nothing"})
    with raises(DataSetError, code="no-splits", value=str(tmp_path)):
        datasets.folder(tmp_path, task="ner")


def test_documents_without_relations_teach_none(tmp_path: Path) -> None:
    write(tmp_path, {"train/a.txt": "TP53 acts.", "train/a.ann": "T1\tGene 0 4\tTP53\n"})
    with raises(DataSetError, code="missing-annotations", value="labels", mentions="relations"):
        datasets.folder(tmp_path, task="relation")


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with raises(DataSetError, code="missing-folder", value=str(tmp_path / "nowhere")):
        datasets.folder(tmp_path / "nowhere", task="ner")


def test_a_file_that_is_named_and_not_there(tmp_path: Path) -> None:
    with raises(DataSetError, code="missing-file", value=str(tmp_path / "nowhere.tsv")):
        datasets.folder(tmp_path, task="ner", files={"train": "nowhere.tsv"})


def test_a_task_that_there_is_not(tmp_path: Path) -> None:
    with raises(UsageError, code="invalid-choice", value="translate"):
        datasets.folder(write(tmp_path, {"train.tsv": GENES}), task="translate")


def test_an_overlap_between_its_files(tmp_path: Path) -> None:
    row = "a sentence of more than six words\t1\n"
    found = datasets.folder(write(tmp_path, {"train.tsv": row, "test.tsv": row}), task="classes")
    assert [overlap.texts for overlap in found.check().overlaps] == [1]
    with raises(DataSetError, code="overlapping-splits", value=1):
        found.splits(overlap="error")


def test_a_split_in_two_forms_is_not_read_twice(tmp_path: Path) -> None:
    write(tmp_path, {"train.tsv": GENES, "train.conll": GENES})
    with raises(DataSetError, code="several-formats", value="train"):
        datasets.folder(tmp_path, task="ner")


def test_two_datasets_in_one_folder_are_not_mixed(tmp_path: Path) -> None:
    row = '{"text": "a b", "label": "x"}\n'
    write(tmp_path, {"one/train.jsonl": row, "two/train.jsonl": row})
    with raises(DataSetError, code="several-folders", value="train"):
        datasets.folder(tmp_path, task="classes")
    assert len(datasets.folder(tmp_path / "two", task="classes").splits()["train"]) == 1


def test_a_name_that_cannot_be_told_from_a_pattern(tmp_path: Path) -> None:
    with raises(DataSetError, code="invalid-name", value="a!b/train.tsv"):
        datasets.folder(write(tmp_path, {"a!b/train.tsv": GENES}), task="ner")


def test_splits_are_named_as_other_tools_name_them(tmp_path: Path) -> None:
    found = datasets.folder(
        write(tmp_path, {"a.tsv": GENES, "b.tsv": GENES}), task="ner", files={"train": "a.tsv", "validation": "b.tsv"}
    )
    assert list(found.splits()) == ["train", "dev"]


def test_a_mention_with_wrong_offsets_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, {"train/a.txt": "TP53 acts.", "train/a.ann": "T1\tGene 5 9\tTP53\n"})
    with raises(DataSetError, code="offset_mismatch"):
        datasets.folder(tmp_path, task={"kind": "ner", "types": ["Gene"]}).split("train")
    repaired = datasets.folder(tmp_path, task="ner", offsets="repair").split("train")
    assert [span.start for span in repaired[0].spans] == [0]


def test_a_split_without_mentions_is_a_warning(tmp_path: Path) -> None:
    write(tmp_path, {"train.tsv": GENES, "dev.tsv": "cells\tO\ngrow\tO\n"})
    assert datasets.folder(tmp_path, task="ner").check().warnings == ("dev has no mentions, and train has 2",)
