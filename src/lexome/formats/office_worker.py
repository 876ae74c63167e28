"""Extracts the text of one office document: the program that `lexome.formats.office` runs in a separate process.

It prints JSON lines: ["block", kind, level, text] for PDF and DOCX, ["row", sheet, number, cells] for XLSX,
["note", text] and, last, ["end"]. Kinds are title, heading, paragraph, table and note. A file that cannot be read ends
it with the exit status REFUSED and a reason on standard error. It imports nothing of Lexome: it is started by its
path, under limits of memory and CPU time that end it if a file exceeds them.
"""

import ctypes
import json
import re
import statistics
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

try:
    import resource
except ImportError:  # Windows has no limits of this kind
    resource = None  # type: ignore[assignment]

REFUSED = 65  # EX_DATAERR
MAX_PAGES = 20_000
# A file with more damaged pages than this in a row has no more pages, whatever it claims.
MAX_BAD_PAGES = 100

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_LIGATURES = {"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st"}
# How pdfium marks a hyphen at the end of a line, which it joins with the next.
_HYPHEN = re.compile("[\x02\xad\ufffe]")


class Refused(Exception):
    """A file that cannot be read, and why."""


@dataclass(slots=True)
class Line:
    """A line of a page: its text, left edge, baseline, type size and weight."""

    page: int
    text: str
    x: float
    y: float
    size: float
    bold: bool
    hyphens: int  # removed from the ends of its lines


def main(kind: str, path: str, memory_bytes: int, cpu_seconds: int) -> int:
    """Print the content of the file, within these limits; returns the exit status."""
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    extract = {"pdf": pdf, "docx": docx, "xlsx": xlsx}[kind]
    try:
        for item in extract(path):
            print(json.dumps(item, ensure_ascii=False))
        print('["end"]', flush=True)
    except Refused as error:
        print(str(error), file=sys.stderr)
        return REFUSED
    except MemoryError:
        print(f"reading it takes more than {memory_bytes >> 20:,} MiB of memory", file=sys.stderr)
        return REFUSED
    return 0


# PDF


def pdf(path: str) -> Iterator[list[Any]]:
    """Blocks of a PDF, in the order of its text."""
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(path)
        pages = len(document)
    except pypdfium2.PdfiumError as error:
        reason = (
            "it is encrypted; remove its password" if "assword" in str(error) else f"damaged ({str(error).rstrip('.')})"
        )
        raise Refused(reason) from None
    if pages > MAX_PAGES:
        raise Refused(f"it claims {pages:,} pages; at most {MAX_PAGES:,} are read")
    lines: list[Line] = []
    bad = in_a_row = 0
    for number in range(pages):
        try:
            page = document[number]
            lines += page_lines(page, number)
            page.close()
            in_a_row = 0
        except pypdfium2.PdfiumError:
            bad, in_a_row = bad + 1, in_a_row + 1
            if in_a_row > MAX_BAD_PAGES:
                break
    if pages and bad == pages:
        raise Refused(f"damaged (none of its {pages:,} pages can be read)")
    yield from ([["note", "damaged page of a PDF skipped"]] * bad)
    yield from blocks_of(lines)


def page_lines(page: Any, number: int) -> Iterator[Line]:
    """The lines of a page, as pdfium breaks them."""
    import pypdfium2.raw as pdfium

    textpage = page.get_textpage()
    handle = textpage.raw
    box = pdfium.FS_RECTF()
    units: list[int] = []
    first = -1

    def finish() -> Iterator[Line]:
        text, hyphens = decode_units(units)
        if text:
            pdfium.FPDFText_GetLooseCharBox(handle, first, ctypes.byref(box))
            size = abs(box.top - box.bottom) or pdfium.FPDFText_GetFontSize(handle, first)
            bold = pdfium.FPDFText_GetFontWeight(handle, first) >= 600
            yield Line(number, text, box.left, box.bottom, size, bold, hyphens)

    for index in range(textpage.count_chars()):
        unit = pdfium.FPDFText_GetUnicode(handle, index)
        if unit in (10, 13):
            yield from finish()
            units, first = [], -1
            continue
        if first < 0 and unit > 32:
            first = index
        units.append(unit)
    yield from finish()
    textpage.close()


def decode_units(units: list[int]) -> tuple[str, int]:
    """The text of UTF-16 units or characters, and how many hyphens at the ends of lines were removed from words."""
    text = "".join(chr(unit) if unit < 0x110000 else "\ufffd" for unit in units)
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").strip(" \t\x00")
    text, removed = re.subn(f"(?<=[a-z]){_HYPHEN.pattern}(?=[a-z])", "", text)
    text = _HYPHEN.sub("-", text)
    for ligature, letters in _LIGATURES.items():
        text = text.replace(ligature, letters)
    return text, removed


