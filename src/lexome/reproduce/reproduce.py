"""reproduce: a paper's experiments with other models: its protocol as recipes, their runs, and the study's result."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf, isnan
from pathlib import Path
from typing import Any

from lexome.datasets import find
from lexome.errors import (
    CheckpointError,
    DataSetError,
    DivergedError,
    LexomeError,
    MissingExtraError,
    RecipeError,
    UsageError,
)
from lexome.files import read_json, refuse_other_settings
from lexome.recipe import merge, validate
from lexome.recipe.finetune import FinetuneRecipe
from lexome.recipe.study import ProtocolTable, StudyRecipe, TaskTable, disjoint, shipped
from lexome.reproduce.aggregate import (
    RESULT,
    Estimate,
    MissingTask,
    RunScores,
    StudyResult,
    aggregate,
    document_intervals,
    lab_ranges,
    study_result,
)
from lexome.tasks.metrics.bootstrap import LEVEL
from lexome.training.finetune.run import RUNS
from lexome.training.finetune.stage import Finetuned, Row, finetune, in_processes
from lexome.training.record import FinetuneRecord, read_record, surroundings

# Protocol: the fine-tuning recipes of a task

# What --quick changes, as every output of such a run states it.
QUICK = "one seed, the first point of each grid, the first variant, one fold, and early stopping on dev"
# Early-stopping patience of quick runs, in evaluations.
QUICK_PATIENCE = 3
# Keys of a fine-tuning recipe that the study or the command line determines, and what to use instead of --set.
RESERVED = {
    "stage": "`lexome finetune` for one task",
    "start": "--model",
    "out": "--out",
    "jobs": "--jobs",
    "device": "--device",
    "data.sets": "--only",
    "data.root": "--data",
}


@dataclass(frozen=True, slots=True)
class StudyOptions:
    """How to run a study.

    out        folder for runs, tables and plots
    data       folder with the datasets; by default ./data
    only       tasks or datasets, by name; empty for all
    quick      one seed, the first point of each grid, one fold, early stopping
    jobs       tasks in parallel
    overrides  fine-tuning keys that override every task's recipe; None removes a key
    """

    out: Path
    data: Path | None = None
    only: tuple[str, ...] = ()
    quick: bool = False
    jobs: int = 1
    device: str = "auto"
    overrides: Mapping[str, Any] = field(default_factory=dict)
    progress_shown: bool = True


def tasks_to_run(study: StudyRecipe, only: Iterable[str] = ()) -> list[TaskTable]:
    """Tasks in the order they run, intermediate ones before their dependents; with `only`, these tasks or datasets."""
    selected = set(only)
    unknown = sorted(selected - {name for task in study.tasks for name in (task.name, task.set)})
    if unknown:
        names = ", ".join(task.name for task in study.tasks if not task.intermediate)
        message = f"{study.name} has no task {unknown[0]!r}; expected one of {names}."
        raise UsageError(message, code="unknown-task", value=unknown[0])
    ordered: dict[str, TaskTable] = {}
    for task in study.tasks:
        if task.intermediate or (selected and not selected & {task.name, task.set}):
            continue
        chain = [task]
        while chain[-1].init_from is not None:
            chain.append(study.task(chain[-1].init_from))
        ordered |= {one.name: one for one in reversed(chain)}
    return list(ordered.values())


def independent_chains(tasks: Iterable[TaskTable]) -> list[list[TaskTable]]:
    """Tasks grouped into chains that can run in parallel, the longest chains first."""
    chains: dict[str, list[TaskTable]] = {}
    roots: dict[str, str] = {}
    for task in tasks:
        roots[task.name] = task.name if task.init_from is None else roots[task.init_from]
        chains.setdefault(roots[task.name], []).append(task)
    return sorted(chains.values(), key=len, reverse=True)


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """A task's protocol as recipes: `start` is the checkpoint to fine-tune, `out` the folder of the task's runs."""

    protocol: ProtocolTable
    task: TaskTable
    start: Path
    out: Path
    options: StudyOptions

    @property
    def variants(self) -> list[int]:
        """Indices of the protocol's variants to compare; only the first for a quick run."""
        return list(range(len(self.protocol.variants) or 1))[: 1 if self.options.quick else None]

    def selection_recipe(self, variant: int) -> FinetuneRecipe:
        """The recipe of the runs that select a variant: the reported ones, unless the protocol has others for it."""
        protocol = self.protocol
        separate = protocol.selection or protocol.report
        return self._recipe(variant, protocol.selection, "choose") if separate else self.report_recipe(variant)

    def report_recipe(self, variant: int) -> FinetuneRecipe:
        """The recipe of the reported runs, with one variant of the protocol."""
        recipe = self._recipe(variant, self.protocol.report, "report")
        if recipe.folds is not None and self.protocol.folds is None:
            message = "--set folds: the protocol has no statistic over folds. Leave folds out of --set."
            raise RecipeError(message, code="no-fold-statistic", value="folds")
        return recipe

    def _recipe(self, variant: int, phase: Mapping[str, Any], folder: str) -> FinetuneRecipe:
        task, protocol, options = self.task, self.protocol, self.options
        own = protocol.variants[variant] if protocol.variants else {}
        name = "-".join((*(["quick"] if options.quick else []), folder, *([str(variant)] if protocol.variants else [])))
        root = None if options.data is None else str(options.data.resolve())
        keys = merge(
            {"data": {"sets": [task.set], "root": root}, "card": {"title": task.name}},
            *(protocol.recipe, task.recipe, own, phase),
            {"stage": "finetune", "start": str(self.start), "out": str(self.out / name)},
            {"jobs": options.jobs, "device": options.device},
            options.overrides,
        )
        recipe = validate(keys, FinetuneRecipe, task.name)
        if recipe.grid.lr and "lr" in (options.overrides.get("optimizer") or {}):
            message = f"--set optimizer.lr: {task.name} has a grid of learning rates. Use --set grid.lr=[...]."
            raise RecipeError(message, code="overridden-by-grid", value="optimizer.lr")
        return _quick_recipe(recipe, keys) if options.quick else recipe


