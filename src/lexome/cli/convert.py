"""`lexome convert`: from any format to another."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lexome.cli.app import AsJson, Quiet, Strict, app, exit_for_tally, needs, print_rejected
from lexome.errors import UsageError
from lexome.formats.registry import FORMATS

if TYPE_CHECKING:
    from lexome.formats import Tally


def _format_table() -> str:
    """The formats, a line each, for the help page."""
    rows = [(format.name, format.directions, " ".join(format.extensions), format.description) for format in FORMATS]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = (
        "  ".join([*(cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)), row[3]]) for row in rows
    )
    return "\b\nFormats:\n" + "\n".join(f"  {line}" for line in lines)


@app.command(epilog=_format_table())
def convert(
    paths: Annotated[
        list[Path], typer.Argument(metavar="IN... OUT", help="Files, folders or archives, then the file to write.")
    ],
    from_: Annotated[str | None, typer.Option("--from", metavar="FORMAT", help="The format of IN.")] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="FORMAT", help="The format of OUT.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="An option of a format; read.KEY or write.KEY says whose."),
    ] = None,
    rejects: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where bad documents go. Default: OUT.rejects.jsonl, here for -."),
    ] = None,
    strict: Strict = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write documents in another format.

    Every mention stays on its text. Formats are told from the files' endings and first bytes; gz, xz and zst are read
    and written as they are, tar and zip files and folders are read through. "-" is standard input or output, which is
    written as plain text unless --to says otherwise.
    """
    from lexome.formats.conversion import convert as run

    if len(paths) < 2:
        raise UsageError("convert takes at least one input and then the output: lexome convert IN... OUT")
    *inputs, out = paths
    try:
        tally = run(
            inputs,
            out,
            from_=from_,
            to=to,
            options=_settings(set_ or []),
            rejects=None if strict else rejects or _beside(out),
            progress_shown=not quiet,
        )
    except KeyboardInterrupt:
        print(f"interrupted: {out} was not written. Run the same command again.", file=sys.stderr)
        raise typer.Exit(130) from None
    if as_json or not quiet:
        _print_tally(tally, out, as_json=as_json)
    else:
        print_rejected(tally.rejected, tally.rejects_path, sys.stderr)
    exit_for_tally(tally, documents=tally.written)


def _settings(pairs: list[str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals):
            raise UsageError(f"--set {pair!r}: expected KEY=VALUE, for example --set scheme=iobes")
        settings[key] = value
    return settings


def _beside(out: Path) -> Path:
    return Path("rejects.jsonl") if not out.name or str(out) == "-" else out.with_name(out.name + ".rejects.jsonl")


def _print_tally(tally: "Tally", out: Path, *, as_json: bool) -> None:
    """What was read, set aside and written; to standard error where standard output holds the documents."""
    stream = sys.stderr if str(out) == "-" else sys.stdout
    if as_json:
        print(json.dumps(tally.summary(), ensure_ascii=False), file=stream)
        return
    files = ", ".join(f"{count:,} {name}" for name, count in tally.files.items()) or "0"
    print(f"read       {tally.documents:,} documents ({files} files)", file=stream)
    for name, counts in (("spans", tally.spans), ("relations", tally.relations), ("noted", tally.notes)):
        for kind, count in counts.most_common(20):
            print(f"{name:<10} {count:,} {kind}", file=stream)
    print_rejected(tally.rejected, tally.rejects_path, stream)
    print(f"wrote      {tally.written:,} documents to {out}", file=stream)


Source = Annotated[Path, typer.Argument(metavar="SOURCE", help="A checkpoint: folder, archive or file.")]
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The model folder to write.")]
Kind = Annotated[
    str | None,
    typer.Option(
        "--kind", metavar="KIND", help="encoder, masked, paired, token, sequence or span. Default: what it is."
    ),
]
Tokenizer = Annotated[
    Path | None, typer.Option(metavar="PATH", help="A tokenizer, where the checkpoint comes without one.")
]
Backend = Annotated[str, typer.Option(metavar="auto|lexome|transformers", help="Who computes the model in between.")]
Drop = Annotated[
    str | None,
    typer.Option(
        metavar="relative-positions",
        help="Leave these out of an MPNet, which makes it another model: a BERT to train on.",
    ),
]
Outputs = Annotated[
    float | None,
    typer.Option(
        metavar="SIZE",
        help="Scale the encoder's outputs to this size, 1 being usual, and heads the other way, so that answers "
        "stay the same: small outputs are slow to fine-tune.",
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(metavar="float32|bfloat16|float16", help="The type of the written weights. Default: what they have."),
]


@app.command()
def convert_model(
    source: Source,
    folder: Folder,
    kind: Kind = None,
    tokenizer: Tokenizer = None,
    backend: Backend = "auto",
    drop: Drop = None,
    outputs: Outputs = None,
    dtype: Dtype = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """A checkpoint of any layout into Hugging Face's form.

    It becomes a folder with safetensors. Known are Hugging Face's folders, Google's TensorFlow BERT, fairseq's RoBERTa,
    Megatron, NeMo, pickles and BERT exported to ONNX. Nothing in a checkpoint is run.
    """
    with needs("train", purpose="converting a model"):
        from lexome.models.convert_model import convert_model as run
    try:
        done = run(
            source, folder, kind=kind, tokenizer=tokenizer, backend=backend, drop=drop, outputs=outputs, dtype=dtype
        )
    except KeyboardInterrupt:
        print(f"interrupted: {folder} was not written. Run the same command again.", file=sys.stderr)
        raise typer.Exit(130) from None
    if as_json:
        print(json.dumps(asdict(done), default=str))
    elif not quiet:
        print(f"read      {source} ({done.layout})")
        print(f"model     {done.architecture}, {done.kind}, {done.parameters:,} parameters, {done.dtype}")
        for what, names in (("unused", done.unused), ("left out", done.left_out)):
            if names:
                more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
                print(f"{what:<9} {names[0]}{more}")
        if done.dropped is not None:
            print(f"dropped   {done.dropped}: this is another model than the source's; train it before use")
        if done.scaled is not None:
            print(f"outputs   times {done.scaled:.4g}, and heads divided by it: answers stay the same")
        print(f"wrote     {done.folder}")
