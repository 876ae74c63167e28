"""One model learns: steps, scores on dev between them, the best weights kept, an end where nothing gets better."""

import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import AdamW

from lexome.document import Document
from lexome.errors import DivergedError, FormatError, UsageError
from lexome.files import atomic_write
from lexome.models.attention import varlen_kernel_available
from lexome.models.encoder import Attention, Encoder
from lexome.recipe.finetune import FinetuneRecipe, OptimizerTable
from lexome.tasks.task import Example, Floats, Scores, Task
from lexome.training.finetune.batching import (
    LENGTHS,
    Batch,
    Padding,
    StepSize,
    batch_of,
    batches_of,
    filled,
    order_of,
    rounded,
    steps_of,
)
from lexome.training.finetune.examples import Parts, Split, label_weights, repetitions
from lexome.training.finetune.objective import Rules, TaskLoss, Teaching
from lexome.training.finetune.task_model import Learner
from lexome.training.journal import Line
from lexome.training.loader import ahead
from lexome.training.optim import LearningRate

# The number of a layer in our names and in those of most models of transformers.
_LAYER = re.compile(r"\.(?:layers?|h|blocks?)\.(\d+)\.")


class Stepper:
    """The optimizer of a run: gradients are clipped, every group has its share of the rate.

    On a GPU rates lie there too, and a step never waits: so it can be recorded (graphs.py).
    """

    def __init__(self, learner: Learner, layers: int, given: OptimizerTable) -> None:
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        for name, weight in learner.named_parameters():
            if weight.requires_grad:
                decay = given.weight_decay if weight.ndim > 1 and not name.startswith("crf.") else 0.0
                groups.setdefault((_share(name, layers, given), decay), []).append(weight)
        self.weights = [weight for members in groups.values() for weight in members]
        options: list[dict[str, Any]] = [
            {"params": members, "weight_decay": decay, "share": share} for (share, decay), members in groups.items()
        ]
        device = self.weights[0].device
        on_gpu = device.type == "cuda"
        self._shares = torch.tensor([share for share, _ in groups], device=device)
        self._rates = torch.zeros_like(self._shares)
        if on_gpu:
            for group, rate in zip(options, self._rates, strict=True):
                group["lr"] = rate
        self.optimizer = AdamW(options, lr=0.0, betas=given.betas, eps=given.eps, fused=on_gpu, capturable=on_gpu)
        self.clip = given.max_grad_norm or math.inf

    def set_rate(self, lr: float) -> None:
        """The learning rate of the next steps."""
        if self._rates.is_cuda:
            torch.mul(self._shares, lr, out=self._rates)
            return
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["share"]

    def step(self) -> Tensor:
        """Change the weights by their gradients, and forget these; their norm before it was clipped."""
        norm = nn.utils.clip_grad_norm_(self.weights, self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def moments(self) -> list[dict[str, Tensor]]:
        """What the optimizer remembers of each weight."""
        return [dict(self.optimizer.state[weight]) for weight in self.weights]

    def take_moments(self, held: list[dict[str, Tensor]]) -> None:
        """Remember what another one did; rates stay where they are, since a recorded step reads them there."""
        for weight, moments in zip(self.weights, held, strict=True):
            self.optimizer.state[weight] = dict(moments)


def _share(name: str, layers: int, given: OptimizerTable) -> float:
    """What share of the learning rate a weight has."""
    if not name.startswith("model.encoder."):
        return 1.0 if given.head_lr is None else given.head_lr / given.lr
    number = _LAYER.search(name)
    if number is not None:
        return given.layerwise_lr_decay ** (layers - int(number[1]))
    return given.layerwise_lr_decay ** (layers + 1 if ".embed" in name else 0)


def kept(learner: Learner) -> dict[str, Tensor]:
    """Copies of the weights that learn."""
    return {name: weight.detach().clone() for name, weight in learner.named_parameters() if weight.requires_grad}


@torch.no_grad()
def put_back(learner: Learner, weights: dict[str, Tensor]) -> None:
    """Take copied weights up again."""
    for name, weight in learner.named_parameters():
        if name in weights:
            weight.copy_(weights[name])


# As train/quantise.py has it for weights, and ONNX's DynamicQuantizeLinear for what they are multiplied with.
WEIGHT_STEPS, INPUT_STEPS = 127, 255


class RoundedLinear(nn.Linear):
    """A linear layer whose input and weight are rounded while it trains, as far as `share`, 0 or 1, says."""

    share: Tensor

    def forward(self, input_TD: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input_TD)
        seen_TD = input_TD + self.share * (rounded_input(input_TD) - input_TD).detach()
        weight = self.weight + self.share * (rounded_weight(self.weight) - self.weight).detach()
        return functional.linear(seen_TD, weight, self.bias)


def rounded_weight(weight_RD: Tensor) -> Tensor:
    """A weight as int8 export stores it: each row, a column there, in steps of its own."""
    step_R1 = (weight_RD.abs().amax(dim=1, keepdim=True) / WEIGHT_STEPS).clamp(min=1e-12)
    return (weight_RD / step_R1).round() * step_R1


def rounded_input(input_TD: Tensor) -> Tensor:
    """Numbers as they go into a product: in 255 steps from the least to the largest, 0 being one of them."""
    exact_TD = input_TD.float()
    least, most = exact_TD.amin().clamp(max=0.0), exact_TD.amax().clamp(min=0.0)
    step = ((most - least) / INPUT_STEPS).clamp(min=1e-12)
    zero = (-least / step).round()
    whole_TD = ((exact_TD / step).round() + zero).clamp(0, INPUT_STEPS)
    return ((whole_TD - zero) * step).to(input_TD.dtype)


class Rounding:
    """The rounding of all matrices in the layers of an encoder, switched on for the last part of a run."""

    def __init__(self, learner: Learner, *, begin: float) -> None:
        encoder = learner.model.encoder
        if not isinstance(encoder, Encoder):
            raise UsageError("qat_ratio is not supported for models that transformers computes. Leave it out.")
        self.begin, self.begun = begin, False
        self.parts = [part for part in encoder.layers.modules() if type(part) is nn.Linear]
        self.share = torch.zeros((), device=next(encoder.parameters()).device)

    @contextmanager
    def around(self) -> Iterator[None]:
        """Within it the layers round, once they are told to; afterwards they are as they were."""
        for part in self.parts:
            part.__class__ = RoundedLinear
            part.share = self.share
        try:
            yield
        finally:
            for part in self.parts:
                part.__class__ = nn.Linear
                del part.share

    def at(self, done: float) -> None:
        """Switch rounding on where so much of the run is done; a recorded step reads it from the GPU."""
        self.begun = done >= self.begin
        self.share.fill_(float(self.begun))


Result = tuple[Tensor, Tensor]
"""The loss and the norm of the gradients."""


def can_record(learner: Learner, rules: Rules, *, autocast: torch.dtype | None) -> bool:
    """Whether a step of this model launches the same kernels whatever a batch of one size holds.

    Attention with dropout or in float32 goes by lengths, and a model of transformers may do anything; of the losses,
    that of chains goes by lengths too, and the focal and dice loss pick out what is asked.
    """
    encoder = learner.model.encoder
    return (
        isinstance(encoder, Encoder)
        and not encoder.gradient_checkpointing
        and varlen_kernel_available(autocast, windows=encoder.config.local_window is not None)
        and all(part.dropout == 0.0 for part in encoder.modules() if isinstance(part, Attention))
        and learner.crf is None
        and rules.kind in ("plain", "weighted")
    )


@dataclass(frozen=True, slots=True)
class Recorded:
    """A step of one size: what it reads, what it is, what it leaves."""

    batch: Batch
    graph: torch.cuda.CUDAGraph
    result: Result


class StepGraphs:
    """Steps on one GPU. `step` changes the weights by a batch there, reading the learning rate from the GPU."""

    def __init__(self, step: Callable[[Batch], Result], device: torch.device) -> None:
        self._step, self._device = step, device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        self._seen: set[int] = set()
        self._recorded: dict[int, Recorded] = {}
        self._given_up = False

    def __call__(self, batch: Batch) -> Result:
        """One step by a batch in pinned memory; what it gives may be kept."""
        outer = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(outer)
        with torch.cuda.stream(self._stream):
            result = self._on_stream(batch)
        outer.wait_stream(self._stream)
        return result

    def _on_stream(self, batch: Batch) -> Result:
        size = batch.ids_T.shape[0]
        recorded = self._recorded.get(size)
        if recorded is None and size in self._seen and not self._given_up:
            recorded = self._record(batch)
        self._seen.add(size)
        if recorded is None:
            return self._step(batch.to(self._device))
        recorded.batch.take(batch)
        recorded.graph.replay()
        loss, norm = recorded.result
        return loss.clone(), norm.clone()

    def _record(self, batch: Batch) -> Recorded | None:
        """Record the step for batches of this size. Nothing is computed meanwhile; None where it cannot be done."""
        asked = torch.tensor(float(batch.asked), device=self._device)
        held = replace(batch.to(self._device), asked=asked)
        graph = torch.cuda.CUDAGraph()
        self._stream.synchronize()
        try:
            # The thread that makes batches goes on pinning memory, which is forbidden to the recording thread alone.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                result = self._step(held)
            finally:
                graph.capture_end()
        except RuntimeError as error:
            self._given_up = True
            why = str(error).partition("\n")[0]
            print(f"steps are not recorded as CUDA graphs ({why}); they are slower without.", file=sys.stderr)
            return None
        self._recorded[batch.ids_T.shape[0]] = made = Recorded(held, graph, result)
        return made


@torch.inference_mode()
def logits_of(
    learner: Learner, rows: Sequence[Example], task: Task, *, limit: int, segments: bool, autocast: torch.dtype | None
) -> list[Floats]:
    """The logits of each row, (C,) or (its tokens, C), in passes of at most `limit` tokens of rows of like length."""
    was = learner.training
    learner.eval()
    device = next(learner.parameters()).device
    lengths = [len(row.ids) for row in rows]
    order = sorted(range(len(rows)), key=lambda number: -lengths[number])
    results: dict[int, Floats] = {}
    for part in filled(order, lengths, limit):
        batch = batch_of([rows[number] for number in part], task, segments=segments).to(device)
        with torch.autocast(device.type, autocast, enabled=autocast is not None):
            logits = learner(batch)
        numbers = logits.float().cpu().numpy()
        pieces = numbers if task.head == "sequence" else np.split(numbers, np.cumsum([lengths[n] for n in part])[:-1])
        results.update(zip(part, pieces, strict=True))
    learner.train(was)
    return [results[number] for number in range(len(rows))]


def answered(
    learner: Learner, split: Split, task: Task, *, limit: int, segments: bool, autocast: torch.dtype | None
) -> list[Document]:
    """The documents of a split with what the model says in place of what is known."""
    logits = logits_of(learner, split.flat, task, limit=limit, segments=segments, autocast=autocast)
    crossed = iter(logits)
    found = []
    for doc, rows in zip(split.docs, split.rows, strict=True):
        found.append(task.decode(doc, rows, [next(crossed) for _ in rows]))
    return found


def scored(task: Task, split: Split, found: Sequence[Document]) -> Scores:
    """The task's measures. With documents of several sources each is scored by what it annotates; first comes the mean.

    The mean is that of the task's first measure, every source counting the same.
    """
    sources = dict.fromkeys(split.sources)
    if len(sources) == 1:
        return task.for_source(next(iter(sources))).score(split.docs, found)
    parts: dict[str, Scores] = {}
    for name in sources:
        places = [place for place, source in enumerate(split.sources) if source == name]
        gold = [split.docs[place] for place in places]
        parts[name] = task.for_source(name).score(gold, [found[place] for place in places])
    first = next(iter(next(iter(parts.values()))))
    scores = {first: float(np.mean([part[first] for part in parts.values()]))}
    return scores | {f"{name} {measure}": held for name, part in parts.items() for measure, held in part.items()}


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
        self.limit = given.micro_batch_tokens
        self.lengths = [len(row.ids) for row in self.rows]
        self.factors = repetitions(parts.train.flat, task, power=recipe.loss.oversample)
        if recipe.teacher is not None:
            self.factors = np.append(self.factors, np.full(len(parts.text), recipe.teacher.text_ratio))
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
        self.rounding = Rounding(learner, begin=1 - recipe.qat_ratio) if recipe.qat_ratio else None
        given = recipe.schedule
        # Constant after the warm-up; a fall at its end is for pre-training.
        self.rate = LearningRate(recipe.optimizer.lr, given.kind, given.warmup_ratio, 0.0, given.min_lr_ratio)
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
                "expected numbers. Lower optimizer.lr, or raise schedule.warmup_ratio."
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
            limit=self.recipe.evaluation.batch_tokens,
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
    wanted = recipe.evaluation.metric
    if wanted is not None and wanted not in scores:
        raise UsageError(f"evaluation.metric is {wanted!r}; the task has {', '.join(scores)}.")
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


STATE = "state.pt"
# Raised whenever what is saved changes: the state of another version is not taken up.
VERSION = 1


class Saver:
    """Saves the state of a run into its folder when so many seconds have gone by since the last time.

    The state is marked with the first of the run's identities, and taken up with any of them.
    """

    def __init__(self, folder: Path, *, identities: Sequence[str], every_s: float) -> None:
        self.path, self.identities, self.every_s = folder / STATE, identities, every_s
        self.saved_s = time.monotonic()

    def __call__(self, training: Training) -> None:
        """Save, where it is time. A run that cannot be saved, as on a full disk, goes on without."""
        if time.monotonic() - self.saved_s < self.every_s:
            return
        try:
            with atomic_write(self.path) as stream:
                torch.save({"mark": _mark(self.identities[0], training), **state_of(training)}, stream)
        except (OSError, RuntimeError, FormatError) as error:  # torch says a full disk as RuntimeError
            print(f"{self.path} cannot be written ({error}); the run goes on without.", file=sys.stderr)
        self.saved_s = time.monotonic()

    def restore(self, training: Training) -> None:
        """Go on from what was saved, where that was this run on this kind of device; else from the beginning."""
        try:
            held = torch.load(self.path, map_location=training.setting.device, weights_only=True)
        except FileNotFoundError:
            return
        except Exception as error:  # torch has no one kind for a file that is none of its own
            print(f"{self.path} cannot be read ({type(error).__name__}); the run begins again.", file=sys.stderr)
            return
        known = [_mark(identity, training) for identity in self.identities]
        if not isinstance(held, dict) or held.get("mark") not in known:
            print(f"{self.path} is of another run or device; the run begins again.", file=sys.stderr)
            return
        take_up(training, held)

    def remove(self) -> None:
        """The run is done, and nothing will go on from here."""
        self.path.unlink(missing_ok=True)


def _mark(identity: str, training: Training) -> list[Any]:
    """What a state must have in common with a run: half a run on a GPU and half on a CPU would be neither."""
    return [VERSION, identity, training.setting.device.type]


def state_of(training: Training) -> dict[str, Any]:
    """All that the rest of a run depends on."""
    device = training.setting.device
    return {
        "weights": kept(training.learner),
        "moments": training.stepper.moments(),
        "progress": dict(vars(training.progress)),
        "generator": torch.get_rng_state(),
        "gpu_generator": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def take_up(training: Training, held: dict[str, Any]) -> None:
    """Put a run where another one was when its state was taken."""
    put_back(training.learner, held["weights"])
    training.stepper.take_moments(held["moments"])
    training.progress = Progress(**held["progress"])
    torch.set_rng_state(held["generator"].cpu())
    if held["gpu_generator"] is not None:
        torch.cuda.set_rng_state(held["gpu_generator"].cpu(), training.setting.device)
