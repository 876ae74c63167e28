"""Several runs at a time on one device, each in a process of its own."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from lexome.errors import LexomeError
from lexome.recipe.finetune import FinetuneRecipe
from lexome.train.finetune.ground import Ground, ground_of
from lexome.train.finetune.record import Facts
from lexome.train.finetune.run import carry_out
from lexome.train.finetune.runs import RUNS, Run, settled
from lexome.train.processes import in_processes

Ended = tuple[Run, Facts | None, str | None]
"""A run with what it came to, or with why it came to nothing."""

# In a worker: what its runs stand on, made when it starts.
_ground: list[Ground] = []


def runs_in_processes(recipe: FinetuneRecipe, runs: Sequence[Run], *, tokenizer: Path, test: bool) -> Iterator[Ended]:
    """Carry runs out, as many at a time as the recipe has jobs; each is given when it ends.

    Every process reads the documents once.
    """
    given = [(recipe, run, test) for run in runs]
    begin = (_begin, (recipe, tokenizer))
    yield from in_processes(_work, given, jobs=recipe.jobs, what="fine-tuning", begin=begin)


def _begin(recipe: FinetuneRecipe, tokenizer: Path) -> None:
    _ground.append(ground_of(recipe, tokenizer))


def _work(given: tuple[FinetuneRecipe, Run, bool]) -> Ended:
    recipe, run, test = given
    try:
        folder = recipe.out / RUNS / run.name
        return run, carry_out(settled(recipe, run), run, _ground[0], folder, test=test), None
    except LexomeError as error:
        return run, None, str(error)
