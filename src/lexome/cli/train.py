"""`lexome pretrain` and `lexome distill`: token shards into an encoder."""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from lexome.cli.app import AsJson, Overrides, Quiet, RecipePath, app, needs

if TYPE_CHECKING:
    from lexome.train.pretrain import Pretrained


@app.command()
def pretrain(recipe: RecipePath, set_: Overrides = None, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Token shards into an encoder, new or trained before.

    The outcome is a checkpoint folder in Hugging Face's form.
    """
    from lexome.recipe import load
    from lexome.recipe.pretrain import PretrainRecipe

    made = load(recipe, PretrainRecipe, overrides=set_ or [])
    with needs("train", purpose="pre-training"):
        from lexome.train.pretrain import pretrain as run
    _report(lambda: run(made, progress_shown=not quiet), made.out, as_json=as_json, quiet=quiet)


@app.command()
def distill(recipe: RecipePath, set_: Overrides = None, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Token shards and a teacher into a smaller encoder.

    Or the control: the same student trained as long without the teacher.
    """
    from lexome.recipe import load
    from lexome.recipe.distill import DistillRecipe

    made = load(recipe, DistillRecipe, overrides=set_ or [])
    with needs("train", purpose="distillation"):
        from lexome.train.distill import distill as run
    _report(lambda: run(made, progress_shown=not quiet), made.out, as_json=as_json, quiet=quiet)


def _report(run: "Callable[[], Pretrained]", out: Path, *, as_json: bool, quiet: bool) -> None:
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
    from lexome.train.session import STATES
    from lexome.train.state import saved

    if not str(stop) and not saved(out / STATES):
        return "nothing was saved yet. Run the same command again to begin anew."
    return f"{str(stop) or f'the last state in {out} stays.'} Run the same command again to go on."


def first_process() -> bool:
    """True where torchrun did not start this process, or started it as the first: that one speaks for all."""
    return os.environ.get("RANK", "0") == "0"
