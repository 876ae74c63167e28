"""Conversion between Documents and BioC records, for BioC XML and BioC JSON.

A record is a document as in BioC JSON: id, infons, passages (offset, infons, text, sentences, annotations,
relations), annotations, relations. The XML reader produces the same records.

The infons of PubTator, PubTator Central, PubTator3, BC5CDR and BioRED are read: type, score, concept ids
(concept_ids.py) and article metadata; others are noted. PubTator3's relations have their concepts in
role1 and role2, and their nodes refer to nothing in the file. What conventional infons cannot represent is written
as JSON in an infon "lexome", so that every document survives the round trip.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count, pairwise
from math import isfinite
from operator import itemgetter
from typing import Any, Self, TypeVar, cast

from lexome.document import (
    Argument,
    Attribute,
    Document,
    Passage,
    Question,
    Range,
    Relation,
    Span,
    numbered_ids,
    shorten,
)
from lexome.errors import BadDocument
from lexome.formats.citation import parse_free_date, pmcid
from lexome.formats.concept_ids import (
    NOVELTY,
    NOVELTY_VALUES,
    Ids,
    Types,
    arguments_from_sides,
    is_concept_infon,
    parse_sides,
    read_infon,
    relation_fields,
    sides_from_concepts,
    types_by_concept,
    write_ids,
)
from lexome.formats.json_file import mapping, note_unknown, objects, required, string, strings
from lexome.formats.jsonl import adapter_of, first_problem
from lexome.formats.tally import Offsets, Tally, drop_dependents, is_respelling, settle, text_at
from lexome.metadata import Author, Journal, Metadata

Record = Mapping[str, Any]
Infons = Mapping[str, Any]
RecordDict = dict[str, Any]
KEY = "lexome"

# How PMC marks a heading of the first level.
HEADING = "title_1"
UNTYPED_MENTION, UNTYPED_RELATION = "Mention", "Relation"
# Larger offsets are errors; they would only fill memory with spaces.
_MAX_OFFSET = 10**12
_MAX_GAP = 1_000_000
_SCORES = ("score", "confidence", "probability", "prob")
_SIDES = (("role1", "role2"), ("entity1", "entity2"))
_RELATION_TYPES = ("type", "relation", "relation type")
_HEADING = re.compile(r"(?:.*_)?title(?:_[0-9]+)?")
_PASSAGE_FIELDS = frozenset(("offset", "infons", "text", "sentences", "annotations", "relations", "bioctype"))
_ANNOTATION_FIELDS = frozenset(("id", "infons", "text", "locations"))
_RELATION_FIELDS = frozenset(("id", "infons", "nodes"))
_DOCUMENT_FIELDS = frozenset(
    (
        "_id", "id", "infons", "passages", "annotations", "relations", "relations_display", "pmid", "pmcid", "date",
        "journal", "authors", "bioctype",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DocumentFields:
    """Fields of a document that BioC lacks; `meta` is None if the conventional infons represent it."""

    attributes: tuple[Attribute, ...] = ()
    questions: tuple[Question, ...] = ()
    labels: tuple[str, ...] = ()
    meta: Metadata | None = None
    spans: tuple[str, ...] = ()
    label_scores: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class PassageFields:
    """Fields of a passage that BioC lacks; None and empty ones are in the conventional infons."""

    kind: str | None = None
    section: tuple[str, ...] = ()
    category: str | None = None
    language: str | None = None
    source: str | None = None
    sentences: tuple[Range, ...] = ()
    tokens: tuple[Range, ...] = ()
    between: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AnnotationFields:
    """The concepts of a mention whose ids an identifier infon cannot represent."""

    concepts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RelationFields:
    """The arguments of a relation that nodes and role infons cannot represent."""

    arguments: tuple[Argument, ...] = ()


Fields = TypeVar("Fields", DocumentFields, PassageFields, AnnotationFields, RelationFields)


def own_infon(own: DocumentFields | PassageFields | AnnotationFields | RelationFields) -> dict[str, str]:
    """The infon with these fields, or nothing if all have their defaults."""
    if own == type(own)():
        return {}
    try:
        raw: str = adapter_of(cast(Any, type(own))).dump_json(own, exclude_defaults=True).decode()
    except ValueError:
        raise BadDocument("not_unicode", "the document has a lone surrogate; expected valid Unicode") from None
    # JSON escapes control characters; XML cannot represent these two either.
    return {KEY: raw.replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")}


def parse_own_infon(kind: type[Fields], raw: str | None) -> Fields | None:
    """The fields in such an infon; BadDocument names an invalid one."""
    if raw is None:
        return None
    from pydantic import ValidationError

    try:
        own: Fields = adapter_of(cast(Any, kind)).validate_json(raw, extra="forbid")
    except ValidationError as error:
        _, field, problem = first_problem(error, KEY)
        raise BadDocument("bad_field", f"infon {KEY!r}, {field}: {problem}", value=field) from None
    return own


def get_infons(record: Record) -> Infons:
    """The infons of a document, passage, annotation or relation."""
    return mapping(record.get("infons") or {}, "infons")


@dataclass(slots=True)
class _Level:
    """The annotations of a sentence, a passage or the document, and the id scopes there, innermost first."""

    annotations: list[dict[str, Any]]
    relations: list[dict[str, Any]]
    scopes: tuple[dict[str, str], ...]  # ids in the file to ids in the document

    @classmethod
    def of(cls, record: Record, *scopes: dict[str, str]) -> Self:
        return cls(objects(record, "annotations"), objects(record, "relations"), scopes)

    def register(self, file_id: str, id_: str) -> None:
        for scope in self.scopes:
            scope.setdefault(file_id, id_)

    def resolve(self, file_id: str) -> str:
        return next((scope[file_id] for scope in self.scopes if file_id in scope), file_id)


class _Ids:
    """Assigns unique ids in one document."""

    def __init__(self, levels: Iterable[_Level], tally: Tally) -> None:
        records = (record for level in levels for group in (level.annotations, level.relations) for record in group)
        file_ids = [id_ for record in records if (id_ := string(record, "id")) is not None]
        self.file_ids = set(file_ids)
        # Some files have the id "" everywhere, which identifies nothing.
        self.placeholders = {""} if file_ids.count("") > 1 else set()
        self.used: set[str] = set()
        self.repeats: dict[str, Iterator[int]] = {}
        self.tally = tally

    def assign(self, file_id: str | None, fresh: Iterator[str], what: str) -> str:
        """The id in the file if it is unused, else a new one."""
        if file_id is None or file_id in self.placeholders:
            id_ = next(name for name in fresh if name not in self.file_ids)
        elif file_id in self.used:
            self.tally.note(f"duplicate {what} id renumbered")
            names = (f"{file_id}-{number}" for number in self.repeats.setdefault(file_id, count(2)))
            id_ = next(name for name in names if name not in self.file_ids)
        else:
            id_ = file_id
        self.used.add(id_)
        return id_


def read_document(record: Record, *, offsets: Offsets, tally: Tally) -> Document:
    """The document of a record; BadDocument if it is invalid."""
    infons = get_infons(record)
    own = parse_own_infon(DocumentFields, string(infons, KEY)) or DocumentFields()
    note_unknown(record, _DOCUMENT_FIELDS, tally)
    passages, levels = _passages(record, offsets, tally)
    ids = _Ids(levels, tally)
    spans, dropped = _spans(levels, ids, passages, offsets, tally)
    relations = _relations(levels, ids, spans, tally) or _display_relations(record, levels, spans, tally)
    attributes = own.attributes
    if dropped:
        relations, attributes = drop_dependents(dropped, relations, attributes, tally=tally)
    order = {id_: position for position, id_ in enumerate(own.spans)}
    meta = own.meta
    if meta is None:
        note_infons((key for key in infons if key != KEY and not is_metadata_infon(key)), "document", tally)
        first = next(iter(objects(record, "passages")), {})
        meta = metadata({**infons, **get_infons(first)}, record)
    id_ = required(record, "id")

    def make(spans: tuple[Span, ...], relations: tuple[Relation, ...], attributes: tuple[Attribute, ...]) -> Document:
        if order:
            spans = tuple(sorted(spans, key=lambda span: order.get(span.id, len(order))))
        return Document(id_, passages, spans, relations, attributes, own.questions, own.labels, meta, own.label_scores)

    return settle(make, passages, spans, relations, attributes, offsets=offsets, tally=tally)


def _passages(record: Record, offsets: Offsets, tally: Tally) -> tuple[tuple[Passage, ...], list[_Level]]:
    """The passages, and the levels of annotations in file order."""
    document_scope: dict[str, str] = {}
    passages: list[Passage] = []
    levels: list[_Level] = []
    for number, item in enumerate(objects(record, "passages")):
        passages.append(_read_passage(item, number == 0, offsets, tally))
        passage_scope: dict[str, str] = {}
        for sentence in objects(item, "sentences"):
            note_unknown(sentence, _PASSAGE_FIELDS, tally)
            note_infons(get_infons(sentence), "sentence", tally)
            levels.append(_Level.of(sentence, {}, passage_scope, document_scope))
        levels.append(_Level.of(item, passage_scope, document_scope))
    levels.append(_Level.of(record, document_scope))
    return tuple(passages), levels


def _read_passage(record: Record, first: bool, offsets: Offsets, tally: Tally) -> Passage:
    infons = get_infons(record)
    own = parse_own_infon(PassageFields, string(infons, KEY)) or PassageFields()
    kind, section, category = passage_description(infons)
    type_ = string(infons, "type")
    if type_ not in (None, kind, "front", HEADING) and own.kind is None:
        tally.note(f"passage type {type_!r} read as {kind}")
    known = {KEY, "type", "section", "section_type"}
    note_infons(
        (key for key in infons if key not in known and not (first and is_metadata_infon(key))), "passage", tally
    )
    note_unknown(record, _PASSAGE_FIELDS, tally)
    text, sentences = passage_text(record, own.between, offsets, tally)
    return Passage(
        parse_offset(record.get("offset"), "a passage's offset"),
        text,
        own.kind if own.kind is not None else kind,
        own.section or section,
        own.category if own.category is not None else category,
        own.language,
        own.source,
        own.sentences or sentences,
        own.tokens,
    )


def passage_description(infons: Infons) -> tuple[str, tuple[str, ...], str | None]:
    """The kind, section and category in a passage's infons."""
    category = string(infons, "section_type")
    section = string(infons, "section")
    return _kind(string(infons, "type"), category), () if section is None else (section,), category


