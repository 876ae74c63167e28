"""Mentions at their characters: strict, relaxed, discontinuous ones alone, and character by character.

A mention is its type and its parts, ranges of the text; two that are the same count once. Parts that touch are one.
"""

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from lexome.document import Document, Range
from lexome.errors import UsageError


def largest_matching(neighbours: Sequence[Sequence[int]]) -> dict[int, int]:
    """Pairs of left and right, as many as there can be, where left `i` may be paired with `neighbours[i]`.

    Each left one is tried in turn; where all its neighbours are taken, those that took them are moved on along the
    shortest chain of changes that frees one. What was paired stays paired, if not with the same.
    """
    pairs: dict[int, int] = {}
    owner: dict[int, int] = {}
    for start in range(len(neighbours)):
        came_from: dict[int, int] = {}  # each right one that was reached, and the left one that reached it
        waiting = deque([start])
        free: int | None = None
        while waiting and free is None:
            left = waiting.popleft()
            for right in neighbours[left]:
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


Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
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
        return ratio(self.true_positives, self.found)

    @property
    def recall(self) -> float:
        """The share of what is right that was found."""
        return ratio(self.true_positives, self.gold)

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        return ratio(2 * self.true_positives, self.gold + self.found)

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.true_positives + other.true_positives,
            self.false_positives + other.false_positives,
            self.false_negatives + other.false_negatives,
        )


NO_COUNTS = Counts(0, 0, 0)


@dataclass(frozen=True, slots=True)
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
        return ratio(sum(counts.f1 * counts.gold for counts in self.types.values()), self.total.gold)


def agreement(types: Mapping[str, Counts]) -> Agreement:
    """The agreement whose total is the sum of its types, which it has in the order of their names."""
    return Agreement(sum(types.values(), NO_COUNTS), dict(sorted(types.items())))


def together(parts: Iterable[Agreement]) -> Agreement:
    """The agreement over several documents: the sums of theirs."""
    types: dict[str, Counts] = {}
    for part in parts:
        for name, counts in part.types.items():
            types[name] = types.get(name, NO_COUNTS) + counts
    return agreement(types)


def compare_sets(gold: Mapping[str, set[Key]], found: Mapping[str, set[Key]]) -> Agreement:
    """The agreement of what was found of each type with what is there of it."""
    empty: set[Key] = set()
    types: dict[str, Counts] = {}
    for name in gold.keys() | found.keys():
        wanted, given = gold.get(name, empty), found.get(name, empty)
        if wanted or given:
            right = len(wanted & given)
            types[name] = Counts(right, len(given) - right, len(wanted) - right)
    return agreement(types)


def ratio(part: float, whole: float) -> float:
    """A part of a whole; 0 where there is no whole."""
    return part / whole if whole else 0.0


def mean(numbers: Sequence[float]) -> float:
    """The mean; 0 of nothing."""
    return ratio(sum(numbers), len(numbers))


def require_pairs(gold: Sequence[object], found: Sequence[object], *, what: str) -> None:
    """Raise unless there is one of `found` for each of `gold`."""
    if len(gold) != len(found):
        raise UsageError(f"there are {len(gold):,} gold {what} and {len(found):,} found; expected one for each.")


# What all mentions are of where types do not count.
ANY_TYPE = "any"


class Mention(NamedTuple):
    """A mention: its type, and the ranges it covers, in order."""

    type: str
    parts: tuple[Range, ...]


Mentions = Iterable[Mention]


def mentions(doc: Document, types: Collection[str] | None = None) -> list[Mention]:
    """The document's mentions of these types, or all of them, each once, in reading order."""
    found = {Mention(span.type, merge_parts(span.parts)) for span in doc.spans if types is None or span.type in types}
    return sorted(found, key=lambda mention: (mention.parts, mention.type))


def merge_parts(parts: Sequence[Range]) -> tuple[Range, ...]:
    """The parts, those that touch as one: (0, 4), (4, 8) is (0, 8)."""
    whole: list[Range] = [*parts[:1]]
    for start, end in parts[1:]:
        if start == whole[-1][1]:
            whole[-1] = (whole[-1][0], end)
        else:
            whole.append((start, end))
    return tuple(whole)


def spans_strict(gold: Sequence[Mentions], found: Sequence[Mentions], *, typed: bool = True) -> Agreement:
    """Mentions are right where type and all parts are the same; with typed=False, where the parts are.

    Each of `gold` and `found` holds the mentions of one document.
    """
    require_pairs(gold, found, what="documents")
    return together(_strict(left, right, typed) for left, right in zip(gold, found, strict=True))


def spans_relaxed(gold: Sequence[Mentions], found: Sequence[Mentions], *, typed: bool = True) -> Agreement:
    """Mentions are right where they share a character with one of the same type, one with one.

    First those that are the same are paired; then, of the others, as many as can be, so that no mention is in two pairs
    and one found mention that covers three gold ones makes one of them right.
    """
    require_pairs(gold, found, what="documents")
    return together(_relaxed(left, right, typed) for left, right in zip(gold, found, strict=True))


def spans_discontinuous(gold: Sequence[Mentions], found: Sequence[Mentions]) -> Agreement:
    """As strict, of the mentions with more than one part alone."""
    return spans_strict([_apart(doc) for doc in gold], [_apart(doc) for doc in found])


