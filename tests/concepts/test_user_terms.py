"""A user's dictionaries: tables, OBO files and indexes, and their names as mentions of documents."""

import gzip
from pathlib import Path

import pytest

from lexome.concepts.user_terms import TERM, TermFinder, open_terms, split_type
from lexome.document import Document, Passage, Span
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


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("a.tsv", "", "missing-column"),
        ("a.tsv", "only names\nhere\n", "missing-column"),
        ("a.tsv", "L:1\tx\nL 2\tred\n", "no-terms"),
        ("a.obo", OBO[:-30], "truncated"),
    ],
)
def test_a_file_that_is_no_dictionary_is_refused(tmp_path: Path, name: str, text: str, code: str) -> None:
    with pytest.raises(FormatError) as error:
        open_terms(written(tmp_path, name, text))
    assert error.value.code == code


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
