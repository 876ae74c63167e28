"""A study's outcome as a table for people: plain text, Markdown, and a page."""

from collections.abc import Iterator, Sequence
from html import escape

from lexome.train.study.aggregate import Estimate
from lexome.train.study.outcome import Mean, Outcome, Row

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
