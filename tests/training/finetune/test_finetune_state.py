"""Runs that are stopped: they go on from their last saved state and end as runs that were not."""

import json
import math
import resource
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from finetuning import context_of, ner_documents, recipe_of, write_splits

from lexome.errors import DivergedError
from lexome.files import write_checksums
from lexome.models.checkpoint import load
from lexome.recipe.finetune import Cell, FinetuneRecipe, Run
from lexome.training.finetune.fit import Fit
from lexome.training.finetune.run import identities_of, run_once
from lexome.training.loop import Interrupted, StopSignal, Updater
from lexome.training.trainer import RUN_FILE, STATES, list_states

NER = {"kind": "ner", "types": ["Gene", "Drug"]}
# Dropout asks the generator, the best scores and weights are remembered, rounding begins in the second half.
KEYS: dict[str, Any] = {
    "epochs": 12,
    "dropout": 0.1,
    "evaluation": {"every": 3},
    "qat_ratio": 0.5,
    "save_every": 0,
}


class Killed(Exception):
    """The end of a run in its middle."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    docs = ner_documents(15)
    folder = tmp_path_factory.mktemp("data") / "made"
    return write_splits(folder, train=docs[:10], dev=docs[10:12], test=docs[12:])


def run(recipe: FinetuneRecipe, folder: Path, *, until: float = 1.0) -> None:
    """One run of a recipe, killed where so much of it is done."""

    def show(share: float, words: str) -> None:
        if share > until:
            raise Killed

    with context_of(recipe) as context:
        run_once(recipe, Run(Cell(), recipe.seeds[0]), context, folder, test=False, show=show)


def read_state(folder: Path) -> dict[str, Any]:
    """What the last training state of a run keeps beside its tensors."""
    content: dict[str, Any] = torch.load(list_states(folder / STATES)[-1] / RUN_FILE, weights_only=True)
    return content


def saved_step(folder: Path) -> int:
    step: int = read_state(folder)["position"]["step"]
    return step


def change_state(folder: Path, **changes: Any) -> None:
    torch.save(read_state(folder) | changes, list_states(folder / STATES)[-1] / RUN_FILE)
    write_checksums(list_states(folder / STATES)[-1])


def lines(folder: Path) -> list[dict[str, Any]]:
    """The metrics, but for what a clock says."""
    read = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: held for name, held in line.items() if name not in ("elapsed_s", "tokens_per_s")} for line in read]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(load(folder / "model", kind="token").model.state_dict())


@pytest.mark.parametrize("until", [0.2, 0.45, 0.8])
def test_a_run_that_was_killed_ends_with_the_same_bits(start: Path, data: Path, tmp_path: Path, until: float) -> None:
    recipe = recipe_of(start, data, tmp_path / "out", NER, **KEYS)
    run(recipe, tmp_path / "whole")
    with pytest.raises(Killed):
        run(recipe, tmp_path / "parted", until=until)
    assert 0 < saved_step(tmp_path / "parted") < 24
    run(recipe, tmp_path / "parted")
    whole, parted = weights(tmp_path / "whole"), weights(tmp_path / "parted")
    assert all(torch.equal(whole[name], parted[name]) for name in whole)
    assert lines(tmp_path / "parted") == lines(tmp_path / "whole")
    assert not (tmp_path / "parted" / STATES).exists()


@pytest.mark.parametrize(("step", "number"), [(5, signal.SIGINT), (6, signal.SIGTERM), (24, signal.SIGINT)])
def test_an_interrupted_run_saves_its_step_and_ends_with_the_same_bits(
    start: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, number: int
) -> None:
    # Between two evaluations, at one, and in the last step, which ends the run.
    recipe = recipe_of(start, data, tmp_path / "out", NER, **KEYS | {"save_every": 3600})
    run(recipe, tmp_path / "whole")
    before, steps, accumulate = signal.getsignal(number), list[int](), Updater.accumulate

    def interrupted(self: Updater[Any], batches: Any) -> Any:
        steps.append(1)
        if len(steps) == step:
            signal.raise_signal(number)
        return accumulate(self, batches)

    monkeypatch.setattr(Updater, "accumulate", interrupted)
    with pytest.raises(Interrupted):
        run(recipe, tmp_path / "parted")
    assert signal.getsignal(number) == before
    assert (tmp_path / "parted" / "run.json").exists() == (step == 24)
    if step < 24:
        assert saved_step(tmp_path / "parted") == step
    run(recipe, tmp_path / "parted")
    assert len(steps) == 24
    whole, parted = weights(tmp_path / "whole"), weights(tmp_path / "parted")
    assert all(torch.equal(whole[name], parted[name]) for name in whole)
    assert lines(tmp_path / "parted") == lines(tmp_path / "whole")


def test_patience_goes_on_counting(start: Path, data: Path, tmp_path: Path) -> None:
    run(recipe_of(start, data, tmp_path / "out", NER, epochs=15), tmp_path / "first")
    # A rate of next to nothing: after the first score none is better, and the fourth after step 100 is at step 120.
    keys = {"steps": 200, "evaluation": {"patience": 4, "every": 5}, "optimizer": {"lr": 1e-12}, "save_every": 0}
    recipe = recipe_of(tmp_path / "first" / "model", data, tmp_path / "out", NER, **keys)
    with pytest.raises(Killed):
        run(recipe, tmp_path / "run", until=0.56)
    run(recipe, tmp_path / "run")
    assert lines(tmp_path / "run")[-1]["step"] == 120


def test_what_is_done_is_not_done_again(
    start: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = recipe_of(start, data, tmp_path / "out", NER, **KEYS)
    with pytest.raises(Killed):
        run(recipe, tmp_path / "run", until=0.5)
    step = saved_step(tmp_path / "run")
    begun: list[int] = []
    whole = Fit.run

    def watched(self: Fit, stop: StopSignal | None = None) -> Iterator[tuple[dict[str, Any], bool]]:
        begun.append(self.trainer.position.step)
        return whole(self, stop)

    monkeypatch.setattr(Fit, "run", watched)
    run(recipe, tmp_path / "run")
    assert begun == [step]


def test_data_may_be_moved_while_a_run_is_stopped_and_when_it_is_done(
    start: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = recipe_of(start, data, tmp_path / "out", NER, **KEYS)
    with pytest.raises(Killed):
        run(there, tmp_path / "run", until=0.5)
    shutil.copytree(data, tmp_path / data.name)
    elsewhere = recipe_of(start, tmp_path / data.name, tmp_path / "out", NER, **KEYS)
    run(elsewhere, tmp_path / "run")
    assert "starts again" not in capsys.readouterr().err
    done = (tmp_path / "run" / "run.json").stat().st_mtime_ns
    run(there, tmp_path / "run")
    assert (tmp_path / "run" / "run.json").stat().st_mtime_ns == done


@pytest.mark.parametrize("place", [0, 1])
def test_a_state_by_the_paths_of_its_data_is_still_taken_up(
    place: int, start: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = recipe_of(start, data, tmp_path / "out", NER, **KEYS)
    with pytest.raises(Killed):
        run(recipe, tmp_path / "run", until=0.5)
    with context_of(recipe) as context:
        identity = identities_of(recipe, Run(Cell(), recipe.seeds[0]), context)[place]
    change_state(tmp_path / "run", identity=f"{identity} cpu")
    run(recipe, tmp_path / "run")
    assert "starts again" not in capsys.readouterr().err


def test_the_state_of_another_run_is_not_taken_up(start: Path, data: Path, tmp_path: Path) -> None:
    keys = KEYS | {"optimizer": {"lr": 1e-3}}
    run(recipe_of(start, data, tmp_path / "out", NER, **keys), tmp_path / "whole")
    with pytest.raises(Killed):
        run(recipe_of(start, data, tmp_path / "out", NER, **KEYS), tmp_path / "other", until=0.5)
    run(recipe_of(start, data, tmp_path / "out", NER, **keys), tmp_path / "other")
    assert lines(tmp_path / "other") == lines(tmp_path / "whole")


def test_a_state_that_cannot_be_read_begins_the_run_again(
    start: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = recipe_of(start, data, tmp_path / "out", NER, **KEYS)
    run(recipe, tmp_path / "whole")
    (tmp_path / "broken" / STATES / "step-00000004").mkdir(parents=True)
    (tmp_path / "broken" / STATES / "step-00000004" / RUN_FILE).write_bytes(b"PK\x03\x04 and no more")
    run(recipe, tmp_path / "broken")
    assert "starts again" in capsys.readouterr().err
    assert lines(tmp_path / "broken") == lines(tmp_path / "whole")


@pytest.mark.parametrize("made", [torch.zeros(3), [1, 2], {"step": 3}])
def test_a_state_of_something_else_begins_the_run_again(
    start: Path, data: Path, tmp_path: Path, made: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = recipe_of(start, data, tmp_path / "out", NER, **KEYS | {"epochs": 2})
    (tmp_path / "other" / STATES / "step-00000004").mkdir(parents=True)
    torch.save(made, tmp_path / "other" / STATES / "step-00000004" / RUN_FILE)
    run(recipe, tmp_path / "other")
    assert "starts again" in capsys.readouterr().err
    assert not (tmp_path / "other" / STATES).exists()


def test_half_a_run_on_another_device_is_not_gone_on_from(
    start: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = recipe_of(start, data, tmp_path / "out", NER, **KEYS)
    run(recipe, tmp_path / "whole")
    with pytest.raises(Killed):
        run(recipe, tmp_path / "moved", until=0.5)
    identity = read_state(tmp_path / "moved")["identity"]
    change_state(tmp_path / "moved", identity=identity.replace(" cpu", " cuda"))
    run(recipe, tmp_path / "moved")
    assert "starts again" in capsys.readouterr().err
    assert lines(tmp_path / "moved") == lines(tmp_path / "whole")


def test_a_disk_that_is_full_costs_the_state_and_not_the_run(
    start: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = recipe_of(start, data, tmp_path / "out", NER, **KEYS | {"epochs": 4, "keep_models": "none"})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        run(recipe, tmp_path / "run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert str(tmp_path / "run" / STATES) in capsys.readouterr().err
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"metrics.jsonl", "dev.jsonl", "run.json"}


def test_a_run_that_diverges_leaves_no_state(
    start: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = recipe_of(start, data, tmp_path / "out", NER, **KEYS)
    whole, steps = Updater.accumulate, list[int]()

    def diverging(self: Updater[Any], batches: Any) -> Any:
        loss, terms = whole(self, batches)
        steps.append(1)
        if len(steps) <= 10:
            return loss, terms
        assert (tmp_path / "run" / STATES).exists()
        return loss * math.nan, terms

    monkeypatch.setattr(Updater, "accumulate", diverging)
    with pytest.raises(DivergedError):
        run(recipe, tmp_path / "run")
    assert not (tmp_path / "run" / STATES).exists()


def test_what_is_left_is_cleared_but_for_what_a_run_goes_on_from(start: Path, data: Path, tmp_path: Path) -> None:
    recipe = recipe_of(start, data, tmp_path / "out", NER, **KEYS | {"epochs": 2})
    folder, other = tmp_path / "run", tmp_path / "other"
    for path in (folder / "tensorboard", folder / "model", other):
        path.mkdir(parents=True)
        (path / "kept").touch()
    (folder / "link").symlink_to(other)
    run(recipe, folder)
    assert (folder / "tensorboard" / "kept").exists()
    assert (other / "kept").exists()
    assert not (folder / "link").exists()
    assert not (folder / "model" / "kept").exists()


def test_a_short_run_writes_no_state(start: Path, data: Path, tmp_path: Path) -> None:
    recipe = recipe_of(start, data, tmp_path / "out", NER, **KEYS | {"save_every": 120})
    with pytest.raises(Killed):
        run(recipe, tmp_path / "run", until=0.5)
    assert not (tmp_path / "run" / STATES).exists()
