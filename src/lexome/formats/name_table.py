"""Lists and tables of names, as users have them: columns are known by their names in the first row.

    name,id,type              term<TAB>identifier              BRCA1
    anti-CD3,LAB-17,Antibody  anti-CD3<TAB>LAB-17              TP53

`open_tables` finds rows and columns, for dictionaries too; `read` is the format "names", one mention per row. Cells are
separated by tabs, commas or semicolons. Column names are compared without case, underscores and hyphens.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby, islice
from operator import itemgetter

from lexome.document import Attribute, Document, Passage, Span, shorten
from lexome.errors import BadDocument, FormatError
from lexome.formats.citation import plain_pmid
from lexome.formats.concept_ids import parse_ids
from lexome.formats.mention_table import COLUMNS
from lexome.formats.rows import TableRow, csv_rows, split_separator, tsv_rows
from lexome.formats.streams import Source, as_utf8, require_text
from lexome.formats.tally import Tally
from lexome.metadata import Metadata

# The names of columns by meaning, in lower case with spaces; if several columns have one meaning, in this order.
COLUMN_NAMES: Mapping[str, tuple[str, ...]] = {
    "mention": ("mention", "text", "mention text", "entity", "string", "surface form"),
    "name": ("name", "term", "label", "symbol", "preferred name", "preferred term", "preferred label"),
    "names": ("names", "synonyms", "synonym", "aliases", "alias", "other names", "alternative names", "also known as"),
    "concept": ("concept", "concepts", "concept id", "concept ids", "curie"),
    "id": ("id", "identifier", "term id", "accession", "code", "database id"),
    "type": ("type", "entity type", "mention type", "semantic type", "category", "class", "kind"),
    "taxon": ("taxon", "taxon id", "tax id", "taxid", "ncbi taxon", "ncbi taxon id", "ncbi tax id", "ncbi taxid"),
    "xrefs": ("xrefs", "xref", "cross references", "cross reference", "db xrefs", "dbxrefs"),
    "document": ("document", "document id", "doc", "doc id"),
    "pmid": ("pmid",),
}  # fmt: skip
_MEANING = {name: meaning for meaning, names in COLUMN_NAMES.items() for name in names}
# "Gene symbol", "MeSH ID", "HGNC aliases": the last word decides, if no column has the plain name.
_LAST_WORD = {
    "id": "id", "identifier": "id", "accession": "id", "name": "name", "symbol": "name", "term": "name",
    "label": "name", "synonyms": "names", "synonym": "names", "aliases": "names", "alias": "names", "type": "type",
}  # fmt: skip
# A column that is named after a type holds names of that type.
_TYPE_COLUMNS = {
    "gene": "Gene", "genes": "Gene", "protein": "Gene", "disease": "Disease", "diseases": "Disease",
    "chemical": "Chemical", "drug": "Chemical", "compound": "Chemical", "species": "Species", "organism": "Species",
    "cell line": "CellLine", "cell lines": "CellLine", "variant": "Variant", "mutation": "Variant",
}  # fmt: skip
_SEPARATORS = re.compile(r"[\s_.-]+")
# A first row without digits, above rows that have some, is a header without any known column.
_HAS_DIGIT = re.compile(r"[0-9]")
# The dates that spreadsheets make of the genes SEPT1, MARCH1 and DEC1.
_DATE = re.compile(
    r"\d{1,2}-(?:Mar|Sep|Oct|Dec)|(?:Mar|Sep|Oct|Dec)-\d{1,2}|\d{4}-\d\d-\d\d(?:[ T]00:00:00)?|\d\d?/\d\d?/\d{4}",
    re.IGNORECASE,
)
_SAMPLE = 20
DATE_NOTE = "gene that a spreadsheet turned into a date, such as 1-Sep for SEPT1: correct it in the table"


@dataclass(frozen=True)
class NameTable:
    """A table of a file: its columns by meaning, and its rows with their line numbers.

    `columns` is None if the first row does not name columns; `header` are the names as they are written. `type` is
    that of all names if their column is named after it, such as Gene.
    """

    header: tuple[str, ...]
    columns: Mapping[str, tuple[int, ...]] | None
    rows: Iterator[tuple[TableRow, list[str]]]
    type: str | None = None


def find_columns(cells: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """The columns of each meaning, by position; empty if none is known.

    >>> find_columns(["Gene symbol", "MeSH ID", "Entity_Type"])
    {'type': (2,), 'name': (0,), 'id': (1,)}
    """
    plain = [_plain(cell) for cell in cells]
    ranked: dict[str, list[tuple[int, int]]] = {}
    for position, name in enumerate(plain):
        if name in _MEANING:
            meaning = _MEANING[name]
            ranked.setdefault(meaning, []).append((COLUMN_NAMES[meaning].index(name), position))
    columns = {meaning: tuple(position for _, position in sorted(positions)) for meaning, positions in ranked.items()}
    more: dict[str, list[int]] = {}
    for position, name in enumerate(plain):
        meaning = _LAST_WORD.get(name.rpartition(" ")[2], "")
        if name not in _MEANING and meaning and meaning not in columns:
            more.setdefault(meaning, []).append(position)
    # Several columns of ids, such as a gene's and its protein's, are ambiguous.
    columns |= {meaning: tuple(at) for meaning, at in more.items() if meaning != "id" or len(at) == 1}
    if not columns.keys() & {"name", "mention", "names"}:
        typed = tuple(position for position, name in enumerate(plain) if name in _TYPE_COLUMNS)
        columns |= {"name": typed} if len(typed) == 1 else {}
    return columns


def _plain(name: str) -> str:
    return _SEPARATORS.sub(" ", name.strip().lstrip("#").strip().casefold()).strip()


def open_tables(source: Source, tally: Tally) -> Iterator[NameTable]:
    """The table of a text file, or those of the sheets of an Excel file."""
    if source.extension == ".xlsx":
        from lexome.formats.office import extract, sheet_rows

        for _, items in groupby(extract(source, "xlsx", tally), key=itemgetter(1)):
            yield from _table(sheet_rows(items))
        return
    require_text(source, "names")
    source = as_utf8(source, tally, line_ends=True)
    delimiter = _delimiter(source)
    yield from _table(tsv_rows(source) if delimiter in ("\t", "") else csv_rows(source, delimiter))


def _table(rows: Iterator[TableRow]) -> Iterator[NameTable]:
    cells = ((row, _cells(row)) for row in rows)
    first = next(((row, line) for row, line in cells if not line[0].startswith(("# ", "##"))), None)
    if first is None:
        return
    header = first[1]
    columns = find_columns(header)
    # A name may be the name of a column: BRCA1, "label", Term. A row that names columns has no ids.
    named = bool(columns) and min(map(min, columns.values())) < 2 and not any(":" in cell for cell in header)
    below = (item for item in cells if not item[0].raw.startswith(b"#\t"))
    if named:
        [name, *_] = columns.get("name", (None,))
        type = None if name is None else _TYPE_COLUMNS.get(_plain(header[name]))
        yield NameTable(tuple(header), columns, below, type)
    else:
        yield NameTable(tuple(header), None, chain([first], below))


def _cells(row: TableRow) -> list[str]:
    try:
        return [unquote_cell(cell) for cell in row.cells("utf-8")]
    except BadDocument:
        return [""]  # _mention raises it again, where it is counted


def unquote_cell(cell: str) -> str:
    """The cell without the quotes that Excel puts around a cell with a comma, even in a tab-separated file."""
    cell = cell.strip()
    return cell[1:-1].replace('""', '"').strip() if len(cell) > 1 and cell[0] == cell[-1] == '"' else cell


def _delimiter(source: Source) -> str:
    """The delimiter of the cells of a text file; "" if each line is one name."""
    declared, head = split_separator(source.head())
    if declared:
        return declared
    lines = (line for line in head.decode(errors="replace").splitlines() if line.strip())
    first = next((line for line in lines if not line.startswith(("# ", "##"))), "")
    if "\t" in first:
        return "\t"
    likely = max(",;", key=first.count)
    if source.extension == ".csv":
        return likely
    # Names such as those of chemicals contain commas: in other files, only a header shows the delimiter.
    return likely if len(find_columns(map(unquote_cell, first.split(likely)))) > 1 else ""


def looks_like_header(header: tuple[str, ...], rows: list[list[str]]) -> bool:
    """Whether a row of unknown names is a header: it has no digit in its first cell, and all below have."""
    return bool(rows) and not _HAS_DIGIT.search(header[0]) and all(_HAS_DIGIT.search(row[0]) for row in rows)


def peek(rows: Iterator[tuple[TableRow, list[str]]]) -> tuple[list[list[str]], Iterator[tuple[TableRow, list[str]]]]:
    """The cells of the first rows, and all rows."""
    sample = list(islice(rows, _SAMPLE))
    return [cells for _, cells in sample], chain(sample, rows)


def read(source: Source, *, tally: Tally, type: str = "") -> Iterator[Document]:
    """One document with one mention per row, or per line of a list: the name, its type, and the ids that it may have.

    The name is in a column mention, text, name, term, label or symbol, or in the only one; a column named after a type,
    such as Gene, has names of this type. `type` is that of names without a column type. Columns id or document give the
    ids of documents, a column concept the ids of the mentions. Other columns are attributes of the mentions.
    """
    for table in open_tables(source, tally):
        at = _places(table)
        if "mention" not in at:
            raise FormatError(_unknown(source, table.header), code="missing-column", value=source.name)
        default = type or table.type or ""
        if not default and "type" not in at:
            seen = f"columns {', '.join(table.header)}" if len(table.header) > 1 else "only names"
            message = (
                f"{source.name}: has {seen}, and no column of types such as Gene or Disease. Name the type of all "
                "with --type TYPE (in Python: type=), or add a column called type."
            )
            raise FormatError(message, code="missing-type", value=source.name)
        layout = _Layout(at, _other_columns(table), default, source.stem)
        unread = {} if table.columns is None else dict(enumerate(table.header))
        ignored = [name for place, name in unread.items() if place not in {*at.values(), *layout.others}]
        for row, cells in table.rows:
            make = partial(_mention, row, cells, layout, tally)
            where, known_id = f"{source.name}, line {row.line}", partial(_id, cells, layout)
            for doc in tally.accept(make, where=where, id=known_id, raw=row.raw):
                for name in ignored:
                    tally.note(f"column {name!r} ignored")
                yield doc


@dataclass(frozen=True)
class _Layout:
    """The columns of a mention, the user's other columns, the type of names without one, and the file."""

    at: Mapping[str, int]
    others: Mapping[int, str]
    type: str
    file: str


