r"""Encoders trained in different ways, under the protocol of benchmarks/encoders.toml: dev F1 and GPU minutes.

    python benchmarks/encoders.py run NAME RECIPE FOLDER [KEY=VALUE ...]
    lexome reproduce benchmarks/encoders.toml -m NAME=FOLDER/NAME/model ... --out STUDY
    python benchmarks/encoders.py join FOLDER STUDY [STUDY ...]

`run` executes `lexome pretrain`, `lexome distill` or `lexome finetune` with a recipe, and records its wall-clock time,
including setup and compilation. `join` adds the F1 of each seed of a study, and writes results/encoders.json and
docs/images/encoders.png. Studies may have different models, including those of benchmarks/f1_minutes.py; models that
are not in ENCODERS are ignored.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from facts import facts
from lexome.recipe import load, stage_of
from lexome.recipe.finetune import FinetuneRecipe
from lexome.recipe.pretrain import DistillRecipe, PretrainRecipe
from lexome.reproduce.tables import STUDY, read_result
from lexome.training.finetune.stage import finetune
from lexome.training.pretrain import distill, pretrain

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ROOT / "models" / "lexome-12x384" / "run.json"
F1_MINUTES = ROOT / "results" / "f1_minutes.json"
# Shape and description, in the order of the table.
ENCODERS = {
    "minilm-start": ("6 × 384", "MiniLM, no further training"),
    "minilm": ("6 × 384", "MiniLM, continued pre-training"),
    "scratch-8x512": ("8 × 512", "from random weights, own vocabulary"),
    "start": ("12 × 384", "gte-small, no further training"),
    "lexome-4": ("12 × 384", "gte-small, continued pre-training"),
    "encoder": ("12 × 384", "gte-small, continued pre-training, adapted vocabulary"),
    "encoder-1": ("12 × 384", "the previous one, outputs rescaled to 1"),
    "entity-student": ("12 × 384", "the same encoder, distilled on entities from 12 × 768"),
    "shipped": ("12 × 384", "models/lexome-12x384"),
    "shipped-1": ("12 × 384", "models/lexome-12x384, outputs rescaled to 1"),
    "shipped-2": ("12 × 384", "models/lexome-12x384, outputs rescaled to 2"),
    "control": ("12 × 384", "models/lexome-12x384, continued pre-training"),
    "distilled": ("12 × 384", "models/lexome-12x384, distilled from 12 × 768"),
    "mpnet": ("12 × 768", "MPNet without relative positions, continued pre-training"),
    "mpnet-1": ("12 × 768", "the previous one, starting from outputs rescaled to 1"),
}
# Prerequisite runs, whose minutes count towards the total.
BEFORE = {
    "encoder-1": ("encoder",),
    "entity-student": ("encoder", "mpnet-1", "entity-teacher"),
    "shipped-1": ("shipped",),
    "shipped-2": ("shipped",),
    "control": ("shipped",),
    "distilled": ("shipped", "mpnet"),
}
# Keys whose values are local paths.
PLACES = ("out=", "shards=", "start=", "teacher=", "student=", "teacher.models=", "teacher.shards=", "data.root=")


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
    """Run a recipe and store its time and results in a file next to it."""
    folder.mkdir(parents=True, exist_ok=True)
    changes = [*changes, f"out={folder / name}"]
    began = time.monotonic()
    told = None if (folder / f"{name}.json").is_file() else carried_out(path, changes)
    if told is None:
        sys.exit(f"{folder / name} is already finished; its time is in {name}.json and is not measured again.")
    row = {
        "recipe": str(path),
        "changes": [change for change in changes if not change.startswith(PLACES)],
        "minutes": round((time.monotonic() - began) / 60, 2),
        **told,
        "facts": facts("torch", "numpy") | {"gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None},
    }
    (folder / f"{name}.json").write_text(json.dumps(row, indent=1) + "\n")
    print(name, json.dumps(row), flush=True)


def carried_out(path: Path, changes: list[str]) -> dict[str, Any] | None:
    """Run a recipe; returns its seed, training time and results, or None if it was already finished."""
    stage = stage_of(path)
    if stage == "finetune":
        tuning = load(path, FinetuneRecipe, overrides=changes)
        model = finetune(tuning, progress_shown=False).model
        assert model is not None  # The recipes here keep their model.
        run = json.loads((model.parent / "run.json").read_text())
        return {"seed": run["seed"], "train_s": run["seconds"], "tokens": run["tokens"], "steps": run["steps"]}
    if stage == "distill":
        recipe = load(path, DistillRecipe, overrides=changes)
        done = distill(recipe, progress_shown=False)
    else:
        recipe = load(path, PretrainRecipe, overrides=changes)
        done = pretrain(recipe, progress_shown=False)
    if not done.new:
        return None
    told = {"train_s": round(done.seconds, 1), "tokens": done.tokens, "steps": done.steps, "held_out": done.held_out}
    return {"seed": recipe.seed} | told


def joined(folder: Path, studies: list[Path]) -> None:
    """Merge F1 from the studies with the times of the runs into one result and one plot."""
    outcomes = [read_result(study / STUDY) for study in studies]
    f1: dict[str, dict[str, list[float]]] = {}
    for outcome in outcomes:
        for row in outcome.rows:
            for name, found in row.ours.items():
                f1.setdefault(name, {}).setdefault(row.task, []).append(found.value)
    rows = {}
    for name, (shape, done) in ENCODERS.items():
        if name in f1:
            run = told_of(folder, name)
            minutes = run["minutes"] + sum(told_of(folder, part)["minutes"] for part in BEFORE.get(name, ()))
            rows[name] = {"shape": shape, "done": done} | run | {"minutes_in_all": round(minutes, 2)} | scored(f1[name])
    result = {"scored": [outcome.environment for outcome in outcomes], "encoders": rows}
    (ROOT / "results" / "encoders.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    picture(rows, ROOT / "docs" / "images" / "encoders.png")


def told_of(folder: Path, name: str) -> dict[str, Any]:
    """The stored record of a run; for a pre-existing encoder, only its minutes."""
    if (folder / f"{name}.json").is_file():
        run: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
        run["changes"] = [change for change in run["changes"] if not change.startswith(PLACES)]
        return run
    if name == "shipped":
        return {"minutes": json.loads(SHIPPED.read_text())["gpu_minutes"]["pretraining_in_all"]}
    before = json.loads(F1_MINUTES.read_text())["runs"].get(name, {"minutes": 0})
    return {key: before[key] for key in ("minutes", "tokens", "held_out") if key in before}


def scored(sets: dict[str, list[float]]) -> dict[str, Any]:
    """The mean over datasets for each seed, and the mean over seeds for each dataset."""
    return {
        "mean_f1": [round(fmean(of_seed), 2) for of_seed in zip(*sets.values(), strict=True)],
        "f1": {task: round(fmean(found), 2) for task, found in sets.items()},
    }


def picture(rows: dict[str, Any], path: Path) -> None:
    """Plot every encoder as a numbered point, F1 over minutes, with a legend."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.5, 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes, legend = figure.subplots(1, 2, width_ratios=(1, 1.05))
    legend.axis("off")
    shapes = sorted(
        {row["shape"] for row in rows.values()}, key=lambda shape: [int(part) for part in shape.split(" × ")]
    )
    colors = dict(zip(shapes, ("#7a9e3b", "#d1602b", "#1f6fb2", "#7b4fa3"), strict=True))
    bottom = 79.5
    taken: list[tuple[float, float]] = []
    for number, row in enumerate(rows.values(), start=1):
        f1, color = fmean(row["mean_f1"]), colors[row["shape"]]
        minutes = row["minutes_in_all"]
        while any(abs(minutes - other) < 2.2 and abs(f1 - height) < 0.15 for other, height in taken):
            minutes += 0.5
        taken.append((minutes, f1))
        # Points far below are drawn at the lower edge; their values are in the legend.
        said = {"color": color, "ha": "center", "va": "center", "weight": "bold"}
        axes.annotate(f"{number}\n↓" if f1 < bottom else str(number), (minutes, max(f1, bottom)), **said)
        line = 1 - (number - 0.5) / (len(rows) + 1)
        legend.text(0.04, line, str(number), color=color, ha="right", va="center", weight="bold")
        legend.text(0.07, line, f"{row['shape']}  {row['done']}", color=color, va="center", fontsize=9)
        legend.text(1.0, line, f"{f1:.2f}", color=color, ha="right", va="center", fontsize=9)
    axes.set_xlim(-2, max(row["minutes_in_all"] for row in rows.values()) + 3)
    axes.set_ylim(bottom - 0.3, max(fmean(row["mean_f1"]) for row in rows.values()) + 0.3)
    axes.set_xlabel("total GPU minutes of training, including compilation")
    axes.set_ylabel("mean F1 on seven development splits")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
