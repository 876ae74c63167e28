"""Optimizers and learning-rate schedules: parameter groups, AdamW, Muon, and float32 master weights.

D width, H heads, K width of a head
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.experimental import implicit_replication
from torch.optim import AdamW, Optimizer

from lexome.errors import UsageError
from lexome.models.encoder import EncoderConfig

# Schedules


@dataclass(frozen=True, slots=True)
class Length:
    """The length of a run, in one of steps, tokens and seconds."""

    steps: int | None = None
    tokens: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if sum(length is not None for length in (self.steps, self.tokens, self.seconds)) != 1:
            message = f"the length of a run is {self}; expected one of steps, tokens and seconds."
            raise UsageError(message, code="invalid-length", value=str(self))

    def fraction(self, *, steps: float, tokens: float, elapsed_s: float) -> float:
        """How much of the run is done, from 0 to 1."""
        if self.steps is not None:
            return min(1.0, steps / self.steps)
        if self.tokens is not None:
            return min(1.0, tokens / self.tokens)
        assert self.seconds is not None
        return min(1.0, elapsed_s / self.seconds)


@dataclass(frozen=True, slots=True)
class LearningRateSchedule:
    """Linear warm-up from 0 to the peak, then decay to `min_ratio` times the peak.

    linear and cosine decay from the warm-up on; constant decays linearly over the last `decay_ratio` of the run.
    """

    peak: float
    kind: Literal["linear", "cosine", "constant"] = "linear"
    warmup_ratio: float = 0.0
    decay_ratio: float = 0.2
    min_ratio: float = 0.0

    @classmethod
    def of(
        cls,
        peak: float,
        *,
        kind: Literal["linear", "cosine", "constant"],
        warmup_ratio: float,
        warmup_steps: int | None,
        decay_ratio: float,
        min_lr_ratio: float,
        steps: int | None,
    ) -> Self:
        """The schedule of a recipe's [schedule] table; a warm-up in steps needs the number of `steps` of the run."""
        if warmup_steps is not None and steps is not None:
            warmup_ratio = min(1.0, warmup_steps / steps)
        return cls(peak, kind, warmup_ratio, decay_ratio, min_lr_ratio)

    def at(self, fraction: float) -> float:
        """The learning rate after a fraction of the run."""
        if fraction < self.warmup_ratio:
            return self.peak * fraction / self.warmup_ratio
        begin = max(self.warmup_ratio, 1 - self.decay_ratio) if self.kind == "constant" else self.warmup_ratio
        done = min(1.0, max(0.0, (fraction - begin) / (1 - begin))) if begin < 1 else 0.0
        height = (1 + math.cos(math.pi * done)) / 2 if self.kind == "cosine" else 1 - done
        return self.peak * (self.min_ratio + (1 - self.min_ratio) * height)


def value_at(points: Sequence[tuple[float, float]], fraction: float, *, default: float) -> float:
    """The value of the last point that a run has reached; `default` where there are no points."""
    reached = [value for place, value in points if place <= max(fraction, 0.0)]
    return reached[-1] if reached else default


# Muon

# The quintic polynomial whose slope at 0 is steep and which keeps singular values between 0.7 and 1.2 (Jordan 2024).
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5
# An orthogonal update of this scale has the root mean square of AdamW's usual one (Liu et al. 2025), so that one
# learning rate serves both optimizers.
MUON_SCALE = 0.2


class Fused:
    """How many linear maps one stored matrix holds, and their layout.

    Query, key and value share a matrix whose rows go head by head; a gated feed-forward has two halves. Each map is
    orthogonalized by itself.
    """

    def __init__(self, parts: int, *, head_width: int | None = None) -> None:
        self.parts, self.head_width = parts, head_width

    def split(self, matrix: Tensor) -> Tensor:
        """(rows, columns) to (parts, rows of one, columns)."""
        columns = matrix.shape[1]
        if self.head_width is None:
            return matrix.reshape(self.parts, -1, columns)
        by_head = matrix.reshape(-1, self.parts, self.head_width, columns)
        return by_head.transpose(0, 1).reshape(self.parts, -1, columns)

    def join(self, maps: Tensor) -> Tensor:
        """The inverse of `split`."""
        columns = maps.shape[2]
        if self.head_width is None:
            return maps.reshape(-1, columns)
        return maps.reshape(self.parts, -1, self.head_width, columns).transpose(0, 1).reshape(-1, columns)


SINGLE = Fused(1)


def fused_layout(name: str, config: EncoderConfig) -> Fused:
    """The layout of a parameter by its name."""
    if name.endswith("attention.qkv.weight"):
        return Fused(3, head_width=config.head_size)
    if name.endswith("mlp.up.weight") and config.gated:
        return Fused(2)
    return SINGLE


