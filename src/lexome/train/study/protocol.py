"""A paper's protocol as fine-tuning recipes: which runs choose, which are reported, what a quick look leaves out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lexome.errors import UsageError
from lexome.recipe import checked
from lexome.recipe.files import merged
from lexome.recipe.finetune import FinetuneRecipe
from lexome.recipe.study import ProtocolTable, StudyRecipe, TaskTable

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
