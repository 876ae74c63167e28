"""What a run says of the code that made it."""

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path

import pytest
from errors import raises
from finetuning import done, ner_documents, recipe_of, tiny_model, write_splits
from torch import Tensor

import lexome
from lexome.errors import CheckpointError
from lexome.files import read_json, write_json
from lexome.training.finetune.task_model import TaskBatch
from lexome.training.loop import Terms, Updater
from lexome.training.record import RUN, FinetuneRecord, RunRecord, read_record, revision


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package in a repository of its own, in the place of Lexome."""
    file = tmp_path / "__init__.py"
    file.write_text("")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    commit(tmp_path)
    monkeypatch.setattr(lexome, "__file__", str(file))
    revision.cache_clear()
    yield file
    revision.cache_clear()


def git(folder: Path, *words: str) -> str:
    names = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    done = subprocess.run(["git", *names, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(folder: Path) -> str:
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "more")
    return git(folder, "rev-parse", "--short=12", "HEAD")


def test_a_run_names_the_code_that_it_began_with(package: Path) -> None:
    before = git(package.parent, "rev-parse", "--short=12", "HEAD")
    assert revision() == before
    assert commit(package.parent) != before
    assert revision() == before


def test_a_fine_tuning_asks_before_its_first_step(
    package: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("tuned")
    docs = ner_documents(12)
    data = write_splits(folder / "data", train=docs[:8], dev=docs[8:10], test=docs[10:])
    start = tiny_model(folder / "start")
    before = git(package.parent, "rev-parse", "--short=12", "HEAD")
    step = Updater.accumulate

    def pulled(self: Updater[TaskBatch], batches: Sequence[TaskBatch]) -> tuple[Tensor, Terms]:
        commit(package.parent)
        return step(self, batches)

    monkeypatch.setattr(Updater, "accumulate", pulled)
    done(recipe_of(start, data, folder / "out", {"kind": "ner", "types": ["Gene", "Drug"]}, steps=2))
    run = json.loads((folder / "out" / "runs" / "seed0" / "run.json").read_text())
    assert run["versions"]["revision"] == before
    assert git(package.parent, "rev-parse", "--short=12", "HEAD") != before


def test_changes_that_are_not_committed_are_told(package: Path) -> None:
    package.write_text("changed = True\n")
    assert revision() == git(package.parent, "rev-parse", "--short=12", "HEAD") + "+changes"


def test_an_installed_package_has_no_revision(package: Path) -> None:
    git(package.parent, "rm", "--quiet", "--cached", "__init__.py")
    assert revision() is None


def test_asking_leaves_the_index_to_the_user(package: Path) -> None:
    """`git status` writes the index where the times of files have changed, and holds its lock for that."""
    os.utime(package, ns=(0, 0))
    index = package.parent / ".git" / "index"
    before = index.read_bytes()
    assert revision() is not None
    assert index.read_bytes() == before
    git(package.parent, "status", "--porcelain")
    assert index.read_bytes() != before, "git has no such habit: the test shows nothing"


COMMON = {
    "stage", "identity", "done", "steps", "tokens", "seconds", "device", "precision", "compiled", "processes", "start",
    "versions", "recipe",
}  # fmt: skip


def test_records_of_all_stages_have_the_same_names(tmp_path: Path) -> None:
    docs = ner_documents(12)
    data = write_splits(tmp_path / "data", train=docs[:8], dev=docs[8:])
    done(recipe_of(tiny_model(tmp_path / "start"), data, tmp_path / "out", {"kind": "ner"}, epochs=1))
    folder = tmp_path / "out" / "runs" / "seed0"
    content = read_json(folder / RUN)
    assert content.keys() >= COMMON
    assert COMMON - {"stage", "versions", "recipe"} <= {one.name for one in fields(RunRecord)}
    record = read_record(folder, FinetuneRecord)
    assert record is not None
    assert (record.seed, record.processes, record.scores) == (0, 1, content["scores"])
    # Records from before there was such a key are read.
    write_json(folder / RUN, {key: value for key, value in content.items() if key != "processes"})
    assert read_record(folder, FinetuneRecord) == record
    with raises(CheckpointError, code="invalid-record", value=folder / RUN):
        read_record(folder, RunRecord)
