"""run.json: what a run was, by whom and on what it was made, and whether it is done."""

import json
import os
import platform
import subprocess
from collections.abc import Collection
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy
import torch

import lexome
from lexome.errors import CheckpointError, UsageError
from lexome.files import refuse_other_settings, write_json
from lexome.recipe import upgrade
from lexome.recipe.pretrain import TrainingRecipe

RUN = "run.json"


@dataclass(frozen=True, slots=True)
class Run:
    """The facts of one run. `identity` is the hash of all that its outcome depends on."""

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


def write_run(folder: Path, run: Run, recipe: TrainingRecipe) -> None:
    """Write run.json; with `done`, it is the mark that the run is finished, and so comes last."""
    write_json(folder / RUN, facts(run, recipe))


def facts(run: Run, recipe: TrainingRecipe) -> dict[str, Any]:
    """The run with date, versions, hardware and recipe, as JSON holds it."""
    return {
        "stage": recipe.stage,
        **asdict(run),
        **surroundings(),
        "recipe": recipe.model_dump(mode="json", exclude_none=True),
    }


def surroundings() -> dict[str, Any]:
    """The versions, the day and the hardware that a run is made with."""
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


def finished(folder: Path, identity: str, recipe: TrainingRecipe, *, free: Collection[str]) -> Run | None:
    """The finished run in a folder; UsageError where that is another run than this.

    The error names a key that differs from the recipe's, but for the tables that are `free` to.
    """
    path = folder / RUN
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        run = Run(**{field.name: found[field.name] for field in fields(Run)})
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: is no record of a pre-training ({error!r}). Choose another `out`.") from None
    if run.identity != identity:
        remedy = "Choose another `out`, or remove that folder."
        recorded = upgrade(found.get("recipe", {}), recipe.stage)
        requested = recipe.model_dump(mode="json", exclude_none=True)
        old, new = ({key: keys[key] for key in keys if key not in free} for keys in (recorded, requested))
        refuse_other_settings(folder, old, new, holds="the run of another recipe", remedy=remedy)
        raise UsageError(
            f"{folder}: holds a run of this recipe on other shards, or that began with other weights. {remedy}",
            code="other-settings",
            value="shards",
        )
    return run if run.done else None


@cache
def revision() -> str | None:
    """The git revision of Lexome's own code, "+changes" where files differ from it; None where it is installed.

    A run asks before its first step: code that is pulled while it goes on is not what it runs.
    """
    folder = Path(lexome.__file__).parent
    try:
        found = [
            subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()
            for words in (
                ("ls-files", "--error-unmatch", "__init__.py"),
                ("rev-parse", "--short=12", "HEAD"),
                ("status", "--porcelain", "--untracked-files=no", "."),
            )
        ]
    except (OSError, subprocess.CalledProcessError):
        return None
    return found[1] + ("+changes" if found[2] else "")
