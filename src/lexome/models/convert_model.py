"""convert_model: any supported checkpoint to a Hugging Face folder, optionally averaged, or with rescaled outputs."""

import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import nn

from lexome.errors import CheckpointError, UsageError
from lexome.files import read_json, write_checksums
from lexome.models import checkpoint
from lexome.models.checkpoint import Card, Checkpoint
from lexome.models.encoder import Encoder, Layer, count_parameters
from lexome.tasks import task_of
from lexome.tasks.task import TASK

# By their names on the command line.
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

# A larger scale, or one below its inverse, is a mistake or a broken checkpoint.
_MAX_SCALE = 1000.0

# The card's sentence about a dropped part, by the names in foreign.legacy_hf.DROPS.
_DROPPED = {
    "relative-positions": "The relative positions of its attention were dropped: this is a different model, which does "
    "not compute what that release does, and a starting point for further training.",
}


@dataclass(frozen=True, slots=True)
class Conversion:
    """A summary of what was read and written.

    unused    weights that this kind of model does not use
    left_out  content that is not part of a model: optimizer states, step counts, tied copies
    dropped   what was dropped on request: the written model computes something else than the source
    scaled    the factor that its outputs were multiplied by, if requested
    averaged  the other checkpoints that its weights are averaged with
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
    averaged: tuple[str, ...] = ()


def convert_model(
    source: str | Path,
    folder: str | Path,
    *,
    kind: str | None = None,
    tokenizer: str | Path | None = None,
    backend: str = "auto",
    drop: str | None = None,
    outputs: float | None = None,
    dtype: str | None = None,
    average: Sequence[str | Path] = (),
) -> Conversion:
    """Write the model in `source` as a folder with safetensors, tokenizer files, a model card and run.json.

    Weights keep their dtype unless `dtype`, one of DTYPES, is given. `tokenizer` is a folder or file, for a release
    without one. `drop`, one of foreign.legacy_hf.DROPS, removes what Lexome's encoder does not support: the result is a
    different model, and its card says so. `outputs` is the root mean square to scale the encoder's outputs to.
    `average` are checkpoints of the same shape, such as of other epochs: the weights are the mean of all of them.
    """
    source, folder = Path(source), Path(folder)
    others = tuple(map(Path, average))
    if dtype is not None and dtype not in DTYPES:
        raise UsageError(f"dtype {dtype!r}; expected one of {', '.join(DTYPES)}.", code="unknown-option", value=dtype)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        message = f"{folder}: exists and is not empty. Choose another folder, or remove it."
        raise CheckpointError(message, code="not-empty", value=folder)
    loaded = checkpoint.load(source, kind=kind, dtype=None, backend=backend, drop=drop)
    written = next(loaded.model.parameters()).dtype if dtype is None else DTYPES[dtype]
    if others:
        average_weights(loaded, others)
    # Scale in float32 whatever the dtype, so that weights are rounded only once.
    scaled = None if outputs is None else scale_outputs(loaded.model.float(), outputs)
    loaded.model.to(written)
    with TemporaryDirectory() as temporary:
        checkpoint.save(
            folder,
            loaded.model,
            architecture=loaded.architecture,
            tokenizer=tokenizer or _tokenizer(loaded, Path(temporary)),
            card=_card(loaded, folder.name, scaled, others),
            labels=loaded.labels,
            run={
                "source": source.name,
                "layout": loaded.layout,
                "backend": loaded.backend,
                "unused": list(loaded.unused),
                "left_out": list(loaded.left_out),
                "dropped": loaded.dropped,
                "outputs_scaled": scaled,
                "averaged": [str(other) for other in others],
            },
            replace=True,
        )
    if (task := source / TASK).is_file() and task_of(read_json(task)).head == loaded.kind:
        # The task of a fine-tuned model that keeps its head, with its label types and decoding.
        shutil.copyfile(task, folder / TASK)
        write_checksums(folder)
    return Conversion(
        folder=folder,
        layout=loaded.layout,
        architecture=loaded.architecture,
        kind=loaded.kind,
        backend=loaded.backend,
        parameters=count_parameters(loaded.model),
        dtype=str(written).removeprefix("torch."),
        unused=loaded.unused,
        left_out=loaded.left_out,
        dropped=loaded.dropped,
        scaled=scaled,
        averaged=tuple(map(str, others)),
    )


@torch.no_grad()
def average_weights(loaded: Checkpoint, others: Sequence[Path]) -> None:
    """Replace the weights by the mean of these and those of other checkpoints, computed in float32.

    The mean of several checkpoints of one training run, or of runs from one start, is often better than each of them
    (Wortsman et al. 2022). Checkpoints of another shape or with other labels are an error.
    """
    total = {name: tensor.float() for name, tensor in loaded.model.state_dict().items()}
    for folder in others:
        try:
            other = checkpoint.load(folder, kind=loaded.kind, dtype=None, backend=loaded.backend)
        except CheckpointError as error:
            if error.code != "missing-head":
                raise
            message = (
                f"{folder}: has no {loaded.kind} head, but {loaded.folder} has one. Average checkpoints with the same "
                "head, or only their encoders with --kind encoder (in Python: kind='encoder')."
            )
            raise CheckpointError(message, code="missing-head", value=folder) from None
        weights = other.model.state_dict()
        same = weights.keys() == total.keys() and all(weights[name].shape == total[name].shape for name in total)
        if not same or tuple(other.labels) != tuple(loaded.labels):
            message = (
                f"{folder}: a model of another shape or with other labels than {loaded.folder}. "
                "Average checkpoints of one run, or of runs with the same start and task."
            )
            raise CheckpointError(message, code="different-model", value=folder)
        for name, tensor in weights.items():
            total[name] += tensor.float()
    loaded.model.load_state_dict({name: tensor / (1 + len(others)) for name, tensor in total.items()})


def _tokenizer(loaded: Checkpoint, temporary: Path) -> Path:
    """The folder of the checkpoint's tokenizer; files in memory are written to `temporary`."""
    if loaded.tokenizer:
        return loaded.folder
    if not loaded.tokenizer_files:
        message = f"{loaded.folder}: no tokenizer. Put its vocabulary beside the weights, or pass --tokenizer."
        raise CheckpointError(message, code="missing-tokenizer", value=loaded.folder)
    for name, content in loaded.tokenizer_files.items():
        (temporary / name).write_bytes(content)
    return temporary


