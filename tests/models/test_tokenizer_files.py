"""Tokenizer files built from vocabularies: transformers loads them and agrees."""

from pathlib import Path

import pytest
from errors import raises
from foreign_writers import PIECES
from tokenizers import BertWordPieceTokenizer, ByteLevelBPETokenizer
from transformers import AutoTokenizer

from lexome.errors import CheckpointError
from lexome.models.hf_folder import byte_bpe_files, read_merges, wordpiece_files

TEXTS = ["BRCA1 binds the genes.", "naïve Ünicode\u2003spaces", "the [MASK] gene", "", "x" * 120]


def written(folder: Path, files: dict[str, bytes], kind: str) -> Path:
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / "config.json").write_text(f'{{"model_type": "{kind}"}}')
    return folder


@pytest.mark.parametrize("lower", [True, False])
def test_wordpiece_files_are_berts(tmp_path: Path, lower: bool) -> None:
    pieces = [*PIECES, "n", "##a", "##i", "##v", "##e", "brca", "u", "##n"]
    files = wordpiece_files("\n".join(pieces).encode(), rows=64, max_tokens=24, lower=lower)
    loaded = AutoTokenizer.from_pretrained(written(tmp_path, files, "bert"))
    oracle = BertWordPieceTokenizer(str(tmp_path / "vocab.txt"), lowercase=lower)
    oracle.add_special_tokens(["[MASK]"])
    for text in TEXTS:
        assert loaded(text)["input_ids"] == oracle.encode(text).ids
    assert (loaded.mask_token, loaded.pad_token_id, loaded.model_max_length) == ("[MASK]", 0, 24)


def test_byte_bpe_files_are_robertas(tmp_path: Path) -> None:
    oracle = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    oracle.train_from_iterator(TEXTS, vocab_size=290, min_frequency=1, show_progress=False, special_tokens=special)
    oracle.save_model(str(tmp_path))
    merges = read_merges((tmp_path / "merges.txt").read_bytes(), name="merges.txt")
    files = byte_bpe_files(oracle.get_vocab(), merges, max_tokens=22)
    loaded = AutoTokenizer.from_pretrained(written(tmp_path, files, "roberta"))
    for text in TEXTS:
        assert loaded(text)["input_ids"] == [0, *oracle.encode(text).ids, 2]
    assert (loaded.mask_token, loaded.pad_token_id, loaded.model_max_length) == ("<mask>", 1, 22)


def test_an_invalid_vocabulary_is_refused() -> None:
    with raises(CheckpointError, code="missing-special-tokens", value="[PAD]"):
        wordpiece_files(b"a\nb\n", rows=9, max_tokens=9)
    with raises(CheckpointError, code="not-utf8", value="vocab.txt"):
        wordpiece_files(b"\xff\xfe", rows=9, max_tokens=9)
    with raises(CheckpointError, code="bad-merge", value="a b c"):
        read_merges(b"#version: 0.2\na b\na b c\n", name="vocab.bpe")
    ids = {piece: id_ for id_, piece in enumerate(["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a", "b"])}
    with raises(CheckpointError, code="bad-merge", value="a b", mentions="'ab'"):
        byte_bpe_files(ids, ["a b"], max_tokens=9)
