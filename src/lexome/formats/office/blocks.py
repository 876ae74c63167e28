"""Documents from the blocks of an extracted text: title, headings, paragraphs, tables."""

from collections.abc import Iterable, Iterator
from functools import partial

from lexome.document import Document, lay_out
from lexome.errors import BadDocument
from lexome.formats.streams import Source
from lexome.formats.tally import Tally

Block = tuple[str, int, str]
"""Kind, level of a heading, and text."""


def document_of(source: Source, blocks: Iterable[Block], what: str, tally: Tally) -> Iterator[Document]:
    """The document of a file's blocks; rejected if they have no text.

    Its offsets count the extracted text, one character between passages, which is noted.
    """
    parts = list(_with_sections(blocks))
    yield from tally.accept(partial(_document, source.stem, parts, what, tally), where=source.name, id=source.stem)


def _document(name: str, parts: list[tuple[str, str, tuple[str, ...]]], what: str, tally: Tally) -> Document:
    if not parts:
        raise BadDocument(
            "no_text",
            f"there is no text in the {what}; its pages may be images. Recognize its characters (OCR) first.",
            value=name,
        )
    tally.note(f"text extracted from {what}: offsets count the extracted text")
    return Document(name, lay_out(parts))


def _with_sections(blocks: Iterable[Block]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Kind, text and the headings above each block."""
    headings: list[tuple[int, str]] = []
    for kind, level, text in blocks:
        if kind == "heading":
            headings = [above for above in headings if above[0] < level]
        yield kind, text, tuple(above for _, above in headings)
        if kind == "heading":
            headings.append((level, text))
