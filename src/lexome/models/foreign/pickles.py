"""Pickled checkpoints, read without running anything that they ask for."""

import pickle
import re
import zipfile
from argparse import Namespace
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from lexome.errors import CheckpointError
from lexome.models.foreign.release import Release


def load_pickle(release: Release, name: str) -> Any:
    """What was saved: tensors, containers, plain values and argparse's Namespace; anything else is refused.

    A zip on disk is mapped, so its tensors take no memory until they are used.
    """
    path = release.on_disk(name)
    try:
        with torch.serialization.safe_globals([Namespace]):
            if path is not None:
                return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
            with release.open(name) as stream:
                return torch.load(stream, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise _refused(release.where(name), str(error)) from None
    # A damaged file fails anywhere inside torch; MemoryError is a length that it only claims.
    except Exception as error:
        first = str(error).partition("\n")[0]
        raise CheckpointError(
            f"{release.where(name)} is damaged or no pickle of torch ({type(error).__name__}: {first}). Fetch it again."
        ) from None


def flat_tensors(tree: Mapping[Any, Any], *, where: str) -> dict[str, torch.Tensor]:
    """The tensors of nested dictionaries under names joined by dots; anything else inside raises."""
    return dict(_walk(tree, "", where))


def _walk(tree: Mapping[Any, Any], prefix: str, where: str) -> Iterator[tuple[str, torch.Tensor]]:
    for key, item in tree.items():
        name = f"{prefix}{key}"
        if isinstance(item, Mapping):
            yield from _walk(item, f"{name}.", where)
        elif isinstance(item, torch.Tensor):
            # Strides of zero let a few bytes claim to be a terabyte, which the next copy would ask for.
            held = item.untyped_storage().nbytes()
            if item.layout is not torch.strided or item.numel() * item.element_size() > held:
                raise CheckpointError(
                    f"{where}: {name} claims the shape {tuple(item.shape)} but holds {held:,} bytes. "
                    "Don't use the file."
                )
            yield name, item
        elif item is not None:
            raise CheckpointError(f"{where}: {name} is a {type(item).__name__}; expected a tensor. Check the file.")


def _refused(where: str, message: str) -> CheckpointError:
    named = re.search(r"GLOBAL ([\w.]+)", message)
    if named is None:
        first = message.partition("\n")[0]
        return CheckpointError(f"{where} is damaged or no pickle of weights ({first}). Fetch it again.")
    return CheckpointError(
        f"{where} asks for {named[1]}, which a file of weights has no need of; nothing was run. If you trust where it "
        "comes from, load it in the program that wrote it and save its weights alone with torch.save."
    )
