"""What people with their own data are told: relation types found in it, real leaks, collapse, and missing splits."""

from pathlib import Path
from typing import Any

import pytest
from errors import raises
from finetuning import done, recipe_of

import lexome
from lexome.datasets import folder
from lexome.datasets.audit import find_overlaps
from lexome.document import Argument, Document, Passage, Relation, Span
from lexome.errors import DataSetError
from lexome.tasks import task_of
from lexome.training.finetune.examples import Split, warn_collapsed


def related(id: str, text: str, *, relation: str | None = "inhibits", first: str = "Drug") -> Document:
    """Two mentions, the first and the last word of a text, which may be related."""
    words = text.split()
    spans = (
        Span("T1", first, ((0, len(words[0])),), words[0]),
        Span("T2", "Gene", ((len(text) - len(words[-1]), len(text)),), words[-1]),
    )
    arguments = (Argument("Arg1", "T1"), Argument("Arg2", "T2"))
    relations = (Relation("R1", relation, arguments),) if relation is not None else ()
    return Document(id, (Passage(0, text),), spans, relations)


DOCS = [
    related("1", "olaparib inhibits PARP1"),
    related("2", "aspirin activates EGFR", relation="activates"),
    related("3", "water and TP53", relation=None),
    related("4", "KRAS binds BRCA1", relation="inhibits", first="Gene"),
]


def own_data(root: Path) -> Path:
    lexome.write(root / "train.jsonl", DOCS)
    lexome.write(root / "dev.jsonl", [related("5", "imatinib inhibits ABL1")])
    return root


def test_relation_types_and_their_pairs_are_those_of_the_training_documents(tmp_path: Path) -> None:
    settings = folder(own_data(tmp_path), task="relation").settings
    assert settings["labels"] == ["none", "activates", "inhibits"]
    assert (settings["none"], settings["scope"]) == ("none", "sentence")
    assert settings["pairs"] == [["Drug", "Gene"], ["Gene", "Gene"]]
    assert task_of(settings).input_types == ("Drug", "Gene")


def test_relations_across_sentences_are_looked_for_in_documents(tmp_path: Path) -> None:
    far = related("9", "olaparib helps. It inhibits PARP1")
    passage = Passage(0, far.passages[0].text, sentences=((0, 15), (16, len(far.text))))
    lexome.write(tmp_path / "train.jsonl", [Document("9", (passage,), far.spans, far.relations)])
    assert folder(tmp_path, task="relation").settings["scope"] == "document"


def test_marked_sentences_with_labels_have_their_labels(tmp_path: Path) -> None:
    docs = [Document(str(n), (Passage(0, "@GENE$ x @DRUG$"),), labels=(label,)) for n, label in enumerate("ab")]
    lexome.write(tmp_path / "train.jsonl", docs)
    assert folder(tmp_path, task="relation").settings == {"kind": "relation", "labels": ["a", "b"]}


LONG = "Loss of BRCA1 raises the sensitivity of tumours to olaparib in many patients"


def test_files_of_one_name_are_no_leak_unless_their_texts_are_alike() -> None:
    train = [related("1", LONG), related("2", "KRAS drives the growth of lung tumours in mice EGFR")]
    dev = [
        related("1", "Aspirin was given to forty patients with fever for two weeks TP53"),
        related("2", train[1].text),
    ]
    [overlap] = find_overlaps({"train": train, "dev": dev})
    assert (overlap.ids, overlap.texts, overlap.examples) == (1, 1, ("2",))
    assert find_overlaps({"train": train[:1], "dev": dev[:1]}) == ()


def test_training_without_overlaps_keeps_files_of_one_name(tmp_path: Path) -> None:
    lexome.write(tmp_path / "train.jsonl", [related("1", LONG), related("2", "olaparib inhibits PARP1")])
    lexome.write(tmp_path / "dev.jsonl", [related("1", f"{LONG} again"), related("2", "KRAS drives EGFR")])
    splits = folder(tmp_path, task="relation").splits(overlap="drop", partial=True)
    assert [doc.id for doc in splits["train"]] == ["2"]


def answered(*labels: str) -> list[Document]:
    return [Document(str(n), (Passage(0, "x"),), labels=(label,)) for n, label in enumerate(labels)]


@pytest.mark.parametrize(
    ("predicted", "scores", "told"),
    [
        (("a", "a", "a"), {"f1": 0.33}, "collapsed"),
        (("a", "b", "a"), {"f1": 0.0}, "nothing"),
        (("a", "b", "a"), {"f1": 0.5}, None),
    ],
)
def test_a_model_that_collapsed_is_told(
    tmp_path: Path, predicted: tuple[str, ...], scores: dict[str, Any], told: str | None
) -> None:
    lexome.write(tmp_path / "dev.jsonl", answered(*predicted))
    gold = Split(answered("a", "b", "b"), ["x"] * 3, lambda source, doc: [])
    warning = warn_collapsed(tmp_path / "dev.jsonl", gold, scores, "f1")
    assert warning is None if told is None else warning is not None and told in warning


def test_one_answer_is_right_where_gold_has_one(tmp_path: Path) -> None:
    lexome.write(tmp_path / "dev.jsonl", answered("a", "a"))
    gold = Split(answered("a", "a"), ["x"] * 2, lambda source, doc: [])
    assert warn_collapsed(tmp_path / "dev.jsonl", gold, {"f1": 1.0}, "f1") is None


def test_a_missing_test_split_names_the_key_that_asks_for_it(start: Path, tmp_path: Path) -> None:
    keys: dict[str, Any] = {"score_test": "every", "epochs": 1}
    recipe = recipe_of(start, own_data(tmp_path / "data"), tmp_path / "out", {"kind": "relation"}, **keys)
    with raises(DataSetError, code="missing-split", value="test", mentions="score_test"):
        done(recipe)
