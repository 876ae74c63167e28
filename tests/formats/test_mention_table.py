"""Tables of mentions: CSV, tab-separated values and Excel."""

import csv
import gzip
import io
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from strategies import documents

import lexome
from lexome import Attribute, Document, Passage, Span, Tally
from lexome.formats import get_format
from lexome.formats.mention_table import COLUMNS
from lexome.metadata import Metadata

TITLE, BODY = "=BRCA1 in cancer", "BRCA1 binds BARD1."
DOC = Document(
    "d1",
    (Passage(0, TITLE, "title"), Passage(17, BODY, "paragraph", section=("Methods", "Cells"))),
    (
        Span("T1", "Gene", ((0, 6),), "=BRCA1", ("NCBIGene:672",), 0.98765),
        Span("T2", "Gene", ((17, 22),), "BRCA1", ("NCBIGene:672",)),
        Span("T3", "Gene", ((29, 34),), "BARD1"),
    ),
    meta=Metadata(pmid="123"),
)
SECOND = Document("d2", (Passage(0, "bard1"),), (Span("T1", "Gene", ((0, 5),), "bard1"),))
NAMES = {"NCBIGene:672": "BRCA1 DNA repair associated"}


def rows(path: Path, delimiter: str = ",") -> list[list[str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file, delimiter=delimiter))


@pytest.mark.parametrize(("name", "delimiter"), [("m.csv", ","), ("m.tsv", "\t")])
def test_a_table_has_one_row_per_mention(tmp_path: Path, name: str, delimiter: str) -> None:
    lexome.write(tmp_path / name, [DOC], preferred_name=NAMES.get)
    head, *body = rows(tmp_path / name, delimiter)
    assert tuple(head) == COLUMNS
    name_ = "BRCA1 DNA repair associated"
    assert body == [
        ["d1", "123", "title", "0", "6", "'=BRCA1", "Gene", "0.9877", "NCBIGene:672", name_],
        ["d1", "123", "Methods > Cells", "17", "22", "BRCA1", "Gene", "", "NCBIGene:672", name_],
        ["d1", "123", "Methods > Cells", "29", "34", "BARD1", "Gene", "", "", ""],
    ]


@pytest.mark.parametrize("name", ["m.csv", "m.xlsx"])
def test_a_table_of_labels_has_one_row_per_label(tmp_path: Path, name: str) -> None:
    docs = [
        Document("d1", (Passage(0, "a"),), labels=("x", "y"), meta=Metadata(pmid="1"), label_scores=(0.98765, 0.5)),
        Document("d2", (Passage(0, "b"),), labels=("x",)),
        Document("d3", (Passage(0, "c"),)),
    ]
    tally = Tally()
    lexome.write(tmp_path / name, docs, table="labels", tally=tally)
    lexome.write(tmp_path / f"counts-{name}", docs, table="labels", counts=True)
    if name.endswith(".csv"):
        assert rows(tmp_path / name) == [
            ["document", "pmid", "label", "score"],
            ["d1", "1", "x", "0.9877"],
            ["d1", "1", "y", "0.5"],
            ["d2", "", "x", ""],
        ]
        assert rows(tmp_path / f"counts-{name}") == [["label", "documents"], ["x", "2"], ["y", "1"]]
        frame = lexome.to_dataframe(docs, table="labels")
        assert list(frame["score"].fillna(0)) == [0.9877, 0.5, 0]
    assert tally.notes["document without labels: no row"] == 1


def test_names_stand_in_the_order_of_the_concepts(tmp_path: Path) -> None:
    span = Span("T1", "Gene", ((0, 3),), "COX", ("NCBIGene:1", "NCBIGene:672", "NCBIGene:2"))
    lexome.write(tmp_path / "m.csv", [Document("d", (Passage(0, "COX"),), (span,))], preferred_name=NAMES.get)
    _, row = rows(tmp_path / "m.csv")
    assert row[-2:] == ["NCBIGene:1; NCBIGene:672; NCBIGene:2", "; BRCA1 DNA repair associated; "]


@pytest.mark.parametrize("counts", [False, True])
def test_an_excel_table_has_the_cells_of_csv(tmp_path: Path, counts: bool) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    for name, options in (("m.csv", {"escape": False}), ("m.xlsx", {})):
        lexome.write(tmp_path / name, [DOC, SECOND], counts=counts, preferred_name=NAMES.get, **options)
    sheet = openpyxl.load_workbook(tmp_path / "m.xlsx").active
    cells = [["" if cell is None else str(cell) for cell in row] for row in sheet.iter_rows(values_only=True)]
    assert cells == rows(tmp_path / "m.csv")


