"""reproduce: every task of a study for every model, in the paper's protocol; finished runs are not repeated."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf, isnan
from pathlib import Path
from typing import Any

from lexome.datasets import find
from lexome.datasets.splits import VARIABLE
from lexome.errors import CheckpointError, DataSetError, LexomeError, MissingExtraError, RecipeError, UsageError
from lexome.recipe import checked, merged
from lexome.recipe.finetune import FinetuneRecipe
from lexome.recipe.study import ProtocolTable, StudyRecipe, TaskTable, apart, shipped
from lexome.reproduce.aggregate import Estimate, Scored, aggregated, over_documents, spreads, with_interval
from lexome.reproduce.result import Missing, Outcome, outcome_of
from lexome.training.finetune.grid import RUNS, Facts, read_facts
from lexome.training.finetune.grid import Row as Cell
from lexome.training.finetune.stage import Finetuned, finetune, in_processes
from lexome.training.run_record import surroundings

# What a quick look leaves out, in the words that every output of it carries.
QUICK = "one seed, the first point of each grid, the first variant, one fold, and an end where dev gets no better"
# After how many scores on dev that are no better a quick look's runs end.
QUICK_PATIENCE = 3


Chain = list[TaskTable]
"""Tasks that come after one another, the first one first."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a task of a study is run, and how: the same for all its recipes.

    overrides  keys laid over every recipe, by the caller's wish
    """

    start: Path
    out: Path
    jobs: int = 1
    device: str = "auto"
    overrides: Mapping[str, Any] = field(default_factory=dict)


def variants_of(protocol: ProtocolTable, *, quick: bool) -> list[int]:
    """The numbers of the variants to compare: the first alone for a quick look."""
    return list(range(len(protocol.variants) or 1))[: 1 if quick else None]


def choosing(study: StudyRecipe, task: TaskTable, variant: int, place: Place, *, quick: bool = False) -> FinetuneRecipe:
    """The recipe of the runs that a variant is compared by."""
    protocol = study.protocols[task.protocol]
    apart = "choose" if _apart(protocol) else "report"
    return _recipe(task, protocol, variant, getattr(protocol, apart), place, folder=apart, quick=quick)


def reporting(
    study: StudyRecipe, task: TaskTable, variant: int, place: Place, *, quick: bool = False
) -> FinetuneRecipe:
    """The recipe of the runs that are reported, with the variant that was chosen."""
    protocol = study.protocols[task.protocol]
    return _recipe(task, protocol, variant, protocol.report, place, folder="report", quick=quick)


def order_of(study: StudyRecipe, only: Iterable[str] = ()) -> list[TaskTable]:
    """The tasks to run, steps before what comes after them; with `only`, those named by task or set alone."""
    wanted = set(only)
    known = {name for task in study.tasks for name in (task.name, task.set)}
    unknown = sorted(wanted - known)
    if unknown:
        names = ", ".join(task.name for task in study.tasks if not task.step)
        raise UsageError(f"{study.name} has no task {unknown[0]!r}; expected one of {names}.")
    chosen = [task for task in study.tasks if not task.step and (not wanted or wanted & {task.name, task.set})]
    ordered: dict[str, TaskTable] = {}
    for task in chosen:
        before = [task]
        while before[-1].after is not None:
            before.append(study.task(before[-1].after))
        ordered |= {step.name: step for step in reversed(before)}
    return list(ordered.values())


def chains_of(tasks: Iterable[TaskTable]) -> list[Chain]:
    """The tasks in chains that do not wait for each other; those of several tasks first, for they take longest."""
    chains: dict[str, Chain] = {}
    roots: dict[str, str] = {}
    for task in tasks:
        roots[task.name] = task.name if task.after is None else roots[task.after]
        chains.setdefault(roots[task.name], []).append(task)
    return sorted(chains.values(), key=len, reverse=True)


def _apart(protocol: ProtocolTable) -> bool:
    """True where the runs that choose are others than those that are reported."""
    return bool(protocol.choose or protocol.report)


def _recipe(
    task: TaskTable,
    protocol: ProtocolTable,
    variant: int,
    phase: Mapping[str, Any],
    place: Place,
    *,
    folder: str,
    quick: bool,
) -> FinetuneRecipe:
    own = protocol.variants[variant] if protocol.variants else {}
    folder = f"{folder}-{variant}" if protocol.variants else folder
    out = place.out / (f"quick-{folder}" if quick else folder)
    keys = merged(
        {"data": {"sets": [task.set]}, "card": {"title": f"{task.name}"}},
        *(protocol.recipe, task.recipe, own, phase),
        {"stage": "finetune", "start": str(place.start), "out": str(out), "jobs": place.jobs, "device": place.device},
        place.overrides,
    )
    made = checked(keys, FinetuneRecipe, task.name)
    return _first_of_all(made, keys) if quick else made


def _first_of_all(recipe: FinetuneRecipe, keys: Mapping[str, Any]) -> FinetuneRecipe:
    """The recipe with one seed, one cell and one fold, and an early end where there is a dev split."""
    grid = {name: given[:1] for name in ("batch", "lr", "epochs") if (given := getattr(recipe.grid, name))}
    first: dict[str, Any] = {"seeds": recipe.seeds[:1]}
    first |= {"grid": {**grid, "seeds": "all"}} if grid else {}
    first |= {"folds": {"use": recipe.folds.use[:1] or (0,)}} if recipe.folds is not None else {}
    if recipe.evaluation.patience is None and recipe.draws_dev:
        first["evaluation"] = {"patience": QUICK_PATIENCE}
    return checked(merged(keys, first), FinetuneRecipe, str(recipe.out))


Follow = Callable[[Outcome], None]


@dataclass(frozen=True, slots=True)
class Wish:
    """How a caller wants a study run.

    quick      one seed, the first point of each grid, one fold, an early end
    jobs       tasks at a time
    only       tasks or sets, by name; none for all
    overrides  keys of fine-tuning laid over those of every task
    """

    out: Path
    data: Path | None = None
    only: tuple[str, ...] = ()
    quick: bool = False
    jobs: int = 1
    device: str = "auto"
    overrides: Mapping[str, Any] = field(default_factory=dict)
    progress_shown: bool = True


@dataclass(frozen=True, slots=True)
class Told:
    """What one task came to for one model: its estimates by measure, the settings that were chosen, and warnings."""

    estimates: dict[str, Estimate]
    chosen: str
    warnings: tuple[str, ...]


def reproduce(
    study: StudyRecipe, models: Mapping[str, Path], wish: Wish, *, follow: Follow = lambda outcome: None
) -> Outcome:
    """The study's outcome for these models; `follow` is given it after each task, as far as it is then known.

    A task whose set is not here, or that fails, is among the missing ones with its reason; the others go on.
    """
    if not models:
        raise UsageError("no model was named; expected at least one checkpoint folder.")
    told: dict[str, dict[str, Told]] = {name: {} for name in models}
    with _data_in(wish.data):
        tasks, missing = _there(study, wish)
        if not tasks:
            raise DataSetError(f"{study.name}: the data of no task is here. {' '.join(map(str, missing))}")
        for lost in missing:
            _say(f"missing: {lost}", wish)
        for name, task, found in _found(study, tasks, models, wish):
            if isinstance(found, Missing):
                missing.append(found)
            elif not task.step:
                told[name][task.name] = found
            follow(_outcome(study, models, told, missing, wish))
    return _outcome(study, models, told, missing, wish)


def _found(
    study: StudyRecipe, tasks: list[TaskTable], models: Mapping[str, Path], wish: Wish
) -> Iterator[tuple[str, TaskTable, "Told | Missing"]]:
    """What each task came to for each model: one after another, or with several jobs as they end."""
    if wish.jobs == 1:
        for name, start in models.items():
            for task in tasks:
                _say(f"{name}: {task.name}", wish)
                yield name, task, _attempt(study, task, name, start, wish)
        return
    # A task's own runs go one after another then: there are tasks enough.
    alone = replace(wish, jobs=1, progress_shown=False)
    parts = [(study, chain, name, start, alone) for chain in chains_of(tasks) for name, start in models.items()]
    for done, (name, results) in enumerate(in_processes(_chain, parts, jobs=wish.jobs, what="the study"), 1):
        for task, found in results:
            state = f"error: {found}" if isinstance(found, Missing) else "done"
            _say(f"{name}: {task.name}: {state} ({done} of {len(parts)})", wish)
            yield name, task, found


def _chain(part: tuple[StudyRecipe, Chain, str, Path, Wish]) -> tuple[str, list[tuple[TaskTable, "Told | Missing"]]]:
    """The tasks of a chain for one model, one after another."""
    study, chain, name, start, wish = part
    return name, [(task, _attempt(study, task, name, start, wish)) for task in chain]


def _outcome(
    study: StudyRecipe,
    models: Mapping[str, Path],
    told: Mapping[str, Mapping[str, Told]],
    missing: Iterable[Missing],
    wish: Wish,
) -> Outcome:
    changes = [f"quick: {QUICK}"] if wish.quick else []
    changes += [told_keys(wish.overrides)] if wish.overrides else []
    facts = surroundings()
    made = {
        "date": facts["date"],
        "lexome": f"{facts['versions']['lexome']} ({facts['versions']['revision'] or 'installed'})",
        "torch": facts["versions"]["torch"],
        "hardware": ", ".join(facts["hardware"]["gpus"]) or f"{facts['hardware']['cores']} cores, no GPU",
    }
    return outcome_of(
        study,
        {name: {task: found.estimates for task, found in of.items()} for name, of in told.items()},
        models={name: str(path) for name, path in models.items()},
        missing=missing,
        spreads=spreads(shipped()),
        quick=wish.quick,
        changes=changes,
        chosen={name: {task: found.chosen for task, found in of.items() if found.chosen} for name, of in told.items()},
        warnings={task: found.warnings for of in told.values() for task, found in of.items() if found.warnings},
        only=[task.name for task in order_of(study, wish.only)],
        made=made,
    )


def _there(study: StudyRecipe, wish: Wish) -> tuple[list[TaskTable], list[Missing]]:
    """The tasks that can be run, in order, and those that cannot, with what is missing."""
    there: list[TaskTable] = []
    missing: list[Missing] = []
    for task in order_of(study, wish.only):
        lost = _lack(task)
        if lost is None and task.after is not None and task.after not in [other.name for other in there]:
            lost = Missing(task=task.name, set=task.set, why=f"it comes after {task.after}, which is missing")
        if lost is None:
            there.append(task)
        else:
            missing.append(lost)
    return there, missing


def _lack(task: TaskTable) -> Missing | None:
    """What a task's set lacks, or None."""
    try:
        source = find(task.set)
    except UsageError:
        return Missing(task=task.name, set=task.set, why="Lexome has no reader for this set", get=task.get or "")
    if source.here:
        return None
    lost = "nothing of it" if not source.found else "not all of it"
    splits = f"missing: {', '.join(source.missing)}"
    return Missing(task=task.name, set=task.set, why=f"{lost} is here; {splits}", get=task.get or source.card.get)


