"""Tables of mentions, relations and labels: one row for each, or with `counts` one per concept, name, pair or label.

The columns of a table of mentions are those of COLUMNS, of relations those of RELATION_COLUMNS, of the labels of
documents those of LABEL_COLUMNS. A document without any of them has no row, which is noted.

Spreadsheets evaluate a cell that begins with =, +, - or @ as a formula, and untrusted text may begin so ("CSV
injection"). Such text is written with an apostrophe before it, which spreadsheets hide, unless `escape` is false.
"""

import csv
import io
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, BinaryIO, Literal, get_args

from lexome.document import Document, Passage, Relation, Span, documents_of, encode_utf8, shorten
from lexome.errors import LexomeError, UsageError
from lexome.formats.tally import PASSAGE_DETAILS, Tally, note_losses

COLUMNS = ("document", "pmid", "passage", "start", "end", "text", "type", "score", "concept", "name")
COUNT_COLUMNS = ("name", "type", "concept", "documents", "mentions")
_SIDE = ("", "_type", "_concept", "_name", "_start", "_end")
RELATION_COLUMNS = (
    "document", "pmid", *(f"first{what}" for what in _SIDE), "relation", *(f"second{what}" for what in _SIDE),
    "score", "novel", "level",
)  # fmt: skip
RELATION_COUNT_COLUMNS = (
    "first", "first_type", "first_concept", "relation", "second", "second_type", "second_concept", "documents",
    "relations", "highest_score",
)  # fmt: skip
LABEL_COLUMNS = ("document", "pmid", "label", "score")
LABEL_COUNT_COLUMNS = ("label", "documents")
Table = Literal["mentions", "relations", "labels"]
Cell = str | int | float
PreferredName = Callable[[str], str | None]
"""The preferred name of a concept id, or None."""

RelationKey = tuple[tuple[str, str], str, tuple[str, str]]

# Full-width characters are read as those by spreadsheets in Chinese, Japanese and Korean.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
_SUPPORTED = PASSAGE_DETAILS | {"concepts", "scores"}
_SUPPORTED_BY = {
    "mentions": _SUPPORTED,
    "relations": _SUPPORTED | {"relations", "relation novelty"},
    "labels": _SUPPORTED | {"labels", "label scores"},
}


def table_rows(
    docs: Iterable[Document],
    *,
    counts: bool,
    preferred_name: PreferredName | None,
    tally: Tally,
    table: Table = "mentions",
    attributes: Sequence[str] = (),
) -> Iterator[tuple[Cell, ...]]:
    """The header, then the rows of a table of mentions, of relations or of labels, or of counts of these.

    Rows of mentions end with the values of their `attributes` of these names.
    """
    written = _count_docs(docs, tally, table, attributes if table == "mentions" and not counts else ())
    if table == "labels":
        yield from _label_rows(written, counts=counts)
    elif counts:
        counted = _Counts() if table == "mentions" else _RelationCounts(tally)
        for doc in written:
            counted.add(doc)
        yield COUNT_COLUMNS if table == "mentions" else RELATION_COUNT_COLUMNS
        yield from counted.rows(preferred_name)
    elif table == "relations":
        yield RELATION_COLUMNS
        for doc in written:
            for relation, sides in _binary_relations(doc, tally):
                yield _relation_row(doc, relation, sides, preferred_name)
    else:
        yield (*COLUMNS, *attributes)
        for doc in written:
            values = _attribute_values(doc) if attributes else {}
            for span in doc.spans:
                more = ("; ".join(values.get((span.id, name), ())) for name in attributes)
                yield (*_mention_row(doc, span, preferred_name, tally), *more)


def write_delimited(
    docs: Iterable[Document],
    stream: BinaryIO,
    delimiter: str,
    *,
    tally: Tally,
    counts: bool,
    escape: bool,
    preferred_name: PreferredName | None,
    table: Table,
    attributes: Sequence[str],
) -> None:
    """The table in UTF-8; cells with the delimiter, a quote or a line break are quoted."""
    line = io.StringIO(newline="")
    # Cells with a carriage return are quoted only where it is part of the line terminator.
    writer = csv.writer(line, delimiter=delimiter, lineterminator="\r\n")
    rows = table_rows(
        docs, counts=counts, preferred_name=preferred_name, tally=tally, table=table, attributes=attributes
    )
    for row in rows:
        writer.writerow([escape_formula(cell, tally) if escape and isinstance(cell, str) else cell for cell in row])
        stream.write(encode_utf8(line.getvalue().removesuffix("\r\n") + "\n"))
        line.seek(0)
        line.truncate()


