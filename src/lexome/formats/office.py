"""PDF and Word documents: their extracted text, in paragraphs and headings. Excel: tables."""

import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from importlib.util import find_spec
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from string import ascii_uppercase
from typing import Any, BinaryIO, Literal
from xml.sax.saxutils import escape

from lexome.document import Document, lay_out, shorten
from lexome.errors import BadDocument, FormatError, MissingExtraError
from lexome.formats.labeled_table import read_rows
from lexome.formats.mention_table import Cell, PreferredName, Table, attribute_names, table_rows
from lexome.formats.rows import TableRow
from lexome.formats.streams import BLOCK_BYTES, Source, too_large
from lexome.formats.tally import Tally

Block = tuple[str, int, str]
"""Kind, level of a heading, and text."""


_PDF = "a PDF"


def document_of(source: Source, blocks: Iterable[Block], what: str, tally: Tally) -> Iterator[Document]:
    """The document of a file's blocks; rejected if they have no text.

    Its offsets count the extracted text, one character between passages, which is noted.
    """
    parts = list(_with_sections(blocks))
    yield from tally.accept(partial(_document, source.stem, parts, what, tally), where=source.name, id=source.stem)


def _document(name: str, parts: list[tuple[str, str, tuple[str, ...]]], what: str, tally: Tally) -> Document:
    if not parts:
        remedy = "its pages may be images. Recognize its characters (OCR) first." if what == _PDF else "expected text."
        raise BadDocument("no_text", f"there is no text in this file, {what}; {remedy}", value=name)
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


# Extraction in a separate process, with limits of memory, time and output
#
# The libraries that read PDF, DOCX and XLSX build a file in memory, and files of a few hundred bytes can ask for
# gigabytes, or crash a library written in C. In a process with limits neither reaches the caller.


MAX_FILE_BYTES = 256 << 20
MAX_TEXT_BYTES = 64 << 20
MEMORY_BYTES = 1536 << 20
CPU_SECONDS = 120
_WORKER = Path(__file__).with_name("office_worker.py")
_REFUSED = 65
_LIBRARIES = {
    "pdf": ("pypdfium2", "PDF files"),
    "docx": ("docx", "Word documents"),
    "xlsx": ("openpyxl", "Excel files"),
}


def extract(source: Source, kind: str, tally: Tally) -> Iterator[list[Any]]:
    """The items that the worker prints for a file; notes are counted. FormatError if the file cannot be read."""
    library, what = _LIBRARIES[kind]
    if find_spec(library) is None:
        package = "python-docx" if library == "docx" else library
        raise MissingExtraError(package, extra="office", purpose=f"reading {what}")
    with _as_file(source) as path, tempfile.TemporaryFile() as errors:
        # -P: the folder of the worker has modules named like those of the standard library.
        seconds = min(CPU_SECONDS, source.cpu_seconds or CPU_SECONDS)
        command = [sys.executable, "-P", str(_WORKER), kind, str(path), str(MEMORY_BYTES), str(seconds)]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors) as process:
            try:
                complete = yield from _items(process, source, tally)
            finally:
                process.kill()
        if not complete:
            errors.seek(0)
            reason = errors.read(2000).decode(errors="replace").strip().rpartition("\n")[2]
            raise _refusal(source, what, process.returncode, reason, seconds)


def _items(process: "subprocess.Popen[bytes]", source: Source, tally: Tally) -> Generator[list[Any], None, bool]:
    """The items printed before the end mark; returns whether that was printed."""
    assert process.stdout is not None
    size = 0
    while line := process.stdout.readline(MAX_TEXT_BYTES):
        size += len(line)
        if size > MAX_TEXT_BYTES:
            raise too_large(source.name, "its text", "Split the document.", limit=MAX_TEXT_BYTES, value=source.name)
        if not line.endswith(b"\n"):
            break
        item = json.loads(line)
        if item[0] == "end":
            process.wait()
            return True
        if item[0] == "note":
            tally.note(item[1])
        else:
            yield item
    process.wait()
    return False