def _kind(type_: str | None, category: str | None) -> str:
    if type_ is None:
        return "paragraph"
    if type_ == "front":
        return "title"
    # PMC's headings are title_1, title_2, ...; the heading of the references is "title", like the article's.
    if _HEADING.fullmatch(type_) and (type_ != "title" or category not in (None, "TITLE")):
        return "heading"
    for word in ("caption", "footnote"):
        if type_.endswith(f"_{word}"):
            return word
    return type_


def passage_text(
    record: Mapping[str, Any], between: tuple[str, ...], offsets: Offsets, tally: Tally
) -> tuple[str, tuple[Range, ...]]:
    """The text of a passage and the ranges of its sentences.

    If only the sentences have text, it is joined with spaces, or with the texts before, between and after them in
    `between`.
    """
    text = string(record, "text") or ""
    offset = parse_offset(record.get("offset"), "a passage's offset")
    sentences = [
        (parse_offset(item.get("offset"), "a sentence's offset"), string(item, "text") or "")
        for item in objects(record, "sentences")
    ]
    if not sentences:
        return text, ()
    if text:
        return text, _match_sentences(text, offset, sentences, offsets, tally)
    return _join_sentences(offset, sentences, between), tuple((start, start + len(words)) for start, words in sentences)


def parse_offset(value: object, what: str) -> int:
    """An offset or length; BadDocument if it is not an integer from 0."""
    text = value.strip() if isinstance(value, str) else ""
    if text.isascii() and text.isdecimal() and len(text) <= 12:
        return int(text)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_OFFSET:
        return value
    raise BadDocument("bad_offset", f"{what} is {shorten(repr(value))}; expected an integer from 0", value=value)


