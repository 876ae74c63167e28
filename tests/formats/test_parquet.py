"""Parquet: every field as a real column, there and back; other people's tables; files that are broken."""

import io
import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from errors import raises
from full_document import full_document, full_documents
from hypothesis import given
from strategies import documents

import lexome
from lexome import Document, Passage, Span, Tally
from lexome.errors import BadDocument, FormatError, MissingExtraError
from lexome.formats import detect_by_content, parquet
from lexome.formats.streams import Source, open_stream

pa = pytest.importorskip("pyarrow", reason="Parquet needs the extra lexome[corpus]")
pq = pytest.importorskip("pyarrow.parquet")


def written(docs, tally=None) -> bytes:
    stream = io.BytesIO()
    parquet.write(docs, stream, tally=tally or Tally())
    return stream.getvalue()


def source_of(raw: bytes, name: str = "x.parquet") -> Source:
    return open_stream(io.BytesIO(raw), name, Tally())


def read_back(raw: bytes, tally=None) -> list[Document]:
    return list(parquet.read(source_of(raw), tally=tally or Tally()))


def table_bytes(table, **options) -> bytes:
    stream = io.BytesIO()
    pq.write_table(table, stream, **options)
    return stream.getvalue()


def test_every_field_of_every_document_comes_back() -> None:
    docs = full_documents()
    assert read_back(written(docs)) == docs


@given(doc=documents())
def test_documents_over_all_of_unicode_come_back(doc: Document) -> None:
    assert read_back(written([doc])) == [doc]


def test_columns_are_nested_and_not_json() -> None:
    table = pq.read_table(io.BytesIO(written([full_document()])))
    span = table.column("spans")[0].as_py()[1]
    assert span["parts"] == [{"start": 22, "end": 26}, {"start": 37, "end": 46}]
    assert table.column("meta")[0].as_py()["journal"]["volume"] == full_document().meta.journal.volume
    assert pa.types.is_struct(table.schema.field("meta").type.field("note").type)
    assert not table.schema.field("meta").nullable


def test_the_file_says_what_it_holds() -> None:
    metadata = pq.read_schema(io.BytesIO(written([]))).metadata
    assert metadata == {b"lexome.form": b"document", b"lexome.version": b"1"}


def test_no_documents_are_a_file_without_rows() -> None:
    assert read_back(written([])) == []


def test_the_same_documents_give_the_same_bytes() -> None:
    assert written(full_documents()) == written(full_documents())


def test_row_groups_are_bounded_by_rows_and_by_text(monkeypatch) -> None:
    monkeypatch.setattr(parquet, "GROUP_ROWS", 3)
    monkeypatch.setattr(parquet, "GROUP_CHARACTERS", 100)
    docs = [Document(str(n), (Passage(0, "x" * (200 if n == 4 else 1)),)) for n in range(8)]
    raw = written(docs)
    groups = pq.ParquetFile(io.BytesIO(raw)).metadata
    assert [groups.row_group(n).num_rows for n in range(groups.num_row_groups)] == [3, 2, 3]
    assert read_back(raw) == docs


def test_documents_are_drawn_one_row_group_at_a_time(monkeypatch) -> None:
    monkeypatch.setattr(parquet, "GROUP_ROWS", 2)
    tally = Tally()
    seen = []

    def docs():
        for n in range(6):
            seen.append(tally.written)
            yield Document(str(n))

    written(docs(), tally)
    assert seen == [0, 0, 2, 2, 4, 4]
    assert tally.written == 6


def test_a_file_is_read_in_place_and_its_bytes_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    lexome.write(path, full_documents())
    tally = Tally()
    assert list(lexome.read(path, tally=tally)) == full_documents()
    assert tally.bytes_read == path.stat().st_size


