"""Micro-batches as tensors, and their preparation in a background thread.

T tokens of the packed batch, S sequences, M masked positions
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Any, Protocol, Self, TypeVar

import torch
from torch import Tensor

from lexome.models.attention import Packing
from lexome.training.sampling import Arrays, Place, StepArrays, round_up

Item = TypeVar("Item")

# How long a thread waits before it checks whether it is still needed.
POLL_S = 0.1


class MicroBatch(Protocol):
    """What the training loop needs to know of a stage's batches. `tokens` does not count padding."""

    @property
    def tokens(self) -> int: ...

    @property
    def counts(self) -> Mapping[str, int]: ...

    def map(self, change: Callable[[Tensor], Tensor]) -> Self: ...


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch of pre-training. `tokens` are real; padding lies behind them.

    `masked_of_step`, `sequences_of_step` and `tokens_of_step` count all micro-batches of the step: a loss that is a sum
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

    @property
    def counts(self) -> dict[str, int]:
        """What the loss terms of this micro-batch are sums over."""
        return {"masked": self.masked, "sequences": self.sequences}

    def map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
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
    """One optimizer step: its micro-batches, and the place in the training data after it.

    tokens      of all micro-batches, also those of other processes
    logged      what each line of metrics.jsonl repeats, such as the masking rate
    ends_epoch  whether it is the last step of its epoch
    """

    batches: tuple[Any, ...]
    tokens: int
    after: Place
    logged: Mapping[str, float] = field(default_factory=dict)
    ends_epoch: bool = False

    def pinned(self) -> "Step":
        """The same in pinned memory, which a GPU copies from asynchronously."""
        return replace(self, batches=tuple(batch.map(Tensor.pin_memory) for batch in self.batches))


def to_tensors(step: StepArrays) -> Step:
    """A pre-training step's arrays as tensors."""
    counts = {name: sum(getattr(one, name) for one in step.passes) for name in ("masked", "sequences", "tokens")}
    batches = [_batch(one, **counts) for one in step.passes]
    return Step(tuple(batches), counts["tokens"], step.after, {"rate": step.rate})


def _batch(arrays: Arrays, *, masked: int, sequences: int, tokens: int) -> Batch:
    paired = arrays.pair_labels_S is not None
    # The pair head reads every sequence's first token, and an empty sequence has none: there the count stays as it is.
    limit = None if paired else round_up(arrays.ends_S.size, arrays.ids_T.size)
    return Batch(
        ids_T=torch.from_numpy(arrays.ids_T),
        segments_T=torch.from_numpy(arrays.segments_T) if paired else None,
        packing=Packing.of(arrays.ends_S.tolist(), longest=arrays.longest, sequences=limit),
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


def to_device(batch: Item, device: torch.device) -> Item:
    """A micro-batch on a device; from pinned memory, without waiting for it."""
    if device.type == "cpu":
        return batch
    moved: Item = batch.map(lambda tensor: tensor.to(device, non_blocking=True))  # type: ignore[attr-defined]
    return moved


@contextmanager
def prefetch(items: Iterator[Item], count: int) -> Iterator[Iterator[Item]]:
    """The same items, up to `count` of them prepared in advance by a thread; its errors are raised here.

    A thread is enough: numpy releases the GIL while it sorts and copies.
    """
    if count == 0:
        yield items
        return
    queue: Queue[Item | BaseException | None] = Queue(count)
    ended = Event()

    def put(thing: Item | BaseException | None) -> None:
        while not ended.is_set():
            try:
                return queue.put(thing, timeout=POLL_S)
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
        yield _receive(queue, thread)
    finally:
        ended.set()
        thread.join()


def _receive(queue: "Queue[Item | BaseException | None]", thread: Thread) -> Iterator[Item]:
    while True:
        try:
            thing = queue.get(timeout=POLL_S)
        except Empty:
            if thread.is_alive() or not queue.empty():
                continue
            raise RuntimeError("the thread that prepares batches ended without an error") from None
        if thing is None:
            return
        if isinstance(thing, BaseException):
            raise thing
        yield thing
