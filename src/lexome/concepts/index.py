"""The index of names: one memory-mapped file, which finds concepts by name and gives their ids, names and sources.

    index = TermIndex.open("terms.lexterms")
    for match in index.find("breast cancers", type="Disease"):
        print(index.concept(match.concept).id, match.name, match.agreement.name)

Layout, all numbers little-endian: a prefix (magic, format version, length and CRC-32 of the header), the header as JSON
(types, dictionaries with licenses, CRC-32 of the body, sections), and the sections:

    text                compressed blocks of concepts, each a line of id, taxon, cross-references and names
    block_*             where blocks begin, by byte and by concept
    key_*               for each name key its CRC-32 and concept, sorted; key_starts is addressed by the high 16 bits
    near.TYPE.*         trigrams of name keys and the keys that have them, for types that are searched for similar names

Concepts are numbered by type, dictionary and id. The same terms give the same bytes.
"""

import json
import mmap
import struct
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from lexome.concepts.names import KEY_RULES, Agreement, compare_names, name_key, tidy_name
from lexome.errors import FormatError

MAGIC = b"lexterms"
FORMAT_VERSION = 1
_PREFIX = struct.Struct("<8sIII")
_ALIGNMENT = 64
# A block decompresses in some 50 microseconds.
_BLOCKS_CACHED = 2048
_NAMES_CACHED = 1 << 14
# Grams of a name key are numbered in this alphabet; other characters share its last two places.
_ALPHABET = {character: place for place, character in enumerate(" abcdefghijklmnopqrstuvwxyz0123456789+")}
OTHER_PLACES, PLACES = 38, 40
GRAMS = PLACES**3
# How many candidates by shared grams are compared name by name, for each that is asked for.
_OVERSAMPLING = 2

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Concept:
    """A concept of an index: id, type, preferred name, all names, species of a gene, ids elsewhere, dictionary."""

    number: int
    id: str
    type: str
    preferred: str
    names: tuple[str, ...]
    taxon: str | None
    xrefs: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True)
class NameMatch:
    """A concept's name that agrees with, or resembles, the one that was looked up.

    agreement    None for a name that is only similar
    similarity   Dice coefficient of the trigrams of the two name keys; 1 where the names agree
    """

    concept: int
    name: str
    agreement: Agreement | None
    similarity: float = 1.0


@dataclass(frozen=True, slots=True)
class _Group:
    """Consecutive concepts of one type from one dictionary, in blocks of their own."""

    type: str
    source: str
    first: int
    end: int
    first_block: int
    end_block: int


