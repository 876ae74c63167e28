"""The log of a run: sums between two lines, metrics.jsonl, TensorBoard, divergence checks, a progress bar, a plot."""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lexome.errors import CheckpointError, DivergedError
from lexome.files import atomic_plot, atomic_write
from lexome.progress import LINE_S, REFRESH_S
from lexome.training.loop import Position, StepResult

METRICS = "metrics.jsonl"
BOARD = "tensorboard"
# One line far above the lowest loss may be a batch of odd text; three in a row are not.
PATIENCE = 3

Line = dict[str, Any]

# The name in a line of each loss term, the term, and what it is the mean over. A new objective adds its rows here.
MEANS = (
    ("word_loss", "word_loss", "masked"),
    ("accuracy", "word_right", "masked"),
    ("pair_loss", "pair_loss", "sequences"),
    ("pair_accuracy", "pair_right", "sequences"),
    ("kl_loss", "kl_loss", "masked"),
    ("kl_loss", "kl_loss_all", "tokens"),
    ("cosine_loss", "cosine_loss", "tokens"),
)


class Sums:
    """Losses, gradient norms and loss terms since the last line. They stay on the device until a line is written."""

    def __init__(self) -> None:
        self.values: dict[str, list[Tensor]] = {}
        self.counts: dict[str, int] = {"steps": 0, "tokens": 0}
        self.began_s = 0.0

    def add(self, result: StepResult) -> None:
        """Count one step."""
        for name, value in {**result.terms, "loss": result.loss, "norm": result.norm}.items():
            self.values.setdefault(name, []).append(value)
        for name, count in {"steps": 1, "tokens": result.tokens, **result.counts}.items():
            self.counts[name] = self.counts.get(name, 0) + count

    def line(self, result: StepResult, position: Position) -> Line:
        """The means since the last line, with the position of the run; the sums are then reset."""
        # One copy from the device for each name; added up one after another in double precision.
        sums = {name: sum(torch.stack(values).double().tolist()) for name, values in self.values.items()}
        counts = self.counts
        seconds = position.elapsed_s - self.began_s
        line: Line = {
            "step": position.step,
            "tokens": position.tokens,
            "epoch": position.place.epoch,
            "loss": sums["loss"] / counts["steps"],
            **means(sums, counts),
            "norm": sums["norm"] / counts["steps"],
            "lr": result.lr,
            **result.logged,
            "elapsed_s": round(position.elapsed_s, 3),
            "tokens_per_s": round(counts["tokens"] / seconds) if seconds > 0 else None,
        }
        self.values, self.counts, self.began_s = {}, dict.fromkeys(counts, 0), position.elapsed_s
        return line

    def state(self) -> dict[str, Any]:
        """What a training state keeps of it, for it may be saved between two lines."""
        values = {name: torch.stack(values).cpu() for name, values in self.values.items()}
        return {"sums": values, "counts": dict(self.counts), "began_s": self.began_s}

    def restore(self, state: Mapping[str, Any], device: torch.device) -> None:
        """Go on from what `state` returned."""
        # The first edition kept one sum of each.
        stored = {name: torch.atleast_1d(values) for name, values in state["sums"].items()}
        self.values = {name: list(values.to(device).unbind()) for name, values in stored.items()}
        self.counts, self.began_s = dict(state["counts"]), state["began_s"]


def means(sums: Mapping[str, float], counts: Mapping[str, int]) -> Line:
    """Each loss term's sum over what it is counted by: mean losses and accuracies, as many as the loss has."""
    return {name: sums[term] / max(1, counts[count]) for name, term, count in MEANS if term in sums}


class DivergenceWatch:
    """Stops a run whose loss is not finite, or stays far above the lowest it had."""

    def __init__(self, *, threshold: float = math.inf) -> None:
        self.threshold, self.lowest, self.worse = threshold, math.inf, 0

    def check(self, line: Line) -> None:
        """DivergedError where the line shows divergence."""
        loss, step = line["loss"], line["step"]
        if not (math.isfinite(loss) and math.isfinite(line["norm"])):
            raise DivergedError(
                f"up to step {step:,} the loss is {loss} and the gradient norm {line['norm']}; expected finite "
                "numbers. Lower optimizer.lr, raise schedule.warmup_ratio, or check the text there.",
                code="not-finite",
                value=step,
            )
        self.lowest = min(self.lowest, loss)
        self.worse = self.worse + 1 if loss > self.lowest + self.threshold else 0
        if self.worse >= PATIENCE:
            raise DivergedError(
                f"the loss at step {step:,} is {loss:.3f}, and for {PATIENCE} lines of {METRICS} more than "
                f"{self.threshold:g} above its lowest, {self.lowest:.3f}. "
                "Lower optimizer.lr, or raise log.divergence_threshold.",
                code="diverged",
                value=step,
            )


