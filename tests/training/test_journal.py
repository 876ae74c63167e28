"""What a run says of itself: metrics that survive a kill, and TensorBoard where it is."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from errors import raises

from lexome.errors import CheckpointError
from lexome.training.loop import Position, StepResult
from lexome.training.trainer import MetricsJournal, Sums, plot_loss, read_metrics


def done(loss: float, *, masked: int = 10, right: int = 5) -> StepResult:
    terms = {"word_loss": torch.tensor(loss * masked), "word_right": torch.tensor(right)}
    counts = {"masked": masked, "sequences": 4}
    return StepResult(1e-3, 100, torch.tensor(loss), torch.tensor(2.0), terms, counts, {"rate": 0.15})


def test_a_line_has_the_means_since_the_last() -> None:
    tally = Sums()
    tally.add(done(4.0, masked=10, right=5))
    tally.add(done(1.0, masked=30, right=15))
    line = tally.line(done(1.0), Position(step=2, tokens=200, elapsed_s=4.0))
    assert (line["loss"], line["word_loss"], line["accuracy"]) == (2.5, 1.75, 0.5)
    assert line["tokens_per_s"] == 50
    assert tally.counts["steps"] == 0


def test_lines_after_a_saved_step_and_half_a_line_are_made_again(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 10}\n{"step": 20}\n{"step": 30}\n{"step": 4')
    MetricsJournal(tmp_path, step=20).write({"step": 25})
    assert [line["step"] for line in read_metrics(tmp_path / "metrics.jsonl")] == [10, 20, 25]


@pytest.mark.parametrize("line", ['{"epoch": 1, "loss": 2.0}', "[1, 2]", '{"step": "one"}', "step,loss"])
def test_metrics_that_no_run_wrote_are_refused_and_stay_as_they_are(tmp_path: Path, line: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1}}\n{line}\n{{"step": 3}}\n')
    before = path.read_bytes()
    with raises(CheckpointError, code="invalid-metrics", value=2):
        MetricsJournal(tmp_path, step=3)
    assert path.read_bytes() == before


def test_tensorboard_gets_every_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    module = ModuleType("torch.utils.tensorboard")
    writer = SimpleNamespace(add_scalar=lambda *given: seen.append(given), flush=lambda: None)
    module.SummaryWriter = lambda folder, purge_step: writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    board = MetricsJournal(tmp_path, step=0)
    board.write({"step": 5, "loss": 2.0})
    board.write({"step": 5, "held_out": {"loss": 3.0}})
    assert seen == [("loss", 2.0, 5), ("held_out/loss", 3.0, 5)]


def test_a_picture_passes_over_lines_of_another_stage(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 0, "loss": 3}\n{"step": 0, "held_out": {"loss": 3}}\n')
    plot_loss(tmp_path / "metrics.jsonl", tmp_path / "loss.png")
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_is_drawn_of_a_run_that_measured_nothing(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "tokens": 10, "loss": 3, "word_loss": 3, "lr": 0.1}\n')
    plot_loss(tmp_path / "metrics.jsonl", tmp_path / "loss.png")
    assert (tmp_path / "loss.png").read_bytes().startswith(b"\x89PNG")
