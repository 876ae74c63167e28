"""The interval of one run alone: its test documents drawn again, with replacement, and scored anew."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from lexome.document import Document
from lexome.errors import DataSetError
from lexome.formats import read
from lexome.recipe.finetune import FinetuneRecipe
from lexome.tasks import Ner, Questions, task_of
from lexome.tasks.metrics import count_rows, mentions, spans_strict
from lexome.tasks.qa import question_of
from lexome.tasks.sets import find
from lexome.tasks.sets.dataset import TEST
from lexome.tasks.task import Scores, Task
from lexome.train.finetune.runs import gold_path
from lexome.train.study.aggregate import LEVEL, Estimate

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
        units.setdefault(question_of(doc.questions[0].id) if doc.questions else doc.id, []).append(place)
    return list(units.values())


def _asked_as(number: int, doc: Document) -> Document:
    """The document with its questions under ids of their own: two of one id would be scored as one."""
    return replace(doc, questions=tuple(replace(asked, id=f"{number}.{asked.id}") for asked in doc.questions))


def _questions(docs: Iterable[Document]) -> int:
    """How many questions are asked, one on several texts counting once."""
    return len({question_of(question.id) for doc in docs for question in doc.questions})


def with_interval(estimate: Estimate, ends: tuple[float, float]) -> Estimate:
    """The estimate of one run with an interval over documents."""
    low, high = ends
    return estimate.model_copy(update={"low": low, "high": high, "level": LEVEL, "over": "documents"})
