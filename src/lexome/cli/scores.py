"""`lexome evaluate`, `reproduce` and `report`: scores of predictions, of a paper's experiments, and tables of them."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lexome.cli.options import AsJson, DataPath, Quiet, app, interruptible, nonempty_path, parse_options, print_line
from lexome.errors import UsageError, needs

if TYPE_CHECKING:
    from lexome.reproduce.aggregate import StudyResult
    from lexome.tasks.evaluation.scoring import ReadOptions


@app.command()
def evaluate(
    predicted: Annotated[
        Path,
        typer.Argument(parser=nonempty_path, metavar="PRED", help="Predicted documents: a file, folder or archive."),
    ],
    gold: Annotated[
        Path, typer.Argument(parser=nonempty_path, metavar="GOLD", help="Gold documents, with the same ids and texts.")
    ],
    against: Annotated[
        Path | None,
        typer.Option(metavar="OTHER", help="Predictions of another system, for a significance test against PRED."),
    ] = None,
    explain: Annotated[int, typer.Option(metavar="N", min=0, help="Show N examples of each kind of error.")] = 0,
    only: Annotated[
        list[str] | None, typer.Option(metavar="TYPE", help="Score only this type or label; repeatable.")
    ] = None,
    relations: Annotated[
        bool, typer.Option("--relations/--no-relations", help="Also score relations, if there are any.")
    ] = True,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="FORMAT", help="Format of PRED, OTHER and GOLD. Default: detected.")
    ] = None,
    gold_from: Annotated[str | None, typer.Option(metavar="FORMAT", help="Format of GOLD, if it differs.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set a format option; pred.KEY or gold.KEY for one side only."),
    ] = None,
    samples: Annotated[int, typer.Option(metavar="N", min=1, help="Number of bootstrap samples.")] = 1000,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Random seed of the bootstrap.")] = 0,
    types: Annotated[bool, typer.Option("--types/--no-types", help="Also print scores for each type.")] = True,
    as_json: AsJson = False,
) -> None:
    """Score predictions against gold annotations.

    Prints all applicable metrics, in percent, with 95% bootstrap intervals over documents. Documents are matched by id
    and must have the same text. Mentions are scored by exact match, by overlap, ignoring types and by character, and,
    if there are tokens, with conlleval and seqeval; concepts, relations, labels and answers are scored if there are
    any.
    """
    from lexome.tasks.evaluation.comparison import Resampling
    from lexome.tasks.evaluation.scoring import as_json as plain
    from lexome.tasks.evaluation.scoring import evaluate as run
    from lexome.tasks.evaluation.scoring import lines

    result = run(
        predicted,
        gold,
        against=against,
        options=_reading(from_, set_, "pred"),
        gold_options=_reading(gold_from or from_, set_, "gold"),
        only=only or None,
        relations=relations,
        resampling=Resampling(samples=samples, seed=seed),
    )
    if as_json:
        print(json.dumps(plain(result, explain=explain), ensure_ascii=False))
        return
    for line in lines(result, explain=explain, types=types):
        print_line(line)


def _reading(format: str | None, pairs: list[str] | None, side: str) -> "ReadOptions":
    """The format options of one side: those without a prefix, and those with its own."""
    from lexome.tasks.evaluation.scoring import ReadOptions

    options: dict[str, str] = {}
    for key, value in parse_options(pairs, example="gold.type=Gene").items():
        owner, dot, name = key.partition(".")
        if dot and owner not in ("pred", "gold"):
            message = f"--set {key}={value}: unknown prefix {owner!r}; expected pred. or gold."
            raise UsageError(message, code="unknown-prefix", value=owner)
        if not dot or owner == side:
            options[name or key] = value
    return ReadOptions(format, options)


STUDY_HELP = "Name of a study, such as fang2023, or a TOML file."
MODEL_HELP = "Checkpoint to evaluate; repeatable. Name it after one of the paper's models to compare with that."
RUN_HELP = "Output folder of `lexome pretrain`: evaluate each checkpoint it kept (log.checkpoint_steps), named by step."
OUT_HELP = "Folder for runs and tables. Default: reproduced/STUDY."
QUICK_HELP = "One seed, the first point of each grid, one fold, early stopping; every output says so."


@app.command()
def reproduce(
    study: Annotated[str, typer.Argument(metavar="STUDY", help=STUDY_HELP)],
    model: Annotated[list[str] | None, typer.Option("--model", "-m", metavar="[NAME=]FOLDER", help=MODEL_HELP)] = None,
    run_: Annotated[Path | None, typer.Option("--run", metavar="FOLDER", help=RUN_HELP)] = None,
    data: DataPath = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="TASK|SET", help="Run only this task or dataset; repeatable.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FOLDER", help=OUT_HELP)] = None,
    jobs: Annotated[
        int, typer.Option(metavar="N", min=1, help="Number of tasks to run in parallel on one device.")
    ] = 1,
    device: Annotated[str, typer.Option("--device", metavar="auto|cpu|cuda", help="Device to train on.")] = "auto",
    quick: Annotated[bool, typer.Option(help=QUICK_HELP)] = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a fine-tuning key of every task; KEY= removes it."),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Reproduce a paper's experiments with other models.

    Fine-tunes every model on the paper's tasks with its protocol, aggregates scores as the paper does, and prints them
    beside the paper's values and the range between labs. Finished runs are not repeated.
    """
    from lexome.recipe import overrides_of
    from lexome.recipe.study import open_study

    opened = open_study(study)
    models = named_models(model or []) | (checkpoints_of_run(run_) if run_ is not None else {})
    if not models:
        message = "no models; expected --model FOLDER, or --run with the output folder of `lexome pretrain`."
        raise UsageError(message, code="no-models")
    with needs("train", purpose="reproducing a study"):
        from lexome.reproduce.reproduce import StudyOptions
        from lexome.reproduce.reproduce import reproduce as run
        from lexome.reproduce.tables import STUDY, read_result, text_table, write_result
    folder = out if out is not None else Path("reproduced") / opened.name
    overrides = overrides_of(set_ or ())
    options = StudyOptions(folder, data, tuple(only or ()), quick, jobs, device, overrides, progress_shown=not quiet)
    earlier = read_result(folder / STUDY).scores if (folder / STUDY).is_file() else 0

    def write(result: "StudyResult") -> None:
        # If a second run fails midway, the table of the first remains.
        if result.scores >= earlier:
            write_result(result, folder)

    with interruptible(folder, kept="finished runs"):
        result = run(opened, models, options, on_update=write)
    files = write_result(result, folder)
    if as_json:
        print(json.dumps(result.model_dump(mode="json"), ensure_ascii=False))
    elif not quiet:
        print(text_table(result), end="")
        print(f"wrote     {', '.join(map(str, files))}")
    if any(lost.model is not None for lost in result.missing):
        print("error: some tasks failed; the table lists them with the reason.", file=sys.stderr)
        raise typer.Exit(1)


