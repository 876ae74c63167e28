"""`lexome convert-model`: checkpoints of any framework into Hugging Face's form."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lexome.cli.app import AsJson, Quiet, app, needs

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
        from lexome.models.convert import convert_model as run
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
