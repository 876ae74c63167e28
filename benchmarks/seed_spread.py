"""Variance between seeds: test and dev scores of runs that differ only in their seed.

    python benchmarks/seed_spread.py FOLDER [FOLDER ...]

FOLDER is the output of `lexome reproduce`, complete or interrupted: every finished run counts, and a dataset may have
fewer seeds than others, or have them in several folders. Nothing is measured here: scores, times, versions and hardware
are copied from each run.json. Scores are in percent. For concurrent runs on one GPU, each counts its whole time. Writes
results/seed_spread.json, or the file given by --out.
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from lexome.reproduce.tables import STUDY, read_result
from lexome.training.finetune.examples import DEV, TEST
from lexome.training.finetune.stage import Spread, cell_of
from lexome.training.record import RUN, FinetuneRecord, read_record

ROOT = Path(__file__).resolve().parents[1]
SPLITS = (DEV, TEST)
# Environment keys of a run.json, which must be the same for all runs of one result.
MADE = ("date", "versions", "hardware", "precision")
Made = dict[str, Any]


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    options.add_argument("--out", type=Path, default=ROOT / "results" / "seed_spread.json")
    given = options.parse_args()
    runs = []
    sets: dict[str, dict[str, list[FinetuneRecord]]] = {}
    for folder in given.folders:
        found = [path.parent for path in sorted(folder.glob(f"runs/*/*/*report/runs/*/{RUN}"))]
        if not found:
            sys.exit(f"{folder}: there is no finished run in it. Name a folder that `lexome reproduce` wrote.")
        runs += found
    for run in runs:
        model, task = run.parts[-5:-3]
        facts = read_record(run, FinetuneRecord)
        if facts is not None:
            sets.setdefault(model, {}).setdefault(task, []).append(facts)
    models = {model: gathered(found) for model, found in sets.items()}
    minutes = round(sum(facts.seconds for of in sets.values() for each in of.values() for facts in each) / 60, 1)
    result = {
        "studies": sorted({study_of(folder) for folder in given.folders}),
        "made": same([made(run) for run in runs]),
        "run_minutes": minutes,
        "models": models,
    }
    given.out.write_text(json.dumps(result, indent=1) + "\n")


def study_of(folder: Path) -> str:
    """The study of a folder, and its overrides."""
    if not (folder / STUDY).exists():
        return "unknown: it was stopped"
    outcome = read_result(folder / STUDY)
    return ": ".join((outcome.study, *outcome.changes))


def gathered(sets: dict[str, list[FinetuneRecord]]) -> dict[str, Any]:
    """Each dataset of a model, and the mean over datasets with its standard deviation for one seed each."""
    found = {task: spread(task, runs) for task, runs in sets.items()}
    return {"sets": found, "mean_over_sets": {split: over([one[split] for one in found.values()]) for split in SPLITS}}


def over(sets: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """The mean of means, and its standard deviation with independent datasets; None if one has a single seed."""
    deviations = [one["sd"] for one in sets]
    whole = all(deviation is not None for deviation in deviations)
    sd = round(math.hypot(*deviations) / len(sets), 2) if whole else None
    return {"mean": round(fmean(one["mean"] for one in sets), 2), "sd": sd}


def spread(task: str, runs: Sequence[FinetuneRecord]) -> dict[str, Any]:
    """The scores of one dataset on its selection metric, ordered by seed."""
    settings = {(cell_of(facts), facts.fold, facts.measure) for facts in runs}
    if len(settings) > 1:
        sys.exit(
            f"{task}: its runs differ in batch, rate, epochs, fold or measure too; expected seeds alone to differ."
        )
    ordered = sorted(runs, key=lambda facts: facts.seed)
    first = ordered[0]
    measure = first.measure or ""
    scores = {split: [100 * facts.scores[split][measure] for facts in ordered] for split in SPLITS}
    return {
        "measure": measure,
        "batch": first.batch,
        "lr": first.lr,
        "seeds": [facts.seed for facts in ordered],
        "stopped_early": sum(facts.stopped_early for facts in ordered),
        "steps": [facts.steps for facts in ordered],
        "seconds": [round(facts.seconds, 1) for facts in ordered],
        **{split: {"each": [round(score, 2) for score in given], **rounded(given)} for split, given in scores.items()},
    }


def rounded(scores: Sequence[float]) -> dict[str, float | None]:
    """Mean, sample standard deviation, minimum and maximum."""
    found = Spread.of(scores)
    numbers = {"mean": found.mean, "sd": found.sd, "least": found.least, "most": found.most}
    return {name: None if number is None else round(number, 2) for name, number in numbers.items()}


def made(run: Path) -> Made:
    """Environment of a run, with the hash of its checkpoint's weights."""
    held = json.loads((run / RUN).read_bytes())
    return {name: held[name] for name in MADE} | {"checkpoint_sha256": held["start"]["sha256"]}


def same(each: Sequence[Made]) -> Made:
    """The common environment of all runs, with every code revision; exits if they differ in anything else."""
    revisions = sorted({str(one["versions"].pop("revision")) for one in each})
    for other in each:
        if other != each[0]:
            sys.exit(f"runs were made in different ways: {each[0]} and {other}. Gather them apart.")
    return each[0] | {"revisions": revisions}


if __name__ == "__main__":
    main()
