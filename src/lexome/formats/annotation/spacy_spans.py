"""The spans a spaCy doc has now, as a Document's: unchanged, changed, added or foreign."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lexome.document import Document, Passage, Relation, Span, numbered
from lexome.formats.tally import Tally

if TYPE_CHECKING:
    from spacy.tokens import Doc

# The key of our span group and of our entry in user_data.
KEY = "lexome"

# Annotations of foreign docs that a Document has no field for.
UNREAD = ("TAG", "POS", "MORPH", "LEMMA", "DEP")


@dataclass(frozen=True, slots=True)
class Mention:
    """A spaCy span in characters, as far as a Document can use it."""

    start: int
    end: int
    label: str
    concept: str
    id: str


def plain_document(spacy_doc: "Doc", text: str, id: str, tally: Tally) -> Document:
    """A document of one passage, without spans, from a spaCy doc that is not ours."""
    for name in UNREAD:
        if spacy_doc.has_annotation(name):
            tally.note(f"spaCy's {name} ignored")
    sentences = spacy_doc.sents if spacy_doc.has_annotation("SENT_START") else ()
    passage = Passage(
        0,
        text,
        sentences=tuple((sentence.start_char, sentence.end_char) for sentence in sentences),
        tokens=tuple((token.idx, token.idx + len(token)) for token in spacy_doc if not token.is_space),
    )
    labels = tuple(label for label, score in spacy_doc.cats.items() if score >= 0.5)
    return Document(id, (passage,) if text else (), labels=labels)


def _mentions(spans: Iterable[Any], label: str, doc: Document, tally: Tally) -> Iterator[Mention]:
    """spaCy spans as plain values, those without text or outside the passages left out and noted.

    Only numbers and names are asked of spaCy here: a span group in a damaged file may point anywhere.
    """
    for span in spans:
        start, end = span.start_char, span.end_char
        passage = doc.passage_at(start) if 0 <= start < end else None
        if passage is None or end > passage.end:
            tally.note("spaCy span that is empty or not inside one passage, left out")
        else:
            yield Mention(start, end, span.label_ or label, span.kb_id_, span.id_)


def current_spans(spacy_doc: "Doc", doc: Document, tally: Tally) -> Iterator[Span]:
    """The spans a spaCy doc has now; those that the document knows come with all that it knows of them."""
    group = list(_mentions(spacy_doc.spans.get(KEY, ()), "", doc, tally))
    others = list(_mentions(spacy_doc.ents, "entity", doc, tally))
    for name, spans in spacy_doc.spans.items():
        if name != KEY:
            others += _mentions(spans, name, doc, tally)
    seen = {(mention.start, mention.end, mention.label) for mention in group}
    taken = {mention.id for mention in group} | {relation.id for relation in doc.relations} | {""}
    known = {span.id: span for span in doc.spans}
    fresh = (id_ for id_ in numbered("T") if id_ not in taken and id_ not in known)
    yield from doc.spans if group == _own(doc) else _regrouped(group, doc, known, fresh)
    for mention in others:
        key = (mention.start, mention.end, mention.label)
        if key not in seen:
            seen.add(key)
            id_ = mention.id if mention.id not in taken else next(fresh)
            taken.add(id_)
            yield _span(id_, [mention], doc, known)


def _own(doc: Document) -> list[Mention]:
    """What our span group holds after to_spacy."""
    return [
        Mention(start, end, span.type, span.concepts[0] if span.concepts else "", span.id)
        for span in doc.spans
        for start, end in span.parts
    ]


def _regrouped(group: list[Mention], doc: Document, known: dict[str, Span], fresh: Iterator[str]) -> Iterator[Span]:
    """The spans of our group after someone changed it: one for each id, its parts in reading order."""
    relations = {relation.id for relation in doc.relations} | {""}
    parts: dict[str, list[Mention]] = {}
    for mention in group:
        parts.setdefault(mention.id if mention.id not in relations else next(fresh), []).append(mention)
    for id_, mentions in parts.items():
        yield _span(id_, sorted(mentions, key=lambda mention: mention.start), doc, known)


def _span(id: str, mentions: list[Mention], doc: Document, known: dict[str, Span]) -> Span:
    parts = tuple((mention.start, mention.end) for mention in mentions)
    before = known.get(id)
    concepts = _concepts(mentions[0])
    if before is not None and (before.type, before.parts, before.concepts[:1]) == (mentions[0].label, parts, concepts):
        return before
    text = " ".join(doc.slice(start, end) for start, end in parts)
    return Span(id, mentions[0].label, parts, text, concepts)


def _concepts(mention: Mention) -> tuple[str, ...]:
    # spaCy's linker says NIL for nothing found; its ids need not be CURIEs, ours are.
    if mention.concept in ("", "NIL"):
        return ()
    prefix, colon, local = mention.concept.partition(":")
    return (mention.concept if prefix and colon and local else f"kb:{mention.concept}",)


def with_spans(doc: Document, spans: tuple[Span, ...], tally: Tally) -> Document:
    """The document with other spans, and without the links to those that are gone."""
    kept = list(doc.relations)
    while True:
        targets = _ids(spans, kept)
        held = [relation for relation in kept if _holds(relation, targets)]
        if len(held) == len(kept):
            break
        kept = held
    attributes = tuple(attribute for attribute in doc.attributes if attribute.target in targets)
    lost = len(doc.relations) - len(kept) + len(doc.attributes) - len(attributes)
    if lost:
        tally.note("relation or attribute of a span removed in spaCy, left out", lost)
    return replace(doc, spans=spans, relations=tuple(kept), attributes=attributes)


def _holds(relation: Relation, targets: set[str]) -> bool:
    return all(argument.target is None or argument.target in targets for argument in relation.arguments)


def _ids(spans: Iterable[Span], relations: Iterable[Relation]) -> set[str]:
    return {span.id for span in spans} | {relation.id for relation in relations}
