"""Mentions at their characters: strict, relaxed, discontinuous ones alone, and character by character.

A mention is its type and its parts, ranges of the text; two that are the same count once. Parts that touch are one.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from lexome.document import Document, Range
from lexome.tasks.metrics.counts import Agreement, Counts, agreement, of_sets, require_pairs, together
from lexome.tasks.metrics.matching import largest_matching

# What all mentions are of where types do not count.
ANY_TYPE = "any"


class Mention(NamedTuple):
    """A mention: its type, and the ranges it covers, in order."""

    type: str
    parts: tuple[Range, ...]


Mentions = Iterable[Mention]


def mentions(doc: Document, types: Collection[str] | None = None) -> list[Mention]:
    """The document's mentions of these types, or all of them, each once, in reading order."""
    found = {Mention(span.type, joined(span.parts)) for span in doc.spans if types is None or span.type in types}
    return sorted(found, key=lambda mention: (mention.parts, mention.type))


def joined(parts: Sequence[Range]) -> tuple[Range, ...]:
    """The parts, those that touch as one: (0, 4), (4, 8) is (0, 8)."""
    whole: list[Range] = [*parts[:1]]
    for start, end in parts[1:]:
        if start == whole[-1][1]:
            whole[-1] = (whole[-1][0], end)
        else:
            whole.append((start, end))
    return tuple(whole)


def spans_strict(gold: Sequence[Mentions], found: Sequence[Mentions], *, typed: bool = True) -> Agreement:
    """Mentions are right where type and all parts are the same; with typed=False, where the parts are.

    Each of `gold` and `found` holds the mentions of one document.
    """
    require_pairs(gold, found, what="documents")
    return together(_strict(left, right, typed) for left, right in zip(gold, found, strict=True))


def spans_relaxed(gold: Sequence[Mentions], found: Sequence[Mentions], *, typed: bool = True) -> Agreement:
    """Mentions are right where they share a character with one of the same type, one with one.

    First those that are the same are paired; then, of the others, as many as can be, so that no mention is in two pairs
    and one found mention that covers three gold ones makes one of them right.
    """
    require_pairs(gold, found, what="documents")
    return together(_relaxed(left, right, typed) for left, right in zip(gold, found, strict=True))


def spans_discontinuous(gold: Sequence[Mentions], found: Sequence[Mentions]) -> Agreement:
    """As strict, of the mentions with more than one part alone."""
    return spans_strict([_apart(doc) for doc in gold], [_apart(doc) for doc in found])


def characters(gold: Sequence[Mentions], found: Sequence[Mentions], *, typed: bool = True) -> Agreement:
    """The characters inside mentions of a type, each counted once however many mentions cover it."""
    require_pairs(gold, found, what="documents")
    pairs = ((_covered(left, typed), _covered(right, typed)) for left, right in zip(gold, found, strict=True))
    return together(of_sets(left, right) for left, right in pairs)


def overlapping(left: Sequence[Mention], right: Sequence[Mention]) -> list[list[int]]:
    """For each mention on the left, the places of those on the right that share a character with it."""
    # Sorted by where they begin; the widest tells how far back one may begin that still reaches a place.
    order = sorted(range(len(right)), key=lambda place: right[place].parts[0][0])
    starts = [right[place].parts[0][0] for place in order]
    widest = max((mention.parts[-1][1] - mention.parts[0][0] for mention in right), default=0)
    found: list[list[int]] = []
    for mention in left:
        low = bisect_left(starts, mention.parts[0][0] - widest)
        high = bisect_left(starts, mention.parts[-1][1])
        near = order[low:high]
        found.append(sorted(place for place in near if overlap(mention.parts, right[place].parts)))
    return found


def overlap(left: Sequence[Range], right: Sequence[Range]) -> bool:
    """Whether two mentions share a character."""
    return any(start < other_end and other < end for start, end in left for other, other_end in right)


def _strict(gold: Mentions, found: Mentions, typed: bool) -> Agreement:
    wanted, given = _by_type(gold, typed), _by_type(found, typed)
    return agreement({name: _counted(wanted[name], given[name]) for name in {*wanted, *given}})


def _counted(gold: list[Mention], found: list[Mention]) -> Counts:
    """The counts of one type. Without types two mentions may have the same parts, and count as often as they do."""
    right = (Counter(mention.parts for mention in gold) & Counter(mention.parts for mention in found)).total()
    return Counts(right, len(found) - right, len(gold) - right)


def _relaxed(gold: Mentions, found: Mentions, typed: bool) -> Agreement:
    wanted, given = _by_type(gold, typed), _by_type(found, typed)
    types: dict[str, Counts] = {}
    for name in {*wanted, *given}:
        strict = _counted(wanted[name], given[name])
        left, right = _without_same(wanted[name], given[name]), _without_same(given[name], wanted[name])
        more = len(largest_matching(overlapping(left, right)))
        types[name] = Counts(strict.true_positives + more, strict.false_positives - more, strict.false_negatives - more)
    return agreement(types)


def _without_same(mentions: list[Mention], others: list[Mention]) -> list[Mention]:
    """The mentions that no other one is the same as, each of the others being the same as one."""
    same = Counter(mention.parts for mention in others)
    left: list[Mention] = []
    for mention in mentions:
        if same[mention.parts]:
            same[mention.parts] -= 1
        else:
            left.append(mention)
    return left


def _by_type(mentions: Mentions, typed: bool) -> defaultdict[str, list[Mention]]:
    """The mentions of each type, each once, with parts that touch as one."""
    types: defaultdict[str, list[Mention]] = defaultdict(list)
    for mention in dict.fromkeys(Mention(type, joined(parts)) for type, parts in mentions):
        types[mention.type if typed else ANY_TYPE].append(mention)
    return types


def _apart(mentions: Mentions) -> list[Mention]:
    return [Mention(type, parts) for type, given in mentions if len(parts := joined(given)) > 1]


def _covered(mentions: Mentions, typed: bool) -> dict[str, set[int]]:
    types: defaultdict[str, set[int]] = defaultdict(set)
    for type, parts in mentions:
        types[type if typed else ANY_TYPE].update(*(range(start, end) for start, end in parts))
    return types
