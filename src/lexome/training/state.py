"""States of a run on disk: all that is needed to go on as if it had never stopped, on any number of processes.

A state is a folder: torch's distributed checkpoint of the tensors, of which each process writes its part, and run.pt
with all that is not spread.
"""

import os
import re
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.tensor import DTensor

from lexome.errors import CheckpointError
from lexome.training.loop import Position
from lexome.training.optim import Optimizers, started
from lexome.training.parallel import Parallel
from lexome.training.sampling import Place

FORM = 2
RUN = "run.pt"
_NAME = re.compile(r"step-(\d{8,})")


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
    parallel: Parallel,
    identity: str,
    notes: dict[str, Any],
    keep: int,
) -> Path:
    """Write the state, every process its part, then remove all but the newest `keep`. All processes call it.

    CheckpointError where it cannot be written, such as on a full disk; what was written of it is removed.
    """
    path = folder / f"step-{position.step:08d}"
    draft = folder / f".{path.name}.part"
    with _whole_or_none(draft, path, parallel):
        if parallel.first:
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
        parallel.wait()
        with _quiet():
            state_dict_saver.save(tensors_of(model, optimizers), checkpoint_id=draft, no_dist=parallel.mesh is None)
        random = _randoms(parallel)
        if parallel.first:
            at = asdict(position) | {"place": [position.place.epoch, position.place.at, position.place.max_tokens]}
            kept = {"form": FORM, "identity": identity, "position": at, "random": random, "notes": notes}
            with (draft / RUN).open("wb") as stream:
                torch.save(kept, stream)
                stream.flush()
                os.fsync(stream.fileno())
            shutil.rmtree(path, ignore_errors=True)
            draft.rename(path)
    if parallel.first:
        for old in saved(folder)[:-keep]:
            # Half a state must not have the name of a whole one, if this is killed meanwhile.
            shutil.rmtree(old.rename(folder / f".{old.name}.part"))
    parallel.wait()
    return path


@contextmanager
def _whole_or_none(draft: Path, path: Path, parallel: Parallel) -> Iterator[None]:
    """CheckpointError where a state cannot be written, with what was written of it removed."""
    try:
        yield
    except (CheckpointException, RuntimeError, OSError) as error:
        if parallel.first:
            shutil.rmtree(draft, ignore_errors=True)
        raise CheckpointError(_unwritten(path, error)) from error


def _unwritten(path: Path, error: BaseException) -> str:
    """Why a state was not written, and what there is to go on from."""
    free = shutil.disk_usage(path.parent if path.parent.is_dir() else path.anchor or ".").free
    before = saved(path.parent)
    last = f"The state before, {before[-1]}, stays" if before else "No state was saved before"
    return (
        f"{path}: the state could not be written, with {free / 1e6:,.0f} MB free there ({_short(error)}). {last}. Make "
        "room and run the same command again."
    )


def restore(
    path: Path,
    model: nn.Module,
    optimizers: Optimizers,
    position: Position,
    *,
    parallel: Parallel,
    identity: str,
    seed: int,
) -> dict[str, Any]:
    """Put a state back in place, of any number of processes, and return its notes. All processes call it.

    With as many replicas as it was saved by, dropout goes on where it was. With another number it is seeded anew.
    """
    kept = _read(path, identity)
    started(optimizers)
    tensors = tensors_of(model, optimizers)
    try:
        with _quiet():
            state_dict_loader.load(tensors, checkpoint_id=path, no_dist=parallel.mesh is None)
    except (CheckpointException, RuntimeError, ValueError, OSError) as error:
        raise CheckpointError(
            f"{path}: does not fit the model, or is damaged ({_short(error)}). Remove the folder to go on from the "
            "state before."
        ) from error
    if optimizers.copied:
        with torch.no_grad():
            torch._foreach_copy_(tuple(optimizers.weights), tuple(optimizers.masters))
    at = kept["position"]
    position.step, position.tokens, position.elapsed_s = at["step"], at["tokens"], at["elapsed_s"]
    position.place = Place(*at["place"])
    if len(kept["random"]) == parallel.replicas:
        cpu, cuda = kept["random"][parallel.replica]
        torch.set_rng_state(cpu)
        if cuda is not None and parallel.device.type == "cuda":
            torch.cuda.set_rng_state(cuda, parallel.device)
    else:
        parallel.seed(seed, step=position.step)
    notes: dict[str, Any] = kept["notes"]
    return notes


def tensors_of(model: nn.Module, optimizers: Optimizers) -> dict[str, Tensor]:
    """Every tensor of a run by name: weights, and what the optimizer keeps for each.

    By names and not by numbers, as optimizers have it, so that nothing depends on groups or processes. Of weights in
    bfloat16 it is the float32 ones they are rounded from. The tensors are the run's own: loading into them is loading
    the run.
    """
    named = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    found: dict[str, Tensor] = {f"model.{name}": weight.detach() for name, weight in model.state_dict().items()}
    state_of = {id(weight): part.state[weight] for part in optimizers.parts for weight in part.state}
    for (name, _), master in zip(named, optimizers.masters, strict=True):
        found[f"model.{name}"] = master.detach()
        for key, held in state_of.get(id(master), {}).items():
            found[f"optimizer.{key}.{name}"] = held
    return found


def gathered(model: nn.Module, optimizers: Optimizers, *, parallel: Parallel) -> dict[str, Tensor]:
    """The whole state dict in float32 on the CPU of the first process, for a Hugging Face folder; empty in the others.

    All processes call it. One weight at a time is whole in each. The model may be a part of what is trained.
    """
    master_of = {id(weight): master for weight, master in zip(optimizers.weights, optimizers.masters, strict=True)}
    trained = {name: master_of.get(id(weight), weight) for name, weight in model.named_parameters()}
    whole: dict[str, Tensor] = {}
    for name, weight in (model.state_dict() | trained).items():
        full = weight.full_tensor() if isinstance(weight, DTensor) else weight
        if parallel.first:
            whole[name] = full.detach().float().cpu().clone()
    return whole


def sweep(folder: Path) -> None:
    """Remove drafts of states that were never finished. For the first process alone."""
    for draft in folder.glob(".step-*.part") if folder.is_dir() else ():
        shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def _quiet() -> Iterator[None]:
    """torch warns that a single process writes alone, even where it was told so."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


def _read(path: Path, identity: str) -> dict[str, Any]:
    try:
        kept: dict[str, Any] = torch.load(path / RUN, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a damaged file
        raise CheckpointError(
            f"{path}: {RUN} is damaged ({type(error).__name__}). Remove the folder to go on from the state before."
        ) from error
    if kept.get("form") != FORM:
        raise CheckpointError(f"{path}: a state of form {kept.get('form')}; this Lexome knows {FORM}. Remove it.")
    if kept["identity"] != identity:
        raise CheckpointError(
            f"{path}: was saved by another recipe, other shards or another start than those given now. Go on with "
            "those, or give this run an `out` of its own."
        )
    return kept


def _short(error: BaseException) -> str:
    """The first line of what torch says, which may have its whole traceback after it."""
    if isinstance(error, CheckpointException) and error.failures:
        error = next(iter(error.failures.values()))[0]
    return (str(error) or repr(error)).splitlines()[0]


def _randoms(parallel: Parallel) -> list[tuple[Tensor, Tensor | None]]:
    """The states of the random generators, one pair for each replica."""
    cuda = torch.cuda.get_rng_state(parallel.device) if parallel.device.type == "cuda" else None
    own = (torch.get_rng_state(), cuda)
    if parallel.mesh is None:
        return [own]
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, own)
    return every[:: parallel.sizes.tensor]
