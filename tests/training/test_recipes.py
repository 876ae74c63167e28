"""Recipes of pre-training: every shipped one is valid, and what contradicts itself is refused."""

import tomllib
from math import inf
from pathlib import Path
from typing import Any

import pytest
from errors import raises, rejects
from pretraining import recipe

from lexome.cli.corpus import check
from lexome.corpus.masking import rate_at
from lexome.errors import RecipeError, UsageError
from lexome.models.encoder import preset
from lexome.models.hf import matching_architecture
from lexome.recipe import explain, load, seconds
from lexome.recipe.corpus_stages import ShardRecipe, VocabRecipe
from lexome.recipe.finetune import FinetuneRecipe
from lexome.recipe.pretrain import PretrainRecipe
from lexome.training.session import plan_of
from lexome.training.start import override_config

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = [*sorted((ROOT / "recipes" / "pretrain").glob("*.toml")), ROOT / "recipes" / "tiny" / "pretrain.toml"]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_recipe_is_valid(path: Path, tmp_path: Path) -> None:
    made = load(path, PretrainRecipe)
    if made.preset is not None:
        # Saving comes last, and must not be where it is found out that there is no form to save the model in.
        assert matching_architecture(override_config(preset(made.preset), made.model))
    (tmp_path / "again.toml").write_text(explain(made))
    assert load(tmp_path / "again.toml", PretrainRecipe) == made


def test_there_are_shipped_recipes() -> None:
    assert len(SHIPPED) > 3


@pytest.mark.parametrize(("text", "expected"), [("90s", 90), ("20m", 1200), ("1h30m", 5400), ("2d", 172800)])
def test_times_are_told_with_their_units(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"epochs": inf}, "epochs"),
        ({"steps": 5, "log": {"checkpoint_steps": [2, 6]}}, "log.checkpoint_steps"),
        ({"optimizer": {"betas": [0.9, 1.0]}}, "optimizer.betas.1"),
        ({"steps": 5, "tokens": 5}, "tokens"),
        ({"optimizer": {"lr": 1e38}}, "optimizer.lr"),
        ({"batch": {"tokens": 10**18}}, "batch.tokens"),
        ({"batch": {"tokens": 64, "gradient_accumulation": 2, "ramp": [[0, 10**18], [0.5, 2]]}}, "batch.ramp"),
        ({"time_budget": "20 minutes"}, "time_budget"),
        ({"preset": "tiny", "start": "somewhere"}, "preset"),
        ({"batch": {"tokens": 16}}, "batch.tokens"),
        ({"time_budget": "1m", "schedule": {"warmup_steps": 10}}, "schedule.warmup_steps"),
        ({"text": {"max_tokens": 32, "ramp": [[0.0, 16], [0.5, 24]]}}, "text.ramp"),
        ({"text": {"max_tokens": 32, "ramp": [[0.0, 64], [0.5, 32]]}}, "text.ramp"),
        ({"batch": {"tokens": 64, "gradient_accumulation": 2, "ramp": [[0.1, 2]]}}, "batch.ramp"),
        ({"masking": {"mask_ratio": 0.8, "random_ratio": 0.3}}, "masking.random_ratio"),
        ({"masking": {"ramp": [[0.0, 0.3], [1.0, 0.1]]}}, "masking.ramp"),
        ({"masking": {"ramp": [[0.0, 0.3], [1.1, 0.1]], "linear": True}}, "masking.ramp"),
        ({"text": {"max_tokens": 32, "repeat": {"abstracts": -1}}}, "text.repeat.abstracts"),
        ({"text": {"max_tokens": 32, "repeat": {"abstracts": 1.5}}}, "text.repeat.abstracts"),
    ],
)
def test_contradictory_recipes_are_rejected(keys: dict[str, Any], key: str, tmp_path: Path) -> None:
    with rejects(key):
        recipe(tmp_path, tmp_path / "out", **keys)


def test_the_steps_of_the_encoder_follow_one_another() -> None:
    run = load(ROOT / "recipes" / "pretrain" / "encoder.toml", PretrainRecipe)
    shards = load(ROOT / "recipes" / "shards" / "encoder.toml", ShardRecipe)
    vocabulary = load(ROOT / "recipes" / "vocab" / "adapted.toml", VocabRecipe)
    assert (vocabulary.adapt, vocabulary.out, shards.out) == (run.start, shards.tokenizer, run.shards)
    rate = plan_of(run).rate
    assert [rate_at(rate, done) for done in (0.0, 0.5, 1.0)] == pytest.approx([0.3, 0.225, 0.15])


