"""Sampling of training batches from token shards: sequences or sentence pairs, shuffled in each epoch.

Everything here is numpy. Tokens are indexed over all shards, sequences within their epoch.
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

from lexome.corpus.masking import Masking, Schedule, Vocabulary, mask, rate_at, sequence_draws
from lexome.corpus.pairs import Packed, assemble, next_sentence_pairs, pack_sentences, sentence_order_pairs
from lexome.corpus.shards import Shard
from lexome.errors import ShardError, UsageError
from lexome.training.optim import value_at

Ints = NDArray[np.int64]
TextKind = Literal["sentences", "across_documents", "next_sentence", "sentence_order"]
Result = TypeVar("Result")
PAIRED = ("next_sentence", "sentence_order")

# Random streams, distinct from that of the masks, which has the spawn key (epoch,).
_ORDER, _PAIRS, _VIEWS = 1, 2, 3
# The probability that a split sequence at the start of a document is split after its title, the first sentence.
TITLE_PROBABILITY = 0.5


@dataclass(frozen=True, slots=True)
class Specials:
    """The ids of the special tokens that delimit a sequence and pad a batch."""

    cls_id: int
    sep_id: int
    pad_id: int

    @classmethod
    def of(cls, tokenizer: dict[str, Any]) -> Self:
        """From a parsed tokenizer.json, by the names of BERT or RoBERTa."""
        ids = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
        special_ids = []
        for names in (("[CLS]", "<s>"), ("[SEP]", "</s>"), ("[PAD]", "<pad>")):
            known = [ids[name] for name in names if name in ids]
            if not known:
                remedy = "Add it to the special tokens when learning the vocabulary"
                message = f"the tokenizer has no special token {' or '.join(names)}, which batches need. {remedy}."
                raise UsageError(message, code="missing-special-token", value=names)
            special_ids.append(known[0])
        return cls(*special_ids)


@dataclass(frozen=True, slots=True)
class Pieces:
    """The properties of a tokenizer that training needs."""

    vocabulary: Vocabulary
    specials: Specials
    size: int

    @classmethod
    def read(cls, path: Path, *, words: bool) -> "Pieces":
        """From a tokenizer.json; with `words`, word boundaries are read too."""
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
        """Tokens of each sequence, including its two or three special tokens."""
        if self.b_starts is None or self.b_ends is None:
            return self.ends - self.starts + 2
        return self.ends - self.starts + self.b_ends - self.b_starts + 3


@dataclass(frozen=True, slots=True)
class Ordered:
    """One epoch: its sequences, their order, and the cumulative token count in that order."""

    ranges: Ranges
    order: Ints
    reached: Ints


@dataclass(frozen=True, slots=True)
class Views:
    """Which sequences are split in two for contrastive learning, and in how many of these one part is one sentence."""

    fraction: float
    single_sentence: float = 0.0


class Text:
    """Sequences of the shards, epoch by epoch, each a function of seed, epoch and longest sequence alone.

    An epoch consists of rounds: the first has every shard, the second those whose source has a `repeat` of 2 or more,
    and so on. The sequences of all rounds are shuffled together. A source with a `repeat` of 0 is excluded.
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
        views: Views | None = None,
    ) -> None:
        times = repeat or {}
        self.shards = [shard for shard in shards if shard.tokens.size and times.get(shard.source, 1)]
        counts = [times.get(shard.source, 1) for shard in self.shards]
        self.rounds = [
            [at for at, count in enumerate(counts) if count > done] for done in range(max(counts, default=0))
        ]
        # Slicing a plain array is ten times faster than slicing a memmap, and still reads lazily from the file.
        self.tokens = [np.asarray(shard.tokens) for shard in self.shards]
        self.offsets = np.cumsum([0] + [tokens.size for tokens in self.tokens])
        self.specials, self.kind, self.seed, self.short = specials, kind, seed, short
        self.dupe_factor, self.shuffled, self.views = dupe_factor, shuffled, views
        self._sequences_of: dict[int, Ranges] = {}
        self._ordered: dict[tuple[int, int], Ordered] = {}
        self._pending: dict[tuple[int, int], Future[Ordered]] = {}
        if not self.tokens:
            raise ShardError("the shards contain no tokens. Shard some text first.", code="no-tokens")

    @property
    def paired(self) -> bool:
        """Whether sequences are labeled pairs."""
        return self.kind in PAIRED

    def epoch(self, epoch: int, max_tokens: int) -> Ordered:
        """The sequences of an epoch and their order. The last two epochs are cached: a batch may span both."""
        key = (epoch, max_tokens)
        if key not in self._ordered:
            epochs = self._pending
            ordered = epochs[key].result() if key in epochs else self._build_epoch(epoch, max_tokens)
            self._ordered = dict(list(self._ordered.items())[-1:]) | {key: ordered}
            if self.paired:
                # Sampling pairs from 136 million tokens takes 12 seconds, so it is done ahead in the background.
                self._pending = {(epoch + 1, max_tokens): in_background(self._build_epoch, epoch + 1, max_tokens)}
        return self._ordered[key]

    def packed(self, ranges: Ranges, numbers: Ints) -> Packed:
        """The sequences with these indices, with special tokens, concatenated."""
        first, ids = self._gather(ranges.starts[numbers], ranges.ends[numbers])
        second = None
        if ranges.b_starts is not None and ranges.b_ends is not None:
            second, more = self._gather(ranges.b_starts[numbers], ranges.b_ends[numbers])
            second = (second[0] + ids.size, second[1] + ids.size)
            ids = np.concatenate([ids, more])
        return assemble(ids, first, second, cls_id=self.specials.cls_id, sep_id=self.specials.sep_id)

    def _gather(self, starts: Ints, ends: Ints) -> tuple[tuple[Ints, Ints], NDArray[Any]]:
        """The concatenated tokens of ranges, and where each range starts and ends in them."""
        at = np.searchsorted(self.offsets, starts, side="right") - 1
        inside = starts - self.offsets[at]
        lengths = ends - starts
        rows = zip(at.tolist(), inside.tolist(), (inside + lengths).tolist(), strict=True)
        reached = np.cumsum(lengths)
        return (reached - lengths, reached), np.concatenate([self.tokens[k][start:end] for k, start, end in rows])

    def _build_epoch(self, epoch: int, max_tokens: int) -> Ordered:
        """Sequences are built once for all epochs; pairs are resampled, or cycle through `dupe_factor` versions."""
        if self.paired:
            ranges = self._pairs(epoch if self.dupe_factor is None else epoch % self.dupe_factor, max_tokens)
        else:
            if max_tokens not in self._sequences_of:
                self._sequences_of = {max_tokens: self._sequences(max_tokens)}
            ranges = self._sequences_of[max_tokens]
        order = np.arange(ranges.starts.size)
        if self.shuffled:
            order = self._rng(_ORDER, epoch).permutation(ranges.starts.size)
        if self.views is not None:
            ranges, order = self._split(ranges, order, self.views, self._rng(_VIEWS, epoch))
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

    def _split(self, ranges: Ranges, order: Ints, views: Views, rng: np.random.Generator) -> tuple[Ranges, Ints]:
        """Split some sequences in two at a sentence boundary; the two views are adjacent in the order."""
        placed = list(zip(self.shards, self.offsets.tolist(), strict=False))
        sentences = np.concatenate([shard.sentence_ends + offset for shard, offset in placed])
        documents = np.concatenate([shard.document_ends + offset for shard, offset in placed])
        first = np.searchsorted(sentences, ranges.starts, side="right")
        boundaries = np.searchsorted(sentences, ranges.ends, side="left") - first
        whether, where, title = rng.random((3, ranges.starts.size))
        split = (boundaries > 0) & (whether < views.fraction)
        begins_document = np.isin(ranges.starts, np.concatenate([documents, self.offsets]))
        chosen = np.where(begins_document & (title < TITLE_PROBABILITY), 0, (where * boundaries).astype(np.int64))
        if views.single_sentence:
            # The first or the last sentence is one view, and everything else the other.
            single = rng.random(ranges.starts.size) / views.single_sentence
            chosen = np.where(single < 1, np.where(single < 0.5, 0, boundaries - 1), chosen)
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
        """The pairs of all rounds, sampled round by round."""
        rng = self._rng(_PAIRS, turn)
        rounds = [self._pairs_of(one_round, max_tokens, rng) for one_round in self.rounds]
        pairs = Ranges(*(np.concatenate(parts) for parts in zip(*rounds, strict=True)))
        if not pairs.starts.size:
            message = "no document of the shards has two sentences, so there are no sentence pairs."
            raise ShardError(message, code="no-pairs")
        return pairs

    def _pairs_of(self, numbers: list[int], max_tokens: int, rng: np.random.Generator) -> tuple[Ints, ...]:
        """Pairs whose second segment may come from any of these shards, as the fields of Ranges.

        A round has each document once, so that a negative never comes from a copy of the same document.
        """
        shards = [self.shards[at] for at in numbers]
        # Offsets without the gaps of shards that are not in this round.
        begins = np.cumsum([0] + [shard.tokens.size for shard in shards])[:-1]
        documents = np.concatenate([one.document_ends + at for one, at in zip(shards, begins, strict=True)])
        sentences = np.concatenate([one.sentence_ends + at for one, at in zip(shards, begins, strict=True)])
        if self.kind == "next_sentence" and len(self.rounds) > 1 and np.unique(documents[documents > 0]).size == 1:
            source, remedy = shards[0].source, "Repeat another source as often, or use sentence_order"
            message = f"text.repeat repeats only {source}, a single document without negatives. {remedy}."
            raise ShardError(message, code="no-negatives", value=source)
        sample_pairs = next_sentence_pairs if self.kind == "next_sentence" else sentence_order_pairs
        pairs = sample_pairs(documents, sentences, max_tokens - 3, rng, short=self.short)
        gaps = self.offsets[numbers] - begins
        a_gaps = gaps[np.searchsorted(begins, pairs.a_starts, side="right") - 1]
        b_gaps = gaps[np.searchsorted(begins, pairs.b_starts, side="right") - 1]
        first = pairs.a_starts + a_gaps, pairs.a_ends + a_gaps
        return *first, pairs.b_starts + b_gaps, pairs.b_ends + b_gaps, pairs.labels

    def _rng(self, stream: int, epoch: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(self.seed, spawn_key=(epoch, stream))))


