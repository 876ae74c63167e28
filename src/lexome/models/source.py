"""Where a model comes from: which layout a path has, and the settings and weights as they lie there."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lexome.errors import CheckpointError
from lexome.models.foreign import detect
from lexome.models.weights import PICKLED, SAFE

# The layout of Hugging Face's folders; others have the names that lexome.models.foreign gives them.
HUGGING_FACE = "huggingface"


def layout_of(path: Path) -> str:
    """What a checkpoint's files are like: "huggingface", or a layout that foreign reads, by their names alone.

    A folder of no known layout counts as Hugging Face's, whose reader says what it lacks.
    """
    weights = [path / f"{name}{end}" for name in (SAFE, PICKLED) for end in ("", ".index.json")]
    if (path / "config.json").is_file() and any(file.is_file() for file in weights):
        return HUGGING_FACE
    found = detect(path)
    if found is None and not path.is_dir():
        raise CheckpointError(
            f"{path}: not a checkpoint that is known here. Expected a model folder, or a release of Google's BERT, "
            "fairseq's RoBERTa, Megatron, NeMo or ONNX. Of a folder in Hugging Face's form, name the folder."
        )
    return found or HUGGING_FACE


def read_settings(folder: Path) -> dict[str, Any]:
    """The config.json of a folder."""
    path = folder / "config.json"
    try:
        settings = json.loads(path.read_bytes())
    except FileNotFoundError:
        # A training's folder holds the model beside states and metrics.
        inner = folder / "model"
        do = f"Name {inner}, the model in it." if (inner / "config.json").is_file() else "Check the path."
        raise CheckpointError(f"{path}: there is no such file; expected a model folder. {do}") from None
    except ValueError as error:
        raise CheckpointError(f"{path}: not JSON: {error}") from None
    if not isinstance(settings, dict):
        raise CheckpointError(f"{path}: expected an object with the model's settings.")
    return settings


def stored_type(weights: Mapping[str, Tensor]) -> torch.dtype:
    """The type that all weights have, or float32 where they differ."""
    found = {tensor.dtype for tensor in weights.values() if tensor.is_floating_point()}
    return found.pop() if len(found) == 1 else torch.float32
