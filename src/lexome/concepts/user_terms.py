"""A user's own dictionaries: opened from a table, an OBO file or an index, and found in text by name.

    index = open_terms("antibodies.tsv")                     # id, name and, if there are more columns, type
    finder = TermFinder([index])
    docs = finder(docs)                                      # a Step: mentions of the dictionary's types, with ids

A table is a text file with tabs, commas or semicolons between columns, or an Excel file. Its first row may name the
columns, as `formats.name_table` says: id, name, synonyms (separated by bars or semicolons), type, taxon, xrefs. Without
such a row they are id, name and type. An id without a prefix, such as LAB-17, becomes local:LAB-17. In a list of names,
each name is its own id.
"""

import re
import tempfile
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from lexome.concepts.index import MAGIC, TermIndex
from lexome.concepts.index_writer import MAX_CONCEPTS, write_index
from lexome.concepts.matcher import CaseRule, NameMatcher
from lexome.concepts.sources import SourceOptions, read_terms, taxon_curie, to_curie
from lexome.concepts.terms import CURIE, Term, TermTable
from lexome.document import Document, Range, Span, as_names, numbered_ids, shorten
from lexome.errors import FormatError
from lexome.formats import Tally
from lexome.formats.concept_ids import LOCAL
from lexome.formats.name_table import NameTable, looks_like_header, open_tables, peek
from lexome.formats.streams import open_sources, uncompressed_name
from lexome.formats.tally import drop_dependents

# Types whose names are also compared by similarity. In a code, as of a gene, one character more is another gene.
SIMILAR_TYPES = ("Chemical", "Disease")
_NAMED_BY_ITSELF = "term without an id, which gets its name as id"
# The type of terms whose dictionary has none.
TERM = "Term"
# More are no types, but names or definitions: each document is searched type by type.
MAX_TYPES = 1_000
_USUAL_TYPES = {name.casefold(): name for name in ("Gene", "Disease", "Chemical", "Species", "CellLine", "Variant")}
# SEPT2 and MARCH1 where Excel has read them as dates, and the errors of its formulas.
_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_SPOILED = re.compile(rf"\d{{4}}-\d\d-\d\d(?: [\d:]+)?|\d{{1,2}}-(?:{_MONTHS})|#(?:N/A|[A-Z]+[!?]|DIV/0!)")
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
        if re.search(r"\s", term.id):
            dropped["row whose id has a space"] += 1
            continue
        is_local = CURIE.fullmatch(term.id) is None and _WITHOUT_PREFIX.fullmatch(term.id) is not None
        table.add(replace(term, id=f"{LOCAL}:{term.id}") if is_local else term)
    tally.raise_failures(str(path))
    dropped.update(table.dropped + tally.notes)
    if not len(table):
        reasons = "".join(f"; {count:,} {reason}" for reason, count in dropped.most_common(3))
        message = f"{path}: has no terms{reasons}. Expected an OBO file, or a table of ids and names."
        raise FormatError(message, code="no-terms", value=path)
    if len(found := {entry.type for entry in table}) > MAX_TYPES:
        message = (
            f"{path}: {len(found):,} types, such as {shorten(min(found))!r}; expected at most {MAX_TYPES:,}. Without a "
            "first row with names of columns, the third column has the types: name the columns, or remove it."
        )
        raise FormatError(message, code="too-many-types", value=len(found))
    # Several names for one id are how tables give synonyms.
    lost = {reason: count for reason, count in sorted(dropped.items()) if not reason.endswith("kept as synonym")}
    described = {"name": path.name, "dropped": lost}
    types = found.intersection(SIMILAR_TYPES)
    with tempfile.TemporaryDirectory(prefix="lexome-") as folder:
        file = Path(folder) / "terms"
        write_index(file, table, [described], near=types)
        return TermIndex(file.read_bytes(), str(path))


def dropped_terms(index: TermIndex) -> Counter[str]:
    """Counts of terms dropped when a table or an OBO file was indexed, by file and reason.

    Empty for an index that `lexome build-terms` wrote, since that has reported them.
    """
    read = (one for one in index.dictionaries if "license" not in one)
    names = index.header["counts"]["dropped"]
    return Counter(
        {f"{one['name']}: {reason}": count for one in read for reason, count in {**one["dropped"], **names}.items()}
    )