def _join_sentences(offset: int, sentences: list[tuple[int, str]], between: tuple[str, ...]) -> str:
    if between and len(between) != len(sentences) + 1:
        message = f"'between' has {len(between)} texts for {len(sentences)} sentences; expected one more"
        raise BadDocument("bad_field", message, value="between")
    pieces: list[str] = []
    at = offset
    for number, (start, words) in enumerate(sentences):
        gap = start - at
        if not 0 <= gap <= _MAX_GAP or (between and len(between[number]) != gap):
            raise BadDocument(
                "bad_offset",
                f"a sentence begins at {start}, but the text before it ends at {at}; expected ordered sentences inside "
                "their passage",
                value=start,
            )
        pieces += (between[number] if between else " " * gap, words)
        at = start + len(words)
    return "".join((*pieces, *between[-1:]))


def _match_sentences(
    text: str, offset: int, sentences: list[tuple[int, str]], offsets: Offsets, tally: Tally
) -> tuple[Range, ...]:
    """The ranges of sentences whose text repeats that of the passage."""
    ranges: list[Range] = []
    for start, words in sentences:
        if start >= offset and text.startswith(words, start - offset):
            ranges.append((start, start + len(words)))
        elif (
            offsets == "keep"
            and start >= offset
            and is_respelling(words, text[start - offset : start - offset + len(words)])
        ):
            tally.note("sentence spelled as in its passage")
            ranges.append((start, start + len(words)))
        elif offsets != "strict":
            tally.note("sentence skipped: its text is not at its offset")
        else:
            raise BadDocument(
                "offset_mismatch",
                f"a sentence is {shorten(words)!r}, but at {start} the passage has "
                f"{shorten(text[max(0, start - offset) : start - offset + len(words)])!r}",
                value=start,
            )
    return tuple(ranges)


