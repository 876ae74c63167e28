"""Masking for masked language modeling: tokens, whole words or spans of a packed batch.

A packed batch is one flat array of token ids with `ends`, the exclusive end of each sequence; there is no padding.
"""

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from lexome.corpus.pairs import ranges
from lexome.errors import UsageError

# Word boundaries from a tokenizer's vocabulary, for whole words of packed batches, which have only ids


Bools = NDArray[np.bool_]
PieceKind = Literal["wordpiece", "byte-level", "sentencepiece"]

# The alphabet of byte-level BPE: a byte that Latin-1 shows is its own character, the others are U+0100 and on.
_SHOWN = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_BYTES = {chr(0x100 + place): byte for place, byte in enumerate(sorted(set(range(256)) - set(_SHOWN)))}
_BYTES |= {chr(byte): byte for byte in _SHOWN}
_BLANKS = tuple(character for character, byte in _BYTES.items() if byte in b"\t\n\v\f\r ")
_BREAKS = tuple(character for character in _BLANKS if _BYTES[character] != ord(" "))


def piece_kind(tokenizer: Mapping[str, Any]) -> PieceKind:
    """How the vocabulary of a tokenizer.json (as a dict) marks the start of words."""
    model = tokenizer["model"]
    steps = {step["type"] for part in ("pre_tokenizer", "decoder", "normalizer") for step in _steps(tokenizer, part)}
    prefix = model.get("continuing_subword_prefix")
    if prefix == "##" and model["type"] in ("WordPiece", "BPE"):
        return "wordpiece"
    if not prefix and not model.get("end_of_word_suffix") and model["type"] in ("BPE", "Unigram"):
        if "ByteLevel" in steps:
            return "byte-level"
        # Converted Llama-like files have no Metaspace step, but a normalizer that puts "▁" in front.
        if steps & {"Metaspace", "Prepend"}:
            return "sentencepiece"
    raise UsageError(
        f"cannot find word boundaries: the tokenizer is {model['type']} with steps {sorted(steps)}; supported are "
        "WordPiece ('##'), byte-level BPE and SentencePiece ('▁'). Mask with unit='token' instead.",
        code="unknown-word-boundaries",
        value=model["type"],
    )


def _steps(tokenizer: Mapping[str, Any], part: str) -> list[Mapping[str, Any]]:
    """The steps of a part of a tokenizer.json; a Sequence has a different key for them in each part."""
    step = tokenizer.get(part)
    if step is None:
        return []
    inner = next((step[key] for key in ("pretokenizers", "decoders", "normalizers") if key in step), None)
    return [step] if inner is None else list(inner)


def word_starts(pieces: Sequence[str], kind: PieceKind) -> Bools:
    """Whether a token starts a word, by id. The first token of a sequence always does.

    wordpiece: all but "##..."; the text was split at white space and around each punctuation mark before pieces were
    made, so "IL-2," is four words. byte-level: a white-space byte in front ("Ġ" is the space). sentencepiece: "▁" in
    front. The last two keep no other trace of the text's words, so a word is what stands between white space: "IL-2,"
    is one. That is also what RoBERTa's and SpanBERT's code take for a word. `Vocabulary` can separate punctuation.
    """
    if kind == "wordpiece":
        return np.array([not piece.startswith("##") for piece in pieces], bool)
    return np.array([piece.startswith(_BLANKS if kind == "byte-level" else "▁") for piece in pieces], bool)


def word_ends(pieces: Sequence[str], kind: PieceKind) -> Bools:
    """Whether the token after this one always starts a word, by id.

    Only byte-level BPE has such tokens: a line break or tab is separate from the next word, while a space is that
    word's first byte.
    """
    return np.array([kind == "byte-level" and piece.endswith(_BREAKS) for piece in pieces], bool)


