"""Tag schemes: mentions to tags and back, valid transitions, and Viterbi decoding.

U units of a text, G groups of tags, K tags of a group
"""

from collections.abc import Collection, Iterator, Sequence
from operator import add
from typing import Literal

import numpy as np

from lexome.document import Range
from lexome.errors import UsageError
from lexome.tasks.task import NO_OFFSET, Floats, Ints, Transitions

Scheme = Literal["iob2", "iobes"]
UnitSpan = tuple[int, int, str]
"""A mention in units: the first one, the one after the last, and the type."""

LETTERS: dict[Scheme, str] = {"iob2": "BI", "iobes": "BIES"}
OUTSIDE = "O"

# Up to this many groups of three tags, Python's floats are faster than numpy's arrays.
FEW_GROUPS = 8

# The score of a transition that the scheme forbids: far below every logit, and finite, so that sums can be compared.
FORBIDDEN = -1e9


def tag_set(types: Sequence[str], scheme: Scheme) -> tuple[str, ...]:
    """O, then the tags of each type.

    >>> tag_set(("Gene", "Drug"), "iob2")
    ('O', 'B-Gene', 'I-Gene', 'B-Drug', 'I-Drug')
    """
    return (OUTSIDE, *(f"{letter}-{type_}" for type_ in types for letter in LETTERS[scheme]))


def encode_tags(mentions: Sequence[UnitSpan], count: int, tags: Sequence[str], scheme: Scheme) -> Ints:
    """The tag indices of `count` units; mentions must not overlap.

    >>> encode_tags([(1, 3, "Gene")], 4, ("O", "B-Gene", "I-Gene"), "iob2").tolist()
    [0, 1, 2, 0]
    """
    index = {tag: place for place, tag in enumerate(tags)}
    encoded = np.zeros(count, np.int64)
    for start, end, type_ in mentions:
        letters = ["B", *"I" * (end - start - 1)]
        if scheme == "iobes":
            letters[-1] = "S" if end - start == 1 else "E"
        encoded[start:end] = [index[f"{letter}-{type_}"] for letter in letters]
    return encoded


def decode_tags(indices: Ints, tags: Sequence[str], begins: Collection[int] = ()) -> Iterator[UnitSpan]:
    """The mentions of a sequence of tag indices, read as conlleval reads them; none crosses one of `begins`.

    B begins a mention, S is one, E ends one; I continues one of its type and otherwise begins one.

    >>> tags = tag_set(("Gene", "Drug"), "iob2")
    >>> list(decode_tags(np.array([2, 2, 1, 4, 0]), tags))
    [(0, 2, 'Gene'), (2, 3, 'Gene'), (3, 4, 'Drug')]
    """
    places = np.flatnonzero(indices)  # all but O
    start, last, previous = 0, NO_OFFSET, OUTSIDE
    for place, index in zip(places.tolist(), indices[places].tolist(), strict=True):
        tag = tags[index]
        continues = previous[0] in "BI" and tag[0] in "IE" and previous[1:] == tag[1:]
        if place != last + 1 or place in begins or not continues:
            if previous != OUTSIDE:
                yield start, last + 1, previous.partition("-")[2]
            start = place
        last, previous = place, tag
    if previous != OUTSIDE:
        yield start, last + 1, previous.partition("-")[2]


def scheme_transitions(tags: Sequence[str], scheme: Scheme) -> Transitions:
    """The scheme's grammar as a CRF of one group: 0 for what is valid, FORBIDDEN for what is not."""
    count = len(tags)
    between = np.array([[0.0 if _may_follow(tag, other, scheme) else FORBIDDEN for other in tags] for tag in tags])
    first = np.array([0.0 if _may_follow(OUTSIDE, tag, scheme) else FORBIDDEN for tag in tags])
    last = np.array([0.0 if _may_follow(tag, OUTSIDE, scheme) else FORBIDDEN for tag in tags])
    return Transitions(between.reshape(1, count, count), first.reshape(1, count), last.reshape(1, count))