class TermIndex:
    """An open index file. Concepts have numbers from 0; numbers of different files have nothing in common."""

    def __init__(self, content: "mmap.mmap | bytes", name: str) -> None:
        self.name = name
        header, start = _read_header(content, name)
        self._view = memoryview(content)
        self._offsets: dict[str, tuple[int, int]] = {
            section: (start + offset, size) for section, (offset, size) in header["sections"].items()
        }
        self.header: Mapping[str, Any] = header
        self.types: tuple[str, ...] = tuple(header["types"])
        self.dictionaries: tuple[Mapping[str, Any], ...] = tuple(header["dictionaries"])
        self._groups = [_Group(*row) for row in header["groups"]]
        self._group_starts = [group.first for group in self._groups]
        self._key_starts = self._section("key_starts").cast("I")
        self._key_lows = self._section("key_lows").cast("H")
        self._key_concepts = self._array("key_concepts", np.uint16)
        self._key_concepts_high = self._array("key_concepts_high", np.uint8)
        self._block_starts = self._section("block_starts").cast("I")
        self._block_concepts = self._section("block_concepts").cast("I")
        # Caches of this index, dropped with it.
        self._lines = lru_cache(maxsize=_BLOCKS_CACHED)(self._read_lines)
        self._concept = lru_cache(maxsize=_NAMES_CACHED)(self._read_concept)
        self._names_by_key = lru_cache(maxsize=_NAMES_CACHED)(self._read_names_by_key)
        self._found = lru_cache(maxsize=_NAMES_CACHED)(self._find)
        self._similar = lru_cache(maxsize=_NAMES_CACHED)(self._find_similar)

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """The index in a file; FormatError if it is damaged, truncated or of another version."""
        path = Path(path)
        try:
            with path.open("rb") as stream:
                return cls(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ), str(path))
        except OSError as error:
            raise FormatError(
                f"{path}: cannot be opened ({error.strerror}).", code="unreadable-file", value=path
            ) from error
        except ValueError as error:  # an empty file cannot be mapped
            raise _not_an_index(str(path)) from error

    def __len__(self) -> int:
        return int(self.header["concepts"])

    def __repr__(self) -> str:
        return f"<TermIndex {self.name}: {len(self):,} concepts>"

    def concept(self, number: int) -> Concept:
        """The concept with this number; IndexError if there is none."""
        return self._concept(number)

    def find(self, name: str, type: str | None = None) -> tuple[NameMatch, ...]:
        """The names that agree with this one, one for each concept, closest first; only of one type, if given."""
        return self._found(name, type)

    def near(self, name: str, type: str, limit: int = 20) -> tuple[NameMatch, ...]:
        """The names of a type with the most similar key, one for each concept, the most similar first.

        Empty for types whose similar names the index was not built to find.
        """
        return self._similar(name, type, limit)

    def _find(self, name: str, type: str | None) -> tuple[NameMatch, ...]:
        name = tidy_name(name)
        matches = []
        for number in self.numbers_by_key(name_key(name)):
            if type is not None and self.type_of(number) != type:
                continue
            levels = ((compare_names(name, other), other) for other in self.concept(number).names)
            known = [(level, other) for level, other in levels if level is not None]
            if known:
                level, other = min(known, key=lambda pair: pair[0])
                matches.append(NameMatch(number, other, level))
        return tuple(sorted(matches, key=lambda match: (match.agreement, match.concept)))

    def numbers_by_key(self, key: str) -> list[int]:
        """The concepts that have a name with this key, and with it, rarely, others whose key has the same CRC-32."""
        if not key:
            return []
        code = zlib.crc32(key.encode())
        start, end = self._key_starts[code >> 16], self._key_starts[(code >> 16) + 1]
        lows = self._key_lows[start:end].tolist()
        low = code & 0xFFFF
        first = start + bisect_left(lows, low)
        last = start + bisect_right(lows, low)
        high = self._key_concepts_high[first:last].astype(np.int64) << 16
        numbers: list[int] = (self._key_concepts[first:last] + high).tolist()
        return numbers

    def type_of(self, number: int) -> str:
        """The type of a concept, without reading it."""
        return self._group_of(number).type

    def number_of(self, curie: str) -> int | None:
        """The number of the concept with this id, or None."""
        wanted = id_order(curie)
        for group in self._groups:
            heads = self._heads[group.first_block : group.end_block]
            block = group.first_block + bisect_right(heads, wanted) - 1
            if block >= group.first_block:
                for place, line in enumerate(self._lines(block)):
                    if line.startswith(curie) and line.partition("\t")[0] == curie:
                        return self._block_concepts[block] + place
        return None

    def concept_of(self, curie: str) -> Concept | None:
        """The concept with this id, or None."""
        number = self.number_of(curie)
        return None if number is None else self.concept(number)

    def concepts(self, type: str | None = None) -> Iterator[Concept]:
        """All concepts, or those of a type, in order; they are not kept in the cache."""
        for group in self._groups:
            if type is None or group.type == type:
                for block in range(group.first_block, group.end_block):
                    for place, line in enumerate(self._read_lines(block)):
                        yield _parse_line(line, self._block_concepts[block] + place, group)

    def _find_similar(self, name: str, type: str, limit: int) -> tuple[NameMatch, ...]:
        if f"near.{type}.grams" not in self._offsets:
            return ()
        name = tidy_name(name)
        key = name_key(name)
        grams = trigrams(key)
        best: dict[int, tuple[float, str]] = {}
        for number, place in self._near_table(type).search(gram_numbers(key), limit * _OVERSAMPLING):
            keyed = self._names_by_key(number)
            # A key that too many concepts have is not counted, so in rare concepts places are those of other keys.
            other, known = keyed[min(place, len(keyed) - 1)]
            other_grams = trigrams(other)
            similarity = 2 * len(grams & other_grams) / (len(grams) + len(other_grams))  # Dice
            if number not in best or similarity > best[number][0]:
                best[number] = similarity, known
        ranked = sorted(best.items(), key=lambda item: (-item[1][0], item[0]))[:limit]
        return tuple(
            NameMatch(number, known, compare_names(name, known), similarity) for number, (similarity, known) in ranked
        )

    def _read_names_by_key(self, number: int) -> list[tuple[str, str]]:
        """The distinct keys of a concept's names, sorted, each with the first name that has it."""
        keyed: dict[str, str] = {}
        for name in self.concept(number).names:
            keyed.setdefault(name_key(name), name)
        return sorted(keyed.items())

    def _near_table(self, type: str) -> "_NearTable":
        table = self._near_tables.get(type)
        if table is None:
            parts = ("grams", "postings", "concepts", "sizes")
            table = self._near_tables[type] = _NearTable(*(self._section(f"near.{type}.{part}") for part in parts))
        return table

    @cached_property
    def _near_tables(self) -> dict[str, "_NearTable"]:
        return {}

    @cached_property
    def _heads(self) -> list[tuple[str, int, str]]:
        """The first id of each block, as ids are ordered."""
        heads = zlib.decompress(self._section("block_heads")).decode().split("\n")
        return [id_order(head) for head in heads]

    def _group_of(self, number: int) -> _Group:
        return self._groups[bisect_right(self._group_starts, number) - 1]

    def _read_concept(self, number: int) -> Concept:
        if not 0 <= number < len(self):
            raise IndexError(f"{self.name}: no concept {number}; it has {len(self):,}")
        block = bisect_right(self._block_concepts, number) - 1
        line = self._lines(block)[number - self._block_concepts[block]]
        return _parse_line(line, number, self._group_of(number))

    def _read_lines(self, block: int) -> list[str]:
        start, end = self._block_starts[block], self._block_starts[block + 1]
        return zlib.decompress(self._section("text")[start:end]).decode().split("\n")

    def _section(self, name: str) -> memoryview:
        start, size = self._offsets[name]
        return self._view[start : start + size]

    def _array(self, name: str, dtype: type[np.generic]) -> npt.NDArray[Any]:
        return np.frombuffer(self._section(name), dtype)


