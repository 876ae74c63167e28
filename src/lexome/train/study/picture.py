"""The picture of a study: ours with their intervals, the paper's, and the range between labs; or curves over steps."""

from pathlib import Path
from typing import Any

from lexome.errors import MissingExtraError
from lexome.formats.files import replacing
from lexome.train.study.outcome import Outcome, Row
from lexome.train.study.table import MEASURES

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
    with replacing(path) as stream:
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
