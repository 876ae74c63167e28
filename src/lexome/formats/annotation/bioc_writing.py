"""A Document as the record of a BioC document, from which `lexome.formats.annotation.bioc` reads the same Document."""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from operator import itemgetter
from typing import Any

from lexome.document import Document, Passage, Range, Relation, Span
from lexome.formats.annotation.bioc import HEADING, described
from lexome.formats.annotation.bioc_meta import meta_infons, metadata
from lexome.formats.annotation.bioc_own import OfAnnotation, OfDocument, OfPassage, OfRelation, infons_of
from lexome.formats.annotation.concept_relations import (
    NOVELTY,
    Types,
    arguments_of,
    fields_of,
    sides_of,
    types_by_concept,
)
from lexome.formats.annotation.concepts import write_ids

Record = dict[str, Any]


def record_of(doc: Document) -> Record:
    """The document as BioC JSON has it, with an infon of our own wherever the others do not say all."""
    about = meta_infons(doc.meta) if doc.passages else {}
    passages = [_passage(passage, about if number == 0 else {}) for number, passage in enumerate(doc.passages)]
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


def _annotations(passage: Record) -> Iterable[Record]:
    for sentence in passage["sentences"]:
        yield from sentence["annotations"]
    yield from passage["annotations"]


def _passage(passage: Passage, about: dict[str, str]) -> Record:
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


def _sentence(passage: Passage, part: Range) -> Record:
    start, end = part
    return {
        "offset": start,
        "infons": {},
        "text": passage.text[start - passage.offset : end - passage.offset],
        "annotations": [],
        "relations": [],
    }


def _place(doc: Document, passages: list[Record]) -> None:
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


def _annotation(span: Span) -> Record:
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


def _relation(relation: Relation, types: Types) -> Record:
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
    fields = fields_of(relation, {}, types)
    if fields is not None:
        roles = (relation.arguments[0].role, relation.arguments[-1].role)
        typed = tuple(f"{role}|{field}" for role, field in zip(roles, fields, strict=True))
        for first, second in (typed, fields):
            if arguments_of(sides_of(first, second, types)) == relation.arguments:
                return {"role1": first, "role2": second}
    return infons_of(OfRelation(relation.arguments))
