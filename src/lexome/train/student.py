"""A student made of some of its teacher's layers, as DistilBERT was."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from lexome.errors import UsageError
from lexome.models.config import EncoderConfig
from lexome.models.heads import MaskedLM

LAYERS = "encoder.layers."


def subset(teacher: MaskedLM, layers: Sequence[int]) -> MaskedLM:
    """A model of these layers of the teacher, in this order, with its embeddings, last norm and head.

    All weights are copies. Layer 4 of the teacher may be layer 2 of the student; all other names are the same.
    """
    config = teacher.encoder.config
    check_layers(config, layers)
    weights = {name: weight for name, weight in teacher.state_dict().items() if not name.startswith(LAYERS)}
    for new, old in enumerate(layers):
        weights |= {
            f"{LAYERS}{new}.{name}": weight for name, weight in teacher.encoder.layers[old].state_dict().items()
        }
    with torch.device("meta"):
        student = MaskedLM(replace(config, layers=len(layers)))
    student.load_state_dict({name: weight.detach().clone() for name, weight in weights.items()}, assign=True)
    return student.requires_grad_(True)


def every(layers: int, step: int) -> tuple[int, ...]:
    """Layers 0, n, 2n, ... of so many."""
    return tuple(range(0, layers, step))


def check_layers(config: EncoderConfig, layers: Sequence[int]) -> None:
    """UsageError where the teacher lacks a layer, or a layer would do something else at its new place."""
    if not layers or max(layers) >= config.layers or min(layers) < 0:
        raise UsageError(
            f"layers is {list(layers)}, but the teacher has layers 0 to {config.layers - 1}. Choose some of those."
        )
    for new, old in enumerate(layers):
        if _manner(config, new) != _manner(config, old):
            raise UsageError(
                f"layer {old} of the teacher would be layer {new} of the student, where layers have another window, "
                f"other angles or no norm. Begin with layer 0, and keep layers 0, {config.global_every}, "
                f"{2 * config.global_every}, ... of the teacher at such places, and all others at others."
            )


def _manner(config: EncoderConfig, number: int) -> tuple[int | None, float, bool]:
    """What a layer does by its number alone."""
    return config.window(number), config.angle_base(number), config.first_norm or number > 0
