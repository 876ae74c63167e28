"""A study's result for people: tables as text, Markdown and HTML, a plot, and reports over several studies."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from itertools import chain, count
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lexome.errors import MissingExtraError, UsageError
from lexome.files import atomic_plot, atomic_write
from lexome.recipe.study import open_study, shipped
from lexome.reproduce.aggregate import (
    RESULT,
    AverageRow,
    Estimate,
    MissingTask,
    ResultRow,
    StudyResult,
    lab_ranges,
    study_result,
)

# Cells

METRICS = {
    "f1": "F1",
    "macro_f1": "macro F1",
    "precision": "precision",
    "recall": "recall",
    "example_f1": "example F1",
    "accuracy": "accuracy",
    "strict": "strict acc.",
    "lenient": "lenient acc.",
    "mrr": "MRR",
    "exact": "exact match",
}
EMPTY = "–"


def column_names(result: StudyResult, *, prefix: str = "paper: ") -> list[str]:
    """The table's header: our models, the range between labs, and the paper's models with a prefix."""
    paper = _paper_models(result)
    names = ["task", "metric"]
    for model in result.models:
        names += [model, "Δ paper"] if model in paper else [model]
    names += [f"labs: {result.reference}"] if _has_labs(result) else []
    return [*names, *(prefix + model for model in paper)]


def _task_rows(result: StudyResult) -> Iterator[list[str]]:
    paper = _paper_models(result)
    missing = {lost.task for lost in result.missing}
    last = ""
    for row in result.rows:
        if not row.ours and not row.paper:
            continue
        name = "" if row.task == last else row.task + (" (missing)" if row.task in missing and not row.ours else "")
        last = row.task
        cells = [name, METRICS.get(row.metric, row.metric)]
        for model in result.models:
            estimate = row.ours.get(model)
            cells.append(format_estimate(estimate))
            if model in paper:
                cells.append(_difference(estimate.value if estimate is not None else None, row.paper.get(model)))
        if _has_labs(result):
            labs = row.labs.get(result.reference or "")
            shown = labs is not None and len(labs.labs) > 1
            cells.append(f"{labs.low}–{labs.high} ({len(labs.labs)})" if labs and shown else EMPTY)
        yield [*cells, *(str(row.paper.get(model, EMPTY)) for model in paper)]


def _average_rows(result: StudyResult) -> Iterator[list[str]]:
    paper = _paper_models(result)
    for average in result.averages:
        complete = not average.left_out
        total = len(average.of) + len(average.left_out)
        cells = [f"mean {average.name}", "" if complete else f"{len(average.of)} of {total}"]
        # A paper that prints averages alone can be compared if no task is missing.
        theirs = (average.printed if complete else {}) | {model: round(of, 2) for model, of in average.paper.items()}
        for model in result.models:
            value = average.ours.get(model)
            cells.append(EMPTY if value is None else f"{value:.2f}")
            if model in paper:
                cells.append(_difference(value, theirs.get(model)))
        cells += [""] if _has_labs(result) else []
        shown = {model: f"{theirs[model]:.2f}" if model in average.paper else str(theirs[model]) for model in theirs}
        yield [*cells, *(shown.get(model, EMPTY) for model in paper)]


def _difference(ours: float | None, reported: float | None) -> str:
    return EMPTY if ours is None or reported is None else f"{ours - reported:+.2f}"


def format_estimate(estimate: Estimate | None) -> str:
    """A value with its interval: 87.99 [87.10, 88.60]."""
    if estimate is None:
        return EMPTY
    interval = "" if estimate.low is None else f" [{estimate.low:.2f}, {estimate.high:.2f}]"
    return f"{estimate.value:.2f}{interval}"


def _paper_models(result: StudyResult) -> list[str]:
    """The models with reported values, in the order of the paper's tables."""
    names = [model for row in result.rows for model in row.paper]
    return list(dict.fromkeys([*names, *(model for average in result.averages for model in average.printed)]))


def _our_columns(result: StudyResult) -> set[int]:
    return {index for index, name in enumerate(column_names(result)) if index > 1 and name in result.models}


def _has_labs(result: StudyResult) -> bool:
    return result.reference is not None and any(result.reference in row.labs for row in result.rows)


# Notes