def test_what_teaches_the_encoder_entities_follows_it() -> None:
    teacher, student = (
        load(ROOT / "recipes" / "finetune" / f"entity-{name}.toml", FinetuneRecipe) for name in ("teacher", "student")
    )
    mpnet = load(ROOT / "recipes" / "pretrain" / "mpnet.toml", PretrainRecipe)
    abstracts = load(ROOT / "recipes" / "shards" / "encoder-abstracts.toml", ShardRecipe)
    assert teacher.start == mpnet.out / "model"
    assert student.teacher is not None
    assert (student.teacher.models, student.teacher.shards) == ((teacher.out,), abstracts.out)
    assert (student.data, student.task) == (teacher.data, teacher.task)
    # Encoders are compared on these, so nothing of them may be learned from.
    compared = tomllib.loads((ROOT / "benchmarks" / "encoders.toml").read_text())["tasks"]
    sources = {"BC5CDR-disease": "BC5CDR", "BC5CDR-chem": "BC5CDR", "NCBI-disease": "NCBI-disease-pubtator"}
    for task in compared:
        name = sources.get(task["set"], task["set"])
        assert {f"{name}:dev", f"{name}:test"} <= set(teacher.data.exclude)


def test_an_unknown_field_of_the_model_is_named() -> None:
    with raises(RecipeError, code="unknown-key", value="model.with"):
        override_config(preset("tiny"), {"with": 3})


SHAPE = {"layers": 2, "hidden_size": 64, "heads": 4, "intermediate_size": 128}


@pytest.mark.parametrize(
    ("keys", "code", "value"),
    [
        ({"model": SHAPE | {"hidden": 3}}, "unknown-key", "model.hidden"),
        ({"model": SHAPE | {"layers": "2"}}, "invalid-value", "model.layers"),
        ({"model": SHAPE | {"heads": 5}}, "heads-mismatch", 5),
        ({"model": {"layers": 2}}, "missing-key", "model.hidden_size"),
        ({"preset": "bert-bse"}, "unknown-preset", "bert-bse"),
        ({"start": "here", "model": {"layer": 2}}, "unknown-key", "model.layer"),
    ],
)
def test_check_checks_the_model(keys: dict[str, Any], code: str, value: Any, tmp_path: Path) -> None:
    recipe = PretrainRecipe(stage="pretrain", shards=tmp_path, out=tmp_path, steps=1, **keys)
    (tmp_path / "r.toml").write_text(explain(recipe))
    with raises(UsageError, code=code, value=value):
        check(tmp_path / "r.toml")


@pytest.mark.parametrize(
    ("keys", "code", "value"),
    [
        ({"data": {"sets": ["BC2GN"]}}, "unknown-dataset", "BC2GN"),
        ({"data": {"sets": ["BC2GM"]}, "task": {"nestd": True}}, "unknown-key", "nestd"),
        ({"data": {"folder": "mine"}, "task": {"kind": "nre"}}, "unknown-task", "nre"),
        ({"data": {"folder": "mine"}, "task": {"kind": "ner", "types": ["A"], "scheme": "io"}}, "invalid-choice", "io"),
    ],
)
def test_check_checks_datasets_and_the_task(keys: dict[str, Any], code: str, value: Any, tmp_path: Path) -> None:
    recipe = FinetuneRecipe(stage="finetune", start=tmp_path, out=tmp_path, epochs=1, **keys)
    (tmp_path / "r.toml").write_text(explain(recipe))
    with raises(UsageError, code=code, value=value):
        check(tmp_path / "r.toml")


def test_a_task_of_a_folder_may_leave_its_types_to_the_documents(tmp_path: Path, capsys: Any) -> None:
    keys: dict[str, Any] = {"data": {"folder": "mine"}, "task": {"kind": "ner"}}
    recipe = FinetuneRecipe(stage="finetune", start=tmp_path, out=tmp_path, epochs=1, **keys)
    (tmp_path / "r.toml").write_text(explain(recipe))
    check(tmp_path / "r.toml")
    assert 'kind = "ner"' in capsys.readouterr().out
