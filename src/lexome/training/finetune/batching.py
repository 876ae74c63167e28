"""Batches of a fine-tuning run: which examples make a step, and the tensors of its micro-batches.

T tokens of the packed batch, S sequences, G groups of labels, C labels
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexome.models.attention import Packing
from lexome.tasks.task import IGNORE_INDEX, Example, Task
from lexome.training.loop import Step
from lexome.training.sampling import Place

# The longest sequence is rounded up to a multiple of this: compiled code is specialized for each value.
LENGTHS = 64
# Sequences of a micro-batch where the recipe has neither sequences nor tokens: the usual batch of the papers.
USUAL_BATCH = 32
# The least difference between two padded sizes of a batch, in tokens.
SMALLEST_GRAIN = 128


@dataclass(frozen=True, slots=True)
class TaskBatch:
    """One micro-batch of a task.

    targets      of a token head (T, G), of a sequence head (S, G) or (S, C), of a span head (S, 2); None if unlabeled
    denominator  labels of the whole step, so that the losses of its micro-batches add up to that of one large batch
    tokens       without padding
    soft_T       with teachers: the weight of each token in the distillation loss of the step; 0 for padding
    """

    ids_T: Tensor
    segments_T: Tensor | None
    packing: Packing
    targets: Tensor | None
    denominator: int | Tensor
    tokens: int
    soft_T: Tensor | None = None

    @property
    def counts(self) -> dict[str, int]:
        """A task's loss is logged as it is, without other terms."""
        return {}

    def map(self, change: Callable[[Tensor], Tensor]) -> "TaskBatch":
        """The batch with every tensor changed."""
        return replace(
            self,
            ids_T=change(self.ids_T),
            segments_T=None if self.segments_T is None else change(self.segments_T),
            packing=self.packing.map(change),
            targets=None if self.targets is None else change(self.targets),
            soft_T=None if self.soft_T is None else change(self.soft_T),
        )

    def copy_from(self, other: "TaskBatch") -> None:
        """Copy a batch of the same size into the tensors of this one, whose denominator is a tensor too."""
        for own, new in zip(self._tensors(), other._tensors(), strict=True):
            own.copy_(new, non_blocking=True)
        assert isinstance(self.denominator, Tensor)
        self.denominator.fill_(other.denominator)

    def without_labels(self, task: Task) -> "TaskBatch":
        """A batch that contributes nothing, for a process that has fewer micro-batches than another."""
        assert self.targets is not None
        nothing = torch.nan if task.loss == "value" else IGNORE_INDEX
        soft_T = None if self.soft_T is None else torch.zeros_like(self.soft_T)
        return replace(self, targets=torch.full_like(self.targets, nothing), soft_T=soft_T)

    def _tensors(self) -> list[Tensor]:
        every = (self.ids_T, self.segments_T, *self.packing.tensors, self.targets, self.soft_T)
        return [tensor for tensor in every if tensor is not None]


@dataclass(frozen=True, slots=True)
class StepSize:
    """The size of a step: `accumulation` micro-batches of a number of sequences, or of at most so many tokens.

    limit  a micro-batch of more tokens is split further, to save memory
    """

    sequences: int | None = None
    tokens: int | None = None
    accumulation: int = 1
    limit: int = 32_768


