"""Our WordPiece is the tokenizers library's, over all of Unicode but for late additions."""

import json
import sys
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, normalizers

from lexome.corpus.vocab.tokenizers import bert_tokenizer
from lexome.infer.tokenizer import WordPiece

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789αβµé漢.,-()[]'"
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{letter}" for letter in LETTERS)]
PIECES += ["BRCA", "##RC", "gene", "##ne", "the", "##he", "ge", "MASK"]
WORDS = ["BRCA1", "gene", "[MASK]", "[SEP]", "Éé", "e\u0301", "İ", "ß", "漢字", "\u200b", "\u00ad", "x" * 120, "\ufffd"]
WORDS += ["ﬁ", "\u0130x", "TNF-α", "\u2028", "\u00a0", "5′", "한국", "ǅ", "👩\u200d🔬", "\x00", "\x85", "²", "[mask]"]


def pair(*, cased: bool, **normalizer: Any) -> tuple[Tokenizer, WordPiece]:
    made = bert_tokenizer({piece: number for number, piece in enumerate(PIECES)}, cased=cased)
    if normalizer:
        made.normalizer = normalizers.BertNormalizer(**normalizer)
    held = json.loads(made.to_str())
    assert WordPiece.supports(held)
    return made, WordPiece(held)


BOTH = {
    "cased": pair(cased=True),
    "uncased": pair(cased=False),
    "accents": pair(cased=False, lowercase=True, strip_accents=False),
    "bare": pair(cased=True, clean_text=False, handle_chinese_chars=False, lowercase=False),
}


@pytest.mark.parametrize("form", BOTH)
@given(parts=st.lists(st.sampled_from(WORDS) | st.text(LETTERS, max_size=8) | st.sampled_from([" ", "  ", "\n"])))
def test_pieces_and_their_places_are_those_of_the_library(form: str, parts: list[str]) -> None:
    theirs, ours = BOTH[form]
    text = "".join(parts)
    found = theirs.encode(text, add_special_tokens=False)
    pieces = ours.encode(text)
    assert [piece[0] for piece in pieces] == found.ids
    assert [piece[1:] for piece in pieces] == found.offsets


@pytest.mark.parametrize("form", ["cased", "uncased"])
def test_every_character_is_normalized_and_split_alike(form: str) -> None:
    theirs, ours = BOTH[form]
    characters = [chr(number) for number in range(sys.maxunicode + 1) if not 0xD800 <= number < 0xE000]
    # Of unassigned ones, private ones and letters without case, which are nearly all, some.
    many = ("Cn", "Co", "Lo")
    chosen = [char for char in characters if unicodedata.category(char) not in many or ord(char) % 50 == 0]
    different = [char for char in chosen if not _alike(theirs, ours, char)]
    assert len(different) < 1500
    # Nothing that literature is written in: Latin, Greek, Cyrillic, their marks, punctuation, symbols, kana, Han.
    assert [
        char for char in different if char < "\u0600" or "\u2000" <= char < "\u2e00" or "\u3000" <= char < "\ua000"
    ] == []


def _alike(theirs: Tokenizer, ours: WordPiece, char: str) -> bool:
    normal = theirs.normalizer.normalize_str(f"a{char}b")
    words = [word for word, _ in theirs.pre_tokenizer.pre_tokenize_str(normal)]
    return words == [word for word, _ in ours._characters.words(f"a{char}b")]


def test_other_kinds_are_left_to_the_library() -> None:
    held = json.loads(BOTH["cased"][0].to_str())
    assert not WordPiece.supports({**held, "pre_tokenizer": {"type": "Whitespace"}})
    assert not WordPiece.supports({**held, "normalizer": {"type": "NFC"}})
    assert not WordPiece.supports({**held, "model": {"type": "BPE"}})
    token = {**held["added_tokens"][0], "normalized": True}
    assert not WordPiece.supports({**held, "added_tokens": [token]})
