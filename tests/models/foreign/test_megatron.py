"""Megatron's BERT: the three row orders of a fused projection, and tensor-parallel ranks."""

import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from errors import raises
from foreign_writers import PIECES, assert_same_logits, megatron_ranks, tiny_megatron

from lexome.errors import CheckpointError
from lexome.models.foreign import detect, read_foreign

ARGS = Namespace(num_layers=2, hidden_size=16, num_attention_heads=4, layernorm_epsilon=1e-5)


def save(folder: Path, ranks: list[dict[str, Any]], **extra: Any) -> Path:
    for rank, model in enumerate(ranks):
        (folder / f"mp_rank_{rank:02d}").mkdir(parents=True, exist_ok=True)
        saved = {"iteration": 7, "model": model, "args": ARGS, "optimizer": {}} | extra
        torch.save(saved, folder / f"mp_rank_{rank:02d}" / "model_optim_rng.pt")
    return folder


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("version", [None, 0, 1.0, 2.0, 3.0])
def test_a_checkpoint_gives_the_logits_of_its_model(tmp_path: Path, version: float | None, ranks: int) -> None:
    model = tiny_megatron()
    extra = {} if version is None else {"checkpoint_version": version}
    save(tmp_path, megatron_ranks(model, version=min(version or 0, 2), ranks=ranks), **extra)
    assert detect(tmp_path) == "megatron"
    foreign = read_foreign(tmp_path)
    assert_same_logits(foreign, model)
    assert foreign.left_out == ("iteration", "optimizer")


def test_the_newer_names_in_the_folder_of_a_whole_training(tmp_path: Path) -> None:
    model = tiny_megatron()
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("500\n")
    other = tmp_path / "iter_0000400" / "mp_rank_00"
    other.mkdir(parents=True)
    (other / "model_optim_rng.pt").write_bytes(b"not this one")
    save(tmp_path / "iter_0000500", megatron_ranks(model, version=2, newer=True), checkpoint_version=3.0)
    assert detect(tmp_path) == "megatron"
    assert_same_logits(read_foreign(tmp_path), model)


def test_a_lone_file_with_its_configuration_and_vocabulary(tmp_path: Path) -> None:
    """As NGC gave BioMegatron first: no args, no version, weights in half precision."""
    model = tiny_megatron().half().float()
    half = [_half(rank) for rank in megatron_ranks(model, version=0)]
    torch.save({"iteration": 1, "model": half[0]}, tmp_path / "MegatronBERT.pt")
    (tmp_path / "config.json").write_text(json.dumps({"num_layers": 2, "num_attention_heads": 4}))
    (tmp_path / "vocab.txt").write_text("\n".join(PIECES))
    assert detect(tmp_path) == "megatron"
    for path in (tmp_path, tmp_path / "MegatronBERT.pt"):
        foreign = read_foreign(path)
        assert_same_logits(foreign, model)
        assert {tensor.dtype for tensor in foreign.weights.values()} == {torch.float16}
        assert set(foreign.tokenizer_files) == {"vocab.txt", "tokenizer.json", "tokenizer_config.json"}


def _half(tree: dict[str, Any]) -> dict[str, Any]:
    return {key: _half(item) if isinstance(item, dict) else item.half() for key, item in tree.items()}


def test_the_gelu_of_fused_kernels_is_kept(tmp_path: Path) -> None:
    fused = Namespace(**vars(ARGS), bias_gelu_fusion=True)
    save(tmp_path, megatron_ranks(tiny_megatron(), version=0), args=fused)
    assert read_foreign(tmp_path).config["hidden_act"] == "gelu_new"


def test_a_single_rank_of_several_is_refused(tmp_path: Path) -> None:
    save(tmp_path, megatron_ranks(tiny_megatron(), version=2, ranks=2), checkpoint_version=2.0)
    with raises(CheckpointError, code="missing-rank", value=2):
        read_foreign(tmp_path / "mp_rank_00" / "model_optim_rng.pt")
    (tmp_path / "mp_rank_00").rename(tmp_path / "mp_rank_02")
    with raises(CheckpointError, code="missing-file", value="mp_rank_00"):
        read_foreign(tmp_path)


def test_ranks_of_different_checkpoints_are_refused(tmp_path: Path) -> None:
    ranks = megatron_ranks(tiny_megatron(), version=2, ranks=2)
    ranks[1]["language_model"]["transformer"]["final_layernorm.bias"] += 1
    save(tmp_path, ranks, checkpoint_version=2.0)
    with raises(CheckpointError, code="rank-mismatch", value="language_model.transformer.final_layernorm.bias"):
        read_foreign(tmp_path)


def test_unknown_weights_raise_and_the_first_is_named(tmp_path: Path) -> None:
    ranks = megatron_ranks(tiny_megatron(), version=2)
    ranks[0]["language_model"]["decoder"] = {"layers.0.inter_attention.dense.weight": torch.zeros(2, 2)}
    save(tmp_path, ranks)
    with raises(
        CheckpointError,
        code="unknown-weights",
        value="language_model.decoder.layers.0.inter_attention.dense.weight",
    ):
        read_foreign(tmp_path)


@pytest.mark.parametrize(
    ("extra", "code", "mentions"),
    [
        ({"args": None}, "missing-key", "num_attention_heads"),
        ({"args": Namespace(num_attention_heads=7)}, "heads-mismatch", "48 rows"),
        ({"checkpoint_version": 0.5}, "unknown-version", "0.5"),
        ({"checkpoint_version": "new"}, "unknown-version", "'new'"),
        (
            {"args": Namespace(num_attention_heads=4, apply_residual_connection_post_layernorm=True)},
            "unsupported-setting",
            "apply_residual_connection_post_layernorm",
        ),
        ({"model": 3}, "not-weights", "model_optim_rng.pt"),
    ],
)
def test_unsupported_checkpoints_are_refused(tmp_path: Path, extra: dict[str, Any], code: str, mentions: str) -> None:
    save(tmp_path, megatron_ranks(tiny_megatron(), version=0), **extra)
    with raises(CheckpointError, code=code, mentions=mentions):
        read_foreign(tmp_path)


def test_pipeline_parallel_stages_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mp_rank_00_000").mkdir()
    (tmp_path / "mp_rank_00_000" / "model_optim_rng.pt").write_bytes(b"")
    (tmp_path / "mp_rank_00_001").mkdir()
    (tmp_path / "mp_rank_00_001" / "model_optim_rng.pt").write_bytes(b"")
    with raises(CheckpointError, code="unsupported-format", value="mp_rank_00_000/model_optim_rng.pt"):
        read_foreign(tmp_path)