@dataclass(frozen=True, slots=True)
class Padding:
    """The few sizes that batches are padded to, since a CUDA graph is recorded for each.

    grain      tokens are padded to a multiple of it
    sequences  maximum sequences of a batch
    longest    maximum tokens of a sequence
    """

    grain: int
    sequences: int
    longest: int

    @property
    def slots(self) -> int:
        """Sequences of a padded batch: the examples, the padding tokens, and empty ones."""
        return self.sequences + -(-self.grain // self.longest)


class TrainingPlan:
    """Which examples go into which step: a function of the examples and the seed alone.

    repeats  how often each example comes in an epoch, such as 2.3 times
    epochs   the length, or
    steps    in its place
    soft     whether micro-batches have the weights of a distillation loss
    """

    def __init__(
        self,
        examples: Sequence[Example],
        task: Task,
        size: StepSize,
        *,
        repeats: NDArray[np.float64],
        seed: int,
        segments: bool,
        epochs: float | None = None,
        steps: int | None = None,
        soft: bool = False,
        replica: int = 0,
        replicas: int = 1,
    ) -> None:
        self.examples, self.task, self.size, self.repeats, self.seed = examples, task, size, repeats, seed
        self.segments, self.soft, self.replica, self.replicas = segments, soft, replica, replicas
        self.lengths = [len(example.ids) for example in examples]
        self.padding: Padding | None = None
        self.steps_of_epoch = self._steps_of_epoch(epochs, steps)
        self.count = sum(self.steps_of_epoch)

    def steps(self, *, done: int = 0) -> Iterator[Step]:
        """All steps in order, from the first that is not done."""
        for epoch, count in enumerate(self.steps_of_epoch):
            skipped, done = min(done, count), max(0, done - count)
            if skipped == count:
                continue
            for number, chosen in enumerate(self._epoch(epoch)[skipped:count], skipped + 1):
                batches = self._micro_batches(chosen)
                tokens = sum(self.lengths[index] for index in chosen)
                yield Step(tuple(batches), tokens, Place(epoch, number), ends_epoch=number == count)

    def choose_padding(self) -> None:
        """Pad batches to few sizes: about four of them up to the mean, so that padding is an eighth of that."""
        steps = [step for epoch, count in enumerate(self.steps_of_epoch) for step in self._epoch(epoch)[:count]]
        mean = sum(self.lengths[index] for step in steps for index in step) / len(steps)
        grain = max(SMALLEST_GRAIN, 2 ** round(math.log2(mean / 4)))
        self.padding = Padding(grain, max(map(len, steps)), round_up(max(self.lengths), LENGTHS))

    def _micro_batches(self, chosen: Sequence[int]) -> list[TaskBatch]:
        return micro_batches(
            [self.examples[index] for index in chosen],
            self.task,
            self.size,
            segments=self.segments,
            padding=self.padding,
            soft=self.soft,
            replica=self.replica,
            replicas=self.replicas,
        )

    def _epoch(self, epoch: int) -> list[list[int]]:
        return split_epoch(epoch_order(epoch, self.repeats, seed=self.seed), self.lengths, self.size)

    def _steps_of_epoch(self, epochs: float | None, steps: int | None) -> list[int]:
        """The number of steps of each epoch; the last may be a part of one."""
        counts: list[int] = []
        if steps is not None:
            while sum(counts) < steps:
                counts.append(min(len(self._epoch(len(counts))), steps - sum(counts)))
            return counts
        assert epochs is not None
        for epoch in range(math.ceil(epochs)):
            fraction = min(1.0, epochs - epoch)
            counts.append(max(1, round(fraction * len(self._epoch(epoch)))))
        return counts


def epoch_order(epoch: int, repeats: NDArray[np.float64], *, seed: int) -> list[int]:
    """The examples of an epoch, shuffled. One that repeats 2.3 times comes twice, and in three of ten epochs thrice."""
    rng = np.random.default_rng([seed, epoch])
    times = np.floor(repeats + rng.random(len(repeats))).astype(np.int64)
    order = np.repeat(np.arange(len(repeats)), times)
    rng.shuffle(order)
    indices: list[int] = order.tolist()
    return indices


def split_epoch(order: Sequence[int], lengths: Sequence[int], size: StepSize) -> list[list[int]]:
    """The examples of each step, in order. The last step may be smaller."""
    if size.tokens is not None:
        parts = fill(order, lengths, size.tokens)
        starts = range(0, len(parts), size.accumulation)
        return [[index for part in parts[start : start + size.accumulation] for index in part] for start in starts]
    count = (size.sequences or 1) * size.accumulation
    return [list(order[start : start + count]) for start in range(0, len(order), count)]


def fill(
    indices: Sequence[int], lengths: Sequence[int], limit: int, *, sequences: int | None = None
) -> list[list[int]]:
    """Examples in parts of at most `limit` tokens and `sequences` examples, in order; a longer one is a part alone."""
    parts: list[list[int]] = []
    room = 0
    for index in indices:
        if not parts or lengths[index] > room or len(parts[-1]) == sequences:
            parts.append([])
            room = limit
        parts[-1].append(index)
        room -= lengths[index]
    return parts


def micro_batches(
    examples: Sequence[Example],
    task: Task,
    size: StepSize,
    *,
    segments: bool,
    padding: Padding | None = None,
    soft: bool = False,
    replica: int = 0,
    replicas: int = 1,
) -> list[TaskBatch]:
    """The micro-batches of one step that this replica computes; a single one is padded where there is a padding.

    Every replica has as many: those that lack one compute a batch without labels, which adds nothing.
    """
    limit = min(size.limit, size.tokens or size.limit)
    lengths = [len(example.ids) for example in examples]
    every = [
        fill(range(start, len(examples), replicas), lengths, limit, sequences=size.sequences)
        for start in range(replicas)
    ]
    parts = every[replica] or every[0][:1]
    denominator = max(1, sum(map(label_count, examples)))
    padding = padding if len(parts) == 1 else None
    batches = [
        to_batch([examples[index] for index in part], task, segments=segments, denominator=denominator, padding=padding)
        for part in parts
    ]
    if soft:
        batches = [replace(batch, soft_T=_token_weights(batch, sum(lengths))) for batch in batches]
    if not every[replica]:
        batches = [batch.without_labels(task) for batch in batches]
    missing = max(map(len, every)) - len(batches)
    return [*batches, *(batches[0].without_labels(task) for _ in range(missing))]


def _token_weights(batch: TaskBatch, tokens: int) -> Tensor:
    """The weight of each token of a micro-batch in a step of this many tokens."""
    weights_T = torch.zeros(len(batch.ids_T))
    weights_T[: batch.tokens] = 1 / tokens
    return weights_T


def to_batch(
    examples: Sequence[Example], task: Task, *, segments: bool, denominator: int = 1, padding: Padding | None = None
) -> TaskBatch:
    """Examples as one packed batch, with their targets where all of them have some."""
    lengths = [len(example.ids) for example in examples]
    ends = np.cumsum(lengths)
    tokens = int(ends[-1])
    size, slots, longest = tokens, len(examples), round_up(max(lengths), LENGTHS)
    if padding is not None:
        size, slots, longest = round_up(tokens, padding.grain), padding.slots, padding.longest
        ends = np.concatenate([ends, np.arange(tokens + longest, size, longest), [size] if size > tokens else []])
    targets: Tensor | None = None
    if all(example.targets is not None for example in examples):
        each = [np.asarray(example.targets) for example in examples]
        stacked = np.concatenate(each) if task.head == "token" else np.stack(each)
        stacked = stacked.astype(np.float32 if task.loss in ("binary", "value") else np.int64)
        nothing = np.nan if task.loss == "value" else IGNORE_INDEX
        targets = torch.from_numpy(_pad(stacked, size if task.head == "token" else slots, nothing))
    kinds = _pad(np.concatenate([example.segments for example in examples]), size).astype(np.int64)
    ids = _pad(np.concatenate([example.ids for example in examples]), size).astype(np.int64)
    packing = Packing.of(ends.astype(np.int64).tolist(), longest=longest, sequences=slots)
    segments_T = torch.from_numpy(kinds) if segments else None
    return TaskBatch(torch.from_numpy(ids), segments_T, packing, targets, denominator, tokens)


def round_up(count: int, grain: int) -> int:
    """A count rounded up to a multiple."""
    return -(-count // grain) * grain


def _pad(array: NDArray[Any], size: int, value: float = 0) -> NDArray[Any]:
    """An array with more rows at its end, all of one value."""
    if len(array) == size:
        return array
    rest = np.full((size - len(array), *array.shape[1:]), value, array.dtype)
    return np.concatenate([array, rest])


def label_count(example: Example) -> int:
    """The labels of an example that the loss counts: labeled tokens of a token head, else 1; 0 without labels."""
    if example.targets is None:
        return 0
    labeled = (example.targets != IGNORE_INDEX) & ~np.isnan(example.targets)
    return int(labeled.any(axis=-1).sum())