def characters(gold: Sequence[Mentions], found: Sequence[Mentions], *, typed: bool = True) -> Agreement:
    """The characters inside mentions of a type, each counted once however many mentions cover it."""
    require_pairs(gold, found, what="documents")
    pairs = ((_covered(left, typed), _covered(right, typed)) for left, right in zip(gold, found, strict=True))
    return together(compare_sets(left, right) for left, right in pairs)


def overlapping(left: Sequence[Mention], right: Sequence[Mention]) -> list[list[int]]:
    """For each mention on the left, the places of those on the right that share a character with it."""
    # Sorted by where they begin; the widest tells how far back one may begin that still reaches a place.
    order = sorted(range(len(right)), key=lambda place: right[place].parts[0][0])
    starts = [right[place].parts[0][0] for place in order]
    widest = max((mention.parts[-1][1] - mention.parts[0][0] for mention in right), default=0)
    found: list[list[int]] = []
    for mention in left:
        low = bisect_left(starts, mention.parts[0][0] - widest)
        high = bisect_left(starts, mention.parts[-1][1])
        near = order[low:high]
        found.append(sorted(place for place in near if overlap(mention.parts, right[place].parts)))
    return found


def overlap(left: Sequence[Range], right: Sequence[Range]) -> bool:
    """Whether two mentions share a character."""
    return any(start < other_end and other < end for start, end in left for other, other_end in right)


def _strict(gold: Mentions, found: Mentions, typed: bool) -> Agreement:
    wanted, given = _by_type(gold, typed), _by_type(found, typed)
    return agreement({name: _counted(wanted[name], given[name]) for name in {*wanted, *given}})


def _counted(gold: list[Mention], found: list[Mention]) -> Counts:
    """The counts of one type. Without types two mentions may have the same parts, and count as often as they do."""
    right = (Counter(mention.parts for mention in gold) & Counter(mention.parts for mention in found)).total()
    return Counts(right, len(found) - right, len(gold) - right)


def _relaxed(gold: Mentions, found: Mentions, typed: bool) -> Agreement:
    wanted, given = _by_type(gold, typed), _by_type(found, typed)
    types: dict[str, Counts] = {}
    for name in {*wanted, *given}:
        strict = _counted(wanted[name], given[name])
        left, right = _without_same(wanted[name], given[name]), _without_same(given[name], wanted[name])
        more = len(largest_matching(overlapping(left, right)))
        types[name] = Counts(strict.true_positives + more, strict.false_positives - more, strict.false_negatives - more)
    return agreement(types)


def _without_same(mentions: list[Mention], others: list[Mention]) -> list[Mention]:
    """The mentions that no other one is the same as, each of the others being the same as one."""
    same = Counter(mention.parts for mention in others)
    left: list[Mention] = []
    for mention in mentions:
        if same[mention.parts]:
            same[mention.parts] -= 1
        else:
            left.append(mention)
    return left


def _by_type(mentions: Mentions, typed: bool) -> defaultdict[str, list[Mention]]:
    """The mentions of each type, each once, with parts that touch as one."""
    types: defaultdict[str, list[Mention]] = defaultdict(list)
    for mention in dict.fromkeys(Mention(type, merge_parts(parts)) for type, parts in mentions):
        types[mention.type if typed else ANY_TYPE].append(mention)
    return types


def _apart(mentions: Mentions) -> list[Mention]:
    return [Mention(type, parts) for type, given in mentions if len(parts := merge_parts(given)) > 1]


def _covered(mentions: Mentions, typed: bool) -> dict[str, set[int]]:
    types: defaultdict[str, set[int]] = defaultdict(set)
    for type, parts in mentions:
        types[type if typed else ANY_TYPE].update(*(range(start, end) for start, end in parts))
    return types


def bc2gm(
    gold: Sequence[Collection[Range]],
    alternatives: Sequence[Collection[Range]],
    found: Sequence[Collection[Range]],
    *,
    texts: Sequence[str] | None = None,
) -> Counts:
    """The counts over sentences, each with the places of its gold mentions, their alternatives and what was found.

    With `texts`, places are characters of the texts and are counted as the official files do, without spaces, so
    that a mention with a space at its edge is the same as one without it.
    """
    require_pairs(gold, found, what="sentences")
    require_pairs(gold, alternatives, what="sentences")
    total = NO_COUNTS
    for number, (wanted, accepted, given) in enumerate(zip(gold, alternatives, found, strict=True)):
        if texts is None:
            total += sentence_counts(wanted, accepted, given)
        else:
            text = texts[number]
            total += sentence_counts(*(without_spaces(ranges, text) for ranges in (wanted, accepted, given)))
    return total


def sentence_counts(gold: Collection[Range], alternatives: Collection[Range], found: Collection[Range]) -> Counts:
    """The counts of one sentence."""
    right_places = {*gold, *alternatives}
    given = set(found)
    accepted = given.intersection(alternatives)
    right = sum(place in given or any(_meet(place, other) for other in accepted) for place in gold)
    return Counts(right, sum(place not in right_places for place in found), len(gold) - right)


def without_spaces(ranges: Collection[Range], text: str) -> list[Range]:
    """The ranges as they are where the text's spaces (nothing but U+0020) are not counted."""
    before = [0]
    for character in text:
        before.append(before[-1] + (character != " "))
    return [(before[start], before[end]) for start, end in ranges]


def _meet(left: Range, right: Range) -> bool:
    return left[0] < right[1] and right[0] < left[1]
