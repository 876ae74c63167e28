"""`lexome fill` and `lexome embed`: exported models at work, without torch."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lexome.cli.app import AsJson, Lines, Quiet, Strict, app
from lexome.cli.ending import end_reading, print_aside

if TYPE_CHECKING:
    from lexome.infer.embed import Embedded

ModelFolder = Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that `lexome export` made.")]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="Default: the usable cores.")]


@app.command()
def fill(
    folder: ModelFolder,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="With [MASK] where words are to be guessed.")],
    top: Annotated[int, typer.Option("--top", min=1, help="How many words for each mask.")] = 5,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Words for each [MASK] of a text, with probabilities.

    The folder holds a masked language model.
    """
    from lexome.infer.fill import fill as run
    from lexome.infer.predictor import Predictor

    masks = run(Predictor.open(folder, threads=threads), text, top=top)
    if as_json:
        print(json.dumps([[asdict(guess) for guess in guesses] for guesses in masks], ensure_ascii=False))
        return
    for number, guesses in enumerate(masks, 1):
        if len(masks) > 1:
            print(f"mask {number}")
        for guess in guesses:
            print(f"{guess.probability:.4f}  {guess.word}")


@app.command()
def embed(
    folder: ModelFolder,
    inputs: Annotated[list[Path], typer.Argument(metavar="INPUT...", help="Files, folders or archives; - for stdin.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where vectors go: .npy or .parquet.")],
    unit: Annotated[str, typer.Option(metavar="document|passage|sentence", help="What has a vector.")] = "document",
    pooling: Annotated[str, typer.Option(metavar="mean|cls", help="The mean of all tokens, or the first.")] = "mean",
    batch: Annotated[int, typer.Option(min=1, help="Rows at a time. On a CPU, one is fastest.")] = 1,
    normalise: Annotated[bool, typer.Option("--normalise", help="Vectors of length 1.")] = False,
    lines: Lines = False,
    rejects: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where bad documents go. Default: OUT.rejects.jsonl.")
    ] = None,
    strict: Strict = False,
    threads: Threads = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """A vector for each document, passage or sentence.

    Files may be of any format, and each vector has its id. A text too long for the model is cut into windows whose
    vectors are averaged by their tokens; nothing is left out. Ids are in a column of the Parquet file, or beside the
    .npy in .ids.jsonl, in the order of the rows.
    """
    from lexome.infer.embed import embed as run
    from lexome.infer.predictor import Predictor

    aside = None if strict else rejects or out.with_name(out.name + ".rejects.jsonl")
    predictor = Predictor.open(folder, threads=threads)
    try:
        done = run(
            predictor,
            inputs,
            out,
            unit=unit,
            pooling=pooling,
            batch=batch,
            normalise=normalise,
            lines=lines,
            rejects=aside,
            progress_shown=not quiet,
        )
    except KeyboardInterrupt:
        print(f"interrupted: {out} was not written. Run the same command again.", file=sys.stderr)
        raise typer.Exit(130) from None
    if as_json or not quiet:
        _print_vectors(done, out, width=predictor.settings.width, as_json=as_json)
    else:
        print_aside(done.tally.rejected, done.tally.rejects_path, sys.stderr)
    end_reading(done.tally, left=done.tally.documents)


def _print_vectors(done: "Embedded", out: Path, *, width: int, as_json: bool) -> None:
    """Print what was read and set aside, and what vectors were written."""
    if as_json:
        counts = {name: getattr(done, name) for name in ("vectors", "windows", "tokens", "without_tokens")}
        print(json.dumps({**done.tally.summary(), **counts, "out": str(out)}, ensure_ascii=False))
        return
    print(f"read       {done.tally.documents:,} documents, {done.tokens:,} tokens in {done.windows:,} windows")
    print_aside(done.tally.rejected, done.tally.rejects_path, sys.stdout)
    for what, count in done.tally.notes.most_common():
        print(f"noted      {count:,} {what}")
    if done.without_tokens:
        print(f"noted      {done.without_tokens:,} without any token, which have no vector")
    print(f"wrote      {done.vectors:,} vectors of width {width:,} to {out}")
