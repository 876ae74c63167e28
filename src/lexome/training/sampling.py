"""The text of many shards as one: its sequences or pairs, and their order in each epoch.

Everything here is numpy. A token has a number in the whole text, a sequence a number in its epoch.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Thread
from typing import Any, Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from lexome.corpus.masking import Masking, Schedule, mask, rate_at, sequence_draws
from lexome.corpus.pairs import Packed, assemble, next_sentence_pairs, pack_sentences, sentence_order_pairs
from lexome.corpus.shards import Shard
from lexome.corpus.words import Vocabulary
from lexome.errors import ShardError, UsageError
from lexome.training.optim import value_at

Ints = NDArray[np.int64]
TextKind = Literal["sentences", "across_documents", "next_sentence", "sentence_order"]
Made = TypeVar("Made")
PAIRED = ("next_sentence", "sentence_order")

# Streams of random numbers beside those of the masks, which have the spawn key (epoch,) alone.
_ORDER, _PAIRS, _VIEWS = 1, 2, 3
# How often a split sequence that begins a document is split after its first sentence, the title.
TITLE_PROBABILITY = 0.5


@dataclass(frozen=True, slots=True)
class Specials:
    """The ids of the special tokens that frame a sequence, and of the one that fills up a batch."""

    cls_id: int
    sep_id: int
    pad_id: int

    @classmethod
    def of(cls, tokenizer: dict[str, Any]) -> Self:
        """Those of a tokenizer.json read as a dict, by BERT's names or RoBERTa's."""
        ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
        found = []
        for names in (("[CLS]", "<s>"), ("[SEP]", "</s>"), ("[PAD]", "<pad>")):
            known = [ids[name] for name in names if name in ids]
            if not known:
                raise UsageError(
                    f"the tokenizer has no special token {' or '.join(names)}, which every sequence is framed or "
                    "filled with. Add it to the special tokens when the vocabulary is learned."
                )
            found.append(known[0])
        return cls(*found)


@dataclass(frozen=True, slots=True)
class Pieces:
    """What a tokenizer.json says that training has to know."""

    vocabulary: Vocabulary
    specials: Specials
    size: int

    @classmethod
    def read(cls, path: Path, *, words: bool) -> "Pieces":
        """From a tokenizer.json; with `words`, where words begin is told too."""
        tokenizer = json.loads(path.read_text(encoding="utf-8"))
        vocabulary = Vocabulary.of(tokenizer, words=words)
        return cls(vocabulary, Specials.of(tokenizer), int(vocabulary.special.size))


@dataclass(frozen=True, slots=True)
class Ranges:
    """The sequences of one epoch as token ranges of the whole text; the second range and the label only for pairs.

    With contrastive learning, `wholes` numbers the unsplit sequences: the two views of a split one share a number.
    """

    starts: Ints
    ends: Ints
    b_starts: Ints | None = None
    b_ends: Ints | None = None
    labels: Ints | None = None
    wholes: Ints | None = None

    @property
    def lengths(self) -> Ints:
        """Tokens of each sequence, with its two or three special ones."""
        if self.b_starts is None or self.b_ends is None:
            return self.ends - self.starts + 2
        return self.ends - self.starts + self.b_ends - self.b_starts + 3


@dataclass(frozen=True, slots=True)
class Ordered:
    """One epoch: its sequences, the order they come in, and the tokens up to each in that order."""

    ranges: Ranges
    order: Ints
    reached: Ints


class Text:
    """Sequences of the shards, epoch by epoch, each a function of seed, epoch and longest sequence alone.

    An epoch goes in rounds through the text: the first takes every shard, the next those whose source `repeat` names
    with 2 and more, and so on. Then the sequences of all rounds are shuffled together. A source at 0 is left out.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        specials: Specials,
        *,
        kind: TextKind = "sentences",
        seed: int = 0,
        dupe_factor: int | None = None,
        short: float = 0.1,
        repeat: Mapping[str, int] | None = None,
        shuffled: bool = True,
        split_fraction: float = 0.0,
    ) -> None:
        times = repeat or {}
        self.shards = [shard for shard in shards if shard.tokens.size and times.get(shard.source, 1)]
        counts = [times.get(shard.source, 1) for shard in self.shards]
        self.rounds = [
            [at for at, count in enumerate(counts) if count > done] for done in range(max(counts, default=0))
        ]
        # A plain array is sliced ten times as quickly as a memmap, and still read from the file when used.
        self.tokens = [np.asarray(shard.tokens) for shard in self.shards]
        self.offsets = np.cumsum([0] + [tokens.size for tokens in self.tokens])
        self.specials, self.kind, self.seed, self.short = specials, kind, seed, short
        self.dupe_factor, self.shuffled, self.split_fraction = dupe_factor, shuffled, split_fraction
        self._sequences_of: dict[int, Ranges] = {}
        self._ordered: dict[tuple[int, int], Ordered] = {}
        self._coming: dict[tuple[int, int], Future[Ordered]] = {}
        if not self.tokens:
            raise ShardError("the shards hold no tokens, so there is nothing to train on. Shard some text first.")

    @property
    def paired(self) -> bool:
        """True where a sequence is a pair with a label."""
        return self.kind in PAIRED

    def epoch(self, epoch: int, max_tokens: int) -> Ordered:
        """The sequences of an epoch and their order. The last two asked for are kept: a batch may lie in both."""
        key = (epoch, max_tokens)
        if key not in self._ordered:
            made = self._coming[key].result() if key in self._coming else self._made(epoch, max_tokens)
            self._ordered = dict(list(self._ordered.items())[-1:]) | {key: made}
            if self.paired:
                # Drawing the pairs of 136 million tokens takes 12 seconds, in which no batch should have to wait.
                self._coming = {(epoch + 1, max_tokens): in_background(self._made, epoch + 1, max_tokens)}
        return self._ordered[key]

    def packed(self, ranges: Ranges, numbers: Ints) -> Packed:
        """The sequences with these numbers, special tokens added, end to end."""
        first, ids = self._gathered(ranges.starts[numbers], ranges.ends[numbers])
        second = None
        if ranges.b_starts is not None and ranges.b_ends is not None:
            second, more = self._gathered(ranges.b_starts[numbers], ranges.b_ends[numbers])
            second = (second[0] + ids.size, second[1] + ids.size)
            ids = np.concatenate([ids, more])
        return assemble(ids, first, second, cls_id=self.specials.cls_id, sep_id=self.specials.sep_id)

    def _gathered(self, starts: Ints, ends: Ints) -> tuple[tuple[Ints, Ints], NDArray[Any]]:
        """The tokens of ranges, one after the other, and where each now begins and ends."""
        at = np.searchsorted(self.offsets, starts, side="right") - 1
        inside = starts - self.offsets[at]
        lengths = ends - starts
        rows = zip(at.tolist(), inside.tolist(), (inside + lengths).tolist(), strict=True)
        reached = np.cumsum(lengths)
        return (reached - lengths, reached), np.concatenate([self.tokens[k][start:end] for k, start, end in rows])

    def _made(self, epoch: int, max_tokens: int) -> Ordered:
        """Sequences are the same in every epoch and made once; pairs are drawn anew, or take turns as masks do."""
        if self.paired:
            ranges = self._pairs(epoch if self.dupe_factor is None else epoch % self.dupe_factor, max_tokens)
        else:
            if max_tokens not in self._sequences_of:
                self._sequences_of = {max_tokens: self._sequences(max_tokens)}
            ranges = self._sequences_of[max_tokens]
        order = np.arange(ranges.starts.size)
        if self.shuffled:
            order = self._rng(_ORDER, epoch).permutation(ranges.starts.size)
        if self.split_fraction:
            ranges, order = self._split(ranges, order, self._rng(_VIEWS, epoch))
        return Ordered(ranges, order, np.cumsum(ranges.lengths[order]))

    def _sequences(self, max_tokens: int) -> Ranges:
        across = self.kind == "across_documents"
        found = [
            pack_sentences(shard.document_ends, shard.sentence_ends, max_tokens - 2, across_documents=across)  # type: ignore[arg-type]
            for shard in self.shards
        ]
        placed = [(found[at], self.offsets[at]) for one_round in self.rounds for at in one_round]
        starts = np.concatenate([one.starts + offset for one, offset in placed])
        return Ranges(starts, np.concatenate([one.ends + offset for one, offset in placed]))

    def _split(self, ranges: Ranges, order: Ints, rng: np.random.Generator) -> tuple[Ranges, Ints]:
        """Sequences split in two at a sentence boundary, some of them; the two views are adjacent in the order."""
        placed = list(zip(self.shards, self.offsets.tolist(), strict=False))
        sentences = np.concatenate([shard.sentence_ends + offset for shard, offset in placed])
        documents = np.concatenate([shard.document_ends + offset for shard, offset in placed])
        first = np.searchsorted(sentences, ranges.starts, side="right")
        boundaries = np.searchsorted(sentences, ranges.ends, side="left") - first
        whether, where, title = rng.random((3, ranges.starts.size))
        split = (boundaries > 0) & (whether < self.split_fraction)
        begins_document = np.isin(ranges.starts, np.concatenate([documents, self.offsets]))
        chosen = np.where(begins_document & (title < TITLE_PROBABILITY), 0, (where * boundaries).astype(np.int64))
        boundary = sentences[np.minimum(first + chosen, sentences.size - 1)].astype(np.int64)
        counts = 1 + split
        at = np.cumsum(counts) - counts
        starts, ends = np.repeat(ranges.starts, counts), np.repeat(ranges.ends, counts)
        ends[at[split]] = starts[at[split] + 1] = boundary[split]
        wholes = np.repeat(order, counts[order])
        ordered = np.repeat(at[order], counts[order])
        ordered[1:] += wholes[1:] == wholes[:-1]
        return Ranges(starts, ends, wholes=np.repeat(np.arange(ranges.starts.size), counts)), ordered

    def _pairs(self, turn: int, max_tokens: int) -> Ranges:
        """Pairs of each round, drawn one round after the other."""
        rng = self._rng(_PAIRS, turn)
        made = [self._pairs_of(one_round, max_tokens, rng) for one_round in self.rounds]
        joined = Ranges(*(np.concatenate(parts) for parts in zip(*made, strict=True)))
        if not joined.starts.size:
            raise ShardError("the shards hold no two sentences of one document, so no pairs can be made of them.")
        return joined

    def _pairs_of(self, numbers: list[int], max_tokens: int, rng: np.random.Generator) -> tuple[Ints, ...]:
        """Pairs of these shards together, so that a second part may come from any of them: the fields of Ranges.

        A round holds each document once, so that what comes from another document is never the same one again.
        """
        shards = [self.shards[at] for at in numbers]
        # Here their text stands without the gaps that other shards leave.
        begins = np.cumsum([0] + [shard.tokens.size for shard in shards])[:-1]
        documents = np.concatenate([one.document_ends + at for one, at in zip(shards, begins, strict=True)])
        sentences = np.concatenate([one.sentence_ends + at for one, at in zip(shards, begins, strict=True)])
        if self.kind == "next_sentence" and len(self.rounds) > 1 and np.unique(documents[documents > 0]).size == 1:
            raise ShardError(
                f"text.repeat goes on with {shards[0].source} alone, which is one document; a sentence that is not the "
                "next is drawn from another one. Repeat some other source as often, or use sentence_order."
            )
        made = next_sentence_pairs if self.kind == "next_sentence" else sentence_order_pairs
        pairs = made(documents, sentences, max_tokens - 3, rng, short=self.short)
        gaps = self.offsets[numbers] - begins
        a_gaps = gaps[np.searchsorted(begins, pairs.a_starts, side="right") - 1]
        b_gaps = gaps[np.searchsorted(begins, pairs.b_starts, side="right") - 1]
        first = pairs.a_starts + a_gaps, pairs.a_ends + a_gaps
        return *first, pairs.b_starts + b_gaps, pairs.b_ends + b_gaps, pairs.labels

    def _rng(self, stream: int, epoch: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(self.seed, spawn_key=(epoch, stream))))


