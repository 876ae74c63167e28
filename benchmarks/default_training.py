"""The runs that produced the default model: recipe, seed, code, hardware and minutes of each, from its run.json.

    python benchmarks/default_training.py default-teacher=RUN default-student=RUN default=RUN

RUN is the run.json of the recipe of that name in recipes/finetune. Nothing is measured here, and a run whose datasets,
seed or epochs differ from its recipe is an error. Writes results/default_training.json.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from lexome.recipe import load
from lexome.recipe.finetune import FinetuneRecipe

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("seed", "steps", "best_step", "tokens", "seconds", "precision", "versions", "date", "hardware")


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("runs", nargs="+", metavar="NAME=RUN")
    pairs = [one.partition("=")[::2] for one in options.parse_args().runs]
    runs = {name: gathered(name, json.loads(Path(path).read_text())) for name, path in pairs}
    seconds = sum(run["seconds"] for run in runs.values())
    result = {"gpu_minutes": round(seconds / 60, 2), "runs": runs}
    (ROOT / "results" / "default_training.json").write_text(json.dumps(result, indent=1) + "\n")


def gathered(name: str, run: dict[str, Any]) -> dict[str, Any]:
    """Metadata of one run, with its recipe file."""
    path = ROOT / "recipes" / "finetune" / f"{name}.toml"
    recipe, ran = load(path, FinetuneRecipe), run["recipe"]
    told = {"seed": recipe.seeds, "epochs": recipe.epochs, "sets": list(recipe.data.sets)}
    seen = {"seed": (run["seed"],), "epochs": ran["epochs"], "sets": ran["data"]["sets"]}
    for what in told:
        if told[what] != seen[what]:
            sys.exit(f"{name}: {what} is {seen[what]}, but {path.name} says {told[what]}. Name the run of this recipe.")
    facts = {fact: run[fact] for fact in COPIED}
    return {"recipe": str(path.relative_to(ROOT)), "start_sha256": run["start"]["sha256"], **facts}


if __name__ == "__main__":
    main()
