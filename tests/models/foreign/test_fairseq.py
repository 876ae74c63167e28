"""fairseq's RoBERTa: both generations of its keys, and its own token ids."""

import json
import random
import tarfile
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from errors import raises
from foreign_writers import assert_same_logits, fairseq_names, tiny_roberta
from tokenizers import ByteLevelBPETokenizer, Tokenizer
from transformers import PreTrainedModel

from lexome.errors import CheckpointError
from lexome.models.foreign import detect, read_foreign

TEXT = [
    "The BRCA1 gene binds DNA; naïve T-cells don't.",
    "Mutations in the BRCA1 gene raise the risk of breast cancer.",
    "TNF-α binds the receptor, and the receptor binds TNF-α.",
]
ARGS = Namespace(arch="roberta_base", encoder_attention_heads=4, activation_fn="gelu", dropout=0.1)


def fairseq_folder(
    folder: Path, saved: dict[str, Any] | None = None, **names: Any
) -> tuple[PreTrainedModel, list[str]]:
    """A release: GPT-2's files of a small BPE, dict.txt in another order, and a model of that many pieces."""
    folder.mkdir(parents=True, exist_ok=True)
    bpe = ByteLevelBPETokenizer()
    bpe.train_from_iterator(TEXT, vocab_size=300, min_frequency=1, show_progress=False)
    bpe.save_model(str(folder))
    (folder / "vocab.json").rename(folder / "encoder.json")
    (folder / "merges.txt").rename(folder / "vocab.bpe")
    symbols = [str(number) for number in range(bpe.get_vocab_size())]
    random.Random(4).shuffle(symbols)
    symbols += ["madeupword0000", "madeupword0001"]
    (folder / "dict.txt").write_text("".join(f"{symbol} {7}\n" for symbol in symbols))
    model = tiny_roberta(4 + len(symbols) + 1)
    weights = fairseq_names(model, **names)
    torch.save({"args": ARGS, "model": weights, "extra_state": {"epoch": 3}} | (saved or {}), folder / "model.pt")
    return model, symbols


@pytest.mark.parametrize("side", ["encoder", "decoder"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_release_gives_the_logits_of_its_model(tmp_path: Path, side: str, packed: bool) -> None:
    model, _ = fairseq_folder(tmp_path, side=side, packed=packed)
    assert detect(tmp_path) == "fairseq"
    foreign = read_foreign(tmp_path)
    assert_same_logits(foreign, model)
    assert foreign.left_out == ("extra_state",)
    assert foreign.config["tie_word_embeddings"] is True


def test_a_token_has_the_id_of_its_line_in_the_dictionary(tmp_path: Path) -> None:
    _, symbols = fairseq_folder(tmp_path)
    gpt2 = ByteLevelBPETokenizer(str(tmp_path / "encoder.json"), str(tmp_path / "vocab.bpe"))
    files = read_foreign(tmp_path).tokenizer_files
    tokenizer = Tokenizer.from_str(files["tokenizer.json"].decode())
    for text in [*TEXT, "unseen ü words\n  and spaces "]:
        expected = [4 + symbols.index(str(number)) for number in gpt2.encode(text).ids]
        assert tokenizer.encode(text, add_special_tokens=False).ids == expected
        assert tokenizer.encode(text).ids == [0, *expected, 2]
        assert tokenizer.decode(expected) == text
    last = len(symbols) + 4
    assert tokenizer.token_to_id("<mask>") == last
    assert tokenizer.encode("The <mask> binds").ids[2] == last
    assert json.loads(files["vocab.json"])["madeupword0001"] == last - 1
    assert files["merges.txt"].decode().split("\n")[1:] == (tmp_path / "vocab.bpe").read_text().split("\n")[1:]


def test_an_archive_of_the_new_fairseq_with_its_settings_in_cfg(tmp_path: Path) -> None:
    settings = {"args": None, "cfg": {"model": {"_name": "roberta", "encoder_attention_heads": 4}}}
    model, _ = fairseq_folder(tmp_path / "RoBERTa-tiny-PM" / "RoBERTa-tiny-PM-fairseq", settings)
    archive = tmp_path / "RoBERTa-tiny-PM-fairseq.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "RoBERTa-tiny-PM", "RoBERTa-tiny-PM")
    assert detect(archive) == "fairseq"
    assert_same_logits(read_foreign(archive), model)


def test_an_untied_head_is_kept(tmp_path: Path) -> None:
    fairseq_folder(tmp_path)
    saved = torch.load(tmp_path / "model.pt", weights_only=False)
    saved["model"]["encoder.lm_head.weight"] = saved["model"]["encoder.lm_head.weight"] + 1
    torch.save(saved, tmp_path / "model.pt")
    foreign = read_foreign(tmp_path)
    assert foreign.config["tie_word_embeddings"] is False
    assert torch.equal(foreign.weights["lm_head.decoder.weight"], saved["model"]["encoder.lm_head.weight"])


def test_fairseqs_names_of_activations_are_translated(tmp_path: Path) -> None:
    fairseq_folder(tmp_path, {"args": Namespace(encoder_attention_heads=4, activation_fn="gelu_accurate")})
    assert read_foreign(tmp_path).config["hidden_act"] == "gelu_new"


def test_unknown_weights_raise_and_the_first_is_named(tmp_path: Path) -> None:
    fairseq_folder(tmp_path)
    saved = torch.load(tmp_path / "model.pt", weights_only=False)
    saved["model"]["encoder.sentence_encoder.layer_norm.weight"] = torch.ones(16)
    torch.save(saved, tmp_path / "model.pt")
    with raises(CheckpointError, code="unknown-weights", value="encoder.sentence_encoder.layer_norm.weight"):
        read_foreign(tmp_path)


def test_the_number_of_heads_is_required(tmp_path: Path) -> None:
    fairseq_folder(tmp_path, {"args": Namespace(arch="ours")})
    with raises(CheckpointError, code="missing-key", value="encoder_attention_heads"):
        read_foreign(tmp_path)


def test_an_invalid_dictionary_is_refused(tmp_path: Path) -> None:
    fairseq_folder(tmp_path)
    dictionary = tmp_path / "dict.txt"
    whole = dictionary.read_text()
    for text, code in (
        (whole + "9999 1\n", "unknown-token"),
        (whole + whole[:5].split("\n")[0] + "\n", "duplicate-token"),
        (whole.rsplit("\n", 2)[0] + "\n", "vocabulary-mismatch"),
        (whole + "nonsense\n", "unknown-token"),
    ):
        dictionary.write_text(text)
        with raises(CheckpointError, code=code, mentions="dict.txt"):
            read_foreign(tmp_path)
    dictionary.write_text(whole)
    (tmp_path / "vocab.bpe").unlink()
    with raises(CheckpointError, code="missing-file", value="vocab.bpe"):
        read_foreign(tmp_path)