def escape_formula(cell: str, tally: Tally) -> str:
    """The text, with an apostrophe before it if a spreadsheet would take it for a formula."""
    if not cell.startswith(_FORMULA_STARTS):
        return cell
    tally.note("apostrophe put before text that begins like a formula")
    return f"'{cell}"


def place_name(passage: Passage) -> str:
    """The location of a passage: its headings, or its kind without headings."""
    return " > ".join(passage.section) or passage.kind


def _count_docs(docs: Iterable[Document], tally: Tally, table: Table, attributes: Sequence[str]) -> Iterator[Document]:
    """The documents, each counted as written, with notes on what a table does not have."""
    supported = _SUPPORTED_BY[table].union(f"attribute {name!r}" for name in attributes)
    for doc in tally.convert(docs, partial(_require_unicode, attributes=attributes)):
        note_losses(doc, tally, supported=supported)
        if not {"mentions": doc.spans, "relations": doc.relations, "labels": doc.labels}[table]:
            tally.note(f"document without {table}: no row")
        yield doc


def _require_unicode(doc: Document, attributes: Sequence[str] = ()) -> Document:
    """The document; BadDocument if it has a lone surrogate, which no file in UTF-8 can hold."""
    encode_utf8(doc.id, "the id")
    for span in doc.spans:
        encode_utf8(f"{span.text}{span.type}{''.join(span.concepts)}", f"the mention {shorten(repr(span.id))}")
    for relation in doc.relations:
        sides = "".join(argument.concept or argument.target or "" for argument in relation.arguments)
        encode_utf8(f"{relation.type}{sides}", f"the relation {shorten(repr(relation.id))}")
    encode_utf8("".join(doc.labels), "a label")
    encode_utf8("".join(one.value or "" for one in doc.attributes if one.name in attributes), "an attribute")
    return doc


def _label_rows(docs: Iterable[Document], *, counts: bool) -> Iterator[tuple[Cell, ...]]:
    """The header, then a row for each label of a document; or for each label with its documents, by their number."""
    if counts:
        documents = Counter(label for doc in docs for label in dict.fromkeys(doc.labels))
        yield LABEL_COUNT_COLUMNS
        yield from sorted(documents.items(), key=lambda item: (-item[1], item[0]))
        return
    yield LABEL_COLUMNS
    for doc in docs:
        scores: Sequence[Cell] = [round(score, 4) for score in doc.label_scores] or [""] * len(doc.labels)
        for label, score in zip(doc.labels, scores, strict=True):
            yield doc.id, doc.meta.pmid or "", label, score


def _mention_row(doc: Document, span: Span, preferred_name: PreferredName | None, tally: Tally) -> tuple[Cell, ...]:
    if len(span.parts) > 1:
        tally.note("discontinuous mention: start and end enclose its parts")
    passage = doc.passage_at(span.start)
    return (
        doc.id,
        doc.meta.pmid or "",
        place_name(passage) if passage is not None else "",
        span.start,
        span.end,
        span.text,
        span.type,
        "" if span.score is None else round(span.score, 4),
        "; ".join(span.concepts),
        _names(span.concepts, preferred_name),
    )


def _attribute_values(doc: Document) -> dict[tuple[str, str], list[str]]:
    """The values of attributes, by target and name; of one without a value, its name."""
    values: dict[tuple[str, str], list[str]] = {}
    for one in doc.attributes:
        values.setdefault((one.target, one.name), []).append(one.name if one.value is None else one.value)
    return values


def attribute_names(names: str | tuple[str, ...]) -> tuple[str, ...]:
    """The names of attributes in a list separated by commas, as the command line has them."""
    return tuple(filter(None, map(str.strip, names.split(",")))) if isinstance(names, str) else names


def _names(concepts: Iterable[str], preferred_name: PreferredName | None) -> str:
    if preferred_name is None:
        return ""
    # As many as there are concepts, so that both columns can be split together.
    names = [preferred_name(concept) or "" for concept in concepts]
    return "; ".join(names) if any(names) else ""


