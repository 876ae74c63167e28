"""Collects the run folders of `lexome pretrain` and `lexome distill` into one result.

    python benchmarks/training_runs.py [--shared "what else ran on the GPU"] RUN...

RUN is a recipe's `out`. Nothing is measured here: values are copied from run.json and metrics.jsonl, including the
curve of the held-out loss. Runs that are already in results/training_runs.json and are not named are kept. Writes
results/training_runs.json.
"""

import argparse
import json
from pathlib import Path
from statistics import median
from typing import Any

from lexome.training.trainer import METRICS, read_metrics

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "results" / "training_runs.json"


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("runs", type=Path, nargs="+")
    options.add_argument("--date", help="date of runs whose run.json has none")
    options.add_argument("--shared", help="what else ran on the GPU at the same time")
    given = options.parse_args()
    runs = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    for folder in given.runs:
        runs[folder.name] = {"date": given.date, **gathered(folder), "shared": given.shared}
    RESULT.write_text(json.dumps(runs, indent=1) + "\n")


def gathered(folder: Path) -> dict[str, Any]:
    """The result of one run."""
    run = json.loads((folder / "run.json").read_text())
    lines = read_metrics(folder / METRICS)
    rates = sorted(line["tokens_per_s"] for line in lines if line.get("tokens_per_s"))
    config = run["start"]["config"]
    dated = {"date": run["date"]} if "date" in run else {}
    return dated | {
        "stage": run["stage"],
        "shape": f"{config['layers']}x{config['width']}",
        "start": run["start"]["checkpoint"],
        "vocabulary": run["start"]["vocabulary"],
        "teacher": run["start"]["teacher"],
        "steps": run["steps"],
        "tokens": run["tokens"],
        "seconds": round(run["seconds"], 1),
        "tokens_per_s": {"median": median(rates), "ninth_tenth": rates[int(0.9 * len(rates))]},
        "loss": run["loss"],
        "held_out": run["held_out"],
        "curve": [
            [line["step"], line["tokens"], round(line["held_out"]["loss"], 4)] for line in lines if "held_out" in line
        ],
        "precision": run["precision"],
        "versions": run["versions"],
        "hardware": run["hardware"],
        "recipe": run["recipe"],
    }


if __name__ == "__main__":
    main()
