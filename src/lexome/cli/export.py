"""`lexome export`: a checkpoint into an ONNX folder that runs without torch."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lexome.cli.app import AsJson, Quiet, app, needs


@app.command()
def export(
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="A model folder in Hugging Face's form.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to write.")],
    kind: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="masked, encoder, token, sequence or span. Default: as it was saved."),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """A checkpoint into an ONNX folder for fill and embed, once onnxruntime's numbers are proven to be torch's."""
    with needs("train", purpose="exporting"):
        from lexome.train.export import export as run
    try:
        settings = run(checkpoint, folder, kind=kind)
    except KeyboardInterrupt:
        print(f"interrupted: {folder} was not written. Run the same command again.", file=sys.stderr)
        raise typer.Exit(130) from None
    if as_json:
        print(json.dumps(asdict(settings), ensure_ascii=False))
    elif not quiet:
        print(f"exported  {settings.source['architecture']}, {settings.kind}, up to {settings.max_tokens:,} tokens")
        print(f"proven    torch and onnxruntime differ by {settings.difference:.2g} at most")
        print(f"wrote     {folder}")
