"""The training loop of every stage: micro-batches, their prefetching, interrupts, and steps.

The loop is a generator that updates the weights and yields after each step. It saves nothing and prints nothing: its
caller does, between two steps, and ends it by no longer iterating.

T tokens of the packed batch, S sequences, M masked positions
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import Any, Generic, TypeVar

import torch
import torch.utils.deterministic
from torch import Tensor, nn

from lexome.errors import INTERRUPTS
from lexome.models.encoder import Packing
from lexome.training.optim import LearningRateSchedule, Length, Optimizers
from lexome.training.sampling import Arrays, BatchPosition, StepArrays, round_up

# Micro-batches

Item = TypeVar("Item")

# How long a thread waits before it checks whether it is still needed.
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch of pre-training. `tokens` are real; padding lies behind them.

    `masked_of_step`, `sequences_of_step` and `tokens_of_step` count all micro-batches of the step: a loss that is a sum
    divided by these adds up to the loss of one large batch. `views_P2` pairs the sequences that are parts of one text,
    for contrastive learning.
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
    views_P2: Tensor | None = None
    views_of_step: int = 1

    @property
    def counts(self) -> dict[str, int]:
        """The counts that the loss terms of this micro-batch are sums over."""
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
            views_P2=None if self.views_P2 is None else change(self.views_P2),
        )


@dataclass(frozen=True, slots=True)
class Step:
    """One optimizer step: its micro-batches, and the place in the training data after it.

    batches     of the stage's own class, with `counts` for the log and `map` to move its tensors
    tokens      of all micro-batches, also those of other processes
    logged      what each line of metrics.jsonl repeats, such as the masking rate
    ends_epoch  whether it is the last step of its epoch
    """

    batches: tuple[Any, ...]
    tokens: int
    after: BatchPosition
    logged: Mapping[str, float] = field(default_factory=dict)
    ends_epoch: bool = False

    def pinned(self) -> "Step":
        """A copy in pinned memory, which a GPU reads asynchronously."""
        return replace(self, batches=tuple(batch.map(Tensor.pin_memory) for batch in self.batches))


def to_tensors(step: StepArrays) -> Step:
    """A pre-training step's arrays as tensors."""
    counts = {name: sum(getattr(one, name) for one in step.passes) for name in ("masked", "sequences", "tokens")}
    views = sum(0 if one.views_P2 is None else len(one.views_P2) for one in step.passes)
    batches = [_batch(one, **counts, views=views) for one in step.passes]
    return Step(tuple(batches), counts["tokens"], step.after, {"rate": step.rate})


def _batch(arrays: Arrays, *, masked: int, sequences: int, tokens: int, views: int) -> Batch:
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
        views_P2=None if arrays.views_P2 is None else torch.from_numpy(arrays.views_P2),
        views_of_step=max(1, views),
    )


def to_device(batch: Item, device: torch.device) -> Item:
    """A micro-batch on a device; from pinned memory, without waiting for it."""
    if device.type == "cpu":
        return batch
    moved: Item = batch.map(lambda tensor: tensor.to(device, non_blocking=True))  # type: ignore[attr-defined]
    return moved


@contextmanager
def prefetch(items: Iterator[Item], count: int) -> Iterator[Iterator[Item]]:
    """The items of an iterator, up to `count` of them prepared in advance by a thread; its errors are raised here.

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


# Bit-exact kernels

# Without it cuBLAS may give each stream another workspace, and another order of summation.
CUBLAS = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@contextmanager
def deterministic_kernels(enabled: bool, device: torch.device) -> Iterator[None]:
    """Use kernels that are bit-exact from run to run, where enabled and the device is a GPU.

    Attention's backward pass is the one that is slower for it. A CPU needs nothing: one program adds up in one order.
    Enter it before the first product on the GPU, for cuBLAS reads its variable once.
    """
    if not (enabled and device.type == "cuda"):
        yield
        return
    import torch._inductor.config

    inductor: Any = torch._inductor.config
    memory: Any = torch.utils.deterministic
    before, filling = torch.are_deterministic_algorithms_enabled(), memory.fill_uninitialized_memory
    os.environ.setdefault(*CUBLAS)
    torch.use_deterministic_algorithms(True)
    # Meant to make reads of uninitialized memory reproducible; nothing here reads it, and filling takes time.
    memory.fill_uninitialized_memory = False
    tuned = getattr(inductor, "deterministic", None)
    if tuned is not None:
        # Else kernels are chosen by measured speed, which differs from process to process.
        inductor.deterministic = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        memory.fill_uninitialized_memory = filling
        if tuned is not None:
            inductor.deterministic = tuned


# Interrupting

# torchrun forwards what the terminal has sent to all: signals that come together are one request.
TOGETHER_S = 3.0
INTERRUPT_MESSAGE = b"interrupted: saving the training state after this step; press Ctrl-C again to stop at once\n"


class Interrupted(KeyboardInterrupt):
    """The run was interrupted, and its training state is saved; the message says where."""


class StopSignal:
    """Whether the run was asked to stop."""

    def __init__(self, *, announce: bool = False) -> None:
        self.announce = announce
        self.received_s: float | None = None

    @property
    def received(self) -> bool:
        """True from the first signal on."""
        return self.received_s is not None

    def handle(self, number: int, frame: object) -> None:
        """Record a signal. A second one some seconds later does not wait: KeyboardInterrupt."""
        now = time.monotonic()
        if self.received_s is not None and now - self.received_s > TOGETHER_S:
            raise KeyboardInterrupt
        if self.received_s is None:
            self.received_s = now
            if self.announce:
                # Not print: the signal may have come in the middle of one, which is not reentrant.
                with suppress(OSError):  # of a terminal that was closed
                    os.write(2, INTERRUPT_MESSAGE)


@contextmanager
def stop_on_signal(*, announce: bool = False) -> Iterator[StopSignal]:
    """Record signals to stop instead of raising them. Only the main thread gets them; elsewhere nothing changes.

    With `announce`, the first one is acknowledged on standard error, for a step may be long.
    """
    stop = StopSignal(announce=announce)
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    # One that is ignored stays so: by a background job of a shell, or a worker whose parent handles Ctrl-C.
    heard = [number for number in INTERRUPTS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop.handle) for number in heard}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# Steps

Terms = dict[str, Tensor]
"""Named sums over a micro-batch, of losses and of correct predictions, without gradients."""

BatchT = TypeVar("BatchT")
Loss = Callable[[nn.Module, Any], tuple[Tensor, Terms]]
"""(model, micro-batch) to its part of the step's loss and its named sums. Parts of one step add up to its loss."""