# Warnings shown of one task: ten folds have many that are alike.
MAX_WARNINGS = 2
# Failed runs shown of one task.
MAX_FAILED = 3
INTERVALS = {
    "documents": "bootstrap samples of the test documents",
    "seeds": "seeds",
    "folds": "folds, which share training documents, so it is too narrow",
}


def notes(result: StudyResult) -> list[str]:
    """Notes below the table: intervals, ranges between labs, missing tasks, failed runs and selected settings."""
    kinds = dict.fromkeys(
        (estimate.over, estimate.level, estimate.runs)
        for row in result.rows
        for estimate in row.ours.values()
        if estimate.over is not None
    )
    lines = [
        f"In brackets: {100 * (level or 0):.4g}% interval over {INTERVALS[over or '']} ({runs} run{'s' * (runs > 1)})."
        for over, level, runs in kinds
    ]
    within, comparable = result.within_lab_ranges()
    if comparable:
        lines.append(
            f"{within} of {comparable} of our scores lie within the range that labs report for the same checkpoint."
        )
    lines += [_average_note(average) for average in result.averages]
    lines += [f"Missing: {lost}" for lost in result.missing]
    lines += [f"Warning: {task}: {_shorten(warnings, MAX_WARNINGS)}" for task, warnings in result.warnings.items()]
    lines += [
        f"Failed: {len(runs)} run{'s' * (len(runs) > 1)} of {task} for {model}, not in its scores: "
        + _shorten([f"{run}: {reason.rstrip('.')}" for run, reason in runs.items()], MAX_FAILED)
        for model, of in result.failed.items()
        for task, runs in of.items()
    ]
    lines += [f"{task}: {note}." for task, note in {row.task: row.note for row in result.rows}.items() if note]
    for model, chosen in result.chosen.items():
        tasks: dict[str, list[str]] = {}
        for task, settings in chosen.items():
            tasks.setdefault(settings, []).append(task)
        if tasks:
            by_settings = "; ".join(f"{settings} for {', '.join(names)}" for settings, names in tasks.items())
            lines.append(f"Selected for {model}: {by_settings}.")
    lines += [f"Model {name}: {path}" for name, path in result.models.items()]
    made = ", ".join(f"{key} {value}" for key, value in result.environment.items() if key != "date")
    return lines + ([f"Made {result.environment.get('date', '')}: {made}."] if result.environment else [])


def study_notes(result: StudyResult) -> list[str]:
    """The study's description, its protocols, and the decisions where the paper is silent or contradicts itself."""
    lines = [result.description] if result.description else []
    lines += [f"Protocol {name}: {description}" for name, description in result.protocols.items()]
    return lines + [f"Observed: {decision.seen} Decision: {decision.decided}" for decision in result.decisions]


def _banner(result: StudyResult) -> list[str]:
    """Warnings above the table: deviations from the protocol, and missing tasks."""
    lines = [f"Not the paper's protocol: {change}." for change in result.changes]
    lost = len(result.missing)
    return lines + [f"{lost} task{'s are' if lost > 1 else ' is'} missing; see below."] * bool(lost)


def _average_note(average: AverageRow) -> str:
    line = f"{average.name}: the mean over {', '.join(average.of)}"
    if not average.left_out:
        return f"{line}."
    printed = ", ".join(f"{model} {value}" for model, value in average.printed.items())
    line += f"; without {', '.join(average.left_out)}, and the paper's over the same tasks."
    return line + (f" Over all tasks the paper prints {printed}." if printed else "")


def _shorten(lines: Sequence[str], limit: int) -> str:
    more = len(lines) - limit
    return "; ".join(lines[:limit]) + (f"; and {more} more." if more > 0 else ".")


# Tables

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


