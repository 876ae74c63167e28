"""Studies: every shipped file is valid, its numbers are the papers', and what contradicts itself is refused."""

import csv
import statistics
from pathlib import Path
from typing import Any

import pytest
from errors import raises, rejects
from shared_data import SHARED

from lexome.datasets import names
from lexome.errors import RecipeError, UsageError
from lexome.recipe import explain, load, merge
from lexome.recipe.study import StudyRecipe, open_study, shipped
from lexome.reproduce.aggregate import reported_values, study_result

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "studies").glob("*.toml"))
TARGETS = SHARED / "targets.csv"
# Sets that Lexome does not read; the study says where they are to be had.
UNREAD = {"CoNLL-2003"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_shipped_study_is_valid(path: Path, tmp_path: Path) -> None:
    made = load(path, StudyRecipe)
    (tmp_path / "again.toml").write_text(explain(made), encoding="utf-8")
    assert load(tmp_path / "again.toml", StudyRecipe) == made
    assert open_study(path).name == path.stem


def test_the_four_papers_are_there() -> None:
    assert {"lee2020", "lewis2020", "fang2023", "shin2020"} <= {study.name for study in shipped()}


def test_every_dataset_is_known() -> None:
    unknown = {task.set: task.source for study in shipped() for task in study.tasks if task.set not in names()}
    assert set(unknown) == UNREAD
    assert all(unknown.values())


def test_a_task_of_one_name_is_the_same_everywhere() -> None:
    seen: dict[str, set[tuple[str, str | None]]] = {}
    for study in shipped():
        for task in study.tasks:
            seen.setdefault(task.name, set()).add((task.set, task.init_from))
    assert [name for name, kinds in seen.items() if len(kinds) > 1] == []


# Printed with one decimal: BioLM-base's clinical rows give 85.04, and 85.1 is printed.
@pytest.mark.parametrize("name", ["lewis2020", "fang2023"])
def test_printed_averages_follow_from_the_printed_rows(name: str) -> None:
    study = open_study(name)
    whole = study_result(study, {}, models={}, missing=(), ranges={})
    assert whole.averages == ()
    rows: dict[str, dict[str, list[float]]] = {}
    for row in study.reported:
        for task, _, number in reported_values(study, row):
            rows.setdefault(row.model, {}).setdefault(task, []).append(number)
    for row in study.reported:
        given = {task: statistics.fmean(values) for task, values in rows[row.model].items()}
        for average in study.averages:
            given[average.name] = statistics.fmean(given[item] for item in average.of)
            assert row.values[average.name] == pytest.approx(given[average.name], abs=0.062), (row.model, average.name)


def _renamed(dataset: str, study: str) -> str:
    if dataset.startswith("I2B2"):
        return dataset.replace("I2B2", "i2b2")
    if study == "lee2020" and dataset.startswith("BioASQ"):
        return f"{dataset}-after-SQuAD"
    return dataset.replace("+SQuAD", "-after-SQuAD")


@pytest.mark.skipif(not TARGETS.is_file(), reason="the list of the papers' numbers is not here")
def test_every_value_is_in_the_list_of_reported_values() -> None:
    listed: dict[str, set[tuple[str, float]]] = {}
    with TARGETS.open(encoding="utf-8") as stream:
        for line in csv.DictReader(stream):
            own = listed.setdefault(line["study"], set())
            own.add((_renamed(line["dataset"], line["study"]), float(line["value"])))
    for study in shipped():
        paper = study.name.partition("-")[0]
        found = {
            (task, number)
            for row in study.reported
            if row.lab is None
            for task, _, number in reported_values(study, row)
        }
        assert found - listed[paper] == set()
    opened = {study.name: study for study in shipped()}
    scored = {"lewis2020": "2", "fang2023": "3", "shin2020": "1", "lee2020": "NER"}
    with TARGETS.open(encoding="utf-8") as stream:
        for line in csv.DictReader(stream):
            study = opened[line["study"]]
            if line["table"] == scored[line["study"]] and line["metric"] != "mean":
                rows = [row for row in study.reported if row.model == line["model"]]
                own = {
                    pair for row in rows for task, _, number in reported_values(study, row) for pair in [(task, number)]
                }
                assert (_renamed(line["dataset"], line["study"]), float(line["value"])) in own


def small(**changes: Any) -> dict[str, Any]:
    """A study of one task, as its file gives it."""
    base = {
        "stage": "reproduce",
        "name": "small",
        "title": "A small study",
        "paper": "Nobody 2026",
        "protocols": {"plain": {"description": "Once.", "recipe": {"epochs": 1}}},
        "tasks": [{"name": "NCBI-disease", "set": "NCBI-disease", "protocol": "plain"}],
    }
    return merge(base, changes)


def after(name: str, other: str | None) -> dict[str, Any]:
    """A task that comes after another."""
    return {"name": name, "set": "NCBI-disease", "protocol": "plain", "init_from": other}


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"tasks": []}, "tasks"),
        ({"tasks": [{"name": "a", "set": "BC2GM", "protocol": "grand"}]}, "protocol grand"),
        ({"averages": [{"name": "all", "of": ["BC2GM"]}]}, "task BC2GM"),
        ({"tasks": [after("a", "b"), after("b", "a")]}, "a"),
        ({"tasks": [after("a", None), after("b", "b")]}, "b"),
        ({"averages": [{"name": "x", "of": ["NCBI-disease", "y"]}, {"name": "y", "of": ["x"]}]}, "x"),
        ({"reported": [{"table": "1", "model": "m", "values": {"NCBI-disease": [1, 2]}}]}, "reported.NCBI-disease"),
        ({"protocols": {"plain": {"recipe": {"epochs": 0}}}}, "NCBI-disease.epochs"),
        ({"protocols": {"plain": {"recipe": {"epoch": 1}}}}, "NCBI-disease.epoch"),
        ({"protocols": {"plain": {"recipe": {"out": "x"}}}}, "NCBI-disease.out"),
        ({"protocols": {"plain": {"selection": {"seeds": [0]}}}}, "protocols.plain.selection"),
        ({"protocols": {"plain": {"recipe": {"folds": {"use": [0]}}}}}, "protocols.plain.folds"),
        (
            {
                "protocols": {
                    "plain": {
                        "select_on": "test",
                        "variants": [{"epochs": 1}, {"epochs": 2}],
                        "selection": {"folds": {"use": [0]}},
                        "report": {"folds": {"use": [0, 1]}},
                    }
                }
            },
            "protocols.plain.select_on",
        ),
        ({"protocols": {"plain": {"select_on": "test", "variants": [{"epochs": 1}]}}}, "protocols.plain.select_on"),
    ],
)
def test_contradictory_studies_are_rejected(changes: dict[str, Any], key: str) -> None:
    with rejects(key):
        StudyRecipe.model_validate(small(**changes))


