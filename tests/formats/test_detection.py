"""The table of formats, and how a file's format is told."""

import json
from pathlib import Path

import pytest
from errors import raises
from full_document import full_document
from memory_files import source_of

import lexome
from lexome import Document, Passage
from lexome.errors import FormatError, UsageError
from lexome.formats import FORMATS, Format, detect, detect_by_content
from lexome.formats.jsonl import to_json

HEADS = {
    "pubmed": ("a.xml", '<?xml version="1.0"?>\n<!DOCTYPE PubmedArticleSet SYSTEM "x">\n<PubmedArticleSet>'),
    "pmc": ("a.xml", '<?xml version="1.0"?>\n<!DOCTYPE article SYSTEM "x">\n<article xmlns:xlink="x">'),
    "bioc-xml": ("a.xml", "<?xml version='1.0'?><collection><source>x</source><document>"),
    "ddi": ("a.xml", '<?xml version="1.0"?><document id="d0"><sentence id="d0.s0" text="x">'),
    "bioc-json": ("a.json", '{"source":"x","documents":[{"id":"1","passages":[]}]}'),
    "squad": ("a.json", '{"data": [{"title": "t", "paragraphs": []}]}'),
    "bioasq": ("a.json", '{"questions": [{"body": "Which?"}]}'),
    "pubmedqa": ("a.json", '{"21645374": {"QUESTION": "Do?"}}'),
    "europepmc": ("a.json", '[{"pmid": ["1"], "authorString": ["A B"]}]'),
    "pubtator": ("a.txt", "123|t|Title\n123|a|Text\n"),
    "medline": ("a.txt", "\nPMID- 123\nOWN - NLM\nTI  - Title\n"),
    "conll": ("train.tsv", "BRCA1\tB\nbinds\tO\n\nx\tO\n"),
    "tsv": ("train.tsv", "index\tsentence\tlabel\n1\tA text of some words.\t0\n"),
    "mimic": ("a.csv", '"ROW_ID","SUBJECT_ID","TEXT"\n1,2,"x"\n'),
    "text": ("a.txt", "Just some text.\n"),
}


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.name)
def test_every_function_in_the_table_is_there(format: Format) -> None:
    assert not format.reads or callable(format.read_function())
    assert not format.writes or callable(format.write_function())


@pytest.mark.parametrize("name", HEADS)
def test_shared_endings_are_told_apart_by_their_beginning(name: str) -> None:
    assert detect(source_of(*HEADS[name])).name == name


@pytest.mark.parametrize("name", [name for name in HEADS if name not in ("tsv", "mimic")])
def test_standard_input_is_told_by_its_beginning_alone(name: str) -> None:
    assert detect_by_content(source_of("standard input", HEADS[name][1])).name == name


@pytest.mark.parametrize(
    "note",
    [
        "The patient has hepatitis B",
        "She was given L-dopa\nand then I-131\n",
        "HEPATITIS B\nVITAMIN E\n",
        "Blood group:\thepatitis O\n",
    ],
)
def test_a_note_whose_lines_end_as_tags_do_is_a_text(note: str) -> None:
    assert detect(source_of("a.txt", note)).name == "text"
    assert detect_by_content(source_of("standard input", note)).name == "text"


def test_lines_of_our_own_are_told_from_other_json_with_their_keys() -> None:
    line = to_json(full_document(), all_keys=True).decode()
    assert detect_by_content(source_of("standard input", line)).name == "jsonl"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('[{"pmid": 1, "title": "BRCA1 binds", "abstract": ""}]', "jsonl"),
        (f"[{to_json(full_document(), all_keys=True).decode()}]", "jsonl"),
        (json.dumps(full_document().to_dict()), "jsonl"),
        ('[\n {"id": "1", "infons": {}, "passages": [{"infons": {}, "offset": 0, "text": "BRCA1"}]}]', "bioc-json"),
        ('[{"pmid": "1", "title": "BRCA1", "authorString": "A B"}]', "europepmc"),
    ],
)
def test_records_are_told_from_other_json(text: str, name: str) -> None:
    assert detect(source_of("a.json", text)).name == name
    assert detect_by_content(source_of("standard input", text)).name == name


def test_columns_that_spaces_part_are_told_from_text() -> None:
    assert detect_by_content(source_of("standard input", "BRCA1 NN B-Gene\nbinds VB O\n")).name == "conll"


@pytest.mark.parametrize(("name", "encoding"), [("bioasq", "utf-8-sig"), ("squad", "utf-8-sig"), ("pubmed", "utf-16")])
def test_marks_and_wide_characters_do_not_hide_a_format(name: str, encoding: str) -> None:
    file, head = HEADS[name]
    assert detect(source_of(file, head.encode(encoding))).name == name


def test_an_xml_file_of_no_known_kind_is_an_error() -> None:
    with raises(FormatError, code="undetected-format", value="a.xml", mentions="<svg>"):
        detect(source_of("a.xml", "<svg></svg>"))


def test_a_table_without_a_column_of_text_is_told_how_to_name_one() -> None:
    with raises(FormatError, code="undetected-format", value="a.csv", mentions="--set text="):
        detect(source_of("a.csv", "score\n0.97\n"))
    with raises(FormatError, code="undetected-format", value="a.csv", mentions="1 PMIDs and no text"):
        detect(source_of("a.csv", "pmid\n29446767\n"))


def test_a_format_called_by_its_program_gets_a_suggestion() -> None:
    with raises(UsageError, code="unknown-format", value="Excel", mentions="Did you mean 'xlsx'"):
        lexome.read("a.xml", "Excel")


def test_a_misspelled_format_gets_a_suggestion() -> None:
    with raises(UsageError, code="unknown-format", value="pubmde", mentions="'pubmed'"):
        lexome.read("a.xml", "pubmde")


def test_a_misspelled_option_gets_a_suggestion(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    with raises(UsageError, code="unknown-option", value="encodng", mentions="'encoding'"):
        list(lexome.read(tmp_path / "a.txt", "text", encodng="latin-1"))


def test_an_option_of_the_wrong_kind_says_what_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    with raises(UsageError, code="invalid-option", value="page", mentions="'paragraph'"):
        list(lexome.read(tmp_path / "a.txt", "text", per="page"))


def test_a_format_that_is_only_read_cannot_be_written(tmp_path: Path) -> None:
    with raises(UsageError, code="read-only-format", value="pubmed"):
        lexome.write(tmp_path / "a.xml", [], "pubmed")


def test_the_first_ending_of_a_format_is_its_own(tmp_path: Path) -> None:
    lexome.write(tmp_path / "a.txt", [Document("1", (Passage(0, "Plain."),))])
    assert (tmp_path / "a.txt").read_text() == "Plain.\n"


def test_an_ending_that_several_formats_write_is_refused(tmp_path: Path) -> None:
    with raises(UsageError, code="ambiguous-extension", value=tmp_path / "a.json", mentions="bioc-json, squad"):
        lexome.write(tmp_path / "a.json", [])
