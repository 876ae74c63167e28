"""BioCreative II gene mention: official scoring, which accepts alternatives to a gold mention.

A gold mention is found where a found one has its place, or the place of an alternative that shares a character with it.
A found mention is wrong where it has neither the place of a gold mention nor that of an alternative. True positives are
gold mentions: one found mention may make two of them found.
"""

from collections.abc import Collection, Sequence

from lexome.document import Range
from lexome.tasks.metrics.counts import NONE, Counts, require_pairs


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
    total = NONE
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
