"""A small study from its file to its tables: a tiny model, tiny sets, on a CPU."""

import json
from math import nan
from pathlib import Path
from typing import Any

import pytest
from errors import raises
from finetuning import DRUGS, GENES, tiny_model
from typer.testing import CliRunner

from lexome.cli import app
from lexome.errors import CheckpointError, DataSetError, DivergedError, RecipeError, UsageError
from lexome.recipe.finetune import Cell, FinetuneRecipe, Run
from lexome.recipe.study import StudyRecipe, open_study
from lexome.reproduce.reproduce import QUICK, StudyOptions, _selection_score, reproduce
from lexome.training.finetune import stage
from lexome.training.finetune.stage import Finetuned, Row, Spread, Summary

STUDY = """
stage = "reproduce"
name = "small"
title = "A small study"
paper = "Nobody 2026"

[protocols.grid]
description = "Two rates, two seeds, the mean."
[protocols.grid.recipe]
epochs = 12
seeds = [0, 1]
keep_models = "none"
score_test = "every"
batch = { sequences = 5 }
grid = { lr = [1e-5, 1e-2] }

[protocols.folds]
description = "Epochs chosen on one fold, the median of two others."
select_on = "test"
folds = "median"
seeds = "median"
variants = [{ epochs = 1 }, { epochs = 2 }]
[protocols.folds.recipe]
keep_models = "none"
score_test = "every"
seeds = [0]
data = { dev = "none" }
[protocols.folds.selection]
folds = { use = [0] }
[protocols.folds.report]
folds = { use = [1, 2] }

[protocols.step]
description = "First this."
[protocols.step.recipe]
epochs = 1
keep_models = "best"
score_test = "every"

[[tasks]]
name = "NCBI-disease"
set = "NCBI-disease"
protocol = "grid"
metrics = ["f1", "recall"]
[[tasks]]
name = "BC2GM"
set = "BC2GM"
protocol = "grid"
[[tasks]]
name = "GAD"
set = "GAD"
protocol = "folds"
[[tasks]]
name = "first"
set = "NCBI-disease"
protocol = "step"
intermediate = true
[[tasks]]
name = "then"
set = "NCBI-disease"
protocol = "step"
init_from = "first"

[[averages]]
name = "all"
of = ["NCBI-disease", "BC2GM", "GAD"]

[[reported]]
table = "1"
model = "theirs"
[reported.values]
NCBI-disease = [50.0, 60.0]
BC2GM = 70.0
GAD = 80.0
all = 68.3
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """NCBI-disease and GAD of a few lines each, in their owners' forms."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "NCBI-disease").mkdir()
    for shift, name in enumerate(("train", "devel", "test")):
        sentences = (
            "".join(f"{word}\t{tag}\n" for word, tag in ((drug, "B"), ("blocks", "O"), (gene, "O"), (".", "O")))
            for drug, gene in zip((*DRUGS, *DRUGS), (*GENES[shift:], *GENES, *GENES), strict=False)
        )
        (folder / "NCBI-disease" / f"{name}.tsv").write_text("\n".join(sentences), encoding="utf-8")
    for fold in range(1, 11):
        place = folder / "GAD" / str(fold)
        place.mkdir(parents=True)
        rows = [
            f"{gene} {'blocks' if number % 2 else 'needs'} the {DRUGS[fold % 5]} in tumour .\t{number % 2}"
            for number, gene in enumerate(GENES)
        ]
        (place / "train.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
        numbered = (f"{number}\t{row}" for number, row in enumerate(rows))
        (place / "test.tsv").write_text("index\tsentence\tlabel\n" + "\n".join(numbered) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "small.toml"
    path.write_text(STUDY, encoding="utf-8")
    return path


def options(out: Path, data: Path, **keys: object) -> StudyOptions:
    return StudyOptions(out, data, device="cpu", progress_shown=False, **keys)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def done(study: Path, model: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a study that was run by the command."""
    out = tmp_path_factory.mktemp("done")
    words = ["reproduce", str(study), "--model", f"theirs={model}", "--data", str(data), "--out", str(out)]
    result = CliRunner().invoke(app, [*words, "--device", "cpu"])
    assert result.exit_code == 0, result.output
    return out


def test_a_study_runs_from_its_file_to_its_tables(done: Path) -> None:
    held = json.loads((done / "study.json").read_text())
    rows = {(row["task"], row["measure"]): row["ours"].get("theirs") for row in held["rows"]}
    assert [rows[key] is None for key in rows] == [False, False, True, False, False]
    assert rows["NCBI-disease", "f1"]["over"] == "seeds"
    # With the second of the two rates the names are learned, so dev chooses it.
    assert held["chosen"]["theirs"]["NCBI-disease"] == "lr0.01"
    assert rows["NCBI-disease", "f1"]["value"] > 90
    assert (rows["GAD", "f1"]["runs"], rows["GAD", "f1"]["over"]) == (2, "folds")
    assert (rows["then", "f1"]["runs"], rows["then", "f1"]["over"]) == (1, "documents")
    assert {path.name for path in done.iterdir()} == {
        *("runs", "study.json", "table.txt", "table.md", "table.html", "picture.png")
    }


def test_a_missing_dataset_is_listed_with_its_source(done: Path) -> None:
    (lost,) = json.loads((done / "study.json").read_text())["missing"]
    assert lost["task"] == "BC2GM"
    assert "train, dev, test" in lost["why"]
    assert "BioBERT" in lost["get"]
    table = (done / "table.txt").read_text()
    assert lost["get"] in table
    assert "BC2GM (missing)" in table


def test_overlapping_splits_are_reported(done: Path) -> None:
    # Every fold's test is its train: the sets are made so.
    assert (
        "Warning: GAD: fold 1: documents of test that are in train too: 5 by text" in (done / "table.txt").read_text()
    )


def test_the_papers_average_is_over_the_same_tasks(done: Path) -> None:
    (mean,) = json.loads((done / "study.json").read_text())["means"]
    assert (mean["of"], mean["left_out"]) == (["NCBI-disease", "GAD"], ["BC2GM"])
    # The mean of 55, which is that of NCBI-disease's two measures, and 80.
    assert mean["paper"] == {"theirs": 67.5}


def test_scores_are_those_of_the_runs(done: Path) -> None:
    held = json.loads((done / "study.json").read_text())
    folder = done / "runs" / "theirs" / "NCBI-disease" / "report"
    summary = json.loads((folder / "summary.json").read_text())
    best = summary["rows"][summary["best"]]
    assert held["rows"][0]["ours"]["theirs"]["value"] == pytest.approx(100 * best["spreads"]["test"]["f1"]["mean"])
    assert len(best["runs"]) == 2


def test_finished_runs_are_not_repeated(done: Path, study: Path, model: Path, data: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in done.rglob("metrics.jsonl")}
    again = reproduce(open_study(study), {"theirs": model}, options(done, data))
    assert {path: path.stat().st_mtime_ns for path in done.rglob("metrics.jsonl")} == before
    first = json.loads((done / "study.json").read_text())
    assert again.model_dump(mode="json")["rows"] == first["rows"]


def test_scores_with_other_settings_are_not_replaced(
    done: Path, study: Path, model: Path, data: Path, tmp_path: Path
) -> None:
    before = (done / "study.json").read_bytes()
    words = ["reproduce", str(study), "--model", f"theirs={model}", "--data", str(data), "--out", str(done)]
    result = CliRunner().invoke(app, [*words, "--device", "cpu", "--set", "epochs=3"])
    assert (type(result.exception), getattr(result.exception, "code", None)) == (UsageError, "other-settings")
    other = tiny_model(tmp_path / "other", seed=1)
    with raises(UsageError, code="other-settings"):
        reproduce(open_study(study), {"theirs": other}, options(done, data))
    renamed = open_study(study).model_copy(update={"name": "large"})
    with raises(UsageError, code="other-settings", value="study"):
        reproduce(renamed, {"theirs": model}, options(done, data))
    assert (done / "study.json").read_bytes() == before


def test_a_second_run_that_fails_midway_keeps_the_table(study: Path, model: Path, data: Path, tmp_path: Path) -> None:
    words = ["reproduce", str(study), "--data", str(data), "--out", str(tmp_path / "out"), "--device", "cpu", "--quick"]
    words += ["--only", "GAD", "--model", f"a={model}"]
    assert CliRunner().invoke(app, [*words, "--model", f"b={model}"]).exit_code == 0
    before = (tmp_path / "out" / "study.json").read_bytes()
    other = tiny_model(tmp_path / "other", seed=1)
    result = CliRunner().invoke(app, [*words, "--model", f"b={other}"])
    assert getattr(result.exception, "code", None) == "other-settings"
    assert (tmp_path / "out" / "study.json").read_bytes() == before


def test_a_quick_study_has_one_run_per_task(study: Path, model: Path, data: Path, tmp_path: Path) -> None:
    found = reproduce(
        open_study(study), {"m": model}, options(tmp_path, data, quick=True, only=("NCBI-disease", "GAD"))
    )
    assert found.changes[0] == f"quick: {QUICK}"
    counts = {row.task: row.ours["m"].runs for row in found.rows if row.ours}
    assert counts == {"NCBI-disease": 1, "GAD": 1, "then": 1}
    assert sorted(path.parent.name for path in (tmp_path / "runs" / "m" / "NCBI-disease").rglob("run.json")) == [
        "lr1e-05-seed0"
    ]


def test_the_full_study_keeps_the_runs_of_a_quick_one(study: Path, model: Path, data: Path, tmp_path: Path) -> None:
    found = []
    for quick in (True, False):
        reproduce(open_study(study), {"m": model}, options(tmp_path, data, quick=quick, only=("GAD",)))
        found.append({path.parent: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.jsonl")})
    first, both = found
    assert len(first) == 1
    # Two variants on the fold that chooses, and two folds of the better one.
    assert len(both) == 5
    assert first.items() <= both.items()


def test_parallel_tasks_give_the_same_result(study: Path, model: Path, data: Path, tmp_path: Path) -> None:
    found = []
    for jobs in (1, 2):
        chosen = options(tmp_path / str(jobs), data, quick=True, only=("NCBI-disease", "GAD"), jobs=jobs)
        found.append(reproduce(open_study(study), {"m": model}, chosen).model_dump(mode="json")["rows"])
    assert found[0] == found[1]
    assert {row["task"] for row in found[0] if row["ours"]} == {"NCBI-disease", "GAD", "then"}


def test_a_failed_task_is_listed_and_the_others_run(study: Path, model: Path, data: Path, tmp_path: Path) -> None:
    keys = {"evaluation": {"metric": "accuracy"}}
    found = reproduce(
        open_study(study),
        {"m": model},
        options(tmp_path, data, quick=True, only=("NCBI-disease", "GAD"), overrides=keys),
    )
    failed = {lost.task: lost.reason for lost in found.missing}
    assert "accuracy" in failed["NCBI-disease"]
    assert {row.task for row in found.rows if row.ours} == {"GAD"}
    assert {row.task for row in found.rows} == {"NCBI-disease", "GAD", "then"}


def test_a_study_without_any_data_is_refused(study: Path, model: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with raises(DataSetError, code="no-data", value="small", mentions="BC2GM"):
        reproduce(open_study(study), {"m": model}, options(tmp_path / "out", tmp_path / "empty"))


def test_an_invalid_checkpoint_ends_the_study(study: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError):
        reproduce(open_study(study), {"m": tmp_path}, options(tmp_path / "out", data))


@pytest.mark.parametrize(
    ("models", "code", "value"),
    [
        (["a=/nowhere"], "missing-file", "/nowhere"),
        (["a=.", "a=."], "duplicate-model", "a"),
        (["a/b=."], "invalid-model", "a/b=."),
    ],
)
def test_missing_models_and_duplicate_names_are_refused(models: list[str], code: str, value: str) -> None:
    words = ["reproduce", "fang2023", *(word for model in models for word in ("--model", model))]
    result = CliRunner().invoke(app, words)
    assert isinstance(result.exception, UsageError)
    assert (result.exception.code, result.exception.value) == (code, value)


def test_the_study_is_valid(study: Path) -> None:
    assert isinstance(open_study(study), StudyRecipe)


def test_a_fold_that_selects_is_never_reported(study: Path, model: Path, data: Path, tmp_path: Path) -> None:
    keys = {"folds": {"use": [0, 1]}}
    with raises(RecipeError, code="overlapping-folds", value=(0, 1)):
        reproduce(open_study(study), {"m": model}, options(tmp_path, data, only=("GAD",), overrides=keys))


def test_folds_without_a_statistic_are_refused_before_any_run(
    study: Path, model: Path, data: Path, tmp_path: Path
) -> None:
    keys = {"folds": {"count": 2, "dev_fraction": 0.2}}
    with raises(RecipeError, code="no-fold-statistic", value="folds"):
        reproduce(open_study(study), {"m": model}, options(tmp_path, data, only=("NCBI-disease",), overrides=keys))
    assert not list(tmp_path.rglob("run.json"))


def test_a_quick_run_of_random_folds_has_an_interval(model: Path, data: Path, tmp_path: Path) -> None:
    path = tmp_path / "drawn.toml"
    path.write_text(
        STUDY.replace("score_test", "folds = { count = 2, dev_fraction = 0.2 }\nscore_test", 1).replace(
            "[protocols.grid.recipe]", 'folds = "mean"\n[protocols.grid.recipe]'
        ),
        encoding="utf-8",
    )
    found = reproduce(open_study(path), {"m": model}, options(tmp_path, data, only=("NCBI-disease",), quick=True))
    assert {row.ours["m"].over for row in found.rows} == {"documents"}


def test_a_variant_with_an_undefined_score_is_never_selected(tmp_path: Path) -> None:
    def found(score: float) -> Finetuned:
        cell = Row(Cell(), (), {"dev": {"pearson": Spread.of([score])}})
        return Finetuned(tmp_path, Summary("pearson", (cell,), 0, None, (), {}), None)

    scores = {number: _selection_score(found(score), "dev") for number, score in enumerate((nan, -0.5))}
    assert max(scores, key=lambda number: scores[number]) == 1


@pytest.mark.parametrize(
    ("keys", "code", "value"),
    [({"epoch": 1}, "unknown-key", "epoch"), ({"data": {"dev": "test"}}, "invalid-value", "data.test")],
)
def test_a_wrong_key_is_refused_with_the_task(
    keys: dict[str, object], code: str, value: str, study: Path, model: Path, data: Path, tmp_path: Path
) -> None:
    with raises(RecipeError, code=code, value=value, mentions="NCBI-disease: "):
        reproduce(open_study(study), {"m": model}, options(tmp_path, data, only=("NCBI-disease",), overrides=keys))


def test_runs_that_diverge_are_named_and_the_others_reported(
    study: Path, model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One learning rate diverges with one seed, one variant altogether."""
    finished = stage.run_once

    def diverging(recipe: FinetuneRecipe, run: Run, *rest: Any, **keys: Any) -> Any:
        if run.name == "lr0.01-seed1" or (recipe.folds is not None and recipe.epochs == 2):
            raise DivergedError("the loss is NaN at step 3.", code="diverged", value=3)
        return finished(recipe, run, *rest, **keys)

    monkeypatch.setattr(stage, "run_once", diverging)
    found = reproduce(open_study(study), {"m": model}, options(tmp_path, data, only=("NCBI-disease", "GAD")))
    assert [lost.task for lost in found.missing] == []
    estimates = {row.task: row.ours["m"] for row in found.rows if row.ours}
    # One of two seeds at the best learning rate; both folds of the variant that did not diverge.
    assert (estimates["NCBI-disease"].runs, estimates["GAD"].runs) == (1, 2)
    assert set(found.failed["m"]["NCBI-disease"]) == {"report/lr0.01-seed1"}
    assert set(found.failed["m"]["GAD"]) == {"choose-1"}
    assert "step 3" in found.failed["m"]["GAD"]["choose-1"]
