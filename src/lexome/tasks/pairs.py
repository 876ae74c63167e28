"""Pairs of entities that may be related, and the text around them with the two marked."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Literal

from lexome.document import Document, Range, Relation, Span
from lexome.values import value

Scope = Literal["sentence", "document"]
Level = Literal["mention", "concept"]
Marking = Literal["mask", "markers"]


@value
class Entity:
    """One side of a pair: a mention or a concept by its name, the type, and where it is mentioned."""

    name: str
    type: str
    places: tuple[Range, ...]
    concepts: tuple[str, ...] = ()


@value
class Pair:
    """Two entities that may be related, the first of the first type, in a stretch of text."""

    first: Entity
    second: Entity
    stretch: Range


@value
class Marked:
    """A text with a pair marked in it, and where the marks stand in that text."""

    text: str
    places: tuple[Range, ...]


def pairs_of(doc: Document, types: Sequence[tuple[str, str]], *, scope: Scope, level: Level) -> Iterator[Pair]:
    """All pairs of these types in each sentence, or in the document.

    A passage whose sentences are not known counts as one. Of two of the same type the one that comes first is first.
    """
    entities = _concepts(doc) if level == "concept" else [_mention(span) for span in doc.spans]
    for start, end in _stretches(doc, scope):
        inside = [entity for entity in entities if all(start <= low and high <= end for low, high in entity.places)]
        for one, other in combinations(sorted(inside, key=lambda entity: (entity.places, entity.name)), 2):
            pair = _ordered(one, other, types)
            if pair is not None:
                yield Pair(*pair, (start, end))


def key_of(relation: Relation) -> frozenset[str] | None:
    """The two names that a relation is between, or None where they are not two."""
    names = frozenset(argument.target or argument.concept or "" for argument in relation.arguments)
    return names if len(names) == len(relation.arguments) == 2 else None


def marked(doc: Document, pair: Pair, *, marking: Marking, masks: Mapping[str, str]) -> Marked:
    """The stretch of a pair with its two entities masked (@GENE$) or between markers ([E1] BRCA1 [/E1]).

    Two that share characters are one mark: @CHEMICAL-GENE$, or both markers around all of it. Of a mention in parts the
    first is marked.
    """
    start, end = pair.stretch
    text = doc.text[start:end]
    pieces: list[str] = []
    places: list[Range] = []
    size = done = 0
    for (low, high), sides in _joined(pair):
        before = text[done : low - start]
        inner = _mark(text[low - start : high - start], sides, pair, marking, masks)
        pieces += (before, inner)
        places.append((size + len(before), size + len(before) + len(inner)))
        size = places[-1][1]
        done = high - start
    return Marked("".join((*pieces, text[done:])), tuple(places))


def _mark(text: str, sides: Sequence[int], pair: Pair, marking: Marking, masks: Mapping[str, str]) -> str:
    if marking == "markers":
        opened = " ".join(f"[E{side}]" for side in sides)
        closed = " ".join(f"[/E{side}]" for side in reversed(sides))
        return f"{opened} {text} {closed}"
    types = [(pair.first, pair.second)[side - 1].type for side in sides]
    if len(types) == 1:
        return mask_of(types[0], masks)
    return masks.get("-".join(types), f"@{'-'.join(mask_of(type_, masks).strip('@$') for type_ in types)}$")


def mask_of(type_: str, masks: Mapping[str, str]) -> str:
    """What stands in place of an entity of a type: @GENE$ for Gene, unless another is named."""
    return masks.get(type_, f"@{type_.upper()}$")


def _joined(pair: Pair) -> list[tuple[Range, tuple[int, ...]]]:
    """The places of both entities in order, those that share characters as one, each with whose it is."""
    places = sorted(
        [(place, 1) for place in pair.first.places] + [(place, 2) for place in pair.second.places],
        key=lambda item: (item[0][0], -item[0][1], item[1]),
    )
    found: list[tuple[Range, tuple[int, ...]]] = []
    for (start, end), side in places:
        if found and start < found[-1][0][1]:
            (low, high), sides = found[-1]
            found[-1] = ((low, max(high, end)), tuple(sorted({*sides, side})))
        else:
            found.append(((start, end), (side,)))
    return found


def _ordered(one: Entity, other: Entity, types: Sequence[tuple[str, str]]) -> tuple[Entity, Entity] | None:
    if (one.type, other.type) in types:
        return one, other
    return (other, one) if (other.type, one.type) in types else None


def _mention(span: Span) -> Entity:
    return Entity(span.id, span.type, span.parts[:1], span.concepts)


def _concepts(doc: Document) -> list[Entity]:
    """Each concept that is mentioned, under the type of its first mention."""
    found: dict[str, tuple[str, list[Range]]] = {}
    for span in sorted(doc.spans, key=lambda span: (span.start, span.end)):
        for concept in span.concepts:
            found.setdefault(concept, (span.type, []))[1].append(span.parts[0])
    return [Entity(name, type_, tuple(places), (name,)) for name, (type_, places) in found.items()]


def _stretches(doc: Document, scope: Scope) -> Iterator[Range]:
    if scope == "document":
        if doc.passages:
            yield doc.passages[0].offset, doc.passages[-1].end
        return
    for passage in doc.passages:
        yield from passage.sentences or ((passage.offset, passage.end),)
