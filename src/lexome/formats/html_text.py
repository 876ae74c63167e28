"""Web pages: title, headings, paragraphs, list items and table cells.

The page is parsed as a stream of tags, without a tree, so that neither deep nor unclosed elements cost memory.
"""

import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from typing import Any, cast

from lxml import etree

from lexome.document import Document
from lexome.formats.office import Block, document_of
from lexome.formats.streams import BLOCK_BYTES, MAX_RECORD_BYTES, Source, decode, too_large, web_encoding
from lexome.formats.tally import Tally

_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?([A-Za-z0-9._:-]{1,40})""", re.IGNORECASE)
_SKIPPED = frozenset(("script", "style", "noscript", "template", "svg", "math", "iframe", "object", "select"))
_KINDS = {"li": "list", "td": "table", "th": "table", "caption": "caption", "figcaption": "caption", "pre": "code"}
_INLINE = frozenset(
    (
        "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font", "i",
        "img", "ins", "kbd", "label", "mark", "q", "s", "samp", "small", "span", "strike", "strong", "sub", "sup",
        "time", "tt", "u", "var", "wbr",
    )
)  # fmt: skip
_SPACE = re.compile(r"[ \t\r\n\f]+")


def read(source: Source, *, tally: Tally, encoding: str = "") -> Iterator[Document]:
    """One document per page; its offsets count the extracted text.

    Entities such as &alpha; are the characters they stand for. Scripts, styles and drawings are not read. The
    encoding is that of the byte order mark or of the page's declaration, else UTF-8, else Windows-1252.
    """
    raw = source.read_to(MAX_RECORD_BYTES)
    if len(raw) > MAX_RECORD_BYTES:
        raise too_large(source.name, "the page", "Split it.", value=source.name)
    text = _decode(raw, encoding, tally)
    collector = _Collector()
    parser: Any = etree.HTMLParser(target=cast(Any, collector))
    for start in range(0, len(text), BLOCK_BYTES):
        parser.feed(text[start : start + BLOCK_BYTES])
    if text.strip():
        parser.close()
    yield from document_of(source, collector.blocks, "a web page", tally)


def _decode(raw: bytes, encoding: str, tally: Tally) -> str:
    if encoding:
        return decode(raw, encoding)
    if raw.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return raw.decode("utf-16", "replace")
    declared = _CHARSET.search(raw, 0, 4096)
    name = "utf-8" if raw.startswith(BOM_UTF8) or declared is None else web_encoding(declared[1].decode()) or "utf-8"
    if name.startswith("utf-16"):
        name = "utf-8"  # a declaration that is legible in ASCII is not in UTF-16
    try:
        return raw.decode("utf-8-sig" if name == "utf-8" else name)
    except UnicodeDecodeError:
        tally.note(f"page that is not valid {name} read as Windows-1252")
        return raw.decode("cp1252", "replace")


class _Collector:
    """Receives the tags and text of a page, and collects its blocks."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.pieces: list[str] = []
        self.skipped = 0
        self.kind, self.level = "paragraph", 0

    def start(self, tag: str, attributes: object) -> None:
        if tag in _SKIPPED:
            self.skipped += 1
        elif tag not in _INLINE:
            self._finish()
            heading = re.fullmatch("h([1-6])", tag)
            self.kind, self.level = (
                ("heading", int(heading[1])) if heading is not None else (_KINDS.get(tag, "paragraph"), 0)
            )
            if tag == "title":
                self.kind = "title"

    def end(self, tag: str) -> None:
        if tag in _SKIPPED:
            self.skipped = max(0, self.skipped - 1)
        elif tag not in _INLINE:
            self._finish()
            self.kind, self.level = "paragraph", 0

    def data(self, data: str) -> None:
        if not self.skipped:
            self.pieces.append(data)

    def comment(self, text: str) -> None:
        pass

    def close(self) -> None:
        self._finish()

    def _finish(self) -> None:
        text = _SPACE.sub(" ", "".join(self.pieces)).strip(" ")
        self.pieces.clear()
        # Most pages repeat their title as the first heading.
        if text and not (self.kind == "heading" and self.blocks and self.blocks[-1] == ("title", 0, text)):
            self.blocks.append((self.kind, self.level, text))