def _refusal(source: Source, what: str, status: int, reason: str, seconds: int) -> FormatError:
    """The error for a worker that ended early: it refused the file, reached a limit, or the library crashed."""
    if status != _REFUSED:
        limits = f"{MEMORY_BYTES >> 20:,} MiB of memory and {seconds} s"
        ended = f"it was killed by signal {-status}" if status < 0 else f"it failed ({shorten(reason, 200)})"
        reason = f"reading it takes more than {limits}, or crashes the library for {what}: {ended}"
    return FormatError(
        f"{source.name}: {reason}. Save the document again with another program, or as plain text.",
        code="unreadable-document",
        value=source.name,
    )


@contextmanager
def _as_file(source: Source) -> Iterator[Path]:
    """The path of the file, or of a temporary copy of a stream."""
    if source.path is not None and source.path.is_file():
        if source.path.stat().st_size > MAX_FILE_BYTES:
            raise too_large(source.name, "the file", "Split it.", limit=MAX_FILE_BYTES, value=source.name)
        yield source.path
        return
    with tempfile.NamedTemporaryFile(prefix="lexome-") as copy:
        size = 0
        while block := source.stream.read(BLOCK_BYTES):
            size += len(block)
            if size > MAX_FILE_BYTES:
                raise too_large(source.name, "the file", "Split it.", limit=MAX_FILE_BYTES, value=source.name)
            copy.write(block)
        copy.flush()
        yield Path(copy.name)


def read_docx(source: Source, *, tally: Tally) -> Iterator[Document]:
    """One document per file, with the paragraphs of tables and text boxes; its offsets count the extracted text.

    Headings are recognized by style. Deleted text, headers, footers, notes and comments are not read.
    """
    blocks = ((kind, level, text) for _, kind, level, text in extract(source, "docx", tally))
    yield from document_of(source, blocks, "a Word document", tally)


def read_pdf(source: Source, *, tally: Tally) -> Iterator[Document]:
    """One document per file; its offsets count the extracted text.

    A PDF has neither paragraphs nor reading order, only placed characters: lines are joined by their distance,
    headings recognized by size and weight, and hyphens at the end of lines removed. A PDF of images has no text and is
    rejected.
    """
    blocks = ((kind, level, text) for _, kind, level, text in extract(source, "pdf", tally))
    yield from document_of(source, blocks, _PDF, tally)


# Excel workbooks: labeled texts in, tables of mentions, relations or labels out


MAX_ROWS, MAX_COLUMNS = 1 << 20, 1 << 14  # of a sheet, by the file format
MAX_CELL = 32_767  # characters, those beyond U+FFFF counted twice
_ILLEGAL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def read_xlsx(
    source: Source,
    *,
    tally: Tally,
    text: str = "",
    label: str = "",
    id: str = "",
    header: Literal["auto", "yes", "no"] = "auto",
) -> Iterator[Document]:
    """One document per row of each sheet; columns are recognized and named as in csv.

    A sheet with other columns, such as a legend, is skipped if another sheet has texts.
    """
    sheets, skipped = 0, list[tuple[int, FormatError]]()
    for sheet, items in groupby(extract(source, "xlsx", tally), key=itemgetter(1)):
        sheets += 1
        rows = read_rows(source, sheet_rows(items), (text, label, id), header=header, tally=tally, sheet=sheet + 1)
        try:
            yield from rows
        except FormatError as error:
            if error.code != "unknown-columns":
                raise
            skipped.append((sheet + 1, error))
    if skipped and len(skipped) == sheets:
        raise skipped[0][1]
    for number, _ in skipped:
        tally.note(f"sheet {number} skipped: it has no column of texts")
    if not sheets:
        tally.note("empty table")


def sheet_rows(items: Iterable[list[Any]]) -> Iterator[TableRow]:
    """The rows of a sheet, none narrower than its first."""
    width = 0
    for _, _, number, cells in items:
        width = width or len(cells)
        cells += [""] * (width - len(cells))
        # Packed as the rows of a CSV file are: one character per byte.
        packed = tuple(cell.encode("utf-8", "replace").decode("latin-1") for cell in cells)
        yield TableRow(number, "\t".join(cells).encode("utf-8", "replace"), packed)