def test_standard_input_is_known_by_its_first_bytes() -> None:
    assert detect_by_content(source_of(written([full_document()]), "standard input")).name == "parquet"


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_a_compressed_file_is_spooled(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a.parquet{ending}"
    lexome.write(path, full_documents())
    assert list(lexome.read(path)) == full_documents()


def test_a_stream_that_cannot_tell_its_position_is_written() -> None:
    blocks: list[bytes] = []

    class Pipe(io.RawIOBase):
        def write(self, block) -> int:
            blocks.append(bytes(block))
            return len(block)

        def tell(self) -> int:
            raise OSError("Illegal seek")

    parquet.write(full_documents(), Pipe(), tally=Tally())
    assert read_back(b"".join(blocks)) == full_documents()


def test_a_document_that_arrow_cannot_hold_is_set_aside_and_the_others_are_kept(tmp_path: Path) -> None:
    half = Document("half \ud800")
    huge = replace(full_document(), meta=replace(full_document().meta, version=2**70))
    tally = Tally(tmp_path / "rejects.jsonl")
    with tally:
        raw = written([Document("a"), half, huge, Document("b")], tally)
    assert [doc.id for doc in read_back(raw)] == ["a", "b"]
    assert tally.rejected == {"not_unicode": 1, "not_storable": 1}
    assert tally.written == 2
    with raises(BadDocument, code="not_unicode", mentions="'half"):
        written([half])


def test_one_bad_row_is_set_aside_with_its_content(tmp_path: Path) -> None:
    good = Document("g", (Passage(0, "BRAF here"),), (Span("T1", "Gene", ((0, 4),), "BRAF"),))
    rows = pq.read_table(io.BytesIO(written([good] * 600))).to_pylist()
    rows[300]["spans"][0]["text"] = "BRCA"
    raw = table_bytes(pa.Table.from_pylist(rows, schema=pq.read_schema(io.BytesIO(written([])))))
    tally = Tally(tmp_path / "rejects.jsonl")
    with tally:
        assert read_back(raw, tally) == [good] * 599
    assert tally.rejected == {"offset_mismatch": 1}
    reject = json.loads((tmp_path / "rejects.jsonl").read_text())
    assert reject["where"] == "x.parquet, row 301"
    assert json.loads(reject["raw"])["spans"][0]["text"] == "BRCA"
    with raises(BadDocument, code="offset_mismatch", mentions="row 301"):
        read_back(raw)


def test_a_file_that_another_tool_rewrote_is_still_ours() -> None:
    """Types of the large kind, everything nullable, no metadata, one row picked."""
    table = pq.read_table(io.BytesIO(written(full_documents())))
    loose = pa.Table.from_pylist(table.to_pylist())
    loose = loose.set_column(0, "id", loose.column("id").cast(pa.large_string())).replace_schema_metadata(None)
    labels = loose.column("labels").cast(pa.large_list(pa.string()))
    loose = loose.set_column(loose.schema.get_field_index("labels"), "labels", labels)
    assert read_back(table_bytes(loose)) == full_documents()
    assert read_back(table_bytes(loose.slice(6, 1))) == full_documents()[6:7]


def test_a_column_that_an_older_version_did_not_write_has_its_default() -> None:
    table = pq.read_table(io.BytesIO(written([full_document()]))).drop_columns(["meta", "labels", "label_scores"])
    without = replace(full_document(), meta=Document("x").meta, labels=(), label_scores=())
    assert read_back(table_bytes(table)) == [without]


def test_a_column_that_is_not_known_is_noted() -> None:
    table = pq.read_table(io.BytesIO(written([Document("a"), Document("b")])))
    tally = Tally()
    assert len(read_back(table_bytes(table.append_column("vector", [[1, 2]])), tally)) == 2
    assert tally.notes == {"field 'vector' ignored": 2}


def test_a_null_where_a_value_must_be_is_one_bad_document(tmp_path: Path) -> None:
    rows = pq.read_table(io.BytesIO(written([Document("a", (Passage(0, "x"),))] * 3))).to_pylist()
    rows[0]["id"] = None
    rows[1]["passages"][0]["text"] = None
    raw = table_bytes(pa.Table.from_pylist(rows))
    tally = Tally(tmp_path / "rejects.jsonl")
    with tally:
        assert len(read_back(raw, tally)) == 1
    assert tally.rejected == {"missing_field": 2}


def test_a_column_of_the_wrong_type_is_named() -> None:
    table = pa.table({"id": ["a"], "passages": pa.array([[{"offset": "0", "text": "x"}]])})
    with raises(FormatError, code="bad-schema", mentions="passages[].offset"):
        read_back(table_bytes(table))


def test_a_missing_column_is_named() -> None:
    table = pa.table({"id": ["a"], "passages": pa.array([[{"offset": 0}]])})
    with raises(FormatError, code="bad-schema", mentions="passages[].text"):
        read_back(table_bytes(table))


def test_a_newer_form_is_refused() -> None:
    table = pq.read_table(io.BytesIO(written([])))
    newer = table.replace_schema_metadata({b"lexome.form": b"document", b"lexome.version": b"2"})
    with raises(FormatError, code="newer-version", value=b"2"):
        read_back(table_bytes(newer))


def test_a_table_of_texts_is_read_as_foreign_json_lines_are() -> None:
    table = pa.table(
        {
            "pmid": [11, 12],
            "title": ["On zorblin", None],
            "abstract": ["It binds. 🧬", "Naïve\x00 mice."],
            "label": ["a", "b"],
            "embedding": [[0.1], [0.2]],
        }
    )
    tally = Tally()
    first, second = read_back(table_bytes(table), tally)
    assert (first.id, first.text, first.labels, first.meta.pmid) == ("11", "On zorblin\nIt binds. 🧬", ("a",), "11")
    assert [passage.kind for passage in first.passages] == ["title", "abstract"]
    assert second.text == "Naïve\x00 mice."
    assert tally.notes == {"field 'embedding' ignored": 2}


def test_rows_without_an_id_are_numbered_and_rows_without_text_are_set_aside(tmp_path: Path) -> None:
    tally = Tally(tmp_path / "rejects.jsonl")
    with tally:
        docs = read_back(table_bytes(pa.table({"text": ["one", None, "three"]})), tally)
    assert [doc.id for doc in docs] == ["x-1", "x-3"]
    assert tally.rejected == {"no_text": 1}


def test_a_table_without_text_is_refused() -> None:
    with raises(FormatError, code="unknown-columns", mentions="a, b"):
        read_back(table_bytes(pa.table({"a": [1], "b": ["x"]})))


@pytest.mark.parametrize("raw", [b"", b"PAR1", b"not parquet at all", b"PAR1" + b"\x00" * 50 + b"PAR1"])
def test_what_is_no_parquet_is_refused(raw: bytes) -> None:
    with raises(FormatError, code="truncated", value="x.parquet"):
        read_back(raw)


def test_a_truncated_file_is_refused() -> None:
    raw = written(full_documents())
    for size in range(0, len(raw), 997):
        with raises(FormatError, code="truncated"):
            read_back(raw[:size])


def test_flipped_bytes_end_in_our_errors_and_nearly_all_are_seen() -> None:
    docs = full_documents()
    raw = written(docs)
    random_ = random.Random(7)
    caught = silent = 0
    for _ in range(150):
        place = random_.randrange(4, len(raw))
        broken = raw[:place] + bytes([raw[place] ^ (1 << random_.randrange(8))]) + raw[place + 1 :]
        try:
            silent += read_back(broken) != docs
        except (FormatError, BadDocument):
            caught += 1
    # The checksum covers a page's content; a flip in its header is Parquet's own blind spot.
    assert caught > 50
    assert silent < 10


def test_text_that_is_not_utf8_is_a_bad_document() -> None:
    column = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])
    with raises(BadDocument, code="bad_field"):
        read_back(table_bytes(pa.table({"text": column})))


