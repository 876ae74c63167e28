"""`lexome evaluate`: predictions beside gold, every measure at once."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lexome.cli.app import AsJson, app
from lexome.errors import UsageError

if TYPE_CHECKING:
    from lexome.tasks.evaluation.evaluate import Reading


@app.command()
def evaluate(
    found: Annotated[Path, typer.Argument(metavar="PRED", help="Predicted documents: a file, folder or archive.")],
    gold: Annotated[Path, typer.Argument(metavar="GOLD", help="Gold documents, of the same ids and texts.")],
    against: Annotated[
        Path | None, typer.Option(metavar="OTHER", help="Another system's predictions, to be tested against PRED.")
    ] = None,
    explain: Annotated[int, typer.Option(metavar="N", min=0, help="Show N examples of each kind of difference.")] = 0,
    only: Annotated[
        list[str] | None, typer.Option(metavar="TYPE", help="Count this type or label alone; may be repeated.")
    ] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="FORMAT", help="The format of PRED and OTHER, and of GOLD.")
    ] = None,
    gold_from: Annotated[str | None, typer.Option(metavar="FORMAT", help="The format of GOLD, if it differs.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="An option of a format; pred.KEY or gold.KEY says whose."),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="How often documents are resampled.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Where the random numbers begin.")] = 0,
    types: Annotated[bool, typer.Option("--types/--no-types", help="A line for each type.")] = True,
    as_json: AsJson = False,
) -> None:
    """Score predicted documents against gold ones.

    All measures that fit them stand side by side, with intervals. Documents are matched by id and must have the same
    text. Mentions are scored strictly, by overlap, without types and by character; where there are tokens, as conlleval
    and seqeval score them; relations, labels and answers are scored where they are. Scores are percent. Intervals are
    from documents drawn with replacement.
    """
    from lexome.tasks.evaluation.comparison import Draws
    from lexome.tasks.evaluation.evaluate import as_json as plain
    from lexome.tasks.evaluation.evaluate import evaluate as run
    from lexome.tasks.evaluation.evaluate import lines

    result = run(
        found,
        gold,
        against=against,
        reading=_reading(from_, set_ or [], "pred"),
        gold_reading=_reading(gold_from or from_, set_ or [], "gold"),
        only=only or None,
        draws=Draws(samples=samples, seed=seed),
    )
    if as_json:
        print(json.dumps(plain(result, explain=explain), ensure_ascii=False))
        return
    for line in lines(result, explain=explain, types=types):
        print(line)


def _reading(format: str | None, pairs: list[str], whose: str) -> "Reading":
    """How a file is read: the options that have no prefix, and those with this one."""
    from lexome.tasks.evaluation.evaluate import Reading

    options: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals):
            raise UsageError(f"--set {pair!r}: expected KEY=VALUE, for example --set gold.type=Gene")
        owner, dot, name = key.partition(".")
        if not dot:
            options[key] = value
        elif owner not in ("pred", "gold"):
            raise UsageError(f"--set {pair!r}: options are of pred. or gold., not of {owner!r}.")
        elif owner == whose:
            options[name] = value
    return Reading(format, options)