def _card(loaded: Checkpoint, title: str, scaled: float | None, averaged: Sequence[Path]) -> Card:
    name = loaded.folder.name
    changes = "" if loaded.dropped is None else f" {_DROPPED[loaded.dropped]}"
    if scaled is not None:
        changes += f" Its encoder outputs were multiplied by {scaled:.4g} and its heads divided by it: same logits."
    if averaged:
        changes += f" They are averaged with those of {len(averaged)} other checkpoints of the same shape."
    return Card(
        title=title,
        summary=f"Converted by Lexome from `{name}` ({loaded.layout}); the weights are those of that release.{changes}",
        license="unknown",
        data=f"See the authors of `{name}`; the checkpoint does not state it.",
        base_model=name,
    )


def output_rms(encoder: Encoder) -> float:
    """The root mean square of the encoder's outputs, computed from the last layer norm: 1.0 for a new encoder."""
    norm = _last_norm(encoder)
    bias = 0.0 if norm.bias is None else float(norm.bias.detach().double().square().mean())
    return math.sqrt(float(norm.weight.detach().double().square().mean()) + bias)


@torch.no_grad()
def scale_outputs(model: nn.Module, rms: float) -> float:
    """Scale the last layer norm so that outputs have this root mean square, and heads inversely: logits stay the same.

    Returns the scale. UsageError if the encoder does not end in a layer norm, or the scale is out of bounds.
    """
    encoder = model if isinstance(model, Encoder) else getattr(model, "encoder", None)
    if not isinstance(encoder, Encoder):
        raise UsageError("outputs can be scaled with the lexome backend only", code="unsupported-backend")
    if not 0 < rms < float("inf"):
        raise UsageError(f"outputs {rms:g}; expected a number above 0, usually 1", code="bad-scale", value=rms)
    norm, current = _last_norm(encoder), output_rms(encoder)
    scale = rms / current if current else 0.0
    if not 1 / _MAX_SCALE < scale < _MAX_SCALE:
        message = f"outputs {rms:g}: the model's are {current:g}; expected at most a factor of {_MAX_SCALE:g} between"
        raise UsageError(message, code="bad-scale", value=rms)
    norm.weight.mul_(scale)
    if norm.bias is not None:
        norm.bias.mul_(scale)
    for name in ("head", "pair"):
        if (head := getattr(model, name, None)) is not None:
            # Children are in the order of execution, so the first linear layer reads the encoder's outputs.
            next(part for part in head.children() if isinstance(part, nn.Linear)).weight.div_(scale)
    return scale


def _last_norm(encoder: Encoder) -> nn.LayerNorm:
    if isinstance(encoder.final_norm, nn.LayerNorm):
        return encoder.final_norm
    layer = encoder.layers[-1]
    if encoder.config.norm == "pre" or not isinstance(layer, Layer):
        raise UsageError("outputs cannot be scaled: the encoder does not end in a layer norm", code="no-final-norm")
    return layer.mlp_norm