def id_order(curie: str) -> tuple[str, int, str]:
    """The order of ids: by prefix, then numbers by value."""
    prefix, _, local = curie.partition(":")
    return prefix, len(local), local


def trigrams(key: str) -> frozenset[str]:
    """The three-character substrings of a name key, spaces around it included."""
    padded = f" {key} "
    return frozenset(padded[start : start + 3] for start in range(len(padded) - 2))


def gram_numbers(key: str) -> list[int]:
    """The numbers of the trigrams of a name key, ascending."""
    places = [alphabet_place(character) for character in f" {key} "]
    return sorted(
        {
            (first * PLACES + second) * PLACES + third
            for first, second, third in zip(places, places[1:], places[2:], strict=False)
        }
    )


def alphabet_place(character: str) -> int:
    """The place of a character of a name key in the alphabet of trigrams."""
    return _ALPHABET.get(character, OTHER_PLACES + (ord(character) & 1))


def _parse_line(line: str, number: int, group: _Group) -> Concept:
    curie, taxon, xrefs, *names = line.split("\t")
    return Concept(number, curie, group.type, names[0], tuple(names), taxon or None, tuple(xrefs.split()), group.source)


class _NearTable:
    """Which name keys of a type have which trigrams."""

    def __init__(self, grams: memoryview, postings: memoryview, concepts: memoryview, sizes: memoryview) -> None:
        # Bytes of each posting list; the lowest bit is set where its numbers have two bytes.
        codes = np.frombuffer(zlib.decompress(grams), np.uint32).astype(np.int64)
        self._wide = (codes & 1).astype(bool)
        self._ends = np.cumsum(codes >> 1)
        self._postings = postings
        self._concepts = np.frombuffer(zlib.decompress(concepts), np.uint32)
        self._roots = 1 / np.sqrt(np.frombuffer(sizes, np.uint8).astype(np.float32) + 1)

    def search(self, grams: Sequence[int], limit: int) -> list[tuple[int, int]]:
        """The keys that share most with these trigrams, rare ones counting more: concept and place among its keys."""
        lists = [decoded for gram in grams if len(decoded := self._decode(gram))]
        if not lists:
            return []
        total = len(self._concepts)
        scores = np.zeros(total, np.float32)
        for keys in lists:  # in which a key is at most once
            scores[keys] += np.float32(np.log(1 + total / len(keys)))
        keys = np.flatnonzero(scores)
        shared = scores[keys] * self._roots[keys]
        if len(keys) > limit:
            # All that are as good as the last one, then ties in order, so that the same comes from every NumPy.
            least = np.partition(shared, len(keys) - limit)[len(keys) - limit]
            keys, shared = keys[shared >= least], shared[shared >= least]
        keys = keys[np.lexsort((keys, -shared))][:limit]
        numbers = self._concepts[keys]
        return list(zip(numbers.tolist(), (keys - np.searchsorted(self._concepts, numbers)).tolist(), strict=True))

    def _decode(self, gram: int) -> Numbers:
        end = int(self._ends[gram])
        start = int(self._ends[gram - 1]) if gram else 0
        dtype = np.dtype("<u2") if self._wide[gram] else np.dtype("u1")
        steps = np.frombuffer(self._postings[start:end], dtype)
        # The largest number is a step that leads to no key.
        keys: Numbers = np.cumsum(steps, dtype=np.int64)[steps != np.iinfo(dtype).max] - 1
        return keys


