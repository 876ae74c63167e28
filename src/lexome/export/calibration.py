"""Calibration by Platt scaling: a slope and an offset on the log-odds (Platt 1999).

Scores of mentions and relations are calibrated by type, those of answers by form of question; for readers, also the
probability below which they abstain.

N mentions, relations or answers, Q questions
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lexome.document import Document, Question
from lexome.export.int8 import HeldOutSource
from lexome.infer.annotator import EDGE, Curve, Model, calibrated
from lexome.tasks import Questions, Task
from lexome.tasks.qa import Form, ask_elsewhere, is_right, join_texts
from lexome.tasks.task import CalibrationExample

Floats = NDArray[np.float64]

# Types with fewer mentions, and forms with fewer questions, are not calibrated.
MIN_MENTIONS = MIN_QUESTIONS = 20
# L2 regularization towards the identity, slope 1 and offset 0.
REGULARIZATION = 2.0
# A positive slope keeps the order of scores.
MIN_SLOPE = 0.05
NEWTON_STEPS = 100
TOLERANCE = 1e-10
# A smaller difference between answerable and unanswerable questions may be chance.
MIN_SEPARATION = 0.1
BINS = 10
FOLDS = 5


@dataclass(frozen=True, slots=True)
class ScoredMentions:
    """Predicted mentions or relations of one type: scores, whether each is correct, and the number of its document."""

    scores_N: Floats
    correct_N: Floats
    documents_N: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fitted curve with its expected calibration error before and after.

    ece_after is cross-validated: curves are fitted on other documents than they are measured on. `pooled` names the
    schema whose relations of all types it was fitted on, if there were too few of one type.
    """

    slope: float
    offset: float
    mentions: int
    right: int
    ece_before: float
    ece_after: float
    pooled: str | None = None

    @property
    def curve(self) -> Curve:
        """Slope and offset."""
        return self.slope, self.offset

    def as_json(self) -> dict[str, Any]:
        """The entry in the certificate."""
        facts = asdict(self) | {name: round(getattr(self, name), 4) for name in ("ece_before", "ece_after")}
        return {name: fact for name, fact in facts.items() if fact is not None}


def calibrate(
    task: Task, sources: Sequence[HeldOutSource], predictions: Sequence[Sequence[Document]]
) -> dict[str, Calibration]:
    """The calibration of each type with enough predictions in sources that annotate it; rare ones have their pool's."""
    examples = held_out_examples(task, sources, predictions)
    by_type = _group(examples, lambda example: example.type)
    by_pool = _group(examples, lambda example: example.pool)
    pooled = {pool: fit(scored) for pool, scored in by_pool.items() if pool and len(scored.scores_N) >= MIN_MENTIONS}
    fitted: dict[str, Calibration] = {}
    for pool, type_ in task.calibrated_types:
        if type_ in by_type and len(by_type[type_].scores_N) >= MIN_MENTIONS:
            fitted[type_] = fit(by_type[type_])
        elif pool in pooled and type_ not in fitted:
            fitted[type_] = replace(pooled[pool], pooled=pool)
    return fitted


def held_out_examples(
    task: Task, sources: Sequence[HeldOutSource], predictions: Sequence[Sequence[Document]]
) -> list[CalibrationExample]:
    """The predictions of all sources that are annotated with their types; documents are numbered from 1 together."""
    examples: list[CalibrationExample] = []
    before = 1
    for source, predicted in zip(sources, predictions, strict=True):
        own = task.calibration_examples(source.name, source.docs, predicted)
        examples += (replace(example, document=before + example.document) for example in own)
        before += len(source.docs)
    return examples


def _group(
    examples: Iterable[CalibrationExample], key: Callable[[CalibrationExample], str]
) -> dict[str, ScoredMentions]:
    rows: dict[str, list[tuple[float, bool, int]]] = {}
    for example in examples:
        rows.setdefault(key(example), []).append((example.score, example.correct, example.document))
    return {name: _scored_mentions(own) for name, own in rows.items()}


