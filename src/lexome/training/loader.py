"""Batches as tensors, prepared in the background while the model works.

T tokens of the packed batch, S sequences, M masked positions
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import TypeVar

import torch
from torch import Tensor

from lexome.models.packing import Packing
from lexome.training.sampling import Arrays, Place, StepArrays, rounded

Item = TypeVar("Item")

# How long a thread waits before it looks whether it is still wanted.
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Batch:
    """One pass through the model. `tokens` are real; what fills up the batch lies behind them.

    `masked_of_step`, `sequences_of_step` and `tokens_of_step` count all passes of the step: a loss that is a sum
    divided by these adds up to the loss of one large batch.
    """

    ids_T: Tensor
    segments_T: Tensor | None
    packing: Packing
    positions_M: Tensor
    labels_M: Tensor
    pair_labels_S: Tensor | None
    masked: int
    sequences: int
    masked_of_step: int
    sequences_of_step: int
    tokens: int
    tokens_of_step: int

    def mapped(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """The batch with every tensor changed."""
        return replace(
            self,
            ids_T=change(self.ids_T),
            segments_T=None if self.segments_T is None else change(self.segments_T),
            packing=self.packing.map(change),
            positions_M=change(self.positions_M),
            labels_M=change(self.labels_M),
            pair_labels_S=None if self.pair_labels_S is None else change(self.pair_labels_S),
        )


@dataclass(frozen=True, slots=True)
class Step:
    """What one change of the weights is made from, and the place in the text after it."""

    batches: tuple[Batch, ...]
    tokens: int
    after: Place
    rate: float


def tensors(step: StepArrays) -> Step:
    """The step's arrays as tensors."""
    counts = {name: sum(getattr(one, name) for one in step.passes) for name in ("masked", "sequences", "tokens")}
    batches = [_batch(one, **counts) for one in step.passes]
    return Step(tuple(batches), counts["tokens"], step.after, step.rate)


def _batch(arrays: Arrays, *, masked: int, sequences: int, tokens: int) -> Batch:
    # The head of pairs reads every sequence's first token, and an empty one has none: there the number stays as it is.
    limit = None if arrays.pair_labels_S is not None else rounded(arrays.ends_S.size, arrays.ids_T.size)
    packing = Packing.of(arrays.ends_S.tolist(), longest=arrays.longest, sequences=limit)
    paired = arrays.pair_labels_S is not None
    return Batch(
        ids_T=torch.from_numpy(arrays.ids_T),
        segments_T=torch.from_numpy(arrays.segments_T) if paired else None,
        packing=packing,
        positions_M=torch.from_numpy(arrays.positions_M),
        labels_M=torch.from_numpy(arrays.labels_M),
        pair_labels_S=torch.from_numpy(arrays.pair_labels_S) if arrays.pair_labels_S is not None else None,
        masked=arrays.masked,
        sequences=arrays.sequences,
        masked_of_step=max(1, masked),
        sequences_of_step=max(1, sequences),
        tokens=arrays.tokens,
        tokens_of_step=max(1, tokens),
    )


@contextmanager
def ahead(items: Iterator[Item], count: int) -> Iterator[Iterator[Item]]:
    """The same items, up to `count` of them made in advance by another thread; its errors come out here.

    A thread is enough: numpy lets go of the interpreter while it sorts and copies.
    """
    if count == 0:
        yield items
        return
    made: Queue[Item | BaseException | None] = Queue(count)
    ended = Event()

    def put(thing: Item | BaseException | None) -> None:
        while not ended.is_set():
            try:
                return made.put(thing, timeout=POLL_S)
            except Full:
                continue

    def work() -> None:
        try:
            for item in items:
                put(item)
                if ended.is_set():
                    return
            put(None)
        except BaseException as error:  # handed to the thread that waits for the items
            put(error)

    thread = Thread(target=work, name="lexome-batches", daemon=True)
    thread.start()
    try:
        yield _received(made, thread)
    finally:
        ended.set()
        thread.join()


def _received(made: "Queue[Item | BaseException | None]", thread: Thread) -> Iterator[Item]:
    while True:
        try:
            thing = made.get(timeout=POLL_S)
        except Empty:
            if thread.is_alive() or not made.empty():
                continue
            raise RuntimeError("the thread that prepares batches has ended without a word") from None
        if thing is None:
            return
        if isinstance(thing, BaseException):
            raise thing
        yield thing
