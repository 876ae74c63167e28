"""finetune: fine-tunes a checkpoint on a task, in one or several runs, and writes a summary of their scores."""

import math
import multiprocessing
import os
import signal
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from lexome.errors import DivergedError, LexomeError, RecipeError, UsageError, WorkerError
from lexome.files import atomic_write, refuse_foreign, usable_cores, write_json
from lexome.progress import training_progress
from lexome.recipe.finetune import SPLITS, Cell, FinetuneRecipe, Run, cells_of, recipe_of_run, runs_of
from lexome.training.finetune.examples import DEV, TEST, select_folds
from lexome.training.finetune.run import (
    GOLD,
    MODEL,
    RUNS,
    START,
    SUMMARY,
    RunContext,
    Show,
    drop_model,
    load_context,
    open_context,
    run_once,
    score_test_later,
)
from lexome.training.loop import Interrupted
from lexome.training.parallel import Parallel, Sizes, device_of, join_processes
from lexome.training.record import FinetuneRecord

TABLE = "summary.txt"
# What marks a folder as the output of a fine-tuning.
OUTPUTS = (RUNS, GOLD, START, SPLITS, SUMMARY, TABLE)

Given = TypeVar("Given")
Result = TypeVar("Result")
Begin = tuple[Callable[..., None], tuple[Any, ...]]
"""Called once in each process: a module-level function and its arguments."""


