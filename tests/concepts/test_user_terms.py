"""A user's dictionaries: tables, OBO files and indexes, and their names as mentions of documents."""

import gzip
from datetime import datetime
from pathlib import Path

import pytest
from errors import raises

from lexome.concepts.index_writer import MAX_CONCEPTS
from lexome.concepts.linker import Linker
from lexome.concepts.user_terms import TERM, TermFinder, disagreements, dropped_terms, open_terms, split_type
from lexome.document import Attribute, Document, Passage, Span
from lexome.errors import FormatError

OBO = """format-version: 1.2

[Term]
id: MONDO:0007254
name: breast cancer
synonym: "mammary cancer" EXACT []
"""


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def terms_of(path: Path, **options: str) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(one.id, one.type, one.names) for one in open_terms(path, **options).concepts()]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "a.tsv",
            "LAB-1\tred dye\nNCBIGene:672\tBRCA1\n",
            [("NCBIGene:672", ("BRCA1",)), ("local:LAB-1", ("red dye",))],
        ),
        ("a.tsv.gz", "LAB-1\tred dye\n", [("local:LAB-1", ("red dye",))]),
        ("a.txt", "id\tname\tsynonyms\nLAB-1\tred dye\tR1|crimson\n", [("local:LAB-1", ("red dye", "R1", "crimson"))]),
        ("a.tsv", "Name\tID\nred dye\tLAB:1\n", [("LAB:1", ("red dye",))]),
        ("a.tsv", "LAB-1\tred dye\nLAB-1\tcrimson\n", [("local:LAB-1", ("red dye", "crimson"))]),
        ("a.csv", 'name,id\n"red dye, dark",LAB-1\n', [("local:LAB-1", ("red dye, dark",))]),
        ("a.csv", "Term;Identifier;Aliases\nred dye;LAB:1;R1|crimson\n", [("LAB:1", ("red dye", "R1", "crimson"))]),
        ("a.csv", "ID,Symbol,Name,Synonyms\nL:1,RD,red dye,R1; R2\n", [("L:1", ("red dye", "RD", "R1", "R2"))]),
        ("a.txt", 'term\tMeSH ID\n"red, dark"\tL:1\n', [("L:1", ("red, dark",))]),
        ("a.obo", OBO, [("MONDO:0007254", ("breast cancer", "mammary cancer"))]),
    ],
)
def test_a_dictionary_is_read_as_it_is_written(tmp_path: Path, name: str, text: str, expected: list[object]) -> None:
    path = written(tmp_path, name, text)
    assert [(id_, names) for id_, _, names in terms_of(path)] == expected
    assert {type for _, type, _ in terms_of(path)} == {TERM}
    assert {type for _, type, _ in terms_of(path, type="Dye")} == {"Dye"}


def test_a_table_may_have_types(tmp_path: Path) -> None:
    path = written(tmp_path, "a.tsv", "L:1\tred\tDye\nL:2\tmouse 1\tAnimal\n")
    assert terms_of(path, type="Other") == [("L:2", "Animal", ("mouse 1",)), ("L:1", "Dye", ("red",))]


@pytest.mark.parametrize("written_as", ["cell line", "Cell_Line", "cellline"])
def test_types_are_those_of_models_however_they_are_spelled(tmp_path: Path, written_as: str) -> None:
    path = written(tmp_path, "a.csv", f"name,id,Entity type\nHeLa,L:1,{written_as}\n")
    assert open_terms(path).types == open_terms(path, type="Other").types == ("CellLine",)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        (
            "term\tclone\nred dye\tC1\n",
            "its columns are term, clone, none of which is recognized as the column of the ids",
        ),
        ("id,clone\nL:1,C1\n", "its columns are id, clone, none of which is recognized as the column of the names"),
        ("clone\tantibody\nAB-1\tanti-CD3\n", "its columns are clone, antibody"),
        ("BRCA1\tNCBIGene:672\n", "its first column has names such as 'BRCA1'"),
    ],
)
def test_an_error_names_the_columns_seen_and_expected(tmp_path: Path, text: str, seen: str) -> None:
    with pytest.raises(FormatError) as error:
        open_terms(written(tmp_path, "a.csv" if "," in text else "a.tsv", text))
    assert seen in str(error.value)
    assert "id (or identifier, accession), name (or term, label, symbol)" in str(error.value)


def test_cells_may_be_empty_missing_or_quoted(tmp_path: Path) -> None:
    path = written(tmp_path, "a.tsv", 'L:1\tred\nL:2\tmouse 1\tAnimal\nL:3\t"2,4-dye ""x"""\t\n')
    assert terms_of(path, type="Dye") == [
        ("L:2", "Animal", ("mouse 1",)),
        ("L:1", "Dye", ("red",)),
        ("L:3", "Dye", ('2,4-dye "x"',)),
    ]
    path = written(tmp_path, "b.tsv", "id\tname\ttaxon\nL:1\tx1\t9606\nL:2\tx2\t\nL:3\tx3\nL:4\tx4\tmouse\n")
    index = open_terms(path)
    assert [one.taxon for one in index.concepts()] == ["NCBITaxon:9606", None, None, None]
    assert dropped_terms(index) == {"b.tsv: taxon is not a number of NCBI Taxonomy": 1}


