"""Hugging Face datasets saved on disk, made with pyarrow alone as the datasets library writes them."""

import json
from pathlib import Path
from typing import Any

import pytest
from errors import raises
from made_sets import write

from lexome import Tally, datasets
from lexome.datasets.hf_rows import document
from lexome.errors import BadDocument, DataSetError, FormatError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

NAMES = ["O", "B-Gene", "I-Gene"]
TAGGED = {
    "id": {"dtype": "string", "_type": "Value"},
    "tokens": {"feature": {"dtype": "string", "_type": "Value"}, "_type": "Sequence"},
    "ner_tags": {"feature": {"names": NAMES, "_type": "ClassLabel"}, "_type": "Sequence"},
}
ROWS = [
    {"id": "a", "tokens": ["BRCA1", "binds", "TP", "53"], "ner_tags": [1, 0, 1, 2]},
    {"id": "b", "tokens": ["No", "gene"], "ner_tags": [0, 0]},
]


def saved(folder: Path, rows: list[dict[str, Any]], features: dict[str, Any], *, split: str) -> None:
    """A split as Dataset.save_to_disk leaves it: an Arrow stream, its state, and what its columns are."""
    folder.mkdir(parents=True)
    table = pa.Table.from_pylist(rows)
    with (
        pa.OSFile(str(folder / "data-00000-of-00001.arrow"), "wb") as sink,
        pa.ipc.new_stream(sink, table.schema) as out,
    ):
        out.write_table(table)
    (folder / "cache-123.arrow").write_bytes(b"not to be read")
    state = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_split": split}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}))


def test_a_saved_dictionary_of_datasets(tmp_path: Path) -> None:
    for name in ("train", "validation", "test"):
        saved(tmp_path / name, ROWS, TAGGED, split=name)
    write(tmp_path, {"dataset_dict.json": json.dumps({"splits": ["train", "validation", "test"]})})
    found = datasets.folder(tmp_path, task="ner")
    assert found.settings == {"kind": "ner", "types": ["Gene"]}
    splits = found.splits()
    assert list(splits) == ["train", "dev", "test"]
    doc = splits["dev"][0]
    assert (doc.id, doc.text) == ("a", "BRCA1 binds TP 53")
    assert [(span.text, span.type) for span in doc.spans] == [("BRCA1", "Gene"), ("TP 53", "Gene")]
    assert doc.passages[0].tokens[1] == (6, 11)


def test_one_saved_dataset(tmp_path: Path) -> None:
    saved(tmp_path / "own", ROWS, TAGGED, split="validation")
    assert [doc.id for doc in datasets.folder(tmp_path / "own", task="ner").splits()["dev"]] == ["a", "b"]


def test_parquet_with_its_features_in_the_schema(tmp_path: Path) -> None:
    label = {"label": {"names": ["negative", "positive"], "_type": "ClassLabel"}, "text": {"_type": "Value"}}
    table = pa.Table.from_pylist([{"text": "It works.", "label": 1}, {"text": "It does not.", "label": 0}])
    info = json.dumps({"info": {"features": label}})
    (tmp_path / "data").mkdir()
    for name in ("train", "test"):
        path = tmp_path / "data" / f"{name}-00000-of-00001.parquet"
        pq.write_table(table.replace_schema_metadata({"huggingface": info}), path)
    found = datasets.folder(tmp_path, task="classes")
    assert found.settings == {"kind": "classes", "labels": ["negative", "positive"], "several": False}
    assert [(doc.id, doc.labels) for doc in found.splits()["test"]] == [
        ("test-1", ("positive",)),
        ("test-2", ("negative",)),
    ]


def test_json_lines_with_tags_as_text(tmp_path: Path) -> None:
    row = {"tokens": ["TP53", "acts"], "ner_tags": ["B-Gene", "O"]}
    write(tmp_path, {"train.jsonl": json.dumps(row), "dev.jsonl": json.dumps(row)})
    assert [span.text for span in datasets.folder(tmp_path, task="ner").splits()["dev"][0].spans] == ["TP53"]


