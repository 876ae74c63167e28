"""MIMIC clinical notes: a row of NOTEEVENTS.csv (MIMIC-III) or of MIMIC-IV-Note is a document."""

from collections.abc import Iterator
from functools import partial

from lexome.document import Document, Passage, shorten
from lexome.errors import BadDocument, FormatError
from lexome.formats.rows import Row, csv_rows
from lexome.formats.streams import Source
from lexome.formats.tally import Tally
from lexome.metadata import ClinicalNote, Metadata

# The columns of both editions that are read.
_READ = frozenset(
    {
        "ROW_ID", "NOTE_ID", "SUBJECT_ID", "HADM_ID", "CATEGORY", "NOTE_TYPE", "DESCRIPTION", "CGID", "CHARTDATE",
        "CHARTTIME", "STORETIME", "ISERROR", "TEXT",
    }
)  # fmt: skip


def read(source: Source, *, tally: Tally, errors: bool = False, encoding: str = "utf-8") -> Iterator[Document]:
    """A document a note: its text exactly as charted, its subject, admission and category in meta.note.

    Notes that the record marks as entered in error (ISERROR is 1) are left out and counted;
    errors=True keeps them. The brackets of de-identification, [** **], stay in the text.
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
            tally.note("note entered in error (ISERROR) left out")


def _columns(header: Row | None, source: Source, encoding: str) -> list[str]:
    """The names in the header, in upper case."""
    if header is None:
        raise FormatError(f"{source.name}: the file is empty; expected a header and notes.")
    try:
        seen = header.cells(encoding)
    except BadDocument as error:
        raise FormatError(f"{source.name}, line {header.line}: {error}") from None
    columns = [name.strip().upper() for name in seen]
    if columns.count("TEXT") != 1 or columns.count("ROW_ID") + columns.count("NOTE_ID") != 1:
        names = shorten(", ".join(map(repr, seen)), 300)
        raise FormatError(
            f"{source.name}, line {header.line}: the header is {names}; expected the columns TEXT and ROW_ID "
            "(MIMIC-III) or note_id (MIMIC-IV), once each, beside SUBJECT_ID, HADM_ID and the like. A table with "
            "other columns can be read with --from tsv (in Python: format='tsv')."
        )
    return columns


def _document(row: Row, columns: list[str], encoding: str, tally: Tally) -> Document:
    cells = row.cells(encoding)
    if len(cells) != len(columns):
        raise BadDocument(
            "wrong_columns",
            f"there are {len(cells)} cells in the row; expected {len(columns)}: {', '.join(columns)}. "
            'Check for a quote (") that is not closed or not doubled.',
        )
    filled = {column: cell for column, cell in zip(columns, cells, strict=True) if cell}
    name = filled.get("ROW_ID") or filled.get("NOTE_ID")
    if name is None:
        raise BadDocument("no_id", "the note has no ROW_ID or note_id; expected one")
    for column in filled.keys() - _READ:
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
        # pandas writes the flag as 1.0, because most notes have none.
        error=filled.get("ISERROR") in ("1", "1.0"),
    )
    text = filled.get("TEXT")
    return Document(name, (Passage(0, text, "note"),) if text else (), meta=Metadata(note=note))
