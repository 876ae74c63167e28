"""A study's outcome as files, and back: study.json, and tables and a picture made from it."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lexome.errors import MissingExtraError, UsageError
from lexome.formats.files import replacing
from lexome.recipe.study import open_study, shipped
from lexome.train.study.aggregate import Estimate
from lexome.train.study.outcome import Missing, Outcome, outcome_of
from lexome.train.study.picture import draw
from lexome.train.study.spread import spreads
from lexome.train.study.table import markdown, page, text

STUDY, TEXT, MARKDOWN, PAGE, PICTURE = "study.json", "table.txt", "table.md", "table.html", "picture.png"


def write_outcome(outcome: Outcome, folder: Path) -> list[Path]:
    """Write the outcome as JSON, text, Markdown, HTML and a picture; the files, without a picture where none can be."""
    drawn: str | None = PICTURE
    try:
        draw(outcome, folder / PICTURE)
    except MissingExtraError:
        drawn = None
    written = {
        STUDY: json.dumps(outcome.model_dump(mode="json"), indent=1, ensure_ascii=False) + "\n",
        TEXT: text(outcome),
        MARKDOWN: markdown(outcome, picture=drawn),
        PAGE: page(outcome, picture=drawn),
    }
    for name, content in written.items():
        with replacing(folder / name) as stream:
            stream.write(content.encode())
    return [folder / name for name in (*written, *([drawn] if drawn is not None else []))]


def read_outcome(path: Path) -> Outcome:
    """The outcome in a JSON file."""
    try:
        held: Any = json.loads(path.read_text(encoding="utf-8"))
        return Outcome.model_validate(held)
    except (ValueError, ValidationError) as error:
        raise UsageError(f"{path}: is no outcome of a study ({type(error).__name__}). Run the study again.") from None


def joined(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Outcomes of the same study and kind as one, with all their models; a name that comes again takes the last.

    Those of a study that does not come with Lexome stay apart: where its file is, an outcome does not say.
    """
    groups: dict[tuple[str, tuple[str, ...]], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.study, outcome.changes), []).append(outcome)
    known = {study.name for study in shipped()}
    found: list[Outcome] = []
    for (name, _), group in groups.items():
        found += [_as_one(group)] if len(group) > 1 and name in known else group
    return found


def _as_one(group: list[Outcome]) -> Outcome:
    estimates: dict[str, dict[str, dict[str, Estimate]]] = {}
    missing: dict[str, Missing] = {}
    for outcome in group:
        missing |= {lost.task: lost for lost in outcome.missing}
        for row in outcome.rows:
            for model, found in row.ours.items():
                estimates.setdefault(model, {}).setdefault(row.task, {})[row.measure] = found
    last = group[-1]
    return outcome_of(
        open_study(last.study),
        estimates,
        models={name: path for outcome in group for name, path in outcome.models.items()},
        missing=[lost for lost in missing.values() if not all(lost.task in of for of in estimates.values())],
        spreads=spreads(shipped()),
        quick=last.quick,
        changes=last.changes,
        chosen={model: of for outcome in group for model, of in outcome.chosen.items()},
        warnings={task: said for outcome in group for task, said in outcome.warnings.items()},
        only={row.task for outcome in group for row in outcome.rows},
        made=last.made,
    )