def test_names_that_excel_has_spoiled_and_sheets_of_notes_are_left_out(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    workbook = openpyxl.Workbook()
    for row in (
        ["ID", "Name", "Synonyms"],
        [672, "BRCA1", "2-Sep|BRCC"],
        ["L:2", datetime(2026, 9, 2)],
        ["L:3", "#N/A"],
    ):
        workbook.active.append(row)
    notes = workbook.create_sheet("notes")
    for row in (["Version", "Curator"], ["1.2", "somebody"]):
        notes.append(row)
    workbook.save(tmp_path / "a.xlsx")
    index = open_terms(tmp_path / "a.xlsx")
    assert [(one.id, one.names) for one in index.concepts()] == [("local:672", ("BRCA1", "BRCC"))]
    dropped = dropped_terms(index)
    assert dropped["a.xlsx: name that Excel turned into a date or an error"] == 3
    assert dropped["a.xlsx: sheet or file without columns of ids and names"] == 1


def test_a_name_of_one_letter_is_dropped_also_if_it_is_written_with_several(tmp_path: Path) -> None:
    index = open_terms(written(tmp_path, "a.tsv", "L:1\tα\nL:2\tß\nL:3\te\u0301\nL:4\tα1\n"))
    assert [one.names for one in index.concepts()] == [("α1",)]
    assert dropped_terms(index)["a.tsv: name of one letter, or none"] == 3


@pytest.mark.parametrize(
    ("encoding", "line_end"),
    [("utf-8", "\n"), ("utf-8-sig", "\r\n"), ("utf-16", "\r\n"), ("windows-1252", "\r\n"), ("windows-1252", "\r")],
)
def test_a_table_may_have_the_encodings_and_line_ends_of_excel(tmp_path: Path, encoding: str, line_end: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(line_end.join(("id\tname\ttype", "L:1\tdyé\tDye", "L:2\tred\tDye", "")).encode(encoding))
    assert terms_of(path) == [("L:1", "Dye", ("dyé",)), ("L:2", "Dye", ("red",))]


def test_no_row_of_a_long_table_is_lost(tmp_path: Path) -> None:
    rows = "".join(f"L:{number}\tx{number}\n" for number in range(100))
    for header in ("", "id\tname\n"):
        assert len(open_terms(written(tmp_path, "a.tsv", header + rows))) == 100


def test_a_table_of_very_many_types_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "a.tsv", "".join(f"L:{number}\tx{number}\tan x, {number}\n" for number in range(1001)))
    with raises(FormatError, code="too-many-types", value=1001):
        open_terms(path)


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("a.tsv", "", "no-terms"),
        ("a.tsv", "PK\x03\x04", "not-text"),
        ("a.tsv", "L:1\tx\nL 2\tred\n", "no-terms"),
        ("a.obo", OBO[:-30], "truncated"),
        ("a.jsonl", '{"id": "L:1", "text": "red dye"}\n', "not-a-dictionary"),
        ("a.owl", '<?xml version="1.0"?>\n<rdf:RDF>\n', "not-a-dictionary"),
    ],
)
def test_a_file_that_is_no_dictionary_is_refused(tmp_path: Path, name: str, text: str, code: str) -> None:
    with pytest.raises(FormatError) as error:
        open_terms(written(tmp_path, name, text))
    assert error.value.code == code


@pytest.mark.parametrize(
    ("name", "text", "type"),
    [("a.txt", "red dye\nBRCA1\n", TERM), ("a.csv", "Name,Type\nred dye,Dye\nBRCA1,Dye\n", "Dye")],
)
def test_names_without_ids_have_themselves_as_ids(tmp_path: Path, name: str, text: str, type: str) -> None:
    path = written(tmp_path, name, text)
    assert terms_of(path) == [("local:BRCA1", type, ("BRCA1",)), ("local:red_dye", type, ("red dye",))]
    assert dropped_terms(open_terms(path)) == {f"{name}: term without an id, which gets its name as id": 2}