def test_without_pyarrow_the_message_names_the_extra() -> None:
    script = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from lexome.formats import parquet\n"
        "from lexome import Tally\n"
        "from lexome.errors import MissingExtraError\n"
        "try: parquet.write([], None, tally=Tally())\n"
        "except MissingExtraError as error: print(error)\n"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "lexome[corpus]" in out
    assert issubclass(MissingExtraError, lexome.LexomeError)


def test_columns_of_a_table_are_recognized_in_any_case(tmp_path: Path) -> None:
    table = {"PMID": [12345.0, None], "Title": ["TNF", "IL-6"], "Notes": ["a", "b"]}
    pq.write_table(pa.table(table), tmp_path / "table.parquet")
    docs = list(lexome.read(tmp_path / "table.parquet", tally=(tally := Tally())))
    assert [(doc.id, doc.text) for doc in docs] == [("12345", "TNF"), ("table-2", "IL-6")]
    assert tally.notes == {"field 'Notes' ignored": 2}


def test_real_abstracts_come_back(real_data: Path, tmp_path: Path) -> None:
    path = next(iter(sorted((real_data / "corpus" / "abstracts").glob("*.jsonl.xz"))))
    docs = [doc for doc, _ in zip(lexome.read(path), range(3000), strict=False)]
    lexome.write(tmp_path / "a.parquet", docs)
    assert list(lexome.read(tmp_path / "a.parquet")) == docs
    assert len(docs) == 3000