def test_the_small_study_itself_is_valid() -> None:
    assert StudyRecipe.model_validate(small()).task("NCBI-disease").metrics == ("f1",)


def test_selection_may_use_folds_where_the_report_does_not() -> None:
    keys = {"variants": [{"epochs": 1}, {"epochs": 2}], "selection": {"folds": {"count": 3, "dev_fraction": 0.2}}}
    study = StudyRecipe.model_validate(small(protocols={"plain": keys}))
    assert study.protocols["plain"].folds is None
    with rejects("protocols.plain.folds"):
        StudyRecipe.model_validate(small(protocols={"plain": keys | {"report": {"folds": {"use": [0]}}}}))


def test_an_unknown_study_is_refused_with_the_known_names() -> None:
    with raises(UsageError, code="unknown-study", value="lee2021", mentions="lee2020"):
        open_study("lee2021")


def test_an_ablation_has_the_tasks_and_averages_of_its_paper() -> None:
    parent, child = open_study("lewis2020"), open_study("lewis2020-ablation")
    assert child.tasks == parent.tasks
    assert child.averages == parent.averages
    assert child.reported != parent.reported


def test_a_single_task_comes_with_its_intermediate_tasks(tmp_path: Path) -> None:
    tasks = [after("a", None), after("b", "a"), after("c", "b"), after("d", None)]
    (tmp_path / "small.toml").write_text(explain(StudyRecipe.model_validate(small(tasks=tasks))), encoding="utf-8")
    mine = 'stage = "reproduce"\nname = "mine"\ntitle = "T"\npaper = "P"\nextends = "small"\nonly = ["c"]\n'
    (tmp_path / "mine.toml").write_text(mine, encoding="utf-8")
    assert [task.name for task in open_study(tmp_path / "mine.toml").tasks] == ["a", "b", "c"]


def test_a_study_that_extends_itself_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('stage = "reproduce"\nname = "mine"\ntitle = "T"\npaper = "P"\nextends = "mine"\n')
    with raises(RecipeError, code="circular-extends", value="mine"):
        open_study(path)
