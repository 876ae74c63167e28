"""Tags of mentions: which may follow which, the best sequence of them, and mentions to tags and back.

U units of a text, G groups of tags, K tags of a group
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from operator import add
from typing import Literal

import numpy as np

from lexome.document import Range
from lexome.errors import UsageError
from lexome.tasks.task import NO_OFFSET, Floats, Ints

Scheme = Literal["iob2", "iobes"]
UnitSpan = tuple[int, int, str]
"""The first unit, the one after the last, and a type."""

LETTERS: dict[Scheme, str] = {"iob2": "BI", "iobes": "BIES"}
OUTSIDE = "O"

# Up to so many groups of three tags, Python's own floats are faster than numpy's arrays.
FEW = 8

# What is never chosen: far below every logit, and still a number, so that a sequence of them can be compared.
FORBIDDEN = -1e9


@dataclass(frozen=True, slots=True)
class Transitions:
    """What a CRF adds to a sequence: for a tag after another (G, K, K), at the beginning and at the end (G, K)."""

    between: Floats
    first: Floats
    last: Floats


def tag_set(types: Sequence[str], scheme: Scheme) -> tuple[str, ...]:
    """O, then B-Gene, I-Gene, ... for each type.

    >>> tags_of(("Gene", "Drug"), "iob2")
    ('O', 'B-Gene', 'I-Gene', 'B-Drug', 'I-Drug')
    """
    return (OUTSIDE, *(f"{letter}-{type_}" for type_ in types for letter in LETTERS[scheme]))


def scheme_transitions(tags: Sequence[str], scheme: Scheme) -> Transitions:
    """The scheme's grammar as a CRF of one group: nothing for what is allowed, NEVER for what is not."""
    count = len(tags)
    between = np.array([[0.0 if _follows(tag, other, scheme) else FORBIDDEN for other in tags] for tag in tags])
    first = np.array([0.0 if _follows(OUTSIDE, tag, scheme) else FORBIDDEN for tag in tags])
    last = np.array([0.0 if _follows(tag, OUTSIDE, scheme) else FORBIDDEN for tag in tags])
    return Transitions(between.reshape(1, count, count), first.reshape(1, count), last.reshape(1, count))


def viterbi(scores_UGK: Floats, transitions: Transitions) -> Ints:
    """The tags (U, G) whose scores and transitions have the largest sum (Viterbi).

    Transitions of one group serve all groups.
    """
    count, groups, tags = scores_UGK.shape
    if count == 0:
        return np.zeros((0, groups), np.int64)
    if tags == 3 and groups <= FEW:
        numbers = (transitions.between, transitions.first, transitions.last)
        # Those of one group serve all.
        own = [[one[group % len(one)] for one in numbers] for group in range(groups)]
        return np.array([_best_of_three(scores_UGK[:, group], *own[group]) for group in range(groups)], np.int64).T
    total_GK = scores_UGK[0] + transitions.first
    steps = np.zeros(scores_UGK.shape, np.int64)
    for place in range(1, count):
        ways_GKK = total_GK[:, :, None] + transitions.between
        steps[place] = ways_GKK.argmax(1)
        total_GK = ways_GKK.max(1) + scores_UGK[place]
    chosen = np.zeros((count, groups), np.int64)
    chosen[-1] = (total_GK + transitions.last).argmax(1)
    for place in range(count - 1, 0, -1):
        chosen[place - 1] = steps[place][np.arange(groups), chosen[place]]
    return chosen


def _best_of_three(scores_UK: Floats, between_KK: Floats, first_K: Floats, last_K: Floats) -> list[int]:
    """The best sequence of one group of three tags, in a tenth of the time that numpy takes for so few numbers.

    Sums are made in the same order, and of equal ones the first is taken, so the result is the same.
    """
    (oo, ob, oi), (bo, bb, bi), (io, ib, ii) = between_KK.tolist()
    rows = scores_UK.tolist()
    o, b, i = map(add, rows[0], first_K.tolist())
    steps: list[tuple[int, int, int]] = []
    for own_o, own_b, own_i in rows[1:]:
        # For each tag the best way to it, and the tag that this way comes from.
        to_o, from_o = (o + oo, 0) if o + oo >= b + bo else (b + bo, 1)
        to_b, from_b = (o + ob, 0) if o + ob >= b + bb else (b + bb, 1)
        to_i, from_i = (o + oi, 0) if o + oi >= b + bi else (b + bi, 1)
        if i + io > to_o:
            to_o, from_o = i + io, 2
        if i + ib > to_b:
            to_b, from_b = i + ib, 2
        if i + ii > to_i:
            to_i, from_i = i + ii, 2
        steps.append((from_o, from_b, from_i))
        o, b, i = to_o + own_o, to_b + own_b, to_i + own_i
    total = list(map(add, (o, b, i), last_K.tolist()))
    chosen = [total.index(max(total))]
    for step in reversed(steps):
        chosen.append(step[chosen[-1]])
    return chosen[::-1]


