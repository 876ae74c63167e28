"""A measure of predictions on documents: its numbers, and what is resampled for its interval."""

from collections.abc import Mapping, Sequence

import numpy as np

from lexome.tasks.metrics.counts import Agreement, Counts, share, together
from lexome.tasks.metrics.significance import (
    Interval,
    Measure,
    Rows,
    bootstrap_interval,
    count_rows,
    f1_intervals,
    mean_of_rows,
    micro_f1,
)
from lexome.values import value


@value
class Draws:
    """How intervals and tests are resampled."""

    samples: int = 1000
    level: float = 0.95
    seed: int = 0


@value
class Measured:
    """One measure of one system.

    section    what it is of: mentions, tokens, relations, labels or questions
    name       the measure
    score      what its one number is called: F1, accuracy, ...
    rows       the numbers of each gold document
    measure    from rows to the score
    agreement  the counts, where the score is made of them
    documents  the agreement of each document, likewise
    others     further numbers by name
    """

    section: str
    name: str
    score: str
    rows: Rows
    measure: Measure
    agreement: Agreement | None
    documents: tuple[Agreement, ...]
    others: Mapping[str, float]

    @property
    def value(self) -> float:
        """The score of all documents."""
        return self.measure(self.rows)

    def interval(self, draws: Draws) -> Interval:
        """The score with its interval."""
        return bootstrap_interval(self.rows, self.measure, samples=draws.samples, level=draws.level, seed=draws.seed)

    def type_intervals(self, draws: Draws) -> dict[str, Interval]:
        """Each type's F1 with its interval."""
        if self.agreement is None or not self.agreement.types:
            return {}
        names = list(self.agreement.types)
        empty = Counts(0, 0, 0)
        counts = [[_numbers(part.types.get(name, empty)) for name in names] for part in self.documents]
        intervals = f1_intervals(
            np.asarray(counts, dtype=np.float64), samples=draws.samples, level=draws.level, seed=draws.seed
        )
        return dict(zip(names, intervals, strict=True))


def counted(
    section: str, name: str, documents: Sequence[Agreement], others: Mapping[str, float] | None = None
) -> Measured:
    """A measure that is micro F1 of counts, from each document's."""
    whole = together(documents)
    return Measured(section, name, "F1", count_rows(documents), micro_f1, whole, tuple(documents), others or {})


def averaged(section: str, name: str, score: str, values: Sequence[Sequence[float]]) -> Measured:
    """A measure that is a mean over texts or questions, from the values of each document's."""
    rows = np.asarray([(sum(own), len(own)) for own in values], dtype=np.float64).reshape(-1, 2)
    return Measured(section, name, score, rows, mean_of_rows, None, (), {})


def macro_f1_of(classes: int) -> Measure:
    """The mean of F1 over this many classes, where rows are the right, spurious and missed of one after the other."""

    def measure(rows: Rows) -> float:
        sums = rows.sum(axis=0).reshape(classes, 3)
        return share(sum(share(2 * right, 2 * right + spurious + missed) for right, spurious, missed in sums), classes)

    return measure


def macro(section: str, name: str, documents: Sequence[Agreement], classes: Sequence[str]) -> Measured:
    """A measure that is the mean of F1 over these classes, from each document's counts."""
    empty = Counts(0, 0, 0)
    rows = [[number for name in classes for number in _numbers(part.types.get(name, empty))] for part in documents]
    matrix = np.asarray(rows, dtype=np.float64).reshape(len(documents), 3 * len(classes))
    return Measured(section, name, "macro F1", matrix, macro_f1_of(len(classes)), None, (), {})


def _numbers(counts: Counts) -> tuple[int, int, int]:
    return counts.true_positives, counts.false_positives, counts.false_negatives
