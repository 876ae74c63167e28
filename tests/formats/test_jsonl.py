"""JSON lines: Lexome's own documents there and back, the records of others, and lines that are broken."""

import io
import json
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from errors import raises
from full_document import full_document, full_documents
from hypothesis import given
from hypothesis import strategies as st
from mutations import damaged, mistyped
from strategies import documents

import lexome
from lexome import Answer, Document, LexomeError, Metadata, Passage, Question, Tally
from lexome.errors import BadDocument, FormatError
from lexome.formats import jsonl
from lexome.formats.streams import open_stream
from lexome.metadata import Journal


def read_raw(raw: bytes, tally: Tally | None = None, **options: Any) -> list[Document]:
    tally = tally or Tally()
    return list(jsonl.read(open_stream(io.BytesIO(raw), "made/train.jsonl", tally), tally=tally, **options))


def read_record(record: object, tally: Tally | None = None) -> Document:
    (doc,) = read_raw(json.dumps(record).encode(), tally)
    return doc


def written(docs: list[Document], tally: Tally | None = None) -> bytes:
    stream = io.BytesIO()
    jsonl.write(docs, stream, tally=tally or Tally())
    return stream.getvalue()


def test_an_array_of_records_is_read_like_lines(tmp_path: Path) -> None:
    records = [{"pmid": 1, "Title": "BRCA1"}, 2, {"id": "b", "text": "TP53"}, full_document().to_dict()]
    path = tmp_path / "list.json"
    path.write_text(json.dumps(records, indent=2), encoding="utf-8-sig")
    tally = Tally(tmp_path / "rejects.jsonl")
    docs = list(lexome.read(path, "jsonl", tally=tally))
    assert [doc.id for doc in docs] == ["1", "b", full_document().id]
    assert docs[2] == full_document()
    assert tally.rejected == {"bad_field": 1}
    assert "record 2" in (tmp_path / "rejects.jsonl").read_text()


def test_an_array_that_ends_early_is_read_up_to_there(tmp_path: Path) -> None:
    raw = b'[{"id": "1", "text": "BRCA1"},\n{"id": "2", "text": "caf\xe9"},\n{"id": "3", '
    tally = Tally(tmp_path / "rejects.jsonl")
    docs: list[Document] = []
    with raises(FormatError, code="malformed-json"):
        for doc in jsonl.read(open_stream(io.BytesIO(raw), "a.json", tally), tally=tally, encoding="cp1252"):
            docs.append(doc)
    assert [(doc.id, doc.text) for doc in docs] == [("1", "BRCA1"), ("2", "café")]


def test_every_field_of_every_document_comes_back() -> None:
    docs = full_documents()
    assert read_raw(written(docs)) == docs


@given(doc=documents())
def test_documents_over_all_of_unicode_come_back(doc: Document) -> None:
    raw = written([doc])
    assert raw.count(b"\n") == 1
    assert read_raw(raw) == [doc]


@pytest.mark.parametrize(
    "doc",
    [
        Document("a", meta=Metadata(journal=Journal("The Zorb"))),
        Document("a", questions=(Question("q", "Do zorbs wobble?", answers=(Answer("yes"),)),)),
        Document("a", labels=("text",)),
        Document('"text"', (Passage(0, '"abstract": "x"'),)),
    ],
)
def test_words_of_foreign_records_inside_a_document_change_nothing(doc: Document) -> None:
    assert read_raw(written([doc])) == [doc]


def test_own_lines_that_another_program_wrote_again_are_read() -> None:
    doc = full_document()
    again = json.dumps(json.loads(jsonl.to_json(doc)), sort_keys=True).encode()
    assert read_raw(again) == [doc]


def test_scibert_records_have_text_and_label() -> None:
    tally = Tally()
    doc = read_record({"text": "<< Zorb >> binds [[ wob ]].", "label": "INHIBITOR", "metadata": []}, tally)
    assert doc == Document("train-1", (Passage(0, "<< Zorb >> binds [[ wob ]]."),), labels=("INHIBITOR",))
    assert tally.notes == {}


