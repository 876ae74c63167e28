"""The weights in a model folder: safetensors, whole or in pieces, and pickles read without running what is in them."""

import hashlib
import json
import pickle
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from lexome.errors import CheckpointError

SAFE = "model.safetensors"
PICKLED = "pytorch_model.bin"


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Every weight in the folder by its name there. Safetensors are preferred where both forms lie."""
    for name in (SAFE, PICKLED):
        if (folder / name).is_file():
            return _read_file(folder / name)
        index = folder / f"{name}.index.json"
        if index.is_file():
            return _read_pieces(index)
    raise CheckpointError(
        f"{folder}: there are no weights; expected {SAFE} or {PICKLED}, whole or with an index. "
        "Releases in TensorFlow's, fairseq's or Megatron's form have readers of their own."
    )


def weights_sha256(folder: Path) -> str:
    """The hash of the weights that `read_weights` reads: of their file, or of all pieces one after the other."""
    found = hashlib.sha256()
    for path in _files(folder):
        with path.open("rb") as stream:
            while block := stream.read(1 << 20):
                found.update(block)
    return found.hexdigest()


def _files(folder: Path) -> list[Path]:
    """The files that hold a folder's weights: one, or the pieces that an index names."""
    for name in (SAFE, PICKLED):
        if (folder / name).is_file():
            return [folder / name]
        index = folder / f"{name}.index.json"
        if index.is_file():
            return [folder / piece for piece in sorted(set(_piece_of(index).values()))]
    raise CheckpointError(f"{folder}: there are no weights; expected {SAFE} or {PICKLED}, whole or with an index.")


def write_weights(weights: dict[str, Tensor], path: Path) -> None:
    """One safetensors file, on which transformers relies for the form "pt"; CheckpointError where the disk is full."""
    apart = {name: _apart(tensor.detach().cpu()) for name, tensor in weights.items()}
    # The library lets nobody but the owner read its file; as any other, it is for whom the umask says.
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(apart, path, metadata={"format": "pt"})
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path}: the weights could not be written ({error}). Make room and try again.") from None
    path.chmod(mode)


def _apart(tensor: Tensor) -> Tensor:
    """The tensor in memory of its own: the library refuses a part of a larger one."""
    whole = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    return tensor.contiguous() if whole else tensor.clone(memory_format=torch.contiguous_format)


def _read_pieces(index: Path) -> dict[str, Tensor]:
    where = _piece_of(index)
    weights: dict[str, Tensor] = {}
    for name in sorted(set(where.values())):
        weights.update(_read_file(index.parent / name))
    lacking = sorted(where.keys() - weights.keys())
    if lacking:
        raise CheckpointError(f"{index}: {len(lacking)} weights are in no piece, first {lacking[0]!r}.")
    return weights


def _piece_of(index: Path) -> dict[str, str]:
    """The piece that each weight is in, by an index, all of whose pieces are there."""
    try:
        where: dict[str, str] = json.loads(index.read_bytes())["weight_map"]
    except (ValueError, KeyError, TypeError):
        raise CheckpointError(f"{index}: expected JSON with a weight_map.") from None
    for name in sorted(set(where.values())):
        if Path(name).name != name:
            raise CheckpointError(f"{index}: names a file {name!r}; expected one in the same folder.")
        if not (index.parent / name).is_file():
            raise CheckpointError(f"{index.parent}: {name} is missing, which {index.name} names. Fetch it again.")
    return where


def _read_file(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except SafetensorError as error:
            raise CheckpointError(f"{path}: not a whole safetensors file ({error}). Fetch it again.") from None
    return _unpickled(path)


def _unpickled(path: Path) -> dict[str, Tensor]:
    try:
        held: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise CheckpointError(
            f"{path}: holds more than weights, or is damaged ({str(error).splitlines()[0]}). Lexome never runs what is "
            "in a pickle. Have its maker write safetensors."
        ) from None
    if not isinstance(held, dict) or not all(isinstance(tensor, Tensor) for tensor in held.values()):
        raise CheckpointError(f"{path}: expected names and weights, seen a {type(held).__name__} of something else.")
    return dict(held)
