"""finetune: a checkpoint and a task into a folder of runs, one model each, with a summary of what they came to."""

import multiprocessing
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from lexome.errors import DivergedError, LexomeError, RecipeError, WorkerError
from lexome.files import usable_cores
from lexome.recipe.finetune import FinetuneRecipe
from lexome.training.finetune.examples import folds_of, sources_of
from lexome.training.finetune.grid import (
    MODEL,
    RUNS,
    Cell,
    Facts,
    Run,
    Summary,
    cell_of,
    cells_of,
    runs_of,
    settled,
    summary_of,
    write_summary,
)
from lexome.training.finetune.run import Ground, Show, carry_out, drop_model, ground_of, grounded, score_later
from lexome.training.journal import training_progress

Given = TypeVar("Given")
Result = TypeVar("Result")
Begin = tuple[Callable[..., None], tuple[Any, ...]]
"""What each process does first: a function that a module has, and what it is given."""


def in_processes(
    work: Callable[[Given], Result], given: Sequence[Given], *, jobs: int, what: str, begin: Begin | None = None
) -> Iterator[Result]:
    """What a function that a module has comes to for each of these, as they end, up to `jobs` at a time."""
    count = min(jobs, len(given))
    threads = max(1, usable_cores() // count)
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(count, context, initializer=_begin, initargs=(threads, begin))
    try:
        for ended in as_completed([pool.submit(work, one) for one in given]):
            yield ended.result()
    except (KeyboardInterrupt, GeneratorExit):
        # What is running would go on for minutes.
        _end(pool)
        raise
    except BrokenProcessPool:
        raise WorkerError(
            f"a process of {what} ended without a word; most often memory was short. Lower jobs, and run again: "
            "finished runs are kept."
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(threads: int, begin: Begin | None) -> None:
    # Ctrl-C reaches every process of the terminal; the first one decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    if begin is not None:
        function, given = begin
        function(*given)


def _end(pool: ProcessPoolExecutor) -> None:
    """Stop the processes of a pool; the library has no way of its own before Python 3.14."""
    for process in list((pool._processes or {}).values()):
        process.terminate()


Ended = tuple[Run, Facts | None, str | None]
"""A run with what it came to, or with why it came to nothing."""

# In a worker: what its runs stand on, made when it starts.
_ground: list[Ground] = []


def runs_in_processes(recipe: FinetuneRecipe, runs: Sequence[Run], *, tokenizer: Path, test: bool) -> Iterator[Ended]:
    """Carry runs out, as many at a time as the recipe has jobs; each is given when it ends.

    Every process reads the documents once.
    """
    given = [(recipe, run, test) for run in runs]
    begin = (_begin_run, (recipe, tokenizer))
    yield from in_processes(_work, given, jobs=recipe.jobs, what="fine-tuning", begin=begin)


def _begin_run(recipe: FinetuneRecipe, tokenizer: Path) -> None:
    _ground.append(ground_of(recipe, tokenizer))


def _work(given: tuple[FinetuneRecipe, Run, bool]) -> Ended:
    recipe, run, test = given
    try:
        folder = recipe.out / RUNS / run.name
        return run, carry_out(settled(recipe, run), run, _ground[0], folder, test=test), None
    except LexomeError as error:
        return run, None, str(error)


@dataclass(frozen=True, slots=True)
class Finetuned:
    """What a recipe came to: its folder, the summary of all runs, and the best one's model where it was kept."""

    folder: Path
    summary: Summary
    model: Path | None


def finetune(recipe: FinetuneRecipe, *, progress_shown: bool = True) -> Finetuned:
    """Do every run of a recipe that is not done yet, choose, score test where asked, and write the summary.

    A run whose run.json is there is not repeated; one that was cut short goes on from its last saved state. A run that
    diverges is named in the summary, and the others go on; where all fail, the first one's error is raised.
    """
    _check(recipe)
    with grounded(recipe) as ground, training_progress("finetune", shown=progress_shown) as show:
        found, failed = _all_runs(recipe, ground, show)
        if not found:
            name, reason = next(iter(failed.items()))
            raise DivergedError(f"no run finished. {name}: {reason}", code="no-finished-run", value=name)
        summary = summary_of(found, failed)
        found = _tested(recipe, ground, found, summary)
        summary = summary_of(found, failed)
        _prune(recipe, found, summary)
    write_summary(recipe.out, summary)
    best = None if summary.best_run is None else recipe.out / RUNS / summary.best_run / MODEL
    return Finetuned(recipe.out, summary, best if best is not None and best.is_dir() else None)


def _check(recipe: FinetuneRecipe) -> None:
    """RecipeError where the recipe asks for a choice that nothing can make."""
    # A set's own folds may have a dev split each, which is seen when they are read.
    unknown = recipe.folds is not None and recipe.folds.count is None
    chosen = len(cells_of(recipe.grid)) > 1 and recipe.score_test == "best"
    if chosen and not (recipe.has_dev or unknown):
        raise RecipeError('score_test is "best", but without a dev split no cell is the best. Use "every".')
    if recipe.keep_models == "none" and chosen:
        raise RecipeError('keep_models is "none", but the best cell\'s weights are needed to score test. Use "best".')


def _all_runs(recipe: FinetuneRecipe, ground: Ground, show: Show) -> tuple[list[Facts], dict[str, str]]:
    """The facts of all runs, in order, and why others failed."""
    cells, folds = cells_of(recipe.grid), folds_of(recipe, sources_of(recipe))
    one = len(cells) == 1
    if recipe.grid.seeds == "all" or one:
        return _carried_out(recipe, runs_of(cells, recipe.seeds, folds), ground, show, sure=one)
    found, failed = _carried_out(recipe, runs_of(cells, recipe.seeds[:1], folds), ground, show)
    best = summary_of(found, failed).best if found else None
    if best is None:
        return found, failed
    chosen: Sequence[Cell] = [summary_of(found, failed).rows[best].cell]
    more, lost = _carried_out(recipe, runs_of(chosen, recipe.seeds[1:], folds), ground, show, sure=True)
    return [*found, *more], {**failed, **lost}


def _carried_out(
    recipe: FinetuneRecipe, runs: Sequence[Run], ground: Ground, show: Show, *, sure: bool = False
) -> tuple[list[Facts], dict[str, str]]:
    """Carry runs out one by one, or several at a time. With `sure`, these are the ones that test is scored with."""
    test = recipe.score_test == "every" or (recipe.score_test == "best" and sure)
    found: dict[Run, Facts] = {}
    failed: dict[str, str] = {}
    if recipe.jobs > 1 and len(runs) > 1:
        for run, facts, why in runs_in_processes(recipe, runs, tokenizer=ground.material.tokenizer, test=test):
            _take(run, facts, why, found, failed)
            done = len(found) + len(failed)
            show(done / len(runs), f"{done} of {len(runs)} runs")
    else:
        for number, run in enumerate(runs):
            try:
                told = _share_of(show, number, len(runs), run.name)
                found[run] = carry_out(
                    settled(recipe, run), run, ground, recipe.out / RUNS / run.name, test=test, show=told
                )
            except LexomeError as error:
                if len(runs) == 1 or not _goes_on(error):
                    raise
                failed[run.name] = str(error)
    for name, why in failed.items():
        print(f"warning: run {name} failed: {why}", file=sys.stderr)
    return [found[run] for run in runs if run in found], failed


def _take(run: Run, facts: Facts | None, why: str | None, found: dict[Run, Facts], failed: dict[str, str]) -> None:
    if facts is not None:
        found[run] = facts
    else:
        failed[run.name] = why or "no reason was given"


def _goes_on(error: LexomeError) -> bool:
    """Whether other runs may succeed where this one did not: not where the recipe or a folder is wrong."""
    return isinstance(error, DivergedError | WorkerError)


def _share_of(show: Show, number: int, count: int, name: str) -> Callable[[float, str], None]:
    """Progress of one run as progress of all."""
    return lambda share, words: show((number + share) / count, f"{name} ({number + 1} of {count}): {words}")


def _tested(recipe: FinetuneRecipe, ground: Ground, found: list[Facts], summary: Summary) -> list[Facts]:
    """The facts with the best cell's runs scored on test, where the recipe says so and it is not done."""
    if recipe.score_test != "best" or summary.best is None:
        return found
    cell = summary.rows[summary.best].cell
    made = []
    for facts in found:
        if cell_of(facts) == cell and "test" not in facts.scores:
            run = Run(cell, facts.seed, facts.fold)
            facts = score_later(settled(recipe, run), facts, ground, recipe.out / RUNS / facts.name)
        made.append(facts)
    return made


def _prune(recipe: FinetuneRecipe, found: Sequence[Facts], summary: Summary) -> None:
    """Remove the weights that the recipe does not want kept; where no run is the best, none of them is the one."""
    best = recipe.keep_models == "best" and summary.best_run is not None
    for facts in found:
        if recipe.keep_models == "none" or (best and facts.name != summary.best_run):
            run = Run(cell_of(facts), facts.seed, facts.fold)
            drop_model(recipe.out / RUNS / facts.name, facts, settled(recipe, run))
