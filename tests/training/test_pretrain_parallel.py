"""lexome pretrain under torchrun: as one process, and states that another number of processes goes on from."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from errors import raises
from patience import PATIENCE_S, wait_until
from pretraining import recipe

from lexome.corpus.shards import Shards
from lexome.errors import UsageError
from lexome.models import checkpoint
from lexome.recipe import explain
from lexome.recipe.pretrain import PretrainRecipe
from lexome.training.pretrain import pretrain
from lexome.training.trainer import read_metrics

# torchrun takes ten seconds a time.
nightly = pytest.mark.nightly
# Two passes a step, for two processes to share, and states at step 10 and 20.
SHARED: dict[str, Any] = {
    "steps": 20,
    "batch": {"tokens": 256, "gradient_accumulation": 2, "prefetch": 2},
    "log": {"every": 5, "save_every": 10},
}


@pytest.fixture(scope="module")
def alone(shards: Shards, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The record of a run in one process."""
    out = tmp_path_factory.mktemp("alone")
    pretrain(recipe(shards.folder, out, **SHARED), progress_shown=False)
    return record(out)


@pytest.fixture(scope="module")
def copies(shards: Shards, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of the same run in two processes, and what they printed."""
    out = tmp_path_factory.mktemp("copies")
    return out, torchrun(recipe(shards.folder, out, **SHARED))


def started(run: PretrainRecipe) -> "subprocess.Popen[str]":
    """The command line in two processes of torchrun."""
    path = run.out.with_suffix(".toml")
    path.write_text(explain(run))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, "-m", "lexome", "pretrain", str(path), "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def torchrun(run: PretrainRecipe) -> str:
    """What the command line prints in two processes of torchrun, which end well."""
    process = started(run)
    try:
        out, errors = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    return out


def record(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "run.json").read_text())
    return found


def test_two_processes_have_the_held_out_loss_of_one(alone: dict[str, Any], copies: tuple[Path, str]) -> None:
    out, printed = copies
    found = record(out)
    assert (found["done"], found["processes"], alone["processes"]) == (True, 2, 1)
    assert (found["steps"], found["tokens"]) == (alone["steps"], alone["tokens"])
    assert found["loss"] == pytest.approx(alone["loss"], abs=1e-4)
    assert found["held_out"]["loss"] == pytest.approx(alone["held_out"]["loss"], abs=1e-4)
    # Read as one JSON object: the second process prints nothing, and writes no lines of its own.
    assert json.loads(printed)["held_out"] == found["held_out"]
    assert [line["step"] for line in read_metrics(out / "metrics.jsonl")] == [5, 10, 15, 20, 20]
    assert checkpoint.load(out / "model").kind == "masked"


def test_one_process_goes_on_from_the_state_of_two(
    shards: Shards, alone: dict[str, Any], copies: tuple[Path, str], tmp_path: Path
) -> None:
    shutil.copytree(copies[0] / "state" / "step-00000010", tmp_path / "out" / "state" / "step-00000010")
    done = pretrain(recipe(shards.folder, tmp_path / "out", **SHARED), progress_shown=False)
    assert done.held_out is not None
    assert done.held_out["loss"] == pytest.approx(alone["held_out"]["loss"], abs=1e-4)
    # Lines begin where the state was saved: nothing was trained again.
    assert [line["step"] for line in read_metrics(tmp_path / "out" / "metrics.jsonl")] == [15, 20, 20]


def test_a_table_that_does_not_fit_the_processes_is_refused(shards: Shards, tmp_path: Path) -> None:
    with raises(UsageError, code="wrong-world-size", value=1):
        pretrain(recipe(shards.folder, tmp_path / "out", parallel={"shard": 2}), progress_shown=False)


@nightly
@pytest.mark.parametrize("keys", [{"shard": 2}, {"tensor": 2}], ids=["shard", "tensor"])
def test_spread_models_have_the_held_out_loss_of_one(
    shards: Shards, alone: dict[str, Any], tmp_path: Path, keys: dict[str, int]
) -> None:
    torchrun(recipe(shards.folder, tmp_path / "out", **SHARED, parallel=keys))
    assert record(tmp_path / "out")["held_out"]["loss"] == pytest.approx(alone["held_out"]["loss"], abs=1e-4)
    done = checkpoint.load(tmp_path / "out" / "model")
    assert {weight.dtype for weight in done.model.parameters()} == {torch.float32}


@nightly
def test_as_many_processes_go_on_to_the_bit(shards: Shards, copies: tuple[Path, str], tmp_path: Path) -> None:
    shutil.copytree(copies[0] / "state" / "step-00000010", tmp_path / "out" / "state" / "step-00000010")
    torchrun(recipe(shards.folder, tmp_path / "out", **SHARED))
    first, second = ((out / "model" / "model.safetensors").read_bytes() for out in (copies[0], tmp_path / "out"))
    assert first == second


@nightly
def test_a_state_in_bfloat16_goes_from_one_process_to_shards(shards: Shards, tmp_path: Path) -> None:
    run = recipe(shards.folder, tmp_path / "one", **SHARED, precision="bf16")
    one = pretrain(run, progress_shown=False)
    shutil.copytree(tmp_path / "one" / "state" / "step-00000010", tmp_path / "two" / "state" / "step-00000010")
    torchrun(recipe(shards.folder, tmp_path / "two", **SHARED, precision="bf16", parallel={"shard": 2}))
    assert one.held_out is not None
    assert record(tmp_path / "two")["held_out"]["loss"] == pytest.approx(one.held_out["loss"], rel=0.01)


@nightly
def test_a_budget_with_ramps_ends_everywhere_at_the_same_step(shards: Shards, tmp_path: Path) -> None:
    keys = SHARED | {"steps": None, "time_budget": "3s", "text": {"max_tokens": 32, "ramp": [[0, 16], [0.5, 32]]}}
    keys["batch"] = {"tokens": 128, "passes": 4, "ramp": [[0, 2], [0.3, 4]]}
    torchrun(recipe(shards.folder, tmp_path / "out", **keys))
    found = record(tmp_path / "out")
    assert found["done"]
    assert found["seconds"] >= 3


@nightly
def test_processes_that_are_asked_to_stop_save_one_state(shards: Shards, tmp_path: Path) -> None:
    process = started(recipe(shards.folder, tmp_path / "out", **SHARED | {"steps": 100_000}))
    wait_until(lambda: read_metrics(tmp_path / "out" / "metrics.jsonl"))
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=PATIENCE_S)
    newest = max((tmp_path / "out" / "state").iterdir())
    assert errors.count(f"interrupted: the state of step {int(newest.name[5:]):,} is saved") == 1
