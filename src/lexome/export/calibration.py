"""Scores of mentions made true: for each type a slope and an offset on the scale of log-odds (Platt 1999).

N mentions
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lexome.document import Document
from lexome.export.acceptance import HeldOut
from lexome.infer.model import EDGE, Curve, calibrated
from lexome.tasks import Task
from lexome.tasks.metrics import mentions
from lexome.tasks.metrics.spans import Mention, merge_parts

Floats = NDArray[np.float64]

# With fewer mentions of a type its scores are left as they are.
FEWEST = 20
# How much a curve is drawn to (1, 0), which changes nothing: as much as two mentions weigh.
PULL = 2.0
# A higher score must stay a higher score.
LEAST_SLOPE = 0.05
NEWTON_STEPS = 100
CLOSE = 1e-10
BINS = 10
FOLDS = 5


@dataclass(frozen=True, slots=True)
class Judged:
    """The mentions of one type that a model found: scores, whether each is right, and the document each is in."""

    scores_N: Floats
    right_N: Floats
    documents_N: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Fitted:
    """A curve, what it was fitted on, and how far scores were from true before and after.

    ece_before and ece_after are expected calibration errors; the second is of documents that a curve, fitted on the
    others, had not seen.
    """

    curve: Curve
    mentions: int
    right: int
    ece_before: float
    ece_after: float

    def facts(self) -> dict[str, Any]:
        """As JSON has it."""
        slope, offset = self.curve
        return {
            "slope": slope,
            "offset": offset,
            "mentions": self.mentions,
            "right": self.right,
            "ece_before": round(self.ece_before, 4),
            "ece_after": round(self.ece_after, 4),
        }


def calibration(task: Task, held: Sequence[HeldOut], found: Sequence[Sequence[Document]]) -> dict[str, Fitted]:
    """A curve for each type of which enough mentions were found in documents whose source annotates it."""
    judged = judge(task, held, found)
    return {type_: fitted(own) for type_, own in judged.items() if len(own.scores_N) >= FEWEST}


def judge(task: Task, held: Sequence[HeldOut], found: Sequence[Sequence[Document]]) -> dict[str, Judged]:
    """By type the mentions that were found, right where gold has one of the same type and place."""
    rows: dict[str, list[tuple[float, bool, int]]] = {type_: [] for type_ in task.types}
    number = 0
    for part, own in zip(held, found, strict=True):
        asked = _judgeable(task, part)
        for gold, doc in zip(part.docs, own, strict=True):
            number += 1
            wanted = set(mentions(gold, asked))
            for span in doc.spans:
                if span.type in asked and span.score is not None:
                    right = Mention(span.type, merge_parts(span.parts)) in wanted
                    rows[span.type].append((span.score, right, number))
    return {type_: _judged(own) for type_, own in rows.items()}


def _judgeable(task: Task, part: HeldOut) -> frozenset[str]:
    """The types that a source annotates; of one that the task does not know, those that it has a mention of."""
    if part.source in task.annotated:
        return task.for_source(part.source).asked
    return task.asked & {span.type for doc in part.docs for span in doc.spans}


def _judged(rows: Sequence[tuple[float, bool, int]]) -> Judged:
    scores, right, numbers = zip(*rows, strict=True) if rows else ((), (), ())
    return Judged(np.array(scores, np.float64), np.array(right, np.float64), np.array(numbers, np.int64))


def fitted(own: Judged) -> Fitted:
    """The curve of one type, with its error on documents that were set aside in turn."""
    raw, after_N = own.scores_N, np.empty_like(own.scores_N)
    for fold in range(FOLDS):
        aside = own.documents_N % FOLDS == fold
        curve = platt(raw[~aside], own.right_N[~aside])
        after_N[aside] = [calibrated(score, curve) for score in raw[aside]]
    return Fitted(
        platt(raw, own.right_N),
        len(raw),
        int(own.right_N.sum()),
        calibration_error(raw, own.right_N),
        calibration_error(after_N, own.right_N),
    )


def platt(scores_N: Floats, right_N: Floats) -> Curve:
    """The slope and the offset that make right answers likeliest, by Newton's method.

    A pull towards no change keeps few or one-sided answers from saying too much. The slope is above 0.
    """
    kept = np.clip(scores_N, EDGE, 1 - EDGE)
    odds_N2 = np.stack([np.log(kept / (1 - kept)), np.ones_like(kept)], axis=1)
    curve = np.array([1.0, 0.0])
    for _ in range(NEWTON_STEPS):
        share_N = 1 / (1 + np.exp(-np.clip(odds_N2 @ curve, -500, 500)))
        downhill = odds_N2.T @ (share_N - right_N) + PULL * (curve - (1.0, 0.0))
        bend = (odds_N2 * (share_N * (1 - share_N))[:, None]).T @ odds_N2 + PULL * np.eye(2)
        step = np.linalg.solve(bend, downhill)
        if curve[0] - step[0] < LEAST_SLOPE:
            # The slope goes as low as it may, and the offset alone is sought.
            step = np.array([curve[0] - LEAST_SLOPE, downhill[1] / bend[1, 1]])
        # The loss is convex; steps of at most 1 keep Newton from leaping past where it is nearly straight.
        step /= max(1.0, float(np.abs(step).max()))
        curve -= step
        if np.abs(step).max() < CLOSE:
            break
    return float(curve[0]), float(curve[1])


def calibration_error(scores_N: Floats, right_N: Floats) -> float:
    """The mean distance between what scores promise and what is right, over ten bins of scores, by their size."""
    if not len(scores_N):
        return 0.0
    bins_N = np.minimum((scores_N * BINS).astype(int), BINS - 1)
    promised, true = (np.bincount(bins_N, weights=held, minlength=BINS) for held in (scores_N, right_N))
    return float(np.abs(promised - true).sum() / len(scores_N))