def test_an_excel_table_holds_formulas_as_text(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    lexome.write(tmp_path / "m.xlsx", [DOC])
    sheet = openpyxl.load_workbook(tmp_path / "m.xlsx").active
    cell = sheet["F2"]
    assert (cell.value, cell.data_type, sheet["D2"].value) == ("=BRCA1", "s", 0)


@pytest.mark.parametrize("text", ["\n=1+1", "＝1+1", "@SUM(1)"])
def test_text_that_begins_like_a_formula_is_escaped(tmp_path: Path, text: str) -> None:
    lexome.write(
        tmp_path / "m.csv", [Document("d", (Passage(0, text),), (Span("T1", "Gene", ((0, len(text)),), text),))]
    )
    assert rows(tmp_path / "m.csv")[1][5] == f"'{text}"


def test_the_same_table_has_the_same_bytes_in_excel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lexome.write(tmp_path / "a.xlsx", [DOC])
    # A zip file has times of two seconds: another day, without waiting for it.
    monkeypatch.setattr(time, "time", lambda: 0.0)
    monkeypatch.setattr(time, "localtime", lambda *_: time.gmtime(1e9))
    lexome.write(tmp_path / "b.xlsx", [DOC])
    assert (tmp_path / "a.xlsx").read_bytes() == (tmp_path / "b.xlsx").read_bytes()


def test_an_excel_table_holds_any_text(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    text = ' <a> & "b"\r\n\x1b ]]> \U0001f600 '
    long = "\U0001f600" * 20_000
    docs = [Document("d", (Passage(0, one),), (Span("T1", "X", ((0, len(one)),), one),)) for one in (text, long)]
    lexome.write(tmp_path / "m.xlsx", docs, tally=(tally := Tally()))
    sheet = openpyxl.load_workbook(tmp_path / "m.xlsx").active
    assert sheet["F2"].value == text.replace("\x1b", "\ufffd")
    assert sheet["F3"].value == "\U0001f600" * 16_383
    assert tally.notes["cell cut to 32,767 characters"] == 1


def test_an_excel_table_has_more_columns_than_letters(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    names = tuple(f"column {number}" for number in range(800))
    attributes = tuple(Attribute(f"A{number}", "T1", name, str(number)) for number, name in enumerate(names))
    lexome.write(tmp_path / "m.xlsx", [replace(DOC, attributes=attributes)], attributes=names)
    header, row, *_ = openpyxl.load_workbook(tmp_path / "m.xlsx").active.iter_rows(values_only=True)
    assert header[-800:] == names
    assert row[-800:] == tuple(map(str, range(800)))


def test_a_workbook_can_be_compressed(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    lexome.write(tmp_path / "m.xlsx.gz", [DOC])
    with gzip.open(tmp_path / "m.xlsx.gz") as stream:
        sheet = openpyxl.load_workbook(io.BytesIO(stream.read())).active
    assert sheet.max_row == 1 + len(DOC.spans)


@pytest.mark.parametrize("name", ["m.csv", "m.tsv", "m.xlsx"])
def test_counts_have_one_row_per_concept_or_name(tmp_path: Path, name: str) -> None:
    lexome.write(tmp_path / name, [DOC, SECOND], counts=True)
    if name.endswith(".xlsx"):
        openpyxl = pytest.importorskip("openpyxl")
        sheet = openpyxl.load_workbook(tmp_path / name).active
        table = [["" if cell is None else str(cell) for cell in row] for row in sheet.iter_rows(values_only=True)]
    else:
        table = rows(tmp_path / name, "," if name.endswith(".csv") else "\t")
    # Of two spellings as frequent, the first in order; a formula only where Excel is told that it is text.
    spelling = "=BRCA1" if name.endswith(".xlsx") else "'=BRCA1"
    assert table[1:] == [["BARD1", "Gene", "", "2", "2"], [spelling, "Gene", "NCBIGene:672", "1", "2"]]


def test_escaping_can_be_turned_off(tmp_path: Path) -> None:
    tally = Tally()
    lexome.write(tmp_path / "m.csv", [DOC], escape=False, bom=False, tally=tally)
    assert rows(tmp_path / "m.csv")[1][5] == "=BRCA1"
    assert (tmp_path / "m.csv").read_bytes().startswith(b"document,")
    assert not any("apostrophe" in note for note in tally.notes)


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_text_that_a_spreadsheet_would_run_is_escaped(tmp_path: Path, start: str) -> None:
    text = f"{start}cmd|' /C calc'!A0"
    doc = Document("d", (Passage(0, text),), (Span("T1", "Gene", ((0, len(text)),), text),))
    lexome.write(tmp_path / "m.csv", [doc])
    assert rows(tmp_path / "m.csv")[1][5] == f"'{text}"


@pytest.mark.parametrize(("format", "delimiter"), [("csv", ","), ("tsv", "\t")])
@given(documents())
def test_every_mention_is_a_row_with_its_offsets(format: str, delimiter: str, doc: Document) -> None:
    stream, tally = io.BytesIO(), Tally()
    get_format(format).write_function()([doc], stream, tally=tally, escape=False)
    table = list(csv.reader(io.StringIO(stream.getvalue().decode("utf-8-sig"), newline=""), delimiter=delimiter))
    assert [row[3:7] for row in table[1:]] == [
        [str(span.start), str(span.end), span.text, span.type] for span in doc.spans
    ]
