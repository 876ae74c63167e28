"""BioC's documents, as XML and JSON share them: a record of plain values to a Document.

A record is a document as BioC JSON has it: id, infons, passages (offset, infons, text, sentences,
annotations, relations), annotations, relations. The XML reader makes the same records.

The infons of PubTator, PubTator Central, PubTator3, BC5CDR and BioRED are known: type, score, the ids
(concepts.py), and what is said about the article (bioc_meta.py). PubTator3's
relations name concepts in role1 and role2, and their nodes number nothing that is in the file. Infons
that nothing is made of are noted.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
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
from lexome.errors import BadDocument, DocumentError
from lexome.formats.bioc.infons import is_about_the_article, meta_infons, metadata, note_infons
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
from lexome.formats.json_file import mapping, note_unknown_fields, objects, required, string, strings
from lexome.formats.tally import Tally, drop_dependents, repair_spans, text_at
from lexome.metadata import Metadata

# Offsets beyond this are no text's; they would only fill the memory with spaces.
_LARGEST_OFFSET = 10**12
_WIDEST_GAP = 1_000_000


def whole_number(value: object, what: str) -> int:
    """An offset or length; BadDocument where it is none."""
    text = value.strip() if isinstance(value, str) else ""
    if text.isascii() and text.isdecimal() and len(text) <= 12:
        return int(text)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _LARGEST_OFFSET:
        return value
    raise BadDocument("bad_offset", f"{what} is {shorten(repr(value))}; expected a whole number from 0")


def passage_text(
    record: Mapping[str, Any], between: tuple[str, ...], repairing: bool, tally: Tally
) -> tuple[str, tuple[Range, ...]]:
    """The text of a passage and the ranges of its sentences.

    Where only the sentences have text, the passage has theirs, with spaces between them or what
    `between` says stood before, between and after them.
    """
    text = string(record, "text") or ""
    offset = whole_number(record.get("offset"), "a passage's offset")
    sentences = [
        (whole_number(item.get("offset"), "a sentence's offset"), string(item, "text") or "")
        for item in objects(record, "sentences")
    ]
    if not sentences:
        return text, ()
    if text:
        return text, _checked(text, offset, sentences, repairing, tally)
    return _rebuilt(offset, sentences, between), tuple((start, start + len(words)) for start, words in sentences)


def _rebuilt(offset: int, sentences: list[tuple[int, str]], between: tuple[str, ...]) -> str:
    if between and len(between) != len(sentences) + 1:
        raise BadDocument(
            "bad_field", f"{len(between)} texts lie between {len(sentences)} sentences; expected one more"
        )
    pieces: list[str] = []
    at = offset
    for number, (start, words) in enumerate(sentences):
        gap = start - at
        if not 0 <= gap <= _WIDEST_GAP or (between and len(between[number]) != gap):
            raise BadDocument(
                "bad_offset",
                f"a sentence begins at {start} where the text before it ends at {at}; expected sentences in order, "
                "inside their passage",
            )
        pieces += (between[number] if between else " " * gap, words)
        at = start + len(words)
    return "".join((*pieces, *between[-1:]))


def _checked(
    text: str, offset: int, sentences: list[tuple[int, str]], repairing: bool, tally: Tally
) -> tuple[Range, ...]:
    """The ranges of sentences that repeat the passage's text, if they do."""
    ranges: list[Range] = []
    for start, words in sentences:
        if start >= offset and text.startswith(words, start - offset):
            ranges.append((start, start + len(words)))
        elif repairing:
            tally.note("sentence left out: its text does not stand at its offset")
        else:
            raise BadDocument(
                "offset_mismatch",
                f"a sentence says {shorten(words)!r}, but at {start} the passage says "
                f"{shorten(text[max(0, start - offset) : start - offset + len(words)])!r}",
            )
    return tuple(ranges)


KEY = "lexome"


