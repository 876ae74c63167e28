"""A user's own dictionaries: opened from a table, an OBO file or an index, and found in text by name.

    index = open_terms("antibodies.tsv")                     # id, name and, if there are more columns, type
    finder = TermFinder([index])
    docs = finder(docs)                                      # a Step: mentions of the dictionary's types, with ids

A table has tabs between columns. Its first row may name them: id, name, names or synonyms (separated by bars), type,
taxon, xrefs. Without such a row the columns are id, name and type. An id without a prefix, such as LAB-17, becomes
local:LAB-17.
"""

import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from lexome.concepts.index import MAGIC, TermIndex
from lexome.concepts.index_writer import write_index
from lexome.concepts.matcher import CaseRule, NameMatcher
from lexome.concepts.sources import SourceOptions, read_terms
from lexome.concepts.terms import CURIE, Term, TermTable
from lexome.document import Document, Span, numbered_ids
from lexome.errors import FormatError
from lexome.formats import Tally
from lexome.formats.concept_ids import LOCAL
from lexome.formats.streams import uncompressed_name

# Types whose names are also compared by similarity. In a code, as of a gene, one character more is another gene.
SIMILAR_TYPES = ("Chemical", "Disease")
# The type of terms whose dictionary has none.
TERM = "Term"
_COLUMNS = ("id", "name", "names", "type", "taxon", "xrefs")
_COLUMN_NAMES = {**{name: name for name in _COLUMNS}, "synonyms": "names", "identifier": "id", "label": "name"}
_WITHOUT_PREFIX = re.compile(r"[^\s:]+")


def split_type(option: str) -> tuple[str | None, Path]:
    """The type and the path of FILE or TYPE=FILE; a file whose own name has an equals sign is taken as it is."""
    type_, equals, path = option.partition("=")
    if not equals or Path(option).exists() or "/" in type_:
        return None, Path(option)
    return type_, Path(path)


def open_terms(path: str | Path, *, type: str | None = None) -> TermIndex:
    """The index of a dictionary file; `type` is that of terms whose file has none.

    A file that `lexome build-terms` wrote is opened as it is, any other is read and indexed in memory.
    """
    path = Path(path)
    try:
        with path.open("rb") as stream:
            is_index = stream.read(len(MAGIC)) == MAGIC
    except OSError as error:
        message = f"{path}: cannot be opened ({error.strerror}). Check the path of the dictionary."
        raise FormatError(message, code="unreadable-file", value=path) from error
    return TermIndex.open(path) if is_index else _index_of(path, type)


def _index_of(path: Path, type: str | None) -> TermIndex:
    table, dropped = TermTable(), Counter[str]()
    tally = Tally()
    for term in _read(path, type, tally, dropped):
        is_local = CURIE.fullmatch(term.id) is None and _WITHOUT_PREFIX.fullmatch(term.id) is not None
        table.add(replace(term, id=f"{LOCAL}:{term.id}") if is_local else term)
    tally.raise_failures(str(path))
    dropped.update(table.dropped)
    if not len(table):
        reasons = "".join(f"; {count:,} {reason}" for reason, count in dropped.most_common(3))
        message = f"{path}: has no terms{reasons}. Expected an OBO file, or a table with tabs between id and name."
        raise FormatError(message, code="no-terms", value=path)
    # Several names for one id are how tables give synonyms.
    lost = {reason: count for reason, count in sorted(dropped.items()) if not reason.endswith("kept as synonym")}
    described = {"name": path.name, "dropped": lost}
    types = {entry.type for entry in table}.intersection(SIMILAR_TYPES)
    with tempfile.TemporaryDirectory(prefix="lexome-") as folder:
        file = Path(folder) / "terms"
        write_index(file, table, [described], near=types)
        return TermIndex(file.read_bytes(), str(path))


def dropped_terms(index: TermIndex) -> Counter[str]:
    """What was dropped when a table or an OBO file was indexed, by file and reason.

    None of an index that `lexome build-terms` wrote, which said so then.
    """
    read = (one for one in index.dictionaries if "license" not in one)
    return Counter({f"{one['name']}: {reason}": count for one in read for reason, count in one["dropped"].items()})


