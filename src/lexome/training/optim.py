"""Optimizers: AdamW, Muon, and full-precision copies of weights that are kept in bfloat16.

D width, H heads, K width a head
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.experimental import implicit_replication
from torch.optim import AdamW, Optimizer

from lexome.errors import UsageError
from lexome.models.config import EncoderConfig

Curve = Literal["linear", "cosine", "constant"]


@dataclass(frozen=True, slots=True)
class Length:
    """The length of a run: one of steps, tokens and seconds."""

    steps: int | None = None
    tokens: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if sum(given is not None for given in (self.steps, self.tokens, self.seconds)) != 1:
            raise UsageError(f"the length of a run is {self}; expected one of steps, tokens and seconds.")

    def share(self, *, steps: float, tokens: float, elapsed_s: float) -> float:
        """How much of the run is done, from 0 to 1."""
        if self.steps is not None:
            return min(1.0, steps / self.steps)
        if self.tokens is not None:
            return min(1.0, tokens / self.tokens)
        assert self.seconds is not None
        return min(1.0, elapsed_s / self.seconds)


@dataclass(frozen=True, slots=True)
class LearningRate:
    """A warm-up in a straight line from 0, then a curve down to `end` times the peak.

    linear and cosine fall from the warm-up on. constant stays, and falls in a straight line over the last `decay`.
    """

    peak: float
    kind: Curve = "linear"
    warmup: float = 0.0
    decay: float = 0.2
    end: float = 0.0

    def at(self, share: float) -> float:
        """The learning rate after a share of the run."""
        if share < self.warmup:
            return self.peak * share / self.warmup
        return self.peak * (self.end + (1 - self.end) * self._height(share))

    def _height(self, share: float) -> float:
        """1 at the peak, 0 at the end of the run."""
        begins = max(self.warmup, 1 - self.decay) if self.kind == "constant" else self.warmup
        fallen = min(1.0, max(0.0, (share - begins) / (1 - begins))) if begins < 1 else 0.0
        return (1 + math.cos(math.pi * fallen)) / 2 if self.kind == "cosine" else 1 - fallen


def held(points: Sequence[tuple[float, float]], share: float, *, otherwise: float) -> float:
    """The value of the last point that the share has reached; `otherwise` where there are no points."""
    reached = [given for place, given in points if place <= max(share, 0.0)]
    return reached[-1] if reached else otherwise


# The quintic polynomial whose slope at 0 is steep and which keeps singular values between 0.7 and 1.2 (Jordan 2024).
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5
# An orthogonal update of this scale has the root mean square of AdamW's usual one (Liu et al. 2025), so that one
# learning rate serves both optimizers.
MUON_SCALE = 0.2


@dataclass(frozen=True, slots=True)
class OptimizerSettings:
    """What an optimizer is made of; the learning rate is given at each step."""

    kind: Literal["adamw", "muon"] = "adamw"
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-6
    decay: float = 0.01
    decay_embeddings: bool = True
    momentum: float = 0.95


class Fused:
    """How many maps of its own one stored matrix holds, and how they are laid out.

    Query, key and value share a matrix whose rows go head by head; a gated feed-forward has two halves. Each is a map
    by itself and is made orthogonal by itself.
    """

    def __init__(self, parts: int, *, head_width: int | None = None) -> None:
        self.parts, self.head_width = parts, head_width

    def apart(self, matrix: Tensor) -> Tensor:
        """(rows, columns) to (parts, rows of one, columns)."""
        columns = matrix.shape[1]
        if self.head_width is None:
            return matrix.reshape(self.parts, -1, columns)
        by_head = matrix.reshape(-1, self.parts, self.head_width, columns)
        return by_head.transpose(0, 1).reshape(self.parts, -1, columns)

    def together(self, maps: Tensor) -> Tensor:
        """What `apart` took apart, put together again."""
        columns = maps.shape[2]
        if self.head_width is None:
            return maps.reshape(-1, columns)
        return maps.reshape(self.parts, -1, self.head_width, columns).transpose(0, 1).reshape(-1, columns)


ONE = Fused(1)


class Muon(Optimizer):
    """Momentum made orthogonal by Newton and Schulz's steps, for the matrices of hidden layers.

    torch.optim.Muon (2.9 on) computes the same, and a test holds the two together. It is not used because it takes one
    stored matrix for one map, so that query, key and value would be mixed; and it goes matrix by matrix, where here all
    maps of one shape go through one batched product.
    """

    def __init__(
        self, matrices: Iterable[tuple[nn.Parameter, Fused]], *, momentum: float = 0.95, decay: float = 0.0
    ) -> None:
        pairs = list(matrices)
        self.fused = [fused for _, fused in pairs]
        super().__init__([matrix for matrix, _ in pairs], {"lr": 0.0, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # there is no use for a closure here
        """One step on every matrix that has a gradient."""
        assert closure is None
        for group in self.param_groups:
            for shape, members in self._by_shape(group["params"]).items():
                directions = self._directions([matrix for matrix, _ in members], group["momentum"])
                maps = torch.cat([fused.apart(way) for way, (_, fused) in zip(directions, members, strict=True)])
                straight = torch.split(orthogonal(maps), [fused.parts for _, fused in members])
                size = group["lr"] * MUON_SCALE * math.sqrt(max(shape))
                matrices = tuple(matrix for matrix, _ in members)
                updates = [fused.together(update) for (_, fused), update in zip(members, straight, strict=True)]
                torch._foreach_mul_(matrices, 1 - group["lr"] * group["decay"])
                torch._foreach_add_(matrices, updates, alpha=-size)

    def _by_shape(self, matrices: Sequence[nn.Parameter]) -> dict[tuple[int, int], list[tuple[nn.Parameter, Fused]]]:
        """The matrices with a gradient, by the shape of one of their maps."""
        shapes: dict[tuple[int, int], list[tuple[nn.Parameter, Fused]]] = {}
        for matrix, fused in zip(matrices, self.fused, strict=True):
            if matrix.grad is not None:
                shape = (matrix.shape[0] // fused.parts, matrix.shape[1])
                shapes.setdefault(shape, []).append((matrix, fused))
        return shapes

    def _directions(self, matrices: Sequence[nn.Parameter], momentum: float) -> list[Tensor]:
        """Nesterov's look ahead along the running mean of the gradients."""
        for matrix in matrices:
            if not self.state[matrix]:
                self.state[matrix]["momentum"] = torch.zeros_like(matrix)
        means = [self.state[matrix]["momentum"] for matrix in matrices]
        gradients = [matrix.grad for matrix in matrices if matrix.grad is not None]
        torch._foreach_lerp_(means, gradients, 1 - momentum)
        # In place: gradients are forgotten after a step, and older torch knows no other form for DTensors.
        torch._foreach_lerp_(gradients, means, momentum)
        return gradients