def in_background(work: Callable[..., Result], *arguments: Any) -> "Future[Result]":
    """Run a function in a daemon thread, which does not block exit; the future of its result."""
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(work(*arguments))
        except BaseException as error:  # raised by Future.result
            future.set_exception(error)

    Thread(target=run, name="lexome-epoch", daemon=True).start()
    return future


Progress = Callable[[int, int], float]
"""The completed fraction of the run, given the steps and tokens so far."""

# The label that torch's cross entropy ignores.
IGNORE_INDEX = -100
# Masked positions are padded to a multiple of this fraction of the batch, so that compiled code sees one or two
# sizes: usually 10/64 at a masking rate of 0.15.
GRAIN = 64


@dataclass(frozen=True, slots=True)
class BatchPosition:
    """The start of the next batch: an epoch, an index into its order, and its maximum sequence length."""

    epoch: int = 0
    at: int = 0
    max_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """The batch schedule of a run. `passes` are micro-batches of a step; ramps are (fraction of run, value) points."""

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
    """One padded batch. Counts exclude padding."""

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
    """The micro-batches of one step, and the place after it."""

    passes: list[Arrays]
    after: BatchPosition
    rate: float


def steps(
    text: Text, plan: Plan, vocabulary: Vocabulary, progress: Progress, *, begin: tuple[BatchPosition, int, int]
) -> Iterator[StepArrays]:
    """An infinite stream of steps; `begin` is the place to start at, and the steps and tokens before it.

    The same place, steps and tokens give the same batches, unless `progress` reads a clock.
    """
    place, step, tokens = begin
    while True:
        done = progress(step, tokens)
        max_tokens = int(value_at(plan.lengths_ramp, done, default=plan.max_tokens))
        if place.max_tokens != max_tokens:
            # Sequences differ at another maximum length, so the rest of the epoch is skipped.
            place = BatchPosition(place.epoch + (place.at > 0), 0, max_tokens)
        rate = rate_at(plan.rate, done)
        passes = []
        for _ in range(round(value_at(plan.passes_ramp, done, default=plan.passes))):
            parts, place = take(text, place, plan.tokens)
            passes.append(batch(text, parts, plan, vocabulary, rate=rate, max_tokens=max_tokens))
        step, tokens = step + 1, tokens + sum(one.tokens for one in passes)
        yield StepArrays(passes, place, rate)