@dataclass(frozen=True, slots=True)
class OfDocument:
    """A document's own fields; `meta` is None where the infons say it all."""

    attributes: tuple[Attribute, ...] = ()
    questions: tuple[Question, ...] = ()
    labels: tuple[str, ...] = ()
    meta: Metadata | None = None
    spans: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OfPassage:
    """A passage's own fields; None and empty ones are as the infons say."""

    kind: str | None = None
    section: tuple[str, ...] = ()
    category: str | None = None
    language: str | None = None
    source: str | None = None
    sentences: tuple[Range, ...] = ()
    tokens: tuple[Range, ...] = ()
    between: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OfAnnotation:
    """The concepts of a mention, where its ids cannot be written in BioC's usual way."""

    concepts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OfRelation:
    """The arguments of a relation, where its nodes and infons cannot name them all."""

    arguments: tuple[Argument, ...] = ()


Own = TypeVar("Own", OfDocument, OfPassage, OfAnnotation, OfRelation)


def infons_of(own: OfDocument | OfPassage | OfAnnotation | OfRelation) -> dict[str, str]:
    """The infon that holds these fields, or none where all are empty."""
    if own == type(own)():
        return {}
    try:
        raw: str = _adapter(cast(Any, type(own))).dump_json(own, exclude_defaults=True).decode()
    except ValueError:
        raise BadDocument("not_unicode", "the document has half a surrogate pair; expected whole characters") from None
    # JSON escapes control characters itself; these two XML cannot hold either.
    return {KEY: raw.replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")}


def read_own(kind: type[Own], raw: str | None) -> Own | None:
    """The fields in such an infon; BadDocument says which is wrong."""
    if raw is None:
        return None
    from pydantic import ValidationError

    try:
        own: Own = _adapter(cast(Any, kind)).validate_json(raw, extra="forbid")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        cause = first.get("ctx", {}).get("error")
        if isinstance(cause, DocumentError):
            raise cause from None
        field = ".".join(str(step) for step in first["loc"]) or KEY
        raise BadDocument("bad_field", f"infon {KEY!r}, {field}: {first['msg']}; expected what Lexome writes") from None
    return own


@cache
def _adapter(kind: Any) -> Any:
    """pydantic's validator, made on first use: it takes a tenth of a second to import."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


Record = Mapping[str, Any]
Infons = Mapping[str, Any]

# How PMC marks a heading of the first level.
HEADING = "title_1"

UNTYPED_MENTION = "Mention"
UNTYPED_RELATION = "Relation"

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


@dataclass(slots=True)
class _Level:
    """What is annotated in a sentence, a passage or the document, and what the ids there stand for, innermost first."""

    annotations: list[dict[str, Any]]
    relations: list[dict[str, Any]]
    names: tuple[dict[str, str], ...]

    @classmethod
    def of(cls, record: Record, *names: dict[str, str]) -> Self:
        return cls(objects(record, "annotations"), objects(record, "relations"), names)

    def call(self, given: str, id_: str) -> None:
        for names in self.names:
            names.setdefault(given, id_)

    def find(self, given: str) -> str:
        return next((names[given] for names in self.names if given in names), given)


class _Ids:
    """Ids of one document, each handed out once."""

    def __init__(self, levels: Iterable[_Level], tally: Tally) -> None:
        things = (thing for level in levels for things in (level.annotations, level.relations) for thing in things)
        given = [id_ for thing in things if (id_ := string(thing, "id")) is not None]
        self.given = set(given)
        # Some files have the id "" on everything, which names nothing.
        self.nameless = {""} if given.count("") > 1 else set()
        self.taken: set[str] = set()
        self.repeats: dict[str, Iterator[int]] = {}
        self.tally = tally

    def claim(self, given: str | None, fresh: Iterator[str], what: str) -> str:
        """The id that was given, if it is still free, or another."""
        if given is None or given in self.nameless:
            id_ = next(name for name in fresh if name not in self.given)
        elif given in self.taken:
            self.tally.note(f"{what} id used twice in a document, renumbered")
            names = (f"{given}-{number}" for number in self.repeats.setdefault(given, count(2)))
            id_ = next(name for name in names if name not in self.given)
        else:
            id_ = given
        self.taken.add(id_)
        return id_


def read_document(record: Record, *, repairing: bool, tally: Tally) -> Document:
    """The document of a record; BadDocument says what is wrong with it."""
    infons = infons_in(record)
    own = read_own(OfDocument, string(infons, KEY)) or OfDocument()
    note_unknown_fields(record, _DOCUMENT_FIELDS, tally)
    passages, levels = _passages(record, repairing, tally)
    ids = _Ids(levels, tally)
    spans, dropped = _spans(levels, ids, passages, repairing, tally)
    relations = _relations(levels, ids, spans, tally) or _displayed(record, levels, spans, tally)
    attributes = own.attributes
    if dropped:
        relations, attributes = drop_dependents(dropped, relations, attributes, tally=tally)
    if repairing:
        spans, relations, attributes = repair_spans(passages, spans, relations, attributes, tally=tally)
    return Document(
        required(record, "id"),
        passages,
        _ordered(spans, own.spans),
        relations,
        attributes,
        own.questions,
        own.labels,
        own.meta if own.meta is not None else _metadata(record, infons, tally),
    )


def infons_in(record: Record) -> Infons:
    """The infons of anything."""
    return mapping(record.get("infons") or {}, "infons")


def described(infons: Infons) -> tuple[str, tuple[str, ...], str | None]:
    """The kind, section and category that a passage's infons name."""
    category = string(infons, "section_type")
    section = string(infons, "section")
    return _kind(string(infons, "type"), category), () if section is None else (section,), category


def _kind(type_: str | None, category: str | None) -> str:
    if type_ is None:
        return "paragraph"
    if type_ == "front":
        return "title"
    # PMC's headings are title_1, title_2, ...; that of the references is title, like the article's own.
    if _HEADING.fullmatch(type_) and (type_ != "title" or category not in (None, "TITLE")):
        return "heading"
    for word in ("caption", "footnote"):
        if type_.endswith(f"_{word}"):
            return word
    return type_


def _passages(record: Record, repairing: bool, tally: Tally) -> tuple[tuple[Passage, ...], list[_Level]]:
    """The passages, and all levels at which something can be annotated, in the order of the file."""
    everywhere: dict[str, str] = {}
    passages: list[Passage] = []
    levels: list[_Level] = []
    for number, item in enumerate(objects(record, "passages")):
        passages.append(_passage(item, number == 0, repairing, tally))
        inside: dict[str, str] = {}
        for sentence in objects(item, "sentences"):
            note_unknown_fields(sentence, _PASSAGE_FIELDS, tally)
            note_infons(infons_in(sentence), "sentence", tally)
            levels.append(_Level.of(sentence, {}, inside, everywhere))
        levels.append(_Level.of(item, inside, everywhere))
    levels.append(_Level.of(record, everywhere))
    return tuple(passages), levels


def _passage(record: Record, first: bool, repairing: bool, tally: Tally) -> Passage:
    infons = infons_in(record)
    own = read_own(OfPassage, string(infons, KEY)) or OfPassage()
    kind, section, category = described(infons)
    type_ = string(infons, "type")
    if type_ not in (None, kind, "front", HEADING) and own.kind is None:
        tally.note(f"passage type {type_!r} read as {kind}")
    known = {KEY, "type", "section", "section_type"}
    note_infons(
        (key for key in infons if key not in known and not (first and is_about_the_article(key))), "passage", tally
    )
    note_unknown_fields(record, _PASSAGE_FIELDS, tally)
    text, sentences = passage_text(record, own.between, repairing, tally)
    return Passage(
        whole_number(record.get("offset"), "a passage's offset"),
        text,
        own.kind if own.kind is not None else kind,
        own.section or section,
        own.category if own.category is not None else category,
        own.language,
        own.source,
        own.sentences or sentences,
        own.tokens,
    )


def _spans(
    levels: list[_Level], ids: _Ids, passages: tuple[Passage, ...], repairing: bool, tally: Tally
) -> tuple[tuple[Span, ...], set[str]]:
    """The mentions, and the ids of the annotations that are none."""
    fresh = numbered_ids("T")
    spans: list[Span] = []
    dropped: set[str] = set()
    for level in levels:
        for record in level.annotations:
            given = string(record, "id")
            id_ = ids.claim(given, fresh, "annotation")
            if given is not None:
                level.call(given, id_)
            text = string(record, "text")
            parts = _parts(record, 1 if repairing and text else 0)
            if not parts or (not text and parts[0][0] == parts[0][1]):
                tally.note("annotation without a place in the text left out")
                dropped.add(id_)
                continue
            spans.append(_span(record, id_, parts, _mention(text, parts, passages, tally), tally))
    return tuple(spans), dropped


def _parts(record: Record, least: int) -> tuple[Range, ...]:
    """The ranges of an annotation, in reading order, none shorter than the least."""
    ranges = []
    for location in objects(record, "locations"):
        start = whole_number(location.get("offset"), "a location's offset")
        ranges.append((start, start + max(least, whole_number(location.get("length"), "a location's length"))))
    return tuple(sorted(ranges))


def _mention(text: str | None, parts: tuple[Range, ...], passages: tuple[Passage, ...], tally: Tally) -> str:
    """The text of an annotation, that of several parts joined by spaces."""
    if text is not None and len(parts) == 1:
        return text
    found = [text_at(passages, part) for part in parts]
    if None in found:
        return text or ""
    joined = " ".join(map(str, found))
    if text is None:
        tally.note("annotation without a text, taken from its place")
        return joined
    whole = text_at(passages, (parts[0][0], parts[-1][1]))
    if text != joined and (text == whole or "".join(text.split()) == "".join(joined.split())):
        tally.note("text of a discontinuous annotation joined another way")
        return joined
    return text


def _span(record: Record, id_: str, parts: tuple[Range, ...], text: str, tally: Tally) -> Span:
    infons = infons_in(record)
    type_ = string(infons, "type")
    if type_ is None:
        tally.note(f"annotation without a type read as {UNTYPED_MENTION}")
        type_ = UNTYPED_MENTION
    own = read_own(OfAnnotation, string(infons, KEY))
    concepts: list[str] = []
    unread: list[str] = []
    score = None
    for key, value in infons.items():
        if is_concept_infon(key):
            found = [id_ for raw in strings(infons, key) for id_ in read_infon(key, raw, type_, tally)]
            # The same id is often given twice, as identifier and under its vocabulary's name.
            concepts += [concept for concept in found if concept not in concepts] if concepts else found
        elif key in _SCORES and score is None and value is not None:
            score = _score(string(infons, key), tally)
        elif key not in ("type", KEY):
            unread.append(key)
    note_infons(unread, "annotation", tally)
    note_unknown_fields(record, _ANNOTATION_FIELDS, tally)
    return Span(id_, type_, parts, text, tuple(concepts) if own is None else own.concepts, score)


def _score(text: str | None, tally: Tally) -> float | None:
    try:
        score = float(text or "")
    except ValueError:
        score = float("nan")
    if not isfinite(score):
        tally.note("score that is no number ignored")
        return None
    return score


def _relations(levels: list[_Level], ids: _Ids, spans: tuple[Span, ...], tally: Tally) -> tuple[Relation, ...]:
    found = [(level, record) for level in levels for record in level.relations]
    if not found:
        return ()
    fresh = numbered_ids("R")
    names: list[str] = []
    # Relations may refer to relations that come later, so all are named before any is read.
    for level, record in found:
        given = string(record, "id")
        names.append(ids.claim(given, fresh, "relation"))
        if given is not None:
            level.call(given, names[-1])
    known = _Known(types_by_concept(spans), {span.type for span in spans}, tally)
    return tuple(known.relation(level, record, id_) for (level, record), id_ in zip(found, names, strict=True))


@dataclass(frozen=True, slots=True)
class _Known:
    """What a document's mentions say that its relations need."""

    types: Types
    span_types: set[str]
    tally: Tally

    def relation(self, level: _Level, record: Record, id_: str) -> Relation:
        infons = infons_in(record)
        own = read_own(OfRelation, string(infons, KEY))
        type_ = next((text for key in _RELATION_TYPES if (text := string(infons, key)) is not None), None)
        if type_ is None:
            self.tally.note(f"relation without a type read as {UNTYPED_RELATION}")
        used, arguments = self.arguments(level, record, infons)
        novel = NOVELTY_VALUES.get((string(infons, "novel") or "").lower())
        score = next((_score(string(infons, key), self.tally) for key in _SCORES if infons.get(key) is not None), None)
        known = {KEY, "novel", *_RELATION_TYPES, *_SCORES, *used}
        note_infons((key for key in infons if key not in known), "relation", self.tally)
        note_unknown_fields(record, _RELATION_FIELDS, self.tally)
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
                Argument(string(node, "role") or "", level.find(required(node, "refid"))) for node in nodes
            )
        # BC5CDR names the concepts of a relation under the types of their mentions.
        used = {key for key in infons if key in self.span_types}
        pairs = [
            (key, read_infon("identifier", string(infons, key) or "", key, self.tally)) for key in infons if key in used
        ]
        return used, arguments_from_sides(pairs)