def _scored_mentions(rows: Sequence[tuple[float, bool, int]]) -> ScoredMentions:
    return ScoredMentions(
        np.array([score for score, _, _ in rows], np.float64),
        np.array([correct for _, correct, _ in rows], np.float64),
        np.array([number for _, _, number in rows], np.int64),
    )


def fit(scored: ScoredMentions) -> Calibration:
    """Fit the curve of one type, and cross-validate its calibration error over documents."""
    scores_N, correct_N = scored.scores_N, scored.correct_N
    after_N = np.empty_like(scores_N)
    for fold in range(FOLDS):
        held_out = scored.documents_N % FOLDS == fold
        curve = platt(scores_N[~held_out], correct_N[~held_out])
        after_N[held_out] = [calibrated(score, curve) for score in scores_N[held_out]]
    before, after = (expected_calibration_error(scores, correct_N) for scores in (scores_N, after_N))
    return Calibration(*platt(scores_N, correct_N), len(scores_N), int(correct_N.sum()), before, after)


def platt(scores_N: Floats, correct_N: Floats) -> Curve:
    """Slope and offset of maximum likelihood, by Newton's method.

    Regularization towards the identity limits what few or one-sided mentions can change. The slope is positive.
    """
    clipped = np.clip(scores_N, EDGE, 1 - EDGE)
    features_N2 = np.stack([np.log(clipped / (1 - clipped)), np.ones_like(clipped)], axis=1)
    curve = np.array([1.0, 0.0])
    for _ in range(NEWTON_STEPS):
        probability_N = 1 / (1 + np.exp(-np.clip(features_N2 @ curve, -500, 500)))
        gradient = features_N2.T @ (probability_N - correct_N) + REGULARIZATION * (curve - (1.0, 0.0))
        variance_N = probability_N * (1 - probability_N)
        hessian = (features_N2 * variance_N[:, None]).T @ features_N2 + REGULARIZATION * np.eye(2)
        step = np.linalg.solve(hessian, gradient)
        if curve[0] - step[0] < MIN_SLOPE:
            # The slope stays at its minimum, and the offset alone is optimized.
            step = np.array([curve[0] - MIN_SLOPE, gradient[1] / hessian[1, 1]])
        # The loss is convex; steps of at most 1 keep Newton from overshooting where it is nearly linear.
        step /= max(1.0, float(np.abs(step).max()))
        curve -= step
        if np.abs(step).max() < TOLERANCE:
            break
    return float(curve[0]), float(curve[1])


def expected_calibration_error(scores_N: Floats, correct_N: Floats) -> float:
    """The difference between mean score and accuracy, averaged over ten bins of scores weighted by size."""
    if not len(scores_N):
        return 0.0
    bins_N = np.minimum((scores_N * BINS).astype(int), BINS - 1)
    scores, correct = (np.bincount(bins_N, weights=values_N, minlength=BINS) for values_N in (scores_N, correct_N))
    return float(np.abs(scores - correct).sum() / len(scores_N))


# Readers

# Thresholds to try: the minimum probability of an answer to a list question, relative to the best.
LIST_THRESHOLDS = tuple(number / 50 for number in range(1, 50))


@dataclass(frozen=True, slots=True)
class ReaderCalibration:
    """The calibration of one form of question, fitted on held-out questions.

    questions        answerable ones; each is also asked of another question's texts, where it is unanswerable
    answerable       the curve of the probability that texts have an answer at all
    min_probability  the threshold on it that best separates answerable from unanswerable questions
    list_threshold   the one with the best F1 of lists; None for other forms
    unknown          the fraction of unanswerable questions that get no answer with min_probability, and of the others
    """

    form: Form
    answers: Calibration
    answerable: Calibration
    questions: int
    min_probability: float
    list_threshold: float | None
    unknown: tuple[float, float]

    def as_json(self) -> dict[str, Any]:
        """The entry in the certificate."""
        own = {name: getattr(self, name) for name in ("questions", "min_probability", "list_threshold")}
        unanswerable, answerable = (round(share, 4) for share in self.unknown)
        shares = {"unanswerable": unanswerable, "answerable": answerable}
        return {**self.answers.as_json(), **own, "unknown": shares, "answerable": self.answerable.as_json()}


