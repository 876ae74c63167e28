"""Several indexes searched as one: a user's dictionaries over the default index."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate

from lexome.concepts.index import Concept, NameMatch, TermIndex

_CACHED = 1 << 14


class TermStack:
    """Indexes in order of precedence, with the methods of one.

    A concept that several indexes have, by id, is one: the first index gives its preferred name and type, all of them
    give names and cross-references.
    """

    def __init__(self, indexes: Sequence[TermIndex]) -> None:
        self.indexes = tuple(indexes)
        self._starts = [0, *accumulate(map(len, self.indexes))]
        self.types: tuple[str, ...] = tuple(sorted({type for index in self.indexes for type in index.types}))
        self.dictionaries = tuple(dictionary for index in self.indexes for dictionary in index.dictionaries)
        self._concept = lru_cache(maxsize=_CACHED)(self._merge_concept)
        self._found = lru_cache(maxsize=_CACHED)(self._find)
        self._similar = lru_cache(maxsize=_CACHED)(self._find_similar)
        self._first = lru_cache(maxsize=_CACHED)(self._find_first)

    def __len__(self) -> int:
        return self._starts[-1]

    def concept(self, number: int) -> Concept:
        """The concept of a number, with what all indexes say about its id."""
        return self._concept(number)

    def find(self, name: str, type: str | None = None) -> tuple[NameMatch, ...]:
        """The names that agree with this one, one for each concept, closest first; only of one type, if given."""
        return self._found(name, type)

    def near(self, name: str, type: str, limit: int = 20) -> tuple[NameMatch, ...]:
        """The names of a type with the most similar key, one for each concept, the most similar first."""
        return self._similar(name, type, limit)

    def _find(self, name: str, type: str | None) -> tuple[NameMatch, ...]:
        matches = [index.find(name, type) for index in self.indexes]
        return self._merge(matches, key=lambda match: (match.agreement, match.concept))

    def _find_similar(self, name: str, type: str, limit: int) -> tuple[NameMatch, ...]:
        matches = [index.near(name, type, limit) for index in self.indexes]
        return self._merge(matches, key=lambda match: (-match.similarity, match.concept))[:limit]

    def _merge(self, matches, key) -> tuple[NameMatch, ...]:  # type: ignore[no-untyped-def]
        best: dict[int, NameMatch] = {}
        for start, found in zip(self._starts, matches, strict=False):
            for match in found:
                number = self._first(start + match.concept)
                moved = replace(match, concept=number)
                if number not in best or key(moved) < key(best[number]):
                    best[number] = moved
        return tuple(sorted(best.values(), key=key))

    def type_of(self, number: int) -> str:
        """The type of a concept, without reading it."""
        index, start = self._place(number)
        return index.type_of(number - start)

    def number_of(self, curie: str) -> int | None:
        """The number of the concept with this id in the first index that has it, or None."""
        for index, start in zip(self.indexes, self._starts, strict=False):
            if (number := index.number_of(curie)) is not None:
                return start + number
        return None

    def concept_of(self, curie: str) -> Concept | None:
        """The concept with this id, or None."""
        number = self.number_of(curie)
        return None if number is None else self.concept(number)

    def concepts(self, type: str | None = None) -> Iterator[Concept]:
        """All concepts, or those of a type; one that several indexes have comes once."""
        for index, start in zip(self.indexes, self._starts, strict=False):
            for concept in index.concepts(type):
                if self._find_first(start + concept.number) == start + concept.number:
                    yield self._merge_concept(start + concept.number)

    def _place(self, number: int) -> tuple[TermIndex, int]:
        if not 0 <= number < len(self):
            raise IndexError(f"no concept {number}; there are {len(self):,}")
        place = bisect_right(self._starts, number) - 1
        return self.indexes[place], self._starts[place]

    def _find_first(self, number: int) -> int:
        """The number of the same id in the first index that has it."""
        index, start = self._place(number)
        if start == 0:
            return number
        first = self.number_of(index.concept(number - start).id)
        return number if first is None else first

    def _merge_concept(self, number: int) -> Concept:
        index, start = self._place(number)
        concept = replace(index.concept(number - start), number=number)
        others = [
            other
            for later in self.indexes
            if later is not index and (other := later.concept_of(concept.id)) is not None
        ]
        if not others:
            return concept
        names = dict.fromkeys(name for each in (concept, *others) for name in each.names)
        xrefs = dict.fromkeys(xref for each in (concept, *others) for xref in each.xrefs)
        taxon = next((each.taxon for each in (concept, *others) if each.taxon), None)
        return replace(concept, names=tuple(names), xrefs=tuple(xrefs), taxon=taxon)