def take(text: Text, place: BatchPosition, tokens: int) -> tuple[list[tuple[int, Ints]], BatchPosition]:
    """The next sequences that fit into this many tokens, as (epoch, indices), and the place after them.

    A batch continues across the end of an epoch, so that its padding is shorter than one sequence.
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
            return parts, BatchPosition(epoch, end, place.max_tokens)
        epoch, at = epoch + 1, 0


def batch(
    text: Text, parts: list[tuple[int, Ints]], plan: Plan, vocabulary: Vocabulary, *, rate: float, max_tokens: int
) -> Arrays:
    """The batch of these sequences, masked, and padded to the size of the plan with sequences of padding.

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
        ids_T=_pad(masked.inputs, plan.tokens, text.specials.pad_id),
        segments_T=_pad(np.concatenate([one.segments for one in packed]), plan.tokens, 0),
        ends_S=np.concatenate([ends, filling]),
        positions_M=_pad(masked.positions, round_up(masked.positions.size, plan.tokens), 0),
        labels_M=_pad(masked.labels, round_up(masked.positions.size, plan.tokens), IGNORE_INDEX),
        pair_labels_S=_pair_labels(labels, filled=filling.size),
        longest=max_tokens,
        tokens=ids.size,
        masked=masked.positions.size,
        sequences=ends.size,
        views_P2=np.concatenate(views) if views else None,
    )


def evaluation_batches(text: Text, plan: Plan, vocabulary: Vocabulary, *, tokens: int, rate: float) -> Iterator[Arrays]:
    """The batches of one epoch, up to about this many tokens: deterministic, for evaluation."""
    place, seen = BatchPosition(0, 0, plan.max_tokens), 0
    while place.epoch == 0 and seen < tokens:
        parts, place = take(text, place, plan.tokens)
        arrays = batch(text, parts[:1], plan, vocabulary, rate=rate, max_tokens=plan.max_tokens)
        seen += arrays.tokens
        yield arrays


def round_up(count: int, tokens: int) -> int:
    """Round a positive count up to a multiple of 1/GRAIN of the batch."""
    grain = max(1, tokens // GRAIN)
    return max(1, -(-count // grain)) * grain


def _pad(array: NDArray[Any], size: int, value: int) -> Ints:
    out = np.full(size, value, np.int64)
    out[: array.size] = array
    return out


def _pair_labels(labels: list[Ints], *, filled: int) -> Ints | None:
    if not labels:
        return None
    return np.concatenate([*labels, np.full(filled, IGNORE_INDEX, np.int64)])
