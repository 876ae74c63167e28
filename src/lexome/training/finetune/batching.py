"""Rows of a task laid end to end: which rows go into a step, and the tensors of each pass.

T tokens of the packed batch, S sequences, G groups of labels, C labels
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexome.models.packing import Packing
from lexome.tasks.task import IGNORE_INDEX, Example, Task

# The longest row is told as a multiple of this: compiled code is made anew for each that occurs.
LENGTHS = 64


@dataclass(frozen=True, slots=True)
class Batch:
    """One pass through the model.

    targets  of a token head (T, G), of a sequence head (S, G) or (S, C), of a span head (S, 2); None where unknown
    asked    what the loss of the whole step is divided by, so that passes add up to the loss of one large batch
    tokens   how many are real; with padding, there are more
    taught_T with a teacher, what each token counts in the step: nothing where it only fills up the batch
    """

    ids_T: Tensor
    segments_T: Tensor | None
    packing: Packing
    targets: Tensor | None
    asked: int | Tensor
    tokens: int
    taught_T: Tensor | None = None

    def to(self, device: torch.device) -> "Batch":
        """The same on another device; from pinned memory, without waiting for it."""
        return self._mapped(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> "Batch":
        """The same in memory that a GPU can copy from by itself."""
        return self._mapped(lambda tensor: tensor.pin_memory())

    def take(self, other: "Batch") -> None:
        """Put the content of a batch of the same size into the tensors of this one; `asked` is one of them here."""
        for own, given in zip(self._tensors(), other._tensors(), strict=True):
            own.copy_(given, non_blocking=True)
        assert isinstance(self.asked, Tensor)
        self.asked.fill_(other.asked)

    def _tensors(self) -> list[Tensor]:
        every = (self.ids_T, self.segments_T, *self.packing.tensors, self.targets, self.taught_T)
        return [tensor for tensor in every if tensor is not None]

    def _mapped(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        return replace(
            self,
            ids_T=change(self.ids_T),
            segments_T=None if self.segments_T is None else change(self.segments_T),
            packing=self.packing.map(change),
            targets=None if self.targets is None else change(self.targets),
            taught_T=None if self.taught_T is None else change(self.taught_T),
        )


@dataclass(frozen=True, slots=True)
class StepSize:
    """How many rows make a step: so many sequences, or as many as fit into so many tokens."""

    sequences: int | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Padding:
    """The few sizes that batches are filled up to, for steps that are recorded once for each.

    grain      tokens are filled up to a multiple of it
    sequences  the most rows of a batch
    longest    the most tokens of a row
    """

    grain: int
    sequences: int
    longest: int

    @property
    def slots(self) -> int:
        """How many sequences a filled batch has: all rows, what fills the tokens up, and empty ones."""
        return self.sequences + -(-self.grain // self.longest)


def batch_of(
    rows: Sequence[Example], task: Task, *, segments: bool, asked: int = 1, padding: Padding | None = None
) -> Batch:
    """The rows as one pass, with their targets where all rows have them."""
    lengths = [len(row.ids) for row in rows]
    ends = np.cumsum(lengths)
    tokens = int(ends[-1])
    size, slots, longest = tokens, len(rows), rounded(max(lengths), LENGTHS)
    if padding is not None:
        size, slots, longest = rounded(tokens, padding.grain), padding.slots, padding.longest
        ends = np.concatenate([ends, np.arange(tokens + longest, size, longest), [size] if size > tokens else []])
    targets: Tensor | None = None
    if all(row.targets is not None for row in rows):
        given = [np.asarray(row.targets) for row in rows]
        joined = np.concatenate(given) if task.head == "token" else np.stack(given)
        joined = joined.astype(np.float32 if task.loss in ("binary", "value") else np.int64)
        nothing = np.nan if task.loss == "value" else IGNORE_INDEX
        targets = torch.from_numpy(_filled(joined, size if task.head == "token" else slots, nothing))
    kinds = _filled(np.concatenate([row.segments for row in rows]), size).astype(np.int64) if segments else None
    ids = _filled(np.concatenate([row.ids for row in rows]), size).astype(np.int64)
    packing = Packing.of(ends.astype(np.int64).tolist(), longest=longest, sequences=slots)
    of = torch.from_numpy
    return Batch(of(ids), None if kinds is None else of(kinds), packing, targets, asked, tokens)


def rounded(count: int, grain: int) -> int:
    """A count raised to a multiple."""
    return -(-count // grain) * grain


def _filled(array: NDArray[Any], size: int, filling: float = 0) -> NDArray[Any]:
    """An array with more rows at its end, all of one value."""
    if len(array) == size:
        return array
    rest = np.full((size - len(array), *array.shape[1:]), filling, array.dtype)
    return np.concatenate([array, rest])


def asked_of(row: Example) -> int:
    """How much of a row the loss looks at: tokens of a token head, else 1; 0 where nothing is asked."""
    if row.targets is None:
        return 0
    asked = (row.targets != IGNORE_INDEX) & ~np.isnan(row.targets)
    return int(asked.any(axis=-1).sum())


def order_of(epoch: int, factors: NDArray[np.float64], *, seed: int) -> list[int]:
    """The rows of an epoch, shuffled. A row with the factor 2.3 comes twice, and in three of ten epochs three times."""
    rng = np.random.default_rng([seed, epoch])
    times = np.floor(factors + rng.random(len(factors))).astype(np.int64)
    order = np.repeat(np.arange(len(factors)), times)
    rng.shuffle(order)
    chosen: list[int] = order.tolist()
    return chosen


def steps_of(order: Sequence[int], lengths: Sequence[int], size: StepSize) -> list[list[int]]:
    """The numbers of the rows of each step, in order. The last step may be smaller."""
    if size.tokens is not None:
        return filled(order, lengths, size.tokens)
    wide = size.sequences or 1
    return [list(order[start : start + wide]) for start in range(0, len(order), wide)]


def filled(numbers: Sequence[int], lengths: Sequence[int], limit: int) -> list[list[int]]:
    """Rows in parts of at most `limit` tokens, in order; a row that is longer goes alone."""
    parts: list[list[int]] = []
    room = 0
    for number in numbers:
        if not parts or lengths[number] > room:
            parts.append([])
            room = limit
        parts[-1].append(number)
        room -= lengths[number]
    return parts


def batches_of(
    step: Sequence[int],
    rows: Sequence[Example],
    task: Task,
    *,
    limit: int,
    segments: bool,
    padding: Padding | None = None,
    taught: bool = False,
) -> list[Batch]:
    """The passes of one step, of at most `limit` tokens each; a single one is filled up where that is asked for."""
    chosen = [rows[number] for number in step]
    asked = max(1, sum(asked_of(row) for row in chosen))
    parts = filled(range(len(chosen)), [len(row.ids) for row in chosen], limit)
    if len(parts) > 1:
        padding = None
    made = [
        batch_of([chosen[place] for place in part], task, segments=segments, asked=asked, padding=padding)
        for part in parts
    ]
    if not taught:
        return made
    tokens = sum(batch.tokens for batch in made)
    return [replace(batch, taught_T=_counting(batch, tokens)) for batch in made]


def _counting(batch: Batch, tokens: int) -> Tensor:
    """What each token of a pass counts in a step of so many."""
    counts_T = torch.zeros(len(batch.ids_T))
    counts_T[: batch.tokens] = 1 / tokens
    return counts_T
