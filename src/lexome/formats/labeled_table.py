"""Labeled tables, as in BLUE, BioBERT and LitCovid: one document per row."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from typing import Literal

from lexome.document import Document, lay_out, shorten
from lexome.errors import BadDocument, FormatError
from lexome.formats.citation import plain_pmid
from lexome.formats.rows import TableRow, csv_rows, split_separator, tsv_rows
from lexome.formats.streams import Source, printable_name, uncompressed_name
from lexome.formats.tally import Tally
from lexome.metadata import Metadata

# Known column names. pandas writes its index under an empty name.
_IDS = ("pairid", "guid", "id", "index", "", "pmid")
_TEXTS = {
    "title": "title", "abstract": "abstract", "text": "paragraph",
    "sentence": "sentence", "sentence1": "sentence", "sentence2": "sentence",
}  # fmt: skip
# The same columns in exports of Zotero and Web of Science.
_ALSO_CALLED = {"abstract note": "abstract", "article title": "title", "pubmed id": "pmid"}
_LABELS = ("label", "labels", "gold_label", "score")
# Columns of MedSTS and BIOSSES, and LitCovid's topics, which repeat its label.
_IGNORED = frozenset({"genre", "filename", "year", "old_index", "source1", "source2"}) | {
    topic.lower()
    for topic in (
        "Case Report", "Diagnosis", "Epidemic Forecasting", "Mechanism", "Prevention", "Transmission", "Treatment"
    )
}  # fmt: skip
_KNOWN = _IGNORED.union(_IDS, _TEXTS, _LABELS, ("keywords",))

_LAYOUTS = (
    "Expected a first row that names the column of the text (title, abstract, text or sentence) and, optionally, pmid "
    "or id, keywords and label; of datasets, also index, pairID, sentence1, sentence2, labels, gold_label and score."
)
_ADVICE = (
    "Rename the columns; or name them with the options text, id and label, by name or number, and say whether the "
    "first row names columns, in `lexome annotate` and `convert`: --set text=COLUMN[,COLUMN] --set id=COLUMN "
    "--set header=yes."
)


@dataclass(frozen=True)
class TableLayout:
    """The meaning of the columns, by index; the cells of `ids` are joined by full stops."""

    columns: tuple[str, ...]
    texts: tuple[tuple[int, str], ...]
    label: int | None = None
    ids: tuple[int, ...] = ()
    pmid: int | None = None
    keywords: int | None = None

    @cached_property
    def ignored(self) -> list[int]:
        """The columns that are ignored."""
        used = {*(index for index, _ in self.texts), *self.ids, self.label, self.pmid, self.keywords}
        return [index for index in range(len(self.columns)) if index not in used]


_CHEMPROT_PAIRS = TableLayout(
    ("label", "chemical type", "gene type", "distance 1", "distance 2", "sentence", "entity 1", "entity 2", "pmid"),
    texts=((5, "sentence"),),
    label=0,
    ids=(8, 6, 7),
    pmid=8,
)
_SENTENCE_LABEL = TableLayout(("sentence", "label"), texts=((0, "sentence"),), label=1)


def read(
    source: Source,
    *,
    tally: Tally,
    text: str = "",
    label: str = "",
    id: str = "",
    header: Literal["auto", "yes", "no"] = "auto",
    quotes: Literal["auto", "csv"] = "auto",
    encoding: str = "utf-8",
) -> Iterator[Document]:
    """One document per row, with its text (or title and abstract, or a pair of sentences), labels and id.

    Columns are recognized by their header names or by their number; `text`, `label` and `id` select others, by
    name or by number from 1. `text` may be several, separated by commas: their texts are passages in this order.
    Labels are split at ";". The id of a row without one is made of file and line.

    Cells are separated by commas or semicolons in a .csv file, by tabs otherwise. In tab-separated files a quote is
    text, except in a cell that a CSV writer must have quoted (it has doubled quotes or a tab inside). quotes="csv" also
    allows line breaks in quoted cells; it is implied if the whole first row is quoted.
    """
    declared, head = split_separator(source.head())
    head = head.split(b"\n", 1)[0]
    is_csv_file = source.extension == ".csv"
    # Excel writes semicolons where the comma is the decimal mark.
    delimiter = declared or (";" if is_csv_file and head.count(b";") > head.count(b",") else ",")
    commas = bool(declared) or (delimiter.encode() in head if is_csv_file else b"\t" not in head)
    all_quoted = re.fullmatch(rb'".*"\r?', head, re.DOTALL) is not None
    is_csv = commas or all_quoted or quotes == "csv"
    rows = csv_rows(source, delimiter if commas else "\t") if is_csv else tsv_rows(source)
    yield from read_rows(source, rows, (text, label, id), header=header, encoding=encoding, tally=tally)


def read_rows(
    source: Source,
    rows: Iterator[TableRow],
    named: tuple[str, str, str],
    *,
    header: str,
    tally: Tally,
    encoding: str = "utf-8",
    sheet: int = 1,
) -> Iterator[Document]:
    """One document per row; `named` are the columns of text, label and id, `sheet` the number of a workbook's sheet."""
    first = next(rows, None)
    if first is None:
        tally.note("empty table")
        return
    name = source.name if sheet == 1 else f"{source.name}, sheet {sheet}"
    try:
        cells = first.cells(encoding)
        layout, has_header = _layout(cells, named, header)
    except BadDocument as error:
        raise FormatError(
            f"{name}, line {first.line}: {error}", code=error.reason.replace("_", "-"), value=error.value
        ) from None
    # Inside an archive ids begin with the folders too, because folds have the same file names.
    member = source.member
    file = (
        source.stem if member is None else uncompressed_name(printable_name(member)).rpartition(".")[0] or member
    ) + (f"-{sheet}" if sheet > 1 else "")
    for row in rows if has_header else chain((first,), rows):
        if has_header and row.raw == first.raw:
            tally.note("header repeated between rows")
            continue
        make = partial(_document, row, layout, file, encoding, tally)
        known_id = partial(_known_id, row, layout, file, encoding)
        yield from tally.accept(make, where=f"{name}, line {row.line}", id=known_id, raw=row.raw)


