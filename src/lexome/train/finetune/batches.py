"""Rows of a task laid end to end: which rows go into a step, and the tensors of each pass.

T tokens of the packed batch, S sequences, G groups of labels, C labels
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lexome.models.packing import Packing
from lexome.tasks.task import NOT_ASKED, Row, Task
from lexome.values import value

# The longest row is told as a multiple of this: compiled code is made anew for each that occurs.
LENGTHS = 64


@dataclass(frozen=True, slots=True)
class Batch:
    """One pass through the model.

    targets  of a token head (T, G), of a sequence head (S, G) or (S, C), of a span head (S, 2); None where unknown
    asked    what the loss of the whole step is divided by, so that passes add up to the loss of one large batch
    """

    ids_T: Tensor
    segments_T: Tensor | None
    packing: Packing
    targets: Tensor | None
    asked: int

    @property
    def tokens(self) -> int:
        """How many tokens go through."""
        return self.ids_T.shape[0]

    def to(self, device: torch.device) -> "Batch":
        """The same on another device; from pinned memory, without waiting for it."""
        return self._mapped(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> "Batch":
        """The same in memory that a GPU can copy from by itself."""
        return self._mapped(lambda tensor: tensor.pin_memory())

    def _mapped(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        packing = self.packing
        return replace(
            self,
            ids_T=change(self.ids_T),
            segments_T=None if self.segments_T is None else change(self.segments_T),
            packing=Packing(
                packing.lengths,
                change(packing.bounds_S1),
                longest=packing.longest,
                positions_T=change(packing.positions_T),
            ),
            targets=None if self.targets is None else change(self.targets),
        )


@value
class StepSize:
    """How many rows make a step: so many sequences, or as many as fit into so many tokens."""

    sequences: int | None = None
    tokens: int | None = None


def batch_of(rows: Sequence[Row], task: Task, *, segments: bool, asked: int = 1) -> Batch:
    """The rows as one pass, with their targets where all rows have them."""
    ends = np.cumsum([len(row.ids) for row in rows])
    targets: Tensor | None = None
    if all(row.targets is not None for row in rows):
        given = [np.asarray(row.targets) for row in rows]
        joined = np.concatenate(given) if task.head == "token" else np.stack(given)
        targets = torch.from_numpy(joined.astype(np.float32 if task.loss in ("binary", "value") else np.int64))
    kinds = torch.from_numpy(np.concatenate([row.segments for row in rows]).astype(np.int64)) if segments else None
    ids_T = torch.from_numpy(np.concatenate([row.ids for row in rows]).astype(np.int64))
    longest = -(-max(len(row.ids) for row in rows) // LENGTHS) * LENGTHS
    return Batch(ids_T, kinds, Packing.of(ends.tolist(), longest=longest), targets, asked)


def asked_of(row: Row, task: Task) -> int:
    """How much of a row the loss looks at: tokens of a token head, else 1; 0 where nothing is asked."""
    if row.targets is None:
        return 0
    asked = (row.targets != NOT_ASKED) & ~np.isnan(row.targets)
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


def batches_of(step: Sequence[int], rows: Sequence[Row], task: Task, *, limit: int, segments: bool) -> list[Batch]:
    """The passes of one step, of at most `limit` tokens each."""
    chosen = [rows[number] for number in step]
    asked = max(1, sum(asked_of(row, task) for row in chosen))
    parts = filled(range(len(chosen)), [len(row.ids) for row in chosen], limit)
    return [batch_of([chosen[place] for place in part], task, segments=segments, asked=asked) for part in parts]
