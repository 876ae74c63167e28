"""What a study came to: ours beside the paper's and the labs', averages over what is there, and what is missing."""

import statistics
from collections.abc import Iterable, Mapping

from pydantic import Field

from lexome.recipe import Table
from lexome.recipe.study import AverageTable, DecisionTable, StudyRecipe, TaskTable
from lexome.reproduce.aggregate import Estimate, Spread, Spreads, numbers

Estimates = Mapping[str, Mapping[str, Mapping[str, Estimate]]]
"""Of our models, by model, task and measure."""


class Row(Table):
    """One measure of one task: ours by model, the paper's by model, and the labs' for the models that several have."""

    task: str
    group: str
    measure: str
    ours: dict[str, Estimate]
    paper: dict[str, float]
    labs: dict[str, Spread]
    note: str = ""


class Mean(Table):
    """An average over the tasks that are there.

    of        the tasks, in the paper's order
    left_out  those that the paper has besides
    paper     the paper's rows averaged over the same tasks, for the models whose rows it prints
    printed   what the paper prints, over all tasks
    """

    name: str
    of: tuple[str, ...]
    left_out: tuple[str, ...]
    ours: dict[str, float]
    paper: dict[str, float]
    printed: dict[str, float]


class Missing(Table):
    """A task that could not be run, why, and where its set is to be had.

    model  the one of ours that failed; None where the set is not here, so that no model has a number
    """

    task: str
    set: str
    why: str
    get: str = ""
    model: str | None = None

    def __str__(self) -> str:
        failed = "" if self.model is None else f" failed for {self.model}"
        return " ".join(filter(None, (f"{self.task} ({self.set}){failed}: {self.why.rstrip('.')}.", self.get)))


class Outcome(Table):
    """A study with its numbers; all that tables and pictures are made of.

    models   our checkpoints by the name they were given
    changes  what differs from the paper's protocol because the caller wished it
    chosen   by our model and task, the settings that were chosen where the protocol chooses
    warnings by task, what is odd about its documents, such as some of test that are in train
    made     when, with what versions and on what it was made
    """

    study: str
    title: str
    paper: str
    about: str
    models: dict[str, str]
    quick: bool
    changes: tuple[str, ...]
    rows: tuple[Row, ...]
    means: tuple[Mean, ...]
    missing: tuple[Missing, ...]
    protocols: dict[str, str]
    decisions: tuple[DecisionTable, ...]
    chosen: dict[str, dict[str, str]] = Field(default={})
    warnings: dict[str, tuple[str, ...]] = Field(default={})
    reference: str | None = None
    curve: str | None = None
    made: dict[str, str] = Field(default={})

    def between_labs(self) -> tuple[int, int]:
        """Of our numbers for models that several labs report, how many lie between theirs, and how many there are."""
        pairs = [
            (row.labs[model], estimate.value)
            for row in self.rows
            for model, estimate in row.ours.items()
            if model in row.labs and len(row.labs[model].labs) > 1
        ]
        return sum(spread.holds(number) for spread, number in pairs), len(pairs)


def outcome_of(
    study: StudyRecipe,
    estimates: Estimates,
    *,
    models: Mapping[str, str],
    missing: Iterable[Missing],
    spreads: Spreads,
    quick: bool = False,
    changes: Iterable[str] = (),
    chosen: Mapping[str, Mapping[str, str]] | None = None,
    warnings: Mapping[str, tuple[str, ...]] | None = None,
    only: Iterable[str] | None = None,
    made: Mapping[str, str] | None = None,
) -> Outcome:
    """A study's outcome, from the estimates for each of our models; with `only`, rows of these tasks alone."""
    asked = None if only is None else set(only)
    tasks = [task for task in study.tasks if not task.step and (asked is None or task.name in asked)]
    paper = _paper(study)
    return Outcome(
        study=study.name,
        title=study.title,
        paper=study.paper,
        about=study.about,
        models=dict(models),
        quick=quick,
        changes=tuple(changes),
        rows=tuple(
            _row(study, task, measure, estimates, paper, spreads) for task in tasks for measure in task.measures
        ),
        means=tuple(_means(study, estimates, paper)),
        missing=tuple(missing),
        protocols={name: protocol.about for name, protocol in study.protocols.items()},
        decisions=study.decisions,
        chosen={model: dict(of) for model, of in (chosen or {}).items()},
        warnings=dict(warnings or {}),
        reference=study.reference,
        curve=study.curve,
        made=dict(made or {}),
    )


