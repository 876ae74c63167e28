"""Scores that mean what they say: of mentions with the score 0.8, eight in ten are right."""

from math import exp, log

Curve = tuple[float, float]
"""A slope and an offset, on the scale of log-odds."""

# Nearer to 0 or 1 than this a score says no more.
EDGE = 1e-6


def calibrated(score: float, curve: Curve | None) -> float:
    """The score as the curve says it; without a curve, as it is.

    >>> round(calibrated(0.9, (0.5, 0.0)), 3)
    0.75
    """
    if curve is None:
        return score
    kept = min(max(score, EDGE), 1 - EDGE)
    slope, offset = curve
    odds = slope * log(kept / (1 - kept)) + offset
    # Either form overflows on one side.
    return 1 / (1 + exp(-odds)) if odds >= 0 else exp(odds) / (1 + exp(odds))
