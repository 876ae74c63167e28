"""How large an encoder's outputs are, and the same model with larger or smaller ones.

An encoder whose last norm came out small is slow to fine-tune, whatever it knows (LOG.md has numbers). The size is that
norm's, so it can be changed without changing what the model says.
"""

import math

import torch
from torch import nn

from lexome.errors import UsageError
from lexome.models.encoder import Encoder, Layer

# A factor beyond this, or below its inverse, is a mistake or a broken checkpoint.
_MOST = 1000.0


def output_size(encoder: Encoder) -> float:
    """The root mean square of the outputs, as the last norm's gains and biases have it: 1.0 where that norm is new."""
    norm = _last_norm(encoder)
    bias = 0.0 if norm.bias is None else float(norm.bias.detach().double().square().mean())
    return math.sqrt(float(norm.weight.detach().double().square().mean()) + bias)


@torch.no_grad()
def resize_outputs(model: nn.Module, size: float) -> float:
    """Scale the last norm so that outputs have this size, and heads the other way: the model says what it said before.

    The factor is given back. UsageError where the encoder does not end in a norm, or the factor is out of bounds.
    """
    encoder = model if isinstance(model, Encoder) else getattr(model, "encoder", None)
    if not isinstance(encoder, Encoder):
        raise UsageError(
            "outputs can be scaled only in a model that Lexome computes itself; this one transformers does"
        )
    if not 0 < size < float("inf"):
        raise UsageError(f"outputs of size {size:g}: expected a number above 0; 1 is usual")
    norm, now = _last_norm(encoder), output_size(encoder)
    factor = size / now if now else 0.0
    if not 1 / _MOST < factor < _MOST:
        raise UsageError(f"outputs of size {size:g}: they have {now:g}, too far from it to be scaled")
    norm.weight.mul_(factor)
    if norm.bias is not None:
        norm.bias.mul_(factor)
    for name in ("head", "pair"):
        if (head := getattr(model, name, None)) is not None:
            # Children lie in the order they are run in, so the first matrix is the one that outputs go into.
            next(part for part in head.children() if isinstance(part, nn.Linear)).weight.div_(factor)
    return factor


def _last_norm(encoder: Encoder) -> nn.LayerNorm:
    if isinstance(encoder.final_norm, nn.LayerNorm):
        return encoder.final_norm
    layer = encoder.layers[-1]
    if encoder.config.norm == "pre" or not isinstance(layer, Layer):
        raise UsageError("outputs cannot be scaled: this encoder does not end in a norm")
    return layer.mlp_norm
