"""Sequences and pairs: equal to plain loops, and distributed as BERT's and ALBERT's."""

import tracemalloc
from collections.abc import Callable, Iterator
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pytest
from errors import raises
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lexome.corpus.pairs import Pairs, assemble, next_sentence_pairs, pack_sentences, sentence_order_pairs
from lexome.errors import UsageError

Documents = list[list[int]]  # the lengths of each document's sentences
RIGHT, WRONG = 0.001, 1e-6


def ends_of(documents: Documents) -> tuple[Any, Any]:
    sentence_ends = np.cumsum([length for document in documents for length in document], dtype=np.int64)
    document_ends = np.cumsum([sum(document) for document in documents], dtype=np.int64)
    return document_ends, sentence_ends


def ranges(made: Any) -> list[tuple[int, int]]:
    return list(zip(made.starts.tolist(), made.ends.tolist(), strict=True))


documents = st.lists(st.lists(st.integers(0, 12), max_size=8), max_size=6)


# Sequences.


def slow_sequences(documents: Documents, max_tokens: int, across: bool) -> list[tuple[int, int]]:
    made: list[tuple[int, int]] = []
    at = 0
    for document in documents:
        fresh = not across
        for sentence in document:
            while sentence:
                piece = min(sentence, max_tokens)
                if fresh or not made or at + piece - made[-1][0] > max_tokens:
                    made.append((at, at + piece))
                else:
                    made[-1] = (made[-1][0], at + piece)
                at, sentence, fresh = at + piece, sentence - piece, False
    return made


@given(documents, st.integers(1, 20), st.booleans())
def test_sequences_equal_the_slow_reference(documents: Documents, max_tokens: int, across: bool) -> None:
    made = ranges(pack_sentences(*ends_of(documents), max_tokens, across_documents=across))
    assert made == slow_sequences(documents, max_tokens, across)
    borders = [0, *(end for _, end in made)]
    assert [start for start, _ in made] == borders[:-1]
    assert borders[-1] == sum(map(sum, documents))
    assert all(0 < end - start <= max_tokens for start, end in made)


def test_sequences_by_hand() -> None:
    # Two documents; 3 + 4 fit into 8, then 5 begins anew; 19 is cut into 8, 8 and 3, and 2 joins the 3.
    ends = ends_of([[3, 4, 5], [19, 2]])
    assert ranges(pack_sentences(*ends, 8)) == [(0, 7), (7, 12), (12, 20), (20, 28), (28, 33)]
    assert ranges(pack_sentences(*ends_of([[3], [4], [2]]), 8, across_documents=True)) == [(0, 7), (7, 9)]


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.uint64])
def test_ends_of_any_whole_numbers_will_do(dtype: Any) -> None:
    plain = ends_of([[3, 4, 5], [19, 2]])
    stored = tuple(ends.astype(dtype) for ends in plain)
    assert ranges(pack_sentences(*stored, 8)) == ranges(pack_sentences(*plain, 8))
    for make in (next_sentence_pairs, sentence_order_pairs):
        one, other = (make(*ends, 8, np.random.default_rng(0)) for ends in (plain, stored))
        assert [*rows(one)] == [*rows(other)]


# Next-sentence pairs. The reference is a reading of Google's loop, on lists of token numbers.


def slow_next_sentence(documents: Documents, target: int, draws: Iterator[float]) -> list[tuple[Any, Any, int]]:
    """A, B and label before anything is cut, all documents with the same target length."""
    texts = tokens_of(documents)
    instances = []
    for number, text in enumerate(texts):
        next(draws)  # for the target: never short here
        chunk: list[list[int]] = []
        place = 0
        while place < len(text):
            chunk.append(text[place])
            if place == len(text) - 1 or sum(map(len, chunk)) >= target:
                parting = 1 + int(next(draws) * (len(chunk) - 1)) if len(chunk) > 1 else 1
                first, second = [*chain(*chunk[:parting])], [*chain(*chunk[parting:])]
                label = int(len(chunk) == 1 or next(draws) < 0.5)
                if label:
                    second = slow_elsewhere(texts, number, target - len(first), draws)
                    place -= len(chunk) - parting
                instances.append((first, second, label))
                chunk = []
            place += 1
    return instances