def disagreements(indexes: Sequence[TermIndex]) -> Counter[str]:
    """Names and ids about which a dictionary contradicts an earlier one, which decides, by file.

    A name contradicts if it has other ids for the same type, an id if it has another type.
    """
    counts = Counter[str]()
    ids_of: dict[tuple[str, str], set[str]] = {}
    type_of: dict[str, str] = {}
    for index in indexes if len(indexes) > 1 else ():
        name = Path(index.name).name
        own: dict[tuple[str, str], set[str]] = {}
        for concept in index.concepts():
            if type_of.setdefault(concept.id, concept.type) != concept.type:
                counts[f"{name}: id that has another type in an earlier dictionary"] += 1
            for one in concept.names:
                own.setdefault((concept.type, one.casefold()), set()).add(concept.id)
        other = sum(not ids <= ids_of.setdefault(key, ids) for key, ids in own.items())
        counts[f"{name}: name that has other ids in an earlier dictionary"] += other
    return +counts


def _read(path: Path, type: str | None, tally: Tally, dropped: Counter[str]) -> Iterator[Term]:
    """The terms of an OBO file or a table."""
    if uncompressed_name(path.name).lower().endswith(".obo"):
        usual = None if type is None else _usual_type(type)
        return read_terms(path, "obo", SourceOptions(type=usual), tally=tally, dropped=dropped)
    return _table_terms(path, type, tally, dropped)


# Each line would be taken as a name. A name may begin with a bracket, as [18F]FDG does.
_MARKUP = (b"{", b"[{", b"<?xml", b"<!DOCTYPE", b"<rdf", b"@prefix")


def _table_terms(path: Path, type: str | None, tally: Tally, dropped: Counter[str]) -> Iterator[Term]:
    """The terms of a table; `dropped` counts rows that are no terms, and missing types.

    A workbook may have sheets of notes beside those of terms.
    """
    problems: list[FormatError] = []
    tables = 0
    for source in open_sources(path, tally):
        if source.head().lstrip(b"\xef\xbb\xbf \t\r\n").startswith(_MARKUP):
            message = f"{path}: JSON, XML or RDF; expected a table of ids and names, or an OBO file. Convert it to one."
            raise FormatError(message, code="not-a-dictionary", value=path)
        for table in open_tables(source, tally):
            sample, rows = peek(table.rows)
            try:
                at = _columns(path, table, sample, is_text=source.extension != ".xlsx")
            except FormatError as error:
                problems.append(error)
                continue
            tables += 1
            width = max(len(table.header), *(max(positions) + 1 for positions in at.values()))
            least = max(*at.get("id", (0,)), min((*at.get("name", ()), *at.get("names", ())))) + 1
            for _, cells in rows:
                if len(cells) < least:
                    dropped["row with too few columns"] += 1
                    continue
                if len(cells) > width:
                    dropped["row with more cells than columns, which were ignored"] += 1
                cells += [""] * (width - len(cells))
                own = cells[at["type"][0]] if "type" in at else ""
                needs_type = "type" in at and table.columns is not None
                id_ = cells[at["id"][0]] if "id" in at else _id_of_name(cells[at["name"][0]])
                if not id_ or (needs_type and not (own or type)):
                    missing = "a type" if id_ else "an id" if "id" in at else "a name"
                    dropped[f"row without {missing}"] += 1
                    continue
                if "id" not in at:
                    dropped[_NAMED_BY_ITSELF] += 1
                yield _term(id_, cells, at, _usual_type(own or type or table.type or TERM), dropped)
    if problems and not tables:
        raise problems[0]
    if problems:
        dropped["sheet or file without columns of ids and names"] += len(problems)


def _id_of_name(name: str) -> str:
    """The id of a name in a list without ids: local:breast_cancer; "" of an empty one."""
    return f"{LOCAL}:" + re.sub(r"[\s:]+", "_", name) if name else ""


def _term(id: str, cells: list[str], at: Mapping[str, tuple[int, ...]], type: str, dropped: Counter[str]) -> Term:
    values = {meaning: [cells[position] for position in positions] for meaning, positions in at.items()}
    synonyms = [part.strip() for cell in values.get("names", ()) for part in _split(cell)]
    names = [*values.get("name", [""]), *synonyms]
    preferred, *others = ("" if _SPOILED.fullmatch(name) else name for name in names)
    if spoiled := sum(_SPOILED.fullmatch(name) is not None for name in names):
        dropped["name that Excel turned into a date or an error"] += spoiled
    xrefs = tuple(to_curie(part) for cell in values.get("xrefs", ()) for part in _split(cell) if part.strip())
    cell = next(filter(None, values.get("taxon", ())), None)
    taxon = None if cell is None else taxon_curie(cell, dropped)
    return Term(to_curie(id), type, preferred, tuple(filter(None, others)), taxon, xrefs)


