"""Excel workbooks: labelled texts in, tables of mentions or relations out."""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any, BinaryIO, Literal

from lexome.document import Document
from lexome.errors import FormatError, MissingExtraError
from lexome.formats.labelled_table import read_rows
from lexome.formats.mention_table import Cell, PreferredName, Table, table_rows
from lexome.formats.office.documents import extract
from lexome.formats.rows import TableRow
from lexome.formats.streams import Source
from lexome.formats.tally import Tally

MAX_ROWS = 1 << 20  # of a sheet, by the file format
MAX_CELL = 32_767  # characters
_ILLEGAL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def read(
    source: Source,
    *,
    tally: Tally,
    text: str = "",
    label: str = "",
    id: str = "",
    header: Literal["auto", "yes", "no"] = "auto",
) -> Iterator[Document]:
    """One document per row of each sheet; columns are recognized and named as in csv."""
    empty = True
    for sheet, items in groupby(extract(source, "xlsx", tally), key=itemgetter(1)):
        empty = False
        part = f"-{sheet + 1}" if sheet else ""
        yield from read_rows(source, _rows(items), (text, label, id), header, "utf-8", tally, part=part)
    if empty:
        tally.note("empty table")


def _rows(items: Iterable[list[Any]]) -> Iterator[TableRow]:
    """The rows of a sheet, none narrower than its first."""
    width = 0
    for _, _, number, cells in items:
        width = width or len(cells)
        cells += [""] * (width - len(cells))
        # Packed as the rows of a CSV file are: one character per byte.
        packed = tuple(cell.encode("utf-8", "replace").decode("latin-1") for cell in cells)
        yield TableRow(number, "\t".join(cells).encode("utf-8", "replace"), packed)


def write(
    docs: Iterable[Document],
    stream: BinaryIO,
    *,
    tally: Tally,
    table: Table = "mentions",
    counts: bool = False,
    preferred_name: PreferredName | None = None,
) -> None:
    """One row per mention or relation, or with `counts` one per concept, name or pair; text is never a formula."""
    try:
        from openpyxl import Workbook
    except ImportError:
        raise MissingExtraError("openpyxl", extra="office", purpose="writing Excel files") from None
    workbook = Workbook(write_only=True)
    sheet: Any = workbook.create_sheet("counts" if counts else table)
    sheet.freeze_panes = "A2"
    rows = table_rows(docs, counts=counts, preferred_name=preferred_name, tally=tally, table=table)
    for number, row in enumerate(rows, start=1):
        if number > MAX_ROWS:
            raise FormatError(
                f"the table has more than {MAX_ROWS - 1:,} rows, which is the limit of Excel. Write it as csv, or the "
                "documents in several files.",
                code="too-large",
                value=MAX_ROWS,
            )
        sheet.append([_cell(sheet, value, tally) for value in row])
    workbook.save(stream)


def _cell(sheet: Any, value: Cell, tally: Tally) -> Any:
    if not isinstance(value, str):
        return value
    from openpyxl.cell import WriteOnlyCell

    text = _ILLEGAL.sub("\ufffd", value)
    if text != value:
        tally.note("control character in a cell written as U+FFFD")
    if len(text) > MAX_CELL:
        tally.note(f"cell cut to {MAX_CELL:,} characters")
        text = text[:MAX_CELL]
    cell = WriteOnlyCell(sheet, value=text)
    # Otherwise a text that begins with = would be a formula, and one such as #N/A an error.
    cell.data_type = "s"
    return cell