def _read(path: Path, type: str | None, tally: Tally, dropped: Counter[str]) -> Iterator[Term]:
    """The terms of an OBO file or a table."""
    if uncompressed_name(path.name).lower().endswith(".obo"):
        return read_terms(path, "obo", SourceOptions(type=type), tally=tally, dropped=dropped)
    header = _first_row(path)
    named = {_COLUMN_NAMES[name.lower()]: name for name in header if name.lower() in _COLUMN_NAMES}
    if "id" in named and ("name" in named or "names" in named):
        columns: dict[str, int | str] = dict(named)
    else:
        columns = dict(zip(("id", "name", "type"), range(min(3, len(header))), strict=False))
    if "name" not in columns and "names" not in columns:
        message = (
            f"{path}: its first row has one column; expected a text file with tabs between id, name and, optionally, "
            "type. From Excel, save it as 'Text (Tab delimited)'."
        )
        raise FormatError(message, code="missing-column", value=path)
    return read_terms(path, "tsv", SourceOptions(type=type or TERM, columns=columns), tally=tally, dropped=dropped)


def _first_row(path: Path) -> list[str]:
    from lexome.formats.streams import open_sources

    for source in open_sources(path, Tally()):
        for _, line in source.lines():
            row = line.decode(errors="replace").lstrip("\ufeff")
            if row.strip() and not row.startswith(("# ", "##")):
                return [name.strip() for name in row.lstrip("#").rstrip("\r\n").split("\t")]
    return []


class TermFinder:
    """Finds the names of dictionaries in documents, as mentions of the dictionaries' types; a Step when called.

    Of overlapping names the longest is found, and a name that overlaps a mention of its type adds nothing.
    """

    def __init__(self, indexes: Sequence[TermIndex], *, case: CaseRule = "auto") -> None:
        self.types = tuple(sorted({type for index in indexes for type in index.types}))
        ids: list[str] = []
        type_numbers: list[int] = []
        owners: list[int] = []

        def names() -> Iterator[str]:
            for index in indexes:
                for concept in index.concepts():
                    ids.append(concept.id)
                    type_numbers.append(self.types.index(concept.type))
                    for name in concept.names:
                        owners.append(len(ids) - 1)
                        yield name

        self._matcher = NameMatcher(names(), case=case)
        self._ids = ids
        self._type_numbers = np.array(type_numbers, np.uint16)
        self._owners = np.array(owners, np.uint32)

    def __call__(self, docs: Iterable[Document]) -> Iterator[Document]:
        """The documents with the names that are found."""
        return map(self.find, docs)

    def find(self, doc: Document, *, types: Sequence[str] | None = None) -> Document:
        """The document with mentions of `types`, by default of all types of the dictionaries."""
        passages = doc.passages
        taken = {type: _Ranges(span for span in doc.spans if span.type == type) for type in self.types}
        used = {span.id for span in doc.spans} | {relation.id for relation in doc.relations}
        ids = (id_ for id_ in numbered_ids("N") if id_ not in used)
        spans = list(doc.spans)
        for passage, hits in zip(passages, self._matcher.find_all([one.text for one in passages]), strict=True):
            for hit in hits:
                start, end = hit.start + passage.offset, hit.end + passage.offset
                by_type: dict[str, dict[str, None]] = {}
                for owner in self._owners[list(hit.names)].tolist():
                    by_type.setdefault(self.types[self._type_numbers[owner]], {})[self._ids[owner]] = None
                for type, concepts in by_type.items():
                    if (types is None or type in types) and not taken[type].overlaps(start, end):
                        text = passage.text[hit.start : hit.end]
                        spans.append(Span(next(ids), type, ((start, end),), text, tuple(concepts)))
        if len(spans) == len(doc.spans):
            return doc
        return replace(doc, spans=tuple(sorted(spans, key=lambda span: (span.start, span.end))))


class _Ranges:
    """The characters of mentions, by start, for asking whether another one overlaps."""

    def __init__(self, spans: Iterable[Span]) -> None:
        parts = sorted(part for span in spans for part in span.parts)
        self._starts = np.array([start for start, _ in parts], np.int64)
        self._ends = np.maximum.accumulate(np.array([end for _, end in parts], np.int64)) if parts else self._starts

    def overlaps(self, start: int, end: int) -> bool:
        before = int(np.searchsorted(self._starts, end))
        return before > 0 and bool(self._ends[before - 1] > start)
