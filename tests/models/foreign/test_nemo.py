"""NeMo's archives, as several of its releases wrote them."""

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch
from errors import raises
from foreign_writers import PIECES, assert_same_logits, megatron_ranks, state_of, tiny_bert, tiny_megatron

from lexome.errors import CheckpointError
from lexome.models.foreign import detect, read_foreign
from lexome.models.foreign.megatron import yaml_scalars

ENCODER = json.dumps({"hidden_size": 16, "num_attention_heads": 4, "num_layers": 2, "max_position_embeddings": 24})
VOCAB = "\n".join(PIECES)


def flat(tree: dict[str, Any], prefix: str) -> dict[str, torch.Tensor]:
    named = {}
    for key, item in tree.items():
        named |= flat(item, f"{prefix}{key}.") if isinstance(item, dict) else {prefix + key: item}
    return named


def nemo(path: Path, files: dict[str, str | dict[str, Any]], *, mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as tar:
        for name, content in files.items():
            stream = io.BytesIO()
            if isinstance(content, str):
                stream.write(content.encode())
            else:
                torch.save(content, stream)
            member = tarfile.TarInfo(f"./{name}")
            member.size = stream.tell()
            stream.seek(0)
            tar.addfile(member, stream)
    return path


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_an_archive_of_the_time_of_biomegatron(tmp_path: Path, mode: str) -> None:
    model = tiny_megatron()
    (rank,) = megatron_ranks(model, version=0)
    files = {
        "model_config.yaml": "language_model:\n  pretrained_model_name: biomegatron-bert-345m-uncased\n",
        "model_weights.ckpt": flat(rank, "bert_model."),
        "tokenizer.vocab_file": VOCAB,
        "biomegatron-bert-345m-uncased_encoder_config.json": ENCODER,
    }
    archive = nemo(tmp_path / "BioMegatron.nemo", files, mode=mode)
    assert detect(archive) == "nemo"
    foreign = read_foreign(archive)
    assert foreign.layout == "nemo"
    assert_same_logits(foreign, model)
    assert foreign.tokenizer_files["vocab.txt"] == VOCAB.encode()


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_archive_of_several_ranks_says_its_version(tmp_path: Path, version: int) -> None:
    model = tiny_megatron()
    ranks = megatron_ranks(model, version=version, ranks=2)
    weights = {f"mp_rank_{n:02d}/model_weights.ckpt": flat(rank, "bert_model.") for n, rank in enumerate(ranks)}
    said = json.dumps({"checkpoint_version": version})
    files = {"a_encoder_config.json": ENCODER, "megatron_checkpoint_version.json": said, **weights}
    assert_same_logits(read_foreign(nemo(tmp_path / "two.nemo", files)), model)


@pytest.mark.parametrize(
    ("legacy", "version"), [("megatron_legacy: true\n", 0), ("megatron_legacy: false\n", 2), ("", 2)]
)
def test_an_archive_of_nemos_own_bert(tmp_path: Path, legacy: str, version: int) -> None:
    model = tiny_megatron()
    (rank,) = megatron_ranks(model, version=version, newer=True)
    config = (
        "micro_batch_size: 4\nnum_layers: 2\nhidden_size: 16\nnum_attention_heads: 4\nlayernorm_epsilon: 1.0e-05\n"
        f"{legacy}tokenizer:\n  library: megatron\n  vocab_file: nemo:0fa_vocab.txt\n  num_attention_heads: 2\n"
    )
    files = {"model_config.yaml": config, "model_weights.ckpt": flat(rank, "model."), "0fa_vocab.txt": VOCAB}
    assert_same_logits(read_foreign(nemo(tmp_path / "new.nemo", files)), model)


def test_an_archive_with_hugging_faces_bert_in_it(tmp_path: Path) -> None:
    model = tiny_bert()
    state = {f"bert_model.{name.removeprefix('bert.')}": tensor for name, tensor in state_of(model).items()}
    state = {name: tensor for name, tensor in state.items() if ".cls." not in name}
    config = model.config.to_dict() | {"architectures": ["BertModel"]}
    files = {"model_config.yaml": "x: 1\n", "model_weights.ckpt": state, "bert_encoder_config.json": json.dumps(config)}
    foreign = read_foreign(nemo(tmp_path / "bert.nemo", files))
    assert foreign.config["model_type"] == "bert"
    body = {name: tensor for name, tensor in state_of(model).items() if name.startswith("bert.")}
    assert set(foreign.weights) == set(body)
    assert all(torch.equal(foreign.weights[name], tensor) for name, tensor in body.items())


def test_the_head_of_a_task_raises_and_is_named(tmp_path: Path) -> None:
    (rank,) = megatron_ranks(tiny_megatron(), version=0)
    weights = flat(rank, "bert_model.") | {"classifier.mlp.layer0.weight": torch.zeros(2, 16)}
    archive = nemo(tmp_path / "ner.nemo", {"a_encoder_config.json": ENCODER, "model_weights.ckpt": weights})
    with raises(CheckpointError, code="unknown-weights", value="classifier.mlp.layer0.weight"):
        read_foreign(archive)


def test_a_model_with_norms_in_another_order_is_refused(tmp_path: Path) -> None:
    (rank,) = megatron_ranks(tiny_megatron(), version=2)
    config = "num_attention_heads: 4\ntransformer_block_type: post_ln\n"
    archive = nemo(tmp_path / "a.nemo", {"model_config.yaml": config, "model_weights.ckpt": flat(rank, "model.")})
    with raises(CheckpointError, code="unsupported-setting", value="post_ln"):
        read_foreign(archive)


def test_the_settings_of_a_yaml_file_are_read_and_nothing_is_built() -> None:
    text = """
# a comment
heads: 16   # another
eps: 1.0e-05
tokenizer:
  library: megatron
  vocab_file: nemo:12_vocab.txt
  special: null
  quoted: 'a # b'
data:
  files:
  - one: 1
  - two
  shuffle: true
evil: !!python/object/apply:os.system ['false']
flow: {a: 1}
long: a text
  that goes on
last: -3
"""
    assert yaml_scalars(text) == {
        "heads": 16,
        "eps": 1e-5,
        "tokenizer.library": "megatron",
        "tokenizer.vocab_file": "nemo:12_vocab.txt",
        "tokenizer.special": None,
        "tokenizer.quoted": "a # b",
        "data.shuffle": True,
        "evil": "!!python/object/apply:os.system ['false']",
        "flow": "{a: 1}",
        "long": "a text",
        "last": -3,
    }
