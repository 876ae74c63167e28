"""What a paper makes of the scores of many runs: folds first, then seeds, as mean or median, with an interval."""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from lexome.datasets import find
from lexome.datasets.dataset import TEST
from lexome.document import Document
from lexome.errors import DataSetError, UsageError
from lexome.formats import read
from lexome.recipe import Table
from lexome.recipe.finetune import FinetuneRecipe
from lexome.recipe.study import ReportedTable, StudyRecipe
from lexome.tasks import Ner, Questions, task_of
from lexome.tasks.metrics import count_rows, mentions, spans_strict
from lexome.tasks.qa import base_question_id
from lexome.tasks.task import Scores, Task
from lexome.training.finetune.grid import gold_path


class Spread(Table):
    """The numbers of several labs for one model, task and measure."""

    model: str
    labs: dict[str, float]

    @property
    def low(self) -> float:
        """The lowest."""
        return min(self.labs.values())

    @property
    def high(self) -> float:
        """The highest."""
        return max(self.labs.values())

    def holds(self, number: float) -> bool:
        """Whether a number lies between them."""
        return self.low <= number <= self.high


Spreads = dict[tuple[str, str, str], Spread]
"""By model, task and measure."""


def spreads(studies: Iterable[StudyRecipe]) -> Spreads:
    """What all studies and the labs they quote report, by model, task and measure.

    Only numbers of the same measure are put together: a macro F1 says nothing about a micro F1.
    """
    found: dict[tuple[str, str, str], dict[str, float]] = {}
    for study in studies:
        for row in study.reported:
            for task, measure, number in numbers(study, row):
                found.setdefault((row.model, task, measure), {}).setdefault(row.lab or study.name, number)
    return {key: Spread(model=key[0], labs=labs) for key, labs in found.items()}


def numbers(study: StudyRecipe, row: ReportedTable) -> Iterable[tuple[str, str, float]]:
    """The numbers of a row by task and measure; averages are left out."""
    measures = {task.name: task.measures for task in study.tasks}
    for name, given in row.values.items():
        if name in measures:
            each = given if isinstance(given, tuple) else (given,)
            yield from ((name, measure, number) for measure, number in zip(measures[name], each, strict=True))


Statistic = Literal["mean", "median"]

LEVEL = 0.95
# Student's t, of which 95% lies between the number and its negative, by degrees of freedom from 1 on.
T_95 = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120),
    *(2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)


@dataclass(frozen=True, slots=True)
class Scored:
    """One run's scores on test, by measure; `fold` is None where the set has none."""

    seed: int
    fold: int | None
    scores: Mapping[str, float]


class Estimate(Table):
    """A number in percent, what it is of, and an interval.

    low, high  the interval, None where one run alone says nothing about it
    level      how sure it is: 0.95, or what so few runs allow
    over       what varies inside the interval: "seeds", "folds" or "documents"
    each       the numbers that the last step was made of
    """

    value: float
    runs: int
    low: float | None = None
    high: float | None = None
    level: float | None = None
    over: str | None = None
    each: tuple[float, ...] = ()


def aggregated(runs: Sequence[Scored], measure: str, *, folds: Statistic | None, seeds: Statistic) -> Estimate:
    """The paper's number: of each seed's folds, and of these over seeds.

    Where there is one seed and there are several folds, the interval is over folds.
    """
    numbers = {(run.seed, run.fold): 100 * _of(run, measure) for run in runs}
    if len(numbers) < len(runs):
        raise UsageError("a seed is there twice for one fold; expected each run once.")
    if any(run.fold is not None for run in runs) and folds is None:
        raise UsageError("the runs are of folds, and the protocol does not say what is taken over them. Say folds.")
    by_seed: dict[int, list[float]] = {}
    for (seed, _), number in sorted(numbers.items(), key=lambda item: (item[0][0], item[0][1] or 0)):
        by_seed.setdefault(seed, []).append(number)
    if len({len(found) for found in by_seed.values()}) > 1:
        raise UsageError("seeds have different numbers of folds; expected the same. Run the study again to fill them.")
    if len(by_seed) == 1 and len(runs) > 1:
        return _estimate(next(iter(by_seed.values())), folds or seeds, over="folds", runs=len(runs))
    each = [_taken(found, folds or "mean") for found in by_seed.values()]
    return _estimate(each, seeds, over="seeds", runs=len(runs))