def _spans(
    levels: list[_Level], ids: _Ids, passages: tuple[Passage, ...], offsets: Offsets, tally: Tally
) -> tuple[tuple[Span, ...], set[str]]:
    """The mentions, and the ids of annotations without location."""
    fresh = numbered_ids("T")
    spans: list[Span] = []
    dropped: set[str] = set()
    for level in levels:
        for record in level.annotations:
            file_id = string(record, "id")
            id_ = ids.assign(file_id, fresh, "annotation")
            if file_id is not None:
                level.register(file_id, id_)
            text = string(record, "text")
            minimum = 1 if offsets == "repair" and text else 0
            try:
                parts = _locations(record, minimum)
            except BadDocument:
                if offsets != "keep":
                    raise
                tally.note("annotation dropped: its location is not valid")
                dropped.add(id_)
                continue
            if not parts or (not text and parts[0][0] == parts[0][1]):
                tally.note("annotation without location skipped")
                dropped.add(id_)
                continue
            spans.append(_read_span(record, id_, parts, _mention(text, parts, passages, tally), tally))
    return tuple(spans), dropped


def _locations(record: Record, minimum: int) -> tuple[Range, ...]:
    """The ranges of an annotation, each at least this long, in reading order."""
    ranges = []
    for location in objects(record, "locations"):
        start = parse_offset(location.get("offset"), "a location's offset")
        size = parse_offset(location.get("length"), "a location's length")
        ranges.append((start, start + max(minimum, size)))
    return tuple(sorted(ranges))


def _mention(text: str | None, parts: tuple[Range, ...], passages: tuple[Passage, ...], tally: Tally) -> str:
    """The text of an annotation; several parts are joined by spaces."""
    if text is not None and len(parts) == 1:
        return text
    texts = [text_at(passages, part) for part in parts]
    if None in texts:
        return text or ""
    joined = " ".join(map(str, texts))
    if text is None:
        tally.note("annotation without text: taken from its location")
        return joined
    whole = text_at(passages, (parts[0][0], parts[-1][1]))
    if text != joined and (text == whole or "".join(text.split()) == "".join(joined.split())):
        tally.note("text of a discontinuous annotation normalized")
        return joined
    return text


