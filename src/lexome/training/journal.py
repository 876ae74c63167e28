"""What a run says of itself: sums between two lines of metrics, metrics.jsonl, TensorBoard, a bar."""

import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lexome.errors import CheckpointError, DivergedError, MissingExtraError
from lexome.files import atomic_write
from lexome.progress import LINE_S, REFRESH_S
from lexome.training.loop import Done, Position
from lexome.training.run_record import Run
from lexome.training.start import Start

METRICS = "metrics.jsonl"
BOARD = "tensorboard"
# One line far above the best may be a batch of odd text; three on end are not.
PATIENCE = 3

Line = dict[str, Any]

# What a line calls each of the sums that losses give, and what it is the mean over.
MEANS = (
    ("word_loss", "word_loss", "masked"),
    ("accuracy", "word_right", "masked"),
    ("pair_loss", "pair_loss", "sequences"),
    ("pair_accuracy", "pair_right", "sequences"),
    ("kl_loss", "kl_loss", "masked"),
    ("kl_loss", "kl_loss_all", "tokens"),
    ("cosine_loss", "cosine_loss", "tokens"),
)


class Tally:
    """Sums over the steps since the last line. They stay on the device until a line is asked for."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.counts = {"steps": 0, "tokens": 0, "masked": 0, "sequences": 0}
        self.began_s = 0.0

    def add(self, done: Done) -> None:
        """Count one step."""
        for name, new in {**done.terms, "loss": done.loss, "norm": done.norm}.items():
            self.sums[name] = self.sums[name] + new.double() if name in self.sums else new.double()
        for name, count in (("steps", 1), ("tokens", done.tokens), ("masked", done.masked)):
            self.counts[name] += count
        self.counts["sequences"] += done.sequences

    def line(self, done: Done, position: Position) -> Line:
        """The means since the last line, with where the run is; then the sums begin anew."""
        sums = {name: float(total) for name, total in self.sums.items()}
        counts = self.counts
        seconds = position.elapsed_s - self.began_s
        line: Line = {
            "step": position.step,
            "tokens": position.tokens,
            "epoch": position.place.epoch,
            "loss": sums["loss"] / counts["steps"],
            **means(sums, counts),
            "norm": sums["norm"] / counts["steps"],
            "lr": done.lr,
            "rate": done.rate,
            "elapsed_s": round(position.elapsed_s, 3),
            "tokens_per_s": round(counts["tokens"] / seconds) if seconds > 0 else None,
        }
        self.sums, self.counts, self.began_s = {}, dict.fromkeys(counts, 0), position.elapsed_s
        return line

    def state(self) -> dict[str, Any]:
        """What a saved state keeps of it, for a save may come between two lines."""
        sums = {name: total.cpu() for name, total in self.sums.items()}
        return {"sums": sums, "counts": dict(self.counts), "began_s": self.began_s}

    def restore(self, state: dict[str, Any], device: torch.device) -> None:
        """Go on from what `state` gave."""
        self.sums = {name: total.to(device) for name, total in state["sums"].items()}
        self.counts, self.began_s = dict(state["counts"]), state["began_s"]


def means(sums: Mapping[str, float], counts: Mapping[str, int]) -> Line:
    """Each sum over what it is counted by: losses and shares of right answers, as many as the loss has."""
    return {name: sums[term] / max(1, counts[count]) for name, term, count in MEANS if term in sums}


class Watch:
    """Stops a run whose loss is no number, or stays far above the best it had."""

    def __init__(self, *, above: float) -> None:
        self.above, self.best, self.worse = above, math.inf, 0

    def look(self, line: Line) -> None:
        """DivergedError where the line is bad."""
        loss, step = line["loss"], line["step"]
        if not (math.isfinite(loss) and math.isfinite(line["norm"])):
            raise DivergedError(
                f"up to step {step:,} the loss is {loss} and the gradients' norm {line['norm']}; expected numbers. "
                "Lower optimizer.lr, raise schedule.warmup_ratio, or look at the text there."
            )
        self.best = min(self.best, loss)
        self.worse = self.worse + 1 if loss > self.best + self.above else 0
        if self.worse >= PATIENCE:
            raise DivergedError(
                f"the loss at step {step:,} is {loss:.3f}, and for {PATIENCE} lines of {METRICS} more than "
                f"{self.above:g} above its best, {self.best:.3f}. "
                "Lower optimizer.lr, or raise log.divergence_threshold."
            )


class Journal:
    """metrics.jsonl, one line at a time, and TensorBoard where it is installed."""

    def __init__(self, folder: Path, *, step: int) -> None:
        """Lines after `step` are from a run that was cut short there, and are made again: they are removed."""
        self.path = folder / METRICS
        kept = [line for line in read_metrics(self.path) if line["step"] <= step]
        with atomic_write(self.path) as stream:
            stream.writelines(_json(line) for line in kept)
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
    """The lines of a metrics.jsonl; a last one that was cut off by a kill is passed over.

    CheckpointError for a file that no run of Lexome wrote.
    """
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
                f"{path}: line {number:,} is no JSON object with a number as its step; expected the metrics of a run. "
                "Choose another `out`, or move this file away."
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
def training_progress(verb: str = "pretrain", *, shown: bool = True) -> Iterator[Callable[[float, str], None]]:
    """A function to tell the share that is done and a few words: a bar on a terminal, elsewhere a line a minute."""
    if not shown:
        yield lambda share, words: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        words_column = TextColumn("{task.fields[words]}")
        columns = (TextColumn(verb), BarColumn(), TaskProgressColumn(), words_column, TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=1 / REFRESH_S) as bar:
            task = bar.add_task(verb, total=1.0, words="")
            yield lambda share, words: bar.update(task, completed=share, words=words)
    else:
        yield _minutely(verb)


def _minutely(verb: str) -> Callable[[float, str], None]:
    """A function that prints a line a minute. The time left follows from what was done since its first call."""
    began = said = time.monotonic()
    first: tuple[float, float] | None = None

    def line(share: float, words: str) -> None:
        nonlocal said, first
        now = time.monotonic()
        if first is None:
            first = share, now
        # What comes after the last step, measuring and writing, may take long too, and must not look like a halt.
        if now - said < LINE_S and not (share >= 1 and now - began >= LINE_S):
            return
        said = now
        print(f"{verb}: {share:.1%}, {words}{_left(share, now, first)}", file=sys.stderr, flush=True)

    return line


def _left(share: float, now: float, first: tuple[float, float]) -> str:
    """The time left, where there is some, in words for the end of a line."""
    if share >= 1:
        return ""
    if share <= first[0]:
        return ", time left unknown"
    return f", {(1 - share) * (now - first[1]) / (share - first[0]) / 60:,.0f} min left"


def draw_loss(metrics: Path, picture: Path) -> None:
    """Draw the loss in training and on held-out text, and the learning rate below, as a PNG."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", extra="corpus", purpose="a picture of the loss") from None
    lines = read_metrics(metrics)
    # A folder that had the metrics of another stage may still have its first line, which lacks some of these.
    trained = [line for line in lines if {"tokens", "word_loss", "lr"} <= line.keys()]
    measured = [line for line in lines if {"tokens", "held_out"} <= line.keys()]
    figure = Figure(figsize=(7, 5), layout="constrained")
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    millions = [line["tokens"] / 1e6 for line in trained]
    upper.plot(millions, [line["word_loss"] for line in trained], linewidth=1, label="training")
    if measured:
        places = [line["tokens"] / 1e6 for line in measured]
        upper.plot(places, [line["held_out"]["loss"] for line in measured], "o-", markersize=3, label="held out")
    upper.set_ylabel("loss at the masks (nats)")
    upper.legend(frameon=False)
    lower.plot(millions, [line["lr"] for line in trained], color="0.4", linewidth=1)
    lower.set_ylabel("learning rate")
    lower.set_xlabel("million tokens")
    for axes in (upper, lower):
        axes.spines[["top", "right"]].set_visible(False)
    with atomic_write(picture) as stream:
        figure.savefig(stream, format="png", dpi=150)


