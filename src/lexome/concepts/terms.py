"""Terms of dictionaries, merged into concepts: one entry for each id, with the names from all dictionaries."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from lexome.concepts.names import name_key, tidy_name

# A prefix and a local part without spaces, such as mesh:D001943.
CURIE = re.compile(r"[A-Za-z][\w.-]*:[^\s:][^\s]*")
MAX_NAMES = 2_000
# A key is computed only for shorter names: it takes longer than everything else here.
_SURELY_LONG = 6
_CONTROL = re.compile(r"[\x00-\x1f]+")


@dataclass(frozen=True, slots=True)
class Term:
    """One entry of a dictionary.

    id      a CURIE, such as mesh:D001943
    name    the preferred name; empty where the dictionary does not say which it is
    names   the other names
    taxon   the species that a gene belongs to, as a CURIE
    xrefs   the same concept in other vocabularies, as CURIEs
    """

    id: str
    type: str
    name: str
    names: tuple[str, ...] = ()
    taxon: str | None = None
    xrefs: tuple[str, ...] = ()

    @property
    def all_names(self) -> tuple[str, ...]:
        """The preferred name, where there is one, and the others."""
        return (self.name, *self.names) if self.name else self.names


@dataclass(slots=True)
class Entry:
    """A concept under construction: names in the order in which they were added, the preferred one first."""

    id: str
    type: str
    source: int
    names: dict[str, None] = field(default_factory=dict)
    taxon: str | None = None
    xrefs: dict[str, None] = field(default_factory=dict)


class TermTable:
    """Concepts by id, and counts of what was dropped and why.

    Where dictionaries disagree, the one that was added first decides: a second preferred name becomes a synonym, and
    a term of another type is dropped.
    """

    def __init__(self, *, max_name_characters: int = 200, max_names: int = MAX_NAMES) -> None:
        self.entries: dict[str, Entry] = {}
        self.dropped: Counter[str] = Counter()
        self._max_characters = max_name_characters
        self._max_names = max_names

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries.values())

    def add(self, term: Term, source: int = 0) -> Entry | None:
        """Add a term, or its names to the concept that has its id; None where it was dropped."""
        if CURIE.fullmatch(term.id) is None:
            self.dropped["id is not a CURIE"] += 1
            return None
        entry = self.entries.get(term.id)
        if entry is None:
            names = dict.fromkeys(self._usable(term.all_names))
            if not names:
                self.dropped["term without a usable name"] += 1
                return None
            entry = self.entries[term.id] = Entry(term.id, term.type, source, {}, term.taxon)
            self._add_names(entry, names)
        elif entry.type != term.type:
            self.dropped["term whose id has another type in an earlier dictionary"] += 1
            return None
        else:
            preferred = tidy_name(term.name)
            if preferred and preferred != next(iter(entry.names)):
                self.dropped["preferred name that differs from an earlier dictionary's, kept as synonym"] += 1
            self._add_names(entry, self._usable(term.all_names))
            entry.taxon = entry.taxon or term.taxon
        self._add_xrefs(entry, term.xrefs)
        return entry

    def _add_names(self, entry: Entry, names: Iterable[str]) -> None:
        for name in names:
            if name in entry.names:
                continue
            if len(entry.names) == self._max_names:
                self.dropped[f"name beyond the first {self._max_names:,} of a concept"] += 1
            else:
                entry.names[name] = None

    def _add_xrefs(self, entry: Entry, xrefs: Iterable[str]) -> None:
        for xref in xrefs:
            if CURIE.fullmatch(xref) is None:
                self.dropped["cross-reference is not a CURIE"] += 1
            elif xref != entry.id:
                entry.xrefs[xref] = None

    def _usable(self, names: Iterable[str]) -> Iterator[str]:
        for raw in names:
            name = tidy_name(raw if raw.isprintable() else _CONTROL.sub(" ", raw))
            if len(name) > self._max_characters:
                self.dropped[f"name longer than {self._max_characters} characters"] += 1
            # "α" and "ß" have keys of several letters.
            elif len(name) < _SURELY_LONG and (len(name) < 2 or len(name_key(name)) < 2):
                self.dropped["name of one letter, or none" if name else "empty name"] += 1
            else:
                yield name