def _split(cell: str) -> list[str]:
    """Several names in one cell, between bars, or where it has none between semicolons."""
    return cell.split("|" if "|" in cell else ";")


def _columns(path: Path, table: NameTable, sample: list[list[str]], *, is_text: bool) -> Mapping[str, tuple[int, ...]]:
    """The columns of a table with ids and names; FormatError, with the columns it has, for another one.

    A list in a text file has no ids, nor has a table all of whose columns are known as others.
    """
    expected = (
        "Name them in the first row: id (or identifier, accession), name (or term, label, symbol), and optionally "
        "synonyms, type, taxon, xrefs. Of several columns with ids, call one id."
    )
    if table.columns is not None:
        columns = {"id": table.columns.get("concept", ()), **table.columns}
        columns["name"] = (*columns.get("name", ()), *columns.pop("mention", ()))
        has_names = bool(columns["name"]) or "names" in columns
        all_known = len(table.header) == len({at for positions in columns.values() for at in positions})
        if (columns["id"] and has_names) or (columns["name"] and all_known):
            return {meaning: positions for meaning, positions in columns.items() if positions}
        missing = "of the ids" if has_names else "of the names" if columns["id"] else "of ids or names"
        problem = f"its columns are {', '.join(table.header)}, none of which is recognized as the column {missing}"
    elif is_text and all(len(row) < 2 for row in sample):
        return {"name": (0,)}
    elif len(table.header) < 2:
        problem = "its first row has one column; expected a table of ids and names, with tabs or commas between them"
    elif looks_like_header(table.header, sample[1:]):
        problem = f"its columns are {', '.join(table.header)}, which are not known as ids and names"
    elif _names_first(sample):
        problem = f"its first column has names such as {sample[0][0]!r}, and its second ids such as {sample[0][1]!r}"
    else:
        # The first rows may have no type.
        width = max(map(len, sample))
        return {name: (number,) for number, name in enumerate(("id", "name", "type")[:width])}
    raise FormatError(f"{path}: {problem}. {expected}", code="missing-column", value=path)


def _names_first(sample: list[list[str]]) -> bool:
    """Whether the second column of a table without names of columns has the ids."""
    rows = [row for row in sample if len(row) > 1]
    return all(CURIE.fullmatch(row[1]) and not CURIE.fullmatch(row[0]) for row in rows)


def _usual_type(type: str) -> str:
    """The type as models and Lexome's own dictionaries spell it: "cell line" and "cell_line" are CellLine."""
    return _USUAL_TYPES.get(re.sub(r"[\s_-]", "", type).casefold(), type)