class Muon(Optimizer):
    """Momentum orthogonalized by Newton-Schulz iterations, for the matrices of hidden layers.

    A group has beside its `params` their layouts, `fused`. torch.optim.Muon (2.9 on) computes the same, and a test
    compares the two. It is not used because it takes one stored matrix for one map, so that query, key and value would
    be mixed; and it goes matrix by matrix, where here all maps of one shape go through one batched product.
    """

    def __init__(self, groups: Sequence[dict[str, Any]], *, momentum: float = 0.95) -> None:
        super().__init__(groups, {"lr": 0.0, "momentum": momentum, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # there is no use for a closure here
        """One step on every matrix that has a gradient."""
        assert closure is None
        for group in self.param_groups:
            shapes: dict[tuple[int, int], list[tuple[nn.Parameter, Fused]]] = {}
            for matrix, fused in zip(group["params"], group["fused"], strict=True):
                if matrix.grad is not None:
                    shape = (matrix.shape[0] // fused.parts, matrix.shape[1])
                    shapes.setdefault(shape, []).append((matrix, fused))
            for shape, members in shapes.items():
                directions = self._directions([matrix for matrix, _ in members], group["momentum"])
                maps = torch.cat([fused.split(way) for way, (_, fused) in zip(directions, members, strict=True)])
                orthogonal = torch.split(orthogonalize(maps), [fused.parts for _, fused in members])
                size = group["lr"] * MUON_SCALE * math.sqrt(max(shape))
                matrices = tuple(matrix for matrix, _ in members)
                updates = [fused.join(update) for (_, fused), update in zip(members, orthogonal, strict=True)]
                torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
                torch._foreach_add_(matrices, updates, alpha=-size)

    def _directions(self, matrices: Sequence[nn.Parameter], momentum: float) -> list[Tensor]:
        """Nesterov momentum: the running mean of the gradients, looking ahead."""
        for matrix in matrices:
            if not self.state[matrix]:
                self.state[matrix]["momentum"] = torch.zeros_like(matrix)
        means = [self.state[matrix]["momentum"] for matrix in matrices]
        gradients = [matrix.grad for matrix in matrices if matrix.grad is not None]
        torch._foreach_lerp_(means, gradients, 1 - momentum)
        # In place: gradients are dropped after a step, and older torch has no other form for DTensors.
        torch._foreach_lerp_(gradients, means, momentum)
        return gradients


class ShardedMuon(Muon):
    """Muon on DTensors: each process gathers the momentum of whole matrices and updates its own part of them.

    Newton-Schulz iterations need the whole matrix. All processes compute the same update, so this costs the time of
    one process's Muon and, while it runs, the memory of all hidden matrices of one shape twice over.
    """

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        """One step on every matrix that has a gradient."""
        # The updates are plain tensors, the same in all processes, and the matrices are not.
        with implicit_replication():
            super().step(closure)

    def _directions(self, matrices: Sequence[nn.Parameter], momentum: float) -> list[Tensor]:
        directions = super()._directions(matrices, momentum)
        return [way.full_tensor() if isinstance(way, DTensor) else way for way in directions]


def orthogonalize(maps: Tensor) -> Tensor:
    """Approximately orthogonalize each (rows, columns) matrix of a stack: singular values of 0.7 to 1.2.

    In bfloat16 on CUDA, as its author does it, since the result is rough anyway; elsewhere in float32.
    """
    tall = maps.shape[-2] > maps.shape[-1]
    flat = (maps.mT if tall else maps).to(torch.bfloat16 if maps.is_cuda else torch.float32)
    flat = flat / flat.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    first, third, fifth = NEWTON_SCHULZ
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = flat @ flat.mT
        flat = torch.baddbmm(flat, torch.baddbmm(gram, gram, gram, beta=third, alpha=fifth), flat, beta=first)
    return (flat.mT if tall else flat).to(maps.dtype)


# The optimizers of a run


@dataclass(frozen=True, slots=True)
class OptimizerSettings:
    """The optimizer's hyper-parameters; the learning rate comes from the schedule, at each step.

    head_lr_scale       learning rate of everything outside the encoder, as a multiple of the schedule's
    layerwise_lr_decay  learning rate of each encoder layer, as a fraction of that of the layer above
    """

    kind: Literal["adamw", "muon"] = "adamw"
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-6
    weight_decay: float = 0.01
    weight_decay_embeddings: bool = True
    momentum: float = 0.95
    max_grad_norm: float | None = 1.0
    head_lr_scale: float = 1.0
    layerwise_lr_decay: float = 1.0


# The number of a layer in our parameter names and in those of most transformers models.
_LAYER = re.compile(r"\.(?:layers?|h|blocks?)\.(\d+)\.")


def lr_scale(name: str, layers: int, settings: OptimizerSettings) -> float:
    """A parameter's learning rate, as a multiple of the schedule's."""
    if not name.startswith(("encoder.", "model.encoder.")):
        return settings.head_lr_scale
    if (number := _LAYER.search(name)) is not None:
        return settings.layerwise_lr_decay ** (layers - int(number[1]))
    return settings.layerwise_lr_decay ** (layers + 1 if ".embed" in name else 0)


def parameter_groups(
    named: Sequence[tuple[str, nn.Parameter]], config: EncoderConfig, settings: OptimizerSettings
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The groups of Muon and of AdamW, by learning rate and weight decay.

    Muon takes the matrices of the encoder's layers. Vectors, a CRF's transitions and, where the settings say so,
    embeddings have no weight decay.
    """
    groups: dict[tuple[bool, float, float], dict[str, Any]] = {}
    for name, weight in named:
        muon = settings.kind == "muon" and ".layers." in name and weight.ndim == 2 and name.endswith(".weight")
        plain = weight.ndim < 2 or name.startswith("crf.")
        plain = plain or (".embed." in name and not settings.weight_decay_embeddings)
        decay = 0.0 if plain else settings.weight_decay
        scale = lr_scale(name, config.layers, settings)
        group = groups.setdefault((muon, scale, decay), {"params": [], "weight_decay": decay, "lr_scale": scale})
        group["params"].append(weight)
        if muon:
            group.setdefault("fused", []).append(fused_layout(name, config))
    return tuple([group for (muon, *_), group in groups.items() if muon is wanted] for wanted in (True, False))  # type: ignore[return-value]


class Optimizers:
    """AdamW, or Muon and AdamW, with float32 master weights where the model's own are bfloat16.

    bfloat16 has 8 bits: an update of 1e-3 of a weight is lost in it. So the master weights are trained, and the model's
    are rounded from them after each step. Gradients of several micro-batches are accumulated in float32 too.

    Sharded weights are DTensors, all on one mesh. With `capturable`, AdamW's learning rates are on the GPU, so that a
    step never synchronizes and can be recorded as a CUDA graph.
    """

    def __init__(
        self, model: nn.Module, config: EncoderConfig, settings: OptimizerSettings, *, capturable: bool = False
    ) -> None:
        self.weights = [weight for weight in model.parameters() if weight.requires_grad]
        self.copied = any(weight.dtype != torch.float32 for weight in self.weights)
        self.masters = [
            nn.Parameter(weight.detach().float().clone()) if self.copied else weight for weight in self.weights
        ]
        self.max_grad_norm = settings.max_grad_norm or math.inf
        master_of = {id(weight): master for weight, master in zip(self.weights, self.masters, strict=True)}
        named = [(name, master_of[id(weight)]) for name, weight in model.named_parameters() if weight.requires_grad]
        matrices, others = parameter_groups(named, config, settings)
        self.parts: list[Optimizer] = []
        if matrices:
            sharded = any(isinstance(weight, DTensor) for weight in self.weights)
            self.parts.append((ShardedMuon if sharded else Muon)(matrices, momentum=settings.momentum))
        self._lr: Tensor | None = None
        if others:
            device = self.masters[0].device
            if capturable:
                self._scales = torch.tensor([group["lr_scale"] for group in others], device=device)
                self._lr = torch.zeros_like(self._scales)
                for group, lr in zip(others, self._lr, strict=True):
                    group["lr"] = lr
            options: dict[str, Any] = {"betas": settings.betas, "eps": settings.eps, "fused": device.type == "cuda"}
            self.parts.append(AdamW(others, lr=0.0, capturable=capturable, **options))

    def gather(self) -> None:
        """Accumulate the gradients of one micro-batch."""
        if not self.copied:
            return
        # One call for all weights: in small models the many calls take longer than what they compute.
        masters: list[Tensor] = []
        gradients: list[Tensor] = []
        for weight, master in zip(self.weights, self.masters, strict=True):
            if weight.grad is None:
                continue
            if master.grad is None:
                master.grad = torch.empty_like(master)
                masters.append(master.grad)
                gradients.append(weight.grad)
            else:
                master.grad += weight.grad
            weight.grad = None
        if masters:
            torch._foreach_copy_(masters, gradients)

    def set_lr(self, lr: float) -> None:
        """The learning rate of the next steps, which each group scales."""
        for part in self.parts:
            if self._lr is not None and isinstance(part, AdamW):
                torch.mul(self._scales, lr, out=self._lr)
                continue
            for group in part.param_groups:
                group["lr"] = lr * group["lr_scale"]

    def step(self) -> Tensor:
        """Clip the accumulated gradients, update the weights and drop the gradients; their norm before clipping."""
        norm = nn.utils.clip_grad_norm_(self.masters, self.max_grad_norm)
        for part in self.parts:
            part.step()
            part.zero_grad(set_to_none=True)
        if self.copied:
            with torch.no_grad():
                torch._foreach_copy_(tuple(self.weights), tuple(self.masters))
        return norm.full_tensor() if isinstance(norm, DTensor) else norm

    def initialize_state(self) -> None:
        """Create the state that optimizers create in their first step, without changing a weight, to load into it."""
        gradients = [master.grad for master in self.masters]
        for master in self.masters:
            master.grad = torch.zeros_like(master)
        self.set_lr(0.0)
        for part in self.parts:
            part.step()
        for master, gradient in zip(self.masters, gradients, strict=True):
            master.grad = gradient

    def finite(self) -> bool:
        """Whether all weights are finite, as far as this process holds them."""
        parts = (weight.to_local() if isinstance(weight, DTensor) else weight for weight in self.masters)
        return all(bool(part.isfinite().all()) for part in parts)
