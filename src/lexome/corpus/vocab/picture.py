"""The picture of a vocabulary report: a bar for each vocabulary and set of names."""

from pathlib import Path
from typing import Any

from lexome.corpus.vocab.report import VocabReport
from lexome.errors import MissingExtraError, UsageError
from lexome.formats.files import replacing

ENDINGS = (".svg", ".png", ".pdf")


def draw(report: VocabReport, path: Path) -> None:
    """Write the report's picture: pieces per word in text and in each set's names, lower being better."""
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"{path}: a picture ends in one of {', '.join(ENDINGS)}.")
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", extra="corpus", purpose="a picture") from None
    groups = _groups(report)
    # Room for each bar's number, and at least for the names above.
    width = max(5.0, 1 + len(groups) * (0.4 + 0.36 * len(report.vocabularies)))
    figure = Figure(figsize=(width, 4), layout="constrained")
    FigureCanvasAgg(figure)
    _bars(figure.subplots(), groups, [row.name for row in report.vocabularies])
    figure.legend(loc="outside upper center", ncols=max(2, int(width / 1.8)), frameon=False, fontsize=8)
    # Neither date nor random ids, and text as text: the same report gives the same picture.
    with matplotlib.rc_context({"svg.hashsalt": "lexome", "svg.fonttype": "none"}), replacing(path) as stream:
        ending = path.suffix.lower()[1:]
        dateless = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(ending)
        figure.savefig(stream, format=ending, dpi=150, metadata=dateless)


def _groups(report: VocabReport) -> dict[str, list[float]]:
    """For each set of names, and for the text where there was some, one height for each vocabulary."""
    rows = report.vocabularies
    groups: dict[str, list[float]] = {}
    if rows[0].text.words:
        groups["text"] = [row.text.measures()["pieces_per_word"] for row in rows]
    for name in rows[0].entities:
        groups[name] = [row.entities[name].measures()["pieces_per_word"] for row in rows]
    if not groups:
        raise UsageError("nothing to draw: give the report text or a set of names.")
    return groups


def _bars(axes: Any, groups: dict[str, list[float]], names: list[str]) -> None:
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        places = [place + (number - (len(names) - 1) / 2) * width for place in range(len(groups))]
        bars = axes.bar(places, [heights[number] for heights in groups.values()], width * 0.95, label=name)
        axes.bar_label(bars, fmt="%.2f", fontsize=7, padding=2)
    axes.axhline(1, color="0.5", linewidth=0.8, linestyle=":")
    axes.set_xticks(range(len(groups)), list(groups))
    axes.set_ylabel("pieces per word")
    axes.margins(y=0.12)
    axes.spines[["top", "right"]].set_visible(False)
