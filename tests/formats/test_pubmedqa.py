"""PubMedQA: abstracts with a question and both answers, and files of decisions alone."""

import io
import json
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from errors import raises
from hypothesis import given
from hypothesis import strategies as st
from mutations import damaged, mistyped

import lexome
from lexome import Answer, Document, LexomeError, Metadata, Passage, Question, Tally
from lexome.errors import BadDocument, FormatError
from lexome.formats import json_file, pubmedqa
from lexome.formats.streams import open_stream
from lexome.metadata import MeshHeading

RECORD = {
    "QUESTION": "Do zorbs wobble?",
    "CONTEXTS": ["Zorbs are naïve.", "Nine of ten zorbs wobbled."],
    "LABELS": ["BACKGROUND", "RESULTS"],
    "MESHES": ["Zorbs", "Motion"],
    "YEAR": "2011",
    "reasoning_required_pred": "yes",
    "final_decision": "maybe",
    "LONG_ANSWER": "Most zorbs wobble.",
}


def read_raw(raw: bytes, tally: Tally | None = None) -> list[Document]:
    tally = tally or Tally()
    return list(pubmedqa.read(open_stream(io.BytesIO(raw), "pqal.json", tally), tally=tally))


def read_one(tally: Tally | None = None, **changed: Any) -> Document:
    (doc,) = read_raw(json.dumps({"99": {**RECORD, **changed}}).encode(), tally)
    return doc


def test_a_pmid_is_a_document_with_its_question() -> None:
    tally = Tally()
    assert read_one(tally) == Document(
        "99",
        (
            Passage(0, "Zorbs are naïve.", "abstract", ("BACKGROUND",)),
            Passage(17, "Nine of ten zorbs wobbled.", "abstract", ("RESULTS",)),
        ),
        questions=(Question("99", "Do zorbs wobble?", "yesno", (Answer("maybe"),), ideal=("Most zorbs wobble.",)),),
        meta=Metadata(pmid="99", published="2011", mesh=(MeshHeading("Zorbs"), MeshHeading("Motion"))),
    )
    assert tally.notes == {"field 'reasoning_required_pred' ignored": 1}


def test_unlabeled_sets_have_no_decision_and_some_have_no_year() -> None:
    doc = read_one(final_decision=None, YEAR=None)
    assert (doc.questions[0].answers, doc.meta.published) == ((), None)


def test_a_file_of_decisions_gives_documents_without_text() -> None:
    assert read_raw(b'{"99": "yes"}') == [
        Document("99", questions=(Question("99", "", "yesno", (Answer("yes"),)),), meta=Metadata(pmid="99"))
    ]


def test_a_pmid_that_stands_twice_gives_two_documents() -> None:
    assert len(read_raw(b'{"99": "yes", "99": "no"}')) == 2


def test_labels_that_do_not_fit_the_contexts_refuse_the_document() -> None:
    with raises(BadDocument, code="bad_field", value="LABELS", mentions="pqal.json, '99'"):
        read_one(LABELS=["RESULTS"])


def test_a_bad_record_leaves_the_others(tmp_path: Path) -> None:
    raw = json.dumps({"1": 5, "2": {}, "3": RECORD, "4": {**RECORD, "QUESTION": ["x"]}}).encode()
    with Tally(tmp_path / "rejects.jsonl") as tally:
        assert [doc.id for doc in read_raw(raw, tally)] == ["3"]
    assert tally.rejected == {"bad_field": 3}


@pytest.mark.parametrize(
    ("raw", "mentions"),
    [
        (b"", "''"),
        (b"[]", "'[]'"),
        (b'{"1": "yes"', ", or }"),
        (b'{"1": "yes" "2": "no"}', """'"2": "no"}'"""),
        (b'{"1": "yes", }', "' }'"),
        (b'{"1": {"QUESTION": "Why', "Why"),
        (b'{"1": "yes"} {"2": "no"}', """'{"2": "no"}'"""),
        (b'{"1": "\xff"}', "0xff"),
        (b'{"1": "\xc3', "0xc3"),
    ],
)
def test_an_incomplete_file_is_an_error(raw: bytes, mentions: str) -> None:
    with raises(FormatError, code="malformed-json", mentions=mentions):
        read_raw(raw)


def test_an_empty_object_has_no_documents() -> None:
    assert read_raw(b" { }\n") == []


def test_what_came_before_a_break_is_read() -> None:
    docs = pubmedqa.read(open_stream(io.BytesIO(b'{"1": "yes", "2": "n'), "x", Tally()), tally=Tally())
    assert next(docs).id == "1"
    with pytest.raises(FormatError):
        next(docs)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_entries_are_found_wherever_the_blocks_end(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_file, "BLOCK_BYTES", size)
    value = {'a🧬\\"': [1, -2.5e3, "é"], "number": 1234567, "empty": {}, "": None, "last": 12}
    raw = b"\xef\xbb\xbf" + json.dumps(value, ensure_ascii=False, indent=1).encode() + b" \n"
    assert dict(json_file.members(open_stream(io.BytesIO(raw), "x", Tally()))) == value


def test_an_entry_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_file, "BLOCK_BYTES", 10)
    monkeypatch.setattr(json_file, "MAX_RECORD_BYTES", 100)
    with raises(FormatError, code="malformed-json", value="pqal.json"):
        read_raw(b'{"1": "' + b"x" * 1000)


@given(raw=st.one_of(damaged(json.dumps({"99": RECORD, "1": "no"}).encode()), mistyped({"99": RECORD})))
def test_damaged_files_raise_only_errors_of_ours(raw: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    for tally in (Tally(), Tally(tmp_path_factory.getbasetemp() / "pubmedqa-rejects.jsonl")):
        with suppress(FormatError if tally.rejects_path else LexomeError), tally:
            read_raw(raw, tally)


def test_the_expert_set_is_read(real_data: Path) -> None:
    docs = list(lexome.read(real_data / "benchmarks/PubMedQA/ori_pqal.json.xz"))
    assert Counter(doc.questions[0].answers[0].text for doc in docs) == {"yes": 552, "no": 338, "maybe": 110}
    assert all(doc.passages and doc.questions[0].ideal for doc in docs)


def test_the_ground_truth_agrees_with_the_expert_set(real_data: Path) -> None:
    folder = real_data / "benchmarks/PubMedQA"
    truth = {doc.id: doc.questions[0].answers for doc in lexome.read(folder / "test_ground_truth.json")}
    decided = {doc.id: doc.questions[0].answers for doc in lexome.read(folder / "ori_pqal.json.xz")}
    assert len(truth) == 500
    assert {id: decided[id] for id in truth} == truth
