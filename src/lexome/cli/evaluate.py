"""`lexome evaluate`: score predictions against gold annotations with every applicable metric."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lexome.cli.app import AsJson, app, parse_options
from lexome.errors import UsageError

if TYPE_CHECKING:
    from lexome.tasks.evaluation.evaluate import ReadOptions


@app.command()
def evaluate(
    predicted: Annotated[Path, typer.Argument(metavar="PRED", help="Predicted documents: a file, folder or archive.")],
    gold: Annotated[Path, typer.Argument(metavar="GOLD", help="Gold documents, with the same ids and texts.")],
    against: Annotated[
        Path | None,
        typer.Option(metavar="OTHER", help="Predictions of another system, for a significance test against PRED."),
    ] = None,
    explain: Annotated[int, typer.Option(metavar="N", min=0, help="Show N examples of each kind of error.")] = 0,
    only: Annotated[
        list[str] | None, typer.Option(metavar="TYPE", help="Score only this type or label; repeatable.")
    ] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="FORMAT", help="Format of PRED, OTHER and GOLD. Default: detected.")
    ] = None,
    gold_from: Annotated[str | None, typer.Option(metavar="FORMAT", help="Format of GOLD, if it differs.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Set a format option; pred.KEY or gold.KEY for one side only."),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Number of bootstrap samples.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the bootstrap.")] = 0,
    types: Annotated[bool, typer.Option("--types/--no-types", help="Also print scores for each type.")] = True,
    as_json: AsJson = False,
) -> None:
    """Score predictions against gold annotations.

    Prints all applicable metrics, in percent, with 95% bootstrap intervals over documents. Documents are matched by id
    and must have the same text. Mentions are scored by exact match, by overlap, without types and by character, and
    with tokens also as conlleval and seqeval do; relations, labels and answers are scored if the documents have them.
    """
    from lexome.tasks.evaluation.comparison import Resampling
    from lexome.tasks.evaluation.evaluate import as_json as plain
    from lexome.tasks.evaluation.evaluate import evaluate as run
    from lexome.tasks.evaluation.evaluate import lines

    result = run(
        predicted,
        gold,
        against=against,
        options=_reading(from_, set_, "pred"),
        gold_options=_reading(gold_from or from_, set_, "gold"),
        only=only or None,
        resampling=Resampling(samples=samples, seed=seed),
    )
    if as_json:
        print(json.dumps(plain(result, explain=explain), ensure_ascii=False))
        return
    for line in lines(result, explain=explain, types=types):
        print(line)


def _reading(format: str | None, pairs: list[str] | None, side: str) -> "ReadOptions":
    """The format options of one side: those without a prefix, and those with its own."""
    from lexome.tasks.evaluation.evaluate import ReadOptions

    options: dict[str, str] = {}
    for key, value in parse_options(pairs, example="gold.type=Gene").items():
        owner, dot, name = key.partition(".")
        if dot and owner not in ("pred", "gold"):
            message = f"--set {key}={value}: unknown prefix {owner!r}; expected pred. or gold."
            raise UsageError(message, code="unknown-prefix", value=owner)
        if not dot or owner == side:
            options[name or key] = value
    return ReadOptions(format, options)
