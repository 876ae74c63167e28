"""run.json: what a run was, by whom and on what it was made, and whether it is done."""

import json
import os
import platform
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy
import torch

import lexome
from lexome.errors import CheckpointError
from lexome.formats.streams import replacing
from lexome.recipe import difference
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
    with replacing(folder / RUN) as stream:
        stream.write(json.dumps(facts(run, recipe), indent=1, ensure_ascii=False).encode() + b"\n")


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
    """The run in a folder where it is done; CheckpointError where that is another run than this.

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
        raise CheckpointError(
            f"{folder}: holds {_another(found.get('recipe', {}), recipe, free)}. Choose another `out`, or remove that "
            "folder."
        )
    return run if run.done else None


def _another(there: Mapping[str, Any], recipe: TrainingRecipe, free: Collection[str]) -> str:
    """How the run of a recipe differs from this one, as far as recipes tell."""
    here = recipe.model_dump(mode="json", exclude_none=True)
    old, new = ({key: said for key, said in one.items() if key not in free} for one in (there, here))
    if (differs := difference(old, new)) is not None:
        return f"the run of another recipe: {differs}"
    return "a run of this recipe on other shards, or that began with other weights"


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