def _side_field(infons: Infons, key: str) -> str:
    """A side of a relation as type and ids; PubTator3's JSON has an object with both."""
    value = infons[key]
    if isinstance(value, dict):
        type_, ids = string(value, "type"), string(value, "identifier") or ""
        return f"{type_}|{ids}" if type_ and ids else ids
    return string(infons, key) or ""


def _displayed(record: Record, levels: list[_Level], spans: tuple[Span, ...], tally: Tally) -> tuple[Relation, ...]:
    """The relations of a document that only names them for display: associate|@GENE_ZBL1|@DISEASE_Zorb."""
    shown = [string(item, "name") or "" for item in objects(record, "relations_display")]
    if not shown:
        return ()
    by_id = {span.id: span for span in spans}
    accessions: dict[str | None, Ids] = {}
    for level in levels:
        for annotation in level.annotations:
            span = by_id.get(level.find(string(annotation, "id") or ""))
            if span is not None:
                accessions.setdefault(string(infons_in(annotation), "accession"), span.concepts)
    types = types_by_concept(spans)
    relations: list[Relation] = []
    for number, (type_, *ends) in enumerate((name.split("|") for name in shown), 1):
        if len(ends) != 2 or not all(ends):
            tally.note("relation for display that has no two ends ignored")
            continue
        left, right = (accessions.get(end) or (f"pubtator3:{end}",) for end in ends)
        relations.append(Relation(f"R{number}", type_, arguments_from_sides(sides_from_concepts(left, right, types))))
    return tuple(relations)


