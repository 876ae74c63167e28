"""run.json, the record of a run: the facts of its stage, then versions, date and hardware, and its recipe.

Records of all stages have stage, identity, done, steps, tokens, seconds, device, precision, compiled, processes, start,
versions, date, hardware and recipe under these names. It is written last, so that a folder with the record of a run
that is done is complete.
"""

import os
import platform
import subprocess
from collections.abc import Collection
from dataclasses import MISSING, asdict, dataclass, fields
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy
import torch

import lexome
from lexome.errors import CheckpointError, UsageError
from lexome.files import read_json, refuse_other_settings, write_json
from lexome.recipe import Recipe, upgrade
from lexome.tasks.task import Scores

RUN = "run.json"


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The record of a pre-training or distillation.

    identity  the hash of everything that its result depends on
    held_out  metrics on held-out text
    start     the initial model, and how it was initialized
    """

    identity: str
    done: bool
    steps: int
    tokens: int
    seconds: float
    loss: float | None
    held_out: dict[str, Any] | None
    device: str
    precision: str
    compiled: bool
    processes: int
    start: dict[str, Any]


@dataclass(frozen=True, slots=True)
class FinetuneRecord:
    """The record of a finished fine-tuning run.

    scores        metrics by split and name
    measure       the metric that selected the weights
    steps         training steps; the saved weights are those of `best_step`
    labels, bias  label counts of the training data, and the fraction that are not the majority label
    notes         counts of annotations that the examples cannot represent
    kept          whether the weights are still on disk
    processes     the number of processes that shared the run
    """

    name: str
    identity: str
    seed: int
    fold: int | None
    batch: int | None
    lr: float | None
    epochs: float | None
    scores: dict[str, Scores]
    measure: str | None
    steps: int
    best_step: int
    stopped_early: bool
    tokens: int
    seconds: float
    device: str
    precision: str
    compiled: bool
    labels: dict[str, int]
    bias: float | None
    notes: dict[str, int]
    warnings: tuple[str, ...]
    start: dict[str, Any]
    kept: bool = True
    processes: int = 1


Record = TypeVar("Record", RunRecord, FinetuneRecord)


def recipe_keys(recipe: Recipe) -> dict[str, Any]:
    """A recipe as records have it: with all defaults, without keys that are not set."""
    return recipe.model_dump(mode="json", exclude_none=True)


def run_record(record: RunRecord | FinetuneRecord, recipe: Recipe) -> dict[str, Any]:
    """The content of run.json."""
    # A fine-tuning has no record before it is done.
    done = {} if isinstance(record, RunRecord) else {"done": True}
    return {"stage": recipe.stage, **done, **asdict(record), **surroundings(), "recipe": recipe_keys(recipe)}


def write_record(folder: Path, record: RunRecord | FinetuneRecord, recipe: Recipe) -> None:
    """Write run.json into a run's folder."""
    write_json(folder / RUN, run_record(record, recipe))


def read_record(folder: Path, kind: type[Record]) -> Record | None:
    """The record in a run's folder; None where there is none, CheckpointError for one of another kind."""
    read = _read(folder, kind)
    return None if read is None else read[0]


def _read(folder: Path, kind: type[Record]) -> tuple[Record, dict[str, Any]] | None:
    """The record, and all of run.json."""
    path = folder / RUN
    if not path.is_file():
        return None
    content = read_json(path, remedy="Choose another `out`, or remove that folder.")
    # Keys with a default were added later.
    missing = [one.name for one in fields(kind) if one.default is MISSING and one.name not in content]
    if missing:
        stage = "pre-training" if kind is RunRecord else "fine-tuning"
        message = f"{path}: not the record of a {stage} run: it has no {missing[0]!r}. Choose another `out`."
        raise CheckpointError(message, code="invalid-record", value=path)
    values: dict[str, Any] = {one.name: content[one.name] for one in fields(kind) if one.name in content}
    if "warnings" in values:
        values["warnings"] = tuple(values["warnings"])
    return kind(**values), content


def finished(folder: Path, identity: str, recipe: Recipe, *, free: Collection[str]) -> RunRecord | None:
    """The finished run in a folder; UsageError if the folder holds a different run.

    The error names a key that differs from the recipe's, except for `free` ones, which may.
    """
    read = _read(folder, RunRecord)
    if read is None:
        return None
    run, content = read
    if run.identity != identity:
        remedy = "Choose another `out`, or remove that folder."
        recorded = upgrade(content.get("recipe", {}), recipe.stage)
        old, new = ({key: keys[key] for key in keys if key not in free} for keys in (recorded, recipe_keys(recipe)))
        refuse_other_settings(folder, old, new, holds="the run of another recipe", remedy=remedy)
        raise UsageError(
            f"{folder}: holds a run of this recipe on other shards, or that began with other weights. {remedy}",
            code="other-settings",
            value="shards",
        )
    return run if run.done else None


def surroundings() -> dict[str, Any]:
    """The versions, date and hardware of a run."""
    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return {
        "versions": {
            "lexome": lexome.__version__,
            "python": platform.python_version(),
            "numpy": numpy.__version__,
            "torch": str(torch.__version__),
            "revision": revision(),
        },
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "hardware": {"machine": platform.machine(), "cores": os.cpu_count(), "gpus": gpus},
    }


@cache
def revision() -> str | None:
    """The git revision of Lexome's own code, "+changes" where files differ from it; None where it is installed.

    Call it before the first step: the files may change during a run, but not the code that it executes.
    """
    folder = Path(lexome.__file__).parent
    # `git status` would otherwise write a refreshed index, and hold its lock while the user commits.
    git = ("git", "--no-optional-locks")
    try:
        found = [
            subprocess.run([*git, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()
            for words in (
                ("ls-files", "--error-unmatch", "__init__.py"),
                ("rev-parse", "--short=12", "HEAD"),
                ("status", "--porcelain", "--untracked-files=no", "."),
            )
        ]
    except (OSError, subprocess.CalledProcessError):
        return None
    return found[1] + ("+changes" if found[2] else "")