def _may_follow(tag: str, other: str, scheme: Scheme) -> bool:
    """Whether the second tag may come right after the first."""
    letter, _, type_ = tag.partition("-")
    next_letter, _, next_type = other.partition("-")
    continues = next_letter in ("I", "E")
    if scheme == "iob2":
        return not continues or (letter != OUTSIDE and type_ == next_type)
    is_open = letter in ("B", "I")
    return continues == is_open and (not is_open or type_ == next_type)


def require_transitions(transitions: Transitions, groups: int, tags: int) -> None:
    """Raise unless transition scores are of this many groups and tags."""
    shapes = (transitions.between.shape, transitions.first.shape, transitions.last.shape)
    expected = ((groups, tags, tags), (groups, tags), (groups, tags))
    if shapes != expected:
        raise UsageError(
            f"transitions have shapes {shapes}; expected {expected}, groups before tags.",
            code="shape-mismatch",
            value=shapes,
        )


def best_valid_tags(scores_UGK: Floats, runs: Sequence[Range], grammar: Transitions) -> Ints:
    """The best tags (U, G) that the scheme allows, in each run of units on its own; `grammar` has one group.

    Viterbi is needed only where the best tag of each unit is not a valid sequence.
    """
    best_UG: Ints = scores_UGK.argmax(2)
    ends = [high - 1 for low, high in runs if low < high]
    previous_UG = np.roll(best_UG, 1, 0)
    previous_UG[[low for low, high in runs if low < high]] = 0
    invalid_UG = grammar.between[0][previous_UG, best_UG] < 0
    invalid_UG[ends] |= grammar.last[0][best_UG[ends]] < 0
    if invalid_UG.any():
        for low, high in runs:
            groups = np.flatnonzero(invalid_UG[low:high].any(0))
            if len(groups):
                best_UG[low:high, groups] = viterbi(scores_UGK[low:high, groups], grammar)
    return best_UG


def viterbi(scores_UGK: Floats, transitions: Transitions) -> Ints:
    """The tags (U, G) with the largest sum of scores and transitions.

    Transitions of one group apply to all groups.
    """
    count, groups, tags = scores_UGK.shape
    if count == 0:
        return np.zeros((0, groups), np.int64)
    if tags == 3 and groups <= FEW_GROUPS:
        arrays = (transitions.between, transitions.first, transitions.last)
        by_group = [[array[group % len(array)] for array in arrays] for group in range(groups)]
        paths = [_viterbi_of_three(scores_UGK[:, group], *by_group[group]) for group in range(groups)]
        return np.array(paths, np.int64).T
    total_GK = scores_UGK[0] + transitions.first
    back_UGK = np.zeros(scores_UGK.shape, np.int64)
    for place in range(1, count):
        paths_GKK = total_GK[:, :, None] + transitions.between
        back_UGK[place] = paths_GKK.argmax(1)
        total_GK = paths_GKK.max(1) + scores_UGK[place]
    best_UG = np.zeros((count, groups), np.int64)
    best_UG[-1] = (total_GK + transitions.last).argmax(1)
    for place in range(count - 1, 0, -1):
        best_UG[place - 1] = back_UGK[place][np.arange(groups), best_UG[place]]
    return best_UG


def _viterbi_of_three(scores_UK: Floats, between_KK: Floats, first_K: Floats, last_K: Floats) -> list[int]:
    """The best sequence of one group of three tags, in a tenth of the time that numpy takes for so few numbers.

    Sums are made in the same order, and ties take the first tag, so the result is the same.
    """
    (oo, ob, oi), (bo, bb, bi), (io, ib, ii) = between_KK.tolist()
    scores = scores_UK.tolist()
    o, b, i = map(add, scores[0], first_K.tolist())
    steps: list[tuple[int, int, int]] = []
    for score_o, score_b, score_i in scores[1:]:
        # For each tag the best path to it, and the tag that this path comes from.
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
        o, b, i = to_o + score_o, to_b + score_b, to_i + score_i
    total = list(map(add, (o, b, i), last_K.tolist()))
    best = [total.index(max(total))]
    for step in reversed(steps):
        best.append(step[best[-1]])
    return best[::-1]