def write_xlsx(
    docs: Iterable[Document],
    stream: BinaryIO,
    *,
    tally: Tally,
    table: Table = "mentions",
    counts: bool = False,
    attributes: str | tuple[str, ...] = "",
    preferred_name: PreferredName | None = None,
) -> None:
    """One row per mention, relation or label, or with `counts` one per concept, name, pair or label; no formulas."""
    names = attribute_names(attributes)
    rows = table_rows(docs, counts=counts, preferred_name=preferred_name, tally=tally, table=table, attributes=names)
    # Without times, so that the same documents give the same bytes; without temporary files, whose disk may be full.
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in _WORKBOOK.items():
            archive.writestr(_entry(name), content.format(sheet="counts" if counts else table))
        with archive.open(_entry("xl/worksheets/sheet1.xml"), "w") as sheet:
            sheet.write(_SHEET_BEGIN)
            for number, row in enumerate(rows, start=1):
                if number > MAX_ROWS:
                    raise FormatError(
                        f"the table has more than {MAX_ROWS - 1:,} rows, which is the limit of Excel. Write it as csv, "
                        "or the documents in several files.",
                        code="too-large",
                        value=MAX_ROWS,
                    )
                if len(row) > MAX_COLUMNS:
                    raise FormatError(
                        f"the table has {len(row):,} columns; the limit of Excel is {MAX_COLUMNS:,}. Write it as csv.",
                        code="too-large",
                        value=len(row),
                    )
                cells = (_cell(f"{_column(place)}{number}", value, tally) for place, value in enumerate(row))
                sheet.write(f'<row r="{number}">{"".join(cells)}</row>'.encode())
            sheet.write(_SHEET_END)


@cache
def _column(place: int) -> str:
    """The letters of a column, counted from 0: A to Z, then AA."""
    before, letter = divmod(place, len(ascii_uppercase))
    return (_column(before - 1) if before else "") + ascii_uppercase[letter]


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def _cell(place: str, value: Cell, tally: Tally) -> str:
    """A cell in XML: a number, or text, which is never a formula; nothing for empty text."""
    if not isinstance(value, str):
        return f'<c r="{place}"><v>{value}</v></c>'
    text = _ILLEGAL.sub("\ufffd", value)
    if text != value:
        tally.note("control character in a cell written as U+FFFD")
    units = text.encode("utf-16-le")
    if len(units) > 2 * MAX_CELL:
        tally.note(f"cell cut to {MAX_CELL:,} characters")
        text = units[: 2 * MAX_CELL].decode("utf-16-le", "ignore")
    content = escape(text, {"\r": "&#13;"})
    return f'<c r="{place}" t="inlineStr"><is><t xml:space="preserve">{content}</t></is></c>' if text else ""


_XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_OPEN, _MAIN = "http://schemas.openxmlformats.org", "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_TYPES, _LINKS = f"{_OPEN}/package/2006/content-types", f"{_OPEN}/package/2006/relationships"
_OFFICE = f"{_OPEN}/officeDocument/2006/relationships"
_SPREADSHEET = "application/vnd.openxmlformats-officedocument.spreadsheetml"
# The parts of a workbook with one sheet, and the XML of the sheet before and after its rows.
_WORKBOOK = {
    "[Content_Types].xml": f'{_XML}<Types xmlns="{_TYPES}"><Default Extension="rels" '
    'ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    f'<Override PartName="/xl/workbook.xml" ContentType="{_SPREADSHEET}.sheet.main+xml"/>'
    f'<Override PartName="/xl/worksheets/sheet1.xml" ContentType="{_SPREADSHEET}.worksheet+xml"/></Types>',
    "_rels/.rels": f'{_XML}<Relationships xmlns="{_LINKS}"><Relationship Id="rId1" Type="{_OFFICE}/officeDocument" '
    'Target="xl/workbook.xml"/></Relationships>',
    "xl/workbook.xml": f'{_XML}<workbook xmlns="{_MAIN}" xmlns:r="{_OFFICE}"><bookViews><workbookView/></bookViews>'
    '<sheets><sheet name="{sheet}" sheetId="1" r:id="rId1"/></sheets></workbook>',
    "xl/_rels/workbook.xml.rels": f'{_XML}<Relationships xmlns="{_LINKS}"><Relationship Id="rId1" '
    f'Type="{_OFFICE}/worksheet" Target="worksheets/sheet1.xml"/></Relationships>',
}
_SHEET_BEGIN = (
    f'{_XML}<worksheet xmlns="{_MAIN}"><sheetViews><sheetView workbookViewId="0"><pane ySplit="1" topLeftCell="A2" '
    'activePane="bottomLeft" state="frozen"/></sheetView></sheetViews><sheetData>'
).encode()
_SHEET_END = b"</sheetData></worksheet>"
