"""One model learns: steps, scores on dev between them, the best weights kept, an end where nothing gets better."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from lexome.errors import DivergedError, UsageError
from lexome.recipe.finetune import FinetuneRecipe
from lexome.tasks.ner import Ner
from lexome.tasks.task import Scores, Task
from lexome.train.finetune.batches import (
    LENGTHS,
    Batch,
    Padding,
    StepSize,
    batches_of,
    order_of,
    rounded,
    steps_of,
)
from lexome.train.finetune.graphs import StepGraphs, can_record
from lexome.train.finetune.labels import label_weights, repetitions
from lexome.train.finetune.losses import Rules, TaskLoss
from lexome.train.finetune.material import Parts
from lexome.train.finetune.model import Learner
from lexome.train.finetune.optim import Stepper, kept, put_back
from lexome.train.finetune.predict import answered, scored
from lexome.train.finetune.rounding import Rounding
from lexome.train.finetune.teaching import Teaching
from lexome.train.journal import Line
from lexome.train.loader import ahead
from lexome.train.schedule import LearningRate

# Rows of a step where the recipe says neither sequences nor tokens: the usual batch of the papers.
USUAL_BATCH = 32
# Steps between two lines of metrics.jsonl.
LOG_EVERY = 50
# Steps made ready ahead of the model.
AHEAD = 8
# A run is not given up for scores before this step: epochs of a small set have but a few steps.
TRIED = 100
# The least step between two sizes of a batch, in tokens.
SMALLEST_GRAIN = 128


@dataclass(frozen=True)
class Setting:
    """Where and how a run computes."""

    device: torch.device
    autocast: torch.dtype | None
    compiled: bool = False
    graphs: bool = False


@dataclass
class Progress:
    """How far a run is, and what it has found. `scores` are those of the weights that are kept."""

    step: int = 0
    steps: int = 0
    tokens: int = 0
    elapsed_s: float = 0.0
    scores: Scores | None = None
    best_step: int = 0
    misses: int = 0
    stopped_early: bool = False
    weights: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Planned:
    """One step to make: its passes, and whether an epoch ends with it."""

    batches: list[Batch]
    epoch: int
    ends: bool


class Plan:
    """Which rows go into which step: the same for the same rows and seed."""

    def __init__(self, recipe: FinetuneRecipe, parts: Parts, task: Task, *, seed: int, segments: bool) -> None:
        self.pinned = False
        self.padding: Padding | None = None
        self.rows, self.task, self.seed, self.segments = [*parts.train.flat, *parts.text], task, seed, segments
        self.taught = recipe.teacher is not None
        given = recipe.batch
        self.size = StepSize(given.sequences or (None if given.tokens else USUAL_BATCH), given.tokens)
        self.limit = given.pass_tokens
        self.lengths = [len(row.ids) for row in self.rows]
        self.factors = repetitions(parts.train.flat, task, power=recipe.loss.oversample)
        if recipe.teacher is not None:
            self.factors = np.append(self.factors, np.full(len(parts.text), recipe.teacher.share))
        self.counts = self._counts(recipe)

    @property
    def steps(self) -> int:
        """How many there are."""
        return sum(self.counts)

    def planned(self, *, done: int = 0) -> Iterator[Planned]:
        """All steps, one after another, but for those that are done."""
        for epoch, count in enumerate(self.counts):
            skipped, done = min(done, count), max(0, done - count)
            if skipped == count:
                continue
            steps = self._epoch(epoch)
            for number, step in enumerate(steps[skipped:count], skipped + 1):
                made = batches_of(
                    step,
                    self.rows,
                    self.task,
                    limit=self.limit,
                    segments=self.segments,
                    padding=self.padding,
                    taught=self.taught,
                )
                yield Planned([batch.pinned() for batch in made] if self.pinned else made, epoch, number == count)

    def few_sizes(self) -> Padding:
        """Sizes to fill batches up to: about four of them up to the mean, and the filling an eighth of that."""
        steps = [step for epoch, count in enumerate(self.counts) for step in self._epoch(epoch)[:count]]
        mean = sum(self.lengths[number] for step in steps for number in step) / len(steps)
        grain = max(SMALLEST_GRAIN, 2 ** round(math.log2(mean / 4)))
        return Padding(grain, max(map(len, steps)), rounded(max(self.lengths), LENGTHS))

    def _epoch(self, epoch: int) -> list[list[int]]:
        return steps_of(order_of(epoch, self.factors, seed=self.seed), self.lengths, self.size)

    def _counts(self, recipe: FinetuneRecipe) -> list[int]:
        """Steps of each epoch; the last may be a part of one."""
        counts: list[int] = []
        if recipe.steps is not None:
            while sum(counts) < recipe.steps:
                counts.append(min(len(self._epoch(len(counts))), recipe.steps - sum(counts)))
            return counts
        assert recipe.epochs is not None
        for epoch in range(math.ceil(recipe.epochs)):
            share = min(1.0, recipe.epochs - epoch)
            counts.append(max(1, round(share * len(self._epoch(epoch)))))
        return counts


class Training:
    """A run: what learns, on what, and by which rules."""

    def __init__(
        self,
        recipe: FinetuneRecipe,
        learner: Learner,
        parts: Parts,
        task: Task,
        plan: Plan,
        *,
        setting: Setting,
        teaching: Teaching | None = None,
    ) -> None:
        self.recipe, self.learner, self.parts, self.task, self.plan = recipe, learner, parts, task, plan
        self.setting, self.teaching, plan.pinned = setting, teaching, setting.device.type == "cuda"
        layers = learner.model.encoder.config.layers
        self.stepper = Stepper(learner, layers, recipe.optimizer)
        rules = loss_rules(recipe, parts, task)
        self.loss = TaskLoss(task, rules, learner.crf)
        self.graphs: StepGraphs | None = None
        if setting.graphs and can_record(learner, rules, autocast=setting.autocast):
            plan.padding = plan.few_sizes()
            self.graphs = StepGraphs(self._learn, setting.device)
        self.rounding = Rounding(learner, begin=1 - recipe.rounding) if recipe.rounding else None
        given = recipe.schedule
        # Constant after the warm-up; a fall at its end is for pre-training.
        self.rate = LearningRate(recipe.optimizer.lr, given.kind, given.warmup, 0.0, given.end)
        self.progress = Progress(steps=plan.steps)
        self._since = _Sums()

    def lines(
        self, clock: Callable[[], float] = time.monotonic, save: "Callable[[Training], None]" = lambda training: None
    ) -> Iterator[Line]:
        """Learn to the end, giving each line of metrics; afterwards the model has the weights that are kept.

        `save` is called after lines, when nothing of a step is left to do.
        """
        progress = self.progress
        began = clock() - progress.elapsed_s
        self.learner.train()
        rounding = nullcontext() if self.rounding is None else self.rounding.around()
        with rounding, ahead(self.plan.planned(done=progress.step), AHEAD) as planned:
            for step in planned:
                lr = self.rate.at((progress.step + 0.5) / progress.steps)
                if self.rounding is not None:
                    self.rounding.at(progress.step / progress.steps)
                self._since.add(*self._step(step, lr))
                progress.step += 1
                progress.tokens += sum(batch.tokens for batch in step.batches)
                progress.elapsed_s = clock() - began
                last = progress.step == progress.steps
                due = self._due(step, last=last)
                told = due or last or progress.step % LOG_EVERY == 0
                if told:
                    yield self._line(step.epoch, lr)
                if due:
                    yield {"step": progress.step, "epoch": step.epoch, "dev": self._evaluate()}
                    self._since.began_s = time.monotonic()
                    if self._given_up():
                        progress.stopped_early = not last
                        break
                if told and not last:
                    save(self)
        progress.elapsed_s = clock() - began
        if progress.weights:
            put_back(self.learner, progress.weights)

    def serving(self) -> Task:
        """The task as it is served: with what a chain over tags has learnt."""
        if self.learner.crf is None:
            return self.task
        assert isinstance(self.task, Ner)
        return self.task.with_transitions(self.learner.crf.transitions())

    def _step(self, step: Planned, lr: float) -> tuple[Tensor, Tensor, int]:
        """One change of the weights; the loss, the norm of the gradients and the tokens."""
        self.stepper.set_rate(lr)
        if self.graphs is not None and len(step.batches) == 1:
            loss, norm = self.graphs(step.batches[0])
        else:
            loss, norm = self._learn(*(batch.to(self.setting.device) for batch in step.batches))
        return loss, norm, sum(batch.tokens for batch in step.batches)

    def _learn(self, *batches: Batch) -> tuple[Tensor, Tensor]:
        """Change the weights by the sum of these passes; the loss and the norm of the gradients."""
        device, autocast = self.setting.device, self.setting.autocast
        total = torch.zeros((), device=device)
        for batch in batches:
            # Each weight is cast once a pass: there is nothing to remember, and a recorded step must not.
            with torch.autocast(device.type, autocast, enabled=autocast is not None, cache_enabled=False):
                logits = self.learner(batch)
                shares = None if self.teaching is None else self.teaching.shares(batch)
            loss = self.loss(logits, batch)
            if self.teaching is not None and shares is not None:
                loss = loss + self.teaching.loss(logits, shares, batch)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        return total, self.stepper.step()

    def _line(self, epoch: int, lr: float) -> Line:
        progress = self.progress
        line = {"step": progress.step, "epoch": epoch, "tokens": progress.tokens, **self._since.taken()}
        if not (math.isfinite(line["loss"]) and math.isfinite(line["norm"])):
            raise DivergedError(
                f"up to step {progress.step:,} the loss is {line['loss']} and the gradients' norm {line['norm']}; "
                "expected numbers. Lower optimizer.lr, or lengthen schedule.warmup."
            )
        return line | {"lr": lr, "elapsed_s": round(progress.elapsed_s, 3)}

    def _due(self, step: Planned, *, last: bool) -> bool:
        """Whether it is time for scores on dev."""
        if self.parts.dev is None:
            return False
        every = self.recipe.evaluation.every
        return last or (step.ends if every is None else self.progress.step % every == 0)

    def _evaluate(self) -> Scores:
        """Scores on dev; the weights are kept where they are the best so far."""
        assert self.parts.dev is not None
        task, progress = self.serving(), self.progress
        found = answered(
            self.learner,
            self.parts.dev,
            task,
            limit=self.recipe.evaluation.pass_tokens,
            segments=self.plan.segments,
            autocast=self.setting.autocast,
        )
        scores = scored(task, self.parts.dev, found)
        if self.rounding is not None and not self.rounding.begun:
            # Weights that have not learnt to be rounded are not what the run is for.
            return scores
        if progress.scores is None or self._measured(scores) > self._measured(progress.scores):
            progress.scores, progress.best_step, progress.misses = scores, progress.step, 0
            progress.weights = kept(self.learner)
        elif self._measured(progress.scores) > 0 and progress.step > TRIED:
            # A model that has got nothing right so far has not begun: rare labels take some epochs.
            progress.misses += 1
        return scores

    def _measured(self, scores: Scores) -> float:
        """The score that models are chosen by. One that is not defined counts as the worst."""
        found = scores[measure_of(self.recipe, scores)]
        return -math.inf if math.isnan(found) else found

    def _given_up(self) -> bool:
        patience = self.recipe.evaluation.patience
        return patience is not None and self.progress.misses >= patience


class _Sums:
    """Sums since the last line. They stay on the device until they are asked for."""

    def __init__(self) -> None:
        self.losses: list[Tensor] = []
        self.norms: list[Tensor] = []
        self.began_s = time.monotonic()
        self.tokens = 0

    def add(self, loss: Tensor, norm: Tensor, tokens: int) -> None:
        """Count a step."""
        self.losses.append(loss)
        self.norms.append(norm)
        self.tokens += tokens

    def taken(self) -> Line:
        """The means; then they begin anew."""
        loss, norm = (torch.stack(given).double().mean().item() for given in (self.losses, self.norms))
        now = time.monotonic()
        line = {"loss": loss, "norm": norm, "tokens_per_s": round(self.tokens / max(1e-9, now - self.began_s))}
        self.losses, self.norms, self.tokens, self.began_s = [], [], 0, now
        return line


def measure_of(recipe: FinetuneRecipe, scores: Scores) -> str:
    """What models are chosen by: what the recipe says, or the first of the task's measures."""
    wanted = recipe.evaluation.measure
    if wanted is not None and wanted not in scores:
        raise UsageError(f"evaluation.measure is {wanted!r}; the task has {', '.join(scores)}.")
    return wanted or next(iter(scores))


def loss_rules(recipe: FinetuneRecipe, parts: Parts, task: Task) -> Rules:
    """The recipe's loss; weights are counted on the training rows."""
    given = recipe.loss
    if given.kind != "plain" and task.loss in ("value", "span"):
        raise UsageError(
            f"loss.kind {given.kind!r} is for labels, and this task has none to choose from. Leave it out."
        )
    if given.kind != "plain" and recipe.head.crf:
        raise UsageError(f"loss.kind {given.kind!r} and head.crf exclude each other: a chain has a loss of its own.")
    weights = label_weights(parts.train.flat, task, power=given.power) if given.kind == "weighted" else ()
    return Rules(given.kind, given.gamma, given.alpha, given.smooth, weights)