def blocks_of(lines: list[Line]) -> Iterator[list[Any]]:
    """Headings and paragraphs, by type size, weight and the gaps between lines."""
    if not lines:
        return
    sizes = Counter[float]()
    for line in lines:
        sizes[round(line.size, 1)] += len(line.text)
    body = max(sizes, key=lambda size: (sizes[size], -size))
    gaps = [above.y - below.y for above, below in pairwise(lines) if above.page == below.page and above.y > below.y]
    leading = statistics.median(gaps) if gaps else body * 1.2
    largest = max((line.size for line in lines if line.page == 0 and is_heading(line, body)), default=0.0)
    paragraph: list[Line] = []
    titled = False

    def finish() -> Iterator[list[Any]]:
        nonlocal titled
        if not paragraph:
            return
        first = paragraph[0]
        kind, level = "paragraph", 0
        if is_heading(first, body):
            kind, level = "heading", 1
            if not titled and first.page == 0 and first.size >= max(largest - 0.1, 1.15 * body):
                kind, level, titled = "title", 0, True
        yield from ([["note", "hyphen at the end of a line removed"]] * sum(line.hyphens for line in paragraph))
        text = paragraph[0].text
        for line in paragraph[1:]:
            text += line.text if text.endswith("-") else f" {line.text}"
        yield ["block", kind, level, text]

    for line in lines:
        if paragraph and begins_block(paragraph, line, body, leading):
            yield from finish()
            paragraph = []
        paragraph.append(line)
    yield from finish()


def is_heading(line: Line, body: float) -> bool:
    """Whether a line is set as a heading: larger than the body, or short, bold and not a sentence."""
    if len(line.text) > 200 or not any(map(str.isalpha, line.text)):
        return False
    return line.size > 1.12 * body or (line.bold and len(line.text) < 100 and not line.text.endswith((".", ",", ";")))


def begins_block(paragraph: list[Line], line: Line, body: float, leading: float) -> bool:
    """Whether a line begins another block than the lines before it."""
    before = paragraph[-1]
    heading = is_heading(line, body)
    if heading != is_heading(before, body) or (heading and abs(line.size - before.size) > 0.5):
        return True
    ended = before.text.endswith((".", "!", "?", ":", ".)", ".”", '."'))
    if line.page != before.page or line.y > before.y + body:
        # The next page or column: a sentence that has not ended continues there.
        return heading or ended or not line.text[:1].islower()
    if before.y - line.y > 1.5 * leading:
        return True
    return ended and line.x - min(one.x for one in paragraph[-2:]) > 0.8 * body


# DOCX


def docx(path: str) -> Iterator[list[Any]]:
    """Blocks of a Word document: paragraphs in document order, with those of tables and text boxes."""
    from docx import Document
    from lxml import etree

    try:
        # An open file: for a damaged one, python-docx would say that the path is not found, which clients would see.
        with open(path, "rb") as file:
            document = Document(file)
        body = document.element.body
        names = {style.style_id: style.name or "" for style in document.styles}
    except MemoryError:
        raise
    except Exception as error:  # python-docx raises whatever its libraries do
        raise Refused(f"damaged, or not a Word document ({type(error).__name__}: {error})") from None
    # Text boxes are stored twice, for old and new versions of Word, and nested ones 2^depth times.
    open_paragraphs: list[tuple[list[str], list[Any]]] = []
    in_tables = 0
    walk = etree.iterwalk(body, events=("start", "end"))
    for event, node in walk:
        tag = node.tag
        if event == "start" and tag == _FALLBACK:
            walk.skip_subtree()
        elif tag == f"{_W}tbl":
            in_tables += 1 if event == "start" else -1
        elif tag == f"{_W}p" and event == "start":
            open_paragraphs.append(([], ["paragraph", 0]))
        elif tag == f"{_W}p" and open_paragraphs:
            pieces, (kind, level) = open_paragraphs.pop()
            text = "".join(pieces).strip()
            if text:
                yield ["block", "table" if in_tables and kind == "paragraph" else kind, level, text]
        elif event == "start" and open_paragraphs:
            pieces, style = open_paragraphs[-1]
            if tag == f"{_W}t":
                pieces.append(node.text or "")
            elif tag == f"{_W}tab":
                pieces.append("\t")
            elif tag in (f"{_W}br", f"{_W}cr"):
                pieces.append("\n")
            elif tag == f"{_W}pStyle":
                style[:] = style_kind(names.get(node.get(f"{_W}val"), ""))
            elif tag == f"{_W}outlineLvl" and (node.get(f"{_W}val") or "").isdigit() and style[0] == "paragraph":
                level = int(node.get(f"{_W}val")[:3])
                style[:] = ["heading", level + 1] if level < 9 else style
    for part in document.part.package.iter_parts():
        if re.search(r"/word/(footnotes|endnotes|comments|header\d*|footer\d*)\.xml", str(part.partname)):
            yield ["note", f"{re.sub(r'[^a-z]', '', str(part.partname)[6:-4])} of a Word document not read"]


def style_kind(name: str) -> list[Any]:
    """Kind and level of a paragraph by the name of its style."""
    heading = re.fullmatch(r"[Hh]eading ([1-9])", name)
    if heading is not None:
        return ["heading", int(heading[1])]
    return ["title", 0] if name == "Title" else ["paragraph", 0]


# XLSX


def xlsx(path: str) -> Iterator[list[Any]]:
    """The rows of all sheets that have any."""
    import openpyxl

    try:
        # An open file: openpyxl would require an extension of a path.
        with open(path, "rb") as file:
            workbook = openpyxl.load_workbook(file, read_only=True, data_only=True)
            for number, sheet in enumerate(workbook.worksheets):
                sheet.reset_dimensions()
                for row, cells in enumerate(sheet.iter_rows(values_only=True), 1):
                    texts = ["" if cell is None else str(cell) for cell in cells]
                    while texts and not texts[-1]:
                        texts.pop()
                    if texts:
                        yield ["row", number, row, texts]
    except MemoryError:
        raise
    except Exception as error:  # openpyxl raises whatever its libraries do
        raise Refused(f"damaged, or not an Excel workbook ({type(error).__name__}: {error})") from None


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