def tokens_of(documents: Documents) -> list[list[list[int]]]:
    """Each token as its number in the shard, without empty sentences and documents."""
    number = iter(range(10**9))
    texts = [[[next(number) for _ in range(length)] for length in document if length] for document in documents]
    return [text for text in texts if text]


def slow_elsewhere(texts: list[list[list[int]]], number: int, wanted: int, draws: Iterator[float]) -> list[int]:
    others = texts[:number] + texts[number + 1 :]
    other = others[int(next(draws) * len(others))]
    gathered: list[int] = []
    for sentence in other[int(next(draws) * len(other)) :]:
        gathered += sentence
        if len(gathered) >= wanted:
            break
    return gathered


def slow_lengths(first: int, second: int, max_tokens: int) -> tuple[int, int]:
    while first + second > max_tokens:
        first, second = (first - 1, second) if first > second else (first, second - 1)
    return first, second


def rows(pairs: Pairs) -> Iterator[tuple[int, int, int, int, int]]:
    columns = (pairs.a_starts, pairs.a_ends, pairs.b_starts, pairs.b_ends, pairs.labels)
    return zip(*(column.tolist() for column in columns), strict=True)


@given(documents, st.integers(2, 30), st.integers(0, 2**32))
def test_next_sentence_pairs_equal_the_slow_reference(documents: Documents, max_tokens: int, seed: int) -> None:
    documents = [*documents, [2, 3], [4]]
    pairs = next_sentence_pairs(*ends_of(documents), max_tokens, np.random.default_rng(seed), short=0.0)
    slow = slow_next_sentence(documents, max_tokens, iter(np.random.default_rng(seed).random(4096).tolist()))
    assert pairs.labels.tolist() == [label for _, _, label in slow]
    cut = 0
    for (a_start, a_end, b_start, b_end, _), (first, second, _) in zip(rows(pairs), slow, strict=True):
        assert (a_end - a_start, b_end - b_start) == slow_lengths(len(first), len(second), max_tokens)
        assert set(range(a_start, a_end)) <= set(first)
        assert set(range(b_start, b_end)) <= set(second)
        cut += len(first) + len(second) - (a_end - a_start) - (b_end - b_start)
    assert (pairs.cut, pairs.left_out) == (cut, 0)


# Documents of 40 sentences of 10 tokens and a target of 100: nothing is ever cut, sentence = token // 10.
EVEN: Documents = [[10] * 40] * 500


def chance(observed: Any, shares: Any) -> float:
    expected = np.array(shares) / np.sum(shares) * np.sum(observed)
    return float(stats.chisquare(observed, expected).pvalue)