def encode_postings(keys: Numbers) -> tuple[bytes, bool]:
    """A posting list as steps of one byte or two, whichever is smaller, and whether it is two."""
    steps = np.diff(keys, prepend=-1)

    def encode(dtype: np.dtype[Any]) -> bytes:
        most = int(np.iinfo(dtype).max)
        if len(steps) == 0:
            return b""
        escapes = steps // most
        rest = steps - escapes * most
        # A rest of 0 is a step of nothing after escapes, which is valid.
        counts = escapes + 1
        out = np.full(int(counts.sum()), most, dtype)
        out[np.cumsum(counts) - 1] = rest
        return out.tobytes()

    narrow, wide = encode(np.dtype("u1")), encode(np.dtype("<u2"))
    return (wide, True) if len(wide) < len(narrow) else (narrow, False)


def _read_header(content: "mmap.mmap | bytes", name: str) -> tuple[dict[str, Any], int]:
    """The header and where the body starts, both checked."""
    size = len(content)
    if size < _PREFIX.size or content[: len(MAGIC)] != MAGIC:
        raise _not_an_index(name)
    _, version, length, check = _PREFIX.unpack(content[: _PREFIX.size])
    if version != FORMAT_VERSION:
        raise _other_version(name, f"format {version}, this version reads format {FORMAT_VERSION}", version)
    raw = content[_PREFIX.size : _PREFIX.size + length]
    if len(raw) < length or zlib.crc32(raw) != check:
        raise _damaged(name, "its header is incomplete or changed")
    header: dict[str, Any] = json.loads(raw)
    if header["key_rules"] != KEY_RULES:
        found = header["key_rules"]
        raise _other_version(name, f"names normalized by rules {found}, this version has rules {KEY_RULES}", found)
    start = _align(_PREFIX.size + length)
    if size - start != header["bytes"]:
        raise _damaged(name, f"{size - start:,} bytes after the header; expected {header['bytes']:,}")
    if zlib.crc32(memoryview(content)[start:]) != header["crc32"]:
        raise _damaged(name, "its checksum differs")
    return header, start


def _align(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _not_an_index(name: str) -> FormatError:
    return FormatError(
        f"{name}: not an index of terms; expected a file that `lexome build-terms` wrote.",
        code="not-an-index",
        value=name,
    )


def _other_version(name: str, difference: str, value: Any) -> FormatError:
    return FormatError(
        f"{name}: an index made by another version of Lexome ({difference}). Run `lexome build-terms` again.",
        code="other-version",
        value=value,
    )


def _damaged(name: str, problem: str) -> FormatError:
    return FormatError(
        f"{name}: the index is truncated or damaged: {problem}. Copy it again, or run `lexome build-terms` again.",
        code="damaged-index",
        value=name,
    )


# Several indexes searched as one: a user's dictionaries over the default index


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


# The index that comes with Lexome


DEFAULT_TERMS = "default_terms"


@cache
def default_index() -> TermIndex:
    """The bundled index of genes, diseases, chemicals, species and cell lines, opened once per process.

    src/lexome/default_terms/README.md has sources, versions and licenses. A damaged file raises FormatError.
    """
    return TermIndex.open(default_terms())


def default_terms() -> Path:
    """The file of the default index."""
    return Path(str(files("lexome") / DEFAULT_TERMS / "default.lexterms"))


def preferred_name(concept: str) -> str | None:
    """The preferred name of a concept id, if the default index has it."""
    found = default_index().concept_of(concept)
    return None if found is None else preferred_names().get(concept, found.preferred)


def displayed_name(concept: Concept) -> str:
    """The preferred name of a concept; of common concepts of the default index, their usual one."""
    usual = preferred_names().get(concept.id)
    if usual is None or (own := default_index().concept_of(concept.id)) is None or own.preferred != concept.preferred:
        return concept.preferred
    return usual


@cache
def preferred_names() -> dict[str, str]:
    """Usual names of common species, cell lines, genes and chemicals, by id.

    The dictionaries of the first two types do not mark a preferred name. As preferred name, the index has a Latin
    binomial for a species, and the first name in alphabetical order for a cell line: "He La" for HeLa. It has old
    symbols for renamed genes, and systematic names for some chemicals.
    """
    table = (files("lexome") / DEFAULT_TERMS / "preferred-names.tsv").read_text(encoding="utf-8")
    rows = (line.split("\t") for line in table.splitlines()[1:])
    return {concept: name for concept, name in rows}