def require_free_keys(overrides: Mapping[str, Any]) -> None:
    """RecipeError for an override of a key that the study or the command line determines."""
    for key, instead in RESERVED.items():
        table, _, last = key.rpartition(".")
        if last in (overrides.get(table) or {} if table else overrides):
            message = f"--set {key}: the study determines this key. Use {instead}."
            raise RecipeError(message, code="reserved-key", value=key)


def _quick_recipe(recipe: FinetuneRecipe, keys: Mapping[str, Any]) -> FinetuneRecipe:
    """The recipe with one seed, one point of the grid and one fold, and early stopping if there is a dev split."""
    grid = {name: values[:1] for name in ("batch", "lr", "epochs") if (values := getattr(recipe.grid, name))}
    first: dict[str, Any] = {"seeds": recipe.seeds[:1]}
    first |= {"grid": {**grid, "seeds": "all"}} if grid else {}
    first |= {"folds": {"use": recipe.folds.use[:1] or (0,)}} if recipe.folds is not None else {}
    if recipe.evaluation.patience is None and recipe.has_dev:
        first["evaluation"] = {"patience": QUICK_PATIENCE}
    return validate(merge(keys, first), FinetuneRecipe, str(recipe.out))


# Runs

# In a task's folder: the name of the subfolder whose runs are reported.
REPORTED = "reported.txt"

ModelTask = tuple[str, TaskTable, "TaskResult | MissingTask"]
"""A model's name, a task, and the task's result for the model."""


@dataclass(frozen=True, slots=True)
class TaskResult:
    """One task's result for one model: estimates by metric, selected hyper-parameters, data warnings, failed runs."""

    estimates: dict[str, Estimate]
    chosen: str
    warnings: tuple[str, ...]
    failed: dict[str, str]


