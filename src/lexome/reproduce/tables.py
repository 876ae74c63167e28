"""A study's outcome as a table for people: plain text, Markdown, and a page."""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import chain, count
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lexome.errors import MissingExtraError, UsageError
from lexome.files import atomic_write
from lexome.recipe.study import open_study, shipped
from lexome.reproduce.aggregate import Estimate, spreads
from lexome.reproduce.result import Mean, Missing, Outcome, Row, outcome_of

MEASURES = {
    "f1": "F1",
    "macro_f1": "macro F1",
    "precision": "precision",
    "recall": "recall",
    "example_f1": "F1 over texts",
    "accuracy": "accuracy",
    "strict": "strict acc.",
    "lenient": "lenient acc.",
    "mrr": "MRR",
    "exact": "exact match",
}
NOTHING = "–"
# So many warnings of a task are shown.
WARNED = 2

_STYLE = """
:root { color-scheme: light dark; font: 15px/1.45 system-ui, sans-serif; }
body { max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid #8884; }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left; }
td.ours, th.ours { font-weight: 600; background: #4a90d91f; }
tr.mean td { font-style: italic; }
.quick { padding: .6rem .9rem; border-left: 4px solid #d08a00; background: #d08a0022; }
img { max-width: 100%; background: #fff; }
"""


def text(outcome: Outcome) -> str:
    """The table with aligned columns, the paper's right of a bar, then what is missing."""
    theirs = len(_paper_models(outcome))
    lines = [_barred(line, theirs) for line in (head(outcome, prefix=""), *_body(outcome))]
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    written = [f"{outcome.title} ({outcome.study}): {outcome.paper}", *_warning(outcome), ""]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line[:2], widths[:2], strict=True)]
        cells += [cell.rjust(width) for cell, width in zip(line[2:], widths[2:], strict=True)]
        written.append("  ".join(cells).rstrip())
    return "\n".join([*written, "", *remarks(outcome)]) + "\n"


def markdown(outcome: Outcome, *, picture: str | None = None) -> str:
    """The same as Markdown; `picture` is the name of a picture to show below the table."""
    lines = [f"# {outcome.title}", "", outcome.paper, ""]
    lines += [f"**{said}**\n" for said in _warning(outcome)]
    lines += [grid(outcome), ""]
    lines += [f"![{outcome.title}]({picture})", ""] if picture is not None else []
    return "\n".join(lines + [f"- {said}" for said in (*remarks(outcome), *background(outcome))]) + "\n"


def grid(outcome: Outcome) -> str:
    """The table alone in Markdown, ours in bold."""
    ours = _our_columns(outcome)
    lines = [[f"**{cell}**" if place in ours else cell for place, cell in enumerate(line)] for line in _body(outcome)]
    columns = head(outcome)
    marks = [" --- |" if place < 2 else " ---: |" for place in range(len(columns))]
    return "\n".join(
        [f"| {' | '.join(columns)} |", "|" + "".join(marks), *(f"| {' | '.join(line)} |" for line in lines)]
    )


def page(outcome: Outcome, *, picture: str | None = None) -> str:
    """The same as one HTML page."""
    ours = _our_columns(outcome)

    def row(cells: Sequence[str], tag: str, kind: str = "row") -> str:
        marks = [' class="ours"' if place in ours else "" for place in range(len(cells))]
        marked = (f"<{tag}{mark}>{escape(cell)}</{tag}>" for mark, cell in zip(marks, cells, strict=True))
        return f'<tr class="{kind}">{"".join(marked)}</tr>'

    rows = [row(line, "td") for line in _rows(outcome)] + [row(line, "td", "mean") for line in _mean_rows(outcome)]
    shown = f'<p><img src="{escape(picture)}" alt="{escape(outcome.title)}"></p>' if picture is not None else ""
    return (
        "\n".join(
            [
                f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(outcome.title)}</title>',
                f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>',
                f"<h1>{escape(outcome.title)}</h1><p>{escape(outcome.paper)}</p>",
                *(f'<p class="quick">{escape(said)}</p>' for said in _warning(outcome)),
                f'<div class="wide"><table><thead>{row(head(outcome), "th")}</thead><tbody>',
                *rows,
                f"</tbody></table></div>{shown}<ul>",
                *(f"<li>{escape(said)}</li>" for said in (*remarks(outcome), *background(outcome))),
                "</ul></html>",
            ]
        )
        + "\n"
    )


