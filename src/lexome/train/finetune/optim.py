"""AdamW for fine-tuning: other rates for the head and for lower layers, no decay for vectors."""

import math
import re
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW

from lexome.recipe.finetune import OptimizerTable
from lexome.train.finetune.model import Learner

# The number of a layer in our names and in those of most models of transformers.
_LAYER = re.compile(r"\.(?:layers?|h|blocks?)\.(\d+)\.")


class Stepper:
    """The optimizer of a run: gradients are clipped, every group has its share of the rate.

    On a GPU rates lie there too, and a step never waits: so it can be recorded (graphs.py).
    """

    def __init__(self, learner: Learner, layers: int, given: OptimizerTable) -> None:
        groups: dict[tuple[float, float], list[nn.Parameter]] = {}
        for name, weight in learner.named_parameters():
            if weight.requires_grad:
                decay = given.decay if weight.ndim > 1 and not name.startswith("crf.") else 0.0
                groups.setdefault((_share(name, layers, given), decay), []).append(weight)
        self.weights = [weight for members in groups.values() for weight in members]
        options: list[dict[str, Any]] = [
            {"params": members, "weight_decay": decay, "share": share} for (share, decay), members in groups.items()
        ]
        device = self.weights[0].device
        on_gpu = device.type == "cuda"
        self._shares = torch.tensor([share for share, _ in groups], device=device)
        self._rates = torch.zeros_like(self._shares)
        if on_gpu:
            for group, rate in zip(options, self._rates, strict=True):
                group["lr"] = rate
        self.optimizer = AdamW(options, lr=0.0, betas=given.betas, eps=given.eps, fused=on_gpu, capturable=on_gpu)
        self.clip = given.clip or math.inf

    def set_rate(self, lr: float) -> None:
        """The learning rate of the next steps."""
        if self._rates.is_cuda:
            torch.mul(self._shares, lr, out=self._rates)
            return
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["share"]

    def step(self) -> Tensor:
        """Change the weights by their gradients, and forget these; their norm before it was clipped."""
        norm = nn.utils.clip_grad_norm_(self.weights, self.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def moments(self) -> list[dict[str, Tensor]]:
        """What the optimizer remembers of each weight."""
        return [dict(self.optimizer.state[weight]) for weight in self.weights]

    def take_moments(self, held: list[dict[str, Tensor]]) -> None:
        """Remember what another one did; rates stay where they are, since a recorded step reads them there."""
        for weight, moments in zip(self.weights, held, strict=True):
            self.optimizer.state[weight] = dict(moments)


def _share(name: str, layers: int, given: OptimizerTable) -> float:
    """What share of the learning rate a weight has."""
    if not name.startswith("model.encoder."):
        return 1.0 if given.head_lr is None else given.head_lr / given.lr
    number = _LAYER.search(name)
    if number is not None:
        return given.layer_decay ** (layers - int(number[1]))
    return given.layer_decay ** (layers + 1 if ".embed" in name else 0)


def kept(learner: Learner) -> dict[str, Tensor]:
    """Copies of the weights that learn."""
    return {name: weight.detach().clone() for name, weight in learner.named_parameters() if weight.requires_grad}


@torch.no_grad()
def put_back(learner: Learner, weights: dict[str, Tensor]) -> None:
    """Take copied weights up again."""
    for name, weight in learner.named_parameters():
        if name in weights:
            weight.copy_(weights[name])
