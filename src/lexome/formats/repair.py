"""Spans whose offsets miss their text: moved to where the text stands, or dropped, and counted.

Published corpora have some: offsets counted in bytes, or over another edition of the text. Readers
refuse such documents unless they are asked to repair them, and then call `repaired`:

    if offsets == "repair":
        spans, relations, attributes = repaired(passages, spans, relations, attributes, tally=tally)
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from lexome.document import Attribute, Passage, Range, Relation, Span
from lexome.formats.tally import Tally

# A mention further away than this is more likely another one of the same name.
REACH = 100


def repaired(
    passages: Sequence[Passage],
    spans: Iterable[Span],
    relations: Iterable[Relation] = (),
    attributes: Iterable[Attribute] = (),
    *,
    tally: Tally,
) -> tuple[tuple[Span, ...], tuple[Relation, ...], tuple[Attribute, ...]]:
    """The spans that stand in the text, moved by up to REACH characters where that finds them, and what hangs on them.

    A span that is found nowhere is dropped, and with it the relations and attributes that refer to it.
    """
    kept: list[Span] = []
    dropped: set[str] = set()
    for span in spans:
        placed = _placed(passages, span)
        if placed is None:
            dropped.add(span.id)
            tally.note("span dropped: its text stands nowhere near its offsets")
            continue
        if placed is not span:
            tally.note("span moved to where its text stands")
        kept.append(placed)
    return tuple(kept), *without(dropped, relations, attributes, tally=tally)


def nearest(text: str, mention: str, start: int) -> int | None:
    """Where the mention begins in the text, nearest to `start` and at most REACH away, or None."""
    if not mention:
        return None
    before = text.rfind(mention, max(0, start - REACH), max(0, start + len(mention)))
    after = text.find(mention, max(0, start), max(0, start + REACH + len(mention)))
    found = [place for place in (before, after) if place >= 0]
    return min(found, key=lambda place: abs(place - start), default=None)


def text_at(passages: Sequence[Passage], part: Range) -> str | None:
    """The text of a range, or None where it is not inside one passage."""
    start, end = part
    index = bisect_right(passages, start, key=lambda passage: passage.offset) - 1
    if index < 0 or end > passages[index].end:
        return None
    passage = passages[index]
    return passage.text[start - passage.offset : end - passage.offset]


def without(
    dropped: set[str],
    relations: Iterable[Relation],
    attributes: Iterable[Attribute],
    *,
    tally: Tally,
) -> tuple[tuple[Relation, ...], tuple[Attribute, ...]]:
    """The relations and attributes that refer to none of these ids, nor to a relation that falls with them."""
    related = tuple(relations)
    referring: defaultdict[str | None, set[str]] = defaultdict(set)
    for relation in related:
        for argument in relation.arguments:
            referring[argument.target].add(relation.id)
    gone = set(dropped)
    ahead = list(dropped)
    fallen: set[str] = set()
    while ahead:
        new = referring.get(ahead.pop(), set()) - fallen
        fallen |= new
        ahead += new
    left = tuple(relation for relation in related if relation.id not in fallen)
    if fallen:
        tally.note("relation dropped: it refers to a span that was dropped", len(fallen))
    gone |= fallen
    standing = tuple(attributes)
    remaining = tuple(attribute for attribute in standing if attribute.target not in gone)
    if len(remaining) < len(standing):
        tally.note("attribute dropped: it refers to something that was dropped", len(standing) - len(remaining))
    return left, remaining


def _placed(passages: Sequence[Passage], span: Span) -> Span | None:
    """The span itself where it is right, a moved one, or None."""
    found = [text_at(passages, part) for part in span.parts]
    if None not in found and " ".join(map(str, found)) == span.text:
        return span
    if len(span.parts) > 1:
        return _shifted(passages, span)
    # Some mentions were cut with the spaces around them, which the text may lack.
    for mention in dict.fromkeys((span.text, span.text.strip())):
        start = _nearest_in(passages, mention, span.start)
        if start is not None:
            return replace(span, parts=((start, start + len(mention)),), text=mention)
    return None


def _nearest_in(passages: Sequence[Passage], mention: str, start: int) -> int | None:
    places = (
        (passage.offset, nearest(passage.text, mention, start - passage.offset))
        for passage in passages
        if passage.offset - REACH <= start <= passage.end + REACH
    )
    found = [offset + place for offset, place in places if place is not None]
    return min(found, key=lambda place: abs(place - start), default=None)


def _shifted(passages: Sequence[Passage], span: Span) -> Span | None:
    """A discontinuous span with all its parts moved by the same distance."""
    for distance in sorted(range(-REACH, REACH + 1), key=abs):
        parts = tuple((start + distance, end + distance) for start, end in span.parts)
        found = [text_at(passages, part) for part in parts]
        if None not in found and " ".join(map(str, found)) == span.text:
            return replace(span, parts=parts)
    return None