def _of(run: Scored, measure: str) -> float:
    if measure not in run.scores:
        raise UsageError(f"the runs have no measure {measure!r}; they have {', '.join(run.scores)}. Name one of these.")
    return run.scores[measure]


def _taken(numbers: Sequence[float], statistic: Statistic) -> float:
    return statistics.fmean(numbers) if statistic == "mean" else statistics.median(numbers)


def _estimate(numbers: Sequence[float], statistic: Statistic, *, over: str, runs: int) -> Estimate:
    taken = _taken(numbers, statistic)
    if len(numbers) == 1:
        return Estimate(value=taken, runs=runs, each=tuple(numbers))
    low, high, level = _mean_interval(numbers) if statistic == "mean" else _median_interval(numbers)
    return Estimate(value=taken, runs=runs, low=low, high=high, level=level, over=over, each=tuple(numbers))


def _mean_interval(numbers: Sequence[float]) -> tuple[float, float, float]:
    """Student's interval of the mean."""
    degrees = len(numbers) - 1
    quantile = T_95[degrees - 1] if degrees <= len(T_95) else 1.96
    half = quantile * statistics.stdev(numbers) / math.sqrt(len(numbers))
    mean = statistics.fmean(numbers)
    return mean - half, mean + half, LEVEL


def _median_interval(numbers: Sequence[float]) -> tuple[float, float, float]:
    """The narrowest pair of the numbers themselves, as far from both ends, that holds the median with 95%.

    This needs no assumption. Of five numbers even least and most hold it with 93.75% only: then these, and that.
    """
    count, ordered = len(numbers), sorted(numbers)
    sure = [1 - 2 * sum(math.comb(count, k) for k in range(place + 1)) / 2**count for place in range((count + 1) // 2)]
    place = max((place for place, level in enumerate(sure) if level >= LEVEL), default=0)
    return ordered[place], ordered[-1 - place], sure[place]


Way = Callable[[Task, Sequence[Document], Sequence[Document], np.random.Generator, int], Iterator[Scores]]

# Scoring some sets takes a second; of so many draws the ends of an interval are known to a tenth of its width.
DRAWS = 200


def over_documents(recipe: FinetuneRecipe, fold: int | None, found: Path) -> dict[str, tuple[float, float]]:
    """For each measure the interval of one run's test scores, from the documents it has written."""
    source = find(recipe.data.sets[0])
    task = task_of({**source.settings, **recipe.task})
    answers = list(read(found, format="jsonl"))
    written = gold_path(recipe.out, TEST, fold)
    if written.is_file():
        return drawn(task, list(read(written, format="jsonl")), answers)
    # A run from before there was such a file.
    part = source if fold is None else source.folds[fold]
    gold = part.splits(partial=True, overlap=recipe.data.overlap)[recipe.data.test]
    if recipe.data.limit is not None:
        known = {doc.id for doc in answers}
        gold = [doc for doc in gold if doc.id in known]
    return drawn(task, gold, answers)


def drawn(
    task: Task, gold: Sequence[Document], found: Sequence[Document], *, draws: int = DRAWS, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """The range that holds 95% of the scores of as many documents drawn with replacement, by measure, in percent."""
    if [doc.id for doc in gold] != [doc.id for doc in found]:
        raise DataSetError(
            f"the run answered {len(found):,} documents, and test has {len(gold):,} or others; expected the same. "
            "The set's files have changed since: remove the run and do it again."
        )
    rng = np.random.default_rng(seed)
    scored = _way_of(task)
    scores: dict[str, list[float]] = {}
    for drawing in scored(task, gold, found, rng, draws):
        for measure, number in drawing.items():
            scores.setdefault(measure, []).append(100 * number)
    tail = (1 - LEVEL) / 2
    ends = {measure: np.nanquantile(numbers, (tail, 1 - tail)) for measure, numbers in scores.items()}
    return {measure: (float(low), float(high)) for measure, (low, high) in ends.items()}


def _way_of(task: Task) -> Way:
    """How draws are scored: entities and questions have shorter ways than to score all documents each time."""
    if isinstance(task, Questions):
        # Macro F1 of yes and no is no mean over questions: of one question alone it is a half at best.
        return _by_drawn_question if task.form == "yesno" else _by_question
    return _by_counts if isinstance(task, Ner) and task.measure == "strict" else _by_document


def _by_counts(
    task: Task, gold: Sequence[Document], found: Sequence[Document], rng: np.random.Generator, draws: int
) -> Iterator[Scores]:
    """Precision, recall and F1 of entities, from each document's counts of right, spurious and missed ones."""
    assert isinstance(task, Ner)
    pairs = zip(gold, found, strict=True)
    rows = count_rows([spans_strict(*([mentions(doc, task.types)] for doc in pair)) for pair in pairs])
    for _ in range(draws):
        right, spurious, missed = rows[rng.integers(len(rows), size=len(rows))].sum(axis=0).tolist()
        yield {
            "f1": 2 * right / max(1, 2 * right + spurious + missed),
            "precision": right / max(1, right + spurious),
            "recall": right / max(1, right + missed),
        }


def _by_document(
    task: Task, gold: Sequence[Document], found: Sequence[Document], rng: np.random.Generator, draws: int
) -> Iterator[Scores]:
    """Scores of drawn documents; a draw of a small set that holds nothing to score is left out."""
    for _ in range(draws):
        places = rng.integers(len(gold), size=len(gold))
        scores = task.score([gold[n] for n in places], [found[n] for n in places])
        if not (scores.get("f1") == 0 and scores.get("accuracy") == 1):
            yield scores


def _by_question(
    task: Task, gold: Sequence[Document], found: Sequence[Document], rng: np.random.Generator, draws: int
) -> Iterator[Scores]:
    """Scores that are means over questions: each drawn with all the texts it is asked on, which share its id."""
    units = _units(gold)
    each = [task.score([gold[n] for n in places], [found[n] for n in places]) for places in units]
    counts = np.array([_questions(gold[n] for n in places) for places in units], np.float64)
    common = [measure for measure in each[0] if all(measure in scores for scores in each)]
    for _ in range(draws):
        drawn_units = rng.integers(len(each), size=len(each))
        weights = counts[drawn_units]
        yield {
            measure: float(np.average([each[n][measure] for n in drawn_units], weights=weights)) for measure in common
        }


def _by_drawn_question(
    task: Task, gold: Sequence[Document], found: Sequence[Document], rng: np.random.Generator, draws: int
) -> Iterator[Scores]:
    """Scores of drawn questions, each with all the texts it is asked on; one that is drawn twice counts twice."""
    units = _units(gold)
    for _ in range(draws):
        drawn_units = enumerate(rng.integers(len(units), size=len(units)).tolist())
        places = [(number, place) for number, unit in drawn_units for place in units[unit]]
        both = ([_asked_as(number, docs[place]) for number, place in places] for docs in (gold, found))
        yield task.score(*both)


def _units(gold: Sequence[Document]) -> list[list[int]]:
    """The places of the documents that ask one question, which share its id."""
    units: dict[str, list[int]] = {}
    for place, doc in enumerate(gold):
        units.setdefault(base_question_id(doc.questions[0].id) if doc.questions else doc.id, []).append(place)
    return list(units.values())


def _asked_as(number: int, doc: Document) -> Document:
    """The document with its questions under ids of their own: two of one id would be scored as one."""
    return replace(doc, questions=tuple(replace(asked, id=f"{number}.{asked.id}") for asked in doc.questions))


def _questions(docs: Iterable[Document]) -> int:
    """How many questions are asked, one on several texts counting once."""
    return len({base_question_id(question.id) for doc in docs for question in doc.questions})


def with_interval(estimate: Estimate, ends: tuple[float, float]) -> Estimate:
    """The estimate of one run with an interval over documents."""
    low, high = ends
    return estimate.model_copy(update={"low": low, "high": high, "level": LEVEL, "over": "documents"})