def _places(table: NameTable) -> dict[str, int]:
    """The columns of the name, its type and ids, and the id of the document; without a header, a list of names."""
    columns = table.columns
    if columns is None:
        return {"mention": 0} if len(table.header) == 1 else {}
    by_meaning = {
        "mention": columns.get("mention") or columns.get("name"),
        "document": columns.get("document") or columns.get("id"),
        **{meaning: columns.get(meaning) for meaning in ("type", "concept", "pmid")},
    }
    return {meaning: positions[0] for meaning, positions in by_meaning.items() if positions}


def other_columns(source: Source) -> list[str]:
    """The names of the columns that hold neither names nor their types and ids."""
    return list(
        dict.fromkeys(name for table in open_tables(source, Tally()) for name in _other_columns(table).values())
    )


def _other_columns(table: NameTable) -> dict[int, str]:
    """The user's other columns by position, without those that Lexome computes for the tables that it writes."""
    used = _places(table).values()
    return {
        position: name or f"column {position + 1}"
        for position, name in enumerate(table.header if table.columns is not None else ())
        if position not in used and name.lower() not in COLUMNS
    }


def _values(cells: list[str], layout: _Layout) -> dict[str, str]:
    return {meaning: cells[place] if place < len(cells) else "" for meaning, place in layout.at.items()}