def _read_span(record: Record, id_: str, parts: tuple[Range, ...], text: str, tally: Tally) -> Span:
    infons = get_infons(record)
    type_ = string(infons, "type")
    if type_ is None:
        tally.note(f"annotation without a type read as {UNTYPED_MENTION}")
        type_ = UNTYPED_MENTION
    own = parse_own_infon(AnnotationFields, string(infons, KEY))
    concepts: list[str] = []
    ignored: list[str] = []
    score = None
    for key, value in infons.items():
        if is_concept_infon(key):
            curies = [curie for raw in strings(infons, key) for curie in read_infon(key, raw, type_, tally)]
            # The same id often occurs twice, as identifier and under its vocabulary's name.
            concepts += [curie for curie in curies if curie not in concepts] if concepts else curies
        elif key in _SCORES and score is None and value is not None:
            score = _score(string(infons, key), tally)
        elif key not in ("type", KEY):
            ignored.append(key)
    note_infons(ignored, "annotation", tally)
    note_unknown(record, _ANNOTATION_FIELDS, tally)
    return Span(id_, type_, parts, text, tuple(concepts) if own is None else own.concepts, score)


def _score(text: str | None, tally: Tally) -> float | None:
    try:
        score = float(text or "")
    except ValueError:
        score = float("nan")
    if not isfinite(score):
        tally.note("score that is not a number ignored")
        return None
    return score


def _relations(levels: list[_Level], ids: _Ids, spans: tuple[Span, ...], tally: Tally) -> tuple[Relation, ...]:
    records = [(level, record) for level in levels for record in level.relations]
    if not records:
        return ()
    fresh = numbered_ids("R")
    names: list[str] = []
    # Relations may refer to later ones, so all get their ids before any is read.
    for level, record in records:
        file_id = string(record, "id")
        names.append(ids.assign(file_id, fresh, "relation"))
        if file_id is not None:
            level.register(file_id, names[-1])
    reader = _RelationReader(types_by_concept(spans), {span.type for span in spans}, tally)
    return tuple(reader.relation(level, record, id_) for (level, record), id_ in zip(records, names, strict=True))


@dataclass(frozen=True, slots=True)
class _RelationReader:
    """Reads relations, which depend on the types of the document's mentions."""

    types: Types
    span_types: set[str]
    tally: Tally

    def relation(self, level: _Level, record: Record, id_: str) -> Relation:
        infons = get_infons(record)
        own = parse_own_infon(RelationFields, string(infons, KEY))
        type_ = next((text for key in _RELATION_TYPES if (text := string(infons, key)) is not None), None)
        if type_ is None:
            self.tally.note(f"relation without a type read as {UNTYPED_RELATION}")
        used, arguments = self.arguments(level, record, infons)
        novel = NOVELTY_VALUES.get((string(infons, "novel") or "").lower())
        score = next((_score(string(infons, key), self.tally) for key in _SCORES if infons.get(key) is not None), None)
        known = {KEY, "novel", *_RELATION_TYPES, *_SCORES, *used}
        note_infons((key for key in infons if key not in known), "relation", self.tally)
        note_unknown(record, _RELATION_FIELDS, self.tally)
        if own is not None:
            arguments = own.arguments
        return Relation(id_, UNTYPED_RELATION if type_ is None else type_, arguments, novel, score)

    def arguments(self, level: _Level, record: Record, infons: Infons) -> tuple[set[str], tuple[Argument, ...]]:
        """The arguments of a relation, and the infons that name them."""
        nodes = objects(record, "nodes")
        for first, second in _SIDES:
            if first in infons and second in infons:
                sides = parse_sides(_side_field(infons, first), _side_field(infons, second), self.types)
                if all(concepts for _, concepts in sides):
                    if nodes:
                        self.tally.note("nodes of a relation between concepts ignored")
                    return {first, second}, arguments_from_sides(sides)
        if nodes:
            return set(), tuple(
                Argument(string(node, "role") or "", level.resolve(required(node, "refid"))) for node in nodes
            )
        # BC5CDR has the concepts of a relation in infons named after the types of their mentions.
        used = {key for key in infons if key in self.span_types}
        pairs = [
            (key, read_infon("identifier", string(infons, key) or "", key, self.tally)) for key in infons if key in used
        ]
        return used, arguments_from_sides(pairs)


def _side_field(infons: Infons, key: str) -> str:
    """An argument of a relation as "type|ids"; PubTator3's JSON has an object with both."""
    value = infons[key]
    if isinstance(value, dict):
        type_, ids = string(value, "type"), string(value, "identifier") or ""
        return f"{type_}|{ids}" if type_ and ids else ids
    return string(infons, key) or ""


