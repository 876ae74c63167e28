"""Mentions of a document: on its units, to be learnt, and in place of others, when they have been found."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Literal

from lexome.document import Document, Range, Span, numbered
from lexome.tasks.tags import Mention
from lexome.tasks.units import Units

Discontinuous = Literal["hull", "longest", "skip"]


def on_units(
    doc: Document,
    units: Units,
    called: str,
    *,
    types: Collection[str],
    discontinuous: Discontinuous,
    notes: Counter[str],
) -> list[Mention]:
    """The mentions of some types as ranges of units, which are called words or tokens.

    What is lost or moved on the way is counted in notes.
    """
    found = []
    for span in doc.spans:
        if span.type not in types:
            notes[f"mention of another type: {span.type}"] += 1
            continue
        kept = _one_part(doc, span, discontinuous, notes)
        covered = units.covered(*kept) if kept is not None else None
        if kept is None or covered is None:
            notes["mention left out: " + ("it is in parts" if kept is None else "no token stands in it")] += 1
            continue
        first, last = covered
        if not any(low <= first and last <= high for low, high in units.runs):
            notes["mention left out: it reaches over the end of a sentence"] += 1
            continue
        if (units.ranges[first][0], units.ranges[last - 1][1]) != kept:
            notes[f"mention moved to the bounds of {called}"] += 1
        found.append((first, last, span.type))
    return found


def _one_part(doc: Document, span: Span, discontinuous: Discontinuous, notes: Counter[str]) -> Range | None:
    """A mention as one range, as `discontinuous` says; None where it is left out."""
    if len(span.parts) == 1:
        return span.parts[0]
    if discontinuous == "skip":
        return None
    longest = max(span.parts, key=lambda part: part[1] - part[0])
    passage = doc.passage_at(span.start)
    in_one = passage is not None and span.end <= passage.end
    hull = discontinuous == "hull" and in_one
    notes["mention in parts taken as " + ("one" if hull else "its longest part")] += 1
    return (span.start, span.end) if hull else longest


def apart(mentions: Sequence[Mention], notes: Counter[str]) -> list[Mention]:
    """Of mentions that overlap the longest, the first of those as long; the others are counted in notes."""
    kept: list[Mention] = []
    taken: set[int] = set()
    for mention in sorted(mentions, key=lambda mention: (mention[0] - mention[1], mention[0])):
        start, end, _ = mention
        if taken.isdisjoint(range(start, end)):
            taken.update(range(start, end))
            kept.append(mention)
        else:
            twice = mention in kept
            notes["mention left out: it " + ("is there twice" if twice else "overlaps a longer one")] += 1
    return kept


def with_spans(doc: Document, found: Sequence[Span], types: Sequence[str]) -> Document:
    """The document with these spans, numbered in reading order, in place of all of the types."""
    kept = tuple(span for span in doc.spans if span.type not in types)
    gone = {span.id for span in doc.spans} - {span.id for span in kept}
    unmentioned = {name for span in doc.spans for name in span.concepts}.difference(*(span.concepts for span in kept))
    gone |= {
        relation.id
        for relation in doc.relations
        if not unmentioned.isdisjoint(argument.concept for argument in relation.arguments)
    }
    relations = tuple(relation for relation in doc.relations if relation.id not in gone)
    attributes = doc.attributes
    while gone:
        lost = {
            relation.id for relation in relations if any(argument.target in gone for argument in relation.arguments)
        }
        relations = tuple(relation for relation in relations if relation.id not in lost)
        attributes = tuple(attribute for attribute in attributes if attribute.target not in gone)
        gone = lost
    taken = {span.id for span in kept} | {relation.id for relation in relations}
    names = (name for name in numbered("T") if name not in taken)
    ordered = sorted(found, key=lambda span: (span.start, -span.end, span.type))
    spans = tuple(replace(span, id=name) for span, name in zip(ordered, names, strict=False))
    return replace(doc, spans=(*kept, *spans), relations=relations, attributes=attributes)
