"""Plain text: one document per file, paragraph or line."""

import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import BinaryIO, Literal

from lexome.document import Document
from lexome.formats.streams import MAX_RECORD_BYTES, Source, decode, too_large
from lexome.formats.tally import Tally, note_losses

# What PubMed saves as "Abstract (text)": numbered citations, each with the line "PMID: 31900001" at its end.
_PUBMED_CITATION = re.compile(rb"\s*1\. \S")
_PUBMED_ID = re.compile(rb"^PMID: [0-9]+", re.MULTILINE)


def read(
    source: Source, *, tally: Tally, per: Literal["file", "paragraph", "line"] = "file", encoding: str = "utf-8"
) -> Iterator[Document]:
    """Documents of one passage: the whole file, its paragraphs (separated by blank lines) or its lines.

    The id of a whole file is its name; paragraphs and lines have their line number appended.
    """
    for line, raw in _pieces(source, per, tally):
        if per == "file" and _PUBMED_CITATION.match(raw) and len(_PUBMED_ID.findall(raw)) > 1:
            tally.note("text with several articles of PubMed read as one document: save them in the format PubMed")
        name = source.stem if per == "file" else f"{source.stem}-{line}"
        yield from tally.accept(
            partial(_document, name, raw, encoding), where=f"{source.name}, line {line}", id=name, raw=raw
        )


def write(docs: Iterable[Document], stream: BinaryIO, *, tally: Tally) -> None:
    """The text of each document, separated by blank lines."""
    for number, doc in enumerate(docs):
        stream.write((b"\n" if number else b"") + doc.text.encode() + b"\n")
        tally.written += 1
        note_losses(doc, tally, lost=("ids", "spans") if doc.spans else ("ids",))


def _document(name: str, raw: bytes, encoding: str) -> Document:
    text = decode(raw, encoding)
    return Document.from_text(text, id=name)


def _pieces(source: Source, per: str, tally: Tally) -> Iterator[tuple[int, bytes]]:
    """The first line number and the bytes of each document."""
    if per == "file":
        content = source.read_to(MAX_RECORD_BYTES)
        if len(content) > MAX_RECORD_BYTES:
            advice = "Read it with per=paragraph or per=line (in annotate: --lines), or split it."
            raise too_large(source.name, "the text", advice, value=source.name)
        yield 1, content.removeprefix(b"\xef\xbb\xbf")
        return
    paragraph = bytearray()
    first_line = 1
    for number, line in source.lines(tally if per == "line" else None):
        if per == "line" and line.strip():
            yield number, line
        elif per == "paragraph" and line.strip():
            first_line = first_line if paragraph else number
            paragraph += b"\n" + line if paragraph else line
            if len(paragraph) > MAX_RECORD_BYTES:
                what, advice = f"the paragraph at line {first_line}", "Read the file with per=line."
                raise too_large(source.name, what, advice, limit=MAX_RECORD_BYTES, value=first_line)
        elif paragraph:
            yield first_line, bytes(paragraph)
            paragraph.clear()
    if paragraph:
        yield first_line, bytes(paragraph)
