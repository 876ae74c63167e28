"""Tags of mentions: which may follow which, the best sequence of them, and mentions to tags and back.

U units of a text, G groups of tags, K tags of a group
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal

import numpy as np

from lexome.errors import UsageError
from lexome.tasks.task import Floats, Ints
from lexome.values import value

Scheme = Literal["iob2", "iobes"]
Mention = tuple[int, int, str]
"""The first unit, the one after the last, and a type."""

LETTERS: dict[Scheme, str] = {"iob2": "BI", "iobes": "BIES"}
OUTSIDE = "O"

# What is never chosen: far below every logit, and still a number, so that a sequence of them can be compared.
NEVER = -1e9


@value
class Transitions:
    """What a CRF adds to a sequence: for a tag after another (G, K, K), at the beginning and at the end (G, K)."""

    between: Floats
    first: Floats
    last: Floats


def tags_of(types: Sequence[str], scheme: Scheme) -> tuple[str, ...]:
    """O, then B-Gene, I-Gene, ... for each type.

    >>> tags_of(("Gene", "Drug"), "iob2")
    ('O', 'B-Gene', 'I-Gene', 'B-Drug', 'I-Drug')
    """
    return (OUTSIDE, *(f"{letter}-{type_}" for type_ in types for letter in LETTERS[scheme]))


def rules(tags: Sequence[str], scheme: Scheme) -> Transitions:
    """The scheme's grammar as a CRF of one group: nothing for what is allowed, NEVER for what is not."""
    count = len(tags)
    between = np.array([[0.0 if _follows(tag, other, scheme) else NEVER for other in tags] for tag in tags])
    first = np.array([0.0 if _follows(OUTSIDE, tag, scheme) else NEVER for tag in tags])
    last = np.array([0.0 if _follows(tag, OUTSIDE, scheme) else NEVER for tag in tags])
    return Transitions(between.reshape(1, count, count), first.reshape(1, count), last.reshape(1, count))


def best_sequence(scores_UGK: Floats, transitions: Transitions) -> Ints:
    """The tags (U, G) whose scores and transitions have the largest sum (Viterbi).

    Transitions of one group serve all groups.
    """
    count, groups, _ = scores_UGK.shape
    if count == 0:
        return np.zeros((0, groups), np.int64)
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


def put(mentions: Sequence[Mention], count: int, tags: Sequence[str], scheme: Scheme) -> Ints:
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


def mentions_in(tags: Sequence[str]) -> Iterator[Mention]:
    """The mentions of a sequence of tags, as conlleval reads them.

    B begins one, S is one alone, E ends one; I goes on with one of its type and begins one where there is none.

    >>> list(mentions_in(["I-Gene", "I-Gene", "B-Gene", "I-Drug", "O"]))
    [(0, 2, 'Gene'), (2, 3, 'Gene'), (3, 4, 'Drug')]
    """
    begun, open_type = 0, ""
    for place, tag in enumerate((*tags, OUTSIDE)):
        letter, _, type_ = tag.partition("-")
        if open_type and (letter in "OBS" or type_ != open_type):
            yield begun, place, open_type
            open_type = ""
        if letter != OUTSIDE and not open_type:
            begun, open_type = place, type_
        if letter in "ES":
            yield begun, place + 1, type_
            open_type = ""


def allowed(tags: Sequence[str], scheme: Scheme) -> bool:
    """Whether a sequence of tags keeps to the scheme's grammar.

    >>> allowed(["O", "I-Gene"], "iob2")
    False
    """
    return all(_follows(tag, other, scheme) for tag, other in pairwise((OUTSIDE, *tags, OUTSIDE)))


def check_transitions(transitions: Transitions, groups: int, tags: int) -> None:
    """Raise unless a CRF's numbers are of this many groups and tags."""
    seen = (transitions.between.shape, transitions.first.shape, transitions.last.shape)
    expected = ((groups, tags, tags), (groups, tags), (groups, tags))
    if seen != expected:
        raise UsageError(f"transitions of shapes {seen} were given; expected {expected}, groups before tags.")


def _follows(tag: str, other: str, scheme: Scheme) -> bool:
    """Whether the second tag may come right after the first."""
    letter, _, type_ = tag.partition("-")
    next_letter, _, next_type = other.partition("-")
    goes_on = next_letter in ("I", "E")
    if scheme == "iob2":
        return not goes_on or (letter != OUTSIDE and type_ == next_type)
    is_open = letter in ("B", "I")
    return goes_on == is_open and (not is_open or type_ == next_type)
