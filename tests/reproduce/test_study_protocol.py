"""A paper's protocol becomes fine-tuning recipes."""

from pathlib import Path
from typing import Any

import pytest
from errors import raises

from lexome.errors import RecipeError, UsageError
from lexome.recipe import overrides_of
from lexome.recipe.finetune import FinetuneRecipe
from lexome.recipe.study import open_study
from lexome.reproduce.reproduce import StudyOptions, TaskPlan, require_free_keys, tasks_to_run


def plan(study: str, task: str, **options: Any) -> TaskPlan:
    """A task of a study."""
    opened = open_study(study)
    table = opened.task(task)
    protocol = opened.protocols[table.protocol]
    return TaskPlan(protocol, table, Path("checkpoint"), Path("out"), StudyOptions(Path("out"), **options))


def reported(study: str, task: str, variant: int = 0, **options: Any) -> FinetuneRecipe:
    """The recipe of the runs that a study reports for a task."""
    return plan(study, task, **options).report_recipe(variant)


def both(study: str, task: str, variant: int) -> tuple[FinetuneRecipe, FinetuneRecipe]:
    """The recipes of the runs that select a variant, and of those that are reported."""
    planned = plan(study, task)
    return planned.selection_recipe(variant), planned.report_recipe(variant)


def test_bioformers_grid_is_nine_cells_of_five_seeds() -> None:
    made = reported("fang2023", "NCBI-disease")
    assert (made.data.sets, made.seeds, made.epochs) == (("NCBI-disease",), (0, 1, 2, 3, 4), 20)
    assert (set(made.grid.batch), set(made.grid.lr)) == ({8, 16, 32}, {1e-5, 3e-5, 5e-5})


def test_bio_lm_selects_on_the_first_fold_and_reports_the_other_nine() -> None:
    first, second = both("lewis2020", "GAD", 3)
    assert first.folds is not None
    assert second.folds is not None
    assert (first.folds.use, second.folds.use) == ((0,), tuple(range(1, 10)))
    assert (first.epochs, second.epochs) == (4, 4)
    assert (first.seeds, second.seeds) == ((0,), (0, 1, 2, 3, 4))
    assert first.out != second.out


def test_bio_lm_has_the_learning_rate_of_its_code() -> None:
    made = reported("lewis2020", "ChemProt")
    assert (made.optimizer.lr, made.batch.sequences, made.evaluation.every) == (2e-5, 16, 200)


def test_biobert_selects_on_dev_and_then_trains_on_it_too() -> None:
    first, second = both("lee2020", "BC2GM", 1)
    assert (first.data.train, first.data.dev, first.score_test) == (("train",), "dev", "never")
    assert (second.data.train, second.data.dev, second.score_test) == (("train", "dev"), "none", "every")


def test_biomegatron_has_four_heads_and_one_word_level_dataset() -> None:
    heads = [plan("shin2020", "BC5CDR-chem").selection_recipe(variant).head for variant in range(4)]
    assert {(head.layers, head.hidden_size, head.dropout) for head in heads} == {
        (layers, width, 0.5) for layers in (1, 2) for width in (512, 1024)
    }
    labelling = {name: reported("shin2020", name).task["labelling"] for name in ("BC5CDR-chem", "NCBI-disease")}
    assert labelling == {"BC5CDR-chem": "pieces", "NCBI-disease": "words"}


def test_without_a_separate_selection_its_runs_are_reported() -> None:
    selection, report = both("shin2020", "ChemProt", 2)
    assert selection == report


def test_a_quick_recipe_has_one_run_early_stopping_and_its_own_folder() -> None:
    whole, quick = (reported("fang2023", "GAD", quick=quick) for quick in (False, True))
    assert quick.folds is not None
    assert (quick.seeds, quick.folds.use, quick.folds.dev_fraction) == ((0,), (0,), 0.1)
    assert (quick.grid.batch, quick.grid.lr) == (whole.grid.batch[:1], whole.grid.lr[:1])
    assert (whole.evaluation.patience, quick.evaluation.patience) == (None, 3)
    assert (whole.out.name, quick.out.name) == ("report", "quick-report")


def test_a_quick_recipe_without_dev_has_no_early_stopping() -> None:
    assert reported("fang2023", "SQuAD-1.1", quick=True).evaluation.patience is None


def test_a_quick_recipe_has_one_variant_and_no_selection_fold() -> None:
    whole, quick = (plan("lewis2020", "EU-ADR", quick=quick).variants for quick in (False, True))
    assert (len(whole), quick) == (8, [0])
    made = reported("lewis2020", "EU-ADR", quick=True)
    assert made.folds is not None
    assert made.folds.use == (1,)


def test_overrides_come_last() -> None:
    keys = {"grid": {"seeds": "first"}, "epochs": 2}
    made = reported("fang2023", "BC2GM", jobs=3, device="cpu", overrides=keys)
    assert (made.epochs, made.grid.seeds, made.jobs, made.device) == (2, "first", 3, "cpu")
    assert len(made.grid.batch) == 3


def test_squad_runs_before_the_tasks_that_start_from_it() -> None:
    names = [task.name for task in tasks_to_run(open_study("fang2023"), ["BioASQ-7b"])]
    assert names == ["SQuAD-1.1", "BioASQ-7b-after-SQuAD", "BioASQ-7b"]
    assert [task.name for task in tasks_to_run(open_study("fang2023"), ["HoC"])] == ["HoC"]


def test_an_unknown_task_is_refused() -> None:
    with raises(UsageError, code="unknown-task", value="MedNLI", mentions="BC2GM"):
        tasks_to_run(open_study("fang2023"), ["MedNLI"])


def test_a_key_without_a_value_is_removed() -> None:
    made = reported("fang2023", "BC2GM", overrides=overrides_of(["epochs=", "steps=7"]))
    assert (made.epochs, made.steps) == (None, 7)
    with pytest.raises(RecipeError):
        reported("fang2023", "BC2GM", overrides=overrides_of(["epochs="]))


@pytest.mark.parametrize(
    ("keys", "code", "value"),
    [
        ("optimizer.lr=1e-4", "overridden-by-grid", "optimizer.lr"),
        ("out=elsewhere", "reserved-key", "out"),
        ("data.root=elsewhere", "reserved-key", "data.root"),
    ],
)
def test_a_key_without_effect_is_refused(keys: str, code: str, value: str) -> None:
    overrides = overrides_of([keys])
    with raises(RecipeError, code=code, value=value):
        require_free_keys(overrides)
        reported("fang2023", "BC2GM", overrides=overrides)


def test_the_data_folder_is_in_the_recipe(tmp_path: Path) -> None:
    assert reported("fang2023", "BC2GM").data.root is None
    assert reported("fang2023", "BC2GM", data=tmp_path).data.root == tmp_path.resolve()
