"""lexome pretrain with the transformers backend: training, bit-exact resumption, and unsupported settings."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from errors import raises
from foreign_writers import google_folder, tiny_bert
from pretraining import make_shards, recipe, tokenizer
from safetensors.torch import load_file

from lexome.corpus.shards import Shards
from lexome.errors import CheckpointError, RecipeError
from lexome.models import checkpoint
from lexome.training.pretrain import pretrain


@pytest.fixture(scope="module")
def electra(tmp_path_factory: pytest.TempPathFactory, shards: Shards) -> Path:
    """A tiny ELECTRA with the tokenizer of the shards, as transformers saves it."""
    torch.manual_seed(0)
    config = transformers.ElectraConfig(
        vocab_size=tokenizer().get_vocab_size(),
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=40,
    )
    folder = tmp_path_factory.mktemp("electra")
    transformers.ElectraForMaskedLM(config).save_pretrained(folder)
    (folder / "tokenizer.json").write_bytes((shards.folder / "tokenizer.json").read_bytes())
    return folder


def weights(out: Path) -> dict[str, torch.Tensor]:
    return load_file(out / "model" / "model.safetensors")


def test_it_learns_and_is_written_as_transformers_has_it(shards: Shards, electra: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"start": electra, "steps": 60, "evaluation": {"every": 30}, "gradient_checkpointing": True}
    done = pretrain(recipe(shards.folder, tmp_path / "out", **given), progress_shown=False)
    lines = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    assert losses[-1] < losses[0] - 0.5
    model, info = transformers.ElectraForMaskedLM.from_pretrained(done.folder, output_loading_info=True)
    assert (set(info["missing_keys"]), set(info["unexpected_keys"])) == (set(), set())
    assert model.config.embedding_size == 16
    found = checkpoint.load(done.folder)
    assert (found.backend, found.kind) == ("transformers", "masked")
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert run["start"]["config"]["model_type"] == "electra"


def test_it_goes_on_to_the_bit(shards: Shards, electra: Path, tmp_path: Path) -> None:
    looks = 0

    def clock() -> float:
        nonlocal looks
        looks += 1
        if looks > 15:
            raise KeyboardInterrupt
        return float(looks)

    given: dict[str, Any] = {"start": electra, "steps": 20, "log": {"every": 5, "save_every": 10}}
    pretrain(recipe(shards.folder, tmp_path / "whole", **given), progress_shown=False)
    with pytest.raises(KeyboardInterrupt):
        pretrain(recipe(shards.folder, tmp_path / "stopped", **given), progress_shown=False, clock=clock)
    pretrain(recipe(shards.folder, tmp_path / "stopped", **given), progress_shown=False)
    whole, stopped = weights(tmp_path / "whole"), weights(tmp_path / "stopped")
    assert all(torch.equal(whole[name], stopped[name]) for name in whole)


@pytest.mark.parametrize(
    ("keys", "setting"),
    [
        ({"model": {"dropout": 0.0}}, "[model]"),
        ({"optimizer": {"kind": "muon"}}, 'optimizer.kind = "muon"'),
        ({"compile": True}, "compile = true"),
    ],
)
def test_what_is_made_for_our_own_encoder_is_refused(
    shards: Shards, electra: Path, tmp_path: Path, keys: dict[str, Any], setting: str
) -> None:
    with raises(RecipeError, code="unsupported-backend", value=setting):
        pretrain(recipe(shards.folder, tmp_path / "out", start=electra, **keys), progress_shown=False)


def test_another_vocabulary_is_refused(electra: Path, tmp_path: Path) -> None:
    other = make_shards(tmp_path / "other", made=tokenizer(extra=("protein",)))
    with raises(CheckpointError, code="tokenizer-mismatch", value=electra):
        pretrain(recipe(other.folder, tmp_path / "out", start=electra), progress_shown=False)
    transfer = {"start": electra, "new_vocabulary": "transfer"}
    with raises(RecipeError, code="unsupported-backend", value='new_vocabulary = "transfer"'):
        pretrain(recipe(other.folder, tmp_path / "out", **transfer), progress_shown=False)


def test_of_an_mpnet_it_is_said_how_to_make_one_of_our_own(shards: Shards, tmp_path: Path) -> None:
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48}
    pieces = tokenizer().get_vocab_size()
    config = transformers.MPNetConfig(vocab_size=pieces, max_position_embeddings=42, **shape)
    transformers.MPNetForMaskedLM(config).save_pretrained(tmp_path / "mpnet")
    (tmp_path / "mpnet" / "tokenizer.json").write_bytes((shards.folder / "tokenizer.json").read_bytes())
    given = {"start": tmp_path / "mpnet", "optimizer": {"kind": "muon"}}
    with raises(RecipeError, code="unsupported-backend", mentions="convert-model --drop relative-positions"):
        pretrain(recipe(shards.folder, tmp_path / "out", **given), progress_shown=False)
    other = make_shards(tmp_path / "other", made=tokenizer(extra=("cell",)))
    with raises(CheckpointError, code="tokenizer-mismatch", mentions="convert-model --drop relative-positions"):
        pretrain(recipe(other.folder, tmp_path / "out", start=tmp_path / "mpnet"), progress_shown=False)


def test_pairs_are_refused(shards: Shards, electra: Path, tmp_path: Path) -> None:
    given = {"start": electra, "text": {"kind": "next_sentence", "max_tokens": 32}}
    with raises(CheckpointError, code="unsupported-kind", value="paired"):
        pretrain(recipe(shards.folder, tmp_path / "out", **given), progress_shown=False)


def test_a_release_of_another_framework_is_to_be_converted_first(shards: Shards, tmp_path: Path) -> None:
    release = google_folder(tmp_path / "biobert", tiny_bert())
    with raises(CheckpointError, code="unsupported-format", value="google", mentions="convert-model"):
        pretrain(recipe(shards.folder, tmp_path / "out", start=release), progress_shown=False)