def _display_relations(
    record: Record, levels: list[_Level], spans: tuple[Span, ...], tally: Tally
) -> tuple[Relation, ...]:
    """The relations of a document that has them only for display: associate|@GENE_ZBL1|@DISEASE_Zorb."""
    display_names = [string(item, "name") or "" for item in objects(record, "relations_display")]
    if not display_names:
        return ()
    by_id = {span.id: span for span in spans}
    accessions: dict[str | None, Ids] = {}
    for level in levels:
        for annotation in level.annotations:
            span = by_id.get(level.resolve(string(annotation, "id") or ""))
            if span is not None:
                accessions.setdefault(string(get_infons(annotation), "accession"), span.concepts)
    types = types_by_concept(spans)
    relations: list[Relation] = []
    for number, (type_, *ends) in enumerate((name.split("|") for name in display_names), 1):
        if len(ends) != 2 or not all(ends):
            tally.note("display relation without two arguments ignored")
            continue
        left, right = (accessions.get(end) or (f"pubtator3:{end}",) for end in ends)
        relations.append(Relation(f"R{number}", type_, arguments_from_sides(sides_from_concepts(left, right, types))))
    return tuple(relations)


def record_of(doc: Document) -> RecordDict:
    """The document as a BioC record, with an infon "lexome" where conventional infons do not suffice."""
    meta = meta_infons(doc.meta) if doc.passages else {}
    passages = [_passage_record(passage, meta if number == 0 else {}) for number, passage in enumerate(doc.passages)]
    _place_annotations(doc, passages)
    containers = (container for passage in passages for container in (*passage["sentences"], passage))
    written = [annotation["id"] for container in containers for annotation in container["annotations"]]
    order = tuple(span.id for span in doc.spans)
    own = DocumentFields(
        doc.attributes,
        doc.questions,
        doc.labels,
        doc.meta if metadata(meta, {}) != doc.meta else None,
        order if list(order) != written else (),
        doc.label_scores,
    )
    types = types_by_concept(doc.spans) if doc.relations else {}
    return {
        "id": doc.id,
        "infons": own_infon(own),
        "passages": passages,
        "annotations": [],
        "relations": [_relation(relation, types) for relation in doc.relations],
    }


def _passage_record(passage: Passage, meta: dict[str, str]) -> RecordDict:
    infons = {"type": HEADING if passage.kind == "heading" else passage.kind}
    if passage.category is not None:
        infons["section_type"] = passage.category
    if passage.section:
        infons["section"] = passage.section[-1]
    infons |= meta
    kind, section, category = passage_description(infons)
    between = _between(passage)
    # BioC readers restore the text of sentences if there are only spaces between them.
    default_spacing = between is not None and not between[-1] and not "".join(between).strip(" ")
    own = PassageFields(
        kind=passage.kind if passage.kind != kind else None,
        section=passage.section if passage.section != section else (),
        category=passage.category if passage.category != category else None,
        language=passage.language,
        source=passage.source,
        sentences=passage.sentences if between is None else (),
        tokens=passage.tokens,
        between=tuple(between) if between is not None and not default_spacing else (),
    )
    sentences = passage.sentences if between is not None else ()
    return {
        "offset": passage.offset,
        "infons": infons | own_infon(own),
        "text": "" if sentences else passage.text,
        "sentences": [
            {
                "offset": start,
                "infons": {},
                "text": passage.text[start - passage.offset : end - passage.offset],
                "annotations": [],
                "relations": [],
            }
            for start, end in sentences
        ],
        "annotations": [],
        "relations": [],
    }


def _between(passage: Passage) -> list[str] | None:
    """The text before, between and after the sentences, or None if it is more than white space."""
    if not passage.sentences:
        return None
    edges = (passage.offset, *(edge for part in passage.sentences for edge in part), passage.end)
    pieces = [passage.text[start - passage.offset : end - passage.offset] for start, end in pairwise(edges)][::2]
    return pieces if not "".join(pieces).strip() else None


