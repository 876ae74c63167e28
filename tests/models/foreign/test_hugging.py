"""Hugging Face folders from before safetensors."""

import json
import tarfile
from pathlib import Path
from typing import Any

import torch
from errors import raises
from foreign_writers import PIECES, assert_same_logits, state_of, tiny_bert, tiny_roberta
from tokenizers import ByteLevelBPETokenizer, Tokenizer
from transformers import PreTrainedModel

from lexome.errors import CheckpointError
from lexome.models.foreign import detect, read_foreign


def folder_of(folder: Path, model: PreTrainedModel, state: dict[str, Any], **config: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(state, folder / "pytorch_model.bin")
    settings = json.loads(model.config.to_json_string()) | {"architectures": [type(model).__name__]} | config
    settings = {key: value for key, value in settings.items() if value is not ...}
    (folder / "config.json").write_text(json.dumps(settings))
    return folder


def test_a_folder_gives_the_logits_of_its_model_and_no_weights_twice(tmp_path: Path) -> None:
    model = tiny_bert()
    state = state_of(model) | {"bert.embeddings.position_ids": torch.arange(24)[None]}
    folder_of(tmp_path, model, state)
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES))
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert detect(tmp_path) == "pickle"
    foreign = read_foreign(tmp_path)
    assert_same_logits(foreign, model)
    tied = ("cls.predictions.decoder.bias", "cls.predictions.decoder.weight")
    assert foreign.left_out == ("bert.embeddings.position_ids", *tied)
    assert foreign.tokenizer_files["tokenizer_config.json"] == b'{"do_lower_case": false}'
    tokenizer = Tokenizer.from_str(foreign.tokenizer_files["tokenizer.json"].decode())
    assert tokenizer.encode("BRCA1", add_special_tokens=False).tokens == ["BRCA", "##1"]


def test_legacy_keys_are_renamed(tmp_path: Path) -> None:
    model = tiny_bert()
    old = {}
    for name, tensor in state_of(model).items():
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        old[f"module.{name}"] = tensor
    folder_of(tmp_path, model, old, model_type=...)
    foreign = read_foreign(tmp_path)
    assert foreign.config["model_type"] == "bert"
    assert_same_logits(foreign, model)


def test_the_prefix_of_a_bare_encoder_is_added(tmp_path: Path) -> None:
    model = tiny_bert()
    bare = {n.removeprefix("bert."): t for n, t in state_of(model).items() if n.startswith("bert.")}
    folder_of(tmp_path, model, bare, model_type=..., architectures=...)
    foreign = read_foreign(tmp_path)
    assert foreign.config["model_type"] == "bert"
    assert set(foreign.weights) == {f"bert.{name}" for name in bare}


def test_a_release_of_bio_lm(tmp_path: Path) -> None:
    """Its folders are of transformers 2.6: an archive, no tokenizer.json, no model_type."""
    folder = tmp_path / "RoBERTa-tiny-PM" / "RoBERTa-tiny-PM-hf"
    folder.mkdir(parents=True)
    text = ["The BRCA1 gene binds DNA."]
    bpe = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    bpe.train_from_iterator(text, vocab_size=280, min_frequency=1, show_progress=False, special_tokens=special)
    bpe.save_model(str(folder))
    model = tiny_roberta(bpe.get_vocab_size())
    folder_of(folder, model, state_of(model), model_type=...)
    archive = tmp_path / "RoBERTa-tiny-PM-hf.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tmp_path / "RoBERTa-tiny-PM", "RoBERTa-tiny-PM")
    foreign = read_foreign(archive)
    assert (foreign.layout, foreign.config["model_type"]) == ("pickle", "roberta")
    assert_same_logits(foreign, model)
    tokenizer = Tokenizer.from_str(foreign.tokenizer_files["tokenizer.json"].decode())
    assert tokenizer.encode(text[0], add_special_tokens=False).ids == bpe.encode(text[0]).ids


def test_shards_are_merged_and_a_missing_one_is_named(tmp_path: Path) -> None:
    model = tiny_bert()
    state = state_of(model)
    folder_of(tmp_path, model, {})
    (tmp_path / "pytorch_model.bin").unlink()
    names = sorted(state)
    parts = {"pytorch_model-00001-of-00002.bin": names[:9], "pytorch_model-00002-of-00002.bin": names[9:]}
    for file, chosen in parts.items():
        torch.save({name: state[name] for name in chosen}, tmp_path / file)
    table = {name: file for file, chosen in parts.items() for name in chosen}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": table}))
    assert detect(tmp_path) == "pickle"
    assert_same_logits(read_foreign(tmp_path), model)
    (tmp_path / "pytorch_model-00002-of-00002.bin").unlink()
    with raises(CheckpointError, code="missing-file", value="pytorch_model-00002-of-00002.bin"):
        read_foreign(tmp_path)


def test_an_untied_decoder_is_kept(tmp_path: Path) -> None:
    model = tiny_bert()
    state = state_of(model)
    state["cls.predictions.decoder.weight"] = state["cls.predictions.decoder.weight"] + 1
    foreign = read_foreign(folder_of(tmp_path, model, state))
    assert foreign.config["tie_word_embeddings"] is False
    assert "cls.predictions.decoder.weight" in foreign.weights


def test_a_folder_with_safetensors_is_not_foreign(tmp_path: Path) -> None:
    model = tiny_bert()
    folder_of(tmp_path, model, state_of(model))
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert detect(tmp_path) is None


def test_a_model_of_unknown_architecture_is_refused(tmp_path: Path) -> None:
    folder_of(tmp_path, tiny_bert(), {"layers.0.w": torch.zeros(2)}, model_type=..., architectures=["OursModel"])
    with raises(CheckpointError, code="unknown-architecture", value="OursModel"):
        read_foreign(tmp_path)