@dataclass(slots=True)
class _Counts:
    """Documents and mentions of each concept, or of each name that has none, regardless of case."""

    documents: Counter[tuple[str, str]] = field(default_factory=Counter)
    mentions: Counter[tuple[str, str]] = field(default_factory=Counter)
    spellings: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    types: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)

    def add(self, doc: Document) -> None:
        present = set()
        for span in doc.spans:
            # A concept is the same whatever type its mentions have; a name without one is not.
            keys = [("", concept) for concept in span.concepts] or [(span.type, span.text.casefold())]
            for key in dict.fromkeys(keys):
                self.mentions[key] += 1
                self.spellings.setdefault(key, Counter())[span.text] += 1
                self.types.setdefault(key, Counter())[span.type] += 1
                present.add(key)
        self.documents.update(present)

    def rows(self, preferred_name: PreferredName | None) -> Iterator[tuple[Cell, ...]]:
        """Rows by number of mentions, then of documents, then by name."""
        ordered = sorted(self.mentions, key=lambda key: (-self.mentions[key], -self.documents[key], key))
        for key in ordered:
            concept = "" if key[0] else key[1]
            preferred = preferred_name(concept) if preferred_name is not None and concept else None
            name = preferred or _most_frequent(self.spellings[key])
            yield name, _most_frequent(self.types[key]), concept, self.documents[key], self.mentions[key]


