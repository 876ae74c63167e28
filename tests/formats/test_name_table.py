"""Lists and tables of names are read as one mention per row."""

from pathlib import Path

import pytest

from lexome.errors import FormatError
from lexome.formats import Tally, read

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
        ("BRCA1\nTP53\n", "missing-type", "--type TYPE"),
        ("name,clone\nBRCA1,x\n", "missing-type", "columns name, clone"),
        ("clone,what\nx,BRCA1\n", "missing-column", "'clone', 'what'"),
    ],
)
def test_an_error_says_what_the_table_has_and_lacks(tmp_path: Path, text: str, code: str, seen: str) -> None:
    with pytest.raises(FormatError, match=seen) as error:
        rows(tmp_path / "a.csv", text)
    assert error.value.code == code


def test_rows_without_a_name_are_rejected_and_other_columns_counted(tmp_path: Path) -> None:
    tally = Tally(tmp_path / "rejects.jsonl")
    assert len(rows(tmp_path / "a.csv", "name,clone\nBRCA1,x\n ,y\n", tally, type="Gene")) == 1
    assert (tally.rejected, tally.notes) == ({"no_name": 1}, {"column 'clone' ignored": 1})


def test_an_excel_file_has_a_table_on_each_sheet(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is not installed")
    workbook = openpyxl.Workbook()
    workbook.active.append(["Name", "Type"])
    workbook.active.append(["BRCA1", "Gene"])
    workbook.create_sheet("more").append(["TP53"])
    workbook.save(tmp_path / "a.xlsx")
    found = read(tmp_path / "a.xlsx", "names", type="Protein")
    assert [(span.text, span.type) for doc in found for span in doc.spans] == [("BRCA1", "Gene"), ("TP53", "Protein")]