def _layout(cells: list[str], named: tuple[str, str, str], header: str) -> tuple[TableLayout, bool]:
    """The layout, and whether the first row is a header."""
    by_name = any(part and not part.isdecimal() for name in named for part in name.split(","))
    lowered = _usual_names(cells)
    known = _are_articles(lowered) or all(name in _KNOWN for name in lowered)
    has_header = by_name or known if header == "auto" else header == "yes"
    if any(named) or has_header:
        return _layout_of_columns(cells if has_header else [], named, cells), has_header
    if len(cells) == 2 and " " in cells[0].strip():
        return _SENTENCE_LABEL, False
    if len(cells) == 9 and cells[1] == "CHEMICAL":
        return _CHEMPROT_PAIRS, False
    raise _unknown_columns("the columns are unknown", cells)


def _usual_names(columns: Iterable[str]) -> list[str]:
    """The columns' names in lower case, each by its usual name unless another column has that."""
    lowered = [column.strip().lower() for column in columns]
    return [name if (usual := _ALSO_CALLED.get(name, name)) in lowered else usual for name in lowered]


# Columns that only tables of mentions have.
_MENTION_TABLE = frozenset({"start", "end", "concept"})


def _are_articles(lowered: list[str]) -> bool:
    """Whether columns are those of articles: spreadsheets have columns of their own beside these, which are ignored."""
    texts, ids = {"title", "abstract", "text"}.intersection(lowered), {"pmid", "id", "title"}.intersection(lowered)
    return bool(texts and ids) and len(texts | ids) > 1 and not _MENTION_TABLE.issubset(lowered)


