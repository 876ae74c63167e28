"""Training states on disk: everything needed to resume a run bit-exactly, on any number of processes.

A state is a folder: torch's distributed checkpoint of the tensors, of which each process writes its part, and run.pt
with all that is not sharded.
"""

import os
import re
import shutil
import warnings
from collections.abc import Collection, Iterator
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

from lexome.errors import CheckpointError, UsageError
from lexome.training.loop import Position
from lexome.training.optim import Optimizers
from lexome.training.parallel import Parallel
from lexome.training.sampling import Place

# The folder of the states inside a run's folder.
STATES = "state"
FORM = 2
RUN = "run.pt"
_NAME = re.compile(r"step-(\d{8,})")


def list_states(folder: Path) -> list[Path]:
    """The states in a folder, oldest first. A state gets its name only when it is complete."""
    if not folder.is_dir():
        return []
    states = [(int(match[1]), path) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(states)]


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
    """Write a state, every process its part, then remove all but the newest `keep`. All processes call it.

    CheckpointError where it cannot be written, such as on a full disk; an incomplete state is removed.
    """
    path = folder / f"step-{position.step:08d}"
    draft = folder / f".{path.name}.part"
    with _complete_or_removed(draft, path, parallel):
        if parallel.first:
            shutil.rmtree(draft, ignore_errors=True)
            draft.mkdir(parents=True)
        parallel.wait()
        with _quiet():
            state_dict_saver.save(named_tensors(model, optimizers), checkpoint_id=draft, no_dist=parallel.mesh is None)
        random = _generator_states(parallel)
        if parallel.first:
            at = asdict(position) | {"place": [position.place.epoch, position.place.at, position.place.max_tokens]}
            content = {"form": FORM, "identity": identity, "position": at, "random": random, "notes": notes}
            with (draft / RUN).open("wb") as stream:
                torch.save(content, stream)
                stream.flush()
                os.fsync(stream.fileno())
            shutil.rmtree(path, ignore_errors=True)
            draft.rename(path)
    if parallel.first:
        for old in list_states(folder)[:-keep]:
            # Half a state must not have the name of a complete one, if this is killed meanwhile.
            shutil.rmtree(old.rename(folder / f".{old.name}.part"))
    parallel.wait()
    return path


@contextmanager
def _complete_or_removed(draft: Path, path: Path, parallel: Parallel) -> Iterator[None]:
    try:
        yield
    except (CheckpointException, RuntimeError, OSError) as error:
        if parallel.first:
            shutil.rmtree(draft, ignore_errors=True)
        free = shutil.disk_usage(path.parent if path.parent.is_dir() else path.anchor or ".").free
        before = list_states(path.parent)
        last = f"The state before, {before[-1]}, is kept" if before else "No state was saved before"
        raise CheckpointError(
            f"{path}: the training state could not be written, with {free / 1e6:,.0f} MB free there "
            f"({_first_line(error)}). {last}. Free some space and run the same command again.",
            code="state-not-written",
            value=path,
        ) from error


def restore(
    path: Path,
    model: nn.Module,
    optimizers: Optimizers,
    position: Position,
    *,
    parallel: Parallel,
    identities: Collection[str],
    seed: int,
) -> dict[str, Any]:
    """Load a state, saved by any number of processes, and return its notes. All processes call it.

    With as many replicas as it was saved by, dropout continues bit-exactly. With another number it is seeded anew.
    """
    content = _read(path, identities)
    optimizers.initialize_state()
    tensors = named_tensors(model, optimizers)
    try:
        with _quiet():
            state_dict_loader.load(tensors, checkpoint_id=path, no_dist=parallel.mesh is None)
    except (CheckpointException, RuntimeError, ValueError, OSError) as error:
        raise CheckpointError(
            f"{path}: does not fit the model, or is damaged ({_first_line(error)}). Remove the folder to resume from "
            "the state before.",
            code="damaged-state",
            value=path,
        ) from error
    if optimizers.copied:
        with torch.no_grad():
            torch._foreach_copy_(tuple(optimizers.weights), tuple(optimizers.masters))
    at = content["position"]
    position.step, position.tokens, position.elapsed_s = at["step"], at["tokens"], at["elapsed_s"]
    position.place = Place(*at["place"])
    if len(content["random"]) == parallel.replicas:
        cpu, cuda = content["random"][parallel.replica]
        torch.set_rng_state(cpu)
        if cuda is not None and parallel.device.type == "cuda":
            torch.cuda.set_rng_state(cuda, parallel.device)
    else:
        parallel.seed(seed, step=position.step)
    notes: dict[str, Any] = content["notes"]
    return notes