def test_half_of_the_next_sentences_are_random_and_from_other_documents() -> None:
    pairs = next_sentence_pairs(*ends_of(EVEN), 100, np.random.default_rng(1), short=0.0)
    assert pairs.cut == 0
    lone = pairs.a_starts % 400 == 390
    assert pairs.labels[lone].all()
    coins = np.bincount(pairs.labels[~lone])
    assert chance(coins, [1, 1]) > RIGHT
    assert chance(coins, [0.45, 0.55]) < WRONG
    random = pairs.labels == 1
    assert (pairs.a_starts // 400 != pairs.b_starts // 400)[random].all()
    assert (pairs.a_ends == pairs.b_starts)[~random].all()
    assert ((pairs.b_ends - 1) // 400 == pairs.b_starts // 400).all()


def test_random_sentences_begin_anywhere_in_any_document() -> None:
    pairs = next_sentence_pairs(*ends_of(EVEN), 100, np.random.default_rng(2), short=0.0)
    starts = pairs.b_starts[pairs.labels == 1]
    assert chance(np.bincount(starts % 400 // 10, minlength=40), np.ones(40)) > RIGHT
    assert chance(np.bincount(starts // 400 // 10, minlength=50), np.ones(50)) > RIGHT


def test_a_chunk_is_parted_anywhere() -> None:
    pairs = next_sentence_pairs(*ends_of(EVEN), 100, np.random.default_rng(3), short=0.0)
    whole = pairs.a_starts % 400 <= 300  # ten sentences are left, so the chunk has ten
    lengths = (pairs.a_ends - pairs.a_starts)[whole] // 10
    counts = np.bincount(lengths, minlength=10)
    assert (counts[0], len(counts)) == (0, 10)
    assert chance(counts[1:], np.ones(9)) > RIGHT


def test_displaced_sentences_are_used_again() -> None:
    pairs = next_sentence_pairs(*ends_of(EVEN), 100, np.random.default_rng(4))
    used = np.zeros(200_000, int)
    for a_start, a_end, b_start, b_end, label in rows(pairs):
        used[a_start:a_end] += 1
        used[b_start:b_end] += not label
    # As A, or as the true B, each token once; what a short target cut off was not used.
    assert used.max() == 1
    assert (used == 0).sum() <= pairs.cut
    assert (used == 0).sum() < 0.05 * used.size


def test_a_tenth_of_the_documents_has_a_short_target() -> None:
    documents: Documents = [[1] * 120] * 4000
    for short, right in ((0.1, True), (0.14, False)):
        pairs = next_sentence_pairs(*ends_of(documents), 100, np.random.default_rng(5), short=short)
        begins = pairs.a_starts % 120 == 0
        true = pairs.labels == 0
        lengths = (pairs.b_ends - pairs.a_starts)[begins & true]
        p_value = chance([(lengths < 100).sum(), (lengths == 100).sum()], [0.1 * 98 / 99, 1 - 0.1 * 98 / 99])
        assert p_value > RIGHT if right else p_value < WRONG
        assert set(range(2, 101)) >= set(lengths.tolist())


def test_the_shortest_target_is_two_tokens() -> None:
    pairs = sentence_order_pairs(*ends_of([[1] * 4]), 2, np.random.default_rng(0), short=1.0)
    assert (pairs.labels.size, pairs.left_out) == (2, 0)


def test_what_does_not_fit_goes_from_front_and_back_alike() -> None:
    # A sentence of 40 and one of 10 in 41: nine tokens go from the longer, the number from the front is binomial.
    documents: Documents = [[40, 10]] * 4000
    pairs = sentence_order_pairs(*ends_of(documents), 41, np.random.default_rng(6), short=0.0)
    ordered = pairs.labels == 0
    assert (pairs.a_ends - pairs.a_starts)[ordered].tolist() == [31] * ordered.sum()
    fronts = np.bincount(pairs.a_starts[ordered] % 50, minlength=10)
    assert chance(fronts[2:8], stats.binom.pmf(np.arange(2, 8), 9, 0.5)) > RIGHT
    assert chance(fronts[2:8], stats.binom.pmf(np.arange(2, 8), 9, 0.6)) < WRONG
    assert pairs.cut == 9 * len(documents)


# Sentence-order pairs.


@given(documents, st.integers(2, 30), st.integers(0, 2**32))
def test_sentence_order_pairs_are_neighbors_that_fit(documents: Documents, max_tokens: int, seed: int) -> None:
    document_ends, sentence_ends = ends_of(documents)
    pairs = sentence_order_pairs(document_ends, sentence_ends, max_tokens, np.random.default_rng(seed))
    used = np.zeros(sum(map(sum, documents)), int)
    for a_start, a_end, b_start, b_end, label in rows(pairs):
        assert a_start < a_end
        assert b_start < b_end
        assert a_end - a_start + b_end - b_start <= max_tokens
        first, last = sorted([(a_start, a_end), (b_start, b_end)])
        assert (first[0] == a_start) == (label == 0)
        assert not any(first[0] < end <= last[0] for end in document_ends)
        assert any(first[1] <= end <= last[0] for end in sentence_ends)
        used[a_start:a_end] += 1
        used[b_start:b_end] += 1
    assert used.max(initial=0) <= 1
    assert (used == 0).sum() == pairs.cut + pairs.left_out


def test_half_of_the_sentence_orders_are_exchanged_and_every_sentence_is_used_once() -> None:
    pairs = sentence_order_pairs(*ends_of(EVEN), 100, np.random.default_rng(7), short=0.0)
    assert pairs.labels.size == 500 * 4
    assert chance(np.bincount(pairs.labels), [1, 1]) > RIGHT
    covered = np.concatenate([np.r_[a:b, c:d] for a, b, c, d, _ in rows(pairs)])
    assert sorted(covered.tolist()) == list(range(200_000))


def test_lone_sentences_have_no_order_and_are_counted() -> None:
    pairs = sentence_order_pairs(*ends_of([[7], [3, 4], [20, 1]]), 10, np.random.default_rng(0), short=0.0)
    assert (pairs.labels.size, pairs.left_out, pairs.cut) == (1, 7 + 21, 0)


# What is refused, and what is empty.


@pytest.mark.parametrize("make", [next_sentence_pairs, sentence_order_pairs])
def test_no_documents_make_no_pairs(make: Any) -> None:
    assert make(*ends_of([]), 10, np.random.default_rng(0)).labels.size == 0
    assert make(*ends_of([[], [0]]), 10, np.random.default_rng(0)).labels.size == 0


def test_one_document_has_no_other() -> None:
    with raises(UsageError, code="too-few-documents"):
        next_sentence_pairs(*ends_of([[3, 4]]), 10, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("document_ends", "sentence_ends", "max_tokens", "code"),
    [
        ([5], [3, 5], 0, "max-tokens"),
        ([4, 5], [3, 5], 9, "document-in-sentence"),
        ([3], [3, 5], 9, "sentences-after-end"),
        ([5, 3], [3, 5], 9, "unsorted-ends"),
        ([5], [5, 3], 9, "unsorted-ends"),
    ],
)
def test_ends_that_do_not_belong_together_are_refused(
    document_ends: list[int], sentence_ends: list[int], max_tokens: int, code: str
) -> None:
    with raises(UsageError, code=code):
        pack_sentences(np.array(document_ends), np.array(sentence_ends), max_tokens)


# Assembling.

CLS, SEP = 101, 102


def test_a_batch_of_pairs_by_hand() -> None:
    ids = np.arange(10, dtype=np.uint16)
    first = (np.array([0, 7]), np.array([2, 8]))
    second = (np.array([4, 2]), np.array([7, 3]))
    packed = assemble(ids, first, second, cls_id=CLS, sep_id=SEP)
    assert packed.ids.tolist() == [CLS, 0, 1, SEP, 4, 5, 6, SEP, CLS, 7, SEP, 2, SEP]
    assert packed.segments.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 1, 1]
    assert packed.ends.tolist() == [8, 13]
    assert packed.ids.dtype == np.uint16


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9), st.integers(0, 20), st.integers(0, 9)), max_size=6))
def test_assembling_equals_writing_one_after_the_other(wanted: list[tuple[int, int, int, int]]) -> None:
    ids = np.arange(30, dtype=np.uint32)
    a, a_size, b, b_size = np.array(wanted, np.int64).reshape(-1, 4).T
    single, pair = [], []
    for a_start, a_length, b_start, b_length in wanted:
        alone = [CLS, *range(a_start, a_start + a_length), SEP]
        single.append(alone)
        pair.append([*alone, *range(b_start, b_start + b_length), SEP])
    for made, expected in (
        (assemble(ids, (a, a + a_size), cls_id=CLS, sep_id=SEP), single),
        (assemble(ids, (a, a + a_size), (b, b + b_size), cls_id=CLS, sep_id=SEP), pair),
    ):
        assert [made.ids[start:end].tolist() for start, end in pairwise([0, *made.ends])] == expected
        assert made.segments.size == made.ids.size


@pytest.mark.parametrize("made", [next_sentence_pairs, sentence_order_pairs])
def test_pairs_of_all_of_pubmed_fit_into_memory(made: Callable[..., Pairs]) -> None:
    # Its abstracts have some 300 million sentences, which may take 15 GB.
    sentence_ends = np.arange(25, 25 * 18_001, 25)
    tracemalloc.start()
    try:
        made(sentence_ends[8::9], sentence_ends, 509, np.random.default_rng(0))
        assert tracemalloc.get_traced_memory()[1] < 50 * sentence_ends.size
    finally:
        tracemalloc.stop()
