"""Tables of studies: ours beside the paper's, averages over what is there, and what is missing said aloud."""

import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from errors import raises

from lexome.errors import UsageError
from lexome.recipe.study import open_study, shipped
from lexome.reproduce.aggregate import Estimate, MissingTask, StudyResult, lab_ranges, study_result
from lexome.reproduce.tables import (
    column_names,
    html_page,
    markdown_page,
    merge_results,
    read_result,
    report,
    text_table,
    write_result,
)

BIOBERT = "BioBERT-v1.1"
LOST = MissingTask(task="LitCovid", set="LitCovid", reason="incomplete; missing: train, dev", source="Ask NCBI.")


def estimate(number: float) -> Estimate:
    """A number of five runs."""
    return Estimate(value=number, runs=5, low=number - 1, high=number + 1, level=0.95, over="seeds")


def fang(model: str = BIOBERT, *, quick: bool = False, shift: float = 0.0) -> StudyResult:
    """A result of some of Bioformer's tasks."""
    numbers = {"HoC": ("f1", 86.0), "NCBI-disease": ("f1", 88.0), "s800": ("f1", 60.0)}
    return study_result(
        open_study("fang2023"),
        {model: {task: {measure: estimate(number + shift)} for task, (measure, number) in numbers.items()}},
        models={model: "somewhere"},
        missing=[LOST],
        ranges=lab_ranges(shipped()),
        quick=quick,
        changes=["quick: one seed"] if quick else [],
        environment={"date": "2026-11-15", "lexome": "0"},
    )


def test_averages_of_ours_and_the_paper_are_over_the_same_tasks() -> None:
    means = {mean.name: mean for mean in fang().averages}
    # (88.48 + 74.78) / 2 of table 3; the paper's own average of eight sets is 85.03.
    assert means["NER"].ours[BIOBERT] == pytest.approx(74)
    assert means["NER"].paper[BIOBERT] == pytest.approx(81.63)
    assert means["NER"].printed[BIOBERT] == 85.03
    assert set(means["NER"].of) == {"NCBI-disease", "s800"}
    assert len(means["NER"].left_out) == 6


def test_an_average_without_any_task_is_dropped() -> None:
    assert {mean.name for mean in fang().averages} == {"NER", "DC", "Overall"}


def test_a_complete_average_equals_the_printed_one() -> None:
    study = open_study("fang2023")
    theirs = next(row for row in study.reported if row.model == "Bioformer-8L").values
    estimates: dict[str, dict[str, Estimate]] = {}
    for task in study.tasks:
        if not task.intermediate:
            given = theirs[task.name]
            each = given if isinstance(given, tuple) else (given,)
            estimates[task.name] = {
                measure: estimate(number) for measure, number in zip(task.metrics, each, strict=True)
            }
    found = study_result(study, {"mine": estimates}, models={"mine": "x"}, missing=[], ranges={})
    overall = next(mean for mean in found.averages if mean.name == "Overall")
    assert overall.left_out == ()
    assert overall.ours["mine"] == pytest.approx(82.07, abs=0.005)
    assert overall.paper["Bioformer-8L"] == pytest.approx(overall.ours["mine"])


def test_scores_within_the_range_between_labs_are_counted() -> None:
    # 88 lies between 87.5 and 89.71; 60 is below every lab's s800. HoC's measure is one lab's alone.
    assert fang().within_lab_ranges() == (1, 2)
    assert fang("mine").within_lab_ranges() == (0, 0)


def test_a_model_of_the_paper_has_a_difference_column() -> None:
    assert "Δ paper" in column_names(fang())
    assert "Δ paper" not in column_names(fang("mine"))
    line = next(line for line in text_table(fang()).splitlines() if line.startswith("NCBI-disease"))
    assert line.split()[2:8] == ["88.00", "[87.00,", "89.00]", "-0.48", "87.5–89.71", "(5)"]


@pytest.mark.parametrize("render", [text_table, markdown_page, html_page])
def test_every_table_lists_missing_tasks_and_quick_runs(render: object) -> None:
    assert callable(render)
    whole, quick = render(fang()), render(fang(quick=True))
    for said in ("LitCovid", "missing: train, dev", "Ask NCBI."):
        assert said in whole
    assert "quick: one seed" in quick
    assert "quick" not in whole.replace('class="quick"', "").replace(".quick", "")


def test_decisions_are_in_markdown_and_not_in_text() -> None:
    decision = fang().decisions[1].decided
    assert decision in markdown_page(fang())
    assert decision not in text_table(fang())


@pytest.mark.parametrize("render", [markdown_page, html_page])
def test_pages_have_the_description_of_the_study(render: Callable[[StudyResult], str]) -> None:
    assert "best on dev" in fang().description
    assert fang().description in render(fang())


def test_all_rows_of_the_html_table_have_as_many_cells() -> None:
    class Cells(HTMLParser):
        rows: list[int]

        def __init__(self) -> None:
            super().__init__()
            self.rows = []

        def handle_starttag(self, tag: str, attrs: object) -> None:
            if tag == "tr":
                self.rows.append(0)
            elif tag in ("td", "th"):
                self.rows[-1] += 1

    cells = Cells()
    cells.feed(html_page(fang()))
    assert set(cells.rows) == {len(column_names(fang()))}
    assert len(cells.rows) > 10