_Numbers = Mapping[tuple[str, str], float]
"""By task and measure."""
_Paper = dict[str, dict[tuple[str, str], float]]


def _paper(study: StudyRecipe) -> _Paper:
    """The paper's own numbers by model, task and measure; models in the order of its tables."""
    found: _Paper = {}
    for row in study.reported:
        if row.lab is None:
            of = found.setdefault(row.model, {})
            of |= {(task, measure): number for task, measure, number in numbers(study, row)}
    return found


def _row(
    study: StudyRecipe, task: TaskTable, measure: str, estimates: Estimates, paper: _Paper, spreads: Spreads
) -> Row:
    models = dict.fromkeys((*([study.reference] if study.reference else []), *estimates))
    known = {model: spreads.get((model, task.name, measure)) for model in models}
    return Row(
        task=task.name,
        group=task.group,
        measure=measure,
        ours={model: of[task.name][measure] for model, of in estimates.items() if task.name in of},
        paper={model: of[task.name, measure] for model, of in paper.items() if (task.name, measure) in of},
        labs={model: spread for model, spread in known.items() if spread is not None},
        note=task.note,
    )


def _means(study: StudyRecipe, estimates: Estimates, paper: _Paper) -> Iterable[Mean]:
    """The study's averages over the tasks that all of our models have; one of which nothing is there is left out."""
    there = [name for name in (task.name for task in study.tasks) if all(name in of for of in estimates.values())]
    averages = {average.name: average for average in study.averages}
    for average in study.averages:
        leaves = _leaves(average, averages)
        kept = [name for name in leaves if name in there]
        if not estimates or not kept:
            continue
        mine = {model: _flat(of) for model, of in estimates.items()}
        whole = [(name, measure) for name in kept for measure in study.task(name).measures]
        theirs = {model: of for model, of in paper.items() if all(key in of for key in whole)}
        yield Mean(
            name=average.name,
            of=tuple(kept),
            left_out=tuple(name for name in leaves if name not in kept),
            ours={model: _mean(study, average, averages, kept, of) for model, of in mine.items()},
            paper={model: _mean(study, average, averages, kept, of) for model, of in theirs.items()},
            printed={row.model: _one(row.values[average.name]) for row in study.reported if average.name in row.values},
        )


def _leaves(average: AverageTable, averages: Mapping[str, AverageTable]) -> list[str]:
    """The tasks that an average is of, through other averages."""
    found: dict[str, None] = {}
    for name in average.of:
        found |= dict.fromkeys(_leaves(averages[name], averages) if name in averages else [name])
    return list(found)


def _mean(
    study: StudyRecipe,
    average: AverageTable,
    averages: Mapping[str, AverageTable],
    kept: list[str],
    given: _Numbers,
) -> float:
    """The mean over the kept tasks; an average inside counts once, as a task with several measures does."""
    parts: list[float] = []
    for name in average.of:
        if name in averages:
            if any(leaf in kept for leaf in _leaves(averages[name], averages)):
                parts.append(_mean(study, averages[name], averages, kept, given))
        elif name in kept:
            parts.append(statistics.fmean(given[name, measure] for measure in study.task(name).measures))
    return statistics.fmean(parts)


def _flat(of: Mapping[str, Mapping[str, Estimate]]) -> _Numbers:
    return {(task, measure): found.value for task, each in of.items() for measure, found in each.items()}


def _one(given: float | tuple[float, ...]) -> float:
    return statistics.fmean(given) if isinstance(given, tuple) else given
