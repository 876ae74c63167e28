"""The training core of every stage: metrics, divergence checks, training states, and the Trainer on top of them.

A training state is a folder: torch's distributed checkpoint of the tensors, of which each process writes its part,
run.pt with all that is not sharded, and checksums of both. Nothing in it can run code when it is loaded.
"""

import io
import json
import math
import os
import pickle
import re
import shutil
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.tensor import DTensor

from lexome.errors import CheckpointError, DivergedError, UsageError
from lexome.files import (
    CHECKSUMS,
    atomic_plot,
    atomic_write,
    verify_checksums,
    write_checksums,
)
from lexome.training.loop import Clock, Position, Step, StepResult, Update, fraction_done, train
from lexome.training.optim import LearningRateSchedule, Length, Optimizers
from lexome.training.parallel import Parallel
from lexome.training.sampling import BatchPosition

# Metrics

METRICS = "metrics.jsonl"
BOARD = "tensorboard"
# One line far above the lowest loss may be a batch of odd text; three in a row are not.
PATIENCE = 3

Line = dict[str, Any]

# Metrics of loss terms: the name in a line, the term, and the count (or other term) that its sum is divided by.
# A new objective adds its rows here.
MEANS = (
    ("word_loss", "word_loss", "masked"),
    ("accuracy", "word_right", "masked"),
    ("pair_loss", "pair_loss", "sequences"),
    ("pair_accuracy", "pair_right", "sequences"),
    ("kl_loss", "kl_loss", "masked"),
    ("kl_loss", "kl_loss_all", "tokens"),
    ("cosine_loss", "cosine_loss", "tokens"),
    ("embedding_loss", "embedding_loss", "sequences"),
    ("contrastive_loss", "contrastive_loss", "contrastive_pairs"),
    ("contrastive_accuracy", "contrastive_correct", "contrastive_pairs"),
)


class Sums:
    """Losses, gradient norms and loss terms since the last line. They stay on the device until a line is written."""

    def __init__(self) -> None:
        self.values: dict[str, list[Tensor]] = {}
        self.counts: dict[str, int] = {"steps": 0, "tokens": 0}
        self.began_s = 0.0

    def add(self, result: StepResult) -> None:
        """Count one step."""
        for name, value in {**result.terms, "loss": result.loss, "norm": result.norm}.items():
            self.values.setdefault(name, []).append(value)
        for name, count in {"steps": 1, "tokens": result.tokens, **result.counts}.items():
            self.counts[name] = self.counts.get(name, 0) + count

    def line(self, result: StepResult, position: Position) -> Line:
        """The means since the last line, with the position of the run; the sums are then reset."""
        # One copy from the device for each name; added up one after another in double precision.
        sums = {name: sum(torch.stack(values).double().tolist()) for name, values in self.values.items()}
        counts = self.counts
        seconds = position.elapsed_s - self.began_s
        line: Line = {
            "step": position.step,
            "tokens": position.tokens,
            "epoch": position.place.epoch,
            "loss": sums["loss"] / counts["steps"],
            **means(sums, counts),
            "norm": sums["norm"] / counts["steps"],
            "lr": result.lr,
            **result.logged,
            "elapsed_s": round(position.elapsed_s, 3),
            "tokens_per_s": round(counts["tokens"] / seconds) if seconds > 0 else None,
        }
        self.values, self.counts, self.began_s = {}, dict.fromkeys(counts, 0), position.elapsed_s
        return line

    def state(self) -> dict[str, Any]:
        """The sums for a training state, which may be saved between two lines."""
        values = {name: torch.stack(values).cpu() for name, values in self.values.items()}
        return {"sums": values, "counts": dict(self.counts), "began_s": self.began_s}

    def restore(self, state: Mapping[str, Any], device: torch.device) -> None:
        """Restore the sums that `state` returned."""
        # The first edition stored a single sum of each.
        stored = {name: values.reshape(-1) for name, values in state["sums"].items()}
        self.values = {name: list(values.to(device).unbind()) for name, values in stored.items()}
        self.counts, self.began_s = dict(state["counts"]), state["began_s"]


def means(sums: Mapping[str, float], counts: Mapping[str, int]) -> Line:
    """Mean losses and accuracies: the sum of each loss term divided by its count."""
    denominators = {**sums, **counts}
    return {name: sums[term] / max(1, denominators[count]) for name, term, count in MEANS if term in sums}


