"""`lexome finetune`: a checkpoint and a task into fine-tuned models."""

import json
import sys
from dataclasses import asdict

import typer

from lexome.cli.app import AsJson, Overrides, Quiet, RecipePath, app, needs


@app.command()
def finetune(recipe: RecipePath, set_: Overrides = None, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """A checkpoint and a task into fine-tuned models.

    One for each setting of a grid, seed and fold; each run is kept.
    """
    from lexome.recipe import load
    from lexome.recipe.finetune import FinetuneRecipe

    made = load(recipe, FinetuneRecipe, overrides=set_ or [])
    with needs("train", purpose="fine-tuning"):
        from lexome.train.finetune.stage import finetune as run
        from lexome.train.finetune.summary import table_of
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