def _ordered(spans: tuple[Span, ...], order: tuple[str, ...]) -> tuple[Span, ...]:
    """The spans in the order that is kept with the document, where one is."""
    if not order:
        return spans
    places = {id_: place for place, id_ in enumerate(order)}
    return tuple(sorted(spans, key=lambda span: places.get(span.id, len(places))))


def _metadata(record: Record, infons: Infons, tally: Tally) -> Metadata:
    note_infons((key for key in infons if key != KEY and not is_about_the_article(key)), "document", tally)
    first = next(iter(objects(record, "passages")), {})
    return metadata({**infons, **infons_in(first)}, record)


RecordDict = dict[str, Any]


def record_of(doc: Document) -> RecordDict:
    """The document as BioC JSON has it, with an infon of our own wherever the others do not say all."""
    about = meta_infons(doc.meta) if doc.passages else {}
    passages = [_passage_record(passage, about if number == 0 else {}) for number, passage in enumerate(doc.passages)]
    _place(doc, passages)
    written = [annotation["id"] for passage in passages for annotation in _annotations(passage)]
    order = tuple(span.id for span in doc.spans)
    own = OfDocument(
        doc.attributes,
        doc.questions,
        doc.labels,
        doc.meta if metadata(about, {}) != doc.meta else None,
        order if list(order) != written else (),
    )
    types = types_by_concept(doc.spans) if doc.relations else {}
    return {
        "id": doc.id,
        "infons": infons_of(own),
        "passages": passages,
        "annotations": [],
        "relations": [_relation(relation, types) for relation in doc.relations],
    }


