"""PDF: the text of its pages, in paragraphs and headings told by their type."""

from collections.abc import Iterator

from lexome.document import Document
from lexome.formats.office.blocks import document_of
from lexome.formats.office.extraction import extract
from lexome.formats.streams import Source
from lexome.formats.tally import Tally


def read(source: Source, *, tally: Tally) -> Iterator[Document]:
    """One document per file; its offsets count the extracted text.

    A PDF has neither paragraphs nor reading order, only placed characters: lines are joined by their distance,
    headings told by size and weight, and hyphens at the end of lines removed. A PDF of images has no text and is
    rejected.
    """
    blocks = ((kind, level, text) for _, kind, level, text in extract(source, "pdf", tally))
    yield from document_of(source, blocks, "a PDF", tally)
