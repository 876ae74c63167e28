"""MIMIC clinical notes: one document per row of NOTEEVENTS.csv (MIMIC-III) or MIMIC-IV-Note."""

from collections.abc import Iterator
from functools import partial

from lexome.document import Document, Passage, shorten
from lexome.errors import BadDocument, FormatError
from lexome.formats.rows import TableRow, csv_rows
from lexome.formats.streams import Source, empty_file
from lexome.formats.tally import Tally
from lexome.metadata import ClinicalNote, Metadata

# The columns that are read, of both editions.
_COLUMNS = frozenset(
    {
        "ROW_ID", "NOTE_ID", "SUBJECT_ID", "HADM_ID", "CATEGORY", "NOTE_TYPE", "DESCRIPTION", "CGID", "CHARTDATE",
        "CHARTTIME", "STORETIME", "ISERROR", "TEXT",
    }
)  # fmt: skip


def read(source: Source, *, tally: Tally, errors: bool = False, encoding: str = "utf-8") -> Iterator[Document]:
    """One document per note: its text as charted; subject, admission and category are in meta.note.

    Notes marked as entered in error (ISERROR is 1) are skipped and counted; errors=True keeps them. The
    de-identification brackets, [** **], stay in the text.
    """
    rows = csv_rows(source)
    columns = _columns(next(rows, None), source, encoding)
    for row in rows:
        doc = tally.attempt(
            partial(_document, row, columns, encoding, tally), where=f"{source.name}, line {row.line}", raw=row.raw
        )
        if doc is None:
            continue
        if errors or doc.meta.note is None or not doc.meta.note.error:
            yield doc
        else:
            tally.note("note entered in error (ISERROR) skipped")


def _columns(header: TableRow | None, source: Source, encoding: str) -> list[str]:
    """The column names, in upper case."""
    if header is None:
        raise empty_file(source)
    try:
        names = header.cells(encoding)
    except BadDocument as error:
        raise FormatError(
            f"{source.name}, line {header.line}: {error}", code=error.reason.replace("_", "-"), value=error.value
        ) from None
    columns = [name.strip().upper() for name in names]
    if columns.count("TEXT") != 1 or columns.count("ROW_ID") + columns.count("NOTE_ID") != 1:
        raise FormatError(
            f"{source.name}, line {header.line}: the header is {shorten(', '.join(map(repr, names)), 300)}; expected "
            "the columns TEXT and ROW_ID (MIMIC-III) or note_id (MIMIC-IV), once each. Tables with other columns can "
            "be read with --from tsv (in Python: format='tsv').",
            code="unknown-columns",
            value=source.name,
        )
    return columns


def _document(row: TableRow, columns: list[str], encoding: str, tally: Tally) -> Document:
    cells = row.cells(encoding)
    if len(cells) != len(columns):
        raise BadDocument(
            "wrong_columns",
            f"the row has {len(cells)} cells; expected {len(columns)}: {', '.join(columns)}. "
            'Check for a quote (") that is not closed or not doubled.',
            value=len(cells),
        )
    filled = {column: cell for column, cell in zip(columns, cells, strict=True) if cell}
    name = filled.get("ROW_ID") or filled.get("NOTE_ID")
    if name is None:
        raise BadDocument("no_id", "the note has no ROW_ID or note_id")
    for column in filled.keys() - _COLUMNS:
        tally.note(f"column {column!r} ignored")
    note = ClinicalNote(
        subject=filled.get("SUBJECT_ID"),
        admission=filled.get("HADM_ID"),
        category=filled.get("CATEGORY") or filled.get("NOTE_TYPE"),
        description=filled.get("DESCRIPTION"),
        caregiver=filled.get("CGID"),
        chart_date=filled.get("CHARTDATE"),
        chart_time=filled.get("CHARTTIME"),
        store_time=filled.get("STORETIME"),
        # pandas writes the flag as 1.0, because it is missing in most notes.
        error=filled.get("ISERROR") in ("1", "1.0"),
    )
    text = filled.get("TEXT")
    return Document(name, (Passage(0, text, "note"),) if text else (), meta=Metadata(note=note))