class DivergenceWatch:
    """Stops a run whose loss is not finite, or stays far above its lowest value."""

    def __init__(self, *, threshold: float = math.inf) -> None:
        self.threshold, self.lowest, self.worse = threshold, math.inf, 0

    def check(self, line: Line) -> None:
        """DivergedError where the line shows divergence."""
        loss, step = line["loss"], line["step"]
        if not (math.isfinite(loss) and math.isfinite(line["norm"])):
            raise DivergedError(
                f"up to step {step:,} the loss is {loss} and the gradient norm {line['norm']}; expected finite "
                "numbers. Lower optimizer.lr, raise schedule.warmup_ratio, or check the text there.",
                code="not-finite",
                value=step,
            )
        self.lowest = min(self.lowest, loss)
        self.worse = self.worse + 1 if loss > self.lowest + self.threshold else 0
        if self.worse >= PATIENCE:
            raise DivergedError(
                f"the loss at step {step:,} is {loss:.3f}, and for {PATIENCE} lines of {METRICS} more than "
                f"{self.threshold:g} above its lowest, {self.lowest:.3f}. "
                "Lower optimizer.lr, or raise log.divergence_threshold.",
                code="diverged",
                value=step,
            )


class MetricsJournal:
    """metrics.jsonl, one line at a time, and TensorBoard where it is installed."""

    def __init__(self, folder: Path, *, step: int) -> None:
        """Lines after `step`, from a run that was interrupted before it saved its state, are removed."""
        self.path = folder / METRICS
        lines = [line for line in read_metrics(self.path) if line["step"] <= step]
        with atomic_write(self.path) as stream:
            stream.writelines(_json(line) for line in lines)
        self.board = _board(folder / BOARD, step)

    def write(self, line: Line) -> None:
        """Add a line, and force it to disk."""
        with self.path.open("ab") as stream:
            stream.write(_json(line))
            stream.flush()
            os.fsync(stream.fileno())
        if self.board is not None:
            flat = {f"held_out/{name}": value for name, value in line.get("held_out", {}).items()} | line
            for name, value in flat.items():
                if isinstance(value, int | float) and name != "step":
                    self.board.add_scalar(name, value, line["step"])
            self.board.flush()


def read_metrics(path: Path) -> list[Line]:
    """The lines of a metrics.jsonl; an incomplete last line, from a killed run, is ignored."""
    raw = path.read_bytes().splitlines() if path.exists() else []
    lines: list[Line] = []
    for number, text in enumerate(raw, 1):
        try:
            line = json.loads(text)
        except ValueError:
            if number == len(raw):
                break
            line = None
        if not isinstance(line, dict) or not isinstance(line.get("step"), int):
            raise CheckpointError(
                f"{path}: line {number:,} is not a JSON object with a step number; expected the metrics of a run. "
                "Choose another `out`, or move this file away.",
                code="invalid-metrics",
                value=number,
            )
        lines.append(line)
    return lines


def _json(line: Line) -> bytes:
    return json.dumps(line).encode() + b"\n"


def _board(folder: Path, step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder), purge_step=step + 1)


def plot_loss(metrics: Path, plot: Path) -> None:
    """Plot the training and held-out loss, and the learning rate below, as a PNG."""
    lines = read_metrics(metrics)
    # A folder with the metrics of another stage may still have its first line, which lacks some of these.
    training = [line for line in lines if {"tokens", "word_loss", "lr"} <= line.keys()]
    evaluated = [line for line in lines if {"tokens", "held_out"} <= line.keys()]
    with atomic_plot(plot, size=(7, 5)) as figure:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        millions = [line["tokens"] / 1e6 for line in training]
        upper.plot(millions, [line["word_loss"] for line in training], linewidth=1, label="training")
        if evaluated:
            places = [line["tokens"] / 1e6 for line in evaluated]
            upper.plot(places, [line["held_out"]["loss"] for line in evaluated], "o-", markersize=3, label="held-out")
        upper.set_ylabel("masked-language-modeling loss (nats)")
        upper.legend(frameon=False)
        lower.plot(millions, [line["lr"] for line in training], color="0.4", linewidth=1)
        lower.set_ylabel("learning rate")
        lower.set_xlabel("million tokens")
        for axes in (upper, lower):
            axes.spines[["top", "right"]].set_visible(False)


# Training state

# The folder of the states inside a run's folder.
STATES = "state"
FORM = 3
# States of the form before have no checksums.
KNOWN_FORMS = (2, FORM)
RUN_FILE = "run.pt"
_NAME = re.compile(r"step-(\d{8,})")


def list_states(folder: Path) -> list[Path]:
    """The states in a folder, oldest first. A state gets its name only when it is complete."""
    if not folder.is_dir():
        return []
    states = [(int(match[1]), path) for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(states)]