def test_results_round_trip(tmp_path: Path) -> None:
    files = write_result(fang(), tmp_path)
    assert {path.name for path in files} == {"study.json", "table.txt", "table.md", "table.html", "picture.png"}
    assert read_result(tmp_path / "study.json") == fang()
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_a_study_of_checkpoints_is_plotted_as_curves(tmp_path: Path) -> None:
    found = study_result(
        open_study("shin2020-transfer"),
        {steps: {"BC5CDR-chem": {"f1": estimate(number)}} for steps, number in (("1000", 60.0), ("10000", 70.0))},
        models={"1000": "a", "10000": "b"},
        missing=[],
        ranges={},
    )
    write_result(found, tmp_path)
    assert found.curve == "steps of continued pre-training"
    assert (tmp_path / "picture.png").stat().st_size > 10_000


def test_results_of_one_study_are_merged() -> None:
    (found,) = merge_results([fang(), fang("mine", shift=1.0)])
    assert list(found.models) == [BIOBERT, "mine"]
    row = next(row for row in found.rows if row.task == "HoC")
    assert {model: of.value for model, of in row.ours.items()} == {BIOBERT: 86, "mine": 87}
    assert [lost.task for lost in found.missing] == ["LitCovid"]


def test_tasks_of_one_model_are_merged() -> None:
    first, second = fang(), fang()
    parts = [
        first.model_copy(update={"rows": tuple(row for row in first.rows if row.task == "HoC")}),
        second.model_copy(update={"rows": tuple(row for row in second.rows if row.task == "s800")}),
    ]
    (found,) = merge_results(parts)
    assert [row.task for row in found.rows] == ["s800", "HoC"]
    assert next(mean for mean in found.averages if mean.name == "NER").of == ("s800",)


def test_results_of_a_user_study_stay_separate(tmp_path: Path) -> None:
    for name in (BIOBERT, "mine"):
        write_result(fang(name).model_copy(update={"study": "own"}), tmp_path / "runs" / name)
    assert list(report([tmp_path / "runs"], tmp_path / "report").studies) == ["own", "own-2"]


def test_quick_and_full_results_stay_separate() -> None:
    assert len(merge_results([fang(), fang("mine", quick=True)])) == 2


def test_a_report_links_studies_and_lists_fine_tunings(tmp_path: Path) -> None:
    write_result(fang(), tmp_path / "in" / "a")
    write_result(fang("mine"), tmp_path / "in" / "b")
    (tmp_path / "in" / "other.json").write_text("[1]")
    row = {
        "cell": {"batch": 16, "lr": 3e-5, "epochs": None},
        "runs": ["x", "y"],
        "spreads": {"test": {"f1": {"mean": 0.5, "sd": 0.01}}},
    }
    tuned = {"measure": "f1", "best": 0, "rows": [row]}
    for place in ("tuned", "a/runs/inside"):
        (tmp_path / "in" / place).mkdir(parents=True)
        (tmp_path / "in" / place / "summary.json").write_text(json.dumps(tuned))
    done = report([tmp_path / "in"], tmp_path / "out")
    assert (list(done.studies), done.finetunings) == (["fang2023"], 1)
    index = (tmp_path / "out" / "index.md").read_text()
    assert f"| [fang2023](fang2023/table.md) | {BIOBERT}, mine | 3 | 1 |" in index
    assert "| tuned | f1 | batch 16, lr 3e-05 | 2 | – | 50.00 ± 1.00 |" in index
    assert (tmp_path / "out" / "fang2023" / "table.html").is_file()


def test_a_study_with_overrides_is_separate_in_a_report(tmp_path: Path) -> None:
    write_result(fang(), tmp_path / "whole")
    write_result(fang().model_copy(update={"changes": ("data.limit 60",)}), tmp_path / "cut")
    tuned = {"measure": None, "best": 0, "rows": [{"cell": {}, "runs": ["x"], "spreads": {}}]}
    (tmp_path / "tuned").mkdir()
    (tmp_path / "tuned" / "summary.json").write_text(json.dumps(tuned))
    done = report([tmp_path / name for name in ("whole", "cut", "tuned")], tmp_path / "out")
    assert [result.changes for result in done.studies.values()] == [(), ("data.limit 60",)]
    assert list(done.studies) == ["fang2023", "fang2023-2"]
    assert "| tuned |" in (tmp_path / "out" / "index.md").read_text()


def test_a_report_of_nothing_is_refused(tmp_path: Path) -> None:
    with raises(UsageError, code="nothing-to-report", value=[tmp_path]):
        report([tmp_path], tmp_path / "out")
    with raises(UsageError, code="missing-folder", value=tmp_path / "nowhere"):
        report([tmp_path / "nowhere"], tmp_path / "out")
    (tmp_path / "study.json").write_text("{}")
    with raises(UsageError, code="not-a-result", value=tmp_path / "study.json"):
        report([tmp_path], tmp_path / "out")


def test_failed_runs_are_listed_below_every_table(tmp_path: Path) -> None:
    failed = {BIOBERT: {"HoC": {"report/lr1-seed0": "the loss is NaN."}}}
    result = fang().model_copy(update={"failed": failed})
    for page in (text_table(result), markdown_page(result), html_page(result)):
        assert "report/lr1-seed0: the loss is NaN" in page
    write_result(result, tmp_path)
    assert read_result(tmp_path / "study.json").failed == failed
    (merged,) = merge_results([result, fang("mine")])
    assert merged.failed == failed
