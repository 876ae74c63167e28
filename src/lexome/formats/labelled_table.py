"""Tables of labelled texts, as BLUE, BioBERT and LitCovid write them: a row is a document."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from typing import Literal

from lexome.document import Document, lay_out, shorten
from lexome.errors import BadDocument, FormatError
from lexome.formats.rows import Row, csv_rows, tsv_rows
from lexome.formats.streams import Source, uncompressed_name
from lexome.formats.tally import Tally
from lexome.metadata import Metadata

# The columns of a header whose meaning is known. pandas writes its index under an empty name.
_IDS = ("pairid", "guid", "id", "index", "", "pmid")
_TEXTS = {
    "title": "title",
    "abstract": "abstract",
    "text": "paragraph",
    "sentence": "sentence",
    "sentence1": "sentence",
    "sentence2": "sentence",
}
_LABELS = ("label", "labels", "gold_label", "score")
# MedSTS's and BIOSSES's own columns, and LitCovid's topics, which repeat what its label says.
_UNREAD = frozenset({"genre", "filename", "year", "old_index", "source1", "source2"}) | {
    topic.lower()
    for topic in (
        "Case Report", "Diagnosis", "Epidemic Forecasting", "Mechanism", "Prevention", "Transmission", "Treatment"
    )
}  # fmt: skip
_KNOWN = _UNREAD.union(_IDS, _TEXTS, _LABELS, ("keywords",))

_LAYOUTS = (
    "with a header any of index, id, pmid, pairID, title, abstract, text, sentence, sentence1, sentence2, keywords, "
    "label, labels, gold_label, score; without one, either a sentence and its label, or ChemProt pairs in nine columns "
    "(label, CHEMICAL, GENE-Y or GENE-N, two distances, sentence, two entities, PMID)"
)
_ADVICE = (
    "Name the columns with the options text, label and id, by name or number (text=2), and say with header=yes or "
    "header=no whether the first row is a header."
)


@dataclass(frozen=True)
class Layout:
    """Which cell of a row is what, by position; `ids` are joined by full stops."""

    columns: tuple[str, ...]
    texts: tuple[tuple[int, str], ...]
    label: int | None = None
    ids: tuple[int, ...] = ()
    pmid: int | None = None
    keywords: int | None = None

    @cached_property
    def unread(self) -> list[int]:
        """The columns that nothing is made of."""
        read = {*(index for index, _ in self.texts), *self.ids, self.label, self.pmid, self.keywords}
        return [index for index in range(len(self.columns)) if index not in read]


_CHEMPROT_PAIRS = Layout(
    ("label", "chemical type", "gene type", "distance 1", "distance 2", "sentence", "entity 1", "entity 2", "pmid"),
    texts=((5, "sentence"),),
    label=0,
    ids=(8, 6, 7),
    pmid=8,
)
_SENTENCE_LABEL = Layout(("sentence", "label"), texts=((0, "sentence"),), label=1)


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
    """A document a row, with its text (or title and abstract, or a pair of sentences), labels and id.

    The columns are known by their header or their number; `text`, `label` and `id` name others, by
    name or by number from 1. Labels are cut at ";". A row without an id is called by file and line.

    Commas part the cells of a .csv file, tabs those of others. Between tabs a quote is text, and never
    reaches over the end of its line; but a cell that a CSV writer must have quoted (the quotes inside
    it are doubled, or there is a tab) is read as it was before. quotes="csv" allows line breaks too,
    and is understood where the first row is quoted throughout.
    """
    rows = _rows(source, quotes)
    first = next(rows, None)
    if first is None:
        tally.note("empty table")
        return
    try:
        cells = first.cells(encoding)
        layout, has_header = _layout(cells, (text, label, id), header)
    except BadDocument as error:
        raise FormatError(f"{source.name}, line {first.line}: {error}") from None
    file = _file_name(source)
    for row in rows if has_header else chain((first,), rows):
        if has_header and row.raw == first.raw:
            tally.note("header repeated between rows")
            continue
        make = partial(_document, row, layout, file, encoding, tally)
        doc = tally.attempt(make, where=f"{source.name}, line {row.line}", raw=row.raw)
        if doc is not None:
            yield doc


def _rows(source: Source, quotes: str) -> Iterator[Row]:
    first = source.head().lstrip(b"\r\n").split(b"\n", 1)[0]
    commas = b"," in first if source.extension == ".csv" else b"\t" not in first
    all_quoted = re.fullmatch(rb'".*"\r?', first, re.DOTALL) is not None
    if commas or all_quoted or quotes == "csv":
        return csv_rows(source, "," if commas else "\t")
    return tsv_rows(source)


def _layout(cells: list[str], named: tuple[str, str, str], header: str) -> tuple[Layout, bool]:
    """What the columns are, and whether the first row is a header."""
    by_name = any(name and not name.isdecimal() for name in named)
    known = all(cell.strip().lower() in _KNOWN for cell in cells)
    has_header = by_name or known if header == "auto" else header == "yes"
    if any(named) or has_header:
        return _headed(cells if has_header else [], len(cells), named, cells), has_header
    if len(cells) == 2 and " " in cells[0].strip():
        return _SENTENCE_LABEL, False
    if len(cells) == 9 and cells[1] == "CHEMICAL":
        return _CHEMPROT_PAIRS, False
    raise _unknown("its columns are not known", cells)


def _headed(names: list[str], width: int, named: tuple[str, str, str], cells: list[str]) -> Layout:
    """The layout of a header, or of numbered columns where there are no names."""
    columns = tuple(name.strip() for name in names) or tuple(str(number + 1) for number in range(width))
    lowered = [name.lower() for name in columns] if names else []
    strange = [name for name in lowered if name not in _KNOWN]
    if strange and not any(named):
        raise _unknown(f"the columns {', '.join(map(repr, strange[:20]))} are not known", cells)
    text, label, id = (_position(name, columns, cells) for name in named)
    found = [(index, _TEXTS[name]) for index, name in enumerate(lowered) if name in _TEXTS]
    texts = [(text, _TEXTS.get(columns[text].lower(), "paragraph"))] if text is not None else found
    if not texts:
        raise _unknown("no column holds a text", cells)
    ids = [lowered.index(name) for name in _IDS if name in lowered] if id is None else [id]
    labels = [lowered.index(name) for name in _LABELS if name in lowered] if label is None else [label]
    return Layout(
        columns,
        tuple(texts),
        label=labels[0] if labels else None,
        ids=tuple(ids[:1]),
        pmid=lowered.index("pmid") if "pmid" in lowered else None,
        keywords=lowered.index("keywords") if "keywords" in lowered else None,
    )


def _position(name: str, columns: tuple[str, ...], cells: list[str]) -> int | None:
    """Where the column of this name or number is; None for no name."""
    if not name:
        return None
    if name in columns:
        return columns.index(name)
    if name.isdecimal() and len(name) < 9 and 1 <= int(name) <= len(columns):
        return int(name) - 1
    raise _unknown(f"there is no column {name!r} among {len(columns)}", cells)


def _unknown(problem: str, cells: list[str]) -> BadDocument:
    seen = ", ".join(repr(shorten(cell, 40)) for cell in cells[:20])
    return BadDocument("unknown_columns", f"{problem}; the first row is {seen}. Known are: {_LAYOUTS}. {_ADVICE}")


def _file_name(source: Source) -> str:
    """What ids begin with: the file's name, inside an archive with its folders, where folds are called alike."""
    member = source.member
    return source.stem if member is None else uncompressed_name(member).rpartition(".")[0] or member


