"""Encodings of text files: told by their bytes, and binary named for what it is."""

from pathlib import Path

import pytest
from errors import raises

import lexome
from lexome import Tally
from lexome.errors import BadDocument, FormatError

TEXT = "“Naïve” T cells, 5 µm"


@pytest.mark.parametrize(
    ("encoding", "note"),
    [
        ("utf-8", None),
        ("utf-8-sig", None),
        ("cp1252", "file that is not UTF-8 read as Windows-1252"),
        ("utf-16", "file in UTF-16 read as such"),
        ("utf-16-le", "file in UTF-16 read as such"),
        ("utf-16-be", "file in UTF-16 read as such"),
    ],
)
@pytest.mark.parametrize("before", [0, 70_000, (1 << 20) - 1])
def test_text_is_read_in_the_encoding_that_its_bytes_show(
    tmp_path: Path, encoding: str, note: str | None, before: int
) -> None:
    text = "x" * before + TEXT
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    tally = Tally()
    (doc,) = lexome.read(tmp_path / "a.txt", tally=tally)
    assert doc.text == text
    assert list(tally.notes) == ([note] if note else [])


def test_damaged_utf8_is_not_taken_for_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("naïve ".encode() + b"\xff")
    with raises(BadDocument, code="wrong_encoding"):
        list(lexome.read(tmp_path / "a.txt"))


def test_an_encoding_that_is_named_is_taken(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("naïve".encode("latin-1"))
    with raises(BadDocument, code="wrong_encoding"):
        list(lexome.read(tmp_path / "a.txt", encoding="utf-8"))


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"%PDF-1.7\n", "a PDF"),
        (b"PK\x03\x04rest", "a zip archive or an Office document (.docx, .xlsx)"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1rest", "an old Office document (.doc, .xls or .ppt)"),
        (b"\x89PNG\r\n\x1a\nrest", "a PNG image"),
        (b"{\\rtf1 text}", "an RTF document"),
        (bytes(range(256)) * 4, "binary"),
    ],
)
@pytest.mark.parametrize("name", ["a.txt", "a.xml", "a.json", "a.tsv", "a.nbib", "a.jsonl"])
def test_what_is_not_text_is_named(tmp_path: Path, name: str, content: bytes, what: str) -> None:
    (tmp_path / name).write_bytes(content)
    with raises(FormatError, code="not-text", value=what):
        list(lexome.read(tmp_path / name))


@pytest.mark.parametrize("options", [{}, {"format": "text"}, {"format": "text", "encoding": "latin-1"}])
def test_binary_is_never_read_as_latin_1(tmp_path: Path, options: dict[str, str]) -> None:
    (tmp_path / "a.txt").write_bytes(b"%PDF-1.7\n" + bytes(range(256)))
    with raises(FormatError, code="not-text", value="a PDF"):
        list(lexome.read(tmp_path / "a.txt", **options))


def test_pubtator_with_the_line_ends_of_old_macs_is_read_whole(tmp_path: Path) -> None:
    blocks = [f"{number}|t|Title\n{number}|a|BRCA1.\n{number}\t6\t11\tBRCA1\tGene\t672\n" for number in range(1, 11)]
    (tmp_path / "a.pubtator").write_text("\n".join(blocks).replace("\n", "\r"), newline="")
    tally = Tally()
    assert [doc.id for doc in lexome.read(tmp_path / "a.pubtator", tally=tally)] == [str(n) for n in range(1, 11)]
    assert "carriage returns read as line breaks" in tally.notes
