"""Fine-tuning from what a program has in memory: documents, records, DataFrames."""

from pathlib import Path
from typing import Any

import pandas
import pytest
from errors import raises
from finetuning import class_documents, ner_documents, recipe_of

import lexome
from lexome.errors import UsageError

CLASSES = {"kind": "classes"}


def finetune(start: Path, out: Path, task: dict[str, Any], splits: dict[str, Any], **overrides: Any) -> Any:
    recipe = recipe_of(start, out, out, task)
    return lexome.finetune(recipe, splits=splits, overrides={"epochs": 2, **overrides}, progress_shown=False)


def test_documents_are_trained_on(start: Path, tmp_path: Path) -> None:
    docs = ner_documents(12)
    done = finetune(start, tmp_path / "out", {"kind": "ner"}, {"train": docs[:8], "dev": docs[8:]}, epochs=40)
    assert done.summary.rows[0].spreads["dev"]["f1"].mean == 1.0
    assert list(lexome.read(tmp_path / "out" / "splits" / "dev.jsonl")) == docs[8:]


def test_records_and_tables_are_the_same_as_documents(start: Path, tmp_path: Path) -> None:
    docs = class_documents(several=False)
    rows = [{"id": doc.id, "sentence": doc.text, "label": doc.labels[0]} for doc in docs]
    table = pandas.DataFrame(rows).assign(pmid=None)
    found = [
        finetune(start, tmp_path / name, CLASSES, {"train": given, "dev": given}).summary
        for name, given in (("documents", docs), ("records", rows), ("table", table))
    ]
    assert found[0] == found[1] == found[2]


def test_other_documents_are_another_run(start: Path, tmp_path: Path) -> None:
    docs = class_documents(several=False)
    finetune(start, tmp_path / "out", CLASSES, {"train": docs, "dev": docs})
    again = finetune(start, tmp_path / "out", CLASSES, {"train": docs, "dev": docs})
    assert len(list((tmp_path / "out" / "runs").iterdir())) == len(again.summary.rows)
    with raises(UsageError, code="other-settings", value="train"):
        finetune(start, tmp_path / "out", CLASSES, {"train": docs[1:], "dev": docs})


@pytest.mark.parametrize(
    ("splits", "code", "value"),
    [
        ({"dev": []}, "missing-split", "train"),
        ([{"text": "a"}], "missing-split", "train"),
        ({"train": []}, "empty-split", "train"),
        ({"train": "a text"}, "not-documents", "a text"),
        ({"train": ["a text"]}, "not-a-document", 1),
        ({"train": [{"label": "a"}]}, "no_text", 1),
    ],
)
def test_splits_that_are_none_are_refused(
    splits: dict[str, Any], code: str, value: Any, start: Path, tmp_path: Path
) -> None:
    with raises(UsageError, code=code, value=value):
        finetune(start, tmp_path / "out", CLASSES, splits)
