"""Recipes of people who know other libraries: their keys, their models' names, and what makes what is missing."""

from pathlib import Path
from typing import Any

import pytest
from errors import raises
from tiny_models import hf_model, tokenizer_folder

from lexome.errors import CheckpointError, LexomeError, RecipeError, ShardError
from lexome.models.hf_folder import find_checkpoint, hub_name
from lexome.recipe import FOREIGN_KEYS, made_by, validate
from lexome.recipe.finetune import FinetuneRecipe
from lexome.recipe.pretrain import DistillRecipe, PretrainRecipe
from lexome.training.pretrain import pretrain
from lexome.training.start import checkpoint_name

FINETUNE = {"stage": "finetune", "start": "a", "out": "b", "epochs": 1, "data": {"sets": ["x"]}}
PRETRAIN = {"stage": "pretrain", "shards": "a", "out": "b", "steps": 1, "preset": "tiny"}

EXPECTED = [
    ("learning_rate", "optimizer.lr", "optimizer.lr"),
    ("batch_size", "batch.sequences", "batch.tokens"),
    ("per_device_train_batch_size", "batch.sequences", "batch.tokens"),
    ("num_train_epochs", "epochs", "epochs"),
    ("model_name_or_path", "start", "start"),
    ("max_seq_length", "data.max_tokens", "text.max_tokens"),
    ("warmup_steps", "schedule.warmup_steps", "schedule.warmup_steps"),
    ("weight_decay", "optimizer.weight_decay", "optimizer.weight_decay"),
    ("gradient_accumulation_steps", "batch.gradient_accumulation", "batch.gradient_accumulation"),
    ("output_dir", "out", "out"),
]


@pytest.mark.parametrize(("foreign", "finetune", "pretrain"), EXPECTED)
def test_keys_of_other_libraries_are_told_their_names_here(foreign: str, finetune: str, pretrain: str) -> None:
    for keys, schema, name in ((FINETUNE, FinetuneRecipe, finetune), (PRETRAIN, PretrainRecipe, pretrain)):
        with raises(RecipeError, code="unknown-key", value=foreign, mentions=name):
            validate({**keys, foreign: 1}, schema, "r.toml")


def test_a_key_in_the_wrong_table_is_told_too() -> None:
    keys: dict[str, Any] = {**FINETUNE, "optimizer": {"learning_rate": 1e-4}}
    with raises(RecipeError, code="unknown-key", value="optimizer.learning_rate", mentions="optimizer.lr"):
        validate(keys, FinetuneRecipe, "r.toml")
    with raises(RecipeError, code="unknown-key", value="seed", mentions="seeds"):
        validate({**FINETUNE, "seed": 1}, FinetuneRecipe, "r.toml")


def test_every_suggestion_is_a_key_of_some_stage() -> None:
    from lexome.recipe import _has_key as has_key

    schemas = (FinetuneRecipe, PretrainRecipe, DistillRecipe)
    unknown = {key for keys in FOREIGN_KEYS.values() for key in keys if not any(has_key(one, key) for one in schemas)}
    assert unknown == set()


# Names of the Hub


@pytest.fixture
def cache(tmp_path: Path) -> dict[str, str]:
    """A Hugging Face cache with the model lab/tiny-bert, and the environment that names it."""
    model = tmp_path / "hub" / "models--lab--tiny-bert"
    snapshot = model / "snapshots" / "0123abc"
    hf_model("BertForMaskedLM", "bert").save_pretrained(snapshot)
    tokenizer_folder(snapshot)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("0123abc")
    return {"HF_HUB_CACHE": str(tmp_path / "hub")}


def test_a_name_of_the_hub_is_found_in_the_local_cache(cache: dict[str, str]) -> None:
    found = find_checkpoint(Path("lab/tiny-bert"), environment=cache)
    assert found.name == "0123abc"
    assert (hub_name(found), checkpoint_name(found)) == ("lab/tiny-bert", "lab/tiny-bert")


def test_home_folders_of_the_hub_are_looked_into(cache: dict[str, str]) -> None:
    home = Path(cache["HF_HUB_CACHE"]).parent
    assert find_checkpoint(Path("lab/tiny-bert"), environment={"HF_HOME": str(home)}).name == "0123abc"


@pytest.mark.parametrize("name", ["lab/other", "bert-base-uncased"])
def test_a_name_that_is_not_there_says_how_to_get_it(cache: dict[str, str], name: str) -> None:
    with raises(CheckpointError, code="missing-folder", value=Path(name), mentions=f"hf download {name} --local-dir"):
        find_checkpoint(Path(name), environment=cache)


def test_folders_and_paths_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lab" / "tiny-bert").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for path in (Path("lab/tiny-bert"), Path("a/b/c"), tmp_path / "missing"):
        assert find_checkpoint(path, environment={}) == path


def test_a_snapshot_without_weights_is_not_a_checkpoint(cache: dict[str, str]) -> None:
    for path in Path(cache["HF_HUB_CACHE"]).rglob("*.safetensors"):
        path.unlink()
    with raises(CheckpointError, code="missing-folder"):
        find_checkpoint(Path("lab/tiny-bert"), environment=cache)


# What makes what is missing


def test_missing_shards_name_the_recipe_and_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recipes" / "mine").mkdir(parents=True)
    (tmp_path / "recipes" / "broken.toml").write_text("not toml")
    recipe = 'stage = "shard"\ninputs = ["x"]\ntokenizer = "v"\nout = "made/shards"\n'
    (tmp_path / "recipes" / "mine" / "shard.toml").write_text(recipe)
    monkeypatch.chdir(tmp_path)
    run = PretrainRecipe.model_validate(PRETRAIN | {"shards": "made/shards"})
    with raises(ShardError, code="missing-manifest", mentions="lexome shard recipes/mine/shard.toml"):
        pretrain(run, progress_shown=False)


@pytest.mark.parametrize("start", ["made/encoder/model", "made/encoder"])
def test_a_missing_checkpoint_names_the_recipe_and_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    from lexome.training.finetune.stage import finetune

    (tmp_path / "train.toml").write_text('stage = "pretrain"\nshards = "s"\nout = "made/encoder"\nsteps = 1\n')
    monkeypatch.chdir(tmp_path)
    run = FinetuneRecipe.model_validate(FINETUNE | {"start": start})
    code = "missing-file" if start.endswith("model") else "missing-folder"
    with raises(LexomeError, code=code, mentions="lexome pretrain train.toml"):
        finetune(run, progress_shown=False)


def test_without_such_a_recipe_nothing_is_suggested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert made_by(Path("made/shards")) == ""
