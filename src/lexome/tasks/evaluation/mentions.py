"""Mentions side by side: strict, relaxed, without types, character by character, and why they differ."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from lexome.document import Document
from lexome.tasks.evaluation.differences import Difference, around
from lexome.tasks.evaluation.measured import Measured, counted
from lexome.tasks.evaluation.pairs import Pair
from lexome.tasks.metrics.counts import Agreement, Counts, agreement
from lexome.tasks.metrics.gene_mentions import sentence_counts, without_spaces
from lexome.tasks.metrics.matching import largest_matching
from lexome.tasks.metrics.spans import (
    ANY_TYPE,
    Mention,
    characters,
    mentions,
    overlapping,
    spans_discontinuous,
    spans_relaxed,
    spans_strict,
)
from lexome.values import value

SECTION = "mentions"

# The type of BC2GM's alternatives, which are no mentions of their own.
ALTERNATIVE = "ALTGENE"


@value
class _Marked:
    """A document's mentions, gold and found."""

    pair: Pair
    gold: list[Mention]
    found: list[Mention]


def mention_measures(pairs: Sequence[Pair], only: Collection[str] | None = None) -> list[Measured]:
    """Every measure of mentions; none where neither gold nor predictions have any."""
    marked = _marked(pairs, only)
    if not any(doc.gold or doc.found for doc in marked):
        return []
    both = [([doc.gold], [doc.found]) for doc in marked]
    measures = [
        counted(SECTION, "strict", [spans_strict(*two) for two in both]),
        counted(SECTION, "relaxed (overlap)", [spans_relaxed(*two) for two in both]),
        counted(SECTION, "characters", [characters(*two) for two in both]),
    ]
    if len({mention.type for doc in marked for mention in (*doc.gold, *doc.found)}) > 1:
        untyped = [spans_strict(*two, typed=False) for two in both]
        measures.append(counted(SECTION, "strict, types ignored", untyped))
        untyped = [spans_relaxed(*two, typed=False) for two in both]
        measures.append(counted(SECTION, "relaxed, types ignored", untyped))
    apart = [spans_discontinuous(*two) for two in both]
    if any(part.total != Counts(0, 0, 0) for part in apart):
        measures.append(counted(SECTION, "discontinuous alone, strict", apart))
    if any(span.type == ALTERNATIVE for pair in pairs for span in pair.gold.spans):
        measures.append(counted(SECTION, "BC2GM with alternatives", [_bc2gm(doc) for doc in marked]))
    return measures


def mention_differences(pairs: Sequence[Pair], only: Collection[str] | None = None) -> Iterator[Difference]:
    """Each mention that is not right: wrong type, wrong boundary, both, missed or spurious.

    Every mention is in one difference at most. The ones with a wrong boundary alone are just what relaxed scoring finds
    right beyond strict scoring; the ones of a wrong type alone come back where types are ignored.
    """
    for doc in _marked(pairs, only):
        yield from _differences(doc)


def _differences(doc: _Marked) -> Iterator[Difference]:
    same = set(doc.gold) & set(doc.found)
    gold = [mention for mention in doc.gold if mention not in same]
    found = [mention for mention in doc.found if mention not in same]
    for kind, fits in (
        ("wrong boundary", lambda left, right: left.type == right.type),
        ("wrong type", lambda left, right: left.parts == right.parts),
        ("wrong boundary and type", lambda left, right: True),
    ):
        near = overlapping(gold, found)
        allowed = [
            [place for place in places if fits(mention, found[place])]
            for mention, places in zip(gold, near, strict=True)
        ]
        chosen = largest_matching(allowed)
        for left, right in sorted(chosen.items()):
            yield _difference(doc.pair.gold, kind, gold[left], found[right])
        taken = set(chosen.values())
        gold = [mention for place, mention in enumerate(gold) if place not in chosen]
        found = [mention for place, mention in enumerate(found) if place not in taken]
    for mention in gold:
        yield _difference(doc.pair.gold, "missed", mention, None)
    for mention in found:
        yield _difference(doc.pair.gold, "spurious", None, mention)


def _difference(doc: Document, kind: str, gold: Mention | None, found: Mention | None) -> Difference:
    given = [mention for mention in (gold, found) if mention is not None]
    start = min(mention.parts[0][0] for mention in given)
    end = max(mention.parts[-1][1] for mention in given)
    return Difference(SECTION, kind, doc.id, _said(doc, gold), _said(doc, found), around(doc, start, end))


def _said(doc: Document, mention: Mention | None) -> str | None:
    if mention is None:
        return None
    text = " ".join(" … ".join(doc.slice(start, end) for start, end in mention.parts).split())
    return f"{mention.type} {text!r}"


def _bc2gm(doc: _Marked) -> Agreement:
    """One sentence by the official rules: types do not count, alternatives do."""
    text = doc.pair.gold.text
    gold, found = (_places(mentions, text) for mentions in (doc.gold, doc.found))
    accepted = _places(mentions(doc.pair.gold, {ALTERNATIVE}), text)
    return agreement({ANY_TYPE: sentence_counts(gold, accepted, found)})


def _places(mentions: Iterable[Mention], text: str) -> list[tuple[int, int]]:
    return without_spaces([(mention.parts[0][0], mention.parts[-1][1]) for mention in mentions], text)


def _marked(pairs: Sequence[Pair], only: Collection[str] | None) -> list[_Marked]:
    return [_Marked(pair, _wanted(pair.gold, only), _wanted(pair.found, only)) for pair in pairs]


def _wanted(doc: Document, only: Collection[str] | None) -> list[Mention]:
    return [mention for mention in mentions(doc, only) if mention.type != ALTERNATIVE]