def _attempt(study: StudyRecipe, task: TaskTable, model: str, start: Path, wish: Wish) -> Told | Missing:
    """A task's estimates, or why it has none. What is wrong with the model or the folder is an error of the study."""
    try:
        return _carried_out(study, task, model, start, wish)
    except (CheckpointError, RecipeError, MissingExtraError):
        raise
    except LexomeError as error:
        lost = Missing(task=task.name, set=task.set, why=str(error), model=model)
        _say(f"error: {lost}", wish)
        return lost


def _carried_out(study: StudyRecipe, task: TaskTable, model: str, start: Path, wish: Wish) -> Told:
    protocol = study.protocols[task.protocol]
    folder = wish.out / "runs" / model
    begun = start if task.after is None else folder / task.after / _reported_folder(folder / task.after)
    place = Place(begun, folder / task.name, wish.jobs, wish.device, wish.overrides)
    variants = variants_of(protocol, quick=wish.quick)
    done: dict[Path, Finetuned] = {}

    def run(recipe: FinetuneRecipe) -> Finetuned:
        if recipe.out not in done:
            done[recipe.out] = finetune(recipe, progress_shown=wish.progress_shown)
        return done[recipe.out]

    best = variants[0]
    _require_taken(protocol, reporting(study, task, best, place, quick=wish.quick))
    if len(variants) > 1:
        recipes = {number: choosing(study, task, number, place, quick=wish.quick) for number in variants}
        _require_apart(protocol, recipes[best], reporting(study, task, best, place, quick=wish.quick))
        scores = {number: _score(run(recipe), protocol.by) for number, recipe in recipes.items()}
        best = max(scores, key=lambda number: scores[number])
    recipe = reporting(study, task, best, place, quick=wish.quick)
    found = run(recipe)
    _remember(place.out, recipe.out)
    cell, facts = _reported(found)
    runs = [Scored(fact.seed, fact.fold, fact.scores["test"]) for fact in facts]
    estimates = {
        measure: aggregated(runs, measure, folds=protocol.folds, seeds=protocol.seeds) for measure in task.measures
    }
    if len(facts) == 1 and not task.step:
        path = recipe.out / RUNS / facts[0].name / "test.jsonl"
        ends = over_documents(recipe, facts[0].fold, path)
        estimates = {
            measure: with_interval(of, ends[measure]) if measure in ends else of for measure, of in estimates.items()
        }
    own = told_keys(protocol.variants[best]) if len(variants) > 1 else ""
    grid = cell.cell.name if len(found.summary.rows) > 1 else ""
    return Told(estimates, ", ".join(filter(None, (own, grid))), found.summary.warnings)


