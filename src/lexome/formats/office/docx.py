"""Word documents, .docx: paragraphs and headings."""

from collections.abc import Iterator

from lexome.document import Document
from lexome.formats.office.blocks import document_of
from lexome.formats.office.extraction import extract
from lexome.formats.streams import Source
from lexome.formats.tally import Tally


def read(source: Source, *, tally: Tally) -> Iterator[Document]:
    """One document per file, with the paragraphs of tables and text boxes; its offsets count the extracted text.

    Headings are told by style. Deleted text, headers, footers, notes and comments are not read.
    """
    blocks = ((kind, level, text) for _, kind, level, text in extract(source, "docx", tally))
    yield from document_of(source, blocks, "a Word document", tally)