def punctuation(pieces: Sequence[str], kind: PieceKind) -> Bools:
    """Whether a token is only punctuation as BERT defines it, by id; a leading space is ignored."""
    texts = [piece.removeprefix("▁") for piece in pieces]
    if kind == "byte-level":
        # Incomplete characters become U+FFFD, characters of added tokens outside the alphabet 0: no punctuation.
        spelled = (bytes(_BYTES.get(character, 0) for character in piece) for piece in pieces)
        texts = [text.decode("utf-8", errors="replace").removeprefix(" ") for text in spelled]
    return np.array([bool(text) and all(map(_is_punctuation, text)) for text in texts], bool)


def _is_punctuation(character: str) -> bool:
    """BERT's rule: all non-alphanumeric ASCII, such as "$" and "+", and Unicode punctuation."""
    return ("!" <= character <= "~" and not character.isalnum()) or unicodedata.category(character).startswith("P")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Properties of each token that masking depends on, by token id.

    `starts`: the token starts a word. `closes`: the next token does. `special`: never masked, never a random
    replacement.
    """

    mask_id: int
    special: Bools
    starts: Bools
    closes: Bools

    @classmethod
    def of(cls, tokenizer: Mapping[str, Any], *, words: bool = True, punctuation_apart: bool = False) -> Self:
        """The vocabulary of a tokenizer.json (as a dict). Without `words`, each token is a word.

        `punctuation_apart` makes punctuation tokens separate words, as WordPiece's always are. A mixed token ("'s")
        stays with the word before it.
        """
        added = {token["id"]: token for token in tokenizer["added_tokens"]}
        vocab: Any = tokenizer["model"]["vocab"]
        # Unigram's vocabulary is a list of pieces with their scores; unused ids have the piece "".
        pairs = vocab.items() if isinstance(vocab, Mapping) else ((piece, id_) for id_, (piece, _) in enumerate(vocab))
        known = {id_: piece for piece, id_ in pairs} | {id_: token["content"] for id_, token in added.items()}
        pieces = [known.get(id_, "") for id_ in range(max(known, default=-1) + 1)]
        special = np.zeros(len(pieces), bool)
        special[[id_ for id_, token in added.items() if token["special"]]] = True
        masks = [id_ for id_, piece in enumerate(pieces) if special[id_] and piece in ("[MASK]", "<mask>")]
        if len(masks) != 1:
            raise UsageError(
                f"the tokenizer has {len(masks)} special tokens named [MASK] or <mask>; masking needs exactly one. "
                "Add it to the special tokens when the tokenizer is trained.",
                code="mask-token",
                value=len(masks),
            )
        starts, closes = np.ones((2, len(pieces)), bool)
        if words:
            kind = piece_kind(tokenizer)
            apart = special | (punctuation(pieces, kind) if punctuation_apart else False)
            starts, closes = word_starts(pieces, kind) | apart, word_ends(pieces, kind) | apart
        return cls(masks[0], special, starts, closes)


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Masking:
    """How a batch is masked: which units, how many, and their replacements.

    Each sequence has a budget of `rate` of its ordinary tokens, rounded, at least one. Units are taken in random order;
    one that would exceed the budget is skipped and the next is tried, as in Google's code. With `independent`, each
    unit is sampled independently with probability `rate`, as in Hugging Face's.

    Spans are SpanBERT's: runs of words, their number geometric with `span_stop` up to `span_longest` (mean 3.8). The
    text is partitioned into such runs, so that none overlap. The last one is truncated at a word where the budget ends.

    Of the chosen tokens a fraction `mask_ratio` becomes [MASK], `random_ratio` a random ordinary token, and the rest is
    kept; decided per token, or with `replace_whole_unit` per word or span.
    """

    unit: Literal["token", "word", "span"] = "word"
    rate: float = 0.15
    mask_ratio: float = 0.8
    random_ratio: float = 0.1
    replace_whole_unit: bool = False
    independent: bool = False
    span_stop: float = 0.2
    span_longest: int = 10

    def __post_init__(self) -> None:
        if self.unit not in ("token", "word", "span"):
            message = f"unknown masking unit {self.unit!r}; expected token, word or span."
            raise UsageError(message, code="masking-unit", value=self.unit)
        if not 0 < self.rate <= 1:
            raise UsageError(
                f"masking rate {self.rate}; expected above 0 and at most 1.", code="masking-rate", value=self.rate
            )
        if min(self.mask_ratio, self.random_ratio) < 0 or self.mask_ratio + self.random_ratio > 1 + 1e-9:
            raise UsageError(
                f"{self.mask_ratio} masked and {self.random_ratio} random; expected ratios of 0 or more that add up to "
                "at most 1.",
                code="masking-ratios",
                value=(self.mask_ratio, self.random_ratio),
            )
        if not 0 < self.span_stop < 1 or self.span_longest < 1:
            raise UsageError(
                f"span_stop {self.span_stop} and span_longest {self.span_longest}; expected a probability in (0, 1) "
                "and at least one word.",
                code="masking-spans",
                value=(self.span_stop, self.span_longest),
            )


@dataclass(frozen=True, slots=True)
class Masked:
    """A masked batch: input ids, masked positions (ascending), and the original ids there."""

    inputs: NDArray[Any]
    positions: Ints
    labels: NDArray[Any]


# Masks

# Rows of the random draws of a batch: one in [0, 1) for each token and purpose.
_ORDER, _SPLIT, _PIECE, _LENGTH = range(4)
DRAWS = 4


def mask(
    ids: NDArray[Any], ends: Ints, vocabulary: Vocabulary, masking: Masking, rng: np.random.Generator | Floats
) -> Masked:
    """Mask a batch. `ids` is not modified; inputs and labels have its dtype.

    `rng` may be the random draws themselves, of shape (DRAWS, tokens) in [0, 1), as `sequence_draws` returns. The
    result depends on nothing else: a unit uses the draws at its first token, a token those at its position.
    """
    ends = ends.astype(np.int64)
    lengths = np.diff(ends, prepend=0)
    if lengths.min(initial=0) < 0 or lengths.sum() != ids.size:
        message = f"sequence ends {ends}; expected ascending numbers up to the {ids.size} tokens of the batch."
        raise UsageError(message, code="sequence-ends", value=ids.size)
    if ids.size and ids.max() >= vocabulary.special.size:
        raise UsageError(
            f"token id {ids.max()} is outside the vocabulary of {vocabulary.special.size} tokens. "
            "Use the tokenizer that the shards were made with.",
            code="token-id",
            value=int(ids.max()),
        )
    draws = rng.random((DRAWS, ids.size)) if isinstance(rng, np.random.Generator) else rng
    words = _find_words(ids, lengths, vocabulary, unit=masking.unit)
    leaders = words.firsts
    if masking.unit == "span":
        words, leaders = _find_spans(words, masking, draws[_LENGTH])
    keys = draws[_ORDER, leaders]
    chosen = (
        np.flatnonzero(keys < masking.rate) if masking.independent else _sample_within_budget(words, keys, masking.rate)
    )
    chosen = chosen[np.argsort(words.firsts[chosen])]
    positions = ranges(words.firsts[chosen], words.lengths[chosen])
    rolled = np.repeat(leaders[chosen], words.lengths[chosen]) if masking.replace_whole_unit else positions
    return _replace(ids, positions, vocabulary, masking, (draws[_SPLIT, rolled], draws[_PIECE, positions]))


@dataclass(frozen=True, slots=True)
class _WordRuns:
    """Maskable words: first token, number of tokens, sequence index; `sequences` is the number of sequences."""

    firsts: Ints
    lengths: Ints
    sequence: Ints
    sequences: int


def _find_words(ids: NDArray[Any], lengths: Ints, vocabulary: Vocabulary, *, unit: str) -> _WordRuns:
    """The words of a batch without special tokens; with unit "token" each token is a word."""
    ordinary = ~vocabulary.special[ids]
    sequence = np.repeat(np.arange(lengths.size), lengths)
    if unit == "token":
        firsts = np.flatnonzero(ordinary)
        return _WordRuns(firsts, np.ones_like(firsts), sequence[firsts], lengths.size)
    begins = vocabulary.starts[ids] | ~ordinary
    begins[1:] |= vocabulary.closes[ids[:-1]] | ~ordinary[:-1] | (sequence[1:] != sequence[:-1])
    begins[:1] = True
    firsts = np.flatnonzero(begins)
    kept = ordinary[firsts]
    return _WordRuns(firsts[kept], np.diff(firsts, append=ids.size)[kept], sequence[firsts[kept]], lengths.size)


def _find_spans(words: _WordRuns, masking: Masking, draws: Floats) -> tuple[_WordRuns, Ints]:
    """The words in the order of spans, and for each the first token of its span.

    The draw of the n-th word sets the length of the n-th span, so that no loop is needed. Spans start at a random word
    and wrap around the sequence: if the first word always started a span, which is never truncated, 20% of first words
    would be masked in sequences of 30 words, where the mean is 13%. The start is set by the last draw, which affects no
    length. A special token ends a span.
    """
    counts = np.arange(1, masking.span_longest + 1)
    reached = np.cumsum((1 - masking.span_stop) ** counts)
    lengths = 1 + np.searchsorted(reached / reached[-1], draws[words.firsts], side="right")
    before, sizes = _exclusive_sums(lengths, words)
    base = (np.cumsum(sizes) - sizes)[words.sequence]
    size = sizes[words.sequence]
    turn = (draws[words.firsts[base + size - 1]] * size).astype(np.int64)
    order = base + (np.arange(base.size) - base + turn) % size
    turned = replace(words, firsts=words.firsts[order], lengths=words.lengths[order])
    leads = np.zeros(base.size, bool)
    leads[(base + before)[before < size]] = True
    leads[1:] |= turned.firsts[1:] > turned.firsts[:-1] + turned.lengths[:-1]
    return turned, turned.firsts[np.maximum.accumulate(np.where(leads, np.arange(leads.size), 0))]


def _exclusive_sums(amounts: Ints, words: _WordRuns) -> tuple[Ints, Ints]:
    """Exclusive prefix sums of the amounts within each sequence; and the number of words of each sequence."""
    sizes = np.bincount(words.sequence, minlength=words.sequences)
    sums = np.concatenate(([0], np.cumsum(amounts)))
    return sums[:-1] - sums[np.cumsum(sizes) - sizes][words.sequence], sizes


def _sample_within_budget(words: _WordRuns, keys: Floats, rate: float) -> Ints:
    """Words taken in the order of their keys, skipping those that exceed the budget of their sequence.

    All words before the first misfit are taken at once; the rest that still fits goes into another round. Its words are
    shorter than the last misfit, so there are at most as many rounds as word lengths.
    """
    tokens = np.bincount(words.sequence, weights=words.lengths, minlength=words.sequences)
    # Sequences without ordinary tokens have no words, so their budget of one is never used.
    room = np.maximum(1, np.rint(rate * tokens)).astype(np.int64)
    order = _sort_by_key(words, keys)
    chosen = []
    while order.size:
        now = _WordRuns(words.firsts[order], words.lengths[order], words.sequence[order], words.sequences)
        before, _ = _exclusive_sums(now.lengths, now)
        fits = before + now.lengths <= room[now.sequence]
        chosen.append(order[fits])
        room -= np.bincount(now.sequence[fits], now.lengths[fits], words.sequences).astype(np.int64)
        order = order[~fits & (now.lengths <= room[now.sequence])]
    return np.concatenate([order, *chosen])


def _sort_by_key(words: _WordRuns, keys: Floats) -> Ints:
    """The words of each sequence sorted by key, stable.

    Sequence, key and index are packed into one 64-bit integer: sorting these is six times as fast as np.argsort. At
    65,536 tokens in 1,000 sequences, 38 bits are left for the key.
    """
    place_bits = int(keys.size).bit_length()
    key_bits = 64 - place_bits - int(words.sequences).bit_length()
    packed = (words.sequence.astype(np.uint64) << np.uint64(key_bits)) | (keys * 2.0**key_bits).astype(np.uint64)
    packed = (packed << np.uint64(place_bits)) | np.arange(keys.size, dtype=np.uint64)
    packed.sort()
    return (packed & np.uint64((1 << place_bits) - 1)).astype(np.int64)


def _replace(
    ids: NDArray[Any], positions: Ints, vocabulary: Vocabulary, masking: Masking, draws: tuple[Floats, Floats]
) -> Masked:
    """The batch with the tokens at `positions` masked, replaced at random or kept, by their draws."""
    split, piece = draws
    ordinary = np.flatnonzero(~vocabulary.special)
    inputs, labels = ids.copy(), ids[positions]
    masked = split < masking.mask_ratio
    exchanged = ~masked & (split < masking.mask_ratio + masking.random_ratio)
    inputs[positions[masked]] = vocabulary.mask_id
    inputs[positions[exchanged]] = ordinary[(piece[exchanged] * ordinary.size).astype(np.int64)]
    return Masked(inputs, positions, labels)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A masking-rate schedule: ascending points of (progress from 0 to 1, rate), the first at 0.

    Each rate applies from its point on; `linear` interpolates between points.
    """

    points: tuple[tuple[float, float], ...]
    linear: bool = False

    def __post_init__(self) -> None:
        places, rates = ([point[side] for point in self.points] for side in (0, 1))
        if not places or places[0] != 0 or places[-1] > 1 or sorted(set(places)) != places:
            message = f"masking schedule at {places}; expected ascending points from 0 to at most 1."
            raise UsageError(message, code="masking-schedule", value=places)
        if not all(0 < rate <= 1 for rate in rates):
            raise UsageError(
                f"masking rates {rates}; expected each above 0 and at most 1.", code="masking-rate", value=rates
            )


