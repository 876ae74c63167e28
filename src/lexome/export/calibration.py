"""Calibration of mention scores by Platt scaling: a slope and an offset on the log-odds, for each type (Platt 1999).

N mentions
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lexome.document import Document
from lexome.export.acceptance import HeldOutSource
from lexome.infer.annotator import EDGE, Curve, calibrated
from lexome.tasks import Task
from lexome.tasks.metrics import mentions
from lexome.tasks.metrics.spans import Mention, merge_parts

Floats = NDArray[np.float64]

# Types with fewer mentions are not calibrated.
MIN_MENTIONS = 20
# L2 regularization towards the identity, slope 1 and offset 0.
REGULARIZATION = 2.0
# A positive slope keeps the order of scores.
MIN_SLOPE = 0.05
NEWTON_STEPS = 100
TOLERANCE = 1e-10
BINS = 10
FOLDS = 5


@dataclass(frozen=True, slots=True)
class ScoredMentions:
    """Predicted mentions of one type: scores, whether each is correct, and the number of its document."""

    scores_N: Floats
    correct_N: Floats
    documents_N: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Calibration:
    """A fitted curve with its expected calibration error before and after.

    ece_after is cross-validated: curves are fitted on other documents than they are measured on.
    """

    slope: float
    offset: float
    mentions: int
    right: int
    ece_before: float
    ece_after: float

    @property
    def curve(self) -> Curve:
        """Slope and offset."""
        return self.slope, self.offset

    def as_json(self) -> dict[str, Any]:
        """The entry in the certificate."""
        return asdict(self) | {name: round(getattr(self, name), 4) for name in ("ece_before", "ece_after")}


def calibrate(
    task: Task, sources: Sequence[HeldOutSource], predictions: Sequence[Sequence[Document]]
) -> dict[str, Calibration]:
    """By type with enough predicted mentions in sources that annotate it, its calibration."""
    by_type = scored_mentions(task, sources, predictions)
    return {type_: fit(scored) for type_, scored in by_type.items() if len(scored.scores_N) >= MIN_MENTIONS}


def scored_mentions(
    task: Task, sources: Sequence[HeldOutSource], predictions: Sequence[Sequence[Document]]
) -> dict[str, ScoredMentions]:
    """By type, the predicted mentions of sources that annotate it; correct are those with gold's type and offsets."""
    rows: dict[str, list[tuple[float, bool, int]]] = {type_: [] for type_ in task.types}
    number = 0
    for source, predicted in zip(sources, predictions, strict=True):
        if source.name in task.annotated:
            types = task.for_source(source.name).asked
        else:
            # A source that the task does not know annotates the types it has mentions of.
            types = task.asked & {span.type for doc in source.docs for span in doc.spans}
        for gold, doc in zip(source.docs, predicted, strict=True):
            number += 1
            expected = set(mentions(gold, types))
            for span in doc.spans:
                if span.type in types and span.score is not None:
                    correct = Mention(span.type, merge_parts(span.parts)) in expected
                    rows[span.type].append((span.score, correct, number))
    return {
        type_: ScoredMentions(
            np.array([score for score, _, _ in of_type], np.float64),
            np.array([correct for _, correct, _ in of_type], np.float64),
            np.array([number for _, _, number in of_type], np.int64),
        )
        for type_, of_type in rows.items()
    }


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
