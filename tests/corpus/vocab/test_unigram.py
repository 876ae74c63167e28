"""Candidates for a unigram vocabulary: counted by the text, and only those that stand for themselves."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from lexome.corpus.vocab.tokenizers import seed_pieces, unigram_pieces


def test_a_substring_that_always_goes_on_the_same_way_is_left_out() -> None:
    found = dict(seed_pieces([("zorin", 3), ("zorine", 2)]))
    # "zori" is always followed by n; "zorin" comes five times and ends twice in e.
    assert found["zorin"] == 5 * 5
    assert found["zorine"] == 2 * 6
    assert not {"zo", "zor", "zori"} & found.keys()


def test_a_rare_character_is_kept_in_a_large_text() -> None:
    words = Counter({"▁zorin": 30_000_000, "▁zorine": 900, "▁♀": 1})
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    pieces = unigram_pieces(words, alphabet=list("einorz▁♀"), size=15, special=special)
    names = [name for name, _ in pieces]
    assert set("einorz▁♀") <= set(names)
    assert (names[:5], len(names)) == (list(special), len(set(names)))
    assert "▁zorin" in names


def test_what_comes_once_is_no_candidate() -> None:
    assert seed_pieces([("abc", 1)]) == []


@given(st.dictionaries(st.text("abα▁", min_size=1, max_size=8), st.integers(1, 5), max_size=12))
def test_candidates_are_those_of_counting_by_hand(words: dict[str, int]) -> None:
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for start in range(len(word)):
            for end in range(start + 1, len(word) + 1):
                counts[word[start:end]] += count
    expected = {
        part: count * len(part)
        for part, count in counts.items()
        if len(part) > 1 and count > 1 and not any(counts[part + char] == count for char in "abα▁")
    }
    assert dict(seed_pieces(sorted(words.items()))) == expected