def _annotations(passage: RecordDict) -> Iterable[RecordDict]:
    for sentence in passage["sentences"]:
        yield from sentence["annotations"]
    yield from passage["annotations"]


def _passage_record(passage: Passage, about: dict[str, str]) -> RecordDict:
    infons = {"type": HEADING if passage.kind == "heading" else passage.kind}
    if passage.category is not None:
        infons["section_type"] = passage.category
    if passage.section:
        infons["section"] = passage.section[-1]
    infons |= about
    kind, section, category = described(infons)
    between = _between(passage)
    own = OfPassage(
        kind=passage.kind if passage.kind != kind else None,
        section=passage.section if passage.section != section else (),
        category=passage.category if passage.category != category else None,
        language=passage.language,
        source=passage.source,
        sentences=passage.sentences if between is None else (),
        tokens=passage.tokens,
        between=tuple(between) if between is not None and not _is_usual(between) else (),
    )
    cut = passage.sentences if between is not None else ()
    return {
        "offset": passage.offset,
        "infons": infons | infons_of(own),
        "text": "" if cut else passage.text,
        "sentences": [_sentence(passage, part) for part in cut],
        "annotations": [],
        "relations": [],
    }


def _between(passage: Passage) -> list[str] | None:
    """What stands before, between and after the sentences, or None where that is more than white space."""
    if not passage.sentences:
        return None
    edges = (passage.offset, *(edge for part in passage.sentences for edge in part), passage.end)
    pieces = [passage.text[start - passage.offset : end - passage.offset] for start, end in pairwise(edges)][::2]
    return pieces if not "".join(pieces).strip() else None


