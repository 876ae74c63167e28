"""Batches of one size from a text: which sequences, what is masked, and what fills them up. All numpy.

T tokens of the packed batch, S sequences, M masked positions
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lexome.corpus.masking import Masking, Schedule, mask, rate_at, sequence_draws
from lexome.corpus.words import Vocabulary
from lexome.train.schedule import held
from lexome.train.text import Text
from lexome.values import value

Ints = NDArray[np.int64]
Share = Callable[[int, int], float]
"""How much of the run is done, given the steps and tokens before."""

# What a label is where nothing is asked: torch's cross entropy leaves it out.
NOT_ASKED = -100
# Masked positions and sequences are filled up to a multiple of this part of the batch, so that compiled code meets
# one or two sizes. 10 of 64 parts are the usual number of masks at a rate of 0.15.
GRAIN = 64


@value
class Place:
    """Where in the text the next batch begins: an epoch, a sequence in its order, the longest sequence there."""

    epoch: int = 0
    at: int = 0
    max_tokens: int = 0


@value
class Plan:
    """How batches are made over a run. `passes` and `lengths` are (share of the run, value) points."""

    tokens: int
    max_tokens: int
    passes: int = 1
    passes_ramp: tuple[tuple[float, float], ...] = ()
    lengths_ramp: tuple[tuple[float, float], ...] = ()
    masking: Masking = Masking()
    rate: float | Schedule = 0.15
    duplicates: int | None = None
    seed: int = 0


class Arrays(NamedTuple):
    """One batch. Counts are of what is real; the arrays hold fillings too, which nothing is asked about."""

    ids_T: Ints
    segments_T: Ints
    ends_S: Ints
    positions_M: Ints
    labels_M: Ints
    pair_labels_S: Ints | None
    longest: int
    tokens: int
    masked: int
    sequences: int


class StepArrays(NamedTuple):
    """The passes of one step, and the place after it."""

    passes: list[Arrays]
    after: Place
    rate: float


def steps(
    text: Text, plan: Plan, vocabulary: Vocabulary, share: Share, *, begin: tuple[Place, int, int]
) -> Iterator[StepArrays]:
    """Batches without end from a place on, step by step; `begin` is the place, and the steps and tokens before it.

    The same place, steps and tokens give the same batches, whatever came before. Only where `share` reads a clock are
    they different each time.
    """
    place, step, tokens = begin
    while True:
        done = share(step, tokens)
        max_tokens = int(held(plan.lengths_ramp, done, otherwise=plan.max_tokens))
        if place.max_tokens != max_tokens:
            # Sequences of another length are other sequences: the rest of the epoch is not gone through.
            place = Place(place.epoch + (place.at > 0), 0, max_tokens)
        rate = rate_at(plan.rate, done)
        passes = []
        for _ in range(round(held(plan.passes_ramp, done, otherwise=plan.passes))):
            parts, place = take(text, place, plan.tokens)
            passes.append(batch(text, parts, plan, vocabulary, rate=rate, max_tokens=max_tokens))
        step, tokens = step + 1, tokens + sum(one.tokens for one in passes)
        yield StepArrays(passes, place, rate)


def take(text: Text, place: Place, tokens: int) -> tuple[list[tuple[int, Ints]], Place]:
    """The next sequences that fit into so many tokens, as (epoch, their numbers), and the place after them.

    Where an epoch ends the next begins in the same batch, so that only the last gap is left: less than one sequence.
    """
    parts, epoch, at, room = [], place.epoch, place.at, tokens
    while True:
        ordered = text.epoch(epoch, place.max_tokens)
        before = int(ordered.reached[at - 1]) if at else 0
        end = int(np.searchsorted(ordered.reached, before + room, side="right"))
        if end > at:
            parts.append((epoch, ordered.order[at:end]))
            room -= int(ordered.reached[end - 1]) - before
        if end < ordered.order.size:
            return parts, Place(epoch, end, place.max_tokens)
        epoch, at = epoch + 1, 0


def batch(
    text: Text, parts: list[tuple[int, Ints]], plan: Plan, vocabulary: Vocabulary, *, rate: float, max_tokens: int
) -> Arrays:
    """The batch of these sequences, masked, and filled up to the size of the plan with sequences of padding.

    A full batch lacks less than one sequence. Over 13 million tokens of abstracts ...
    """
    packed, draws, labels = [], [], []
    for epoch, numbers in parts:
        ranges = text.epoch(epoch, max_tokens).ranges
        one = text.packed(ranges, numbers)
        packed.append(one)
        draws.append(sequence_draws(plan.seed, epoch, numbers, one.ends, duplicates=plan.duplicates))
        if ranges.labels is not None:
            labels.append(ranges.labels[numbers])
    sizes = np.cumsum([0] + [one.ids.size for one in packed])
    ids = np.concatenate([one.ids for one in packed])
    ends = np.concatenate([one.ends + size for one, size in zip(packed, sizes, strict=False)])
    filling = np.append(np.arange(ids.size + max_tokens, plan.tokens, max_tokens), plan.tokens)[
        ids.size == plan.tokens :
    ]
    masked = mask(ids, ends, vocabulary, replace(plan.masking, rate=rate), np.concatenate(draws, axis=1))
    return Arrays(
        ids_T=_filled(masked.inputs, plan.tokens, text.specials.pad_id),
        segments_T=_filled(np.concatenate([one.segments for one in packed]), plan.tokens, 0),
        ends_S=np.concatenate([ends, filling]),
        positions_M=_filled(masked.positions, rounded(masked.positions.size, plan.tokens), 0),
        labels_M=_filled(masked.labels, rounded(masked.positions.size, plan.tokens), NOT_ASKED),
        pair_labels_S=_pair_labels(labels, filled=filling.size),
        longest=max_tokens,
        tokens=ids.size,
        masked=masked.positions.size,
        sequences=ends.size,
    )


def once(text: Text, plan: Plan, vocabulary: Vocabulary, *, tokens: int, rate: float) -> Iterator[Arrays]:
    """The batches of one epoch, up to about so many tokens: the same each time, for measuring."""
    place, seen = Place(0, 0, plan.max_tokens), 0
    while place.epoch == 0 and seen < tokens:
        parts, place = take(text, place, plan.tokens)
        made = batch(text, parts[:1], plan, vocabulary, rate=rate, max_tokens=plan.max_tokens)
        seen += made.tokens
        yield made


def rounded(count: int, tokens: int) -> int:
    """A count raised to a multiple of a small part of the batch, at least one of them."""
    grain = max(1, tokens // GRAIN)
    return max(1, -(-count // grain)) * grain


def _filled(array: NDArray[Any], size: int, filling: int) -> Ints:
    out = np.full(size, filling, np.int64)
    out[: array.size] = array
    return out


def _pair_labels(labels: list[Ints], *, filled: int) -> Ints | None:
    if not labels:
        return None
    return np.concatenate([*labels, np.full(filled, NOT_ASKED, np.int64)])