def test_numbers_without_names_are_refused(tmp_path: Path) -> None:
    write(tmp_path, {"train.jsonl": json.dumps(ROWS[0])})
    with raises(BadDocument, code="unknown_label", mentions="dataset_info.json"):
        datasets.folder(tmp_path, task="ner")


def test_numbers_beyond_the_names_are_refused(tmp_path: Path) -> None:
    write(tmp_path, {"train.jsonl": json.dumps({**ROWS[0], "ner_tags": [0, 0, 0, 7]})})
    write(tmp_path, {"dataset_info.json": json.dumps({"features": TAGGED})})
    with raises(BadDocument, code="unknown_label", mentions="3"):
        datasets.folder(tmp_path, task="ner")


def test_fewer_tags_than_tokens_are_refused(tmp_path: Path) -> None:
    write(tmp_path, {"train.jsonl": json.dumps({"tokens": ["a", "b"], "ner_tags": ["O"]})})
    with raises(BadDocument, code="bad_field", mentions="ner_tags"):
        datasets.folder(tmp_path, task="ner")


def test_rows_without_a_label_are_counted(tmp_path: Path) -> None:
    features = {"label": {"names": ["no", "yes"], "_type": "ClassLabel"}}
    write(tmp_path, {"dataset_info.json": json.dumps({"features": features})})
    write(tmp_path, {"train.jsonl": '{"text": "a b", "label": 1}\n', "test.jsonl": '{"text": "c d", "label": -1}\n'})
    tally = Tally()
    assert datasets.folder(tmp_path, task="classes").splits(tally=tally)["test"][0].labels == ()
    assert tally.notes == {"row without a label": 1}


@pytest.mark.parametrize("pair", [("premise", "hypothesis"), ("sentence1", "sentence2"), ("text_1", "text_2")])
def test_pairs_of_sentences(tmp_path: Path, pair: tuple[str, str]) -> None:
    row = {pair[0]: "He coughs.", pair[1]: "He is ill.", "label": "entailment"}
    write(tmp_path, {"train.jsonl": json.dumps(row)})
    (doc,) = datasets.folder(tmp_path, task="inference").splits()["train"]
    assert [passage.text for passage in doc.passages] == ["He coughs.", "He is ill."]
    assert doc.labels == ("entailment",)


def test_a_score_is_a_label(tmp_path: Path) -> None:
    row = {"sentence1": "He coughs.", "sentence2": "He is ill.", "score": 3.4}
    write(tmp_path, {"train.jsonl": json.dumps(row)})
    assert datasets.folder(tmp_path, task="similarity").splits()["train"][0].labels == ("3.4",)


def test_several_labels(tmp_path: Path) -> None:
    write(tmp_path, {"train.jsonl": '{"text": "a b", "labels": ["x", "y"]}\n{"text": "c d", "labels": ["y"]}\n'})
    found = datasets.folder(tmp_path, task="classes")
    assert found.settings == {"kind": "classes", "labels": ["x", "y"], "several": True}


def test_questions_in_squad_s_columns(tmp_path: Path) -> None:
    row = {
        "id": "q1",
        "title": "Zorblin",
        "context": "Found in 1987.",
        "question": "When?",
        "answers": {"text": ["1987"], "answer_start": [9]},
    }
    none = {**row, "id": "q2", "answers": {"text": [], "answer_start": []}}
    write(tmp_path, {"train.jsonl": f"{json.dumps(row)}\n{json.dumps(none)}\n"})
    first, second = datasets.folder(tmp_path, task="questions").splits()["train"]
    assert first.questions[0].answers[0].start == 9
    assert (second.questions[0].impossible, first.questions[0].impossible) == (True, False)


@pytest.mark.parametrize("places", [{}, {"answer_start": []}])
def test_an_answer_without_a_place_is_an_answer(places: dict[str, Any]) -> None:
    row = {"context": "The BRCA1 gene", "question": "Which?", "answers": {"text": ["BRCA1"], **places}}
    (asked,) = document(row, {}, "q", Tally()).questions
    assert (asked.impossible, [answer.text for answer in asked.answers]) == (False, ["BRCA1"])


