"""Rows of CSV and TSV files, with line numbers and raw bytes."""

import csv
import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass

from lexome.errors import BadDocument, FormatError
from lexome.formats.streams import Source, decode, too_large

# A longer cell is an unclosed quote, not text.
MAX_CELL_BYTES = 16 << 20
BLOCK_BYTES = 1 << 16
# A quoted or plain cell of a line.
_QUOTED_OR_PLAIN = re.compile(r'(?:\A|\t)("[^"]*(?:""[^"]*)*"(?=\t|\Z)|[^\t]*)')


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row: its first line number, its bytes, and the problem if they are not a valid row.

    `packed` are the cells of a CSV row decoded as latin-1, one character per byte. A TSV row is split in `cells`,
    because how its quotes are read depends on the expected number of cells.
    """

    line: int
    raw: bytes
    packed: tuple[str, ...] | None = None
    problem: BadDocument | None = None

    def cells(self, encoding: str, width: int | None = None) -> list[str]:
        """The decoded cells; `width` is their expected number, if known."""
        if self.problem is not None:
            raise self.problem
        if self.packed is not None:
            return [decode(cell.encode("latin-1"), encoding) for cell in self.packed]
        text = decode(self.raw, encoding)
        cells = text.split("\t")
        if '"' not in text:
            return cells
        if width is not None and len(cells) > width:
            quoted = _QUOTED_OR_PLAIN.findall(text)
            cells = quoted if len(quoted) == width else cells
        return list(map(_unquote, cells))


def tsv_rows(source: Source) -> Iterator[TableRow]:
    """The non-blank lines of a tab-separated file.

    Quotes end with their line, so that an unbalanced one cannot swallow rows.
    """
    for number, raw in source.lines():
        if raw and not raw.isspace():
            yield TableRow(number, raw)


# The first line that Excel understands in a CSV file: "sep=;".
_SEPARATOR = re.compile(rb'"?sep=(.)"?\r?\n?', re.IGNORECASE)


def split_separator(head: bytes) -> tuple[str, bytes]:
    """The delimiter that a first line such as `sep=;` declares, or "", and the head without that line."""
    head = head.removeprefix(BOM_UTF8).lstrip(b"\r\n")
    match = _SEPARATOR.match(head)
    if match is None or (match.end() < len(head) and not match[0].endswith(b"\n")):
        return "", head
    return match[1].decode("latin-1"), head[match.end() :]


def csv_rows(source: Source, delimiter: str = ",") -> Iterator[TableRow]:
    """The non-blank rows of a CSV file without a first line such as `sep=;`; quoted cells may contain line breaks."""
    # The limit is process-wide, so it is only ever raised.
    csv.field_size_limit(max(csv.field_size_limit(), MAX_CELL_BYTES))
    lines = _Lines(source)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        first_line = lines.number + 1
        lines.row_lines.clear()
        try:
            cells = next(reader, None)
        except csv.Error as error:
            yield _bad_row(error, first_line, lines)
            continue
        if cells is None:
            return
        if first_line == 1 and _SEPARATOR.fullmatch(lines.raw()):
            continue
        if len(cells) > 1 or "".join(cells).strip():
            yield TableRow(first_line, lines.raw(), tuple(cells))


class _Lines:
    """The lines of a file as latin-1, with those of the current row retained."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.number = 0
        self.row_lines: list[str] = []
        self.ended = False

    def __iter__(self) -> Iterator[str]:
        row_lines = self.row_lines
        for line in self._split():
            self.number += 1
            row_lines.append(line)
            yield line
        self.ended = True

    def raw(self) -> bytes:
        """The bytes of the current row."""
        return "".join(self.row_lines).encode("latin-1")

    def _split(self) -> Iterator[str]:
        """The lines with their line endings, split at \\n only."""
        rest = self.source.stream.read1(BLOCK_BYTES).removeprefix(BOM_UTF8).decode("latin-1")
        while rest:
            *lines, rest = rest.split("\n")
            for line in lines:
                yield line + "\n"
            if len(rest) > MAX_CELL_BYTES:
                number, advice = self.number + 1, "Check that the file is a table."
                raise too_large(self.source.name, f"line {number}", advice, limit=MAX_CELL_BYTES, value=number)
            block = self.source.stream.read1(BLOCK_BYTES)
            if not block and rest:
                yield rest
                return
            rest += block.decode("latin-1")


def _bad_row(error: csv.Error, first_line: int, lines: _Lines) -> TableRow:
    """The row that csv rejects; FormatError if its quote is never closed."""
    where = f"{lines.source.name}, line {first_line}"
    if lines.ended:
        raise FormatError(
            f'{where}: a quote (") in this row is never closed; the file ends at line {lines.number}. '
            "Download the file again, or close the quote.",
            code="unclosed-quote",
            value=first_line,
        ) from None
    if "limit" in str(error):
        raise FormatError(
            f'{where}: a cell of this row is larger than {MAX_CELL_BYTES >> 20} MiB; a quote (") may not be closed. '
            "Close the quote.",
            code="unclosed-quote",
            value=first_line,
        ) from None
    problem = BadDocument(
        "malformed_csv",
        f"{error}, in the row on lines {first_line} to {lines.number}; expected quotes around whole cells and doubled "
        'quotes inside them. Check for an unclosed quote (").',
        value=first_line,
    )
    return TableRow(first_line, lines.raw(), problem=problem)


def _unquote(cell: str) -> str:
    """The cell without surrounding quotes that a CSV writer added: it has doubled quotes or a tab inside.

    The quotes around a quoted sentence have neither and stay.
    """
    if len(cell) < 2 or cell[0] != '"' or cell[-1] != '"':
        return cell
    inside = cell[1:-1]
    single = inside.replace('""', "")
    if '"' in single or (single == inside and "\t" not in inside):
        return cell
    return inside.replace('""', '"')
