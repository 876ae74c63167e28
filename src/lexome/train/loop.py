"""The training loop: a generator that changes the weights and yields after each step.

It saves nothing and prints nothing. Its caller does, between two steps, and stops it by no longer asking.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from lexome.train.batches import Place
from lexome.train.loader import Batch, Step
from lexome.train.losses import Loss, Terms
from lexome.train.optim import Optimizers
from lexome.train.schedule import LearningRate, Length

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
