"""Recipes of fine-tuning: every shipped one is valid, and what contradicts itself is refused."""

from math import inf
from pathlib import Path
from typing import Any

import pytest
from errors import rejects
from finetuning import recipe_of

from lexome.datasets import find
from lexome.recipe import explain, load
from lexome.recipe.finetune import Cell, FinetuneRecipe, Run, cells_of, recipe_of_run, runs_of
from lexome.tasks import task_of
from lexome.training.finetune.examples import require_types

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = [*sorted((ROOT / "recipes" / "finetune").glob("*.toml")), ROOT / "recipes" / "tiny" / "finetune.toml"]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_recipe_is_valid(path: Path, tmp_path: Path) -> None:
    made = load(path, FinetuneRecipe)
    sets = [find(name) for name in made.data.sets]
    task = task_of({**(sets[0].settings if len(sets) == 1 else {}), **made.task})
    assert task.labels
    require_types(made.data.rename, task)
    (tmp_path / "again.toml").write_text(explain(made))
    assert load(tmp_path / "again.toml", FinetuneRecipe) == made


def test_cross_validation_scores_its_test_folds_unless_the_recipe_says_otherwise(tmp_path: Path) -> None:
    def scored(**keys: Any) -> str:
        return recipe_of(tmp_path, tmp_path, tmp_path, {"kind": "ner"}, **keys).score_test

    folds = {"count": 5, "dev_fraction": 0.1}
    assert scored() == "never"
    assert scored(folds=folds) == "every"
    assert scored(folds=folds, score_test="never") == "never"


def test_the_runs_of_the_default_model_learn_the_same_from_the_same() -> None:
    teacher, student, default = (
        load(ROOT / "recipes" / "finetune" / f"{name}.toml", FinetuneRecipe)
        for name in ("default-teacher", "default-student", "default")
    )
    assert teacher.data == student.data == default.data
    assert teacher.task == student.task == default.task
    assert student.teacher == default.teacher is not None
    assert student.start == teacher.out
    assert default.start == student.out


def test_there_are_shipped_recipes() -> None:
    assert len(SHIPPED) > 3


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"lora": {"rank": 4}}, "lora"),
        ({"steps": 5, "grid": {"epochs": [1, 2]}}, "grid.epochs"),
        ({"grid": {"batch": [8, 16]}}, "grid.batch"),
        ({"grid": {"lr": [1e-5, 1e-5]}}, "grid.lr"),
        ({"epochs": inf}, "epochs"),
        ({"optimizer": {"lr": inf}}, "optimizer.lr"),
        ({"optimizer": {"lr": 1e38}}, "optimizer.lr"),
        ({"optimizer": {"head_lr": 1e38}}, "optimizer.head_lr"),
        ({"grid": {"lr": [1e-5, 1e38]}}, "grid.lr.1"),
        ({"batch": {"gradient_accumulation": 10**18}}, "batch.gradient_accumulation"),
        ({"optimizer": {"betas": [0.9, 1.0]}}, "optimizer.betas.1"),
        ({"seeds": [1, 1]}, "seeds"),
        ({"batch": {"sequences": 8, "tokens": 100}}, "batch.tokens"),
        ({"data": {"sets": ["BC2GM"], "folder": "x"}}, "data.sets"),
        ({"data": {"sets": ["BC2GM"], "train": ["train", "dev"]}}, "data.dev"),
        ({"data": {"sets": ["BC2GM"], "dev": "none"}}, "evaluation.patience"),
        ({"data": {"sets": ["BC2GM"], "dev": "test"}, "score_test": "best"}, "data.test"),
        ({"data": {"sets": ["BC2GM"], "train": ["test"]}, "score_test": "best"}, "data.test"),
        ({"task": {"types": ["Gene"]}}, "task.kind"),
        ({"folds": {"count": 5, "use": [5]}, "evaluation": {}}, "folds.use"),
        ({"attention_dropout": 1.5}, "attention_dropout.constrained-float"),
        ({"folds": {"count": 5}, "data": {"sets": ["BC2GM"], "dev_fraction": 0.1}}, "data.dev_fraction"),
        ({"folds": {"count": 5}, "score_test": "never", "evaluation": {}}, "score_test"),
        ({"qat_ratio": 0.5, "compile": True}, "qat_ratio"),
    ],
)
def test_contradictory_recipes_are_rejected(keys: dict[str, Any], key: str) -> None:
    with rejects(key):
        recipe_of(Path("model"), Path("data"), Path("out"), **{"task": {"kind": "ner"}, **keys})


def test_a_run_is_a_recipe_of_its_own() -> None:
    grid = {"batch": [8, 16], "lr": [1e-5], "epochs": [2, 4]}
    keys: dict[str, Any] = {"grid": grid, "batch": {"micro_batch_tokens": 100}, "seeds": [3, 4], "epochs": None}
    recipe = recipe_of(Path("model"), Path("data"), Path("out"), {"kind": "ner"}, **keys)
    runs = runs_of(cells_of(recipe.grid), recipe.seeds, [None])
    assert [run.name for run in runs[:3]] == [
        "batch8-lr1e-05-epochs2-seed3",
        "batch8-lr1e-05-epochs2-seed4",
        "batch8-lr1e-05-epochs4-seed3",
    ]
    one = recipe_of_run(recipe, Run(Cell(16, 1e-5, 4.0), 4))
    assert (one.batch.sequences, one.batch.micro_batch_tokens, one.optimizer.lr, one.epochs) == (16, 100, 1e-5, 4.0)
    assert (one.seeds, one.grid.batch) == ((4,), ())
