"""The training loop of every stage: a generator that updates the weights and yields after each step.

It saves nothing and prints nothing. Its caller does, between two steps, and ends it by no longer iterating.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch
import torch.utils.deterministic
from torch import Tensor, nn

from lexome.training.loader import Step, to_device
from lexome.training.optim import LearningRateSchedule, Length, Optimizers
from lexome.training.sampling import Place

Terms = dict[str, Tensor]
"""Named sums over a micro-batch, of losses and of correct predictions, without gradients."""

BatchT = TypeVar("BatchT")
Loss = Callable[[nn.Module, Any], tuple[Tensor, Terms]]
"""(model, micro-batch) to its part of the step's loss and its named sums. Parts of one step add up to its loss."""

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


# --- Interrupting

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# torchrun forwards what the terminal has sent to all: signals that come together are one request.
TOGETHER_S = 3.0
INTERRUPT_MESSAGE = b"interrupted: saving after this step; interrupt again to stop at once\n"


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
    before = {number: signal.signal(number, stop.handle) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# --- Steps

Clock = Callable[[], float]


@dataclass(slots=True)
class Position:
    """How far a run has come. `place` is the place in its training data."""

    step: int = 0
    tokens: int = 0
    elapsed_s: float = 0.0
    place: Place = field(default_factory=Place)


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
