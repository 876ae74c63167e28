"""Hashes of words and runs, and what signatures say about two texts."""

import numpy as np
import pytest

from lexome.corpus.dedup import band_hashes, exact_key, shingle_hashes, signatures, word_hashes, words_of


def test_a_text_and_its_tokenized_copy_have_the_same_words() -> None:
    assert words_of("IL-2 (β-chain) rose, p<0.05.") == words_of("IL - 2 ( β - chain ) rose , p < 0 . 05 .")


def test_exact_keys_tell_word_borders_apart() -> None:
    assert exact_key(["ab", "c"]) != exact_key(["a", "bc"])


def test_each_run_has_a_hash_of_its_words_in_order() -> None:
    one, two, three = word_hashes([["a", "b", "c", "a", "b"], ["b", "a"], ["a", "b"]])
    runs = shingle_hashes(one, 2)
    assert len(runs) == 4
    assert runs[0] == runs[3] == shingle_hashes(three, 2)[0]
    assert shingle_hashes(two, 2)[0] != runs[0]


def test_a_text_shorter_than_a_run_is_one_run() -> None:
    (hashes,) = word_hashes([["a", "b"]])
    assert len(shingle_hashes(hashes, 5)) == 1
    assert len(shingle_hashes(hashes[:0], 5)) == 0


@pytest.mark.parametrize("shared", [0, 40, 80, 100])
def test_signatures_agree_in_the_share_of_runs_two_texts_have_in_common(shared: int) -> None:
    left = np.arange(100, dtype=np.uint64)
    right = np.arange(100 - shared, 200 - shared, dtype=np.uint64)
    one, other = signatures([left, right], permutations=2048)
    truth = shared / (200 - shared)
    error = 4 * np.sqrt(truth * (1 - truth) / 2048)
    assert abs((one == other).mean() - truth) <= error


def test_signatures_are_the_same_on_every_machine() -> None:
    # If a new rensa changes these, raise VERSION in build.py: old records and new would not be compared alike.
    runs = shingle_hashes(word_hashes([["the", "heart", "of", "the", "mouse"]])[0], 2)
    assert signatures([runs], permutations=4).tolist() == [[17528049, 1022330072, 3437623141, 857913793]]


def test_bands_agree_where_their_part_of_the_signature_does() -> None:
    rows = np.array([[1, 2, 3, 4], [1, 2, 4, 3]], np.uint32)
    one, other = band_hashes(rows, 2)
    assert one[0] == other[0]
    assert one[1] != other[1]