def reproduce(
    study: StudyRecipe,
    models: Mapping[str, Path],
    options: StudyOptions,
    *,
    on_update: Callable[[StudyResult], None] = lambda result: None,
) -> StudyResult:
    """Run every task of the study for every model; `on_update` receives the result so far after each task.

    Finished runs are not repeated. A task whose dataset is missing, or that fails, is listed as missing with the
    reason; the other tasks still run. Runs that diverge are listed as failed, and the others are reported.
    """
    require_free_keys(options.overrides)
    if not models:
        raise UsageError("no models; expected at least one checkpoint folder.", code="no-models")
    _refuse_other_study(study, options)
    tasks, missing = _available_tasks(study, options)
    if not tasks:
        reasons = " ".join(map(str, missing))
        raise DataSetError(f"{study.name}: no task has its dataset. {reasons}", code="no-data", value=study.name)
    for lost in missing:
        _log(f"missing: {lost}", options)
    results: dict[str, dict[str, TaskResult]] = {name: {} for name in models}
    for name, task, result in _run_tasks(study, tasks, models, options):
        if isinstance(result, MissingTask):
            missing.append(result)
        elif not task.intermediate:
            results[name][task.name] = result
        on_update(_study_result(study, models, results, missing, options))
    return _study_result(study, models, results, missing, options)


def _refuse_other_study(study: StudyRecipe, options: StudyOptions) -> None:
    """UsageError if the folder has the scores of another study, which would be replaced.

    Runs with other settings are found when they are read.
    """
    path = options.out / RESULT
    if path.is_file():
        recorded = {"study": read_json(path, remedy="Choose another --out.").get("study")}
        remedy = "Choose another --out, or remove that folder."
        refuse_other_settings(options.out, recorded, {"study": study.name}, holds="another study", remedy=remedy)


def _study_result(
    study: StudyRecipe,
    models: Mapping[str, Path],
    results: Mapping[str, Mapping[str, TaskResult]],
    missing: Iterable[MissingTask],
    options: StudyOptions,
) -> StudyResult:
    changes = [f"quick: {QUICK}"] if options.quick else []
    changes += [format_keys(options.overrides)] if options.overrides else []
    facts = surroundings()
    return study_result(
        study,
        {model: {task: result.estimates for task, result in of.items()} for model, of in results.items()},
        models={name: str(path) for name, path in models.items()},
        missing=missing,
        ranges=lab_ranges(shipped()),
        quick=options.quick,
        changes=changes,
        chosen={
            model: {task: task_result.chosen for task, task_result in of.items() if task_result.chosen}
            for model, of in results.items()
        },
        warnings={
            task: task_result.warnings
            for of in results.values()
            for task, task_result in of.items()
            if task_result.warnings
        },
        failed={
            model: failed
            for model, of in results.items()
            if (failed := {task: task_result.failed for task, task_result in of.items() if task_result.failed})
        },
        only=[task.name for task in tasks_to_run(study, options.only)],
        environment={
            "date": facts["date"],
            "lexome": f"{facts['versions']['lexome']} ({facts['versions']['revision'] or 'installed'})",
            "torch": facts["versions"]["torch"],
            "hardware": ", ".join(facts["hardware"]["gpus"]) or f"{facts['hardware']['cores']} cores, no GPU",
        },
    )


def _available_tasks(study: StudyRecipe, options: StudyOptions) -> tuple[list[TaskTable], list[MissingTask]]:
    """The tasks whose datasets are complete, in order, and the others with what is missing."""
    available: dict[str, TaskTable] = {}
    missing: list[MissingTask] = []
    for task in tasks_to_run(study, options.only):
        reason, source = _missing_data(task, options.data)
        if not reason and task.init_from is not None and task.init_from not in available:
            reason = f"it starts from {task.init_from}, which is missing"
        if reason:
            missing.append(MissingTask(task=task.name, set=task.set, reason=reason, source=source))
        else:
            available[task.name] = task
    return list(available.values()), missing