def _require_taken(protocol: ProtocolTable, reports: FinetuneRecipe) -> None:
    """RecipeError where a caller's keys make folds of which the protocol does not say what is taken over them."""
    if reports.folds is not None and protocol.folds is None:
        raise RecipeError(
            "runs of folds are asked for, and the protocol does not say what is taken over them; expected folds of a "
            "protocol that does. Leave folds out of --set."
        )


def _require_apart(protocol: ProtocolTable, chooses: FinetuneRecipe, reports: FinetuneRecipe) -> None:
    """RecipeError where a caller's keys would make a fold both choose and be reported."""
    folds = [recipe.folds.use if recipe.folds is not None else () for recipe in (chooses, reports)]
    if protocol.by == "test" and not apart(*folds):
        raise RecipeError(
            f"variants are compared on test of the folds {list(folds[0])}, and {list(folds[1])} are reported; expected "
            "others. Leave folds out of --set."
        )


def told_keys(keys: Mapping[str, Any], inside: str = "") -> str:
    """Keys of a recipe in words: head.layers 1, head.width 512."""
    return ", ".join(
        told_keys(given, f"{inside}{key}.") if isinstance(given, Mapping) else f"{inside}{key} {given}"
        for key, given in keys.items()
    )


def _reported(found: Finetuned) -> tuple[Cell, list[Facts]]:
    """The best cell of a grid, and the facts of its runs."""
    summary = found.summary
    if summary.failed:
        raise DataSetError(f"{len(summary.failed)} runs failed, the first: {next(iter(summary.failed.values()))}")
    if summary.best is None:
        raise UsageError(f"{found.folder}: no cell of the grid is the best, for want of a dev split.")
    cell = summary.rows[summary.best]
    facts = [read_facts(found.folder / RUNS / name) for name in cell.runs]
    return cell, [fact for fact in facts if fact is not None]


