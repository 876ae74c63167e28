"""Loss on text that was not trained on."""

import math
from collections.abc import Sequence

import torch
from torch import nn

from lexome.train.journal import Line, means
from lexome.train.loader import Batch
from lexome.train.loop import moved
from lexome.train.losses import Loss


def evaluate(model: nn.Module, batches: Sequence[Batch], loss: Loss) -> Line:
    """Loss, perplexity and share of right guesses at the masks of these batches; also what else the loss has.

    Nothing for no batches.
    """
    if not batches:
        return {}
    device = next(model.parameters()).device
    sums: dict[str, float] = {}
    model.eval()
    with torch.no_grad():
        for batch in batches:
            _, terms = loss(model, moved(batch, device))
            for name, new in terms.items():
                sums[name] = sums.get(name, 0.0) + float(new)
    counts = {name: sum(getattr(batch, name) for batch in batches) for name in ("masked", "sequences", "tokens")}
    line = means(sums, counts)
    # Above this no float holds the exponential, and no reader cares.
    return {
        "loss": line.pop("word_loss"),
        "perplexity": math.exp(min(700.0, sums["word_loss"] / max(1, counts["masked"]))),
    } | line