def calibrate_reader(model: Model, sources: Sequence[HeldOutSource]) -> list[ReaderCalibration]:
    """The calibration of a reader for each form of question that it answers and that the sources have enough of.

    All texts of a question are read together, as in `lexome ask`. As many questions are unanswerable as are answerable.
    """
    task = model.task
    assert isinstance(task, Questions)
    docs = [doc for source in sources for doc in join_texts(source.docs) if doc.passages]
    forms: tuple[Form, ...] = ("yesno",) if task.form == "yesno" else ("factoid", "list")
    fitted: list[ReaderCalibration] = []
    for form in forms:
        own = [doc for doc in docs if (doc.questions[0].type or task.form) == form and doc.questions[0].answers]
        if len(own) >= MIN_QUESTIONS:
            fitted.append(_fit_reader(model, task if form == task.form else task.with_form(form), own))
    return fitted


def _fit_reader(model: Model, task: Questions, docs: Sequence[Document]) -> ReaderCalibration:
    gold = [doc.questions[0] for doc in docs]
    # Raw probabilities: at export, a model has no curves yet.
    every = task.with_all_candidates()
    raw = model.with_task(every)
    other = ask_elsewhere(docs)
    read = [[doc.questions[0] for doc in raw.annotate(part)] for part in (docs, other)]
    likely = [every.answerable(question) for part in read for question in part]
    answerable = fit(_scored_mentions([(one, n < len(gold), n % len(gold)) for n, one in enumerate(likely)]))
    threshold: float | None = None
    if task.form == "list":
        threshold = max(LIST_THRESHOLDS, key=lambda value: _list_f1(task, value, gold, read[0]))
        read = [[task.with_all_candidates(list_threshold=threshold).select(own) for own in part] for part in read]
    expected = [*gold, *(doc.questions[0] for doc in other)]
    answered = [*read[0], *read[1]]
    rows = [
        (answer.score or 0.0, is_right(own, answer), number % len(gold))
        for number, (own, question) in enumerate(zip(expected, answered, strict=True))
        for answer in (question.answers if task.form == "list" else question.answers[: task.kept])
    ]
    answers = fit(_scored_mentions(rows))
    probability_Q = np.array([calibrated(one, answerable.curve) for one in likely])
    least = min_probability(probability_Q[: len(gold)], probability_Q[len(gold) :])
    unknown_Q = probability_Q < least
    shares = (float(unknown_Q[len(gold) :].mean()) if other else 0.0, float(unknown_Q[: len(gold)].mean()))
    return ReaderCalibration(task.form, answers, answerable, len(gold), least, threshold, shares)


def min_probability(answerable: Floats, unanswerable: Floats) -> float:
    """The probability that separates answerable from unanswerable questions with fewest errors.

    Both kinds count equally (Youden's index). It lies halfway between two probabilities that occur; 0 where no
    probability separates them.
    """
    values = np.unique(np.concatenate([answerable, unanswerable]))
    answered = (np.mean(part[:, None] >= values, axis=0) for part in (answerable, unanswerable))
    index = np.subtract(*answered) if len(answerable) and len(unanswerable) else np.zeros(1)
    place = int(index.argmax())
    if index[place] < MIN_SEPARATION:
        return 0.0
    return round((float(values[place]) + (float(values[place - 1]) if place else 0.0)) / 2, 4)


def _list_f1(task: Questions, threshold: float, gold: Sequence[Question], read: Sequence[Question]) -> float:
    selecting = task.with_all_candidates(list_threshold=threshold)
    return sum(
        selecting.answer_score(own, selecting.select(question)) for own, question in zip(gold, read, strict=True)
    )