def _missing_data(task: TaskTable, data: Path | None) -> tuple[str, str]:
    """The missing parts of a task's dataset, and where to get them; two empty strings if it is complete."""
    try:
        dataset = find(task.set, data=data)
    except UsageError:
        return "Lexome has no reader for this dataset", task.source or ""
    if dataset.available:
        return "", ""
    state = "incomplete" if dataset.files else "not found"
    return f"the dataset is {state}; missing: {', '.join(dataset.missing)}", task.source or dataset.card.source


def _run_tasks(
    study: StudyRecipe, tasks: list[TaskTable], models: Mapping[str, Path], options: StudyOptions
) -> Iterator[ModelTask]:
    """Every task for every model: sequentially, or with several jobs in the order in which they finish."""
    if options.jobs == 1:
        for name, start in models.items():
            for task in tasks:
                _log(f"{name}: {task.name}", options)
                yield name, task, _attempt(study, task, name, start, options)
        return
    # Tasks run in parallel, the runs of one task do not.
    of_worker = replace(options, jobs=1, progress_shown=False)
    chains = [
        (study, chain, name, start, of_worker) for chain in independent_chains(tasks) for name, start in models.items()
    ]
    for done, results in enumerate(in_processes(_run_chain, chains, jobs=options.jobs, what="the study"), 1):
        for name, task, result in results:
            state = f"error: {result}" if isinstance(result, MissingTask) else "done"
            _log(f"{name}: {task.name}: {state} ({done} of {len(chains)})", options)
            yield name, task, result


def _run_chain(chain: tuple[StudyRecipe, list[TaskTable], str, Path, StudyOptions]) -> list[ModelTask]:
    study, tasks, name, start, options = chain
    return [(name, task, _attempt(study, task, name, start, options)) for task in tasks]


def _attempt(
    study: StudyRecipe, task: TaskTable, model: str, start: Path, options: StudyOptions
) -> TaskResult | MissingTask:
    """A task's result, or why there is none.

    A wrong checkpoint or recipe, and runs with other settings in the folder, are errors of the whole study.
    """
    try:
        return _run_task(study, task, model, start, options)
    except (CheckpointError, RecipeError, MissingExtraError):
        raise
    except LexomeError as error:
        if error.code == "other-settings":
            raise
        lost = MissingTask(task=task.name, set=task.set, reason=str(error), model=model)
        _log(f"error: {lost}", options)
        return lost


def _run_task(study: StudyRecipe, task: TaskTable, model: str, start: Path, options: StudyOptions) -> TaskResult:
    """Select a variant if the protocol has several, run it, and aggregate its test scores."""
    runs_folder = options.out / "runs" / model
    if task.init_from is not None:
        start = runs_folder / task.init_from / _reported_folder(runs_folder / task.init_from)
    plan = TaskPlan(study.protocols[task.protocol], task, start, runs_folder / task.name, options)
    protocol, failed = plan.protocol, dict[str, str]()
    finetuned: dict[Path, Finetuned] = {}
    variant = _select_variant(plan, finetuned, failed)
    recipe = plan.report_recipe(variant)
    if recipe.out not in finetuned:
        finetuned[recipe.out] = finetune(recipe, progress_shown=options.progress_shown)
    (plan.out / REPORTED).write_text(recipe.out.name, encoding="utf-8")
    cell, facts = _best_runs(finetuned[recipe.out])
    runs = [RunScores(run.seed, run.fold, run.scores["test"]) for run in facts]
    estimates = {metric: aggregate(runs, metric, folds=protocol.folds, seeds=protocol.seeds) for metric in task.metrics}
    if len(facts) == 1 and not task.intermediate:
        intervals = document_intervals(recipe, facts[0].fold, recipe.out / RUNS / facts[0].name / "test.jsonl")
        for metric in estimates.keys() & intervals.keys():
            low, high = intervals[metric]
            interval = {"low": low, "high": high, "level": LEVEL, "over": "documents"}
            estimates[metric] = estimates[metric].model_copy(update=interval)
    summary = finetuned[recipe.out].summary
    chosen = [format_keys(protocol.variants[variant])] if len(plan.variants) > 1 else []
    chosen += [cell.cell.name] if len(summary.rows) > 1 else []
    for folder, result in finetuned.items():
        failed |= {f"{folder.name}/{run}": reason for run, reason in result.summary.failed.items()}
    return TaskResult(estimates, ", ".join(filter(None, chosen)), summary.warnings, failed)


