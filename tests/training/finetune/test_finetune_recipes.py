"""Recipes of fine-tuning: every shipped one is valid, and what contradicts itself is refused."""

from math import inf
from pathlib import Path
from typing import Any

import pytest
from finetuning import recipe_of

from lexome.datasets import find
from lexome.recipe import explain, load
from lexome.recipe.finetune import FinetuneRecipe
from lexome.tasks import task_of
from lexome.training.finetune.examples import require_types
from lexome.training.finetune.grid import Cell, Run, cells_of, runs_of, settled

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
    ("keys", "said"),
    [
        ({"steps": 5, "grid": {"epochs": [1, 2]}}, "expected epochs, steps or grid.epochs"),
        ({"grid": {"batch": [8, 16]}}, "grid.batch takes the place of"),
        ({"grid": {"lr": [1e-5, 1e-5]}}, "each once"),
        ({"epochs": inf}, "finite number"),
        ({"optimizer": {"lr": inf}}, "finite number"),
        ({"optimizer": {"betas": [0.9, 1.0]}}, "less than 1"),
        ({"seeds": [1, 1]}, "each once"),
        ({"batch": {"sequences": 8, "tokens": 100}}, "both given"),
        ({"data": {"sets": ["BC2GM"], "folder": "x"}}, "either sets, a list of names, or folder"),
        ({"data": {"sets": ["BC2GM"], "train": ["train", "dev"]}}, "learnt from and chosen by"),
        ({"data": {"sets": ["BC2GM"], "dev": "none"}}, "evaluation.patience goes by scores on dev"),
        ({"data": {"sets": ["BC2GM"], "dev": "test"}, "score_test": "best"}, "chosen by and scored as test"),
        ({"data": {"sets": ["BC2GM"], "train": ["test"]}, "score_test": "best"}, "learnt from and scored as test"),
        ({"task": {"types": ["Gene"]}}, "with its kind"),
        ({"folds": {"count": 5, "use": [5]}, "evaluation": {}}, "the last of 5 is 4"),
        ({"attention_dropout": 1.5}, "less than 1"),
        ({"folds": {"count": 5}, "data": {"sets": ["BC2GM"], "dev_share": 0.1}}, "expected folds.dev"),
    ],
)
def test_a_recipe_that_contradicts_itself_is_refused(keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        recipe_of(Path("model"), Path("data"), Path("out"), **{"task": {"kind": "ner"}, **keys})


def test_a_run_is_a_recipe_of_its_own() -> None:
    grid = {"batch": [8, 16], "lr": [1e-5], "epochs": [2, 4]}
    keys: dict[str, Any] = {"grid": grid, "batch": {"pass_tokens": 100}, "seeds": [3, 4], "epochs": None}
    recipe = recipe_of(Path("model"), Path("data"), Path("out"), {"kind": "ner"}, **keys)
    runs = runs_of(cells_of(recipe.grid), recipe.seeds, [None])
    assert [run.name for run in runs[:3]] == [
        "batch8-lr1e-05-epochs2-seed3",
        "batch8-lr1e-05-epochs2-seed4",
        "batch8-lr1e-05-epochs4-seed3",
    ]
    one = settled(recipe, Run(Cell(16, 1e-5, 4.0), 4))
    assert (one.batch.sequences, one.batch.pass_tokens, one.optimizer.lr, one.epochs) == (16, 100, 1e-5, 4.0)
    assert (one.seeds, one.grid.batch) == ((4,), ())
