"""report: tables and pictures of all studies and fine-tunings in some folders, made from what they wrote."""

import json
from collections.abc import Collection, Iterable, Iterator
from itertools import chain, count
from pathlib import Path
from typing import Any

from lexome.errors import UsageError
from lexome.formats.files import replacing
from lexome.train.study.files import STUDY, joined, read_outcome, write_outcome
from lexome.train.study.outcome import Outcome
from lexome.train.study.table import NOTHING
from lexome.values import value

SUMMARY, INDEX = "summary.json", "index.md"


@value
class Reported:
    """What a report was made of: studies by their folder in it, and how many fine-tunings."""

    studies: dict[str, Outcome]
    finetunings: int
    files: tuple[Path, ...]


def report(folders: Iterable[Path], out: Path) -> Reported:
    """Write each study's tables and picture, one table of all fine-tunings, and index.md to both.

    Outcomes of the same study are put into one table, a column for each model. Runs inside a study are not listed
    again as fine-tunings.
    """
    folders = list(folders)
    lost = next((folder for folder in folders if not folder.exists()), None)
    if lost is not None:
        raise UsageError(f"{lost}: there is no such folder. Name one that `lexome reproduce` or `finetune` wrote.")
    studies: dict[str, Outcome] = {}
    for outcome in joined(read_outcome(path) for path in _outcomes(folders)):
        studies[_name(outcome, studies)] = outcome
    tunings = list(_tunings(folders))
    if not studies and not tunings:
        raise UsageError(
            f"there is neither a {STUDY} nor a {SUMMARY} in {', '.join(map(str, folders))}; expected what "
            "`lexome reproduce` or `lexome finetune` wrote."
        )
    files = [path for name, outcome in studies.items() for path in write_outcome(outcome, out / name)]
    with replacing(out / INDEX) as stream:
        stream.write(_index(studies, tunings).encode())
    return Reported(studies, len(tunings), (*files, out / INDEX))


def _name(outcome: Outcome, taken: Collection[str]) -> str:
    """The folder of a study in the report; one that was run with other keys has one of its own."""
    name = outcome.study + ("-quick" if outcome.quick else "")
    names = chain((name,), (f"{name}-{number}" for number in count(2)))
    return next(free for free in names if free not in taken)


def _outcomes(folders: Iterable[Path]) -> Iterator[Path]:
    """The files that hold outcomes: study.json anywhere below, and others in the folder itself that are like it."""
    for folder in folders:
        yield from [folder] if folder.is_file() else sorted(folder.rglob(STUDY))
        for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
            if path.name != STUDY and _keys(path) >= {"study", "rows", "means", "missing"}:
                yield path


def _keys(path: Path) -> set[str]:
    held: Any = json.loads(path.read_text(encoding="utf-8"))
    return set(held) if isinstance(held, dict) else set()


def _tunings(folders: Iterable[Path]) -> Iterator[list[str]]:
    """A line for each fine-tuning that no study holds: its place, the best cell, and scores on dev and test."""
    for folder in folders:
        if folder.is_file():
            continue
        for path in sorted(folder.rglob(SUMMARY)):
            if not any((above / STUDY).is_file() for above in path.parents):
                held = json.loads(path.read_text(encoding="utf-8"))
                if "rows" in held and "best" in held:
                    inside = path.parent.relative_to(folder).as_posix()
                    yield _tuning(folder.resolve().name if inside == "." else inside, held)


def _tuning(name: str, held: dict[str, Any]) -> list[str]:
    measure, best = held["measure"] or "", held["best"]
    row = held["rows"][best if best is not None else 0]
    cell = ", ".join(f"{key} {given:g}" for key, given in row["cell"].items() if given is not None) or NOTHING
    scores = [_scores(row["spreads"].get(split, {}).get(measure)) for split in ("dev", "test")]
    return [name, measure, cell, str(len(row["runs"])), *scores]


def _scores(spread: dict[str, Any] | None) -> str:
    if spread is None:
        return NOTHING
    deviation = f" ± {100 * spread['sd']:.2f}" if spread["sd"] is not None else ""
    return f"{100 * spread['mean']:.2f}{deviation}"


def _index(studies: dict[str, Outcome], tunings: list[list[str]]) -> str:
    """The page that leads to the studies' tables, and the table of fine-tunings."""
    lines = ["# Results", ""]
    if studies:
        lines += ["| study | models | tasks | missing |", "| --- | --- | ---: | ---: |"]
        for name, outcome in studies.items():
            done = {row.task for row in outcome.rows if row.ours}
            models = ", ".join(outcome.models)
            lines.append(f"| [{name}]({name}/table.md) | {models} | {len(done)} | {len(outcome.missing)} |")
        lines.append("")
    if tunings:
        lines += [
            "| fine-tuning | measure | best cell | runs | dev | test |",
            "| --- | --- | --- | ---: | ---: | ---: |",
        ]
        lines += [f"| {' | '.join(line)} |" for line in tunings]
        lines += ["", "Scores in percent: the mean over the runs of the best cell ± their standard deviation."]
    return "\n".join(lines).rstrip() + "\n"