def _select_variant(plan: TaskPlan, finetuned: dict[Path, Finetuned], failed: dict[str, str]) -> int:
    """The variant with the best score; its runs, and those that diverged, are added to the two dictionaries."""
    report = plan.report_recipe(plan.variants[0])
    if len(plan.variants) == 1:
        return plan.variants[0]
    recipes = {variant: plan.selection_recipe(variant) for variant in plan.variants}
    both = (recipes[plan.variants[0]], report)
    selected, reported = (recipe.folds.use if recipe.folds is not None else () for recipe in both)
    split = plan.protocol.select_on
    if split == "test" and not disjoint(selected, reported):
        raise RecipeError(
            f"variants are selected on the test split of folds {list(selected)}, and folds {list(reported)} are "
            "reported; expected disjoint folds. Leave folds out of --set.",
            code="overlapping-folds",
            value=selected,
        )
    scores: dict[int, float] = {}
    for variant, recipe in recipes.items():
        try:
            finetuned[recipe.out] = finetune(recipe, progress_shown=plan.options.progress_shown)
            scores[variant] = _selection_score(finetuned[recipe.out], split)
        except DivergedError as error:
            failed[recipe.out.name] = str(error)
    if not scores:
        name, reason = next(iter(failed.items()))
        raise DivergedError(f"every variant diverged. {name}: {reason}", code="no-finished-run", value=name)
    return max(scores, key=lambda variant: scores[variant])


def format_keys(keys: Mapping[str, Any], prefix: str = "") -> str:
    """Recipe keys on one line: head.layers 1, head.hidden_size 512."""
    return ", ".join(
        format_keys(value, f"{prefix}{key}.")
        if isinstance(value, Mapping)
        else f"{prefix}{key} {'removed' if value is None else value}"
        for key, value in keys.items()
    )


def _best_runs(result: Finetuned) -> tuple[Row, list[FinetuneRecord]]:
    """The best cell of the grid and its finished runs; if some failed, those of the seeds with the most folds."""
    summary = result.summary
    if summary.best is None:
        message = f"{result.folder}: the grid has no best cell without a dev split."
        raise UsageError(message, code="no-dev-split", value=result.folder)
    cell = summary.rows[summary.best]
    runs = [run for name in cell.runs if (run := read_record(result.folder / RUNS / name, FinetuneRecord)) is not None]
    folds = {run.seed: sum(other.seed == run.seed for other in runs) for run in runs}
    return cell, [run for run in runs if folds[run.seed] == max(folds.values())]


def _selection_score(result: Finetuned, split: str) -> float:
    """The best cell's mean score on a split; -inf if undefined, such as a correlation with constant predictions."""
    cell, _ = _best_runs(result)
    spread = cell.spreads.get(split, {}).get(result.summary.measure or "")
    if spread is None:
        message = f"{result.folder}: its runs have no score on {split} to select a variant by."
        raise UsageError(message, code="no-selection-score", value=split)
    return -inf if isnan(spread.mean) else spread.mean


def _reported_folder(folder: Path) -> str:
    path = folder / REPORTED
    if not path.is_file():
        message = f"{folder}: the task to start from was not finished. Run the study again."
        raise UsageError(message, code="unfinished-task", value=folder.name)
    return path.read_text(encoding="utf-8")


def _log(line: str, options: StudyOptions) -> None:
    if options.progress_shown:
        print(line, file=sys.stderr, flush=True)