def in_background(work: Callable[..., Made], *given: Any) -> "Future[Made]":
    """The outcome to come of work that a thread does; the program may end without waiting for it."""
    coming: Future[Made] = Future()

    def run() -> None:
        try:
            coming.set_result(work(*given))
        except BaseException as error:  # raised where the outcome is asked for
            coming.set_exception(error)

    Thread(target=run, name="lexome-epoch", daemon=True).start()
    return coming


Progress = Callable[[int, int], float]
"""How much of the run is done, given the steps and tokens before."""

# What a label is where nothing is asked: torch's cross entropy leaves it out.
IGNORE_INDEX = -100
# Masked positions and sequences are filled up to a multiple of this part of the batch, so that compiled code meets
# one or two sizes. 10 of 64 parts are the usual number of masks at a rate of 0.15.
GRAIN = 64


@dataclass(frozen=True, slots=True)
class Place:
    """Where in the text the next batch begins: an epoch, a sequence in its order, the longest sequence there."""

    epoch: int = 0
    at: int = 0
    max_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """How batches are made over a run. `passes` and `lengths` are (share of the run, value) points."""

    tokens: int
    max_tokens: int
    passes: int = 1
    passes_ramp: tuple[tuple[float, float], ...] = ()
    lengths_ramp: tuple[tuple[float, float], ...] = ()
    masking: Masking = field(default_factory=Masking)
    rate: float | Schedule = 0.15
    dupe_factor: int | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Arrays:
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
    views_P2: Ints | None = None


