"""`lexome export`: a checkpoint into an ONNX folder that runs without torch."""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lexome.cli.app import AsJson, Quiet, app, needs

if TYPE_CHECKING:
    from lexome.infer.settings import Settings


@app.command()
def export(
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="A model folder in Hugging Face's form.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to write.")],
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind", metavar="KIND", help="masked, encoder, token, sequence or span. Default: as it was saved."
        ),
    ] = None,
    precision: Annotated[str, typer.Option(metavar="fp32|int8", help="int8 is smaller and faster.")] = "fp32",
    held_out: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SET|PATH", help="Documents the model was not trained on, to judge it by; may be repeated."
        ),
    ] = None,
    split: Annotated[str, typer.Option(metavar="NAME", help="The split that is held out, where there are splits.")] = (
        "dev"
    ),
    data: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where data sets are. Default: LEXOME_DATA, else ./data.")
    ] = None,
    agreement: Annotated[
        float | None, typer.Option(metavar="SHARE", help="int8 must agree with fp32 on at least this. Default: 0.995.")
    ] = None,
    difference: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Its score may be off by at most this. Default: 0.001.")
    ] = None,
    accept_less: Annotated[
        bool, typer.Option("--accept-less", help="Let the two be lower than the defaults; the certificate says so.")
    ] = False,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="What the model is called. Default: its folder's name.")
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """A checkpoint into an ONNX folder that runs without torch.

    It is written once onnxruntime's numbers are proven to be torch's. With --held-out, scores of mentions are
    calibrated on these documents, and certificate.json says what was measured. int8 is refused unless it gives the same
    answers on them.
    """
    with needs("train", purpose="exporting"):
        from lexome.train.certify import CERTIFICATE, bar
        from lexome.train.export import Judging
        from lexome.train.export import export as run
    asked = bar(agreement=agreement, difference=difference, lowered=accept_less)
    judging = Judging(tuple(held_out), split, data, asked) if held_out else None
    try:
        settings = run(
            checkpoint,
            folder,
            kind=kind,
            precision=precision,
            judging=judging,
            name=name,
            tell=_silent if quiet else _tell,
        )
    except KeyboardInterrupt:
        print(f"interrupted: {folder} was not written. Run the same command again.", file=sys.stderr)
        raise typer.Exit(130) from None
    certificate = json.loads((folder / CERTIFICATE).read_bytes()) if judging else None
    if as_json:
        print(json.dumps({**asdict(settings), "certificate": certificate}, ensure_ascii=False))
    elif not quiet:
        _report(settings, certificate)
        print(f"wrote     {folder}")


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _silent(line: str) -> None:
    pass


def _report(settings: "Settings", certificate: Mapping[str, Any] | None) -> None:
    print(f"exported  {settings.source['architecture']}, {settings.kind}, up to {settings.max_tokens:,} tokens")
    print(f"proven    torch and onnxruntime differ by {settings.difference:.2g} at most")
    if certificate is None:
        return
    score = certificate["score"]
    documents = sum(part["documents"] for part in certificate["held_out"])
    print(f"judged    {score['measure']} {100 * score['value']:.2f} on {documents:,} documents", end="")
    if "agreement" not in certificate:
        print()
    else:
        print(
            f" (fp32: {100 * score['fp32']['value']:.2f}), {100 * certificate['agreement']['value']:.2f}% as fp32 says"
        )
        kept, size = len(certificate["left_in_fp32"]), certificate["bytes"]
        said = f", {kept} matrices left in fp32" if kept else ""
        print(f"int8      {size['int8'] / 1e6:,.1f} MB in place of {size['fp32'] / 1e6:,.1f}{said}")
    for type_, curve in certificate.get("calibration", {}).items():
        before, after = curve["ece_before"], curve["ece_after"]
        print(f"scores    {type_}: {before:.3f} from true before calibration, {after:.3f} after")
