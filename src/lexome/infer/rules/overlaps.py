"""One type per place: which of several overlapping mentions of different types stay."""

from collections.abc import Sequence

from lexome.infer.rules.mention import Drop, Mention

# A mention inside one of another type, such as the virus in "HIV infection", stays from this score on.
NESTED_MIN_SCORE = 0.4

# Added to the scores that are compared; chosen on development sets. A protein is often a chemical to the model as well,
# and a disease named after its gene a gene.
BONUS = {"Chemical": -0.1, "Disease": 0.1}

# Types that may be part of a name of another type: (inner, outer).
NESTED = frozenset(
    (
        ("Species", "Disease"),
        ("Species", "Gene"),
        ("Species", "Chemical"),
        ("Species", "CellLine"),
        ("Gene", "Disease"),
        ("Gene", "Chemical"),
        ("Gene", "Variant"),
        ("Gene", "Gene"),
        ("Chemical", "Disease"),
        ("Chemical", "Gene"),
        ("Disease", "Gene"),
        ("Disease", "Chemical"),
        ("Disease", "CellLine"),
    )
)


def resolve_overlaps(mentions: Sequence[Mention], drops: list[Drop]) -> list[Mention]:
    """The mentions without those that a better one excludes, best scores first.

    Of mentions at the same place, and of those that cross, the one with the highest score stays. A mention inside
    another one stays if such nesting occurs in annotated text and it is likely enough to be right.
    """
    ordered = sorted(mentions, key=lambda one: (one.start, -one.end, -one.score, one.type))
    rivals = overlapping(ordered)
    kept = [False] * len(ordered)
    for number in sorted(range(len(ordered)), key=lambda place: (-_rank(ordered[place]), place)):
        mention = ordered[number]
        better = next((other for other in rivals[number] if kept[other] and _excludes(ordered[other], mention)), None)
        if better is None:
            kept[number] = True
        elif (mention.type, mention.place) != (ordered[better].type, ordered[better].place):
            reason = f"overlaps {ordered[better].type} {ordered[better].score:.2f}, which is more probable"
            drops.append(Drop(mention, reason))
    return [mention for mention, keep in zip(ordered, kept, strict=True) if keep]


def _rank(mention: Mention) -> float:
    """The score by which overlapping mentions are compared."""
    return mention.score + BONUS.get(mention.type, 0.0)


def overlapping(ordered: Sequence[Mention]) -> list[list[int]]:
    """For each of ordered mentions, the numbers of those that overlap it.

    Mentions of one type do not overlap, so that at each place there are at most as many as types: the time is linear.
    """
    rivals: list[list[int]] = [[] for _ in ordered]
    active: list[int] = []
    for number, mention in enumerate(ordered):
        active = [other for other in active if ordered[other].end > mention.start]
        for other in active:
            rivals[other].append(number)
        rivals[number] += active
        active.append(number)
    return rivals


def _excludes(better: Mention, mention: Mention) -> bool:
    """Whether a better mention excludes one that overlaps it."""
    if mention.place == better.place:
        return True
    if mention.start >= better.start and mention.end <= better.end:
        inner, outer = mention, better
    elif better.start >= mention.start and better.end <= mention.end:
        inner, outer = better, mention
    else:
        return True
    return inner.score < NESTED_MIN_SCORE or (inner.type, outer.type) not in NESTED
