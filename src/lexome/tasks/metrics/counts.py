"""What was right, spurious and missed, over all and type by type, with precision, recall and F1 of it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from lexome.errors import UsageError
from lexome.values import value

Key = TypeVar("Key")


@value
class Counts:
    """How many were right, how many were found and are wrong, how many are right and were not found.

    Precision is 0 where nothing was found, recall where there is nothing to find, F1 where both are 0.
    """

    true_positives: int
    false_positives: int
    false_negatives: int

    @property
    def gold(self) -> int:
        """How many there were to find."""
        return self.true_positives + self.false_negatives

    @property
    def found(self) -> int:
        """How many were found."""
        return self.true_positives + self.false_positives

    @property
    def precision(self) -> float:
        """The share of what was found that is right."""
        return share(self.true_positives, self.found)

    @property
    def recall(self) -> float:
        """The share of what is right that was found."""
        return share(self.true_positives, self.gold)

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        return share(2 * self.true_positives, self.gold + self.found)

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.true_positives + other.true_positives,
            self.false_positives + other.false_positives,
            self.false_negatives + other.false_negatives,
        )


NONE = Counts(0, 0, 0)


@value
class Agreement:
    """How far what was found agrees with gold: `total`, and `types` (or classes) each on its own.

    `precision`, `recall` and `f1` are micro averages, of all types' counts together; `macro_f1` and its like are means
    of the types' own.
    """

    total: Counts
    types: Mapping[str, Counts]

    @property
    def precision(self) -> float:
        """Micro precision."""
        return self.total.precision

    @property
    def recall(self) -> float:
        """Micro recall."""
        return self.total.recall

    @property
    def f1(self) -> float:
        """Micro F1."""
        return self.total.f1

    @property
    def macro_precision(self) -> float:
        """The mean of the types' precision, each as much worth as another."""
        return mean([counts.precision for counts in self.types.values()])

    @property
    def macro_recall(self) -> float:
        """The mean of the types' recall."""
        return mean([counts.recall for counts in self.types.values()])

    @property
    def macro_f1(self) -> float:
        """The mean of the types' F1."""
        return mean([counts.f1 for counts in self.types.values()])

    @property
    def weighted_f1(self) -> float:
        """The mean of the types' F1, each weighted by how many there were to find."""
        return share(sum(counts.f1 * counts.gold for counts in self.types.values()), self.total.gold)


def agreement(types: Mapping[str, Counts]) -> Agreement:
    """The agreement whose total is the sum of its types, which it has in the order of their names."""
    return Agreement(sum(types.values(), NONE), dict(sorted(types.items())))


def together(parts: Iterable[Agreement]) -> Agreement:
    """The agreement over several documents: the sums of theirs."""
    types: dict[str, Counts] = {}
    for part in parts:
        for name, counts in part.types.items():
            types[name] = types.get(name, NONE) + counts
    return agreement(types)


def of_sets(gold: Mapping[str, set[Key]], found: Mapping[str, set[Key]]) -> Agreement:
    """The agreement of what was found of each type with what is there of it."""
    empty: set[Key] = set()
    types: dict[str, Counts] = {}
    for name in gold.keys() | found.keys():
        wanted, given = gold.get(name, empty), found.get(name, empty)
        if wanted or given:
            right = len(wanted & given)
            types[name] = Counts(right, len(given) - right, len(wanted) - right)
    return agreement(types)


def share(part: float, whole: float) -> float:
    """A part of a whole; 0 where there is no whole."""
    return part / whole if whole else 0.0


def mean(numbers: Sequence[float]) -> float:
    """The mean; 0 of nothing."""
    return share(sum(numbers), len(numbers))


def require_pairs(gold: Sequence[object], found: Sequence[object], *, what: str) -> None:
    """Raise unless there is one of `found` for each of `gold`."""
    if len(gold) != len(found):
        raise UsageError(f"there are {len(gold):,} gold {what} and {len(found):,} found; expected one for each.")