def text_table(result: StudyResult) -> str:
    """The table with aligned columns, a bar before the paper's, and the notes."""
    rows = [column_names(result, prefix=""), *_task_rows(result), *_average_rows(result)]
    if theirs := len(_paper_models(result)):
        rows = [[*row[:-theirs], "|", *row[-theirs:]] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [f"{result.title} ({result.study}): {result.paper}", *_banner(result), ""]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
        cells += [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join([*lines, "", *notes(result)]) + "\n"


def markdown_table(result: StudyResult) -> str:
    """Only the table, in Markdown, with our scores in bold."""
    names, ours = column_names(result), _our_columns(result)
    rows = [
        [f"**{cell}**" if index in ours else cell for index, cell in enumerate(row)]
        for row in (*_task_rows(result), *_average_rows(result))
    ]
    return _markdown(names, rows, right_from=2)


def _markdown(names: Sequence[str], rows: Iterable[Sequence[str]], *, right_from: int) -> str:
    """A Markdown table whose columns are aligned right from an index on."""
    rule = ["---" if index < right_from else "---:" for index in range(len(names))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (names, rule, *rows))


def markdown_page(result: StudyResult, *, plot: str | None = None) -> str:
    """The table, the plot with this file name, and all notes in Markdown."""
    lines = [f"# {result.title}", "", result.paper, "", *(f"**{line}**\n" for line in _banner(result))]
    lines += [markdown_table(result), ""]
    lines += [f"![{result.title}]({plot})", ""] if plot is not None else []
    return "\n".join(lines + [f"- {line}" for line in (*notes(result), *study_notes(result))]) + "\n"


def html_page(result: StudyResult, *, plot: str | None = None) -> str:
    """The tables as a self-contained HTML page."""
    ours = _our_columns(result)

    def tr(cells: Sequence[str], tag: str, kind: str = "row") -> str:
        opening = [f'<{tag} class="ours">' if index in ours else f"<{tag}>" for index in range(len(cells))]
        marked = (f"{start}{escape(cell)}</{tag}>" for start, cell in zip(opening, cells, strict=True))
        return f'<tr class="{kind}">{"".join(marked)}</tr>'

    image = f'<p><img src="{escape(plot)}" alt="{escape(result.title)}"></p>' if plot is not None else ""
    lines = [
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(result.title)}</title>',
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>',
        f"<h1>{escape(result.title)}</h1><p>{escape(result.paper)}</p>",
        *(f'<p class="quick">{escape(line)}</p>' for line in _banner(result)),
        f'<div class="wide"><table><thead>{tr(column_names(result), "th")}</thead><tbody>',
        *(tr(row, "td") for row in _task_rows(result)),
        *(tr(row, "td", "mean") for row in _average_rows(result)),
        f"</tbody></table></div>{image}<ul>",
        *(f"<li>{escape(line)}</li>" for line in (*notes(result), *study_notes(result))),
        "</ul></html>",
    ]
    return "\n".join(lines) + "\n"


# Plot

COLORS = ("#1f6fb2", "#d1602b", "#2f8f4e", "#8a4fb0", "#b0882f", "#c23b5e")
LABS, PAPER = "#bcd", "0.45"


def plot(result: StudyResult, path: Path) -> None:
    """Write the result's plot as PNG: scores with intervals by task, or for a study of checkpoints, curves."""
    rows = [row for row in result.rows if row.ours or row.paper]
    curve = result.curve is not None
    with atomic_plot(path, size=(7, 4.5) if curve else (8, 1.4 + 0.32 * max(3, len(rows)))) as figure:
        axes = figure.subplots()
        (_plot_curves if curve else _plot_scores)(axes, result, rows)
        axes.set_title(result.title + (" (quick: one seed)" if result.quick else ""), fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)


def _plot_scores(axes: Any, result: StudyResult, rows: list[ResultRow]) -> None:
    """A line for each task and metric, from the top, with scores along it."""
    for place, row in enumerate(rows):
        labs = row.labs.get(result.reference or "")
        if labs is not None and len(labs.labs) > 1:
            # Where all labs agree, the range is still visible.
            width = max(labs.high - labs.low, 0.1)
            axes.barh(place, width, left=labs.low, height=0.42, color=LABS, zorder=2)
        values = list(row.paper.values())
        axes.plot(values, [place] * len(values), "|", color=PAPER, markersize=9, zorder=3)
    if any(result.reference in row.labs for row in rows):
        axes.plot([], [], color=LABS, linewidth=8, label=f"range between labs: {result.reference}")
    axes.plot([], [], "|", color=PAPER, markersize=9, label="the paper's models")
    for number, model in enumerate(result.models):
        shift = 0.16 * (number - (len(result.models) - 1) / 2)
        color = COLORS[number % len(COLORS)]
        for place, row in enumerate(rows):
            estimate = row.ours.get(model)
            if estimate is None:
                continue
            if estimate.low is not None:
                axes.plot([estimate.low, estimate.high], [place + shift] * 2, color=color, linewidth=1.2, zorder=4)
            axes.plot(estimate.value, place + shift, "o", color=color, markersize=5, zorder=5)
        axes.plot([], [], "o", color=color, label=model)
    tasks = [row.task for row in rows]
    several = {task for task in tasks if tasks.count(task) > 1}
    labels = [f"{row.task} {METRICS.get(row.metric, row.metric)}" if row.task in several else row.task for row in rows]
    axes.set_yticks(range(len(rows)), labels, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("percent")
    axes.grid(axis="x", color="0.92")
    axes.set_axisbelow(True)


def _plot_curves(axes: Any, result: StudyResult, rows: list[ResultRow]) -> None:
    """A curve for each task over models named by numbers: ours solid, the paper's dashed."""
    for number, row in enumerate(rows):
        color = COLORS[number % len(COLORS)]
        ours = _sorted_by_number({model: estimate.value for model, estimate in row.ours.items()})
        paper = _sorted_by_number(row.paper)
        if ours:
            axes.plot(*zip(*ours, strict=True), "o-", color=color, markersize=4, label=row.task)
        if paper:
            axes.plot(*zip(*paper, strict=True), "--", color=color, linewidth=1, label=f"{row.task}, paper")
    axes.set_xscale("log")
    axes.set_xlabel(result.curve or "")
    axes.set_ylabel("percent")
    axes.grid(color="0.92")


def _sorted_by_number(values: dict[str, float]) -> list[tuple[float, float]]:
    """The values of models whose names are numbers, in their order."""
    points = []
    for model, value in values.items():
        with suppress(ValueError):
            points.append((float(model), value))
    return sorted(points)


# Files

STUDY, TEXT, MARKDOWN, HTML, PLOT = RESULT, "table.txt", "table.md", "table.html", "picture.png"


def write_result(result: StudyResult, folder: Path) -> list[Path]:
    """Write the result as JSON, text, Markdown, HTML and, with matplotlib, a plot; returns the paths."""
    name: str | None = PLOT
    try:
        plot(result, folder / PLOT)
    except MissingExtraError:
        name = None
    contents = {
        STUDY: json.dumps(result.model_dump(mode="json"), indent=1, ensure_ascii=False) + "\n",
        TEXT: text_table(result),
        MARKDOWN: markdown_page(result, plot=name),
        HTML: html_page(result, plot=name),
    }
    for file, content in contents.items():
        with atomic_write(folder / file) as stream:
            stream.write(content.encode())
    return [folder / file for file in (*contents, *([name] if name is not None else []))]


def read_result(path: Path) -> StudyResult:
    """The result in a study.json."""
    try:
        return StudyResult.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, ValidationError) as error:
        message = f"{path}: not the result of a study ({type(error).__name__}). Run the study again."
        raise UsageError(message, code="not-a-result", value=path) from None


def merge_results(results: Iterable[StudyResult]) -> list[StudyResult]:
    """Results of the same study and protocol as one, with all their models; of two with one name the last wins.

    Results of studies that do not ship with Lexome stay separate: a result does not name its study's file.
    """
    groups: dict[tuple[str, tuple[str, ...]], list[StudyResult]] = {}
    for result in results:
        groups.setdefault((result.study, result.changes), []).append(result)
    known = {study.name for study in shipped()}
    merged: list[StudyResult] = []
    for (name, _), group in groups.items():
        merged += [_merge_models(group)] if len(group) > 1 and name in known else group
    return merged


def _merge_models(group: list[StudyResult]) -> StudyResult:
    estimates: dict[str, dict[str, dict[str, Estimate]]] = {}
    missing: dict[str, MissingTask] = {}
    for result in group:
        missing |= {lost.task: lost for lost in result.missing}
        for row in result.rows:
            for model, estimate in row.ours.items():
                estimates.setdefault(model, {}).setdefault(row.task, {})[row.metric] = estimate
    last = group[-1]
    return study_result(
        open_study(last.study),
        estimates,
        models={name: path for result in group for name, path in result.models.items()},
        missing=[lost for lost in missing.values() if not all(lost.task in of for of in estimates.values())],
        ranges=lab_ranges(shipped()),
        quick=last.quick,
        changes=last.changes,
        chosen={model: of for result in group for model, of in result.chosen.items()},
        warnings={task: warnings for result in group for task, warnings in result.warnings.items()},
        failed={model: of for result in group for model, of in result.failed.items()},
        only={row.task for result in group for row in result.rows},
        environment=last.environment,
    )


# Reports

SUMMARY, INDEX = "summary.json", "index.md"


@dataclass(frozen=True, slots=True)
class StudyReport:
    """The output of `report`: results by their subfolder, the number of fine-tunings, and the files."""

    studies: dict[str, StudyResult]
    finetunings: int
    files: tuple[Path, ...]


def report(folders: Iterable[Path], out: Path) -> StudyReport:
    """Write tables and a plot of each study below these folders, and an index with one table of all fine-tunings.

    Results of the same study share a table, with a column for each model. Fine-tunings inside a study are not listed
    again.
    """
    folders = list(folders)
    lost = next((folder for folder in folders if not folder.exists()), None)
    if lost is not None:
        message = f"{lost}: no such folder; expected the output of `lexome reproduce` or `lexome finetune`."
        raise UsageError(message, code="missing-folder", value=lost)
    studies: dict[str, StudyResult] = {}
    for result in merge_results(read_result(path) for path in _result_files(folders)):
        name = result.study + ("-quick" if result.quick else "")
        # A study that was also run with other keys has a folder of its own.
        names = chain((name,), (f"{name}-{number}" for number in count(2)))
        studies[next(free for free in names if free not in studies)] = result
    finetunings = [row for folder in folders if folder.is_dir() for row in _finetuning_rows(folder)]
    if not studies and not finetunings:
        raise UsageError(
            f"no {STUDY} or {SUMMARY} in {', '.join(map(str, folders))}; expected the output of `lexome reproduce` or "
            "`lexome finetune`.",
            code="nothing-to-report",
            value=folders,
        )
    files = [path for name, result in studies.items() for path in write_result(result, out / name)]
    with atomic_write(out / INDEX) as stream:
        stream.write(_index(studies, finetunings).encode())
    return StudyReport(studies, len(finetunings), (*files, out / INDEX))


def _result_files(folders: Iterable[Path]) -> Iterator[Path]:
    """study.json anywhere below the folders, and other results that lie in the folders themselves."""
    for folder in folders:
        yield from [folder] if folder.is_file() else sorted(folder.rglob(STUDY))
        for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
            content = json.loads(path.read_text(encoding="utf-8")) if path.name != STUDY else None
            if isinstance(content, dict) and content.keys() >= {"study", "rows", "means", "missing"}:
                yield path


def _finetuning_rows(folder: Path) -> Iterator[list[str]]:
    """A row for each fine-tuning outside a study: its path, the best cell, and its scores on dev and test."""
    for path in sorted(folder.rglob(SUMMARY)):
        summary = json.loads(path.read_text(encoding="utf-8"))
        inside_study = any((above / STUDY).is_file() for above in path.parents)
        if inside_study or not summary.keys() >= {"rows", "best"}:
            continue
        name = path.parent.relative_to(folder).as_posix()
        metric, best = summary["measure"] or "", summary["best"]
        row = summary["rows"][best if best is not None else 0]
        cell = ", ".join(f"{key} {value:g}" for key, value in row["cell"].items() if value is not None) or EMPTY
        scores = [_format_spread(row["spreads"].get(split, {}).get(metric)) for split in ("dev", "test")]
        yield [folder.resolve().name if name == "." else name, metric, cell, str(len(row["runs"])), *scores]


def _format_spread(spread: dict[str, Any] | None) -> str:
    if spread is None:
        return EMPTY
    deviation = f" ± {100 * spread['sd']:.2f}" if spread["sd"] is not None else ""
    return f"{100 * spread['mean']:.2f}{deviation}"


def _index(studies: dict[str, StudyResult], finetunings: list[list[str]]) -> str:
    """Links to the studies' tables, and the table of fine-tunings."""
    parts = ["# Results"]
    if studies:
        rows = [
            [
                f"[{name}]({name}/{MARKDOWN})",
                ", ".join(result.models),
                str(len({row.task for row in result.rows if row.ours})),
                str(len(result.missing)),
            ]
            for name, result in studies.items()
        ]
        parts.append(_markdown(("study", "models", "tasks", "missing"), rows, right_from=2))
    if finetunings:
        parts.append(
            _markdown(("fine-tuning", "metric", "best cell", "runs", "dev", "test"), finetunings, right_from=3)
        )
        parts.append("Scores in percent: mean ± standard deviation over the runs of the best cell.")
    return "\n\n".join(parts) + "\n"