@app.command()
def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER", help="Output of reproduce or finetune: folders or JSON files.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Folder for tables and plots.")] = Path("report"),
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write tables and plots of studies and fine-tuning runs.

    Reads the JSON that `reproduce` and `finetune` wrote; models of the same study share a table.
    """
    with needs("train", purpose="a report"):
        from lexome.reproduce.tables import report as run
    done = run(folders, out)
    if as_json:
        print(json.dumps({"files": [str(path) for path in done.files], "finetunings": done.finetunings}))
    elif not quiet:
        print(f"reported  {len(done.studies)} studies, {done.finetunings} fine-tunings")
        print(f"wrote     {out}")


def named_models(options: list[str]) -> dict[str, Path]:
    """Checkpoints by name, from NAME=FOLDER or a folder, whose name is its last part."""
    models: dict[str, Path] = {}
    for option in options:
        name, equals, folder = option.partition("=")
        path = Path(folder) if equals else Path(option)
        name = name if equals else path.resolve().name
        if not name or not str(path) or "/" in name:
            message = f"--model {option!r}: expected FOLDER, or NAME=FOLDER with a NAME without slashes."
            raise UsageError(message, code="invalid-model", value=option)
        if name in models:
            message = f"--model: two models have the name {name!r}; expected different names. Use NAME=FOLDER."
            raise UsageError(message, code="duplicate-model", value=name)
        if not path.exists():
            message = f"--model {option!r}: no such folder; expected a checkpoint."
            raise UsageError(message, code="missing-file", value=str(path))
        models[name] = path
    return models


def checkpoints_of_run(run: Path) -> dict[str, Path]:
    """The checkpoints that a pre-training run kept, by step, the earliest first."""
    checkpoints = {path.name.removeprefix("step-"): path for path in run.glob("models/step-*") if path.is_dir()}
    if not checkpoints:
        message = f"--run {run}: has no checkpoints models/step-N. Pre-train with log.checkpoint_steps = [1000, 10000]."
        raise UsageError(message, code="no-checkpoints", value=str(run))
    return {steps: checkpoints[steps] for steps in sorted(checkpoints, key=int)}
