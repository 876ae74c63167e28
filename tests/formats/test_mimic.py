"""MIMIC notes: exact text over many lines, the facts of each note, and files that break."""

import csv
import gzip
import io
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from errors import raises
from hypothesis import given
from hypothesis import strategies as st
from mutations import damaged
from strategies import texts

import lexome
from lexome import Document, LexomeError, Metadata, Passage, Tally
from lexome.errors import BadDocument, FormatError
from lexome.formats import mimic, rows
from lexome.formats.streams import open_stream
from lexome.metadata import ClinicalNote

HEADER = (
    '"ROW_ID","SUBJECT_ID","HADM_ID","CHARTDATE","CHARTTIME","STORETIME",'
    '"CATEGORY","DESCRIPTION","CGID","ISERROR","TEXT"\n'
)
TEXT = 'Admission Date:  [**2151-7-16**]\n\nPt said ""I wobble"", left foot 5 cm.\n\tPlan: zorbs.\n'
NOTE = f'174,22532,167853,2151-08-04,,,"Discharge summary","Report",,,"{TEXT}"\n'
TIMED = (
    '175,13702,,2118-06-14,2118-06-14 08:30:00,2118-06-14 08:45:00,"Nursing","Progress Note",16888,1,"Wrong patient."\n'
)


def read_raw(raw: bytes, tally: Tally | None = None, **options: Any) -> list[Document]:
    tally = tally or Tally()
    return list(mimic.read(open_stream(io.BytesIO(raw), "NOTEEVENTS.csv", tally), tally=tally, **options))


def read_text(content: str, tally: Tally | None = None, **options: Any) -> list[Document]:
    return read_raw(content.encode(), tally, **options)


def test_a_note_is_a_document_with_its_facts() -> None:
    note = ClinicalNote("22532", "167853", "Discharge summary", "Report", chart_date="2151-08-04")
    assert read_text(HEADER + NOTE) == [
        Document("174", (Passage(0, TEXT.replace('""', '"'), "note"),), meta=Metadata(note=note))
    ]


def test_notes_in_error_are_left_out_and_counted() -> None:
    tally = Tally()
    assert [doc.id for doc in read_text(HEADER + TIMED + NOTE, tally)] == ["174"]
    assert tally.notes == {"note entered in error (ISERROR) skipped": 1}


def test_notes_in_error_can_be_kept() -> None:
    (doc,) = read_text(HEADER + TIMED, errors=True)
    assert doc.meta.note == ClinicalNote(
        "13702",
        None,
        "Nursing",
        "Progress Note",
        "16888",
        "2118-06-14",
        "2118-06-14 08:30:00",
        "2118-06-14 08:45:00",
        True,
    )


def test_mimic_iv_columns_are_read_too() -> None:
    head = "note_id,subject_id,hadm_id,note_type,note_seq,charttime,storetime,text\n"
    tally = Tally()
    (doc,) = read_text(
        head + '10-DS-21,10,22,DS,21,2180-05-07 00:00:00,2180-05-09 15:26:00,"Name: ___\nZorbs."\n', tally
    )
    assert (doc.id, doc.text) == ("10-DS-21", "Name: ___\nZorbs.")
    assert doc.meta.note == ClinicalNote(
        "10", "22", "DS", chart_time="2180-05-07 00:00:00", store_time="2180-05-09 15:26:00"
    )
    assert tally.notes == {"column 'NOTE_SEQ' ignored": 1}


def test_the_format_is_told_from_the_header_in_a_compressed_file(tmp_path: Path) -> None:
    path = tmp_path / "NOTEEVENTS.csv.gz"
    path.write_bytes(gzip.compress((HEADER + NOTE).encode()))
    tally = Tally()
    assert [doc.id for doc in lexome.read(path, tally=tally)] == ["174"]
    assert tally.files == {"mimic": 1}


def test_line_ends_inside_a_note_stay_as_they_are() -> None:
    (doc,) = read_text(HEADER.replace("\n", "\r\n") + '1,2,,,,,C,D,,,"a\r\nb\nc\rd\u0085e\x0c"\r\n')
    assert doc.text == "a\r\nb\nc\rd\u0085e\x0c"