def head(outcome: Outcome, *, prefix: str = "paper: ") -> list[str]:
    """The names of the columns; those of the paper's models have a prefix."""
    columns = ["task", "measure"]
    for model in outcome.models:
        columns.append(model)
        columns += ["− paper's"] if model in _paper_models(outcome) else []
    columns += [f"labs: {outcome.reference}"] if _has_labs(outcome) else []
    return [*columns, *(prefix + model for model in _paper_models(outcome))]


def shown(estimate: Estimate | None) -> str:
    """A number with its interval: 87.99 [87.10, 88.60]."""
    if estimate is None:
        return NOTHING
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.2f}"
    return f"{estimate.value:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"


def remarks(outcome: Outcome) -> list[str]:
    """What has to be said below the table: intervals, labs, what is missing and what was chosen."""
    said = _intervals(outcome)
    inside, count = outcome.between_labs()
    if count:
        said.append(f"{inside} of {count} of our numbers lie between those that labs report for the same checkpoint.")
    said += [_of(mean) for mean in outcome.means]
    said += [f"Missing: {lost}" for lost in outcome.missing]
    said += [_warned(task, warnings) for task, warnings in outcome.warnings.items()]
    said += [f"{row.task}: {row.note}." for row in _first_measures(outcome) if row.note]
    said += [f"Chosen for {model}: {_settings(of)}." for model, of in outcome.chosen.items() if of]
    said += [f"Model {name}: {path}" for name, path in outcome.models.items()]
    made = ", ".join(f"{key} {given}" for key, given in outcome.made.items() if key != "date")
    return said + ([f"Made {outcome.made.get('date', '')}: {made}."] if outcome.made else [])


def background(outcome: Outcome) -> list[str]:
    """What the study is about, its protocols as they were read, and what was decided where the paper leaves it open."""
    said = [outcome.about] if outcome.about else []
    said += [f"Protocol {name}: {about}" for name, about in outcome.protocols.items()]
    return said + [f"Seen: {decision.seen} Decided: {decision.decided}" for decision in outcome.decisions]


def _warned(task: str, warnings: tuple[str, ...]) -> str:
    """A task's first warnings; ten folds have many that are alike."""
    more = len(warnings) - WARNED
    return f"Warning: {task}: {'; '.join(warnings[:WARNED])}" + (f"; and {more} more." if more > 0 else ".")


def _settings(chosen: dict[str, str]) -> str:
    """Chosen settings, each with the tasks that have it."""
    tasks: dict[str, list[str]] = {}
    for task, how in chosen.items():
        tasks.setdefault(how, []).append(task)
    return "; ".join(f"{how} for {', '.join(names)}" for how, names in tasks.items())


def _intervals(outcome: Outcome) -> list[str]:
    """What the intervals are over, and how sure they are."""
    kinds = dict.fromkeys(
        (found.over, found.level, found.runs)
        for row in outcome.rows
        for found in row.ours.values()
        if found.over is not None and found.level is not None
    )
    over = {
        "documents": "test documents drawn again",
        "seeds": "seeds",
        "folds": "folds, which share training documents, so it is too narrow",
    }
    return [
        f"In brackets: {100 * level:.4g}% interval over {over[what]} ({runs} run{'s' if runs > 1 else ''})."
        for what, level, runs in kinds
        if what is not None and level is not None
    ]