Clock = Callable[[], float]


@dataclass(slots=True)
class Position:
    """How far a run has come. `place` is the place in its training data."""

    step: int = 0
    tokens: int = 0
    elapsed_s: float = 0.0
    place: BatchPosition = field(default_factory=BatchPosition)


@dataclass(frozen=True, slots=True)
class StepResult:
    """One step that was made. `loss`, `norm` and `terms` are tensors: to read one synchronizes with the GPU."""

    lr: float
    tokens: int
    loss: Tensor
    norm: Tensor
    terms: Terms = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    logged: Mapping[str, float] = field(default_factory=dict)
    ends_epoch: bool = False


Update = Callable[[Step, float], tuple[Tensor, Tensor, Terms]]
"""(step, learning rate) to its loss, the gradient norm before clipping, and its named sums; the weights are updated."""


def train(
    update: Update,
    steps: Iterator[Step],
    *,
    length: Length,
    schedule: LearningRateSchedule,
    position: Position,
    clock: Clock,
) -> Iterator[StepResult]:
    """Train until the length is reached, yielding each step; `position` is kept up to date.

    Time counts from the first step that is asked for, on top of that in the position: compiling before it does not
    count, what the caller does between two steps does.
    """
    began = clock() - position.elapsed_s
    while fraction_done(length, position) < 1:
        step = next(steps)
        middle = length.fraction(
            steps=position.step + 0.5, tokens=position.tokens + step.tokens / 2, elapsed_s=position.elapsed_s
        )
        lr = schedule.at(middle)
        loss, norm, terms = update(step, lr)
        position.step += 1
        position.tokens += step.tokens
        position.place = step.after
        position.elapsed_s = clock() - began
        names = step.batches[0].counts
        counts = {name: sum(batch.counts[name] for batch in step.batches) for name in names}
        yield StepResult(lr, step.tokens, loss, norm, terms, counts, step.logged, step.ends_epoch)


def fraction_done(length: Length, position: Position) -> float:
    """How much of a run is done, from 0 to 1."""
    return length.fraction(steps=position.step, tokens=position.tokens, elapsed_s=position.elapsed_s)


class Updater(Generic[BatchT]):
    """Makes steps: forward and backward passes of their micro-batches, gradient clipping, an optimizer step."""

    def __init__(self, model: nn.Module, optimizers: Optimizers, loss: Loss) -> None:
        self.model, self.optimizers, self.loss = model, optimizers, loss
        self.device = next(model.parameters()).device

    def __call__(self, step: Step, lr: float) -> tuple[Tensor, Tensor, Terms]:
        if not self.model.training:
            # The caller has evaluated between two steps.
            self.model.train()
        self.optimizers.set_lr(lr)
        loss, terms = self.accumulate(step.batches)
        return loss, self.optimizers.step(), terms

    def accumulate(self, batches: Sequence[BatchT]) -> tuple[Tensor, Terms]:
        """Accumulate the gradients of a step's micro-batches; its loss and named sums."""
        total: Tensor | None = None
        terms: Terms = {}
        for batch in batches:
            loss, sums = self.loss(self.model, to_device(batch, self.device))
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizers.gather()
            total = loss.detach() if total is None else total + loss.detach()
            terms = {name: terms[name] + new if name in terms else new for name, new in sums.items()}
        assert total is not None
        return total, terms

    def warm_up(self, step: Step) -> None:
        """Go through one step without changing anything, so that compiling happens before time counts."""
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices) if devices else torch.random.fork_rng():
            self.model.train()
            self.accumulate(step.batches)
        for weight in (*self.optimizers.weights, *self.optimizers.masters):
            weight.grad = None
        if devices:
            torch.cuda.synchronize(self.device)
