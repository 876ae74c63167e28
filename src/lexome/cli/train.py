"""`lexome pretrain`: token shards into an encoder."""

import json
import sys
from dataclasses import asdict

import typer

from lexome.cli.app import AsJson, Quiet, app, needs
from lexome.cli.corpus import Overrides, RecipePath


@app.command()
def pretrain(recipe: RecipePath, set_: Overrides = None, as_json: AsJson = False, quiet: Quiet = False) -> None:
    """Token shards and an encoder, new or trained before, into a checkpoint folder in Hugging Face's form."""
    from lexome.recipe import load
    from lexome.recipe.pretrain import PretrainRecipe

    made = load(recipe, PretrainRecipe, overrides=set_ or [])
    with needs("train", purpose="pre-training"):
        from lexome.train.pretrain import pretrain as run
    try:
        done = run(made, progress_shown=not quiet)
    except KeyboardInterrupt:
        print(f"interrupted: the last state in {made.out} stays. Run the same command again to go on.", file=sys.stderr)
        raise typer.Exit(130) from None
    if as_json:
        print(json.dumps(asdict(done), default=str))
    elif not quiet:
        loss = f", loss {done.loss:.3f}" if done.loss is not None else ""
        print(f"trained   {done.steps:,} steps, {done.tokens:,} tokens{loss}")
        for key, value in (done.held_out or {}).items():
            print(f"held out  {key} {value:,.4g}" if isinstance(value, float) else f"held out  {key} {value}")
        print(f"{'wrote' if done.new else 'kept':<9} {done.folder}")
