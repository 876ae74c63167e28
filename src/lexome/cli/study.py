"""`lexome reproduce` and `lexome report`: a paper's experiments again, and tables of what was found."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lexome.cli.app import AsJson, Quiet, app, needs
from lexome.errors import UsageError

if TYPE_CHECKING:
    from lexome.reproduce.result import Outcome

STUDY_HELP = "A study's name, such as fang2023, or its TOML file."
MODEL_HELP = "A checkpoint; again for more. One with a name of the paper's is compared with it."
RUN_HELP = "A pre-training's folder: each model that it kept (log.models) is one, named by its steps."
DATA_HELP = "Where the sets are. Default: LEXOME_DATA, else ./data."
OUT_HELP = "Where runs and tables go. Default: reproduced/STUDY."
QUICK_HELP = "One seed, the first point of each grid, one fold, an early end; every output says so."


@app.command()
def reproduce(
    study: Annotated[str, typer.Argument(metavar="STUDY", help=STUDY_HELP)],
    model: Annotated[list[str] | None, typer.Option("--model", "-m", metavar="[NAME=]FOLDER", help=MODEL_HELP)] = None,
    run_: Annotated[Path | None, typer.Option("--run", metavar="FOLDER", help=RUN_HELP)] = None,
    data: Annotated[Path | None, typer.Option("--data", metavar="FOLDER", help=DATA_HELP)] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="TASK|SET", help="Only this task or set; again for more.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FOLDER", help=OUT_HELP)] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Tasks at a time on one device.")] = 1,
    device: Annotated[
        str, typer.Option("--device", metavar="auto|cpu|cuda", help="Where models are trained.")
    ] = "auto",
    quick: Annotated[bool, typer.Option(help=QUICK_HELP)] = False,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A key of every fine-tuning's recipe.")
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Run a paper's experiments with other models.

    Tasks, protocol and aggregation are the paper's; ours stand beside its numbers, and beside the range between labs.
    """
    from lexome.recipe import overrides_of
    from lexome.recipe.study import open_study

    opened = open_study(study)
    models = named_models(model or []) | (kept_models(run_) if run_ is not None else {})
    if not models:
        raise UsageError("no model was named; expected --model FOLDER, or --run with a pre-training's folder.")
    with needs("train", purpose="reproducing a study"):
        from lexome.reproduce.reproduce import Wish
        from lexome.reproduce.reproduce import reproduce as run
        from lexome.reproduce.tables import text, write_outcome
    folder = out if out is not None else Path("reproduced") / opened.name
    wish = Wish(folder, data, tuple(only or ()), quick, jobs, device, overrides_of(set_ or ()), not quiet)

    def write(outcome: "Outcome") -> None:
        write_outcome(outcome, folder)

    try:
        done = run(opened, models, wish, follow=write)
    except KeyboardInterrupt:
        print(f"interrupted: finished runs in {folder} stay. Run the same command again to go on.", file=sys.stderr)
        raise typer.Exit(130) from None
    written = write_outcome(done, folder)
    if as_json:
        print(json.dumps(done.model_dump(mode="json"), ensure_ascii=False))
    elif not quiet:
        print(text(done), end="")
        print(f"wrote     {', '.join(map(str, written))}")
    if any(lost.model is not None for lost in done.missing):
        print("error: some tasks failed; the table says which and why.", file=sys.stderr)
        raise typer.Exit(1)


@app.command()
def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER...", help="Folders that reproduce or finetune wrote, or JSON files.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where the tables and pictures go.")] = Path(
        "report"
    ),
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Tables and pictures of studies and fine-tunings.

    They are made of the JSON that these wrote; models of one study are in one table.
    """
    with needs("train", purpose="a report"):
        from lexome.reproduce.tables import report as run
    done = run(folders, out)
    if as_json:
        print(json.dumps({"files": [str(path) for path in done.files], "finetunings": done.finetunings}))
    elif not quiet:
        print(f"reported  {len(done.studies)} studies, {done.finetunings} fine-tunings")
        print(f"wrote     {out}")


def named_models(given: list[str]) -> dict[str, Path]:
    """Checkpoints by name, from NAME=FOLDER or a folder alone, which is called by its last part."""
    models: dict[str, Path] = {}
    for one in given:
        name, equals, folder = one.partition("=")
        path = Path(folder) if equals else Path(one)
        name = name if equals else path.resolve().name
        if not name or not str(path) or "/" in name:
            raise UsageError(f"--model {one!r}: expected a folder, or NAME=FOLDER with a name that can be a folder's.")
        if name in models:
            raise UsageError(f"--model: two models are called {name!r}; expected different names. Use NAME=FOLDER.")
        if not path.exists():
            raise UsageError(f"--model {one!r}: there is no {path}. Name a checkpoint folder.")
        models[name] = path
    return models


def kept_models(run: Path) -> dict[str, Path]:
    """The models that a pre-training kept, by their steps, the least trained first."""
    found = {path.name.removeprefix("step-"): path for path in run.glob("models/step-*") if path.is_dir()}
    if not found:
        raise UsageError(f"--run {run}: there is no models/step-N in it. Pre-train with log.models = [1000, 10000].")
    return {steps: found[steps] for steps in sorted(found, key=int)}