def named_tensors(model: nn.Module, optimizers: Optimizers) -> dict[str, Tensor]:
    """Every tensor of a run by name: trained weights, buffers, and the optimizer's state of each weight.

    By names and not by numbers, as optimizers have it, so that nothing depends on groups or processes. Of weights in
    bfloat16 it is the float32 master weights. The tensors are the run's own: loading into them is loading the run.
    """
    named = dict(model.named_parameters())
    frozen = {name for name, weight in named.items() if not weight.requires_grad}
    stored = {name: weight for name, weight in model.state_dict().items() if name not in frozen}
    tensors: dict[str, Tensor] = {f"model.{name}": weight.detach() for name, weight in stored.items()}
    state_of = {id(weight): part.state[weight] for part in optimizers.parts for weight in part.state}
    trained = [name for name in named if name not in frozen]
    for name, master in zip(trained, optimizers.masters, strict=True):
        tensors[f"model.{name}"] = master.detach()
        for key, tensor in state_of.get(id(master), {}).items():
            tensors[f"optimizer.{key}.{name}"] = tensor
    return tensors


def gather_weights(model: nn.Module, optimizers: Optimizers, *, parallel: Parallel) -> dict[str, Tensor]:
    """The whole state dict in float32 on the CPU of the first process, for a Hugging Face folder; empty in the others.

    All processes call it. One weight at a time is whole in each. The model may be a part of what is trained.
    """
    master_of = {id(weight): master for weight, master in zip(optimizers.weights, optimizers.masters, strict=True)}
    trained = {name: master_of.get(id(weight), weight) for name, weight in model.named_parameters()}
    gathered: dict[str, Tensor] = {}
    for name, weight in (model.state_dict() | trained).items():
        full = weight.full_tensor() if isinstance(weight, DTensor) else weight
        if parallel.first:
            gathered[name] = full.detach().float().cpu().clone()
    return gathered


def remove_drafts(folder: Path) -> None:
    """Remove states that were never completed. For the first process alone."""
    for draft in folder.glob(".step-*.part") if folder.is_dir() else ():
        shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def _quiet() -> Iterator[None]:
    """torch warns that a single process writes alone, even where it is told to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


def _read(path: Path, identities: Collection[str]) -> dict[str, Any]:
    try:
        content: dict[str, Any] = torch.load(path / RUN, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a damaged file
        raise CheckpointError(
            f"{path}: {RUN} is damaged ({type(error).__name__}). Remove the folder to resume from the state before.",
            code="damaged-state",
            value=path,
        ) from error
    form = content.get("form") if isinstance(content, dict) else None
    if form != FORM:
        message = f"{path}: a training state of format {form}; this Lexome knows {FORM}. Remove it."
        raise CheckpointError(message, code="unknown-format", value=path)
    if content["identity"] not in identities:
        raise UsageError(
            f"{path}: was saved with another recipe, other training data or another start. Resume with those, or give "
            "this run an `out` of its own.",
            code="other-settings",
            value=path,
        )
    return content


def _first_line(error: BaseException) -> str:
    """The first line of torch's message, which may have a whole traceback after it."""
    if isinstance(error, CheckpointException) and error.failures:
        error = next(iter(error.failures.values()))[0]
    return (str(error) or repr(error)).splitlines()[0]


def _generator_states(parallel: Parallel) -> list[tuple[Tensor, Tensor | None]]:
    """The states of the random generators, one pair for each replica."""
    cuda = torch.cuda.get_rng_state(parallel.device) if parallel.device.type == "cuda" else None
    own = (torch.get_rng_state(), cuda)
    if parallel.mesh is None:
        return [own]
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, own)
    return every[:: parallel.sizes.tensor]
