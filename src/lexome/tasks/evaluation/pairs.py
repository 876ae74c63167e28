"""Predicted and gold documents brought together: by id, and never with another text."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from lexome.document import Document, shorten
from lexome.errors import UsageError
from lexome.tasks.evaluation.files import Loaded, Sentence
from lexome.values import value


@value
class Pair:
    """A gold document, what was predicted for it, and both files' own tags where they are in columns."""

    gold: Document
    found: Document
    gold_tags: tuple[Sentence, ...] = ()
    found_tags: tuple[Sentence, ...] = ()


@value
class Pairs:
    """All gold documents in their order, and how the predicted ones were matched to them."""

    pairs: tuple[Pair, ...]
    matched: int
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    by_place: bool

    @property
    def with_tags(self) -> bool:
        """Whether both files gave their own tags."""
        return all(pair.gold_tags or not pair.gold.passages for pair in self.pairs) and any(
            pair.gold_tags for pair in self.pairs
        )


def paired(found: Loaded, gold: Loaded) -> Pairs:
    """Each gold document with the predicted one of its id, the second with the second where an id comes twice.

    Where the files share no id, but have the same texts in the same order, they are matched by place: ids made of a
    file's name differ. A gold document without a prediction is paired with one that says nothing.
    """
    if not gold.docs:
        raise UsageError(f"{gold.name}: there is no document; expected gold ones.")
    partners, by_place = _partners(found, gold), False
    if not any(partner is not None for partner in partners):
        if [doc.text for doc in found.docs] != [doc.text for doc in gold.docs]:
            raise UsageError(_strangers(found, gold))
        partners, by_place = list(range(len(gold.docs))), True
    tagged = found.tags is not None and gold.tags is not None
    pairs = tuple(_pair(found, gold, place, partner, tagged=tagged) for place, partner in enumerate(partners))
    used = {partner for partner in partners if partner is not None}
    return Pairs(
        pairs,
        len(used),
        tuple(doc.id for doc, partner in zip(gold.docs, partners, strict=True) if partner is None),
        tuple(doc.id for place, doc in enumerate(found.docs) if place not in used),
        by_place,
    )


def _partners(found: Loaded, gold: Loaded) -> list[int | None]:
    """For each gold document the place of the predicted one of its id."""
    places: defaultdict[str, list[int]] = defaultdict(list)
    for place, doc in enumerate(found.docs):
        places[doc.id].append(place)
    for own in places.values():
        own.reverse()
    return [places[doc.id].pop() if places.get(doc.id) else None for doc in gold.docs]


def _pair(found: Loaded, gold: Loaded, place: int, partner: int | None, *, tagged: bool) -> Pair:
    doc = gold.docs[place]
    own = gold.tags[place] if tagged and gold.tags is not None else ()
    if partner is None:
        silent = replace(doc, spans=(), relations=(), attributes=(), questions=(), labels=())
        return Pair(doc, silent, own, tuple(tuple((word, "O") for word, _ in sentence) for sentence in own))
    other = found.docs[partner]
    if doc.passages and other.passages:
        _require_same_text(doc, other, found.name, gold.name)
    theirs = found.tags[partner] if tagged and found.tags is not None else ()
    return Pair(doc, other, own, theirs)


def _require_same_text(gold: Document, found: Document, found_name: str, gold_name: str) -> None:
    left, right = gold.text, found.text
    if left == right:
        return
    pairs = zip(left, right, strict=False)
    place = next((place for place, (one, other) in enumerate(pairs) if one != other), min(len(left), len(right)))
    raise UsageError(
        f"document {shorten(gold.id)!r}: the texts differ from character {place:,} on: "
        f"{left[max(0, place - 10) : place + 20]!r} in {gold_name}, {right[max(0, place - 10) : place + 20]!r} in "
        f"{found_name}. Places in two texts cannot be compared; predict on the text of {gold_name}."
    )


def _strangers(found: Loaded, gold: Loaded) -> str:
    return (
        f"no document of {found.name} ({_some(found.docs)}) is one of {gold.name} ({_some(gold.docs)}): no id is the "
        "same, nor are the texts in their order. Check that both are of the same set."
    )


def _some(docs: Sequence[Document]) -> str:
    ids = ", ".join(repr(shorten(doc.id, 30)) for doc in docs[:2])
    return f"{len(docs):,} documents: {ids}, ..." if len(docs) > 2 else f"{len(docs):,}: {ids or 'none'}"