def opening(start: Start, run: Run, *, device_asked: str, text: str) -> str:
    """A few lines, such as

    device    cpu, fp32; no GPU was found
    model     bert, 33,391,290 weights, from checkpoints/gte-small
    new       head.bias and 4 more; 4,000 of 30,522 pieces
    text      15,179 documents, 20,746,826 tokens.
    """
    lines = [("device", _device(run, device_asked)), ("model", _model(start))]
    if new := _new(start):
        lines.append(("new", new))
    if start.unused:
        lines.append(("unused", _named(start.unused)))
    if start.teacher is not None:
        lines.append(("teacher", str(start.teacher.folder)))
    lines.append(("text", text))
    if run.steps:
        lines.append(("goes on", f"after step {run.steps:,}"))
    return "\n".join(f"{name:<9} {said}" for name, said in lines)


def _device(run: Run, asked: str) -> str:
    many = f", {run.processes} processes" if run.processes > 1 else ""
    # A recipe for a GPU takes days without one, and torch without CUDA is easily installed by mistake.
    missing = "; no GPU was found" if asked == "auto" and run.device == "cpu" else ""
    return f"{run.device}, {run.precision}{many}{missing}"


def _model(start: Start) -> str:
    weights = sum(weight.numel() for weight in start.model.parameters())
    begun = "from random weights" if start.checkpoint is None else f"from {start.checkpoint}"
    return f"{start.architecture}, {weights:,} weights, {begun}"


def _new(start: Start) -> str:
    """What the checkpoint lacked: weights that were drawn, and pieces of another vocabulary."""
    said = [_named(start.drawn)] if start.drawn else []
    if start.carried is not None:
        said.append(f"{start.carried.new:,} of {start.carried.new + start.carried.kept:,} pieces")
    return "; ".join(said)


def _named(names: Sequence[str]) -> str:
    """The first name, and how many more there are."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