@dataclass(frozen=True, slots=True)
class StepArrays:
    """The passes of one step, and the place after it."""

    passes: list[Arrays]
    after: Place
    rate: float


def steps(
    text: Text, plan: Plan, vocabulary: Vocabulary, share: Progress, *, begin: tuple[Place, int, int]
) -> Iterator[StepArrays]:
    """Batches without end from a place on, step by step; `begin` is the place, and the steps and tokens before it.

    The same place, steps and tokens give the same batches, whatever came before. Only where `share` reads a clock are
    they different each time.
    """
    place, step, tokens = begin
    while True:
        done = share(step, tokens)
        max_tokens = int(value_at(plan.lengths_ramp, done, default=plan.max_tokens))
        if place.max_tokens != max_tokens:
            # Sequences of another length are other sequences: the rest of the epoch is not gone through.
            place = Place(place.epoch + (place.at > 0), 0, max_tokens)
        rate = rate_at(plan.rate, done)
        passes = []
        for _ in range(round(value_at(plan.passes_ramp, done, default=plan.passes))):
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
    packed, draws, labels, views, before = [], [], [], [], 0
    for epoch, numbers in parts:
        ranges = text.epoch(epoch, max_tokens).ranges
        one = text.packed(ranges, numbers)
        packed.append(one)
        draws.append(sequence_draws(plan.seed, epoch, numbers, one.ends, dupe_factor=plan.dupe_factor))
        if ranges.labels is not None:
            labels.append(ranges.labels[numbers])
        if ranges.wholes is not None:
            wholes = ranges.wholes[numbers]
            firsts = np.flatnonzero(wholes[1:] == wholes[:-1]) + before
            views.append(np.stack([firsts, firsts + 1], axis=1))
        before += numbers.size
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
        positions_M=_filled(masked.positions, round_up(masked.positions.size, plan.tokens), 0),
        labels_M=_filled(masked.labels, round_up(masked.positions.size, plan.tokens), IGNORE_INDEX),
        pair_labels_S=_pair_labels(labels, filled=filling.size),
        longest=max_tokens,
        tokens=ids.size,
        masked=masked.positions.size,
        sequences=ends.size,
        views_P2=np.concatenate(views) if views else None,
    )


def evaluation_batches(text: Text, plan: Plan, vocabulary: Vocabulary, *, tokens: int, rate: float) -> Iterator[Arrays]:
    """The batches of one epoch, up to about so many tokens: the same each time, for measuring."""
    place, seen = Place(0, 0, plan.max_tokens), 0
    while place.epoch == 0 and seen < tokens:
        parts, place = take(text, place, plan.tokens)
        made = batch(text, parts[:1], plan, vocabulary, rate=rate, max_tokens=plan.max_tokens)
        seen += made.tokens
        yield made


def round_up(count: int, tokens: int) -> int:
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
    return np.concatenate([*labels, np.full(filled, IGNORE_INDEX, np.int64)])