# Relations


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a relation: its mention, or the first mention of its concept, if there is one, and its concepts."""

    name: str
    type: str
    concepts: tuple[str, ...]
    mention: Span | None

    @property
    def key(self) -> tuple[str, str]:
        """The concept if there is exactly one, else the name regardless of case."""
        return ("", self.concepts[0]) if len(self.concepts) == 1 else (self.type, self.name.casefold())


def level_of(relation: Relation) -> str:
    """Whether a relation is between mentions or between concepts."""
    return "concept" if any(argument.concept is not None for argument in relation.arguments) else "mention"


def relation_sides(doc: Document) -> Iterator[tuple[Relation, tuple[Side, ...]]]:
    """Each relation with its sides, in the order of its arguments."""
    spans = {span.id: span for span in doc.spans}
    of_concept = {concept: mentions[0] for concept, mentions in doc.concepts.items()} if doc.relations else {}
    types = {relation.id: relation.type for relation in doc.relations}
    for relation in doc.relations:
        sides = []
        for argument in relation.arguments:
            if argument.concept is not None:
                mention = of_concept.get(argument.concept)
                text, type_ = (argument.concept, "") if mention is None else (mention.text, mention.type)
                sides.append(Side(text, type_, (argument.concept,), mention))
            elif argument.target in spans:
                mention = spans[argument.target]
                sides.append(Side(mention.text, mention.type, mention.concepts, mention))
            else:
                sides.append(Side(argument.target or "", types.get(argument.target or "", ""), (), None))
        yield relation, tuple(sides)


def _is_directed(relation: Relation, sides: Sequence[Side]) -> bool:
    """Whether the order of a relation's sides has a meaning.

    It has none between two concepts of one type, nor between two mentions if a model predicted the relation. Curated
    relations between mentions may have one: Arg1 and Arg2 are brat's names for any two sides.
    """
    named = {argument.role for argument in relation.arguments} != {"Arg1", "Arg2"}
    curated = relation.score is None and level_of(relation) == "mention"
    return named or curated or sides[0].type != sides[1].type


def _binary_relations(doc: Document, tally: Tally) -> Iterator[tuple[Relation, tuple[Side, ...]]]:
    for relation, sides in relation_sides(doc):
        if len(sides) == 2:
            yield relation, sides
        else:
            tally.note("relation of other than two sides: no row")


def _relation_row(
    doc: Document, relation: Relation, sides: Sequence[Side], preferred_name: PreferredName | None
) -> tuple[Cell, ...]:
    first, second = (
        (
            side.name,
            side.type,
            "; ".join(side.concepts),
            _names(side.concepts, preferred_name),
            "" if side.mention is None else side.mention.start,
            "" if side.mention is None else side.mention.end,
        )
        for side in sides
    )
    score: Cell = "" if relation.score is None else round(relation.score, 4)
    novel = {True: "yes", False: "no", None: ""}[relation.novel]
    return (doc.id, doc.meta.pmid or "", *first, relation.type, *second, score, novel, level_of(relation))


@dataclass(slots=True)
class _RelationCounts:
    """Documents and relations of each pair of concepts or names, by relation type."""

    tally: Tally
    documents: Counter[RelationKey] = field(default_factory=Counter)
    relations: Counter[RelationKey] = field(default_factory=Counter)
    scores: dict[RelationKey, float] = field(default_factory=dict)
    sides: dict[RelationKey, tuple[Side, ...]] = field(default_factory=dict)

    def add(self, doc: Document) -> None:
        present = set()
        for relation, sides in _binary_relations(doc, self.tally):
            if not _is_directed(relation, sides):
                # Whichever side a document mentions first, the pair is the same.
                sides = tuple(sorted(sides, key=lambda side: side.key))
            key = (sides[0].key, relation.type, sides[1].key)
            self.relations[key] += 1
            self.sides.setdefault(key, sides)
            if relation.score is not None:
                self.scores[key] = max(relation.score, self.scores.get(key, 0.0))
            present.add(key)
        self.documents.update(present)

    def rows(self, preferred_name: PreferredName | None) -> Iterator[tuple[Cell, ...]]:
        """Rows by number of documents, then of relations, then by name."""
        for key in sorted(self.documents, key=lambda key: (-self.documents[key], -self.relations[key], key)):
            first, second = (
                (
                    (_names(side.concepts, preferred_name) if len(side.concepts) == 1 else "") or side.name,
                    side.type,
                    "; ".join(side.concepts),
                )
                for side in self.sides[key]
            )
            score: Cell = round(self.scores[key], 4) if key in self.scores else ""
            yield (*first, key[1], *second, self.documents[key], self.relations[key], score)


def _most_frequent(names: Counter[str]) -> str:
    return min(names, key=lambda name: (-names[name], name))


def write_csv(
    docs: Iterable[Document],
    stream: BinaryIO,
    *,
    tally: Tally,
    table: Table = "mentions",
    counts: bool = False,
    escape: bool = True,
    bom: bool = True,
    attributes: str | tuple[str, ...] = "",
    preferred_name: PreferredName | None = None,
) -> None:
    """One row per mention, relation or label, or with `counts` one per concept, name, pair or label.

    `escape` puts an apostrophe before text that a spreadsheet would take for a formula. `bom` begins the file with a
    byte order mark, without which Excel reads UTF-8 as Windows-1252. `attributes` are names of attributes of mentions
    that are further columns, separated by commas. `preferred_name` is a function from a concept id to its name, for the
    column name; from the command line it cannot be set.
    """
    if bom:
        stream.write(BOM_UTF8)
    write_delimited(
        docs,
        stream,
        ",",
        tally=tally,
        counts=counts,
        escape=escape,
        preferred_name=preferred_name,
        table=table,
        attributes=attribute_names(attributes),
    )


def write_tsv(
    docs: Iterable[Document],
    stream: BinaryIO,
    *,
    tally: Tally,
    table: Table = "mentions",
    counts: bool = False,
    escape: bool = True,
    attributes: str | tuple[str, ...] = "",
    preferred_name: PreferredName | None = None,
) -> None:
    """One row per mention, relation or label, or with `counts` one per concept, name, pair or label, as in CSV."""
    write_delimited(
        docs,
        stream,
        "\t",
        tally=tally,
        counts=counts,
        escape=escape,
        preferred_name=preferred_name,
        table=table,
        attributes=attribute_names(attributes),
    )


# A table for notebooks, in a pandas or polars DataFrame


LIBRARIES = ("pandas", "polars")
NUMBERS = {"start": "int64", "end": "int64", "score": "float64"}
# The arguments of a relation may be concepts without a mention, which have no offsets.
NUMBERS |= {f"{side}_{what}": "Int64" for side in ("first", "second") for what in ("start", "end")}


def to_dataframe(
    docs: Document | Iterable[Document],
    *,
    table: Table = "mentions",
    library: str | None = None,
    preferred_name: PreferredName | None = None,
) -> Any:
    """The table as a DataFrame of pandas, or of polars if only that is installed, as in `lexome.to_dataframe`."""
    if table not in get_args(Table):
        message = f"table is {table!r}; expected one of {', '.join(get_args(Table))}."
        raise UsageError(message, code="unknown-table", value=table)
    if library not in (None, *LIBRARIES):
        message = f"library is {library!r}; expected one of {', '.join(LIBRARIES)}."
        raise UsageError(message, code="unknown-library", value=library)
    wanted = LIBRARIES if library is None else (library,)
    name = next((name for name in wanted if find_spec(name) is not None), None)
    if name is None:
        message = f"a DataFrame needs {' or '.join(wanted)}, which is not installed. Run: pip install {wanted[0]}"
        raise LexomeError(message, code="missing-package", value=wanted[0])
    names, *rows = table_rows(
        documents_of(docs), counts=False, preferred_name=preferred_name, tally=Tally(), table=table
    )
    columns = {
        str(column): [row[index] if row[index] != "" else None for row in rows] for index, column in enumerate(names)
    }
    module = import_module(name)
    if name == "polars":
        schema = {column: module.Float64 if column == "score" else module.Int64 for column in NUMBERS}
        return module.DataFrame(columns, schema={column: schema.get(column, module.String) for column in columns})
    # By itself, pandas would give an empty column another type than a full one.
    return module.DataFrame({key: module.Series(values, dtype=NUMBERS.get(key)) for key, values in columns.items()})
