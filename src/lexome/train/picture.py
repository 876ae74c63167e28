"""The picture of a run: loss and learning rate over tokens, from metrics.jsonl."""

from pathlib import Path

from lexome.errors import MissingExtraError
from lexome.formats.files import replacing
from lexome.train.journal import read_metrics


def draw_loss(metrics: Path, picture: Path) -> None:
    """Draw the loss in training and on held-out text, and the learning rate below, as a PNG."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", extra="corpus", purpose="a picture of the loss") from None
    lines = read_metrics(metrics)
    # A folder that had the metrics of another stage may still have its first line, which lacks some of these.
    trained = [line for line in lines if {"tokens", "word_loss", "lr"} <= line.keys()]
    measured = [line for line in lines if {"tokens", "held_out"} <= line.keys()]
    figure = Figure(figsize=(7, 5), layout="constrained")
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    millions = [line["tokens"] / 1e6 for line in trained]
    upper.plot(millions, [line["word_loss"] for line in trained], linewidth=1, label="training")
    if measured:
        places = [line["tokens"] / 1e6 for line in measured]
        upper.plot(places, [line["held_out"]["loss"] for line in measured], "o-", markersize=3, label="held out")
    upper.set_ylabel("loss at the masks (nats)")
    upper.legend(frameon=False)
    lower.plot(millions, [line["lr"] for line in trained], color="0.4", linewidth=1)
    lower.set_ylabel("learning rate")
    lower.set_xlabel("million tokens")
    for axes in (upper, lower):
        axes.spines[["top", "right"]].set_visible(False)
    with replacing(picture) as stream:
        figure.savefig(stream, format="png", dpi=150)