def _id(cells: list[str], layout: _Layout) -> str | None:
    values = _values(cells, layout)
    return values.get("document") or plain_pmid(values.get("pmid", "")) or None


def _mention(row: TableRow, cells: list[str], layout: _Layout, tally: Tally) -> Document:
    if row.problem is not None:
        raise row.problem
    values = _values(cells, layout)
    text, type = values["mention"], values.get("type") or layout.type
    if not text or not type:
        missing = "name" if not text else "type"
        raise BadDocument(f"no_{missing}", f"the row has no {missing}: {shorten(', '.join(cells))}", value=missing)
    if type.lower() == "gene" and _DATE.fullmatch(text):
        tally.note(DATE_NOTE)
    concepts: dict[str, None] = {}
    for part in values.get("concept", "").split(";"):
        ids, notes = parse_ids(part, None)
        concepts |= dict.fromkeys(ids)
        for note in notes:
            tally.note(note)
    pmid = plain_pmid(values.get("pmid", ""))
    name = _id(cells, layout) or f"{layout.file}-{row.line}"
    span = Span("T1", type, ((0, len(text)),), text, tuple(concepts))
    attributes = tuple(
        Attribute(f"A{number}", "T1", column, cells[place])
        for number, (place, column) in enumerate(layout.others.items(), 1)
        if place < len(cells) and cells[place]
    )
    return Document(name, (Passage(0, text),), (span,), attributes=attributes, meta=Metadata(pmid=pmid or None))


def _unknown(source: Source, header: tuple[str, ...]) -> str:
    return (
        f"{source.name}: its columns are {', '.join(map(repr, header[:20]))}, none of which is recognized as the "
        "column of names. Name that column in the first row: name, term, text, mention, label, symbol, or as the type, "
        "such as gene."
    )
