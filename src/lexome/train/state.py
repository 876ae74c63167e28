"""States of a run on disk: all that is needed to go on as if it had never stopped."""

import os
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lexome.errors import CheckpointError
from lexome.train.batches import Place
from lexome.train.loop import Position
from lexome.train.optim import Optimizers

FORM = 1
_NAME = re.compile(r"step-(\d{8,})\.pt")


def saved(folder: Path) -> list[Path]:
    """The states in a folder, oldest first. A state has its name only when it is whole."""
    if not folder.is_dir():
        return []
    found = [(int(match[1]), path) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(found)]


def save(
    folder: Path,
    model: nn.Module,
    optimizers: Optimizers,
    position: Position,
    *,
    identity: str,
    notes: dict[str, Any],
    keep: int,
) -> Path:
    """Write the state, then remove all but the newest `keep`.

    It is written under another name, forced to disk and renamed: a run that is killed meanwhile goes on from the one
    before.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step-{position.step:08d}.pt"
    draft = folder / f".{path.name}.{os.getpid()}.part"
    state = {
        "form": FORM,
        "identity": identity,
        "position": asdict(position) | {"place": [position.place.epoch, position.place.at, position.place.max_tokens]},
        "model": model.state_dict(),
        "optimizers": optimizers.state(),
        "random": torch.get_rng_state(),
        "random_cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "notes": notes,
    }
    try:
        with draft.open("wb") as stream:
            torch.save(state, stream)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    for old in saved(folder)[:-keep]:
        old.unlink()
    return path


def restore(
    path: Path, model: nn.Module, optimizers: Optimizers, position: Position, *, identity: str
) -> dict[str, Any]:
    """Put the state back in place and return its notes; CheckpointError where it belongs to another run."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a damaged file
        raise CheckpointError(f"{path}: cannot be read ({error}). Remove it to go on from the state before.") from error
    if state.get("form") != FORM:
        raise CheckpointError(f"{path}: a state of form {state.get('form')}; this Lexome knows {FORM}. Remove it.")
    if state["identity"] != identity:
        raise CheckpointError(
            f"{path}: was saved by another recipe, other shards or another start than those given now. Go on with "
            "those, or give this run an `out` of its own."
        )
    model.load_state_dict(state["model"])
    optimizers.restore(state["optimizers"])
    torch.set_rng_state(state["random"])
    if state["random_cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["random_cuda"])
    at = state["position"]
    position.step, position.tokens, position.elapsed_s = at["step"], at["tokens"], at["elapsed_s"]
    position.place = Place(*at["place"])
    notes: dict[str, Any] = state["notes"]
    return notes


def sweep(folder: Path) -> None:
    """Remove drafts of states that were never finished."""
    for draft in folder.glob(".step-*.part") if folder.is_dir() else ():
        draft.unlink(missing_ok=True)
