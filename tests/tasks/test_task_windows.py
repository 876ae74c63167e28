"""Windows cover every token, begin where text begins, and give each token the answer with the most context."""

from itertools import pairwise

import numpy as np
from errors import raises
from hypothesis import given
from hypothesis import strategies as st
from task_rows import frame, tokenizer

from lexome.document import Passage
from lexome.errors import UsageError
from lexome.tasks.task import (
    INSIDE,
    NO_OFFSET,
    SENTENCE,
    WORD,
    Frame,
    TokenizedText,
    anchored_windows,
    assign_windows,
    merge_windows,
    pair_windows,
    text_capacity,
    tokenize,
    tokenize_text,
    windows,
)


@given(
    begins=st.lists(st.sampled_from([INSIDE, INSIDE, WORD, SENTENCE]), max_size=200),
    size=st.integers(1, 50),
    overlap=st.integers(0, 60),
)
def test_windows_cover_all_tokens_in_order_and_share_what_was_asked(begins: list[int], size: int, overlap: int) -> None:
    found = windows(begins, size=size, overlap=overlap)
    assert found[0][0] == 0
    assert found[-1][1] == len(begins)
    assert all(end - start <= size for start, end in found)
    shared = min(overlap, size // 2)
    for (start, end), (other, other_end) in pairwise(found):
        assert start < other <= max(end - shared, start + 1)
        assert other_end > end


def test_a_window_begins_at_a_sentence_rather_than_at_a_word() -> None:
    begins = [SENTENCE, WORD, WORD, WORD, SENTENCE, WORD, WORD, WORD, WORD, WORD, WORD, WORD]
    assert windows(begins, size=8, overlap=2)[1][0] == 4


def test_a_word_longer_than_a_window_is_cut_and_covered() -> None:
    assert windows([WORD, *[INSIDE] * 9], size=4, overlap=2) == [(0, 4), (2, 6), (4, 8), (6, 10)]


def test_no_tokens_are_one_empty_window() -> None:
    assert windows([], size=4, overlap=1) == [(0, 0)]


def random_tokens(count: int, *, seed: int, vocabulary: int = 1000) -> TokenizedText:
    rng = np.random.default_rng(seed)
    places = np.arange(count)
    begins = rng.choice([INSIDE, WORD, WORD, SENTENCE], count)
    return TokenizedText(rng.integers(0, vocabulary, count), places, places + 1, begins)


@given(
    count=st.integers(0, 400),
    size=st.integers(1, 50),
    overlap=st.integers(0, 60),
    seed=st.integers(0, 1 << 30),
    vocabulary=st.sampled_from([1, 3, 1000]),
)
def test_anchored_windows_cover_all_tokens_and_share_what_was_asked(
    count: int, size: int, overlap: int, seed: int, vocabulary: int
) -> None:
    found = anchored_windows(random_tokens(count, seed=seed, vocabulary=vocabulary), size=size, overlap=overlap)
    assert found[0][0] == 0
    assert found[-1][1] == count
    assert all(end - start <= size for start, end in found)
    shared = min(overlap, size // 2)
    for (start, end), (other, other_end) in pairwise(found):
        assert start < other <= max(end - shared, start + 1)
        assert other_end > end


@given(cut=st.integers(1, 300), seed=st.integers(0, 1 << 30))
def test_anchored_windows_fall_where_they_fell_whatever_is_cut_off_before(cut: int, seed: int) -> None:
    tokens = random_tokens(1500, seed=seed)
    whole = anchored_windows(tokens, size=50, overlap=8)
    short = [(start + cut, end + cut) for start, end in anchored_windows(tokens.part(cut, 1500), size=50, overlap=8)]
    behind = cut + 3 * 50
    assert [window for window in short if window[0] >= behind] == [window for window in whole if window[0] >= behind]


def test_anchored_windows_read_little_twice() -> None:
    tokens = random_tokens(40_000, seed=0)
    read = sum(end - start for start, end in anchored_windows(tokens, size=510, overlap=64))
    assert read < 1.35 * len(tokens)


def test_a_text_is_cut_at_sentences_where_there_are_some() -> None:
    tokens = random_tokens(300, seed=5)
    begins = {start + 4 for start, _ in anchored_windows(tokens, size=50, overlap=8)[1:]}
    assert sum(tokens.begins[begin] == SENTENCE for begin in begins if begin < 300) > len(begins) // 2


def test_a_token_belongs_to_the_window_in_which_it_is_farthest_from_an_edge() -> None:
    assert assign_windows([(0, 6), (3, 9)], 9).tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1]


def test_merged_numbers_are_each_tokens_own() -> None:
    numbers = [np.zeros((6, 1)), np.ones((6, 1))]
    assert merge_windows([(0, 6), (3, 9)], numbers, 9)[:, 0].tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1]


def test_a_missing_row_is_an_error() -> None:
    with raises(UsageError, code="missing-example", value=3):
        merge_windows([(0, 3)], [np.zeros((3, 2))], 6)


def test_tokens_know_their_places_words_and_sentences() -> None:
    passages = (Passage(0, "BRCA gene", sentences=((0, 9),)), Passage(12, "α-gene. In", sentences=((12, 19), (20, 22))))
    tokens = tokenize(passages, tokenizer())
    text = "BRCA gene" + "\n" * 3 + "α-gene. In"
    assert [text[start:end] for start, end in zip(tokens.starts, tokens.ends, strict=True)] == [
        "BR", "CA", "gene", "α", "-", "gene", ".", "I", "n"
    ]  # fmt: skip
    assert tokens.begins.tolist() == [
        SENTENCE, INSIDE, WORD, SENTENCE, INSIDE, INSIDE, INSIDE, SENTENCE, INSIDE
    ]  # fmt: skip


class Spaced:
    """A tokenizer that counts the space before a word to it, and has pieces of nothing but space."""

    def encode(self, text: str) -> list[tuple[int, int, int]]:
        return [(1, 0, 2), (2, 2, 3), (3, 3, 6)] if text == "ab  cd" else []


def test_white_space_is_no_part_of_a_token() -> None:
    tokens = tokenize((Passage(5, "ab  cd"),), Spaced())
    assert tokens.starts.tolist() == [5, NO_OFFSET, 9]
    assert tokens.ends.tolist() == [7, NO_OFFSET, 11]


def test_a_row_without_room_is_an_error() -> None:
    with raises(UsageError, code="out-of-range", value=2):
        text_capacity(Frame((1,), (2,), (2,), 2))


def test_of_a_pair_the_shorter_text_is_in_every_row() -> None:
    first, second = tokenize_text("abc", tokenizer()), tokenize_text("the gene " * 10, tokenizer())
    found = pair_windows(first, second, frame(13), overlap=2)
    assert {left for left, _ in found} == {(0, 3)}
    assert max(end - start for _, (start, end) in found) == 7
    assert found[-1][1][1] == 20


def test_of_a_pair_of_long_texts_every_window_meets_every_other() -> None:
    long = tokenize_text("the gene " * 10, tokenizer())
    found = pair_windows(long, long, frame(13), overlap=0)
    assert len(found) == 16
    assert all(left[1] - left[0] + right[1] - right[0] <= 10 for left, right in found)
