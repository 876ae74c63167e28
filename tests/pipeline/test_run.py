"""Bulk work: what is done is not done twice, what fails fails alone, parts make a whole."""

import json
import os
import sys
from pathlib import Path

import bulk
import pytest
from errors import raises

from lexome import progress
from lexome.errors import MissingExtraError, PartialError, UsageError, WorkerError
from lexome.files import fingerprint
from lexome.pipeline import Engine, Job, Part, Stage, StageResult, require_complete, run
from lexome.pipeline.stage import check

HERE = Engine(workers=0)
POOL = Engine(workers=2)
GENES = {"brca1": "BRCA1 binds.", "tp53": "TP53 is mutated in cancer. " * 9, "egfr": "EGFR signals."}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return bulk.texts(tmp_path, GENES)


@pytest.mark.parametrize("engine", [HERE, POOL])
def test_outputs_and_reports_are_made_in_the_order_of_the_jobs(folder: Path, engine: Engine) -> None:
    outcome = run(bulk.stage(folder), engine=engine)
    assert list(outcome.reports) == ["texts/brca1", "texts/egfr", "texts/tp53"]
    assert outcome.reports["texts/egfr"] == {"letters": 13, "kinds": [12]}
    assert (folder / "out" / "egfr.txt").read_text() == "EGFR SIGNALS."
    assert outcome.done


def test_processes_and_none_make_the_same_bytes(folder: Path) -> None:
    run(bulk.stage(folder), engine=HERE)
    alone = bulk.made(folder)
    for name in alone:
        if alone[name] != b"folder":
            (folder / name).unlink()
    run(bulk.stage(folder), engine=POOL)
    assert bulk.made(folder) == alone


def test_what_is_done_is_not_done_again_and_its_report_is_the_same(folder: Path) -> None:
    first = run(bulk.stage(folder), engine=HERE)
    # This work would fail on every job, if it were called.
    again = run(bulk.stage(folder, no_work), engine=HERE)
    assert again == first


def no_work(job: Job, drafts: object, advance: object) -> dict[str, object]:
    raise AssertionError(job.name)


def redone(folder: Path, settings: object = bulk.PAUSE_S) -> list[str]:
    return sorted(run(bulk.stage(folder, no_work, settings=settings), engine=HERE).failures)


def test_other_settings_make_every_job_stale(folder: Path) -> None:
    run(bulk.stage(folder), engine=HERE)
    assert len(redone(folder, settings=0.0)) == 3


def test_a_changed_input_makes_its_job_stale(folder: Path) -> None:
    run(bulk.stage(folder), engine=HERE)
    path = folder / "in" / "tp53.txt"
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    assert redone(folder) == ["texts/tp53"]


@pytest.mark.parametrize("damage", ["", "short"])
def test_a_missing_or_cut_output_is_made_again(folder: Path, damage: str) -> None:
    run(bulk.stage(folder), engine=HERE)
    (folder / "out" / "egfr.tsv").unlink()
    if damage:
        (folder / "out" / "egfr.tsv").write_text(damage)
    assert redone(folder) == ["texts/egfr"]


@pytest.mark.parametrize("content", ["", "{", "[]", "{}"])
def test_a_damaged_mark_is_no_mark(folder: Path, content: str) -> None:
    run(bulk.stage(folder), engine=HERE)
    (folder / "marks" / "texts" / "egfr.json").write_text(content)
    assert redone(folder) == ["texts/egfr"]


def test_a_tree_that_was_moved_is_still_done(folder: Path, tmp_path: Path) -> None:
    run(bulk.stage(folder), engine=HERE)
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("in", "out", "marks"):
        (folder / name).rename(moved / name)
    assert redone(moved) == []


def test_a_failed_redo_keeps_earlier_outputs_but_not_as_done(folder: Path) -> None:
    run(bulk.stage(folder), engine=HERE)
    before = bulk.made(folder)
    outcome = run(bulk.stage(folder, no_work, settings=0.0), engine=HERE)
    assert (bulk.made(folder), outcome.reports) == (before, {})