def _is_usual(between: list[str]) -> bool:
    """True where readers of BioC, who put spaces between sentences, get the text right by themselves."""
    return not between[-1] and not "".join(between).strip(" ")


def _sentence(passage: Passage, part: Range) -> RecordDict:
    start, end = part
    return {
        "offset": start,
        "infons": {},
        "text": passage.text[start - passage.offset : end - passage.offset],
        "annotations": [],
        "relations": [],
    }


def _place(doc: Document, passages: list[RecordDict]) -> None:
    """Put each mention into the sentence that holds it, or the passage where none does."""
    if not doc.spans:
        return
    places = {passage.offset: record for passage, record in zip(doc.passages, passages, strict=True) if passage.text}
    for span in doc.spans:
        passage = doc.passage_at(span.start)
        if passage is None:
            continue
        record = places[passage.offset]
        # Sentences stand in order, so only the last that begins before the mention can hold it.
        at = bisect_right(record["sentences"], span.start, key=itemgetter("offset")) - 1
        holder = record["sentences"][at] if at >= 0 else record
        if span.end > holder["offset"] + len(holder["text"]):
            holder = record
        holder["annotations"].append(_annotation(span))


def _annotation(span: Span) -> RecordDict:
    infons = {"type": span.type}
    if span.concepts:
        ids = write_ids(span.concepts, span.type)
        infons |= infons_of(OfAnnotation(span.concepts)) if ids is None else {"identifier": ids}
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
        infons |= _sides(relation, types) if not nodes else infons_of(OfRelation(relation.arguments))
    return {"id": relation.id, "infons": infons, "nodes": nodes}


def _sides(relation: Relation, types: Types) -> dict[str, str]:
    """A relation between concepts as PubTator3 has it, or in our own infon where that says something else."""
    fields = relation_fields(relation, {}, types)
    if fields is not None:
        roles = (relation.arguments[0].role, relation.arguments[-1].role)
        typed = tuple(f"{role}|{field}" for role, field in zip(roles, fields, strict=True))
        for first, second in (typed, fields):
            if arguments_from_sides(parse_sides(first, second, types)) == relation.arguments:
                return {"role1": first, "role2": second}
    return infons_of(OfRelation(relation.arguments))