def test_as_many_places_as_answers() -> None:
    answers = {"text": ["BRCA1", "gene"], "answer_start": [4]}
    with raises(BadDocument, code="bad_field", mentions="2"):
        document({"context": "The BRCA1 gene", "question": "Which?", "answers": answers}, {}, "q", Tally())


def bigbio(text: str = "TP53") -> dict[str, Any]:
    return {
        "id": "1",
        "document_id": "900",
        "passages": [
            {"id": "2", "type": "title", "text": ["TP53 acts"], "offsets": [[0, 9]]},
            {"id": "3", "type": "abstract", "text": ["on BRCA1"], "offsets": [[10, 18]]},
        ],
        "entities": [
            {"id": "4", "type": "Gene", "text": [text], "offsets": [[0, 4]], "normalized": []},
            {"id": "5", "type": "Gene", "text": ["BRCA1"], "offsets": [[13, 18]], "normalized": []},
        ],
        "relations": [{"id": "6", "type": "acts_on", "arg1_id": "4", "arg2_id": "5", "normalized": []}],
    }


def test_bigbio_s_passages_and_entities(tmp_path: Path) -> None:
    write(tmp_path, {"train.jsonl": json.dumps(bigbio())})
    (doc,) = datasets.folder(tmp_path, task="ner").splits()["train"]
    assert [span.text for span in doc.spans] == ["TP53", "BRCA1"]
    assert [relation.type for relation in doc.relations] == ["acts_on"]


def test_bigbio_s_entities_must_stand_in_the_text(tmp_path: Path) -> None:
    write(tmp_path, {"train.jsonl": json.dumps(bigbio("p53"))})
    with raises(BadDocument, code="offset_mismatch", mentions="'p53'"):
        datasets.folder(tmp_path, task="ner")


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "train.parquet").write_bytes(b"PAR1 and no more")
    with raises(FormatError, code="invalid-table", value=str(tmp_path / "train.parquet")):
        datasets.folder(tmp_path, task="ner")


def test_ids_that_only_count_are_not_the_same_in_two_splits(tmp_path: Path) -> None:
    rows = "".join(json.dumps({"id": str(number), "text": f"row {number}", "label": "x"}) + "\n" for number in range(2))
    write(tmp_path, {"train.jsonl": rows, "test.jsonl": rows})
    found = datasets.folder(tmp_path, task="classes")
    assert [doc.id for doc in found.splits()["test"]] == ["test-1", "test-2"]
    assert found.check().overlaps == ()


def test_documents_without_mentions_have_no_types(tmp_path: Path) -> None:
    write(tmp_path, {"train.jsonl": json.dumps({"tokens": ["a"], "ner_tags": ["O"]})})
    with raises(DataSetError, code="missing-annotations", value="types"):
        datasets.folder(tmp_path, task="ner")


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ({"tokens": None, "ner_tags": None}, "bad_field"),
        ({"tokens": [None], "ner_tags": [{}]}, "unknown_label"),
        ({"passages": [{}], "entities": []}, "bad_field"),
        ({"passages": None, "entities": None}, "bad_field"),
        ({"context": 3, "question": None}, "not_text"),
        ({"context": "a", "question": "b", "answers": ["c"]}, "bad_field"),
        ({"text": {"no": "text"}, "label": 1}, "bad_field"),
        ({"sentence1": None, "sentence2": None}, "no_text"),
        ({}, "no_text"),
    ],
)
def test_columns_with_unexpected_values_are_refused_with_their_row(
    tmp_path: Path, row: dict[str, Any], code: str
) -> None:
    write(tmp_path, {"train.jsonl": json.dumps(row)})
    with raises(BadDocument, code=code, mentions="train.jsonl, row 1"):
        datasets.folder(tmp_path, task={"kind": "ner", "types": ["Gene"]}).splits()


def test_a_state_that_is_no_json_is_named(tmp_path: Path) -> None:
    write(tmp_path, {"train/state.json": "{", "train/data-00000-of-00001.arrow": ""})
    with raises(DataSetError, code="invalid-json", value=str(tmp_path / "train" / "state.json")):
        datasets.folder(tmp_path, task="ner")
