"""How many tokens go through a model at a time, as this machine runs it fastest."""

import time
from collections.abc import Sequence

import numpy as np

from lexome.infer.predictor import Predictor

# One row at a time, and batches of so many tokens. Larger ones only wait longer for their numbers.
BUDGETS = (0, 1024, 2048, 4096)

# Abstracts are so many tokens long, most of them.
LENGTHS = (60, 400)


def rates(
    predictor: Predictor, *, budgets: Sequence[int] = BUDGETS, rows: int = 16, rounds: int = 3
) -> dict[int, float]:
    """Tokens a second for each number of tokens at a time, 0 for one row at a time: the median of some rounds.

    The rows are random, of the lengths of abstracts; which tokens they are changes no speed.
    """
    rng = np.random.default_rng(0)
    settings = predictor.settings
    low, high = (min(length, settings.max_tokens) for length in LENGTHS)
    known = max(predictor.tokens.vocabulary.values()) + 1
    made = [rng.integers(0, known, size) for size in rng.integers(low, high + 1, rows)]
    predictor.logits(made[:1])
    taken: dict[int, list[float]] = {budget: [] for budget in budgets}
    # They take turns, so that whatever else the machine does meets all of them.
    for _ in range(rounds):
        for budget in budgets:
            began = time.perf_counter()
            predictor.logits(made, batch_tokens=budget)
            taken[budget].append(time.perf_counter() - began)
    tokens = sum(map(len, made))
    return {budget: tokens / float(np.median(seconds)) for budget, seconds in taken.items()}


def fastest(predictor: Predictor) -> int:
    """The number of tokens at a time that is fastest on this machine; 0 is one row at a time."""
    found = rates(predictor)
    return max(found, key=lambda budget: found[budget])