def test_mednli_records_have_two_sentences() -> None:
    tally = Tally()
    doc = read_record(
        {
            "sentence1": "He wobbles.",
            "pairID": "23eb",
            "sentence1_parse": "(ROOT (S))",
            "sentence2": "He moves.",
            "gold_label": "entailment",
        },
        tally,
    )
    assert doc == Document(
        "23eb",
        (Passage(0, "He wobbles.", "sentence"), Passage(12, "He moves.", "sentence")),
        labels=("entailment",),
    )
    assert tally.notes == {"field 'sentence1_parse' ignored": 1}


def test_corpus_records_keep_their_source_license_and_year() -> None:
    doc = read_record(
        {"id": "z:1", "title": "Zorbs", "text": "They wobble.", "source": "zorbia", "lic": "cc-by", "year": 2011}
    )
    assert doc == Document(
        "z:1",
        (Passage(0, "Zorbs", "title", source="zorbia"), Passage(6, "They wobble.", source="zorbia")),
        meta=Metadata(published="2011", license="cc-by"),
    )


def test_a_year_that_is_none_is_counted() -> None:
    tally = Tally()
    assert read_record({"text": "Zorbs.", "year": "n.d."}, tally).meta.published is None
    assert tally.notes == {"field 'year' ignored: not a year": 1}


def test_ids_that_are_numbers_are_taken() -> None:
    doc = read_record({"pmid": 77, "abstract": "Zorbs.", "doi": None})
    assert (doc.id, doc.meta.pmid, doc.passages[0].kind) == ("77", "77", "abstract")


def test_numbers_as_pandas_writes_them_are_whole_or_missing() -> None:
    """In a column with a missing value, all numbers are floats, and the missing one is NaN."""
    nan = float("nan")
    doc = read_record({"pmid": 12345.0, "title": "TNF", "abstract": nan, "year": 2020.0})
    assert (doc.id, doc.meta.pmid, doc.meta.published, len(doc.passages)) == ("12345", "12345", "2020", 1)
    assert read_record({"pmid": nan, "title": "TNF"}).id == "train-1"
    assert read_record({"pmid": "12345.0", "title": "TNF"}).id == "12345"


def test_fields_are_recognized_in_any_case() -> None:
    tally = Tally()
    doc = read_record({"PMID": "1", "Title": "TNF", "TITLE": "IL-6", "Abstract": "BRCA1"}, tally)
    assert (doc.id, [passage.text for passage in doc.passages]) == ("1", ["TNF", "BRCA1"])
    assert tally.notes == {"field 'TITLE' ignored": 1}
    assert read_record({"text": "TNF", "Text": "IL-6"}).text == "TNF"


def test_a_list_of_texts_is_so_many_passages() -> None:
    assert [passage.text for passage in read_record({"id": "1", "text": ["One.", "", "Two."]}).passages] == [
        "One.",
        "Two.",
    ]


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (["a", "b"], ("a", "b")),
        (0, ("0",)),
        (3.5, ("3.5",)),
        (False, ("false",)),
        ("", ()),
        (None, ()),
        ([], ()),
    ],
)
def test_labels_of_every_type(given: object, read: tuple[str, ...]) -> None:
    assert read_record({"text": "Zorbs.", "label": given}).labels == read


def test_class_numbers_in_place_of_names_are_noted() -> None:
    tally = Tally()
    assert read_record({"text": "Zorbs.", "label": 1}, tally).labels == ("1",)
    assert tally.notes == {"label that is a number: its digits are the label": 1}


