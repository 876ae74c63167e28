"""Boundaries that words cut wrongly: brackets and allele marks."""

import re
from collections.abc import Iterator, Sequence

from lexome.infer.rules.mention import Drop, Mention

# Marks of an allele that superscripts leave glued to a gene when markup is lost: SirT1ko, Atg5flox.
ALLELE_MARK = re.compile(
    r"(?<=[A-Za-z0-9)])(?:[-/]?(?:cKO|KO|ko|flox|fl/fl|fl|null|TTD)|[\s(]*[-+]/[-+]\)?|\([-+]/[-+]\)?)\Z"
)
# A word that the model takes into short mentions of genes: "TP53 mutations".
ALTERATION = re.compile(r"\s+(?:mutations?|mutants?|polymorphisms?)\Z")
# The least length of what is left.
MIN_GENE = 3
# Characters that are removed at either end at most, so that a page of brackets costs no more than a line.
MAX_TRIM = 8
OPENING, CLOSING = "([{", ")]}"
PAIRS = dict(zip(CLOSING, OPENING, strict=True))


def apply_boundaries(text: str, mentions: Sequence[Mention], drops: list[Drop]) -> Iterator[Mention]:
    """The mentions, each with its brackets balanced, and without allele marks."""
    for mention in mentions:
        start, end = balanced(text, *mention.place)
        if mention.type == "Gene":
            start, end = gene_name(text, start, end)
        if start >= end:
            drops.append(Drop(mention, "punctuation"))
            continue
        if (start, end) == mention.place:
            yield mention
            continue
        drops.append(Drop(mention, f"boundaries moved: {text[start:end]!r}"))
        yield mention.moved(start, end)


def balanced(text: str, start: int, end: int) -> tuple[int, int]:
    """The place without punctuation at its ends and without a bracket there that is closed or opened elsewhere."""
    first, last_end = start, end
    while start < min(end, first + MAX_TRIM) and (
        text[start] in " ,;:/.)]}" or (text[start] in OPENING and _unclosed(text, start, end))
    ):
        start += 1
    while max(start, last_end - MAX_TRIM) < end:
        last = text[end - 1]
        if last in " ,;:/" or last in OPENING or (last in CLOSING and PAIRS[last] not in text[start:end]):
            end -= 1
        else:
            break
    # "15 nucleotide (nt": the bracket closes right behind it.
    if (
        end < len(text)
        and text[end] in CLOSING
        and text.count(PAIRS[text[end]], start, end) > text.count(text[end], start, end)
    ):
        end += 1
    return start, end


def _unclosed(text: str, start: int, end: int) -> bool:
    closing = CLOSING[OPENING.index(text[start])]
    return closing not in text[start:end]


def gene_name(text: str, start: int, end: int) -> tuple[int, int]:
    """The gene without the mark of an allele."""
    if alteration := ALTERATION.search(text, max(start, end - 20), end):
        end = alteration.start()
    name = text[start:end]
    if (mark := ALLELE_MARK.search(name)) and mark.start() >= MIN_GENE:
        return start, start + mark.start()
    return start, end
