"""Aggregation: runs into estimates with intervals, estimates into a study's rows and averages beside the paper's.

Scores of runs are fractions; everything from `Estimate` on is in percent, as papers print it.
"""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, Field

from lexome.datasets import find
from lexome.datasets.dataset import TEST
from lexome.document import Document
from lexome.errors import DataSetError, UsageError
from lexome.formats import read
from lexome.recipe import Table
from lexome.recipe.finetune import FinetuneRecipe
from lexome.recipe.study import AverageTable, DecisionTable, ReportedTable, StudyRecipe, TaskTable
from lexome.tasks import Task, task_of
from lexome.tasks.metrics.bootstrap import LEVEL, score_intervals
from lexome.training.finetune.run import gold_path

# Over folds and seeds

Statistic = Literal["mean", "median"]

# Two-sided 95% quantiles of Student's t, by degrees of freedom from 1 on.
T_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120),
    *(2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@dataclass(frozen=True, slots=True)
class RunScores:
    """One run's test scores by metric; `fold` is None without cross-validation."""

    seed: int
    fold: int | None
    scores: Mapping[str, float]


class Estimate(Table):
    """An aggregated score in percent, with its confidence interval.

    low, high  the interval; None for a single run without one
    level      its confidence level: 0.95, or what so few runs allow
    over       what varies inside the interval: "seeds", "folds" or "documents"
    each       the values of the last aggregation step
    """

    value: float
    runs: int
    low: float | None = None
    high: float | None = None
    level: float | None = None
    over: str | None = None
    each: tuple[float, ...] = ()


def aggregate(runs: Sequence[RunScores], metric: str, *, folds: Statistic | None, seeds: Statistic) -> Estimate:
    """The paper's aggregate: `folds` over each seed's folds, then `seeds` over seeds.

    With one seed and several folds, the interval is over folds.
    """
    scores: dict[int, dict[int | None, float]] = {}
    for run in runs:
        if metric not in run.scores:
            message = f"the runs have no metric {metric!r}; expected one of {', '.join(run.scores)}."
            raise UsageError(message, code="unknown-metric", value=metric)
        of_seed = scores.setdefault(run.seed, {})
        if run.fold in of_seed:
            message = f"seed {run.seed} has two runs for one fold; expected one."
            raise UsageError(message, code="duplicate-run", value=run.seed)
        of_seed[run.fold] = 100 * run.scores[metric]
    if any(run.fold is not None for run in runs) and folds is None:
        raise UsageError(
            "the runs are folds of a cross-validation, but the protocol has no statistic over folds. "
            'Set folds = "mean" or "median".',
            code="no-fold-statistic",
        )
    if len({len(of_seed) for of_seed in scores.values()}) > 1:
        message = "seeds have different numbers of folds; expected the same. Run the study again to complete them."
        raise UsageError(message, code="incomplete-folds")
    by_seed = [
        [of_seed[fold] for fold in sorted(of_seed, key=lambda fold: fold or 0)] for _, of_seed in sorted(scores.items())
    ]
    if len(by_seed) == 1 and len(runs) > 1:
        return _estimate(by_seed[0], folds or seeds, over="folds", runs=len(runs))
    return _estimate([_statistic(of_seed, folds or "mean") for of_seed in by_seed], seeds, over="seeds", runs=len(runs))


def _statistic(values: Sequence[float], statistic: Statistic) -> float:
    return statistics.fmean(values) if statistic == "mean" else statistics.median(values)


def _estimate(values: Sequence[float], statistic: Statistic, *, over: str, runs: int) -> Estimate:
    estimate = Estimate(value=_statistic(values, statistic), runs=runs, each=tuple(values))
    if len(values) == 1:
        return estimate
    low, high, level = _mean_interval(values) if statistic == "mean" else _median_interval(values)
    return estimate.model_copy(update={"low": low, "high": high, "level": level, "over": over})


def _mean_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Student's t interval of the mean."""
    degrees = len(values) - 1
    quantile = T_95[degrees - 1] if degrees <= len(T_95) else 1.96
    half = quantile * statistics.stdev(values) / math.sqrt(len(values))
    mean = statistics.fmean(values)
    return mean - half, mean + half, LEVEL


def _median_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The narrowest interval between order statistics, symmetric in rank, that covers the median with 95%.

    It is distribution-free. With five values even minimum and maximum cover the median with 93.75% only: then these
    two are the interval, at that level.
    """
    count, ordered = len(values), sorted(values)
    coverage = [
        1 - 2 * sum(math.comb(count, k) for k in range(rank + 1)) / 2**count for rank in range((count + 1) // 2)
    ]
    rank = max((rank for rank, level in enumerate(coverage) if level >= LEVEL), default=0)
    return ordered[rank], ordered[-1 - rank], coverage[rank]


# Over documents: the bootstrap interval of a single run

Documents = Sequence[Document]

# Scoring a large test split takes a second; 200 samples give the ends of an interval to a tenth of its width.
SAMPLES = 200


def document_intervals(recipe: FinetuneRecipe, fold: int | None, predictions: Path) -> dict[str, tuple[float, float]]:
    """The bootstrap intervals of one run's test scores by metric, from the predictions it wrote."""
    source = find(recipe.data.sets[0], data=recipe.data.root)
    task = task_of({**source.settings, **recipe.task})
    predicted = list(read(predictions, format="jsonl"))
    gold_file = gold_path(recipe.out, TEST, fold)
    if gold_file.is_file():
        return bootstrap_intervals(task, list(read(gold_file, format="jsonl")), predicted)
    # Runs of earlier versions have no gold file.
    dataset = source if fold is None else source.folds[fold]
    gold = dataset.splits(partial=True, overlap=recipe.data.overlap)[recipe.data.test]
    if recipe.data.limit is not None:
        ids = {doc.id for doc in predicted}
        gold = [doc for doc in gold if doc.id in ids]
    return bootstrap_intervals(task, gold, predicted)


def bootstrap_intervals(
    task: Task, gold: Documents, predicted: Documents, *, samples: int = SAMPLES, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """The 95% bootstrap intervals over test documents by metric, in percent."""
    if [doc.id for doc in gold] != [doc.id for doc in predicted]:
        raise DataSetError(
            f"the run predicted {len(predicted):,} documents; expected the {len(gold):,} of the test split. "
            "The dataset has changed since the run: remove the run and repeat it.",
            code="document-mismatch",
            value=len(predicted),
        )
    samples_of = task.resampled_scores(gold, predicted, samples=samples, seed=seed)
    return score_intervals(({name: 100 * score for name, score in scores.items()} for scores in samples_of), LEVEL)


# What papers and labs report

Key = tuple[str, str]
"""Task and metric."""


def reported_values(study: StudyRecipe, row: ReportedTable) -> Iterator[tuple[str, str, float]]:
    """A reported row's values by task and metric, without averages."""
    metrics = {task.name: task.metrics for task in study.tasks}
    for name, values in row.values.items():
        if name in metrics:
            each = values if isinstance(values, tuple) else (values,)
            yield from ((name, metric, value) for metric, value in zip(metrics[name], each, strict=True))


class LabRange(Table):
    """Values that several labs report for one model, task and metric."""

    model: str
    labs: dict[str, float]

    @property
    def low(self) -> float:
        """The lowest reported value."""
        return min(self.labs.values())

    @property
    def high(self) -> float:
        """The highest reported value."""
        return max(self.labs.values())

    def contains(self, value: float) -> bool:
        """Whether a value lies within the range."""
        return self.low <= value <= self.high


LabRanges = dict[tuple[str, str, str], LabRange]
"""Ranges of reported scores, by model, task and metric."""


def lab_ranges(studies: Iterable[StudyRecipe]) -> LabRanges:
    """The scores that all studies, and the labs they quote, report.

    Only values of the same metric are compared: a macro F1 says nothing about a micro F1.
    """
    labs: dict[tuple[str, str, str], dict[str, float]] = {}
    for study in studies:
        for row in study.reported:
            for task, metric, value in reported_values(study, row):
                labs.setdefault((row.model, task, metric), {}).setdefault(row.lab or study.name, value)
    return {key: LabRange(model=key[0], labs=values) for key, values in labs.items()}


# The result of a study

Estimates = Mapping[str, Mapping[str, Mapping[str, Estimate]]]
"""Scores of our models, by model, task and metric."""


class _Stored(Table):
    """A table of study.json, whose keys are the first edition's: aliases where the field names have changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, serialize_by_alias=True)


class ResultRow(_Stored):
    """One metric of one task: our estimates by model, the paper's values by model, and ranges between labs."""

    task: str
    group: str
    metric: str = Field(validation_alias="measure", serialization_alias="measure")
    ours: dict[str, Estimate]
    paper: dict[str, float]
    labs: dict[str, LabRange]
    note: str = ""


class AverageRow(_Stored):
    """An average over the tasks with results.

    of        these tasks, in the paper's order
    left_out  the paper's other tasks
    paper     the paper's values averaged over the same tasks, for models with all of them
    printed   the paper's own average over all tasks
    """

    name: str
    of: tuple[str, ...]
    left_out: tuple[str, ...]
    ours: dict[str, float]
    paper: dict[str, float]
    printed: dict[str, float]


class MissingTask(_Stored):
    """A task without results, and why.

    source  where to get its dataset
    model   the model it failed for; None if the dataset is missing
    """

    task: str
    set: str
    reason: str = Field(validation_alias="why", serialization_alias="why")
    source: str = Field(default="", validation_alias="get", serialization_alias="get")
    model: str | None = None

    def __str__(self) -> str:
        failed = "" if self.model is None else f" failed for {self.model}"
        return " ".join(filter(None, (f"{self.task} ({self.set}){failed}: {self.reason.rstrip('.')}.", self.source)))


# In the folder of a study: its result.
RESULT = "study.json"


class StudyResult(_Stored):
    """All that a study's tables and plots are made from.

    models       our checkpoints by name
    changes      deviations from the paper's protocol that the caller asked for
    chosen       by model and task, the selected hyper-parameters
    warnings     by task, warnings about its data, such as test documents that are in train
    failed       by model and task, runs that diverged or failed, and why; the others are reported
    environment  date, versions and hardware
    """

    study: str
    title: str
    paper: str
    description: str = Field(validation_alias="about", serialization_alias="about")
    models: dict[str, str]
    quick: bool
    changes: tuple[str, ...]
    rows: tuple[ResultRow, ...]
    averages: tuple[AverageRow, ...] = Field(validation_alias="means", serialization_alias="means")
    missing: tuple[MissingTask, ...]
    protocols: dict[str, str]
    decisions: tuple[DecisionTable, ...]
    chosen: dict[str, dict[str, str]] = Field(default={})
    warnings: dict[str, tuple[str, ...]] = Field(default={})
    failed: dict[str, dict[str, dict[str, str]]] = Field(default={})
    reference: str | None = None
    curve: str | None = None
    environment: dict[str, str] = Field(default={}, validation_alias="made", serialization_alias="made")

    @property
    def scores(self) -> int:
        """The number of scores of our models."""
        return sum(len(row.ours) for row in self.rows)

    def within_lab_ranges(self) -> tuple[int, int]:
        """How many of our estimates lie within the range between labs, and how many can be compared."""
        pairs = [
            (row.labs[model], estimate.value)
            for row in self.rows
            for model, estimate in row.ours.items()
            if model in row.labs and len(row.labs[model].labs) > 1
        ]
        return sum(lab_range.contains(value) for lab_range, value in pairs), len(pairs)


def study_result(
    study: StudyRecipe,
    estimates: Estimates,
    *,
    models: Mapping[str, str],
    missing: Iterable[MissingTask],
    ranges: LabRanges,
    quick: bool = False,
    changes: Iterable[str] = (),
    chosen: Mapping[str, Mapping[str, str]] | None = None,
    warnings: Mapping[str, tuple[str, ...]] | None = None,
    failed: Mapping[str, Mapping[str, Mapping[str, str]]] | None = None,
    only: Iterable[str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> StudyResult:
    """A study's result from the estimates of our models; with `only`, just the rows of these tasks."""
    selected = None if only is None else set(only)
    tasks = [task for task in study.tasks if not task.intermediate and (selected is None or task.name in selected)]
    paper: dict[str, dict[Key, float]] = {}
    for row in study.reported:
        if row.lab is None:
            of_model = paper.setdefault(row.model, {})
            of_model |= {(task, metric): value for task, metric, value in reported_values(study, row)}
    compared = dict.fromkeys((*([study.reference] if study.reference else []), *estimates))

    def result_row(task: TaskTable, metric: str) -> ResultRow:
        known = {model: ranges.get((model, task.name, metric)) for model in compared}
        return ResultRow(
            task=task.name,
            group=task.group,
            metric=metric,
            ours={model: of[task.name][metric] for model, of in estimates.items() if task.name in of},
            paper={model: of[task.name, metric] for model, of in paper.items() if (task.name, metric) in of},
            labs={model: lab_range for model, lab_range in known.items() if lab_range is not None},
            note=task.note,
        )

    return StudyResult(
        study=study.name,
        title=study.title,
        paper=study.paper,
        description=study.description,
        models=dict(models),
        quick=quick,
        changes=tuple(changes),
        rows=tuple(result_row(task, metric) for task in tasks for metric in task.metrics),
        averages=tuple(_averages(study, estimates, paper)),
        missing=tuple(missing),
        protocols={name: protocol.description for name, protocol in study.protocols.items()},
        decisions=study.decisions,
        chosen={model: dict(of) for model, of in (chosen or {}).items()},
        warnings=dict(warnings or {}),
        failed={model: {task: dict(runs) for task, runs in of.items()} for model, of in (failed or {}).items()},
        reference=study.reference,
        curve=study.curve,
        environment=dict(environment or {}),
    )


def _averages(
    study: StudyRecipe, estimates: Estimates, paper: Mapping[str, Mapping[Key, float]]
) -> Iterator[AverageRow]:
    """The study's averages over the tasks that all of our models have; one without any such task is dropped."""
    tables = {average.name: average for average in study.averages}
    ours = {
        model: {(task, metric): estimate.value for task, each in of.items() for metric, estimate in each.items()}
        for model, of in estimates.items()
    }

    def tasks_of(average: AverageTable) -> list[str]:
        """The tasks of an average, through other averages."""
        nested = (tasks_of(tables[name]) if name in tables else [name] for name in average.of)
        return list(dict.fromkeys(task for tasks in nested for task in tasks))

    def mean(average: AverageTable, tasks: Sequence[str], values: Mapping[Key, float]) -> float:
        """The mean over these tasks; a nested average counts once, as does a task with several metrics."""
        parts: list[float] = []
        for name in average.of:
            if name in tables and any(task in tasks for task in tasks_of(tables[name])):
                parts.append(mean(tables[name], tasks, values))
            elif name in tasks:
                parts.append(statistics.fmean(values[name, metric] for metric in study.task(name).metrics))
        return statistics.fmean(parts)

    for average in study.averages if estimates else ():
        every = tasks_of(average)
        tasks = [name for name in every if all(name in of for of in estimates.values())]
        if not tasks:
            continue
        keys = [(name, metric) for name in tasks for metric in study.task(name).metrics]
        complete = {model: of for model, of in paper.items() if all(key in of for key in keys)}
        printed = {row.model: row.values[average.name] for row in study.reported if average.name in row.values}
        yield AverageRow(
            name=average.name,
            of=tuple(tasks),
            left_out=tuple(name for name in every if name not in tasks),
            ours={model: mean(average, tasks, of) for model, of in ours.items()},
            paper={model: mean(average, tasks, of) for model, of in complete.items()},
            printed={
                model: statistics.fmean(value) if isinstance(value, tuple) else value
                for model, value in printed.items()
            },
        )