def rate_at(schedule: float | Schedule, progress: float) -> float:
    """The masking rate at a training progress from 0 to 1."""
    if not isinstance(schedule, Schedule):
        return schedule
    if schedule.linear:
        return float(np.interp(progress, *np.array(schedule.points).T))
    return [rate for place, rate in schedule.points if place <= max(progress, 0.0)][-1]


def mask_rng(seed: int, epoch: int, index: int, *, dupe_factor: int | None = None) -> np.random.Generator:
    """The generator for one batch or sequence: the same for the same numbers, so that resumed runs are bit-exact.

    Without `dupe_factor`, every epoch has new masks (dynamic masking). With it, that many maskings alternate, as in
    BERT's static masking: BioBERT has 10, Bioformer 20.
    """
    return np.random.Generator(np.random.PCG64(_seed_sequence(seed, epoch, dupe_factor, index)))


def sequence_draws(seed: int, epoch: int, sequences: Ints, ends: Ints, *, dupe_factor: int | None = None) -> Floats:
    """Random draws for `mask` that depend on each sequence's index, not on its batch.

    A sequence then gets the same mask however batches are shuffled, split or distributed. Use this with `dupe_factor`
    if the order of sequences changes between epochs.
    """
    base = _seed_sequence(seed, epoch, dupe_factor).generate_state(1, np.uint64)
    ends = ends.astype(np.int64)
    lengths = np.diff(ends, prepend=0)
    keys = _splitmix64(base + sequences.astype(np.uint64) * _STEP)
    within = np.arange(lengths.sum()) - np.repeat(ends - lengths, lengths)
    counts = within.astype(np.uint64) * np.uint64(DRAWS) + np.arange(1, DRAWS + 1, dtype=np.uint64)[:, None]
    return (_splitmix64(np.repeat(keys, lengths) + counts * _STEP) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _seed_sequence(seed: int, epoch: int, dupe_factor: int | None, *more: int) -> np.random.SeedSequence:
    if dupe_factor is not None and dupe_factor < 1:
        message = f"{dupe_factor} maskings; expected at least 1, or None to mask every epoch anew."
        raise UsageError(message, code="dupe-factor", value=dupe_factor)
    turn = epoch if dupe_factor is None else epoch % dupe_factor
    return np.random.SeedSequence(seed, spawn_key=(turn, *more))


# SplitMix64 (Steele, Lea and Flood 2014): a counter in steps of the golden ratio, then mixed.
_STEP = np.uint64(0x9E3779B97F4A7C15)


def _splitmix64(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's output function: a bijective mixer."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
