"""Stores the outcome of a study as a result: what `lexome reproduce` wrote, with descriptive model names.

    python benchmarks/study_scores.py FOLDER --model NAME=WHAT [--model NAME=WHAT]

FOLDER is the output of `lexome reproduce`, and WHAT describes the model of that name, instead of the path of its
folder. Nothing is measured here. Writes results/STUDY.json, or results/STUDY_quick.json for a quick run, which `lexome
report` can read, and its plot in docs/images.
"""

import argparse
import json
import sys
from pathlib import Path

from lexome.reproduce.tables import STUDY, plot, read_result

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("folder", type=Path)
    options.add_argument("--model", action="append", default=[], metavar="NAME=WHAT")
    given = options.parse_args()
    outcome = read_result(given.folder / STUDY)
    told = dict(one.split("=", 1) for one in given.model if "=" in one)
    if told.keys() != outcome.models.keys():
        sys.exit(
            f"--model names {sorted(told)}, but {given.folder} has {sorted(outcome.models)}. Say what each of them is."
        )
    named = outcome.model_copy(update={"models": {name: told[name] for name in outcome.models}})
    name = named.study + ("_quick" if named.quick else "")
    result = json.dumps(named.model_dump(mode="json"), indent=1, ensure_ascii=False)
    (ROOT / "results" / f"{name}.json").write_text(result + "\n", encoding="utf-8")
    plot(named, ROOT / "docs" / "images" / f"{name}.png")


if __name__ == "__main__":
    main()