def _place_annotations(doc: Document, passages: list[RecordDict]) -> None:
    """Add each mention to the sentence that contains it, or to its passage."""
    if not doc.spans:
        return
    by_offset = {passage.offset: record for passage, record in zip(doc.passages, passages, strict=True) if passage.text}
    low = high = 0
    record: RecordDict = {}
    for span in doc.spans:
        # Most spans are in the passage of the one before.
        if not low <= span.start < high:
            passage = doc.passage_at(span.start)
            if passage is None:
                continue
            low, high, record = passage.offset, passage.end, by_offset[passage.offset]
        container = record
        if record["sentences"]:
            # Sentences are ordered, so only the last one that begins before the mention can contain it.
            at = bisect_right(record["sentences"], span.start, key=itemgetter("offset")) - 1
            sentence = record["sentences"][at] if at >= 0 else record
            if span.end <= sentence["offset"] + len(sentence["text"]):
                container = sentence
        container["annotations"].append(_annotation(span))


def _annotation(span: Span) -> RecordDict:
    infons = {"type": span.type}
    if span.concepts:
        ids = write_ids(span.concepts, span.type)
        infons |= own_infon(AnnotationFields(span.concepts)) if ids is None else {"identifier": ids}
    if span.score is not None:
        infons["score"] = repr(float(span.score))
    return {
        "id": span.id,
        "infons": infons,
        "text": span.text,
        "locations": [{"offset": start, "length": end - start} for start, end in span.parts],
    }


def _relation(relation: Relation, types: Types) -> RecordDict:
    infons = {"type": relation.type}
    if relation.novel is not None:
        infons["novel"] = NOVELTY[relation.novel]
    if relation.score is not None:
        infons["score"] = repr(float(relation.score))
    nodes = [
        {"refid": argument.target, "role": argument.role}
        for argument in relation.arguments
        if argument.target is not None
    ]
    if len(nodes) < len(relation.arguments):
        infons |= _role_infons(relation, types) if not nodes else own_infon(RelationFields(relation.arguments))
    return {"id": relation.id, "infons": infons, "nodes": nodes}


def _role_infons(relation: Relation, types: Types) -> dict[str, str]:
    """A relation between concepts in PubTator3's form, or in the infon "lexome" if that is not exact."""
    fields = relation_fields(relation, {}, types)
    if fields is not None:
        roles = (relation.arguments[0].role, relation.arguments[-1].role)
        typed = tuple(f"{role}|{field}" for role, field in zip(roles, fields, strict=True))
        for first, second in (typed, fields):
            if arguments_from_sides(parse_sides(first, second, types)) == relation.arguments:
                return {"role1": first, "role2": second}
    return own_infon(RelationFields(relation.arguments))


# Article metadata in infons: reading it, and writing as much as they can represent

_ARTICLE_ID = "article-id_"
_ID_WORDS = {"pmid": "pmid", "pmc": "pmcid", "pmcid": "pmcid", "doi": "doi"}
_AUTHOR = re.compile(r"name_([0-9]{1,5})")
_NUMBERED = re.compile(r"_[0-9]+$")
_INITIALS = re.compile(r"[^\W\d_a-z][^\W\d_a-z-]*")
_YEAR = re.compile(r"[0-9]{4}")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DOI = re.compile(r"\bdoi:\s*(10\.[^\s;]*[^\s;.])")
_LICENSE_URL = re.compile(r"https?://creativecommons\.org/[\w./-]*[\w/]")

_READ = frozenset(
    (
        "pmid", "pmcid", "pmc", "doi", "journal", "year", "volume", "issue", "fpage", "lpage", "elocation-id",
        "license", "licence", "authors", "kwd", "keywords",
    )
)  # fmt: skip


def is_metadata_infon(key: str) -> bool:
    """True for infons of the first passage that are read as metadata."""
    lower = key.lower()
    return lower in _READ or lower.startswith(_ARTICLE_ID) or _AUTHOR.fullmatch(lower) is not None


def note_infons(infons: Iterable[str], where: str, tally: Tally) -> None:
    """Count ignored infons."""
    for key in infons:
        # name_0, name_1, ... are one kind of infon and one line in the summary.
        tally.note(f"{where} infon {_NUMBERED.sub('_N', key)!r} ignored")


