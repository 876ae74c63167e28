"""BioC JSON: every form in which documents come, and what others make of what we write."""

import io
import json
from pathlib import Path

import pytest
from errors import raises
from hypothesis import given
from hypothesis import strategies as st
from memory_files import source_of
from mutations import damaged, mistyped

from lexome import Document, Passage, Span, Tally
from lexome.errors import BadDocument, FormatError, LexomeError
from lexome.formats import bioc_json
from lexome.formats.bioc import record_of

DOCS = [
    Document(f"{number}", (Passage(0, "Zorin \x00 测试"),), (Span("T1", "Gene", ((0, 5),), "Zorin"),))
    for number in "12"
]
RECORDS = [record_of(doc) for doc in DOCS]
FORMS = {
    "collection": json.dumps({"source": "", "documents": RECORDS}),
    "pretty": json.dumps({"source": "", "documents": RECORDS}, indent=1),
    "list": json.dumps(RECORDS),
    "PubTator3": json.dumps({"PubTator3": RECORDS}),
    "lines": "\n".join(map(json.dumps, RECORDS)) + "\n\n",
    "collections": "\n".join(json.dumps({"documents": [record]}) for record in RECORDS),
    "rows": '{"documents": [\n' + ",\n".join(map(json.dumps, RECORDS)) + "\n]}",
    "rows of another hand": '{"documents": [\n'
    + json.dumps(RECORDS[0], indent=1)
    + ",\n"
    + json.dumps(RECORDS[1])
    + "]}",
}


def read(content: str | bytes, tally: Tally | None = None, **options: str) -> list[Document]:
    source = source_of("a.json", content)
    return list(bioc_json.read(source, tally=tally or Tally(), **options))  # type: ignore[arg-type]


def written(*docs: Document) -> bytes:
    stream = io.BytesIO()
    bioc_json.write(docs, stream, tally=Tally())
    return stream.getvalue()


@pytest.mark.parametrize("form", FORMS)
def test_documents_come_in_many_forms(form: str) -> None:
    assert read(FORMS[form]) == DOCS
    assert read("\ufeff" + FORMS[form]) == DOCS


def test_one_document_may_be_the_whole_file() -> None:
    assert read(json.dumps(RECORDS[0])) == DOCS[:1]
    assert read(json.dumps(RECORDS[0], indent=2)) == DOCS[:1]


@pytest.mark.parametrize("form", ["lines", "rows"])
def test_one_bad_line_costs_no_other(form: str, tmp_path: Path) -> None:
    for number in (0, 1):
        tally = Tally(tmp_path / f"{number}.jsonl")
        lines = FORMS[form].split("\n")
        at = number + (form == "rows")
        lines[at] = lines[at].replace('"passages"', "", 1)
        assert read("\n".join(lines), tally) == [DOCS[1 - number]]
        tally.close()
        assert tally.rejected == {"malformed_json": 1}


def test_a_bad_document_in_a_collection_is_named_by_its_place(tmp_path: Path) -> None:
    tally = Tally(tmp_path / "rejects.jsonl")
    assert read(json.dumps({"documents": [RECORDS[0], 5, {"id": "x", "passages": [5]}, RECORDS[1]]}), tally) == DOCS
    tally.close()
    rejects = [json.loads(line) for line in (tmp_path / "rejects.jsonl").read_text().splitlines()]
    assert [(reject["where"], reject["id"]) for reject in rejects] == [
        ("a.json, document 2", None),
        ("a.json, document 3", "x"),
    ]


@pytest.mark.parametrize("content", ["", "{", FORMS["pretty"][:-5], "[" * 100_000, "plain text\nof two lines\n"])
def test_a_file_that_is_not_whole_json_says_so(content: str) -> None:
    with raises(FormatError, code="malformed-json"):
        read(content)


def test_rows_that_break_off_say_so_after_what_came_before() -> None:
    source = source_of("a.json", written(*DOCS)[:-4])
    found = bioc_json.read(source, tally=Tally())
    assert [next(found), next(found)] == DOCS
    with raises(FormatError, code="truncated"):
        next(found)


def test_an_object_without_documents_is_refused() -> None:
    with raises(BadDocument, code="bad_field", value="id"):
        read('{"detail": "not found"}')


def test_what_a_collection_says_of_itself_is_noted() -> None:
    tally = Tally()
    read(json.dumps({"source": "PubTator", "date": "", "key": "k", "infons": {"a": "b"}, "documents": RECORDS}), tally)
    assert tally.notes == {f"{key!r} of the collection ignored": 1 for key in ("source", "key", "infons")}


def test_a_collection_is_written_with_a_document_a_line() -> None:
    lines = written(*DOCS).decode().split("\n")
    assert len(lines) == 5
    assert json.loads("".join(lines))["documents"] == RECORDS
    assert read(written(*DOCS)) == DOCS
    assert read(written()) == []


def test_a_surrogate_is_refused() -> None:
    with pytest.raises(BadDocument) as caught:
        written(Document("\ud800"))
    assert caught.value.reason == "not_unicode"


def test_the_bioc_package_reads_what_is_written() -> None:
    biocjson = pytest.importorskip("bioc.biocjson")
    found = biocjson.loads(written(*DOCS).decode()).documents
    assert [document.id for document in found] == ["1", "2"]
    assert found[0].passages[0].annotations[0].text == "Zorin"


@given(st.one_of(damaged(written(*DOCS)), damaged(FORMS["lines"].encode()), mistyped(RECORDS)))
def test_no_damage_raises_anything_but_our_errors(raw: bytes) -> None:
    for offsets in ("strict", "repair"):
        try:
            read(raw, offsets=offsets)
        except LexomeError:
            continue


def test_a_line_that_is_not_utf8_says_what_to_do() -> None:
    raw = json.dumps(RECORDS[0]).encode() + b'\n{"id": "\xff"}\n'
    source = source_of("a.json", raw)
    with raises(BadDocument, code="wrong_encoding", value=8, mentions="a.json, line 2"):
        list(bioc_json.read(source, tally=Tally()))
