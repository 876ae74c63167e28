"""Web pages, RIS references and PubMed's CSV export."""

from pathlib import Path

import pytest

import lexome
from lexome import Tally

PAGE = """<!DOCTYPE html><html><head><title>TGF-&beta;</title><style>p {}</style></head><body>
<h1>TGF-&beta;</h1><p>A <b>bold</b>
  word &lt; x&nbsp;y<p>Unclosed<ul><li>one<li>two</ul><script>var x = "no";</script>
<h2>Cells</h2><table><tr><td>a</td><td>b</td></tr></table></body></html>"""
BLOCKS = [
    ("title", "TGF-β"), ("paragraph", "A bold word < x\xa0y"), ("paragraph", "Unclosed"), ("list", "one"),
    ("list", "two"), ("heading", "Cells"), ("table", "a"), ("table", "b"),
]  # fmt: skip


@pytest.mark.parametrize("name", ["a.html", "a.txt"])
def test_a_page_has_its_text_without_tags(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(PAGE)
    (doc,) = lexome.read(tmp_path / name)
    assert [(passage.kind, passage.text) for passage in doc.passages] == BLOCKS


def test_entities_are_characters_only_in_html(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("TGF-&beta; &lt; 5")
    (doc,) = lexome.read(tmp_path / "a.txt")
    assert doc.text == "TGF-&beta; &lt; 5"


@pytest.mark.parametrize(
    "page",
    [
        "<p>é".encode("cp1252"),
        b'<meta charset="iso-8859-1"><p>\xe9',
        b'<meta charset="utf-16"><p>\xc3\xa9',
        b'<meta charset="punycode"><p>\xc3\xa9',
        "<p>é".encode("utf-16"),
    ],
)
def test_a_page_is_decoded_as_browsers_do(tmp_path: Path, page: bytes) -> None:
    (tmp_path / "a.html").write_bytes(page)
    assert [doc.text for doc in lexome.read(tmp_path / "a.html")] == ["é"]


def test_deep_pages_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<div>" * 20_000 + "deep")
    assert [doc.text for doc in lexome.read(tmp_path / "a.html")] == ["deep"]


def test_a_reference_has_title_abstract_and_metadata(tmp_path: Path) -> None:
    (tmp_path / "a.ris").write_text(
        "\ufeffTY  - JOUR\r\nTI  - A title\r\nAB  - An abstract\r\nof two lines\r\nAU  - Smith, Jane\r\n"
        "PY  - 2021/03//\r\nDB  - PubMed\r\nAN  - 123\r\nDO  - 10.1/x\r\nZZ  - what\r\nER  - \r\n\r\n"
        "TY  - JOUR\r\nT1  - Second\r\nER  - \r\n"
    )
    tally = Tally()
    first, second = lexome.read(tmp_path / "a.ris", tally=tally)
    assert [passage.text for passage in first.passages] == ["A title", "An abstract of two lines"]
    meta = first.meta
    assert (first.id, meta.pmid, meta.doi, meta.published, meta.authors[0].given) == (
        "123", "123", "10.1/x", "2021-03", "Jane",
    )  # fmt: skip
    assert (second.id, second.text) == ("a-13", "Second")
    assert dict(tally.notes) == {"tag ZZ ignored": 1}


@pytest.mark.parametrize("header", ["PMID,Title,Abstract", "PMID,Title,Authors,Citation,Abstract"])
def test_a_table_with_abstracts_is_not_pubmeds_own(tmp_path: Path, header: str) -> None:
    cells = {"PMID": "31", "Title": "Ulcers", "Abstract": "Aspirin causes them."}
    row = ",".join(cells.get(column, "x") for column in header.split(","))
    (tmp_path / "a.csv").write_text(f"{header}\n{row}\n")
    (doc,) = lexome.read(tmp_path / "a.csv")
    assert (doc.id, doc.text) == ("31", "Ulcers\nAspirin causes them.")


def test_pubmeds_own_table_has_titles(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        "PMID,Title,Authors,Citation,First Author,Journal/Book,Publication Year,Create Date,PMCID,NIHMS ID,DOI\n"
        '31,"Ulcers, and aspirin","Smith JA, van der Berg B.",x,Smith JA,Gut,2021,2021/03/01,PMC9,,10.1/x\n'
    )
    (doc,) = lexome.read(tmp_path / "a.csv")
    assert (doc.id, doc.text, doc.meta.pmcid, doc.meta.published) == ("31", "Ulcers, and aspirin", "PMC9", "2021")
    assert [(author.family, author.initials) for author in doc.meta.authors] == [("Smith", "JA"), ("van der Berg", "B")]
