"""Optimizers on weights that are spread over processes."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.experimental import implicit_replication

from lexome.models.config import EncoderConfig
from lexome.train.optim import Muon, Optimizers, OptimizerSettings


class ShardedMuon(Muon):
    """Muon on DTensors: each process gathers the momentum of whole matrices and changes its own part of them.

    Newton and Schulz's steps need the whole matrix. All processes compute the same update, so this costs the time of
    one process's Muon and, while it runs, the memory of all hidden matrices of one shape twice over.
    """

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        """One step on every matrix that has a gradient."""
        # The updates are plain tensors, alike in all processes, and the matrices are not.
        with implicit_replication():
            super().step(closure)

    def _directions(self, matrices: Sequence[nn.Parameter], momentum: float) -> list[Tensor]:
        ways = super()._directions(matrices, momentum)
        return [way.full_tensor() if isinstance(way, DTensor) else way for way in ways]


class ShardedOptimizers(Optimizers):
    """Optimizers whose weights are DTensors, all on one mesh. AdamW takes them as they are."""

    def __init__(self, model: nn.Module, config: EncoderConfig, settings: OptimizerSettings) -> None:
        super().__init__(model, config, settings)
        self.parts = [_sharded(part) if isinstance(part, Muon) else part for part in self.parts]

    def step(self, lr: float, *, clip: float | None) -> Tensor:
        """As in one process; the norm is that of all shards together."""
        norm = super().step(lr, clip=clip)
        return norm.full_tensor() if isinstance(norm, DTensor) else norm


def _sharded(muon: Muon) -> ShardedMuon:
    group = muon.param_groups[0]
    matrices = zip(group["params"], muon.fused, strict=True)
    return ShardedMuon(matrices, momentum=group["momentum"], decay=group["decay"])


def optimizers_of(model: nn.Module, config: EncoderConfig, settings: OptimizerSettings) -> Optimizers:
    """The optimizers for a model, plain or spread over processes. Make them when the model is wrapped."""
    spread = any(isinstance(weight, DTensor) for weight in model.parameters())
    return (ShardedOptimizers if spread else Optimizers)(model, config, settings)


def started(optimizers: Optimizers) -> None:
    """Make the state that optimizers make in their first step, changing no weight, so that it can be loaded into."""
    before = [master.grad for master in optimizers.masters]
    for master in optimizers.masters:
        master.grad = torch.zeros_like(master)
    for part in optimizers.parts:
        for group in part.param_groups:
            group["lr"] = 0.0
        part.step()
    for master, gradient in zip(optimizers.masters, before, strict=True):
        master.grad = gradient


def local(weight: Tensor) -> Tensor:
    """This process's part of a weight."""
    return weight.to_local() if isinstance(weight, DTensor) else weight