def _score(found: Finetuned, split: str) -> float:
    """The mean score of the best cell's runs on a split, by the measure that models are chosen by.

    One that is not defined, such as a correlation with numbers that are all alike, is the lowest.
    """
    summary = found.summary
    cell, _ = _reported(found)
    known = cell.spreads.get(split, {}).get(summary.measure or "")
    if known is None:
        raise UsageError(f"{found.folder}: its runs have no score on {split} to choose a variant by.")
    return -inf if isnan(known.mean) else known.mean


# In a task's folder: the name of the folder inside it whose runs are reported.
REPORTED = "reported.txt"


def _remember(folder: Path, reported: Path) -> None:
    (folder / REPORTED).write_text(reported.name, encoding="utf-8")


def _reported_folder(folder: Path) -> str:
    path = folder / REPORTED
    if not path.is_file():
        raise UsageError(f"{folder}: the step before was not finished. Run the study again.")
    return path.read_text(encoding="utf-8")


@contextmanager
def _data_in(folder: Path | None) -> Iterator[None]:
    """Sets are looked for in this folder meanwhile, by this process and by those it starts."""
    before = os.environ.get(VARIABLE)
    if folder is not None:
        if not folder.is_dir():
            raise DataSetError(f"{folder}: there is no such folder. Name the folder that holds the data sets.")
        os.environ[VARIABLE] = str(folder.resolve())
    try:
        yield
    finally:
        if folder is not None:
            os.environ.pop(VARIABLE, None)
            if before is not None:
                os.environ[VARIABLE] = before


def _say(words: str, wish: Wish) -> None:
    if wish.progress_shown:
        print(words, file=sys.stderr, flush=True)
