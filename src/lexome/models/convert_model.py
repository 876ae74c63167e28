"""convert_model: any checkpoint that can be read into a folder in Hugging Face's form."""

import math
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn

from lexome.errors import CheckpointError, UsageError
from lexome.models import checkpoint
from lexome.models.checkpoint import Card, Checkpoint
from lexome.models.encoder import Encoder, Layer, parameters_of

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


@dataclass(frozen=True, slots=True)
class Converted:
    """What was read and what was written.

    unused    weights that this kind of model has no place for
    left_out  what the checkpoint had beside a model: optimizer states, step counts, tied copies
    dropped   what was left out because it was asked for: the folder's model computes something else than the source's
    scaled    what its outputs were multiplied by, where another size was asked for
    """

    folder: Path
    layout: str
    architecture: str
    kind: str
    backend: str
    parameters: int
    dtype: str
    unused: tuple[str, ...]
    left_out: tuple[str, ...]
    dropped: str | None = None
    scaled: float | None = None


# By the names that the command line has.
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

# What is said of the checkpoint that was read, in the same words.
SAID = ("layout", "architecture", "kind", "backend", "unused", "left_out", "dropped")

# What the card says of a model without a part of it, by the names in mpnet.DROPS.
_CHANGED = {
    "relative-positions": "The relative positions of its attention were left out, so this is another model: it does "
    "not compute what that release does, and is a start for further training.",
}


def convert_model(
    source: Path,
    folder: Path,
    *,
    kind: str | None = None,
    tokenizer: Path | None = None,
    backend: str = "auto",
    drop: str | None = None,
    outputs: float | None = None,
    dtype: str | None = None,
) -> Converted:
    """Write the model in `source` as a folder with safetensors, tokenizer files, a card and run.json.

    Weights keep their type unless `dtype`, one of DTYPES, says another. `tokenizer` is a folder or a file, for a
    release that comes without one. `drop`, one of mpnet.DROPS, leaves out what Lexome's own encoder does not do: the
    folder then holds another model, and says so. `outputs` is the size that the encoder's outputs are scaled to.
    """
    if dtype is not None and dtype not in DTYPES:
        raise UsageError(f"{dtype!r} is no type of weights; expected one of {', '.join(DTYPES)}")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CheckpointError(f"{folder}: exists and is not empty. Choose another folder, or remove it.")
    found = checkpoint.load(source, kind=kind, dtype=None, backend=backend, drop=drop)
    written = next(found.model.parameters()).dtype if dtype is None else DTYPES[dtype]
    # In full precision, whatever they are saved in: what is scaled is rounded once.
    scaled = None if outputs is None else resize_outputs(found.model.float(), outputs)
    found.model.to(written)
    with TemporaryDirectory() as held:
        checkpoint.save(
            folder,
            found.model,
            architecture=found.architecture,
            tokenizer=tokenizer or _tokenizer(found, Path(held)),
            card=_card(found, folder.name, scaled),
            labels=found.labels,
            run=_noted(found, source.name, scaled),
            replace=True,
        )
    return Converted(
        folder=folder,
        parameters=parameters_of(found.model),
        dtype=str(written).removeprefix("torch."),
        scaled=scaled,
        **{name: getattr(found, name) for name in SAID},
    )


def _noted(found: Checkpoint, source: str, scaled: float | None) -> dict[str, Any]:
    """What run.json says of where the model is from."""
    return {
        "source": source,
        "layout": found.layout,
        "backend": found.backend,
        "unused": list(found.unused),
        "left_out": list(found.left_out),
        "dropped": found.dropped,
        "outputs_scaled": scaled,
    }


def _tokenizer(found: Checkpoint, held: Path) -> Path:
    """The folder of the checkpoint's tokenizer; files that are in memory are written to `held`."""
    if found.tokenizer:
        return found.folder
    if not found.tokenizer_files:
        raise CheckpointError(
            f"{found.folder}: there is no tokenizer in it. Put its vocabulary beside the weights, or name a "
            "tokenizer folder, tokenizer.json or vocab.txt (--tokenizer)."
        )
    for name, content in found.tokenizer_files.items():
        (held / name).write_bytes(content)
    return held


def _card(found: Checkpoint, title: str, scaled: float | None) -> Card:
    name = found.folder.name
    changed = "" if found.dropped is None else f" {_CHANGED[found.dropped]}"
    if scaled is not None:
        changed += f" Its outputs were multiplied by {scaled:.4g} and its heads divided, which changes no answer."
    return Card(
        title=title,
        summary=f"Converted by Lexome from `{name}` ({found.layout}); the weights are those of that release.{changed}",
        license="unknown",
        data=f"As the authors of `{name}` say; the checkpoint does not tell.",
        base_model=name,
    )
