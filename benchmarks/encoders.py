r"""Encoders made in different ways, by the one protocol of benchmarks/encoders.toml: F1 on dev beside GPU minutes.

    python benchmarks/encoders.py run NAME RECIPE FOLDER [KEY=VALUE ...]
    lexome reproduce benchmarks/encoders.toml -m NAME=FOLDER/NAME/model ... --out STUDY
    python benchmarks/encoders.py join FOLDER STUDY [STUDY ...]

`run` is `lexome pretrain` or `lexome distill` of a recipe, and writes down what the clock says of it, getting ready and
compiling included. `join` puts F1 beside that, its mean over studies that differ in nothing but their seed, and writes
results/encoders.json and docs/images/encoders.png. A model that no run made, because it is published, has no minutes.
"""

import argparse
import json
import time
from pathlib import Path
from statistics import fmean

import torch

from facts import facts
from lexome.recipe import load, stage_of
from lexome.recipe.distill import DistillRecipe
from lexome.recipe.pretrain import PretrainRecipe
from lexome.train.distill import distill
from lexome.train.pretrain import pretrain
from lexome.train.study.files import STUDY, read_outcome

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    options = argparse.ArgumentParser()
    ways = options.add_subparsers(dest="way", required=True)
    run = ways.add_parser("run")
    run.add_argument("name")
    for argument in ("recipe", "folder"):
        run.add_argument(argument, type=Path)
    run.add_argument("changes", nargs="*", metavar="KEY=VALUE")
    join = ways.add_parser("join")
    join.add_argument("folder", type=Path)
    join.add_argument("studies", type=Path, nargs="+", metavar="study")
    given = options.parse_args()
    if given.way == "run":
        trained(given.name, given.recipe, given.folder, given.changes)
    else:
        joined(given.folder, given.studies)


def trained(name: str, path: Path, folder: Path, changes: list[str]) -> None:
    """One run of a recipe, and a file beside it that says what it took and what it came to."""
    folder.mkdir(parents=True, exist_ok=True)
    changes = [*changes, f"out={folder / name}"]
    began = time.monotonic()
    if stage_of(path) == "distill":
        done = distill(load(path, DistillRecipe, overrides=changes), progress_shown=False)
    else:
        done = pretrain(load(path, PretrainRecipe, overrides=changes), progress_shown=False)
    whole = time.monotonic() - began
    row = {
        "recipe": str(path),
        "changes": [change for change in changes if not change.startswith(("out=", "shards=", "start="))],
        "minutes": round(whole / 60, 2),
        "train_s": round(done.seconds, 1),
        "tokens": done.tokens,
        "steps": done.steps,
        "held_out": done.held_out,
        "facts": facts("torch", "numpy") | {"gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None},
    }
    (folder / f"{name}.json").write_text(json.dumps(row, indent=1) + "\n")
    print(name, json.dumps(row), flush=True)


def joined(folder: Path, studies: list[Path]) -> None:
    """F1 of every model in the studies beside what its run took, as one file and one picture."""
    outcomes = [read_outcome(study / STUDY) for study in studies]
    f1: dict[str, dict[str, list[float]]] = {}
    for outcome in outcomes:
        for row in outcome.rows:
            for name, found in row.ours.items():
                f1.setdefault(name, {}).setdefault(row.task, []).append(found.value)
    rows = {}
    for name, sets in f1.items():
        told = folder / f"{name}.json"
        rows[name] = (json.loads(told.read_text()) if told.is_file() else {}) | {
            "mean_f1": round(fmean(map(fmean, sets.values())), 2),
            "each": [round(fmean(of_seed), 2) for of_seed in zip(*sets.values(), strict=True)],
            "f1": {task: round(fmean(found), 2) for task, found in sets.items()},
        }
    result = {"scored": outcomes[0].made, "encoders": rows}
    (ROOT / "results" / "encoders.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