def test_a_second_field_of_labels_is_counted() -> None:
    tally = Tally()
    assert read_record({"text": "Zorbs.", "gold_label": "b", "label": "a"}, tally).labels == ("a",)
    assert tally.notes == {"field 'gold_label' ignored": 1}


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"{", "malformed_json"),
        (b'{"text": "a"} {"text": "b"}', "malformed_json"),
        (b'{"text":' + b"[" * 100_000, "malformed_json"),
        (b'{"id":"a","passages":[{"offset":0,"te', "malformed_json"),
        (b"[1]", "bad_field"),
        (b'"text"', "bad_field"),
        (b"null", "bad_field"),
        (b'{"text": {"a": 1}}', "bad_field"),
        (b'{"text": "a", "label": {"a": 1}}', "bad_field"),
        (b'{"text": true}', "bad_field"),
        (b'{"text": 5}', "bad_field"),
        (b'{"text": ["a", 0.5]}', "bad_field"),
        (b'{"text": "\\ud800"}', "not_unicode"),
        (b'{"text": "a", "id": "\\ud800"}', "not_unicode"),
        (b'{"text": "\xff"}', "wrong_encoding"),
        (b'{"label": "a"}', "no_text"),
        (b'{"text": ""}', "no_text"),
        (b'{"id": 5}', "bad_field"),
        (b'{"id": "a", "passages": [{"offset": "0", "text": "b"}]}', "bad_field"),
        (b'{"id": "a", "passages": [{"offset": true, "text": "b"}]}', "bad_field"),
        (b'{"id":"a","passages":[{"offset":0,"text":"b","infons":{}}]}', "bad_field"),
        (b'{"id":"a","passages":[{"offset":-1,"text":"b"}]}', "bad_offset"),
        (b'{"id":"a","passages":' + b"[" * 100_000, "malformed_json"),
    ],
)
def test_a_bad_line_is_refused_alone(raw: bytes, reason: str, tmp_path: Path) -> None:
    with Tally(tmp_path / "rejects.jsonl") as tally:
        docs = read_raw(raw + b'\n\n{"text": "Zorbs."}\n', tally)
    assert [doc.text for doc in docs] == ["Zorbs."]
    assert tally.rejected == {reason: 1}


def test_a_document_that_has_no_json_is_set_aside(tmp_path: Path) -> None:
    with Tally(tmp_path / "rejects.jsonl") as tally:
        raw = written([Document("\ud800"), Document("good")], tally)
    assert [json.loads(line)["id"] for line in raw.splitlines()] == ["good"]
    assert (tally.written, tally.rejected) == (1, {"not_unicode": 1})


def test_a_message_names_the_line_and_the_field() -> None:
    with raises(BadDocument, code="bad_field", value="passages.0.text", mentions="made/train.jsonl, line 2"):
        read_raw(b'{"id":"a"}\n{"id":"b","passages":[{"offset":0}]}\n')


SAMPLE = {
    "id": "a",
    "title": "Zorbs",
    "text": "They wobble.",
    "label": ["x"],
    "source": "z",
    "year": 2011,
    "lic": "cc0",
}


@given(
    raw=st.one_of(
        damaged(jsonl.to_json(full_document())), mistyped(SAMPLE), mistyped(json.loads(jsonl.to_json(full_document())))
    )
)
def test_damaged_lines_raise_only_errors_of_ours(raw: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    for tally in (Tally(), Tally(tmp_path_factory.getbasetemp() / "jsonl-rejects.jsonl")):
        with suppress(FormatError if tally.rejects_path else LexomeError), tally:
            read_raw(raw, tally)


@pytest.mark.parametrize(("name", "count", "kinds"), [("train", 4169, 13), ("dev", 2427, 12), ("test", 3469, 12)])
def test_chemprot_as_scibert_has_it_is_read(real_data: Path, name: str, count: int, kinds: int) -> None:
    docs = list(lexome.read(real_data / f"benchmarks/ChemProt-scibert/{name}.jsonl.xz"))
    assert len({doc.id for doc in docs}) == len(docs) == count
    assert len(Counter(doc.labels for doc in docs)) == kinds


@pytest.mark.parametrize(("name", "count"), [("medquad", 5282), ("openstax", 854)])
def test_the_corpus_is_read_with_nothing_left_out(real_data: Path, name: str, count: int) -> None:
    tally = Tally()
    docs = list(lexome.read(real_data / f"corpus/{name}/{name}-00.jsonl.xz", tally=tally))
    assert len({doc.id for doc in docs}) == len(docs) == count
    assert all(doc.meta.license and doc.passages[-1].source == name for doc in docs)
    assert tally.notes == {}
