"""The files of a Hugging Face model folder: config.json, and weights as safetensors or pickles, single or sharded."""

import hashlib
import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from lexome.errors import CheckpointError

SAFETENSORS = "model.safetensors"
PICKLE = "pytorch_model.bin"


def read_settings(folder: Path) -> dict[str, Any]:
    """The config.json of a folder."""
    path = folder / "config.json"
    try:
        settings = json.loads(path.read_bytes())
    except FileNotFoundError:
        # The output folder of a training run has the model in a subfolder.
        nested = folder / "model"
        hint = f"Pass {nested}, the model in it." if (nested / "config.json").is_file() else "Check the path."
        raise CheckpointError(
            f"{path}: no such file; expected a model folder. {hint}", code="missing-file", value=path
        ) from None
    except ValueError as error:
        raise CheckpointError(f"{path}: invalid JSON: {error}", code="not-json", value=path) from None
    if not isinstance(settings, dict):
        raise CheckpointError(f"{path}: expected a JSON object with the model's settings.", code="not-json", value=path)
    return settings


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON with the indentation that transformers uses."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def has_weights(folder: Path) -> bool:
    """Whether a folder has weights that `read_weights` reads."""
    return any((folder / f"{name}{suffix}").is_file() for name in (SAFETENSORS, PICKLE) for suffix in ("", _INDEX))


def read_weights(folder: Path) -> dict[str, Tensor]:
    """The state dict of a folder; safetensors are preferred over pickles."""
    files, listed = _weight_files(folder)
    weights: dict[str, Tensor] = {}
    for path in files:
        weights.update(_read_file(path))
    lacking = sorted(listed - weights.keys())
    if lacking:
        raise CheckpointError(
            f"{folder}: {len(lacking)} weights are in no shard, first {lacking[0]!r}.",
            code="missing-weights",
            value=lacking[0],
        )
    return weights


def weights_sha256(folder: Path) -> str:
    """SHA-256 of the weights that `read_weights` reads: of the file, or of all shards in order."""
    digest = hashlib.sha256()
    for path in _weight_files(folder)[0]:
        with path.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def write_weights(weights: dict[str, Tensor], path: Path) -> None:
    """Write a state dict as one safetensors file; CheckpointError if the disk is full."""
    contiguous = {name: _own_storage(tensor.detach().cpu()) for name, tensor in weights.items()}
    # safetensors makes its file readable by the owner only; restore the mode that the umask gives.
    path.touch()
    mode = path.stat().st_mode
    try:
        # transformers requires the metadata.
        save_file(contiguous, path, metadata={"format": "pt"})
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path}: cannot write the weights ({error}). Free disk space, then retry.", code="not-writable", value=path
        ) from None
    path.chmod(mode)


def common_dtype(weights: Mapping[str, Tensor]) -> torch.dtype:
    """The dtype of all floating-point weights, or float32 if they differ."""
    dtypes = {tensor.dtype for tensor in weights.values() if tensor.is_floating_point()}
    return dtypes.pop() if len(dtypes) == 1 else torch.float32


_INDEX = ".index.json"


def _weight_files(folder: Path) -> tuple[list[Path], set[str]]:
    """The files with a folder's weights (one, or shards), and the weights that the index of the shards lists."""
    for name in (SAFETENSORS, PICKLE):
        if (folder / name).is_file():
            return [folder / name], set()
        index = folder / f"{name}{_INDEX}"
        if index.is_file():
            shard_of = _weight_map(index)
            return [folder / shard for shard in sorted(set(shard_of.values()))], set(shard_of)
    raise CheckpointError(
        f"{folder}: no weights; expected {SAFETENSORS} or {PICKLE}, or shards.", code="missing-weights", value=folder
    )


def _weight_map(index: Path) -> dict[str, str]:
    """The shard of each weight; all shards exist."""
    try:
        shard_of: dict[str, str] = json.loads(index.read_bytes())["weight_map"]
    except (ValueError, KeyError, TypeError):
        raise CheckpointError(f"{index}: expected JSON with a weight_map.", code="not-json", value=index) from None
    for name in sorted(set(shard_of.values())):
        if Path(name).name != name:
            raise CheckpointError(
                f"{index}: lists the file {name!r}; expected one in the same folder.", code="unsafe-path", value=name
            )
        if not (index.parent / name).is_file():
            raise CheckpointError(
                f"{index.parent}: {name} is missing, which {index.name} lists. Add it.", code="missing-file", value=name
            )
    return shard_of


def _read_file(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except SafetensorError as error:
            raise CheckpointError(
                f"{path}: damaged safetensors file ({error}). Download it again.", code="damaged-file", value=path
            ) from None
    try:
        state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise CheckpointError(
            f"{path}: contains more than weights, or is damaged ({str(error).splitlines()[0]}). Lexome never executes "
            "code in a pickle. Ask for the weights as safetensors.",
            code="unsafe-pickle",
            value=path,
        ) from None
    if not isinstance(state, dict) or not all(isinstance(tensor, Tensor) for tensor in state.values()):
        raise CheckpointError(
            f"{path}: expected a state dict of tensors, got a {type(state).__name__}.", code="not-weights", value=path
        )
    return dict(state)


def _own_storage(tensor: Tensor) -> Tensor:
    """The tensor in storage of its own: safetensors refuses a view of a larger one."""
    whole = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    return tensor.contiguous() if whole else tensor.clone(memory_format=torch.contiguous_format)
