"""Lists and tables of names are read as one mention per row."""

from pathlib import Path

import pytest
from errors import raises

from lexome.errors import FormatError
from lexome.formats import Tally, read, write
from lexome.formats.name_table import DATE_NOTE

Row = tuple[str, str, str, tuple[str, ...]]


def rows(path: Path, text: str, tally: Tally | None = None, **options: str) -> list[Row]:
    path.write_text(text, encoding="utf-8")
    docs = read(path, "names", tally=tally or Tally(), **options)
    return [(doc.id, span.text, span.type, span.concepts) for doc in docs for span in doc.spans]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.txt", "BRCA1\n\n1,2-dimer\n", [("a-1", "BRCA1", "Gene", ()), ("a-3", "1,2-dimer", "Gene", ())]),
        ("a.csv", "Gene symbol,Clone\nBRCA1,x\n", [("a-2", "BRCA1", "Gene", ())]),
        ("a.csv", "No,Disease,Tissue\n1,melanoma,skin\n", [("a-2", "melanoma", "Disease", ())]),
        ("a.csv", "ID;Term;Type\nR1;HeLa;CellLine\n", [("R1", "HeLa", "CellLine", ())]),
        (
            "a.csv",
            "document,pmid,start,end,text,type,concept,name\n7,7,3,8,P53,Gene,NCBIGene:7157; mesh:D1,TP53\n",
            [("7", "P53", "Gene", ("NCBIGene:7157", "mesh:D1"))],
        ),
    ],
)
def test_each_row_is_a_mention(tmp_path: Path, name: str, text: str, expected: list[Row]) -> None:
    types = {row[2] for row in expected}
    assert rows(tmp_path / name, text, **({"type": "Gene"} if types == {"Gene"} else {})) == expected


@pytest.mark.parametrize(
    ("text", "code", "seen"),
    [
        ("BRCA1\nTP53\n", "missing-type", "--type"),
        ("name,clone\nBRCA1,x\n", "missing-type", "name, clone"),
        ("clone,what\nx,BRCA1\n", "missing-column", "'clone', 'what'"),
    ],
)
def test_an_error_says_what_the_table_has_and_lacks(tmp_path: Path, text: str, code: str, seen: str) -> None:
    with raises(FormatError, code=code, mentions=seen):
        rows(tmp_path / "a.csv", text)


def test_what_is_ignored_in_an_id_is_noted(tmp_path: Path) -> None:
    tally = Tally()
    text = "name,type,concept\nTP53,Gene,7157(Tax:9606)\n"
    assert rows(tmp_path / "a.csv", text, tally) == [("a-2", "TP53", "Gene", ("NCBIGene:7157",))]
    assert tally.notes == {"taxon of a gene id ignored": 1}


def test_genes_that_became_dates_are_noted(tmp_path: Path) -> None:
    tally = Tally()
    assert len(rows(tmp_path / "a.csv", "Gene\n1-Sep\nMar-02\n2026-09-01\nSEPT9\n", tally)) == 4
    assert tally.notes == {DATE_NOTE: 3}
    other = Tally()
    rows(tmp_path / "b.csv", "Cell line\n1-Sep\n", other)
    assert other.notes == {}


def test_rows_without_a_name_are_rejected_and_other_columns_counted(tmp_path: Path) -> None:
    tally = Tally(tmp_path / "rejects.jsonl")
    assert len(rows(tmp_path / "a.csv", "name,clone\nBRCA1,x\n ,y\n", tally, type="Gene")) == 1
    assert (tally.rejected, tally.notes) == ({"no_name": 1}, {})


def test_other_columns_are_attributes_and_columns_of_a_table_again(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Nr,Text,Type,Batch,start\n1,BRCA1,Gene,7,0\n2,TP53,Gene,,0\n", encoding="utf-8")
    tally = Tally()
    docs = list(read(tmp_path / "a.csv", "names", tally=tally))
    assert [[(one.target, one.name, one.value) for one in doc.attributes] for doc in docs] == [
        [("T1", "Nr", "1"), ("T1", "Batch", "7")],
        [("T1", "Nr", "2")],
    ]
    assert tally.notes == {"column 'start' ignored": 2}
    write(tmp_path / "b.tsv", docs, attributes=("Batch", "Nr"), tally=tally)
    header, *lines = (tmp_path / "b.tsv").read_text("utf-8").splitlines()
    assert header.split("\t")[-3:] == ["name", "Batch", "Nr"]
    assert [line.split("\t")[-2:] for line in lines] == [["7", "1"], ["", "2"]]
    assert not any("not written" in note for note in tally.notes)
    write(tmp_path / "b.tsv", docs, attributes="Nr", tally=tally)
    assert tally.notes["attribute 'Batch' not written"] == 1


def test_the_delimiter_that_the_first_line_declares_is_used(tmp_path: Path) -> None:
    path = tmp_path / "names.csv"
    assert [row[1] for row in rows(path, "sep=;\nname;type\nzorb, 1,2-blick;Chemical\n")] == ["zorb, 1,2-blick"]


def test_an_excel_file_has_a_table_on_each_sheet(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is not installed")
    workbook = openpyxl.Workbook()
    workbook.active.append(["Name", "Type"])
    workbook.active.append(["BRCA1", "Gene"])
    workbook.create_sheet("more").append(["TP53"])
    workbook.save(tmp_path / "a.xlsx")
    found = read(tmp_path / "a.xlsx", "names", type="Protein")
    assert [(span.text, span.type) for doc in found for span in doc.spans] == [("BRCA1", "Gene"), ("TP53", "Protein")]
