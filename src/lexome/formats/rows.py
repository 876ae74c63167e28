"""Rows of CSV and TSV files, each with its line number and its own bytes."""

import csv
import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass

from lexome.errors import BadDocument, FormatError
from lexome.formats.streams import Source, decode

# A longer cell is no text of a table but a quote that was never closed.
MAX_CELL_BYTES = 16 << 20

# Lines are cut from so much of the file at a time.
BLOCK_BYTES = 1 << 16

# A quoted cell of a line, or a plain one.
_QUOTED_OR_PLAIN = re.compile(r'(?:\A|\t)("[^"]*(?:""[^"]*)*"(?=\t|\Z)|[^\t]*)')


@dataclass(frozen=True, slots=True)
class Row:
    """One row: the line it begins on, its bytes, and what is wrong with them if they make no row.

    `packed` holds the cells of a CSV row as latin-1, one character a byte; a TSV row is cut when its
    cells are asked for, because where its quotes belong depends on how many cells are expected.
    """

    line: int
    raw: bytes
    packed: tuple[str, ...] | None = None
    problem: BadDocument | None = None

    def cells(self, encoding: str, width: int | None = None) -> list[str]:
        """The cells as text; `width` is how many there should be, where that is known."""
        if self.problem is not None:
            raise self.problem
        if self.packed is not None:
            return [decode(cell.encode("latin-1"), encoding) for cell in self.packed]
        text = decode(self.raw, encoding)
        cells = text.split("\t")
        if '"' not in text:
            return cells
        if width is not None and len(cells) > width:
            joined = _QUOTED_OR_PLAIN.findall(text)
            cells = joined if len(joined) == width else cells
        return [_unquoted(cell) for cell in cells]


def tsv_rows(source: Source) -> Iterator[Row]:
    """The lines of a file of tab-separated cells that are not blank.

    A quote never reaches over the line's end, so that a stray one cannot swallow rows.
    """
    for number, raw in source.lines():
        if raw and not raw.isspace():
            yield Row(number, raw)


def csv_rows(source: Source, delimiter: str = ",") -> Iterator[Row]:
    """The rows of a CSV file that are not blank; a quoted cell may hold line breaks, which stay as they are."""
    # The limit is the whole process's, so it is only ever raised.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_CELL_BYTES))
    lines = _Lines(source)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        begun = lines.number + 1
        lines.held.clear()
        try:
            cells = next(reader, None)
        except csv.Error as error:
            yield _bad_row(error, begun, lines)
            continue
        if cells is None:
            return
        if len(cells) > 1 or "".join(cells).strip():
            yield Row(begun, lines.raw(), tuple(cells))


class _Lines:
    """The lines of a file, a character a byte, with those of the row at hand kept."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.number = 0
        self.held: list[str] = []
        self.ended = False

    def __iter__(self) -> Iterator[str]:
        held = self.held
        for line in self._cut():
            self.number += 1
            held.append(line)
            yield line
        self.ended = True

    def raw(self) -> bytes:
        """The bytes of the row at hand."""
        return "".join(self.held).encode("latin-1")

    def _cut(self) -> Iterator[str]:
        """The lines with their ends, cut at \\n alone, a block of the file at a time."""
        rest = self.source.stream.read1(BLOCK_BYTES).removeprefix(BOM_UTF8).decode("latin-1")
        while rest:
            *lines, rest = rest.split("\n")
            for line in lines:
                yield line + "\n"
            if len(rest) > MAX_CELL_BYTES:
                raise FormatError(
                    f"{self.source.name}, line {self.number + 1}: the line is longer than {MAX_CELL_BYTES >> 20} MiB; "
                    "expected a table. Check that the file is of the format you named."
                )
            block = self.source.stream.read1(BLOCK_BYTES)
            if not block and rest:
                yield rest
                return
            rest += block.decode("latin-1")


def _bad_row(error: csv.Error, begun: int, lines: _Lines) -> Row:
    """The row that csv refuses; FormatError where its quote runs to the file's end or too far."""
    where = f"{lines.source.name}, line {begun}"
    if lines.ended:
        raise FormatError(
            f'{where}: the row that begins here has a quote (") that is never closed; the file ends at line '
            f"{lines.number}. Fetch the file again, or close the quote."
        ) from None
    if "limit" in str(error):
        raise FormatError(
            f'{where}: the row that begins here has a cell of more than {MAX_CELL_BYTES >> 20} MiB; a quote (") '
            "in it may never be closed. Close the quote."
        ) from None
    problem = BadDocument(
        "malformed_csv",
        f"{error}, in the row that began on line {begun} and ended on line {lines.number}; expected cells quoted "
        'whole, with quotes inside them doubled. Check for a quote (") that is not closed.',
    )
    return Row(begun, lines.raw(), problem=problem)


def _unquoted(cell: str) -> str:
    """The cell without the quotes around it, where it needed them: quotes inside it doubled, or a tab.

    That is what csv writers do. A sentence that stands in quotes of its own has neither.
    """
    if len(cell) < 2 or cell[0] != '"' or cell[-1] != '"':
        return cell
    inside = cell[1:-1]
    single = inside.replace('""', "")
    if '"' in single or (single == inside and "\t" not in inside):
        return cell
    return inside.replace('""', '"')
