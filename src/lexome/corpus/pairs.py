"""Training sequences from sentences: packed whole sentences, next-sentence pairs (NSP), sentence-order pairs (SOP).

A shard is one flat array of token ids with the exclusive ends of its documents and sentences, in tokens; each document
end is also a sentence end. The functions here return token ranges in it. `max_tokens` excludes special tokens: 510 for
512 with [CLS] and [SEP], 509 for a pair.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lexome.errors import UsageError

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sequences:
    """Token ranges, in the order of the text."""

    starts: Ints
    ends: Ints


@dataclass(frozen=True, slots=True)
class Pairs:
    """Two token ranges per instance, and its label: 0 where B follows A, 1 where it does not.

    `cut` counts truncated tokens, `left_out` tokens of sentences that are in no pair.
    """

    a_starts: Ints
    a_ends: Ints
    b_starts: Ints
    b_ends: Ints
    labels: Ints
    cut: int
    left_out: int


@dataclass(frozen=True, slots=True)
class Packed:
    """A packed batch: ids, the segment of each (0 or 1), and the exclusive end of each sequence."""

    ids: NDArray[Any]
    segments: NDArray[np.uint8]
    ends: Ints


def pack_sentences(
    document_ends: Ints, sentence_ends: Ints, max_tokens: int, *, across_documents: bool = False
) -> Sequences:
    """Sequences of as many whole sentences as fit, covering every token once: RoBERTa's DOC-SENTENCES.

    With `across_documents` a sequence continues into the next document: FULL-SENTENCES, without its separator. A
    sentence longer than `max_tokens` is split.
    """
    document_ends, sentence_ends = _validate_ends(document_ends, sentence_ends, max_tokens, least=1)
    lengths = np.diff(sentence_ends, prepend=0)
    pieces = -(-lengths // max_tokens)
    nth = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    starts = np.repeat(sentence_ends - lengths, pieces) + nth * max_tokens
    ends = np.minimum(starts + max_tokens, np.repeat(sentence_ends, pieces))
    limits = starts + max_tokens
    if not across_documents:
        limits = np.minimum(limits, document_ends[np.searchsorted(document_ends, starts, side="right")])
    # For each piece the first one that no longer fits with it; only this chain is walked in a Python loop.
    following = np.searchsorted(ends, limits, side="right").tolist()
    firsts, at = [], 0
    while at < len(following):
        firsts.append(at)
        at = following[at]
    chosen = np.array(firsts, np.int64)
    return Sequences(starts[chosen], np.append(starts[chosen[1:]], ends[-1:]))


def next_sentence_pairs(
    document_ends: Ints, sentence_ends: Ints, max_tokens: int, rng: np.random.Generator, *, short: float = 0.1
) -> Pairs:
    """BERT's next-sentence pairs: A and the text after it (0), or half the time A and text of another document (1).

    As in Google's create_pretraining_data. Each document has a target length: `max_tokens`, or with probability `short`
    a random one from 2 on. Sentences are gathered up to it and split at random into A and B. If B is from another
    document, the sentences it replaces start the next pair. A single sentence always gets such a B.
    """
    text = _SentenceIndex.of(*_validate_ends(document_ends, sentence_ends, max_tokens, least=2))
    if len(text.firsts) == 2:
        message = "next-sentence pairs need at least two documents with text; got 1. Use sentence-order pairs."
        raise UsageError(message, code="too-few-documents", value=1)
    return _truncate_pairs(
        _as_array(_next_sentence(text, max_tokens, _uniforms(rng), short)), max_tokens, rng, left_out=0
    )


def sentence_order_pairs(
    document_ends: Ints, sentence_ends: Ints, max_tokens: int, rng: np.random.Generator, *, short: float = 0.1
) -> Pairs:
    """ALBERT's sentence-order pairs: A and the text after it (0), or half the time the two swapped (1).

    Chunks are gathered and split as for `next_sentence_pairs`. A chunk of one sentence has no order: it is skipped and
    counted. (ALBERT's code gives it a B from another document, which is recognized by topic.)
    """
    text = _SentenceIndex.of(*_validate_ends(document_ends, sentence_ends, max_tokens, least=2))
    rows = _as_array(_sentence_order(text, max_tokens, _uniforms(rng), short))
    a_starts, a_ends, b_starts, b_ends, _ = rows.T
    paired = int((a_ends - a_starts + b_ends - b_starts).sum())
    return _truncate_pairs(rows, max_tokens, rng, left_out=text.bounds[-1] - paired)


def _validate_ends(document_ends: Ints, sentence_ends: Ints, max_tokens: int, *, least: int) -> tuple[Ints, Ints]:
    """Check that the ends are consistent; as signed integers, which can be subtracted."""
    document_ends, sentence_ends = document_ends.astype(np.int64), sentence_ends.astype(np.int64)
    if max_tokens < least:
        raise UsageError(f"max_tokens is {max_tokens}; expected at least {least}.", code="max-tokens", value=max_tokens)
    for name, ends in (("document", document_ends), ("sentence", sentence_ends)):
        if np.diff(ends, prepend=0).min(initial=0) < 0:
            message = f"{name} ends do not ascend; expected token counts from the start of the shard."
            raise UsageError(message, code="unsorted-ends", value=name)
    ends = document_ends[document_ends > 0]
    # np.isin would sort a copy.
    if (np.append(sentence_ends, -1)[np.searchsorted(sentence_ends, ends)] != ends).any():
        raise UsageError(
            "a document ends within a sentence; expected every document end to be a sentence end.",
            code="document-in-sentence",
        )
    if document_ends.max(initial=0) != sentence_ends.max(initial=0):
        raise UsageError(
            "sentences after the end of the last document; expected ends of the same shard.", code="sentences-after-end"
        )
    return document_ends, sentence_ends


@dataclass(frozen=True, slots=True)
class _SentenceIndex:
    """Sentences and documents that are not empty.

    Sentence s has the tokens bounds[s] to bounds[s + 1], document d the sentences firsts[d] to firsts[d + 1]. Python's
    arrays are as fast to index as lists and take 8 bytes per item instead of 40.
    """

    bounds: "array[int]"
    firsts: "array[int]"

    @classmethod
    def of(cls, document_ends: Ints, sentence_ends: Ints) -> "_SentenceIndex":
        bounds, documents = (
            np.append(0, ends[np.diff(ends, prepend=0) > 0]) for ends in (sentence_ends, document_ends)
        )
        firsts = np.searchsorted(bounds, documents)
        return cls(array("q", bounds.tobytes()), array("q", firsts.astype(np.int64).tobytes()))


def _uniforms(rng: np.random.Generator) -> Iterator[float]:
    """Random draws in [0, 1), 20 times as fast as calling `rng` for each."""
    while True:
        yield from rng.random(4096).tolist()


def _target(max_tokens: int, draws: Iterator[float], short: float) -> int:
    """The target length of a document's chunks."""
    return 2 + int(next(draws) * (max_tokens - 1)) if next(draws) < short else max_tokens


def _split_point(first: int, end: int, draws: Iterator[float]) -> int:
    """The first sentence of B, any but the first; `end` if there is only one."""
    return first + 1 + int(next(draws) * (end - first - 1)) if end - first > 1 else end


_Row = tuple[int, int, int, int, int]


def _pair_chunks(
    text: _SentenceIndex,
    max_tokens: int,
    draws: Iterator[float],
    short: float,
    pair: Callable[[int, int, int, int, int], tuple[_Row | None, int]],
) -> Iterator[_Row]:
    """The pairs of each document's chunks: sentences up to the document's target length, split at random.

    `pair` gets document, target, first sentence, first one of B and end of a chunk; it returns a pair, or None, and
    the sentence that the next chunk begins at.
    """
    bounds, firsts = text.bounds, text.firsts
    for document in range(len(firsts) - 1):
        target = _target(max_tokens, draws, short)
        first, last = firsts[document], firsts[document + 1]
        while first < last:
            end = bisect_left(bounds, bounds[first] + target, first + 1, last)
            row, first = pair(document, target, first, _split_point(first, end, draws), end)
            if row is not None:
                yield row


def _next_sentence(text: _SentenceIndex, max_tokens: int, draws: Iterator[float], short: float) -> Iterator[_Row]:
    bounds = text.bounds

    def pair(document: int, target: int, first: int, middle: int, end: int) -> tuple[_Row, int]:
        a_start, a_end = bounds[first], bounds[middle]
        if middle < end and next(draws) >= 0.5:
            return (a_start, a_end, a_end, bounds[end], 0), end
        return (a_start, a_end, *_random_segment(text, document, target - (a_end - a_start), draws), 1), middle

    return _pair_chunks(text, max_tokens, draws, short, pair)


def _random_segment(text: _SentenceIndex, document: int, wanted: int, draws: Iterator[float]) -> tuple[int, int]:
    """Sentences of another document, from a random one on, up to `wanted` tokens or its end."""
    bounds, firsts = text.bounds, text.firsts
    other = int(next(draws) * (len(firsts) - 2))
    other += other >= document
    first, last = firsts[other], firsts[other + 1]
    start = first + int(next(draws) * (last - first))
    return bounds[start], bounds[bisect_left(bounds, bounds[start] + wanted, start + 1, last)]


def _sentence_order(text: _SentenceIndex, max_tokens: int, draws: Iterator[float], short: float) -> Iterator[_Row]:
    bounds = text.bounds

    def pair(document: int, target: int, first: int, middle: int, end: int) -> tuple[_Row | None, int]:
        if middle == end:
            return None, end
        start, parted, stop = bounds[first], bounds[middle], bounds[end]
        ordered = next(draws) >= 0.5
        return (start, parted, parted, stop, 0) if ordered else (parted, stop, start, parted, 1), end

    return _pair_chunks(text, max_tokens, draws, short, pair)


def _as_array(pairs: Iterator[_Row]) -> Ints:
    """Pairs as rows of an array: tuples would take six times the memory."""
    return np.fromiter(chain.from_iterable(pairs), np.int64).reshape(-1, 5)


def _truncate_pairs(rows: Ints, max_tokens: int, rng: np.random.Generator, *, left_out: int) -> Pairs:
    """Truncate pairs to `max_tokens`: tokens go from the longer part (B on ties), at random from front or back.

    This is Google's truncate_seq_pair without its loop: the number dropped from the front is binomial.
    """
    a_starts, a_ends, b_starts, b_ends, labels = rows.T
    a, b = a_ends - a_starts, b_ends - b_starts
    b_kept = np.minimum(b, np.maximum(max_tokens // 2, max_tokens - a))
    a_kept = np.minimum(a, max_tokens - b_kept)
    a_front, b_front = rng.binomial(a - a_kept, 0.5), rng.binomial(b - b_kept, 0.5)
    a_starts, b_starts = a_starts + a_front, b_starts + b_front
    cut = int((a + b - a_kept - b_kept).sum())
    return Pairs(a_starts, a_starts + a_kept, b_starts, b_starts + b_kept, labels, cut, left_out)


def assemble(
    ids: NDArray[Any], first: tuple[Ints, Ints], second: tuple[Ints, Ints] | None = None, *, cls_id: int, sep_id: int
) -> Packed:
    """The packed batch [CLS] A [SEP] or [CLS] A [SEP] B [SEP] of token ranges (starts, ends), in the dtype of `ids`."""
    a_starts, a = first[0], first[1] - first[0]
    lengths = a + 2
    if second is not None:
        b_starts, b = second[0], second[1] - second[0]
        lengths = lengths + b + 1
    ends = np.cumsum(lengths)
    begins = ends - lengths
    out = np.full(int(lengths.sum()), sep_id, ids.dtype)
    segments = np.zeros(out.size, np.uint8)
    out[begins] = cls_id
    out[ranges(begins + 1, a)] = ids[ranges(a_starts, a)]
    if second is not None:
        out[ranges(begins + a + 2, b)] = ids[ranges(b_starts, b)]
        segments[ranges(begins + a + 2, b + 1)] = 1
    return Packed(out, segments, ends)


def ranges(starts: Ints, lengths: Ints) -> Ints:
    """Concatenated aranges: start, start + 1, ... for each start and length."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1] if ends.size else 0)
