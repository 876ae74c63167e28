"""Tokenizers from each form they come in."""

import json
from pathlib import Path

import pytest
from errors import raises

from lexome.corpus.vocab.tokenizers import load_tokenizer, looks_cased, tokenizer_sha256
from lexome.errors import FormatError

LOWER = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "zorin", "binds", "##e", *(f"x{number}" for number in range(500))]


def vocab_txt(path: Path, *pieces: str) -> Path:
    path.write_text("".join(f"{piece}\n" for piece in pieces))
    return path


def test_a_vocabulary_in_small_letters_is_uncased_unless_it_is_said_to_be_cased(tmp_path: Path) -> None:
    file = vocab_txt(tmp_path / "vocab.txt", *LOWER)
    assert load_tokenizer(file).encode("ZORINE").tokens == ["[CLS]", "zorin", "##e", "[SEP]"]
    assert load_tokenizer(file, cased=True).encode("ZORINE").tokens == ["[CLS]", "[UNK]", "[SEP]"]


def test_capital_letters_make_a_vocabulary_cased(tmp_path: Path) -> None:
    file = vocab_txt(tmp_path / "bert.vocab.txt", "[UNK]", "Zorin", "zorin", "Binds")
    assert load_tokenizer(file).encode("Zorin zorin").tokens == ["Zorin", "zorin"]


def test_a_few_stray_capitals_do_not(real_data: Path) -> None:
    cased = {
        path.name: looks_cased(path.read_text().split("\n")) for path in (real_data / "vocabs").glob("*.vocab.txt")
    }
    assert [name for name in cased if cased[name]] == ["bert_base_cased.vocab.txt"]


@pytest.mark.parametrize("names", [("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt")])
@pytest.mark.parametrize("prefix", ["", "gpt2."])
def test_a_pair_of_files_is_found_by_either_half(names: tuple[str, str], prefix: str, tmp_path: Path) -> None:
    pieces = {"z": 0, "o": 1, "zo": 2, "Ġ": 3, "Ġzo": 4}
    (tmp_path / f"{prefix}{names[0]}").write_text(json.dumps(pieces))
    (tmp_path / f"{prefix}{names[1]}").write_text("#version: 0.2\nz o\nĠ zo\n")
    for name in names:
        assert load_tokenizer(tmp_path / f"{prefix}{name}").encode("zo zo").tokens == ["zo", "Ġzo"]


def test_a_folder_is_its_tokenizer_file_and_its_length_limit_is_lifted(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(vocab_txt(tmp_path / "vocab.txt", *LOWER))
    tokenizer.enable_truncation(3)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    assert len(load_tokenizer(tmp_path).encode("zorin binds zorin").ids) == 5
    assert tokenizer_sha256(tmp_path) == tokenizer_sha256(tmp_path / "tokenizer.json")


def test_what_is_no_tokenizer_says_so(tmp_path: Path) -> None:
    with raises(FormatError, code="missing-file"):
        load_tokenizer(tmp_path / "nothing")
    with raises(FormatError, code="missing-tokenizer"):
        load_tokenizer(tmp_path)
    with raises(FormatError, code="bad-tokenizer", mentions="[UNK]"):
        load_tokenizer(vocab_txt(tmp_path / "poem.txt", "Roses are red"))
    (tmp_path / "tokenizer.json").write_text("{}")
    with raises(FormatError, code="bad-tokenizer"):
        load_tokenizer(tmp_path)