def test_a_column_called_as_a_type_has_its_names(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", "MeSH ID,Disease\nmesh:D1,red eye\nD 2,blue eye\n")
    assert terms_of(path) == [("mesh:D1", "Disease", ("red eye",))]
    assert dropped_terms(open_terms(path)) == {"a.csv: row whose id has a space": 1}


def test_cells_beyond_the_columns_are_counted(tmp_path: Path) -> None:
    index = open_terms(written(tmp_path, "a.csv", "id,name\nL:1,red, dark\n"))
    assert dropped_terms(index) == {"a.csv: row with more cells than columns, which were ignored": 1}


@pytest.mark.parametrize("type", ["Chemical", "Dye"])
def test_a_name_of_too_many_concepts_is_counted_and_never_found(tmp_path: Path, type: str) -> None:
    rows = "".join(f"L:{number}\tsame name\t{type}\n" for number in range(MAX_CONCEPTS + 1))
    doc = Document("d", (Passage(0, "same name, red dye"),))
    for others, expected in (("", []), ("L:999\tred dye\tOther\n", ["red dye"])):
        index = open_terms(written(tmp_path, "a.tsv", rows + others))
        assert dropped_terms(index) == {f"a.tsv: name of more than {MAX_CONCEPTS} concepts": MAX_CONCEPTS + 1}
        assert index.find("same name") == index.near("same names", type) == ()
        assert [span.text for span in TermFinder([index]).find(doc).spans] == expected


def test_a_missing_dictionary_is_named(tmp_path: Path) -> None:
    with pytest.raises(FormatError) as error:
        open_terms(tmp_path / "none.tsv")
    assert (error.value.code, error.value.value) == ("unreadable-file", tmp_path / "none.tsv")


def test_a_type_may_stand_before_the_path(tmp_path: Path) -> None:
    odd = written(tmp_path, "a=b.tsv", "L:1\tred\n")
    assert split_type(str(odd)) == (None, odd)
    assert split_type(f"Dye={odd}") == ("Dye", odd)
    assert split_type("terms.tsv") == (None, Path("terms.tsv"))


def test_names_become_mentions_where_none_of_their_type_is(tmp_path: Path) -> None:
    table = "L:1\tred dye\tDye\nL:2\tred\tColor\nL:3\tred dye\tDye\nL:4\tBRCA1\tGene\n"
    finder = TermFinder([open_terms(written(tmp_path, "a.tsv", table))])
    assert finder.types == ("Color", "Dye", "Gene")
    gene = Span("N1", "Gene", ((21, 26),), "BRCA1", ("NCBIGene:672",))
    doc = Document("d", (Passage(3, "Red dye, red"), Passage(21, "BRCA1, Brca1, red\ndye")), (gene,))
    found = finder.find(doc)
    assert [(span.id, span.type, span.start, span.text, span.concepts) for span in found.spans] == [
        ("N2", "Dye", 3, "Red dye", ("L:1", "L:3")),
        ("N3", "Color", 12, "red", ("L:2",)),
        ("N1", "Gene", 21, "BRCA1", ("NCBIGene:672",)),
        ("N4", "Dye", 35, "red\ndye", ("L:1", "L:3")),
    ]
    assert list(finder([found, doc])) == [found, found]
    assert [span.type for span in finder.find(doc, types=["Color"]).spans] == ["Color", "Gene"]
    assert finder.find(Document("empty")) == Document("empty")


def test_the_first_of_dictionaries_that_disagree_decides(tmp_path: Path) -> None:
    tables = (
        "L:2\tblue dye\tChemical\nL:7\tred dye\tChemical\n",
        "L:3\tBlue dye\tChemical\nL:7\tred dye\tReagent\nL:4\tblue dye\tColor\nL:5\tgreen dye\tChemical\n",
    )
    indexes = [open_terms(written(tmp_path, f"{number}.tsv", table)) for number, table in enumerate(tables)]
    doc = TermFinder(indexes).find(Document("d", (Passage(0, "blue dye, red dye, green dye"),)))
    found = [(span.text, span.type, span.concepts) for span in doc.spans]
    assert found == [
        ("blue dye", "Chemical", ("L:2",)),
        ("blue dye", "Color", ("L:4",)),
        ("red dye", "Chemical", ("L:7",)),
        ("green dye", "Chemical", ("L:5",)),
    ]
    linked = Linker(indexes).link(doc, relink=True)
    assert [(span.text, span.type, span.concepts) for span in linked.spans] == found
    assert disagreements(indexes) == {
        "1.tsv: name that has other ids in an earlier dictionary": 1,
        "1.tsv: id that has another type in an earlier dictionary": 1,
    }
    assert disagreements(indexes[1:]) == disagreements(indexes[:1] * 2) == {}


def test_predicted_mentions_give_way_to_names(tmp_path: Path) -> None:
    table = "id,name,type\nL:1,red dye,Dye\nL:2,cancer,Disease\nL:3,TP53,Marker\n"
    finder = TermFinder([open_terms(written(tmp_path, "a.csv", table))])
    text = "red dye, breast cancer, TP53, cancer"
    places = (
        ("red", "Dye", 0.9),
        ("breast cancer", "Disease", 0.9),
        ("TP53", "Gene", 0.9),
        ("cancer", "Disease", None),
    )
    spans = tuple(
        Span(f"T{number}", type, ((text.rindex(name), text.rindex(name) + len(name)),), name, (), score)
        for number, (name, type, score) in enumerate(places)
    )
    doc = Document("d", (Passage(0, text),), spans, attributes=(Attribute("A1", "T2", "rule", "lexicon"),))
    found = finder.find(doc, over=["Dye", "Disease", "Gene"])
    # Neither the longer mention nor that of a curator, which has no score.
    assert [(span.text, span.type, span.concepts) for span in found.spans] == [
        ("red dye", "Dye", ("L:1",)),
        ("breast cancer", "Disease", ()),
        ("TP53", "Marker", ("L:3",)),
        ("cancer", "Disease", ()),
    ]
    assert found.attributes == ()
    assert "Gene" in {span.type for span in finder.find(doc).spans}
