"""Where words begin, for real tokenizers of the three families."""

import json
import lzma
from collections.abc import Callable
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from errors import raises
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from lexome.corpus.masking import Masking, Vocabulary, mask, piece_kind, punctuation, word_ends, word_starts
from lexome.errors import UsageError

SENTENCES = [
    "Mutations in BRCA1 raise the risk of breast cancer (p<0.05).",
    "IL-2, TNF-α and non-small-cell carcinomas were measured in 24 patients.",
    "Patients' carcinomas – unlike controls – expressed BRCA1 and IL-2.",
]
UNSEEN = "Carcinomatous  patients: IL-2/TNF-β\nunmeasured — risk’s\t(BRCA2) é"


def word_piece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(
        vocab_size=150, special_tokens=specials, initial_alphabet=list("xyzβé—’"), show_progress=False
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return tokenizer


def byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=360, special_tokens=["<s>", "</s>", "<mask>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return tokenizer


def sentence_piece() -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Replace("\n", " "), normalizers.Replace("\t", " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace()])
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=150,
        special_tokens=["<unk>", "<mask>"],
        unk_token="<unk>",
        initial_alphabet=list("xyzβé—’:/"),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return tokenizer


FAMILIES = [("wordpiece", word_piece), ("byte-level", byte_level), ("sentencepiece", sentence_piece)]


def parts(tokenizer: Tokenizer) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(tokenizer.to_str())
    return loaded


def white_space_words(text: str, offsets: list[tuple[int, int]]) -> list[object]:
    """For each token a name of the white-space word it is in.

    A space is in the word right after it; a line break, a tab and any further space are by themselves.
    """
    names: list[object] = []
    for start, end in offsets:
        if text[start:end].isspace() and (text[start:end] != " " or text[end].isspace()):
            names.append(("apart", start))
        else:
            names.append(len(text[: end + text[start:end].isspace()].split()))
    return names


@pytest.mark.parametrize(("kind", "make"), FAMILIES)
def test_the_family_is_told_from_the_file(kind: str, make: Callable[[], Tokenizer]) -> None:
    assert piece_kind(parts(make())) == kind


@pytest.mark.parametrize(("kind", "make"), FAMILIES)
@pytest.mark.parametrize("text", [UNSEEN, *SENTENCES])
def test_words_are_masked_whole_and_apart(kind: str, make: Callable[[], Tokenizer], text: str) -> None:
    tokenizer = make()
    text = text.replace("\n", " ").replace("\t", " ") if kind == "sentencepiece" else text
    encoding = tokenizer.encode(text)
    names = encoding.word_ids if kind == "wordpiece" else white_space_words(text, encoding.offsets)
    assert len(set(names)) < len(names), "no word has two pieces, so nothing is tested"
    vocabulary = Vocabulary.of(parts(tokenizer))
    ids = np.array(encoding.ids, np.uint16)
    ordinary = ~vocabulary.special[ids]
    parted = {(one, two): False for one, two in pairwise(names) if one != two}
    for seed in range(100):
        chosen = np.zeros(ids.size, bool)
        masking = Masking("word", rate=0.5, independent=True)
        chosen[mask(ids, np.array([ids.size]), vocabulary, masking, np.random.default_rng(seed)).positions] = True
        for place in range(ids.size - 1):
            if names[place] == names[place + 1]:
                assert chosen[place] == chosen[place + 1], encoding.tokens
            elif chosen[place] != chosen[place + 1] or not ordinary[place : place + 2].all():
                parted[names[place], names[place + 1]] = True
    assert all(parted.values()), [pair for pair, seen in parted.items() if not seen]


def test_gpt2s_pieces_begin_the_words_of_real_abstracts(real_data: Path) -> None:
    tokenizer = Tokenizer(
        models.BPE.from_file(
            str(real_data / "vocabs" / "gpt2_roberta.encoder.json"),
            str(real_data / "vocabs" / "gpt2_roberta.vocab.bpe"),
        )
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<mask>"])
    vocabulary = Vocabulary.of(parts(tokenizer))
    with lzma.open(real_data / "corpus" / "abstracts" / "abstracts-00.jsonl.xz", "rt", encoding="utf-8") as lines:
        texts = [" ".join(json.loads(line)["text"].split()) for line in islice(lines, 300)]
    for text in texts:
        ids = np.array(tokenizer.encode(text).ids)
        begins = vocabulary.starts[ids]
        begins[1:] |= vocabulary.closes[ids[:-1]]
        begins[0] = True
        assert tokenizer.decode_batch([part.tolist() for part in np.split(ids, np.flatnonzero(begins)[1:])]) == [
            " " * (place > 0) + word for place, word in enumerate(text.split(" "))
        ]


def test_byte_level_pieces_by_hand() -> None:
    pieces = ["Ġthe", "the", "Ġ", "Ċ", "ĉĊ", "é", "ĠĊ", "Ċthe"]
    assert word_starts(pieces, "byte-level").tolist() == [True, False, True, True, True, False, True, True]
    assert word_ends(pieces, "byte-level").tolist() == [False, False, False, True, True, False, True, False]


def test_only_byte_level_pieces_end_words() -> None:
    assert not word_ends(["▁", "Ċ", "\n"], "sentencepiece").any()
    assert not word_ends(["##Ċ", "Ċ"], "wordpiece").any()


def test_punctuation_is_berts_and_a_dash_of_three_bytes_is_one() -> None:
    # "âĢĵ" spells the en dash in bytes; "âĢ" is its first two bytes; "Î±" is alpha.
    pieces = ["Ġ(", "),", "$", "âĢĵ", "âĢ", "Î±", "'s", "Ġ", "p<", ""]
    expected = [True, True, True, True, False, False, False, False, False, False]
    assert punctuation(pieces, "byte-level").tolist() == expected
    assert punctuation(["▁(", "▁", "–", "a-"], "sentencepiece").tolist() == [True, False, True, False]


@pytest.mark.parametrize(("make", "apart"), [(byte_level, False), (byte_level, True), (sentence_piece, True)])
def test_punctuation_can_be_set_apart(make: Callable[[], Tokenizer], apart: bool) -> None:
    tokenizer = make()
    vocabulary = Vocabulary.of(parts(tokenizer), punctuation_apart=apart)
    encoding = tokenizer.encode("(IL-2)")
    hyphen = encoding.tokens.index("-")
    ids = np.array(encoding.ids, np.uint16)
    both = set()
    for seed in range(50):
        masking = Masking("word", rate=0.5, independent=True)
        positions = mask(ids, np.array([ids.size]), vocabulary, masking, np.random.default_rng(seed)).positions
        both |= {(hyphen - 1 in positions, hyphen in positions, hyphen + 1 in positions)}
    assert len(both) == (8 if apart else 2), encoding.tokens


def test_special_and_added_tokens_are_found() -> None:
    tokenizer = byte_level()
    tokenizer.add_tokens(["Ġgene-added"])
    vocabulary = Vocabulary.of(parts(tokenizer))
    assert np.flatnonzero(vocabulary.special).tolist() == [0, 1, 2]
    assert (vocabulary.mask_id, vocabulary.special.size) == (2, tokenizer.get_vocab_size())


def test_without_words_every_piece_is_one_and_any_tokenizer_will_do() -> None:
    tokenizer = {"model": {"type": "WordLevel", "vocab": {"a": 0, "[MASK]": 1}}, "added_tokens": []}
    tokenizer["added_tokens"] = [{"id": 1, "content": "[MASK]", "special": True}]
    assert Vocabulary.of(tokenizer, words=False).starts.all()
    with raises(UsageError, code="unknown-word-boundaries", value="WordLevel"):
        Vocabulary.of(tokenizer)


def test_a_tokenizer_without_a_mask_is_refused() -> None:
    tokenizer = parts(word_piece())
    tokenizer["added_tokens"] = [token for token in tokenizer["added_tokens"] if token["content"] != "[MASK]"]
    with raises(UsageError, code="mask-token", value=0):
        Vocabulary.of(tokenizer)


def test_pieces_that_mark_the_end_of_words_are_refused() -> None:
    tokenizer = parts(Tokenizer(models.BPE(end_of_word_suffix="</w>")))
    with raises(UsageError, code="unknown-word-boundaries"):
        piece_kind(tokenizer)
