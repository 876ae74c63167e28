"""Labels of documents side by side: one each, any number, or numbers."""

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from lexome.tasks.evaluation.differences import Difference
from lexome.tasks.evaluation.measured import Measured, averaged, counted, macro
from lexome.tasks.evaluation.pairs import Pair
from lexome.tasks.evaluation.relations import is_negative
from lexome.tasks.metrics.classes import example
from lexome.tasks.metrics.counts import mean, of_sets, share
from lexome.tasks.metrics.numbers import correlation, ranks
from lexome.tasks.metrics.significance import Measure, Rows

SECTION = "labels"


def label_measures(pairs: Sequence[Pair], only: Collection[str] | None = None) -> list[Measured]:
    """The measures that fit the labels: of numbers, of one label each, or of sets of them."""
    if not any(pair.gold.labels or pair.found.labels for pair in pairs):
        return []
    if are_numbers(pairs):
        return _number_measures(pairs)
    if all(len(pair.gold.labels) == 1 and len(pair.found.labels) <= 1 for pair in pairs):
        return _single_measures(pairs, only)
    return _multi_measures(pairs, only)


def label_differences(pairs: Sequence[Pair], only: Collection[str] | None = None) -> Iterator[Difference]:
    """Each document whose labels are not right."""
    if are_numbers(pairs):
        return
    for pair in pairs:
        gold, found = (_kept(labels, only) for labels in (pair.gold.labels, pair.found.labels))
        if gold != found:
            kind = "wrong label" if gold and found else ("missed" if gold else "spurious")
            text = " ".join(pair.gold.text[:80].split())
            yield Difference(SECTION, kind, pair.gold.id, _said(gold), _said(found), text or None)


def are_numbers(pairs: Sequence[Pair]) -> bool:
    """Whether every document has one label that is a number, and at least one has a decimal point: a similarity."""
    labels = [pair.gold.labels for pair in pairs]
    return all(len(own) == 1 and _number(own[0]) is not None for own in labels) and any("." in own[0] for own in labels)


def without_number(pairs: Sequence[Pair]) -> int:
    """How many documents whose label is a number were given none, and so are in no correlation."""
    found = [pair.found.labels for pair in pairs] if are_numbers(pairs) else []
    return sum(len(labels) != 1 or _number(labels[0]) is None for labels in found)


def _number_measures(pairs: Sequence[Pair]) -> list[Measured]:
    """Correlations over the documents that were given a number."""
    both = [
        (float(pair.gold.labels[0]), number)
        for pair in pairs
        if len(pair.found.labels) == 1 and (number := _number(pair.found.labels[0])) is not None
    ]
    if not both:
        return []
    rows = np.asarray(both, dtype=np.float64)
    measures: list[tuple[str, Measure]] = [("Pearson", _pearson), ("Spearman", _spearman)]
    return [Measured(SECTION, name, "correlation", rows, measure, None, (), {}) for name, measure in measures]


def _pearson(rows: Rows) -> float:
    return correlation(rows[:, 0], rows[:, 1])


def _spearman(rows: Rows) -> float:
    return correlation(ranks(rows[:, 0]), ranks(rows[:, 1]))


def _single_measures(pairs: Sequence[Pair], only: Collection[str] | None) -> list[Measured]:
    """Accuracy, and F1 over all classes and, where one of them is negative or some were asked for, over the others."""
    right = [[float(pair.gold.labels == pair.found.labels)] for pair in pairs]
    measures = [averaged(SECTION, "one label each", "accuracy", right)]
    classes = {label for pair in pairs for label in (*pair.gold.labels, *pair.found.labels)}
    positive = {name for name in classes if (not is_negative(name) if only is None else name in only)}
    measures += _f1_measures(pairs, classes, "all classes")
    if positive and positive != classes:
        names = ", ".join(sorted(classes - positive))
        measures += _f1_measures(pairs, positive, "asked classes" if only is not None else f"without {names}")
    return measures


def _multi_measures(pairs: Sequence[Pair], only: Collection[str] | None) -> list[Measured]:
    """Micro and macro F1, and the means over documents."""
    names = {label for pair in pairs for label in (*pair.gold.labels, *pair.found.labels)}
    chosen = names if only is None else names & set(only)
    rows = [example(chosen & set(pair.gold.labels), chosen & set(pair.found.labels)) for pair in pairs]
    by_example = Measured(
        SECTION, "example-based", "F1", np.asarray(rows, dtype=np.float64), _example_f1, None, (), _example_others(rows)
    )
    exact = averaged(SECTION, "all labels right", "accuracy", [[row[3]] for row in rows])
    return [*_f1_measures(pairs, chosen, "any number of labels"), by_example, exact]


def _f1_measures(pairs: Sequence[Pair], classes: Collection[str], name: str) -> list[Measured]:
    documents = [of_sets(_present(pair.gold.labels, classes), _present(pair.found.labels, classes)) for pair in pairs]
    return [
        counted(SECTION, name, documents),
        macro(SECTION, name, documents, sorted(classes)),
    ]


def _present(labels: Sequence[str], classes: Collection[str]) -> dict[str, set[int]]:
    return {label: {0} for label in labels if label in classes}


def _example_f1(rows: Rows) -> float:
    """The harmonic mean of mean precision and mean recall, as BLUE scores HoC."""
    precision, recall = (float(column) for column in rows[:, :2].mean(axis=0))
    return share(2 * precision * recall, precision + recall)


def _example_others(rows: Sequence[tuple[float, float, float, float]]) -> dict[str, float]:
    names = ("precision", "recall", "mean F1")
    return {name: mean([row[place] for row in rows]) for place, name in enumerate(names)}


def _kept(labels: Sequence[str], only: Collection[str] | None) -> list[str]:
    return sorted({label for label in labels if only is None or label in only})


def _said(labels: Sequence[str]) -> str | None:
    return ", ".join(labels) or None


def _number(label: str) -> float | None:
    try:
        number = float(label)
    except ValueError:
        return None
    return number if np.isfinite(number) else None
