"""Excel workbooks: tables of mentions out."""

import re
from collections.abc import Iterable
from typing import Any, BinaryIO

from lexome.document import Document
from lexome.errors import FormatError, MissingExtraError
from lexome.formats.mention_table import Cell, PreferredName, table_rows
from lexome.formats.tally import Tally

MAX_ROWS = 1 << 20  # of a sheet, by the file format
MAX_CELL = 32_767  # characters
_ILLEGAL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def write(
    docs: Iterable[Document],
    stream: BinaryIO,
    *,
    tally: Tally,
    counts: bool = False,
    preferred_name: PreferredName | None = None,
) -> None:
    """One row per mention, or with `counts` one per concept or name; text is never a formula."""
    try:
        from openpyxl import Workbook
    except ImportError:
        raise MissingExtraError("openpyxl", extra="office", purpose="writing Excel files") from None
    workbook = Workbook(write_only=True)
    sheet: Any = workbook.create_sheet("counts" if counts else "mentions")
    sheet.freeze_panes = "A2"
    for number, row in enumerate(table_rows(docs, counts=counts, preferred_name=preferred_name, tally=tally), start=1):
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