def _document(row: Row, layout: Layout, file: str, encoding: str, tally: Tally) -> Document:
    cells = row.cells(encoding, len(layout.columns))
    if len(cells) != len(layout.columns):
        raise BadDocument(
            "wrong_columns",
            f"there are {len(cells)} cells in the row; expected {len(layout.columns)}: {', '.join(layout.columns)}. "
            "A tab or line break inside a text must be quoted; for line breaks read with quotes=csv.",
        )
    texts = [(kind, cells[index]) for index, kind in layout.texts if cells[index]]
    if not texts:
        raise BadDocument("no_text", f"{layout.columns[layout.texts[0][0]]!r} is empty; expected a text")
    for index in layout.unread:
        if cells[index]:
            tally.note(f"column {layout.columns[index]!r} ignored")
    return Document(
        _id(cells, row, layout, file),
        lay_out(texts),
        labels=_listed(cells, layout.label),
        meta=Metadata(pmid=_cell(cells, layout.pmid), keywords=_listed(cells, layout.keywords)),
    )


def _id(cells: list[str], row: Row, layout: Layout, file: str) -> str:
    """The row's own id; a row's number alone, the file's or the table's, follows the file's name."""
    name = ".".join(cells[index] for index in layout.ids)
    if not name:
        return f"{file}-{row.line}"
    numbered = name.isdecimal() and layout.columns[layout.ids[0]].lower() in ("index", "")
    return f"{file}-{name}" if numbered else name


def _cell(cells: list[str], index: int | None) -> str | None:
    return (cells[index] or None) if index is not None else None


def _listed(cells: list[str], index: int | None) -> tuple[str, ...]:
    """The values of a cell, which semicolons part."""
    joined = _cell(cells, index) or ""
    return tuple(value for part in joined.split(";") if (value := part.strip()))