def orthogonal(maps: Tensor) -> Tensor:
    """For each (rows, columns) matrix of a stack nearly the nearest orthogonal one: singular values of 0.7 to 1.2.

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


class Optimizers:
    """One or two optimizers, and the float32 copies they work on where the model's own weights are bfloat16.

    bfloat16 has 8 bits: a step of 1e-3 of a weight is lost in it. So the copies are what is trained, and the model's
    weights are rounded from them after each step. Gradients of several passes are added up in float32 too.
    """

    def __init__(self, model: nn.Module, config: EncoderConfig, settings: OptimizerSettings) -> None:
        self.weights = [weight for weight in model.parameters() if weight.requires_grad]
        self.copied = any(weight.dtype != torch.float32 for weight in self.weights)
        self.masters = [
            nn.Parameter(weight.detach().float().clone()) if self.copied else weight for weight in self.weights
        ]
        master_of = {id(weight): master for weight, master in zip(self.weights, self.masters, strict=True)}
        named = [(name, master_of[id(weight)]) for name, weight in model.named_parameters() if weight.requires_grad]
        self.parts = list(_made(named, config, settings))

    def gather(self) -> None:
        """Take up the gradients of one pass."""
        if not self.copied:
            return
        # One call for all weights: in small models the many calls take longer than what they compute.
        first: tuple[list[Tensor], list[Tensor]] = ([], [])
        for weight, master in zip(self.weights, self.masters, strict=True):
            if weight.grad is None:
                continue
            if master.grad is None:
                master.grad = torch.empty_like(master)
                first[0].append(master.grad)
                first[1].append(weight.grad)
            else:
                master.grad += weight.grad
            weight.grad = None
        if first[0]:
            torch._foreach_copy_(*first)

    def step(self, lr: float, *, clip: float | None) -> Tensor:
        """Change the weights by what was gathered, and forget it; the norm of the gradients before clipping."""
        limit = clip if clip is not None else math.inf
        norm = nn.utils.clip_grad_norm_(self.masters, limit)
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = lr
            part.step()
            part.zero_grad(set_to_none=True)
        if self.copied:
            with torch.no_grad():
                torch._foreach_copy_(tuple(self.weights), tuple(self.masters))
        return norm


def _made(
    named: Sequence[tuple[str, nn.Parameter]], config: EncoderConfig, settings: OptimizerSettings
) -> Iterator[Optimizer]:
    """The optimizers: Muon for matrices inside layers where it is asked for, AdamW for all else."""
    hidden = {name for name, weight in named if settings.kind == "muon" and ".layers." in name and weight.ndim == 2}
    if hidden:
        matrices = [(weight, fused_of(name, config)) for name, weight in named if name in hidden]
        yield Muon(matrices, momentum=settings.momentum, decay=settings.decay)
    decayed: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for name, weight in named:
        if name not in hidden:
            keeps = weight.ndim < 2 or (".embed." in name and not settings.decay_embeddings)
            (plain if keeps else decayed).append(weight)
    groups = [{"params": decayed, "weight_decay": settings.decay}, {"params": plain, "weight_decay": 0.0}]
    yield AdamW(
        [group for group in groups if group["params"]],
        lr=0.0,
        betas=settings.betas,
        eps=settings.eps,
        fused=named[0][1].is_cuda,
    )


def fused_of(name: str, config: EncoderConfig) -> Fused:
    """How the matrix of this name is made up."""
    if name.endswith("attention.qkv.weight"):
        return Fused(3, head_width=config.head_size)
    if name.endswith("mlp.up.weight") and config.gated:
        return Fused(2)
    return ONE


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