def _of(mean: Mean) -> str:
    there = f"{mean.name}: the mean over {', '.join(mean.of)}"
    if not mean.left_out:
        return f"{there}."
    printed = ", ".join(f"{model} {number}" for model, number in mean.printed.items())
    return f"{there}; without {', '.join(mean.left_out)}, and the paper's over the same tasks." + (
        f" Over all tasks the paper prints {printed}." if printed else ""
    )


def _warning(outcome: Outcome) -> list[str]:
    said = [f"Not the paper's protocol: {change}." for change in outcome.changes]
    lost = len(outcome.missing)
    return said + [f"{lost} task{'s are' if lost > 1 else ' is'} missing; see below."] * bool(lost)


def _barred(line: list[str], theirs: int) -> list[str]:
    """A line with a bar before its last columns, where there are some."""
    return [*line[:-theirs], "|", *line[-theirs:]] if theirs else line


def _body(outcome: Outcome) -> list[list[str]]:
    return [*_rows(outcome), *_mean_rows(outcome)]


def _rows(outcome: Outcome) -> Iterator[list[str]]:
    paper = _paper_models(outcome)
    missing = {lost.task for lost in outcome.missing}
    last = ""
    for row in outcome.rows:
        if not row.ours and not row.paper:
            continue
        name = "" if row.task == last else row.task + (" (missing)" if row.task in missing and not row.ours else "")
        last = row.task
        cells = [name, MEASURES.get(row.measure, row.measure)]
        for model in outcome.models:
            found = row.ours.get(model)
            cells.append(shown(found))
            if model in paper:
                cells.append(_difference(found, row.paper.get(model)))
        cells += [_labs(outcome, row)] if _has_labs(outcome) else []
        yield [*cells, *(_number(row.paper.get(model)) for model in paper)]


def _mean_rows(outcome: Outcome) -> Iterator[list[str]]:
    paper = _paper_models(outcome)
    for mean in outcome.means:
        whole = not mean.left_out
        cells = [f"mean {mean.name}", "" if whole else f"{len(mean.of)} of {len(mean.of) + len(mean.left_out)}"]
        theirs = {model: f"{number:.2f}" for model, number in mean.paper.items()}
        # A paper that prints averages alone can be compared where no task is missing.
        theirs |= {model: str(number) for model, number in mean.printed.items() if whole and model not in theirs}
        for model in outcome.models:
            number = mean.ours.get(model)
            cells.append(NOTHING if number is None else f"{number:.2f}")
            if model in paper:
                known = model in theirs and number is not None
                cells.append(f"{number - float(theirs[model]):+.2f}" if known and number is not None else NOTHING)
        cells += [""] if _has_labs(outcome) else []
        yield [*cells, *(theirs.get(model, NOTHING) for model in paper)]


def _first_measures(outcome: Outcome) -> list[Row]:
    return list({row.task: row for row in reversed(outcome.rows)}.values())[::-1]


def _paper_models(outcome: Outcome) -> list[str]:
    """The models whose numbers the paper has, in the order of its tables."""
    names = [model for row in outcome.rows for model in row.paper]
    return list(dict.fromkeys([*names, *(model for mean in outcome.means for model in mean.printed)]))


def _our_columns(outcome: Outcome) -> set[int]:
    """The places of our models' columns."""
    return {place for place, name in enumerate(head(outcome)) if place > 1 and name in outcome.models}


def _has_labs(outcome: Outcome) -> bool:
    return outcome.reference is not None and any(outcome.reference in row.labs for row in outcome.rows)


def _labs(outcome: Outcome, row: Row) -> str:
    spread = row.labs.get(outcome.reference or "")
    if spread is None or len(spread.labs) < 2:
        return NOTHING
    return f"{spread.low}–{spread.high} ({len(spread.labs)})"


def _difference(found: Estimate | None, number: float | None) -> str:
    return NOTHING if found is None or number is None else f"{found.value - number:+.2f}"


def _number(number: float | None) -> str:
    return NOTHING if number is None else str(number)


