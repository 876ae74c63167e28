"""`lexome convert` and `lexome convert-model`: documents and checkpoints into other formats."""

import json
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from lexome.cli.options import (
    NAMED_TYPES,
    AsJson,
    FormatOptions,
    Quiet,
    RejectOptions,
    app,
    exit_for_tally,
    grouped,
    interruptible,
    nonempty_path,
    print_line,
    print_notes,
    print_rejected,
    print_summary,
)
from lexome.errors import UsageError, needs
from lexome.formats import FORMATS

if TYPE_CHECKING:
    from lexome.formats import Tally


def _format_table() -> str:
    """The formats, a line each, for --help."""
    rows = [(format.name, format.directions, " ".join(format.extensions), format.description) for format in FORMATS]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = (
        "  ".join([*(cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)), row[3]]) for row in rows
    )
    return "\b\nFormats:\n" + "\n".join(f"  {line}" for line in lines)


@app.command(epilog=_format_table())
@grouped
def convert(
    paths: Annotated[
        list[Path],
        typer.Argument(
            parser=nonempty_path, metavar="IN... OUT", help="Input files, folders or archives, then the output."
        ),
    ],
    *,
    to: Annotated[
        str | None, typer.Option("--to", metavar="FORMAT", help="Output format. Default: by extension.")
    ] = None,
    formats: FormatOptions,
    rejection: RejectOptions,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Convert documents to another format.

    Mentions keep their character offsets. Formats are detected by extension and content; gz, xz and zst files are
    decompressed and compressed, tar and zip archives and folders are traversed. "-" is standard input or output, which
    is plain text unless --to names another format.
    """
    from lexome.formats import convert as run

    if len(paths) < 2:
        message = "expected at least one input and the output: lexome convert IN... OUT"
        raise UsageError(message, code="missing-argument")
    *inputs, out = paths
    with interruptible(out):
        tally = run(
            inputs,
            out,
            from_=formats.from_,
            to=to,
            options=formats.parse(example="scheme=iobes"),
            rejects=rejection.path(out),
            progress_shown=not quiet,
        )
    print_summary(
        partial(_print_tally, tally, out),
        tally.summary(),
        tally.rejected,
        tally.rejects_path,
        out=out,
        as_json=as_json,
        quiet=quiet,
    )
    exit_for_tally(tally, documents=tally.written)


def _print_tally(tally: "Tally", out: Path, stream: TextIO) -> None:
    files = ", ".join(f"{count:,} {name}" for name, count in tally.files.items()) or "0"
    print(f"read       {tally.documents:,} documents ({files} files)", file=stream)
    for name, counts in (("spans", tally.spans), ("relations", tally.relations)):
        for kind, count in counts.most_common(NAMED_TYPES):
            print_line(f"{name:<10} {count:,} {kind}", stream)
    print_notes(tally.notes, stream)
    print_rejected(tally.rejected, tally.rejects_path, stream)
    print_line(f"wrote      {tally.written:,} documents to {out}", stream)


Source = Annotated[Path, typer.Argument(metavar="SOURCE", help="Checkpoint: folder, archive or file.")]
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Checkpoint folder to write.")]
Kind = Annotated[
    str | None,
    typer.Option("--kind", metavar="KIND", help="encoder, masked, paired, token, sequence or span. Default: detected."),
]
Tokenizer = Annotated[Path | None, typer.Option(metavar="PATH", help="Tokenizer to use if the checkpoint has none.")]
Backend = Annotated[str, typer.Option(metavar="auto|lexome|transformers", help="Implementation that loads the model.")]
Drop = Annotated[
    str | None,
    typer.Option(
        metavar="relative-positions",
        help="Drop MPNet's relative positions; the result is a BERT that needs further training.",
    ),
]
Outputs = Annotated[
    float | None,
    typer.Option(
        metavar="SIZE",
        help="Rescale the encoder's hidden states to this RMS, and its heads inversely, so that predictions stay the "
        "same. 1 is usual; small hidden states are slow to fine-tune.",
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(metavar="float32|bfloat16|float16", help="Data type of the weights. Default: unchanged."),
]

Average = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="CHECKPOINT", help="Average the weights with those of this checkpoint of the same shape; repeatable."
    ),
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
    average: Average = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Convert a checkpoint to Hugging Face format.

    Writes a folder with safetensors. Reads Hugging Face folders, Google's TensorFlow BERT, fairseq's RoBERTa, Megatron,
    NeMo, PyTorch pickles and BERT exported to ONNX. No code in a checkpoint is executed.
    """
    with needs("train", purpose="converting a model"):
        from lexome.models.convert_model import convert_model as run
    with interruptible(folder):
        done = run(
            source,
            folder,
            kind=kind,
            tokenizer=tokenizer,
            backend=backend,
            drop=drop,
            outputs=outputs,
            dtype=dtype,
            average=average or (),
        )
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
            print(f"dropped   {done.dropped}: the model computes something else now; train it before use")
        if done.averaged:
            print(f"averaged  with the weights of {', '.join(done.averaged)}")
        if done.scaled is not None:
            print(f"rescaled  hidden states by {done.scaled:.4g}, heads inversely: predictions stay the same")
        print(f"wrote     {done.folder}")
