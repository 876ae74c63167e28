"""What a run says before its first step: where it computes, what it trains, on which text, and where it goes on."""

from collections.abc import Sequence

from lexome.train.record import Run
from lexome.train.start import Start


def opening(start: Start, run: Run, *, device_asked: str, text: str) -> str:
    """A few lines, such as

    device    cpu, fp32; no GPU was found
    model     bert, 33,391,290 weights, from checkpoints/gte-small
    new       head.bias and 4 more; 4,000 of 30,522 pieces
    text      15,179 documents, 20,746,826 tokens.
    """
    lines = [("device", _device(run, device_asked)), ("model", _model(start))]
    if new := _new(start):
        lines.append(("new", new))
    if start.unused:
        lines.append(("unused", _named(start.unused)))
    if start.teacher is not None:
        lines.append(("teacher", str(start.teacher.folder)))
    lines.append(("text", text))
    if run.steps:
        lines.append(("goes on", f"after step {run.steps:,}"))
    return "\n".join(f"{name:<9} {said}" for name, said in lines)


def _device(run: Run, asked: str) -> str:
    many = f", {run.processes} processes" if run.processes > 1 else ""
    # A recipe for a GPU takes days without one, and torch without CUDA is easily installed by mistake.
    missing = "; no GPU was found" if asked == "auto" and run.device == "cpu" else ""
    return f"{run.device}, {run.precision}{many}{missing}"


def _model(start: Start) -> str:
    weights = sum(weight.numel() for weight in start.model.parameters())
    begun = "from random weights" if start.checkpoint is None else f"from {start.checkpoint}"
    return f"{start.architecture}, {weights:,} weights, {begun}"


def _new(start: Start) -> str:
    """What the checkpoint lacked: weights that were drawn, and pieces of another vocabulary."""
    said = [_named(start.drawn)] if start.drawn else []
    if start.carried is not None:
        said.append(f"{start.carried.new:,} of {start.carried.new + start.carried.kept:,} pieces")
    return "; ".join(said)


def _named(names: Sequence[str]) -> str:
    """The first name, and how many more there are."""
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
