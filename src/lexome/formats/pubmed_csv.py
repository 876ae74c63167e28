"""PubMed's CSV export ("Save", format CSV): one citation per row, without abstracts."""

from collections.abc import Iterator
from functools import partial

from lexome.document import Document, Passage, shorten
from lexome.errors import BadDocument, FormatError
from lexome.formats.citation import parse_free_date
from lexome.formats.rows import TableRow, csv_rows
from lexome.formats.streams import Source, empty_file
from lexome.formats.tally import Tally
from lexome.metadata import Author, Journal, Metadata

_COLUMNS = (
    "PMID", "Title", "Authors", "Citation", "First Author", "Journal/Book", "Publication Year", "Create Date", "PMCID",
    "NIHMS ID", "DOI",
)  # fmt: skip


def read(source: Source, *, tally: Tally, encoding: str = "utf-8") -> Iterator[Document]:
    """One document per row: the title, which is the only text in this export.

    Save as "PubMed" (.nbib) instead to have the abstracts.
    """
    rows = csv_rows(source)
    header = next(rows, None)
    if header is None:
        raise empty_file(source)
    columns = [cell.strip() for cell in header.cells(encoding)]
    if not {"PMID", "Title"} <= set(columns):
        raise FormatError(
            f"{source.name}, line 1: the header is {shorten(', '.join(columns), 200)}; expected PubMed's: "
            f"{', '.join(_COLUMNS)}. Read other tables with --from csv (in Python: format=).",
            code="unknown-columns",
            value=source.name,
        )
    tally.note("PubMed's CSV export has no abstracts: titles only")
    for column in columns:
        if column not in _COLUMNS:
            tally.note(f"column {column!r} ignored")
    for row in rows:
        where = f"{source.name}, line {row.line}"
        pmid = partial(_pmid, row, columns, encoding)
        yield from tally.accept(partial(_document, row, columns, encoding), where=where, id=pmid, raw=row.raw)


def _pmid(row: TableRow, columns: list[str], encoding: str) -> str | None:
    return _filled(row, columns, encoding).get("PMID")


def _filled(row: TableRow, columns: list[str], encoding: str) -> dict[str, str]:
    """The cells that are not empty, by column."""
    cells = row.cells(encoding)
    if len(cells) != len(columns):
        message = f"the row has {len(cells)} cells; expected {len(columns)}: {', '.join(columns)}."
        raise BadDocument("wrong_columns", message, value=len(cells))
    return {column: cell.strip() for column, cell in zip(columns, cells, strict=True) if cell.strip()}


def _document(row: TableRow, columns: list[str], encoding: str) -> Document:
    filled = _filled(row, columns, encoding)
    pmid, title = filled.get("PMID"), filled.get("Title")
    if pmid is None or title is None:
        missing = "PMID" if pmid is None else "Title"
        raise BadDocument("no_id" if pmid is None else "no_text", f"the column {missing} is empty", value=missing)
    journal = filled.get("Journal/Book")
    authors = filled.get("Authors", "").rstrip(".").split(", ")
    meta = Metadata(
        pmid=pmid,
        pmcid=filled.get("PMCID"),
        doi=filled.get("DOI"),
        other_ids=(f"mid:{filled['NIHMS ID']}",) if "NIHMS ID" in filled else (),
        journal=Journal(abbreviation=journal) if journal else None,
        published=parse_free_date(filled.get("Publication Year", "")),
        authors=tuple(map(_author, filter(None, authors))),
    )
    return Document(pmid, (Passage(0, title, "title"),), meta=meta)


def _author(name: str) -> Author:
    """Family name and initials: "van der Berg AB"."""
    family, _, initials = name.rpartition(" ")
    return Author(family or initials, initials=initials if family else None)