class Journal:
    """metrics.jsonl, one line at a time, and TensorBoard where it is installed."""

    def __init__(self, folder: Path, *, step: int) -> None:
        """Lines after `step`, from a run that was interrupted before it saved its state, are removed."""
        self.path = folder / METRICS
        lines = [line for line in read_metrics(self.path) if line["step"] <= step]
        with atomic_write(self.path) as stream:
            stream.writelines(_json(line) for line in lines)
        self.board = _board(folder / BOARD, step)

    def write(self, line: Line) -> None:
        """Add a line, and force it to disk."""
        with self.path.open("ab") as stream:
            stream.write(_json(line))
            stream.flush()
            os.fsync(stream.fileno())
        if self.board is not None:
            flat = {f"held_out/{name}": value for name, value in line.get("held_out", {}).items()} | line
            for name, value in flat.items():
                if isinstance(value, int | float) and name != "step":
                    self.board.add_scalar(name, value, line["step"])
            self.board.flush()


def read_metrics(path: Path) -> list[Line]:
    """The lines of a metrics.jsonl; an incomplete last line, from a killed run, is ignored."""
    raw = path.read_bytes().splitlines() if path.exists() else []
    lines: list[Line] = []
    for number, text in enumerate(raw, 1):
        try:
            line = json.loads(text)
        except ValueError:
            if number == len(raw):
                break
            line = None
        if not isinstance(line, dict) or not isinstance(line.get("step"), int):
            raise CheckpointError(
                f"{path}: line {number:,} is not a JSON object with a step number; expected the metrics of a run. "
                "Choose another `out`, or move this file away.",
                code="invalid-metrics",
                value=number,
            )
        lines.append(line)
    return lines


def _json(line: Line) -> bytes:
    return json.dumps(line).encode() + b"\n"


def _board(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=step + 1)


@contextmanager
def training_progress(command: str = "pretrain", *, shown: bool = True) -> Iterator[Callable[[float, str], None]]:
    """A function to report the fraction done and a message: a bar on a terminal, elsewhere a line per minute."""
    if not shown:
        yield lambda fraction, message: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        message_column = TextColumn("{task.fields[message]}")
        columns = (TextColumn(command), BarColumn(), TaskProgressColumn(), message_column, TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=1 / REFRESH_S) as bar:
            task = bar.add_task(command, total=1.0, message="")
            yield lambda fraction, message: bar.update(task, completed=fraction, message=message)
    else:
        yield _lines(command)


def _lines(command: str) -> Callable[[float, str], None]:
    """A function that prints a line per minute. The time left is estimated from its first call on."""
    began = printed = time.monotonic()
    first: tuple[float, float] | None = None

    def report(fraction: float, message: str) -> None:
        nonlocal printed, first
        now = time.monotonic()
        if first is None:
            first = fraction, now
        # What comes after the last step, evaluating and writing, may take long too, and must not look like a hang.
        if now - printed < LINE_S and not (fraction >= 1 and now - began >= LINE_S):
            return
        printed = now
        left = ""
        if first[0] < fraction < 1:
            left = f", {(1 - fraction) * (now - first[1]) / (fraction - first[0]) / 60:,.0f} min left"
        elif fraction < 1:
            left = ", time left unknown"
        print(f"{command}: {fraction:.1%}, {message}{left}", file=sys.stderr, flush=True)

    return report


def plot_loss(metrics: Path, plot: Path) -> None:
    """Plot the training and held-out loss, and the learning rate below, as a PNG."""
    lines = read_metrics(metrics)
    # A folder with the metrics of another stage may still have its first line, which lacks some of these.
    training = [line for line in lines if {"tokens", "word_loss", "lr"} <= line.keys()]
    evaluated = [line for line in lines if {"tokens", "held_out"} <= line.keys()]
    with atomic_plot(plot, size=(7, 5)) as figure:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        millions = [line["tokens"] / 1e6 for line in training]
        upper.plot(millions, [line["word_loss"] for line in training], linewidth=1, label="training")
        if evaluated:
            places = [line["tokens"] / 1e6 for line in evaluated]
            upper.plot(places, [line["held_out"]["loss"] for line in evaluated], "o-", markersize=3, label="held-out")
        upper.set_ylabel("masked-language-modeling loss (nats)")
        upper.legend(frameon=False)
        lower.plot(millions, [line["lr"] for line in training], color="0.4", linewidth=1)
        lower.set_ylabel("learning rate")
        lower.set_xlabel("million tokens")
        for axes in (upper, lower):
            axes.spines[["top", "right"]].set_visible(False)
