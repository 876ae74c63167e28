"""Products rounded to eight bits while a model learns, as int8 export rounds them, so that it learns to bear it.

The forward pass sees rounded numbers, and gradients go through as if nothing had been rounded. T tokens of the packed
batch, R rows of a weight
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional

from lexome.errors import UsageError
from lexome.models.encoder import Encoder
from lexome.train.finetune.model import Learner

# As train/quantise.py has it for weights, and ONNX's DynamicQuantizeLinear for what they are multiplied with.
WEIGHT_STEPS, INPUT_STEPS = 127, 255


class RoundedLinear(nn.Linear):
    """A linear layer whose input and weight are rounded while it trains, as far as `share`, 0 or 1, says."""

    share: Tensor

    def forward(self, input_TD: Tensor) -> Tensor:
        if not self.training:
            return super().forward(input_TD)
        seen_TD = input_TD + self.share * (rounded_input(input_TD) - input_TD).detach()
        weight = self.weight + self.share * (rounded_weight(self.weight) - self.weight).detach()
        return functional.linear(seen_TD, weight, self.bias)


def rounded_weight(weight_RD: Tensor) -> Tensor:
    """A weight as int8 export stores it: each row, a column there, in steps of its own."""
    step_R1 = (weight_RD.abs().amax(dim=1, keepdim=True) / WEIGHT_STEPS).clamp(min=1e-12)
    return (weight_RD / step_R1).round() * step_R1


def rounded_input(input_TD: Tensor) -> Tensor:
    """Numbers as they go into a product: in 255 steps from the least to the largest, 0 being one of them."""
    exact_TD = input_TD.float()
    least, most = exact_TD.amin().clamp(max=0.0), exact_TD.amax().clamp(min=0.0)
    step = ((most - least) / INPUT_STEPS).clamp(min=1e-12)
    zero = (-least / step).round()
    whole_TD = ((exact_TD / step).round() + zero).clamp(0, INPUT_STEPS)
    return ((whole_TD - zero) * step).to(input_TD.dtype)


class Rounding:
    """The rounding of all matrices in the layers of an encoder, switched on for the last part of a run."""

    def __init__(self, learner: Learner, *, begin: float) -> None:
        encoder = learner.model.encoder
        if not isinstance(encoder, Encoder):
            raise UsageError("rounding cannot be done in a model that transformers computes. Leave it out.")
        self.begin, self.begun = begin, False
        self.parts = [part for part in encoder.layers.modules() if type(part) is nn.Linear]
        self.share = torch.zeros((), device=next(encoder.parameters()).device)

    @contextmanager
    def around(self) -> Iterator[None]:
        """Within it the layers round, once they are told to; afterwards they are as they were."""
        for part in self.parts:
            part.__class__ = RoundedLinear
            part.share = self.share
        try:
            yield
        finally:
            for part in self.parts:
                part.__class__ = nn.Linear
                del part.share

    def at(self, done: float) -> None:
        """Switch rounding on where so much of the run is done; a recorded step reads it from the GPU."""
        self.begun = done >= self.begin
        self.share.fill_(float(self.begun))