def test_the_mark_of_earlier_outputs_goes_before_they_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between two renames, a run with new settings leaves nothing that a run with the old takes for its own."""
    run(bulk.stage(folder), engine=HERE)
    replace = Path.replace

    def killed_after(self: Path, target: Path) -> None:
        replace(self, target)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", killed_after)
        with pytest.raises(KeyboardInterrupt):
            run(bulk.stage(folder, settings=0.0), engine=HERE)
    assert len(redone(folder)) == 1


POISONS = {
    "SIGKILL": "its worker process was killed by SIGKILL",
    "EXIT": "its worker process ended with exit code 3, 2 times",
    "LEAVE": "SystemExit: left (bulk.py, line ",
    "RAISE": "ValueError: no such gene (bulk.py, line ",
    "FULL": "no space left ",
    "REFUSE": "this is no file of mine",
    "SILENT": "badSILENT.txt",
    "UNSAYABLE": "TypeError: Object of type PosixPath is not JSON serializable",
}


def test_poisonous_jobs_fail_alone_by_name_and_leave_nothing(tmp_path: Path) -> None:
    folder = bulk.texts(tmp_path, {**{f"bad{first}": first for first in POISONS}, **GENES})
    outcome = run(bulk.stage(folder, bulk.choke_on_poison), engine=POOL)
    assert list(outcome.reports) == ["texts/brca1", "texts/egfr", "texts/tp53"]
    told = {name.removeprefix("texts/bad"): why for name, why in outcome.failures.items()}
    assert {first: why[: len(POISONS[first])] for first, why in told.items()} == POISONS
    assert [name for name in bulk.made(folder) if "bad" in name or "part" in name] == []


def test_a_job_whose_worker_dies_once_is_done(tmp_path: Path) -> None:
    folder = bulk.texts(tmp_path, {"bad": "ONCE", **GENES})
    outcome = run(bulk.stage(folder, bulk.choke_on_poison), engine=POOL)
    assert (outcome.done, len(outcome.reports)) == (True, 4)


def test_a_missing_input_fails_its_job_alone(folder: Path) -> None:
    stage = bulk.stage(folder)
    (folder / "in" / "egfr.txt").unlink()
    outcome = run(stage, engine=HERE)
    assert "No such file or directory" in outcome.failures["texts/egfr"]
    assert len(outcome.reports) == 2


def test_an_input_that_grows_while_it_is_read_is_not_marked_as_done(folder: Path) -> None:
    outcome = run(bulk.stage(folder, grow), engine=HERE)
    assert "input changed" in outcome.failures["texts/egfr"]


def grow(job: Job, drafts: tuple[Path, ...], advance: object) -> dict[str, object]:
    with job.inputs[0].open("a") as file:
        file.write("more")
    for draft in drafts:
        draft.write_text("")
    return {}


def test_workers_that_cannot_start_are_an_error_and_not_every_jobs_failure(folder: Path) -> None:
    """A stand-in for a script without a main guard: the work is not found by a new process."""
    lost = bulk.stage(folder, gone)
    with raises(WorkerError, code="workers-not-starting", mentions="exit code 1"):
        run(lost, engine=POOL)


class Gone:
    def __call__(self, job: Job, drafts: tuple[Path, ...], advance: object) -> dict[str, object]:
        return {}

    def __reduce__(self) -> tuple[object, ...]:
        return (os.fspath, (1,))  # raises where it is read


gone = Gone()


def test_large_jobs_come_first_and_reports_in_the_order_of_the_stage(folder: Path) -> None:
    outcome = run(bulk.stage(folder, note_order, settings=folder / "order"), engine=HERE)
    assert (folder / "order").read_text().split() == ["texts/tp53", "texts/egfr", "texts/brca1"]
    assert list(outcome.reports) == ["texts/brca1", "texts/egfr", "texts/tp53"]


def note_order(job: Job, drafts: tuple[Path, ...], advance: object) -> dict[str, object]:
    with job.settings.open("a") as file:
        file.write(f"{job.name}\n")
    for draft in drafts:
        draft.write_text("")
    return {}


def test_a_draft_keeps_the_ending_of_its_output_but_no_pattern_finds_it(folder: Path) -> None:
    run(bulk.stage(folder, look_for_drafts), engine=HERE)
    assert (folder / "out" / "egfr.tsv").read_text() == "egfr.tsv and no drafts"


def look_for_drafts(job: Job, drafts: tuple[Path, ...], advance: object) -> dict[str, object]:
    made_before = {path.with_name(f"{stem}{path.suffix}") for path in job.outputs for stem in GENES}
    for draft, output in zip(drafts, job.outputs, strict=True):
        draft.touch()
        found = [path for path in output.parent.glob(f"*{output.suffix}") if path not in made_before]
        draft.write_text(f"{draft.name} and {found or 'no drafts'}")
    return {}


def test_progress_counts_all_workers(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_S", 0.0)
    run(bulk.stage(folder), engine=POOL)
    assert capsys.readouterr().err.splitlines()[-1].startswith("letters: 3 of 3 jobs, ")


def test_parts_share_the_jobs_and_the_last_sees_all_reports(folder: Path) -> None:
    stage = bulk.stage(folder)
    first = run(stage, engine=HERE, part=Part(1, 2))
    assert (list(first.reports), first.waiting) == (["texts/brca1", "texts/tp53"], ("texts/egfr",))
    second = run(stage, engine=HERE, part=Part(2, 2))
    assert (second.done, second.reports) == (True, run(stage, engine=HERE).reports)


def test_every_job_is_in_exactly_one_part() -> None:
    assert [[i for i in range(7) if Part(n, 3).has(i)] for n in (1, 2, 3)] == [[0, 3, 6], [1, 4], [2, 5]]


def test_a_part_is_written_with_a_slash() -> None:
    assert Part.parse("3/300") == Part(3, 300)


@pytest.mark.parametrize("text", ["3", "0/3", "4/3", "a/b", "1/0", "-1/3", "", "1/2/3"])
def test_what_is_no_part_is_refused(text: str) -> None:
    with raises(UsageError, code="bad-part"):
        Part.parse(text)


def test_drafts_of_killed_runs_go_but_not_those_of_other_jobs(folder: Path) -> None:
    stale = [folder / "out" / f".node7-12-{name}.part" / name for name in ("egfr.txt", "other.txt", "brca1.txt")]
    for path in stale:
        path.parent.mkdir(parents=True)
        path.write_text("half")
    run(bulk.stage(folder), engine=HERE, part=Part(2, 3))  # egfr alone
    assert [path.exists() for path in stale] == [False, True, True]


@pytest.mark.parametrize("name", ["", ".", "/etc/passwd", "../up", "a//b", "a/"])
def test_a_name_that_leaves_the_folder_of_marks_is_refused(name: str, tmp_path: Path) -> None:
    with raises(UsageError, code="bad-job-name"):
        run(Stage("s", no_work, (Job(name, (), ()),), tmp_path, ""))


def test_two_jobs_of_one_name_or_one_output_are_refused(tmp_path: Path) -> None:
    twice = tuple(Job("a", (), (tmp_path / name,)) for name in "xy")
    with raises(UsageError, code="duplicate-job", value="a"):
        check(Stage("s", no_work, twice, tmp_path, ""))
    same = tuple(Job(name, (), (tmp_path / "x",)) for name in "ab")
    with raises(UsageError, code="duplicate-job"):
        check(Stage("s", no_work, same, tmp_path, ""))
    with raises(UsageError, code="input-is-output"):
        check(Stage("s", no_work, (Job("a", (tmp_path,), (tmp_path,)),), tmp_path, ""))


def test_an_engine_that_cannot_be_is_refused() -> None:
    for bad in ({"kind": "slurm"}, {"workers": -1}, {"kind": "ray", "workers": 0}, {"address": "auto"}):
        with pytest.raises(UsageError):
            Engine(**bad)  # type: ignore[arg-type]


def test_whole_names_the_first_failures_and_counts_the_rest() -> None:
    with raises(PartialError, code="failed-jobs", value=7) as caught:
        require_complete(StageResult({"done": {}}, {f"job{n}": "broken" for n in range(7)}, ()))
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("7 of 8 ")
    assert lines[1:7] == [*(f"  job{n}: broken" for n in range(5)), "  and 2 more"]


def test_whole_says_that_other_parts_are_not_done() -> None:
    with raises(PartialError, code="unfinished-jobs", value=2, mentions="first b"):
        require_complete(StageResult({"a": {}}, {}, ("b", "c")))


def test_a_stage_without_jobs_is_done(tmp_path: Path) -> None:
    assert require_complete(run(Stage("s", no_work, (), tmp_path / "marks", ""))) == {}


def test_a_fingerprint_knows_equal_settings_from_different_ones() -> None:
    assert fingerprint({"a": 1, "b": {2, 3}}, Path("x")) == fingerprint({"b": {3, 2}, "a": 1}, Path("x"))
    assert fingerprint(Part(1, 2)) != fingerprint(Part(2, 2))
    with pytest.raises(TypeError, match="object"):
        fingerprint(object())


def test_a_mark_says_what_it_is_of(folder: Path) -> None:
    run(bulk.stage(folder), engine=HERE)
    mark = json.loads((folder / "marks" / "texts" / "brca1.json").read_text())
    assert (mark["inputs"][0]["name"], mark["outputs"][0]) == ("brca1.txt", {"name": "brca1.txt", "size": 12})


def test_without_ray_its_engine_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with raises(MissingExtraError, code="missing-extra", value="ray", mentions="lexome[cluster]"):
        run(bulk.stage(folder), engine=Engine("ray"))
