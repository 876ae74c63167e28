"""Tags of tokens: what every program that scores them needs, and the checks before it."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from lexome.document import shorten
from lexome.errors import UsageError
from lexome.tasks.metrics.counts import Agreement, of_sets, require_pairs

# A mention in tokens: its type, its first token, and where it ends, exclusive.
Chunk = tuple[str, int, int]

_LETTERS = "BIOESLU"


class Tag(NamedTuple):
    """A tag's letter and its type."""

    letter: str
    type: str


OUTSIDE = Tag("O", "")


def chunk_agreement(
    gold: Sequence[Sequence[str]], found: Sequence[Sequence[str]], chunks: Callable[[Sequence[str]], Iterable[Chunk]]
) -> Agreement:
    """How far the mentions that `chunks` sees in two taggings agree."""
    return of_sets(_by_type(gold, chunks), _by_type(found, chunks))


def _by_type(
    sentences: Sequence[Sequence[str]], chunks: Callable[[Sequence[str]], Iterable[Chunk]]
) -> dict[str, set[tuple[int, int, int]]]:
    types: defaultdict[str, set[tuple[int, int, int]]] = defaultdict(set)
    for number, tags in enumerate(sentences):
        for type, start, end in chunks(tags):
            types[type].add((number, start, end))
    return types


def require_tags(gold: Sequence[Sequence[str]], found: Sequence[Sequence[str]], *, letters: str = _LETTERS) -> None:
    """Raise unless both have the same sentences, token for token, and every tag begins with one of these letters."""
    require_pairs(gold, found, what="sentences")
    for number, (tags, others) in enumerate(zip(gold, found, strict=True), 1):
        if len(tags) != len(others):
            raise UsageError(
                f"sentence {number:,} has {len(tags):,} gold tags and {len(others):,} found ones; expected one a token."
            )
    known: set[str] = set()
    for sentences in (gold, found):
        known.update(*sentences)
    for tag in sorted(known):
        letter, dash, _ = tag.partition("-")
        if len(letter) != 1 or letter not in letters or (letter == "O" and dash):
            raise UsageError(
                f"there is a tag {shorten(tag)!r}; expected one of {' '.join(letters)}, and after all but O perhaps a "
                "type, as in I-Gene. Check the tags, or name another scheme."
            )
