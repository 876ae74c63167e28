"""`lexome pretrain` and `lexome distill`: token shards into an encoder."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lexome.cli.app import AsJson, Overrides, Quiet, RecipePath, app, needs

if TYPE_CHECKING:
    from lexome.infer.model_folder import Settings
    from lexome.training.pretrain import Pretrained


@app.command()
def pretrain(recipe: RecipePath, set_: Overrides = None, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Token shards into an encoder, new or trained before.

    The outcome is a checkpoint folder in Hugging Face's form.
    """
    from lexome.recipe import load
    from lexome.recipe.pretrain import PretrainRecipe

    made = load(recipe, PretrainRecipe, overrides=set_ or [])
    with needs("train", purpose="pre-training"):
        from lexome.training.pretrain import pretrain as run
    _print_run(lambda: run(made, progress_shown=not quiet), made.out, as_json=as_json, quiet=quiet)


@app.command()
def distill(recipe: RecipePath, set_: Overrides = None, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Token shards and a teacher into a smaller encoder.

    Or the control: the same student trained as long without the teacher.
    """
    from lexome.recipe import load
    from lexome.recipe.pretrain import DistillRecipe

    made = load(recipe, DistillRecipe, overrides=set_ or [])
    with needs("train", purpose="distillation"):
        from lexome.training.pretrain import distill as run
    _print_run(lambda: run(made, progress_shown=not quiet), made.out, as_json=as_json, quiet=quiet)


def _print_run(run: "Callable[[], Pretrained]", out: Path, *, as_json: bool, quiet: bool) -> None:
    """Train, and print what came of it; in the first process alone where there are many."""
    try:
        done = run()
    except KeyboardInterrupt as stop:
        if first_process():
            print(f"interrupted: {_left_behind(stop, out)}", file=sys.stderr)
        raise typer.Exit(130) from None
    if not first_process():
        return
    if as_json:
        print(json.dumps(asdict(done), default=str))
    elif not quiet:
        loss = f", loss {done.loss:.3f}" if done.loss is not None else ""
        print(f"trained   {done.steps:,} steps, {done.tokens:,} tokens{loss}")
        for key, value in (done.held_out or {}).items():
            print(f"held out  {key} {value:,.4g}" if isinstance(value, float) else f"held out  {key} {value}")
        print(f"{'wrote' if done.new else 'kept':<9} {done.folder}")


def _left_behind(stop: KeyboardInterrupt, out: Path) -> str:
    """What an interrupted run has left in its folder, and what to do."""
    from lexome.training.session import STATES
    from lexome.training.state import saved

    if not str(stop) and not saved(out / STATES):
        return "nothing was saved yet. Run the same command again to begin anew."
    return f"{str(stop) or f'the last state in {out} stays.'} Run the same command again to go on."


def first_process() -> bool:
    """True where torchrun did not start this process, or started it as the first: that one speaks for all."""
    return os.environ.get("RANK", "0") == "0"


@app.command()
def finetune(recipe: RecipePath, set_: Overrides = None, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """A checkpoint and a task into fine-tuned models.

    One for each setting of a grid, seed and fold; each run is kept.
    """
    from lexome.recipe import load
    from lexome.recipe.finetune import FinetuneRecipe

    made = load(recipe, FinetuneRecipe, overrides=set_ or [])
    with needs("train", purpose="fine-tuning"):
        from lexome.training.finetune.grid import table_of
        from lexome.training.finetune.stage import finetune as run
    try:
        done = run(made, progress_shown=not quiet)
    except KeyboardInterrupt:
        print(f"interrupted: finished runs in {made.out} stay. Run the same command again to go on.", file=sys.stderr)
        raise typer.Exit(130) from None
    if as_json:
        print(json.dumps({**asdict(done.summary), "folder": str(done.folder), "model": done.model and str(done.model)}))
    elif not quiet:
        print(table_of(done.summary), end="")
        print(f"wrote     {done.model or done.folder}")


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
        from lexome.export.acceptance import CERTIFICATE, bar
        from lexome.export.export import Judging
        from lexome.export.export import export as run
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
        _print_export(settings, certificate)
        print(f"wrote     {folder}")


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _silent(line: str) -> None:
    pass


def _print_export(settings: "Settings", certificate: Mapping[str, Any] | None) -> None:
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
