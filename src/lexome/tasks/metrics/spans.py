"""Metrics of mentions by character offsets: strict, relaxed, discontinuous only, per character, and BC2GM's.

A mention is its type and its parts, ranges of the text; duplicates count once, and parts that touch are one.
"""

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeVar

from lexome.document import Document, Range, as_names
from lexome.errors import UsageError

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Counts:
    """True positives, false positives and false negatives.

    Precision is 0 if nothing was predicted, recall if there is nothing to predict, F1 if both are 0.
    """

    true_positives: int
    false_positives: int
    false_negatives: int

    @property
    def gold(self) -> int:
        """The number of gold items."""
        return self.true_positives + self.false_negatives

    @property
    def predicted(self) -> int:
        """The number of predicted items."""
        return self.true_positives + self.false_positives

    @property
    def precision(self) -> float:
        """The fraction of predictions that are correct."""
        return ratio(self.true_positives, self.predicted)

    @property
    def recall(self) -> float:
        """The fraction of gold items that were predicted."""
        return ratio(self.true_positives, self.gold)

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        return ratio(2 * self.true_positives, self.gold + self.predicted)

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.true_positives + other.true_positives,
            self.false_positives + other.false_positives,
            self.false_negatives + other.false_negatives,
        )


NO_COUNTS = Counts(0, 0, 0)


@dataclass(frozen=True, slots=True)
class Agreement:
    """Counts of predictions against gold: `total`, and by type (or class).

    `precision`, `recall` and `f1` are micro averages, over all counts; `macro_precision`, `macro_recall` and `macro_f1`
    are means over types.
    """

    total: Counts
    types: Mapping[str, Counts]

    @classmethod
    def from_types(cls, types: Mapping[str, Counts]) -> "Agreement":
        """The agreement of these counts and their total, with types in alphabetical order."""
        return cls(sum(types.values(), NO_COUNTS), dict(sorted(types.items())))

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
        """The mean of the types' precision."""
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
        """The mean of the types' F1, weighted by their number of gold items."""
        return ratio(sum(counts.f1 * counts.gold for counts in self.types.values()), self.total.gold)


def sum_agreements(parts: Iterable[Agreement]) -> Agreement:
    """The agreement over several documents: the sum of their counts."""
    types: dict[str, Counts] = {}
    for part in parts:
        for name, counts in part.types.items():
            types[name] = types.get(name, NO_COUNTS) + counts
    return Agreement.from_types(types)


def compare_sets(gold: Mapping[str, set[Key]], predicted: Mapping[str, set[Key]]) -> Agreement:
    """The agreement of two sets of items of each type."""
    empty: set[Key] = set()
    types: dict[str, Counts] = {}
    for name in gold.keys() | predicted.keys():
        own, other = gold.get(name, empty), predicted.get(name, empty)
        if own or other:
            right = len(own & other)
            types[name] = Counts(right, len(other) - right, len(own) - right)
    return Agreement.from_types(types)


def ratio(part: float, whole: float) -> float:
    """Part / whole; 0 if the whole is 0."""
    return part / whole if whole else 0.0


def mean(numbers: Sequence[float]) -> float:
    """The mean; 0 of no numbers."""
    return ratio(sum(numbers), len(numbers))


def require_pairs(gold: Sequence[object], predicted: Sequence[object], *, what: str) -> None:
    """Raise unless there are as many predictions as gold items."""
    if len(gold) != len(predicted):
        message = f"there are {len(gold):,} gold {what} and {len(predicted):,} predicted; expected as many."
        raise UsageError(message, code="length-mismatch", value=(len(gold), len(predicted)))


# The type of all mentions when types are ignored.
ANY_TYPE = "any"


@dataclass(frozen=True, slots=True)
class Mention:
    """A mention: its type, and the ranges it covers, in order."""

    type: str
    parts: tuple[Range, ...]


Mentions = Iterable[Mention]


def mentions(doc: Document, types: str | Collection[str] | None = None) -> list[Mention]:
    """The document's distinct mentions of these types, or of all, in reading order."""
    types = None if types is None else as_names(types)
    distinct = {
        Mention(span.type, merge_parts(span.parts)) for span in doc.spans if types is None or span.type in types
    }
    return sorted(distinct, key=lambda mention: (mention.parts, mention.type))


def merge_parts(parts: Sequence[Range]) -> tuple[Range, ...]:
    """The parts, with those that touch merged: (0, 4), (4, 8) is (0, 8)."""
    if len(parts) == 1:
        return (parts[0],)
    merged: list[Range] = [*parts[:1]]
    for start, end in parts[1:]:
        if start == merged[-1][1]:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return tuple(merged)


def spans_strict(gold: Sequence[Mentions], predicted: Sequence[Mentions], *, typed: bool = True) -> Agreement:
    """A mention is correct if its type and all its parts are; with typed=False, if its parts are.

    Each item of `gold` and `predicted` has the mentions of one document.
    """
    require_pairs(gold, predicted, what="documents")
    agreements = []
    for left, right in zip(gold, predicted, strict=True):
        own, other = _by_type(left, typed), _by_type(right, typed)
        agreements.append(Agreement.from_types({name: _count(own[name], other[name]) for name in {*own, *other}}))
    return sum_agreements(agreements)


def spans_relaxed(gold: Sequence[Mentions], predicted: Sequence[Mentions], *, typed: bool = True) -> Agreement:
    """A mention is correct if it overlaps one of the same type, matched one to one.

    Identical mentions are paired first; then as many of the others as possible, so that no mention is in two pairs, and
    a prediction that covers three gold mentions matches only one of them.
    """
    require_pairs(gold, predicted, what="documents")
    agreements = []
    for left, right in zip(gold, predicted, strict=True):
        own, other = _by_type(left, typed), _by_type(right, typed)
        types: dict[str, Counts] = {}
        for name in {*own, *other}:
            strict = _count(own[name], other[name])
            missed, spurious = Counter(own[name]) - Counter(other[name]), Counter(other[name]) - Counter(own[name])
            more = len(largest_matching(overlapping([*missed.elements()], [*spurious.elements()])))
            types[name] = strict + Counts(more, -more, -more)
        agreements.append(Agreement.from_types(types))
    return sum_agreements(agreements)