@given(
    notes=st.lists(texts(min_size=1), min_size=1, max_size=4),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
)
def test_any_text_comes_back_exactly(notes: list[str], quoting: int) -> None:
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, quoting=quoting)  # type: ignore[arg-type]
    writer.writerow(HEADER.replace('"', "").strip().split(","))
    writer.writerows([number, *[""] * 9, note] for number, note in enumerate(notes))
    assert [doc.text for doc in read_text(stream.getvalue())] == notes


def test_an_empty_note_is_a_document_without_text() -> None:
    assert read_text(HEADER + "1,2,,,,,C,D,,,\n")[0].passages == ()


def test_an_unclosed_quote_names_the_line_where_its_row_began() -> None:
    with raises(FormatError, code="unclosed-quote", value=7, mentions="line 10"):
        read_text(HEADER + NOTE + '176,2,,,,,C,D,,,"no end\nin\nsight,\n,\n')


def test_notes_before_an_unclosed_quote_are_read() -> None:
    docs = mimic.read(open_stream(io.BytesIO((HEADER + NOTE + '2,"x').encode()), "x", Tally()), tally=Tally())
    assert next(docs).id == "174"


def test_a_note_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_CELL_BYTES", 1 << 18)
    csv.field_size_limit(1 << 18)
    with raises(FormatError, code="unclosed-quote", value=2):
        read_text(HEADER + '1,2,,,,,C,D,,,"' + "zorbs wobble\n" * 30_000 + '"\n')


def test_a_note_longer_than_csv_allows_by_itself_is_read() -> None:
    long = "zorbs wobble\n" * 30_000
    assert read_text(f'{HEADER}1,2,,,,,C,D,,,"{long}"\n')[0].text == long


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("1,2,3\n", "wrong_columns"),
        ('1,2,,,,,C,D,,,"a" b\n', "malformed_csv"),
        (",2,,,,,C,D,,,text\n", "no_id"),
    ],
)
def test_a_bad_row_is_refused_alone_with_its_bytes(row: str, reason: str, tmp_path: Path) -> None:
    with Tally(tmp_path / "rejects.jsonl") as tally:
        assert [doc.id for doc in read_text(HEADER + row + NOTE, tally)] == ["174"]
    assert tally.rejected == {reason: 1}
    assert '"where": "NOTEEVENTS.csv, line 2"' in (tmp_path / "rejects.jsonl").read_text()


def test_wrong_bytes_refuse_their_note() -> None:
    with raises(BadDocument, code="wrong_encoding", value=2, mentions="line 2"):
        read_raw(HEADER.encode() + b'1,2,,,,,C,D,,,"ab\xff"\n')


def test_notes_in_another_encoding_are_read_when_it_is_named() -> None:
    (doc,) = read_raw(HEADER.encode() + '1,2,,,,,C,D,,,"37 °C"\n'.encode("latin-1"), encoding="latin-1")
    assert doc.text == "37 °C"


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        ("", "empty-file"),
        ("a,b\n1,2\n", "unknown-columns"),
        ("ROW_ID,SUBJECT_ID\n1,2\n", "unknown-columns"),
        ("ROW_ID,TEXT,TEXT\n1,a,b\n", "unknown-columns"),
        ('"\n', "unclosed-quote"),
    ],
)
def test_a_file_without_notes_is_an_error(raw: str, code: str) -> None:
    with raises(FormatError, code=code, mentions="NOTEEVENTS.csv"):
        read_text(raw)


@given(raw=damaged((HEADER + NOTE + TIMED).encode()))
def test_damaged_files_raise_only_errors_of_ours(raw: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    for tally in (Tally(), Tally(tmp_path_factory.getbasetemp() / "mimic-rejects.jsonl")):
        with suppress(FormatError if tally.rejects_path else LexomeError), tally:
            read_raw(raw, tally)


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "NOTEEVENTS.csv"
    with path.open("w") as file:
        file.write(HEADER)
        file.writelines(NOTE.replace("Plan", "Plan: zorbs wobble.\n" * 100) for _ in range(3000))
    tracemalloc.start()
    count = sum(1 for _ in lexome.read(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 3000
    assert peak < path.stat().st_size / 2
