"""What is saved is what is shown: every format, read back by Lexome itself."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from page_acts import FOUND, annotate, drop, saved, slide

from lexome import read
from lexome.document import Document
from lexome.formats.jsonl import from_json
from lexome.formats.mention_table import COLUMNS

# A table of tokens has no place for a score, nor for the text between tokens.
READABLE = ["bioc-xml", "bioc-json", "pubtator", "brat", "conll", "jsonl", "parquet", "spacy"]


def documents(path: Path, form: str) -> list[Document]:
    if form == "json":
        return [from_json(json.dumps(doc)) for doc in json.loads(path.read_text("utf-8"))["documents"]]
    if form == "brat":
        folder = path.with_suffix("")
        zipfile.ZipFile(path).extractall(folder)
        return list(read(folder, format=form))
    return list(read(path, format=form))


def mentions(docs: list[Document]) -> list[tuple[str, str]]:
    return [(span.type, span.text) for doc in docs for span in doc.spans]


def test_every_format_holds_the_mentions_that_are_shown(page: Any, tmp_path: Path) -> None:
    annotate(page)
    page.get_by_role("checkbox", name="Chemical").uncheck()
    slide(page, 0.8)
    offered = page.locator("#format option").all_inner_texts()
    forms = [form for form in ("json", *READABLE) if form in offered]
    found = {form: mentions(documents(saved(page, form, tmp_path), form)) for form in forms}
    expected = [("Gene", "BRCA1"), ("Gene", "TP53"), ("Disease", "breast cancer")]
    assert found == {form: expected for form in forms}


@pytest.mark.parametrize("form", ["html", "text"])
def test_formats_that_are_only_read_by_people_are_saved_too(page: Any, tmp_path: Path, form: str) -> None:
    annotate(page)
    assert "breast cancer" in saved(page, form, tmp_path).read_text("utf-8")


def test_offsets_and_scores_are_saved_as_they_are_shown(page: Any, tmp_path: Path, annotator: Any) -> None:
    text = "🐭 BRCA1 and 𝛼 TP53"
    annotate(page, text)
    [doc] = documents(saved(page, "jsonl", tmp_path), "jsonl")
    assert doc.spans == annotator(text).spans


def test_mentions_that_a_file_brought_are_saved_only_if_they_are_shown(page: Any, tmp_path: Path) -> None:
    drop(
        page, "mine.pubtator", "1|t|BRCA1 in mice\n1|a|\n1\t0\t5\tBRCA1\tGene\t672\n1\t9\t13\tmice\tSpecies\t10090\n\n"
    )
    page.get_by_role("checkbox", name="Gene").uncheck()
    path = saved(page, "bioc-xml", tmp_path)
    assert (path.name, mentions(documents(path, "bioc-xml"))) == ("mine.bioc.xml", [("Species", "mice")])


def test_mentions_are_copied_as_a_table(visit: Any) -> None:
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    annotate(page)
    page.click("#copy")
    page.locator("#copy", has_text="Copied").wait_for()
    lines = page.evaluate("navigator.clipboard.readText()").splitlines()
    assert lines[0].split("\t") == list(COLUMNS)
    assert [line.split("\t")[5] for line in lines[1:]] == FOUND