class TermFinder:
    """Finds the names of dictionaries in documents, as mentions of the dictionaries' types; a Step when called.

    Of overlapping names the longest is found. A name that overlaps a mention of its type adds nothing, unless `find` is
    told that the mention was predicted. Where dictionaries disagree, the first one decides, as in linking: a name of a
    type has the ids that it has there, and an id the type.
    """

    def __init__(self, indexes: Sequence[TermIndex], *, case: CaseRule = "auto") -> None:
        self.types = tuple(sorted({type for index in indexes for type in index.types}))
        numbers = {type: number for number, type in enumerate(self.types)}
        ids: list[str] = []
        type_numbers: list[int] = []
        first_owners: list[int] = []
        owners: list[int] = []

        def names() -> Iterator[str]:
            first_types: dict[str, str] = {}
            for index in indexes:
                first_owners.append(len(ids))
                for concept in index.concepts():
                    type = concept.type if len(indexes) == 1 else first_types.setdefault(concept.id, concept.type)
                    ids.append(concept.id)
                    type_numbers.append(numbers[type])
                    for name in concept.names:
                        owners.append(len(ids) - 1)
                        yield name

        self._matcher = NameMatcher(names(), case=case)
        self._ids = ids
        self._type_numbers = np.array(type_numbers, np.uint32)
        self._owners = np.array(owners, np.uint32)
        self._first_owners = first_owners

    def __call__(self, docs: Iterable[Document]) -> Iterator[Document]:
        """The documents with the names that are found."""
        return map(self.find, docs)

    def find(self, doc: Document, *, types: str | Sequence[str] | None = None, over: Collection[str] = ()) -> Document:
        """The document with mentions of `types`, by default of all types of the dictionaries.

        Predicted mentions of the types `over` give way to a name: those of its type that it contains or crosses, and
        those of other types at the same place. Into a longer mention of its own type a name is not put.
        """
        passages = doc.passages
        wanted = self.types if types is None else as_names(types)
        fixed = {
            type: _Ranges(
                part for span in doc.spans if span.type == type and not _is_predicted(span, over) for part in span.parts
            )
            for type in self.types
        }
        predicted = [span for span in doc.spans if _is_predicted(span, over)]
        of_type = {type: [span for span in predicted if span.type == type] for type in self.types}
        longer = {type: _Ranges((span.start, span.end) for span in spans) for type, spans in of_type.items()}
        used = {span.id for span in doc.spans} | {relation.id for relation in doc.relations}
        ids = (id_ for id_ in numbered_ids("N") if id_ not in used)
        added: list[Span] = []
        for passage, hits in zip(passages, self._matcher.find_all([one.text for one in passages]), strict=True):
            for hit in hits:
                start, end = hit.start + passage.offset, hit.end + passage.offset
                for type, concepts in self._concepts_of(hit.names).items():
                    if len(concepts) > MAX_CONCEPTS:
                        continue
                    if type in wanted and not fixed[type].overlaps(start, end) and not longer[type].enclose(start, end):
                        text = passage.text[hit.start : hit.end]
                        added.append(Span(next(ids), type, ((start, end),), text, tuple(concepts)))
        return _replace_predicted(doc, predicted, added) if added else doc

    def _concepts_of(self, names: Sequence[int]) -> dict[str, dict[str, None]]:
        """The ids of equal names by type, of each type those of the first dictionary that has the name."""
        found: dict[str, tuple[int, dict[str, None]]] = {}
        for owner in sorted(self._owners[list(names)].tolist()):
            dictionary = bisect_right(self._first_owners, owner)
            first, concepts = found.setdefault(self.types[self._type_numbers[owner]], (dictionary, {}))
            if dictionary == first:
                concepts[self._ids[owner]] = None
        return {type: concepts for type, (_, concepts) in found.items()}


def _is_predicted(span: Span, over: Collection[str]) -> bool:
    return span.score is not None and span.type in over


def _replace_predicted(doc: Document, predicted: Sequence[Span], names: Sequence[Span]) -> Document:
    """The document with the names, without the predicted mentions that give way to them."""
    same = {(name.start, name.end) for name in names}
    ranges: dict[str, list[Range]] = {}
    for name in names:
        ranges.setdefault(name.type, []).append((name.start, name.end))
    own = {type: _Ranges(found) for type, found in ranges.items()}
    dropped = {
        span.id
        for span in predicted
        if (span.start, span.end) in same or (span.type in own and own[span.type].overlaps(span.start, span.end))
    }
    spans = sorted(
        [*(span for span in doc.spans if span.id not in dropped), *names], key=lambda span: (span.start, span.end)
    )
    relations, attributes = drop_dependents(dropped, doc.relations, doc.attributes, tally=Tally())
    return replace(doc, spans=tuple(spans), relations=relations, attributes=attributes)


class _Ranges:
    """Ranges of characters, by start, for asking whether one overlaps or encloses another."""

    def __init__(self, ranges: Iterable[Range]) -> None:
        parts = sorted(ranges)
        self._starts = np.array([start for start, _ in parts], np.int64)
        self._ends = np.maximum.accumulate(np.array([end for _, end in parts], np.int64)) if parts else self._starts

    def overlaps(self, start: int, end: int) -> bool:
        """Whether a range has a character of this one."""
        before = int(np.searchsorted(self._starts, end))
        return before > 0 and bool(self._ends[before - 1] > start)

    def enclose(self, start: int, end: int) -> bool:
        """Whether a range contains this one and more."""
        before = int(np.searchsorted(self._starts, start))
        if before > 0 and bool(self._ends[before - 1] >= end):
            return True
        upto = int(np.searchsorted(self._starts, start, "right"))
        return upto > 0 and bool(self._ends[upto - 1] > end)
