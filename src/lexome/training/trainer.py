"""The training core of every stage: steps, sums, metrics.jsonl, divergence checks and training state.

A stage brings the module, its optimizers, the batches and the loss, and decides when to log, evaluate and save.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lexome.errors import DivergedError
from lexome.training import state
from lexome.training.journal import DivergenceWatch, Journal, Line, Sums
from lexome.training.loader import Step
from lexome.training.loop import Clock, Position, StepResult, Update, fraction_done, train
from lexome.training.optim import LearningRateSchedule, Length, Optimizers
from lexome.training.parallel import Parallel


@dataclass(frozen=True, slots=True)
class Setting:
    """Where and how a run computes, with everything decided that its recipe leaves open."""

    device: torch.device
    precision: str
    compiled: bool = False
    cuda_graphs: bool = False

    @property
    def autocast(self) -> torch.dtype | None:
        """The precision of products, where it is not that of the weights."""
        return torch.bfloat16 if self.precision == "autocast" else None


class Trainer:
    """One process's part of a run. All processes make the same steps and know the same sums; only the first logs."""

    def __init__(
        self,
        module: nn.Module,
        optimizers: Optimizers,
        *,
        length: Length,
        schedule: LearningRateSchedule,
        parallel: Parallel,
        clock: Clock,
        divergence_threshold: float | None = None,
    ) -> None:
        self.module, self.optimizers, self.parallel = module, optimizers, parallel
        self.length, self.schedule, self.clock = length, schedule, parallel.clock(clock)
        self.watch = DivergenceWatch(threshold=inf if divergence_threshold is None else divergence_threshold)
        self.position, self.sums = Position(), Sums()
        self.last: Line | None = None
        self.journal: Journal | None = None

    @property
    def fraction(self) -> float:
        """How much of the run is done, from 0 to 1."""
        return fraction_done(self.length, self.position)

    def open_journal(self, folder: Path) -> None:
        """Write metrics.jsonl in this folder from the current position on."""
        self.journal = Journal(folder, step=self.position.step) if self.parallel.first else None

    def steps(self, update: Update, steps: Iterator[Step]) -> Iterator[StepResult]:
        """Train to the end, yielding after each step its result over all processes."""
        made = train(
            update, steps, length=self.length, schedule=self.schedule, position=self.position, clock=self.clock
        )
        for result in map(self.parallel.sum_over_replicas, made):
            self.sums.add(result)
            yield result

    def log(self, result: StepResult) -> Line:
        """Write a line of means since the last one; DivergedError where it shows divergence."""
        self.last = self.sums.line(result, self.position)
        self.write(self.last)
        self.watch.check(self.last)
        return self.last

    def write(self, line: Line) -> None:
        """Write any other line, such as one of scores."""
        if self.journal is not None:
            self.journal.write(line)

    def check_finite(self, result: StepResult) -> None:
        """DivergedError where this step or the weights after it are not finite."""
        step = self.position.step
        DivergenceWatch().check({"step": step, "loss": float(result.loss), "norm": float(result.norm)})
        if not self.parallel.all_agree(self.optimizers.finite()):
            message = f"after step {step:,} not all weights are finite. Lower optimizer.lr."
            raise DivergedError(message, code="not-finite", value=step)

    def save(self, folder: Path, *, identity: str, notes: dict[str, Any], keep: int = 1) -> None:
        """Save the training state, with a stage's own notes."""
        own = {"tally": self.sums.state(), "best": self.watch.lowest, "worse": self.watch.worse, "last": self.last}
        state.save(
            folder,
            self.module,
            self.optimizers,
            self.position,
            parallel=self.parallel,
            identity=identity,
            notes=own | notes,
            keep=keep,
        )

    def restore(self, path: Path, *, identities: Collection[str], seed: int) -> dict[str, Any]:
        """Resume from a saved training state; its notes."""
        notes = state.restore(
            path,
            self.module,
            self.optimizers,
            self.position,
            parallel=self.parallel,
            identities=identities,
            seed=seed,
        )
        self.sums.restore(notes["tally"], self.parallel.device)
        self.watch.lowest, self.watch.worse, self.last = notes["best"], notes["worse"], notes["last"]
        return notes