COLOURS = ("#1f6fb2", "#d1602b", "#2f8f4e", "#8a4fb0", "#b0882f", "#c23b5e")
LABS, PAPER = "#bcd", "0.45"


def draw(outcome: Outcome, path: Path) -> None:
    """Write the picture as a PNG; what was a quick look says so in it."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", extra="corpus", purpose="a picture of a study") from None
    rows = [row for row in outcome.rows if row.ours or row.paper]
    curve = outcome.curve is not None
    figure = Figure(figsize=(7, 4.5) if curve else (8, 1.4 + 0.32 * max(3, len(rows))), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    if curve:
        _curves(axes, outcome, rows)
    else:
        _dots(axes, outcome, rows)
    axes.set_title(outcome.title + (" (quick look: one seed)" if outcome.quick else ""), fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    with atomic_write(path) as stream:
        figure.savefig(stream, format="png", dpi=150)


def _dots(axes: Any, outcome: Outcome, rows: list[Row]) -> None:
    """A line for each task and measure, from the top; numbers along it."""
    for place, row in enumerate(rows):
        spread = row.labs.get(outcome.reference or "")
        if spread is not None and len(spread.labs) > 1:
            # A single point, where all labs agree, is still to be seen.
            low, high = spread.low, max(spread.high, spread.low + 0.1)
            axes.barh(place, high - low, left=low, height=0.42, color=LABS, zorder=2)
        numbers = list(row.paper.values())
        axes.plot(numbers, [place] * len(numbers), "|", color=PAPER, markersize=9, zorder=3)
    if any(outcome.reference in row.labs for row in rows):
        axes.plot([], [], color=LABS, linewidth=8, label=f"between labs: {outcome.reference}")
    axes.plot([], [], "|", color=PAPER, markersize=9, label="the paper's models")
    for number, model in enumerate(outcome.models):
        shift = 0.16 * (number - (len(outcome.models) - 1) / 2)
        colour = COLOURS[number % len(COLOURS)]
        for place, row in enumerate(rows):
            found = row.ours.get(model)
            if found is None:
                continue
            if found.low is not None and found.high is not None:
                axes.plot([found.low, found.high], [place + shift] * 2, color=colour, linewidth=1.2, zorder=4)
            axes.plot(found.value, place + shift, "o", color=colour, markersize=5, zorder=5)
        axes.plot([], [], "o", color=colour, label=model)
    axes.set_yticks(range(len(rows)), [_label(rows, place) for place in range(len(rows))], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("percent")
    axes.grid(axis="x", color="0.92")
    axes.set_axisbelow(True)


def _curves(axes: Any, outcome: Outcome, rows: list[Row]) -> None:
    """A line over the models' numbers for each task: ours full, the paper's dashed."""
    for number, row in enumerate(rows):
        colour = COLOURS[number % len(COLOURS)]
        ours = sorted((float(model), found.value) for model, found in row.ours.items() if _is_number(model))
        paper = sorted((float(model), value) for model, value in row.paper.items() if _is_number(model))
        if ours:
            axes.plot(*zip(*ours, strict=True), "o-", color=colour, markersize=4, label=row.task)
        if paper:
            axes.plot(*zip(*paper, strict=True), "--", color=colour, linewidth=1, label=f"{row.task}, paper")
    axes.set_xscale("log")
    axes.set_xlabel(outcome.curve or "")
    axes.set_ylabel("percent")
    axes.grid(color="0.92")


def _label(rows: list[Row], place: int) -> str:
    row = rows[place]
    single = sum(other.task == row.task for other in rows) == 1
    return row.task if single else f"{row.task} {MEASURES.get(row.measure, row.measure)}"


def _is_number(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return False
    return True


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
        with atomic_write(folder / name) as stream:
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


SUMMARY, INDEX = "summary.json", "index.md"


@dataclass(frozen=True, slots=True)
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
    with atomic_write(out / INDEX) as stream:
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