def metadata(infons: Mapping[str, Any], record: Mapping[str, Any]) -> Metadata:
    """The metadata in the infons of a document and its first passage, and in the fields that PubTator3 adds."""
    values = {key.lower(): string(infons, key) for key in infons if is_metadata_infon(key) and infons[key] is not None}
    ids, other_ids = _ids(values)
    journal_line = values.get("journal") or ""
    year = values.get("year") or ""
    license_ = values.get("license") or values.get("licence")
    url = _LICENSE_URL.search(license_ or "")
    day = _DAY.match(string(record, "date") or "")
    # The date in the journal infon if it agrees with the year, else the year.
    date = parse_free_date(journal_line.partition(";")[2])
    if date is None or not date.startswith(year):
        date = year if _YEAR.fullmatch(year) else None
    return Metadata(
        pmid=string(record, "pmid") or ids.get("pmid"),
        pmcid=pmcid(id_) if (id_ := string(record, "pmcid") or ids.get("pmcid")) is not None else None,
        doi=ids.get("doi") or (doi[1] if (doi := _DOI.search(journal_line)) is not None else None),
        other_ids=other_ids,
        journal=_journal(values, string(record, "journal")),
        published=day[0] if day is not None else date,
        authors=_authors(values, strings(record, "authors")),
        # PMC separates keywords by spaces, which cannot be split.
        keywords=tuple(filter(None, map(str.strip, (values.get("kwd") or values.get("keywords") or "").split(";")))),
        license=license_,
        license_url=url[0] if url is not None else None,
    )


def meta_infons(meta: Metadata) -> dict[str, str]:
    """The metadata as conventional BioC infons, as far as they can represent it."""
    journal = meta.journal or Journal()
    names = [
        author.collective or " ".join(filter(None, (author.family, author.initials or author.given)))
        for author in meta.authors
    ]
    values = {
        "article-id_pmid": meta.pmid,
        "article-id_pmc": meta.pmcid,
        "article-id_doi": meta.doi,
        "journal": journal.abbreviation or journal.title,
        "year": (meta.published or "")[:4],
        "volume": journal.volume,
        "issue": journal.issue,
        "authors": ", ".join(filter(None, names)),
        "kwd": "; ".join(meta.keywords),
        "license": meta.license,
    }
    return {key: value for key, value in values.items() if value}


def _ids(values: Mapping[str, str | None]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The ids with a Metadata field, by its name, and the others as "kind:id"."""
    ids: dict[str, str] = {}
    other: list[str] = []
    for key, value in values.items():
        word = key.removeprefix(_ARTICLE_ID)
        if not value:
            continue
        if word in _ID_WORDS:
            ids.setdefault(_ID_WORDS[word], value)
        elif key.startswith(_ARTICLE_ID):
            other.append(f"{word}:{value}")
    return ids, tuple(other)


def _journal(values: Mapping[str, str | None], name: str | None) -> Journal | None:
    """The journal; PubTator writes "J. Cell Biol.; 1992 Apr; 117(2) 427-35", which begins with the name."""
    abbreviation = name or (values.get("journal") or "").partition(";")[0].strip() or None
    pages = "-".join(filter(None, (values.get("fpage"), values.get("lpage")))) or values.get("elocation-id") or None
    journal = Journal(None, abbreviation, (), None, values.get("volume") or None, values.get("issue") or None, pages)
    return journal if journal != Journal() else None


def _authors(values: Mapping[str, str | None], listed: tuple[str, ...]) -> tuple[Author, ...]:
    """The authors: name_N infons with surname and given names, a list, or a comma-separated string."""
    fields = sorted((int(match[1]), value or "") for key, value in values.items() if (match := _AUTHOR.fullmatch(key)))
    authors: list[Author] = []
    for _, value in fields:
        parts = dict(part.partition(":")[::2] for part in value.split(";"))
        authors.append(Author(family=parts.get("surname") or value or None, given=parts.get("given-names") or None))
    if authors:
        return tuple(authors)
    for name in filter(None, map(str.strip, listed or (values.get("authors") or "").split(","))):
        family, _, initials = name.rpartition(" ")
        has_initials = family and _INITIALS.fullmatch(initials)
        authors.append(Author(family, initials=initials) if has_initials else Author(family=name))
    return tuple(authors)