def best_valid_tags(scores_UGK: Floats, runs: Sequence[Range], grammar: Transitions) -> Ints:
    """The best tags (U, G) that the scheme allows, in each run of units apart; the scheme's rules are of one group.

    Where the best tag of each unit gives an allowed sequence, no other can be better.
    """
    chosen_UG: Ints = scores_UGK.argmax(2)
    ends = [high - 1 for low, high in runs if low < high]
    before_UG = np.roll(chosen_UG, 1, 0)
    before_UG[[low for low, high in runs if low < high]] = 0
    wrong_UG = grammar.between[0][before_UG, chosen_UG] < 0
    wrong_UG[ends] |= grammar.last[0][chosen_UG[ends]] < 0
    if wrong_UG.any():
        for low, high in runs:
            own = np.flatnonzero(wrong_UG[low:high].any(0))
            if len(own):
                chosen_UG[low:high, own] = viterbi(scores_UGK[low:high, own], grammar)
    return chosen_UG


def encode_tags(mentions: Sequence[UnitSpan], count: int, tags: Sequence[str], scheme: Scheme) -> Ints:
    """The numbers of the tags of `count` units; mentions must lie apart.

    >>> put([(1, 3, "Gene")], 4, ("O", "B-Gene", "I-Gene"), "iob2").tolist()
    [0, 1, 2, 0]
    """
    number = {tag: place for place, tag in enumerate(tags)}
    found = np.zeros(count, np.int64)
    for start, end, type_ in mentions:
        letters = ["B", *"I" * (end - start - 1)]
        if scheme == "iobes":
            letters[-1] = "S" if end - start == 1 else "E"
        found[start:end] = [number[f"{letter}-{type_}"] for letter in letters]
    return found


def decode_tags(numbers: Ints, tags: Sequence[str], begins: Collection[int] = ()) -> Iterator[UnitSpan]:
    """The mentions of a sequence of tags by number, as conlleval reads them; none reaches over one of `begins`.

    B begins one, S is one alone, E ends one; I goes on with one of its type and begins one where there is none.

    >>> tags = tags_of(("Gene", "Drug"), "iob2")
    >>> list(mentions_in(np.array([2, 2, 1, 4, 0]), tags))
    [(0, 2, 'Gene'), (2, 3, 'Gene'), (3, 4, 'Drug')]
    """
    places = np.flatnonzero(numbers)  # all but O
    begun, last, before = 0, NO_OFFSET, OUTSIDE
    for place, number in zip(places.tolist(), numbers[places].tolist(), strict=True):
        tag = tags[number]
        if place != last + 1 or place in begins or not _goes_on(before, tag):
            if before != OUTSIDE:
                yield begun, last + 1, before.partition("-")[2]
            begun = place
        last, before = place, tag
    if before != OUTSIDE:
        yield begun, last + 1, before.partition("-")[2]


def require_transitions(transitions: Transitions, groups: int, tags: int) -> None:
    """Raise unless a CRF's numbers are of this many groups and tags."""
    seen = (transitions.between.shape, transitions.first.shape, transitions.last.shape)
    expected = ((groups, tags, tags), (groups, tags), (groups, tags))
    if seen != expected:
        raise UsageError(f"transitions of shapes {seen} were given; expected {expected}, groups before tags.")


def _goes_on(tag: str, other: str) -> bool:
    """Whether the second tag goes on with the mention that the first is in, as conlleval reads them."""
    return tag[0] in "BI" and other[0] in "IE" and tag[1:] == other[1:]


def _follows(tag: str, other: str, scheme: Scheme) -> bool:
    """Whether the second tag may come right after the first."""
    letter, _, type_ = tag.partition("-")
    next_letter, _, next_type = other.partition("-")
    goes_on = next_letter in ("I", "E")
    if scheme == "iob2":
        return not goes_on or (letter != OUTSIDE and type_ == next_type)
    is_open = letter in ("B", "I")
    return goes_on == is_open and (not is_open or type_ == next_type)
