"""The training loop: a generator that changes the weights and yields after each step.

It saves nothing and prints nothing. Its caller does, between two steps, and stops it by no longer asking.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.utils.deterministic
from torch import Tensor, nn

from lexome.training.loader import Batch, Step
from lexome.training.losses import Loss, Terms
from lexome.training.optim import LearningRate, Length, Optimizers
from lexome.training.sampling import Place

# Without it cuBLAS may give each stream another workspace, and another order of sums.
CUBLAS = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@contextmanager
def exact(wanted: bool, device: torch.device) -> Iterator[None]:
    """Choose kernels that give the same bits each time, where this is wanted and the device is a GPU.

    Attention's backward pass is the one that is slower for it. A CPU needs nothing: one program adds up in one order.
    Enter it before the first product on the GPU, for cuBLAS reads its variable once.
    """
    if not (wanted and device.type == "cuda"):
        yield
        return
    import torch._inductor.config

    inductor: Any = torch._inductor.config
    memory: Any = torch.utils.deterministic
    before, filling = torch.are_deterministic_algorithms_enabled(), memory.fill_uninitialized_memory
    os.environ.setdefault(*CUBLAS)
    torch.use_deterministic_algorithms(True)
    # Meant to make reads of unset memory alike; nothing here reads it, and filling takes time.
    memory.fill_uninitialized_memory = False
    tuned = getattr(inductor, "deterministic", None)
    if tuned is not None:
        # Else kernels are chosen by how quick they were when they were tried, which differs from process to process.
        inductor.deterministic = True
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        memory.fill_uninitialized_memory = filling
        if tuned is not None:
            inductor.deterministic = tuned


SIGNALS = (signal.SIGINT, signal.SIGTERM)
# torchrun hands on what the terminal has sent to all: signals that come together are one wish.
TOGETHER_S = 3.0
SAID = b"stopping when this step is done and saved; ask again to stop at once\n"


class Stopped(KeyboardInterrupt):
    """The run was asked to stop, and its state is saved; the message says where."""


class Stop:
    """Whether the run was asked to stop."""

    def __init__(self, *, told: bool = False) -> None:
        self.told = told
        self.asked_s: float | None = None

    @property
    def asked(self) -> bool:
        """True from the first signal on."""
        return self.asked_s is not None

    def hear(self, number: int, frame: object) -> None:
        """Take a signal down. Who asks again some seconds later does not want to wait: KeyboardInterrupt."""
        now = time.monotonic()
        if self.asked_s is not None and now - self.asked_s > TOGETHER_S:
            raise KeyboardInterrupt
        if self.asked_s is None:
            self.asked_s = now
            if self.told:
                # Not print: the signal may have come in the middle of one, which cannot be entered twice.
                os.write(2, SAID)


@contextmanager
def listening(*, told: bool = False) -> Iterator[Stop]:
    """Signals to stop are taken down and not raised. Only the main thread hears them; elsewhere nothing changes.

    Where it is to be `told`, the first one is answered on standard error, for a step may be long.
    """
    stop = Stop(told=told)
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop.hear) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


Clock = Callable[[], float]


@dataclass(slots=True)
class Position:
    """How far a run has come."""

    step: int = 0
    tokens: int = 0
    elapsed_s: float = 0.0
    place: Place = field(default_factory=Place)


@dataclass(frozen=True, slots=True)
class Done:
    """One step that was made. `loss`, `norm` and `terms` are tensors: to read one waits for the GPU."""

    lr: float
    rate: float
    tokens: int
    masked: int
    sequences: int
    loss: Tensor
    norm: Tensor
    terms: Terms


@dataclass(frozen=True, slots=True)
class Rules:
    """How a run goes: its length, its learning rate, the largest norm of gradients."""

    length: Length
    rate: LearningRate
    clip: float | None = 1.0


def train(
    model: nn.Module,
    optimizers: Optimizers,
    steps: Iterator[Step],
    loss: Loss,
    *,
    rules: Rules,
    position: Position,
    clock: Clock,
) -> Iterator[Done]:
    """Train until the length is reached, yielding each step; `position` is kept up to date.

    Time counts from the first step that is asked for, on top of what the position holds: what is compiled before is
    not counted, what the caller does between two steps is.
    """
    device = next(model.parameters()).device
    began = clock() - position.elapsed_s
    while _share(rules.length, position) < 1:
        if not model.training:
            # The caller has measured between two steps.
            model.train()
        step = next(steps)
        middle = rules.length.share(
            steps=position.step + 0.5, tokens=position.tokens + step.tokens / 2, elapsed_s=position.elapsed_s
        )
        lr = rules.rate.at(middle)
        total, terms = gradients(model, optimizers, step, loss, device=device)
        norm = optimizers.step(lr, clip=rules.clip)
        position.step += 1
        position.tokens += step.tokens
        position.place = step.after
        position.elapsed_s = clock() - began
        counts = (sum(batch.masked for batch in step.batches), sum(batch.sequences for batch in step.batches))
        yield Done(lr, step.rate, step.tokens, *counts, total, norm, terms)


def gradients(
    model: nn.Module, optimizers: Optimizers, step: Step, loss: Loss, *, device: torch.device
) -> tuple[Tensor, Terms]:
    """Add up the gradients of a step's passes; its loss and sums."""
    total: Tensor | None = None
    terms: Terms = {}
    for batch in step.batches:
        part, sums = loss(model, moved(batch, device))
        part.backward()  # type: ignore[no-untyped-call]
        optimizers.gather()
        total = part.detach() if total is None else total + part.detach()
        terms = {name: terms[name] + new if name in terms else new for name, new in sums.items()}
    assert total is not None
    return total, terms


def moved(batch: Batch, device: torch.device) -> Batch:
    """The batch on a device, without waiting for it."""
    if device.type == "cpu":
        return batch
    return batch.mapped(lambda tensor: tensor.to(device, non_blocking=True))


def rehearse(model: nn.Module, optimizers: Optimizers, step: Step, loss: Loss) -> None:
    """Go through one step without changing anything, so that what is compiled is compiled before time counts."""
    device = next(model.parameters()).device
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices) if devices else torch.random.fork_rng():
        model.train()
        gradients(model, optimizers, step, loss, device=device)
    for weight in (*optimizers.weights, *optimizers.masters):
        weight.grad = None
    if devices:
        torch.cuda.synchronize(device)


def _share(length: Length, position: Position) -> float:
    return length.share(steps=position.step, tokens=position.tokens, elapsed_s=position.elapsed_s)
