"""`lexome pretrain`, `distill`, `finetune` and `export`: from token shards to encoders, task models and ONNX."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lexome.cli.options import AsJson, DataPath, Overrides, Quiet, RecipePath, app, interruptible
from lexome.errors import needs

if TYPE_CHECKING:
    from lexome.infer.predictor import ModelSettings
    from lexome.training.pretrain import Pretrained


@app.command()
def pretrain(recipe: RecipePath, set_: Overrides = None, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Pre-train an encoder on token shards.

    Masked language modeling, from random weights or from a checkpoint (continued pre-training). Writes a checkpoint in
    Hugging Face format; an interrupted run resumes bit-exactly.
    """
    from lexome.recipe import load
    from lexome.recipe.pretrain import PretrainRecipe

    loaded = load(recipe, PretrainRecipe, overrides=set_ or [])
    with needs("train", purpose="pre-training"):
        from lexome.training.pretrain import pretrain as run
    _print_run(lambda: run(loaded, progress_shown=not quiet), loaded.out, as_json=as_json, quiet=quiet)


@app.command()
def distill(recipe: RecipePath, set_: Overrides = None, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Distill an encoder into a smaller one.

    Knowledge distillation: masked language modeling with a larger teacher. With `control = true`, trains the same
    student for the same length without the teacher.
    """
    from lexome.recipe import load
    from lexome.recipe.pretrain import DistillRecipe

    loaded = load(recipe, DistillRecipe, overrides=set_ or [])
    with needs("train", purpose="distillation"):
        from lexome.training.pretrain import distill as run
    _print_run(lambda: run(loaded, progress_shown=not quiet), loaded.out, as_json=as_json, quiet=quiet)


def _print_run(run: "Callable[[], Pretrained]", out: Path, *, as_json: bool, quiet: bool) -> None:
    """Train and print a summary, under torchrun in the first process only."""
    try:
        done = run()
    except KeyboardInterrupt as stop:
        if first_process():
            print(f"interrupted: {_saved_state(stop, out)}", file=sys.stderr)
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


def first_process() -> bool:
    """True if torchrun did not start this process, or started it as the first, which prints for all."""
    return os.environ.get("RANK", "0") == "0"


def _saved_state(stop: KeyboardInterrupt, out: Path) -> str:
    """A message on what an interrupted run has saved, and what to do."""
    from lexome.training.trainer import STATES, list_states

    if not str(stop) and not list_states(out / STATES):
        return "nothing was saved yet. Run the same command to start again."
    return f"{str(stop) or f'the last training state in {out} is kept.'} Run the same command to resume."


@app.command()
def finetune(recipe: RecipePath, set_: Overrides = None, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Fine-tune a checkpoint on a task.

    Runs every combination of the hyper-parameter grid, seeds and folds, keeps each run, and summarizes the scores.
    """
    from lexome.recipe import load
    from lexome.recipe.finetune import FinetuneRecipe

    loaded = load(recipe, FinetuneRecipe, overrides=set_ or [])
    with needs("train", purpose="fine-tuning"):
        from lexome.training.finetune.stage import finetune as run
        from lexome.training.finetune.stage import table_of
    try:
        done = run(loaded, progress_shown=not quiet)
    except KeyboardInterrupt as stop:
        if first_process():
            kept = str(stop) or f"finished runs and saved training states in {loaded.out} are kept."
            print(f"interrupted: {kept} Run the same command to resume.", file=sys.stderr)
        raise typer.Exit(130) from None
    if not first_process():
        return
    if as_json:
        print(json.dumps({**asdict(done.summary), "folder": str(done.folder), "model": done.model and str(done.model)}))
    elif not quiet:
        print(table_of(done.summary), end="")
        print(f"wrote     {done.model or done.folder}")
    if failed := len(done.summary.failed):
        count = failed + sum(len(row.runs) for row in done.summary.rows)
        message = f"error: {failed} of {count} runs failed; the others are done. summary.json has the reasons."
        print(message, file=sys.stderr)
        raise typer.Exit(1)


@app.command()
def export(
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="Checkpoint folder in Hugging Face format.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder to write.")],
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind", metavar="KIND", help="masked, encoder, token, sequence or span. Default: the checkpoint's."
        ),
    ] = None,
    precision: Annotated[
        str, typer.Option(metavar="fp32|int8", help="int8: quantize the model, smaller and faster.")
    ] = "fp32",
    held_out: Annotated[
        list[str] | None,
        typer.Option(metavar="SET|PATH", help="Held-out dataset, folder or file to evaluate on; repeatable."),
    ] = None,
    split: Annotated[str, typer.Option(metavar="NAME", help="Held-out split of datasets and folders.")] = "dev",
    data: DataPath = None,
    agreement: Annotated[
        float | None,
        typer.Option(metavar="FRACTION", help="Minimum agreement of int8 and fp32 predictions. Default: 0.995."),
    ] = None,
    difference: Annotated[
        float | None,
        typer.Option(metavar="FRACTION", help="Maximum difference between int8 and fp32 scores. Default: 0.001."),
    ] = None,
    relax_thresholds: Annotated[
        bool,
        typer.Option("--relax-thresholds", help="Allow thresholds below the defaults; the certificate records it."),
    ] = False,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Name of the model. Default: the folder's name.")
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Export a checkpoint to ONNX, to run without torch.

    The folder is written only if outputs of onnxruntime and torch differ by at most 1e-4. With --held-out, mention
    scores are calibrated on these documents, and certificate.json records what was measured; int8 is rejected unless
    its predictions agree with fp32.
    """
    with needs("train", purpose="exporting"):
        from lexome.export.export import export as run
        from lexome.export.int8 import CERTIFICATE, HeldOutEvaluation, Thresholds
    thresholds = Thresholds.checked(agreement=agreement, difference=difference, relax=relax_thresholds)
    evaluation = HeldOutEvaluation(tuple(held_out), split, data, thresholds) if held_out else None

    def log(line: str) -> None:
        if not quiet:
            print(line, file=sys.stderr, flush=True)

    with interruptible(folder):
        settings = run(checkpoint, folder, kind=kind, precision=precision, evaluation=evaluation, name=name, log=log)
    certificate = json.loads((folder / CERTIFICATE).read_bytes()) if evaluation else None
    if as_json:
        print(json.dumps({**asdict(settings), "certificate": certificate}, ensure_ascii=False))
    elif not quiet:
        _print_export(settings, certificate)
        print(f"wrote      {folder}")


def _print_export(settings: "ModelSettings", certificate: Mapping[str, Any] | None) -> None:
    print(f"exported   {settings.source['architecture']}, {settings.kind}, up to {settings.max_tokens:,} tokens")
    print(f"parity     outputs of torch and onnxruntime differ by at most {settings.difference:.2g}")
    if certificate is None:
        return
    score = certificate["score"]
    documents = sum(part["documents"] for part in certificate["held_out"])
    line = f"evaluated  {score['measure']} {100 * score['value']:.2f} on {documents:,} documents"
    if "agreement" in certificate:
        agreement = 100 * certificate["agreement"]["value"]
        print(f"{line} (fp32: {100 * score['fp32']['value']:.2f}), agreement with fp32 {agreement:.2f}%")
        kept, size = len(certificate["left_in_fp32"]), certificate["bytes"]
        weights = f", {kept} weights left in fp32" if kept else ""
        print(f"int8       {size['int8'] / 1e6:,.1f} MB instead of {size['fp32'] / 1e6:,.1f} MB{weights}")
    else:
        print(line)
    for type_, curve in certificate.get("calibration", {}).items():
        before, after = curve["ece_before"], curve["ece_after"]
        print(f"calibrated {type_}: calibration error {before:.3f} before, {after:.3f} after")