def save_state(
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
            with (draft / RUN_FILE).open("wb") as stream:
                torch.save(content, stream)
                stream.flush()
                os.fsync(stream.fileno())
            write_checksums(draft)
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


def restore_state(
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

    With the number of replicas it was saved by, dropout continues bit-exactly; with another number it is reseeded.
    """
    complete = parallel.from_first(lambda: verify_checksums(path, remedy=OLDER, code="damaged-state"))
    content = _read_state(path, identities, complete=complete)
    optimizers.initialize_state()
    tensors = named_tensors(model, optimizers)
    try:
        with _quiet():
            reader = StateReader(path)
            state_dict_loader.load(tensors, storage_reader=reader, no_dist=parallel.mesh is None)
    except (CheckpointException, RuntimeError, ValueError, OSError) as error:
        raise CheckpointError(
            f"{path}: does not fit the model, or is damaged ({_first_line(error)}). {OLDER}",
            code="damaged-state",
            value=path,
        ) from error
    if optimizers.copied:
        with torch.no_grad():
            torch._foreach_copy_(tuple(optimizers.weights), tuple(optimizers.masters))
    with reading_run_file(path):
        at = content["position"]
        position.step, position.tokens, position.elapsed_s = at["step"], at["tokens"], at["elapsed_s"]
        position.place = BatchPosition(*at["place"])
        if len(content["random"]) == parallel.replicas:
            cpu, cuda = content["random"][parallel.replica]
            torch.set_rng_state(cpu)
            if cuda is not None and parallel.device.type == "cuda":
                torch.cuda.set_rng_state(cuda, parallel.device)
        else:
            parallel.seed(seed, step=position.step)
        notes: dict[str, Any] = content["notes"]
    return notes


@contextmanager
def reading_run_file(path: Path) -> Iterator[None]:
    """CheckpointError where the content of a state's run.pt was not written by a run."""
    try:
        yield
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        message = f"{path}: {RUN_FILE} is not what a run has written ({error!r}). {OLDER}"
        raise CheckpointError(message, code="damaged-state", value=path) from None


OLDER = "Remove the folder to resume from the state before."

# The classes of torch's description of a distributed checkpoint, by module.
_METADATA_CLASSES = {
    "torch.distributed.checkpoint.metadata": (
        "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta", "TensorProperties",
        "TensorStorageMetadata", "_MEM_FORMAT_ENCODING",
    ),
    "torch.distributed.checkpoint.filesystem": ("_StorageInfo",),
    "torch.serialization": ("_get_layout",),
    "torch": ("Size",),
    "pathlib": ("Path", "PosixPath", "PurePosixPath", "PureWindowsPath", "WindowsPath"),
    "pathlib._local": ("Path", "PosixPath", "PurePosixPath", "PureWindowsPath", "WindowsPath"),
    "collections": ("OrderedDict",),
}  # fmt: skip


class _MetadataUnpickler(pickle.Unpickler):
    """Unpickles sizes, dtypes and places of tensors; ValueError at any other class or function, before it is called."""

    def find_class(self, module: str, name: str) -> Any:
        if name in _METADATA_CLASSES.get(module, ()):
            return super().find_class(module, name)
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        raise ValueError(f"its .metadata names {module}.{name}, which is no part of a training state")


class StateReader(FileSystemReader):
    """Reads a state without running code from it: torch's own reader would unpickle any object named in .metadata.

    Entries other than tensors are refused, since torch would unpickle their content too.
    """

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """The checked description of the tensors."""
        folder = Path(self.path)
        try:
            metadata = _MetadataUnpickler(io.BytesIO((folder / ".metadata").read_bytes())).load()
        except (OSError, ValueError):
            raise
        except Exception as error:  # pickle raises many kinds for a damaged file
            raise ValueError(f"its .metadata is damaged: {type(error).__name__}") from None
        if not isinstance(metadata, Metadata) or not isinstance(metadata.storage_data, dict):
            raise ValueError("its .metadata describes no tensors")
        kinds = {type(entry) for entry in metadata.state_dict_metadata.values()}
        if kinds - {TensorStorageMetadata}:
            raise ValueError("its .metadata has an entry that is no tensor")
        for place in metadata.storage_data.values():
            if Path(place.relative_path).name != place.relative_path:
                raise ValueError(f"its .metadata names the file {place.relative_path!r}, which is not in the folder")
        metadata.storage_meta = metadata.storage_meta or StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata


def named_tensors(model: nn.Module, optimizers: Optimizers) -> dict[str, Tensor]:
    """Every tensor of a run by name: trained weights, buffers, and the optimizer's state of each weight.

    Optimizers number their weights; names do not depend on parameter groups or processes. For weights in bfloat16,
    these are the float32 master weights. The tensors are not copies: loading into them restores the run.
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

    All processes call it, and each holds one full weight at a time. The model may be a part of the trained module.
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


def _read_state(path: Path, identities: Collection[str], *, complete: bool) -> dict[str, Any]:
    """The content of a state besides tensors; `complete` says whether its files have been verified."""
    try:
        content: dict[str, Any] = torch.load(path / RUN_FILE, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a damaged file
        raise CheckpointError(
            f"{path}: {RUN_FILE} is damaged ({type(error).__name__}). {OLDER}",
            code="damaged-state",
            value=path,
        ) from error
    form = content.get("form") if isinstance(content, dict) else None
    if form not in KNOWN_FORMS:
        message = f"{path}: a training state of format {form}; this Lexome knows {FORM}. Remove it."
        raise CheckpointError(message, code="unknown-format", value=path)
    if form == FORM and not complete:
        message = f"{path}: has lost its {CHECKSUMS}. {OLDER}"
        raise CheckpointError(message, code="damaged-state", value=path / CHECKSUMS)
    if content.get("identity") not in identities:
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


# The trainer


@dataclass(frozen=True, slots=True)
class Setting:
    """Where and how a run computes, with a value for every key that its recipe leaves to the device."""

    device: torch.device
    precision: str
    compiled: bool = False
    cuda_graphs: bool = False

    @property
    def autocast(self) -> torch.dtype | None:
        """The precision of matrix products, if it differs from that of the weights."""
        return torch.bfloat16 if self.precision == "autocast" else None


class Trainer:
    """One process's part of a run. All processes make the same steps and know the same sums; only the first logs."""

    def __init__(
        self,
        module: nn.Module,
        optimizers: Optimizers,
        *,
        length: Length,
        schedule: LearningRateSchedule,
        parallel: Parallel,
        clock: Clock,
        divergence_threshold: float | None = None,
    ) -> None:
        self.module, self.optimizers, self.parallel = module, optimizers, parallel
        self.length, self.schedule, self.clock = length, schedule, parallel.clock(clock)
        self.watch = DivergenceWatch(threshold=inf if divergence_threshold is None else divergence_threshold)
        self.position, self.sums = Position(), Sums()
        self.last: Line | None = None
        self.journal: MetricsJournal | None = None

    @property
    def fraction(self) -> float:
        """How much of the run is done, from 0 to 1."""
        return fraction_done(self.length, self.position)

    def open_journal(self, folder: Path) -> None:
        """Write metrics.jsonl in this folder from the current position on."""
        self.journal = MetricsJournal(folder, step=self.position.step) if self.parallel.first else None

    def steps(self, update: Update, steps: Iterator[Step]) -> Iterator[StepResult]:
        """Train to the end, yielding after each step its result over all processes."""
        made = train(
            update, steps, length=self.length, schedule=self.schedule, position=self.position, clock=self.clock
        )
        for result in map(self.parallel.sum_over_replicas, made):
            self.sums.add(result)
            yield result

    def log(self, result: StepResult) -> Line:
        """Write a line of means since the last one; DivergedError where it shows divergence."""
        self.last = self.sums.line(result, self.position)
        self.write(self.last)
        self.watch.check(self.last)
        return self.last

    def write(self, line: Line) -> None:
        """Write any other line, such as one of scores."""
        if self.journal is not None:
            self.journal.write(line)

    def check_finite(self, result: StepResult) -> None:
        """DivergedError where this step or the weights after it are not finite."""
        step = self.position.step
        DivergenceWatch().check({"step": step, "loss": float(result.loss), "norm": float(result.norm)})
        if not self.parallel.all_agree(self.optimizers.finite()):
            message = f"after step {step:,} not all weights are finite. Lower optimizer.lr."
            raise DivergedError(message, code="not-finite", value=step)

    def save(self, folder: Path, *, identity: str, notes: dict[str, Any], keep: int = 1) -> None:
        """Save the training state, with a stage's own notes."""
        own = {"tally": self.sums.state(), "best": self.watch.lowest, "worse": self.watch.worse, "last": self.last}
        save_state(
            folder,
            self.module,
            self.optimizers,
            self.position,
            parallel=self.parallel,
            identity=identity,
            notes=own | notes,
            keep=keep,
        )

    def restore(self, path: Path, *, identities: Collection[str], seed: int) -> dict[str, Any]:
        """Resume from a saved training state; its notes."""
        notes = restore_state(
            path,
            self.module,
            self.optimizers,
            self.position,
            parallel=self.parallel,
            identities=identities,
            seed=seed,
        )
        with reading_run_file(path):
            self.sums.restore(notes["tally"], self.parallel.device)
            self.watch.lowest, self.watch.worse, self.last = notes["best"], notes["worse"], notes["last"]
        return notes