def _layout_of_columns(names: list[str], named: tuple[str, str, str], cells: list[str]) -> TableLayout:
    """The layout of a header, or of numbered columns if there are no names."""
    columns = tuple(name.strip() for name in names) or tuple(str(number + 1) for number in range(len(cells)))
    lowered = _usual_names(columns) if names else []
    unknown = [name for name in lowered if name not in _KNOWN]
    if unknown and not any(named) and not _are_articles(lowered):
        raise _unknown_columns(f"the columns {', '.join(map(repr, unknown[:20]))} are unknown", cells)
    names_of_texts = [named[0]] if named[0] in columns else [name.strip() for name in named[0].split(",")]
    selected = [index for name in names_of_texts if (index := _position(name, columns, cells)) is not None]
    label, id = (_position(name, columns, cells) for name in named[1:])
    if selected:
        texts = [(index, _TEXTS.get(columns[index].lower(), "paragraph")) for index in selected]
    else:
        texts = [(index, _TEXTS[name]) for index, name in enumerate(lowered) if name in _TEXTS]
    if not texts:
        raise _unknown_columns("there is no text column", cells)
    ids = [lowered.index(name) for name in _IDS if name in lowered] if id is None else [id]
    labels = [lowered.index(name) for name in _LABELS if name in lowered] if label is None else [label]
    return TableLayout(
        columns,
        tuple(texts),
        label=labels[0] if labels else None,
        ids=tuple(ids[:1]),
        pmid=lowered.index("pmid") if "pmid" in lowered else None,
        keywords=lowered.index("keywords") if "keywords" in lowered else None,
    )


def _position(name: str, columns: tuple[str, ...], cells: list[str]) -> int | None:
    """The index of the column with this name or number; None for an empty name."""
    if not name:
        return None
    if name in columns:
        return columns.index(name)
    if name.isdecimal() and len(name) < 9 and 1 <= int(name) <= len(columns):
        return int(name) - 1
    raise _unknown_columns(f"there is no column {name!r} among {len(columns)}", cells, value=name)


def _unknown_columns(problem: str, cells: list[str], *, value: str | None = None) -> BadDocument:
    row = ", ".join(repr(shorten(cell, 40)) for cell in cells[:20])
    message = f"{problem}; the first row is {row}. {_LAYOUTS} {_ADVICE}"
    if value is None and _MENTION_TABLE.issubset(cell.strip().lower() for cell in cells):
        message = (
            "this is a table of mentions, without their texts; expected texts. Read the documents that it was made "
            "from; `lexome link` gives ids to the mentions."
        )
    return BadDocument("unknown_columns", message, value=value)


def _cells(row: TableRow, layout: TableLayout, encoding: str) -> list[str]:
    """The cells of a row that has one for each column."""
    cells = row.cells(encoding, len(layout.columns))
    if len(cells) != len(layout.columns):
        raise BadDocument(
            "wrong_columns",
            f"the row has {len(cells)} cells; expected {len(layout.columns)}: {', '.join(layout.columns)}. "
            "A tab or line break inside a text must be quoted; for line breaks read with quotes=csv.",
            value=len(cells),
        )
    if layout.pmid is not None:
        cells[layout.pmid] = plain_pmid(cells[layout.pmid])
    return cells


def _document(row: TableRow, layout: TableLayout, file: str, encoding: str, tally: Tally) -> Document:
    cells = _cells(row, layout, encoding)
    texts = [(kind, cells[index]) for index, kind in layout.texts if cells[index]]
    if not texts:
        column = layout.columns[layout.texts[0][0]]
        raise BadDocument("no_text", f"the column {column!r} is empty; expected text", value=column)
    for index in layout.ignored:
        if cells[index]:
            tally.note(f"column {layout.columns[index]!r} ignored")
    return Document(
        _id(cells, row, layout, file),
        lay_out(texts),
        labels=_split_values(cells, layout.label),
        meta=Metadata(pmid=_cell(cells, layout.pmid), keywords=_split_values(cells, layout.keywords)),
    )


def _known_id(row: TableRow, layout: TableLayout, file: str, encoding: str) -> str:
    return _id(_cells(row, layout, encoding), row, layout, file)


def _id(cells: list[str], row: TableRow, layout: TableLayout, file: str) -> str:
    """The row's id; a bare row number is prefixed with the file name."""
    name = ".".join(cells[index] for index in layout.ids)
    if not name:
        return f"{file}-{row.line}"
    numbered = name.isdecimal() and layout.columns[layout.ids[0]].lower() in ("index", "")
    return f"{file}-{name}" if numbered else name


def _cell(cells: list[str], index: int | None) -> str | None:
    return (cells[index] or None) if index is not None else None


def _split_values(cells: list[str], index: int | None) -> tuple[str, ...]:
    values = (_cell(cells, index) or "").split(";")
    return tuple(value for part in values if (value := part.strip()))