def spans_discontinuous(gold: Sequence[Mentions], predicted: Sequence[Mentions]) -> Agreement:
    """Strict agreement of the mentions with more than one part."""
    sides = ([[one for one in doc if len(merge_parts(one.parts)) > 1] for doc in docs] for docs in (gold, predicted))
    return spans_strict(*sides)


def characters(gold: Sequence[Mentions], predicted: Sequence[Mentions], *, typed: bool = True) -> Agreement:
    """Agreement of the characters inside mentions of a type, each counted once however many mentions cover it."""
    require_pairs(gold, predicted, what="documents")
    pairs = (
        (_covered_characters(left, typed), _covered_characters(right, typed))
        for left, right in zip(gold, predicted, strict=True)
    )
    return sum_agreements(compare_sets(left, right) for left, right in pairs)


def _covered_characters(mentions: Mentions, typed: bool) -> dict[str, set[int]]:
    types: defaultdict[str, set[int]] = defaultdict(set)
    for mention in mentions:
        covered = types[mention.type if typed else ANY_TYPE]
        covered.update(*(range(start, end) for start, end in mention.parts))
    return types


def _by_type(mentions: Mentions, typed: bool) -> defaultdict[str, list[tuple[Range, ...]]]:
    """The parts of distinct mentions by type, with parts that touch merged."""
    types: defaultdict[str, list[tuple[Range, ...]]] = defaultdict(list)
    for type, parts in dict.fromkeys((mention.type, merge_parts(mention.parts)) for mention in mentions):
        types[type if typed else ANY_TYPE].append(parts)
    return types


def _count(gold: list[tuple[Range, ...]], predicted: list[tuple[Range, ...]]) -> Counts:
    """The counts of one type. Without types, several mentions may have the same parts, and each counts."""
    right = (Counter(gold) & Counter(predicted)).total()
    return Counts(right, len(predicted) - right, len(gold) - right)


def overlapping(left: Sequence[Sequence[Range]], right: Sequence[Sequence[Range]]) -> list[list[int]]:
    """The indices of mentions on the right that share a character with each mention on the left."""
    # Sorted by start; the widest mention limits how far back one may start that still reaches a place.
    order = sorted(range(len(right)), key=lambda place: right[place][0][0])
    starts = [right[place][0][0] for place in order]
    widest = max((parts[-1][1] - parts[0][0] for parts in right), default=0)
    places: list[list[int]] = []
    for parts in left:
        low = bisect_left(starts, parts[0][0] - widest)
        high = bisect_left(starts, parts[-1][1])
        places.append(sorted(place for place in order[low:high] if overlap(parts, right[place])))
    return places


def overlap(left: Sequence[Range], right: Sequence[Range]) -> bool:
    """Whether two mentions share a character."""
    return any(start < other_end and other < end for start, end in left for other, other_end in right)


def largest_matching(neighbors: Sequence[Sequence[int]]) -> dict[int, int]:
    """A maximum bipartite matching, where left `i` may be paired with `neighbors[i]`, by shortest augmenting paths.

    Whatever was paired stays paired, though not always with the same partner.
    """
    pairs: dict[int, int] = {}
    owner: dict[int, int] = {}
    for start in range(len(neighbors)):
        came_from: dict[int, int] = {}  # each right one that was reached, and the left one that reached it
        waiting = deque([start])
        free: int | None = None
        while waiting and free is None:
            left = waiting.popleft()
            for right in neighbors[left]:
                if right in came_from:
                    continue
                came_from[right] = left
                if right not in owner:
                    free = right
                    break
                waiting.append(owner[right])
        while free is not None:
            left = came_from[free]
            before = pairs.get(left)
            pairs[left], owner[free] = free, left
            free = before if left != start else None
    return pairs


def bc2gm(
    gold: Sequence[Collection[Range]],
    alternatives: Sequence[Collection[Range]],
    predicted: Sequence[Collection[Range]],
    *,
    texts: Sequence[str] | None = None,
) -> Counts:
    """The counts over sentences, each with the ranges of its gold mentions, of accepted alternatives and predictions.

    With `texts`, ranges are characters of the texts and are counted as in the official files, without spaces, so that
    a space at the edge of a mention does not matter.
    """
    require_pairs(gold, predicted, what="sentences")
    require_pairs(gold, alternatives, what="sentences")
    total = NO_COUNTS
    for number, ranges in enumerate(zip(gold, alternatives, predicted, strict=True)):
        total += sentence_counts(*(ranges if texts is None else (without_spaces(own, texts[number]) for own in ranges)))
    return total


def sentence_counts(gold: Collection[Range], alternatives: Collection[Range], predicted: Collection[Range]) -> Counts:
    """BC2GM's counts of one sentence."""
    accepted = set(predicted).intersection(alternatives)
    right = sum(place in predicted or any(overlap((place,), (other,)) for other in accepted) for place in gold)
    spurious = sum(place not in gold and place not in alternatives for place in predicted)
    return Counts(right, spurious, len(gold) - right)


def without_spaces(ranges: Collection[Range], text: str) -> list[Range]:
    """The ranges in a text whose spaces (U+0020 only) are not counted."""
    before = [0, *accumulate(int(character != " ") for character in text)]
    return [(before[start], before[end]) for start, end in ranges]