def in_processes(
    work: Callable[[Given], Result], given: Sequence[Given], *, jobs: int, what: str, begin: Begin | None = None
) -> Iterator[Result]:
    """The results of a module-level function for each item, as they complete, up to `jobs` at a time."""
    count = min(jobs, len(given))
    threads = max(1, usable_cores() // count)
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(count, context, initializer=_begin, initargs=(threads, begin))
    try:
        for ended in as_completed([pool.submit(work, one) for one in given]):
            yield ended.result()
    except (KeyboardInterrupt, GeneratorExit):
        # Running work would continue for minutes.
        _end(pool)
        raise
    except BrokenProcessPool:
        raise WorkerError(
            f"a process of {what} died; most often memory ran out. Lower jobs, and run again: finished runs are kept.",
            code="worker-died",
            value=what,
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(threads: int, begin: Begin | None) -> None:
    # Ctrl-C reaches every process of the terminal; the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    if begin is not None:
        function, given = begin
        function(*given)


def _end(pool: ProcessPoolExecutor) -> None:
    """Terminate the processes of a pool; before Python 3.14, concurrent.futures has no function for it."""
    for process in list((pool._processes or {}).values()):
        process.terminate()


FinishedRun = tuple[Run, FinetuneRecord | None, str | None]
"""A run with its facts, or with the reason why it failed."""

# In a worker process: the inputs of its runs, loaded when it starts.
_context: list[RunContext] = []


def runs_in_processes(
    recipe: FinetuneRecipe, runs: Sequence[Run], *, tokenizer: Path, test: bool
) -> Iterator[FinishedRun]:
    """Do runs, as many at a time as the recipe has jobs; each is yielded when it ends.

    Every process reads the checkpoint and the documents once.
    """
    tasks = [(recipe, run, test) for run in runs]
    begin = (_load_context, (recipe, tokenizer))
    yield from in_processes(_work, tasks, jobs=recipe.jobs, what="fine-tuning", begin=begin)


def _load_context(recipe: FinetuneRecipe, tokenizer: Path) -> None:
    device, _ = device_of(recipe.device, {}, backend=recipe.parallel.backend)
    _context.append(load_context(recipe, Parallel(Sizes(), device), tokenizer))


def _work(task: tuple[FinetuneRecipe, Run, bool]) -> FinishedRun:
    recipe, run, test = task
    try:
        folder = recipe.out / RUNS / run.name
        return run, run_once(recipe_of_run(recipe, run), run, _context[0], folder, test=test), None
    except LexomeError as error:
        return run, None, str(error)
    except Interrupted:
        # The pool would continue with the next run.
        os._exit(130)


# Summary


@dataclass(frozen=True, slots=True)
class Spread:
    """Statistics of the scores of several runs. `sd` is the sample standard deviation; None for a single run."""

    runs: int
    mean: float
    median: float
    sd: float | None
    least: float
    most: float

    @classmethod
    def of(cls, scores: Sequence[float]) -> "Spread":
        """The spread of at least one score."""
        sd = statistics.stdev(scores) if len(scores) > 1 else None
        return cls(len(scores), statistics.fmean(scores), statistics.median(scores), sd, min(scores), max(scores))


@dataclass(frozen=True, slots=True)
class Row:
    """One cell: the names of its runs, and score statistics by split and metric."""

    cell: Cell
    runs: tuple[str, ...]
    spreads: dict[str, dict[str, Spread]]


@dataclass(frozen=True, slots=True)
class Summary:
    """All cells of a grid; a recipe without a grid has one.

    best      the index of the cell with the highest mean on dev; None without dev scores
    best_run  the run of that cell with the highest score on dev
    failed    failed runs, with the reason
    """

    measure: str | None
    rows: tuple[Row, ...]
    best: int | None
    best_run: str | None
    warnings: tuple[str, ...]
    failed: dict[str, str]


def summarize(records: Sequence[FinetuneRecord], failed: dict[str, str]) -> Summary:
    """Summarize finished runs, with cells in order of first appearance."""
    measure = next((facts.measure for facts in records if facts.measure is not None), None)
    cells: dict[Cell, list[FinetuneRecord]] = {}
    for facts in records:
        cells.setdefault(cell_of(facts), []).append(facts)
    rows = [Row(cell, tuple(facts.name for facts in members), _spreads(members)) for cell, members in cells.items()]
    warnings = tuple(dict.fromkeys(warning for facts in records for warning in facts.warnings))
    best = best_of(rows, measure)
    run = None
    if best is not None:
        members = list(cells.values())[best]
        run = max(members, key=lambda facts: _on_dev(facts, measure)).name
    return Summary(measure, tuple(rows), best, run, warnings, failed)


def cell_of(facts: FinetuneRecord) -> Cell:
    """The cell that a run belongs to."""
    return Cell(facts.batch, facts.lr, facts.epochs)


def best_of(rows: Sequence[Row], measure: str | None) -> int | None:
    """The index of the cell with the highest mean on dev, the first on ties; a single cell is always the best."""
    if len(rows) == 1:
        return 0
    scores = [row.spreads.get(DEV, {}).get(measure or "") for row in rows]
    # An undefined mean, such as a correlation with constant values, is never the best.
    known = [
        (spread.mean, -place)
        for place, spread in enumerate(scores)
        if spread is not None and not math.isnan(spread.mean)
    ]
    return -max(known)[1] if known else None


def _on_dev(facts: FinetuneRecord, measure: str | None) -> float:
    """A run's score on dev; minus infinity if it is missing or undefined."""
    score = facts.scores.get(DEV, {}).get(measure or "", math.nan)
    return -math.inf if math.isnan(score) else score


def table_of(summary: Summary) -> str:
    """The summary as a text table: a line for each cell and split, with the selection metric."""
    lines: list[tuple[str, ...]] = [("", "split", "runs", "mean", "median", "sd", "least", "most")]
    for place, row in enumerate(summary.rows):
        name = row.cell.name or "all runs"
        name += " *" if place == summary.best and len(summary.rows) > 1 else ""
        for split in (DEV, TEST):
            spread = row.spreads.get(split, {}).get(summary.measure or "")
            if spread is not None:
                lines.append((name, split, str(spread.runs), *_numbers(spread)))
                name = ""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = [f"{summary.measure or 'no scores'}"]
    for line in lines:
        # Names to the left, numbers to the right.
        cells = [*map(str.ljust, line[:2], widths[:2]), *map(str.rjust, line[2:], widths[2:])]
        text.append("  ".join(cells).rstrip())
    text += [f"warning: {warning}" for warning in summary.warnings]
    text += [f"failed: {name}: {reason}" for name, reason in summary.failed.items()]
    return "\n".join(text) + "\n"


def _numbers(spread: Spread) -> tuple[str, ...]:
    values = (spread.mean, spread.median, spread.sd, spread.least, spread.most)
    return tuple("-" if value is None else f"{value:.4f}" for value in values)


def _spreads(members: Sequence[FinetuneRecord]) -> dict[str, dict[str, Spread]]:
    """Statistics by split and metric, over the runs that have it."""
    spreads: dict[str, dict[str, Spread]] = {}
    for split in (DEV, TEST):
        scores = [facts.scores[split] for facts in members if split in facts.scores]
        names = dict.fromkeys(name for metrics in scores for name in metrics)
        if names:
            spreads[split] = {
                name: Spread.of([metrics[name] for metrics in scores if name in metrics]) for name in names
            }
    return spreads


# The stage


@dataclass(frozen=True, slots=True)
class Finetuned:
    """The result of a recipe: its folder, the summary of all runs, and the best run's model if it was kept."""

    folder: Path
    summary: Summary
    model: Path | None


def finetune(recipe: FinetuneRecipe, *, progress_shown: bool = True) -> Finetuned:
    """Run the unfinished runs of a recipe, select the best one, score test, and write the summary.

    A finished run is not repeated; an interrupted one resumes from its last training state, which Ctrl-C and SIGTERM
    save after the current step before a KeyboardInterrupt is raised. A run that diverges is listed in the summary, and
    the others continue; if all fail, the first error is raised. Under torchrun, each process works on the same runs.
    """
    _check(recipe)
    refuse_foreign(recipe.out, marks=OUTPUTS, command=recipe.stage)
    with join_processes(**recipe.parallel.model_dump(), device=recipe.device) as parallel:
        if parallel.mesh is not None and recipe.jobs > 1:
            message = f"jobs is {recipe.jobs} under torchrun, whose processes share each run. Set jobs = 1."
            raise UsageError(message, code="jobs-under-torchrun", value=recipe.jobs)
        shown = progress_shown and parallel.first
        with open_context(recipe, parallel) as context, training_progress("finetune", shown=shown) as show:
            facts, failed = _all_runs(recipe, context, show)
            if not facts:
                name, reason = next(iter(failed.items()))
                raise DivergedError(f"no run finished. {name}: {reason}", code="no-finished-run", value=name)
            summary = summarize(facts, failed)
            facts = _score_best(recipe, context, facts, summary)
            summary = summarize(facts, failed)
        if parallel.first:
            _prune(recipe, facts, summary)
            write_json(recipe.out / SUMMARY, asdict(summary))
            with atomic_write(recipe.out / TABLE) as stream:
                stream.write(table_of(summary).encode())
        parallel.wait()
    best = None if summary.best_run is None else recipe.out / RUNS / summary.best_run / MODEL
    return Finetuned(recipe.out, summary, best if best is not None and best.is_dir() else None)


def _check(recipe: FinetuneRecipe) -> None:
    """RecipeError where the recipe asks for a selection that is impossible without dev or the weights."""
    # A dataset's own folds may have a dev split each, which is known when they are read.
    unknown = recipe.folds is not None and recipe.folds.count is None
    selecting = len(cells_of(recipe.grid)) > 1 and recipe.score_test == "best"
    if selecting and not (recipe.has_dev or unknown):
        message = 'score_test is "best", but without a dev split no cell is the best. Use "every".'
        raise RecipeError(message, code="invalid-value", value="score_test")
    if recipe.keep_models == "none" and selecting:
        message = 'keep_models is "none", but the best cell\'s weights are needed to score test. Use "best".'
        raise RecipeError(message, code="invalid-value", value="keep_models")


def _all_runs(recipe: FinetuneRecipe, context: RunContext, show: Show) -> tuple[list[FinetuneRecord], dict[str, str]]:
    """The facts of all runs, in order, and why others failed."""
    cells, folds = cells_of(recipe.grid), select_folds(context.data.folds, context.data.sources)
    one = len(cells) == 1
    if recipe.grid.seeds == "all" or one:
        return _do_runs(recipe, runs_of(cells, recipe.seeds, folds), context, show, final=one)
    facts, failed = _do_runs(recipe, runs_of(cells, recipe.seeds[:1], folds), context, show)
    best = summarize(facts, failed).best if facts else None
    if best is None:
        return facts, failed
    cell = [summarize(facts, failed).rows[best].cell]
    more, lost = _do_runs(recipe, runs_of(cell, recipe.seeds[1:], folds), context, show, final=True)
    return [*facts, *more], {**failed, **lost}


def _do_runs(
    recipe: FinetuneRecipe, runs: Sequence[Run], context: RunContext, show: Show, *, final: bool = False
) -> tuple[list[FinetuneRecord], dict[str, str]]:
    """Do runs one by one, or several at a time. With `final`, these are the ones that test is scored with."""
    test = recipe.score_test == "every" or (recipe.score_test == "best" and final)
    facts: dict[Run, FinetuneRecord] = {}
    failed: dict[str, str] = {}
    if recipe.jobs > 1 and len(runs) > 1:
        for run, done, reason in runs_in_processes(recipe, runs, tokenizer=context.data.tokenizer, test=test):
            if done is not None:
                facts[run] = done
            else:
                failed[run.name] = reason or "unknown reason"
            count = len(facts) + len(failed)
            show(count / len(runs), f"{count} of {len(runs)} runs")
    else:
        for number, run in enumerate(runs):
            folder, report = recipe.out / RUNS / run.name, _progress_of_run(show, number, len(runs), run.name)
            try:
                own = recipe_of_run(recipe, run)
                announce = context.parallel.first
                facts[run] = run_once(own, run, context, folder, test=test, show=report, announce=announce)
            except (DivergedError, WorkerError) as error:
                # Other runs may succeed, unlike where the recipe or a folder is wrong.
                if len(runs) == 1:
                    raise
                failed[run.name] = str(error)
    for name, reason in failed.items():
        if context.parallel.first:
            print(f"warning: run {name} failed: {reason}", file=sys.stderr)
    return [facts[run] for run in runs if run in facts], failed


def _progress_of_run(show: Show, number: int, count: int, name: str) -> Show:
    """Progress of one run as progress of all."""
    return lambda fraction, message: show((number + fraction) / count, f"{name} ({number + 1} of {count}): {message}")


def _score_best(
    recipe: FinetuneRecipe, context: RunContext, facts: list[FinetuneRecord], summary: Summary
) -> list[FinetuneRecord]:
    """The facts, with test scores of the best cell's runs if the recipe asks for them."""
    if recipe.score_test != "best" or summary.best is None:
        return facts
    cell = summary.rows[summary.best].cell
    scored = []
    for one in facts:
        if cell_of(one) == cell and TEST not in one.scores:
            run = Run(cell, one.seed, one.fold)
            one = score_test_later(recipe_of_run(recipe, run), one, context, recipe.out / RUNS / one.name)
        scored.append(one)
    return scored


def _prune(recipe: FinetuneRecipe, facts: Sequence[FinetuneRecord], summary: Summary) -> None:
    """Remove the weights that the recipe does not keep; if no run is the best, all are kept."""
    best = recipe.keep_models == "best" and summary.best_run is not None
    for one in facts:
        if recipe.keep_models == "none" or (best and one.name != summary.best_run):
            run = Run(cell_of(one), one.seed, one.fold)
            drop_model(recipe.out / RUNS / one.name, one, recipe_of_run(recipe, run))
