"""Writes the index of names; `lexome.concepts.index` describes the file."""

import json
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from lexome.concepts.index import (
    _ALIGNMENT,
    _PREFIX,
    FORMAT_VERSION,
    GRAMS,
    MAGIC,
    OTHER_PLACES,
    PLACES,
    Numbers,
    alphabet_place,
    encode_postings,
    id_order,
)
from lexome.concepts.names import KEY_RULES, name_key
from lexome.concepts.terms import Entry
from lexome.errors import FormatError
from lexome.files import atomic_write

# Larger blocks compress better and take longer to open.
BLOCK_CHARACTERS = 12_000
# A name of more concepts of one type says nothing; it would make each look-up read all of them.
MAX_CONCEPTS = 100
MAX_ALL_CONCEPTS = 1 << 24
# Trigrams that more than this fraction of keys have tell little, and take most of the space.
COMMON_GRAM = 1 / 16
_FEW_KEYS = 256
# Trigrams of so many keys at a time: arrays of the characters of all of a million take gigabytes.
KEYS_TOGETHER = 50_000


@dataclass(slots=True)
class IndexCounts:
    """Counts of what was written: concepts and names by type, names dropped by reason, bytes by section."""

    concepts: Counter[str] = field(default_factory=Counter)
    names: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    sections: dict[str, int] = field(default_factory=dict)
    bytes: int = 0


def write_index(
    path: Path,
    entries: Iterable[Entry],
    dictionaries: Sequence[Mapping[str, Any]],
    *,
    near: Collection[str] = (),
    provenance: Mapping[str, Any] = MappingProxyType({}),
) -> IndexCounts:
    """Write the index of these concepts.

    dictionaries  name, version, license and so on of each source that entries refer to by position
    near          the types that can be searched for similar names
    provenance    what the index was built from and by, stored as it is
    """
    ordered = sorted(entries, key=lambda entry: (entry.type, entry.source, id_order(entry.id)))
    if not ordered:
        raise FormatError(f"{path}: no concepts to write. Check the dictionaries.", code="no-terms", value=path)
    if len(ordered) > MAX_ALL_CONCEPTS:
        raise FormatError(
            f"{path}: {len(ordered):,} concepts; an index holds {MAX_ALL_CONCEPTS:,}. Build several.",
            code="too-many-terms",
            value=len(ordered),
        )
    counts = IndexCounts()
    for entry in ordered:
        counts.concepts[entry.type] += 1
        counts.names[entry.type] += len(entry.names)
    keys = _keys(ordered, counts)
    sections, groups = _text_sections(ordered, dictionaries)
    sections |= _key_sections(keys)
    for type in sorted(set(near) & counts.concepts.keys()):
        rows = [(number, key) for number, key in keys if ordered[number].type == type]
        if not rows:  # each name has too many concepts
            continue
        sections |= {f"near.{type}.{part}": content for part, content in _near_sections(rows).items()}
    header = {
        "key_rules": KEY_RULES,
        "concepts": len(ordered),
        "names": sum(counts.names.values()),
        "types": sorted(counts.concepts),
        "counts": {
            "concepts": dict(sorted(counts.concepts.items())),
            "names": dict(sorted(counts.names.items())),
            "dropped": dict(sorted(counts.dropped.items())),
        },
        "provenance": dict(provenance),
        "dictionaries": list(dictionaries),
        "groups": groups,
    }
    counts.bytes = _write(path, header, sections)
    counts.sections = {name: len(content) for name, content in sections.items()}
    return counts


def _keys(ordered: Sequence[Entry], counts: IndexCounts) -> list[tuple[int, str]]:
    """The distinct name keys of each concept; a name of very many concepts is removed from all of them."""
    key_of = name_key.__wrapped__  # names are hardly ever equal here, so that a cache costs more than it saves
    keys = [
        (number, key)
        for number, entry in enumerate(ordered)
        for key in sorted({key_of(name) for name in entry.names})
        if len(key) > 1
    ]
    frequencies = Counter((ordered[number].type, key) for number, key in keys)
    common = {pair for pair, count in frequencies.items() if count > MAX_CONCEPTS}
    if not common:
        return keys
    counts.dropped[f"name of more than {MAX_CONCEPTS} concepts"] += sum(frequencies[pair] for pair in common)
    return [(number, key) for number, key in keys if (ordered[number].type, key) not in common]


def _text_sections(
    ordered: Sequence[Entry], dictionaries: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, bytes], list[list[Any]]]:
    """The compressed blocks and the groups of concepts that they belong to."""
    blocks: list[bytes] = []
    firsts: list[int] = []
    heads: list[str] = []
    groups: list[list[Any]] = []
    number = 0
    for (type, source), members in groupby(ordered, key=lambda entry: (entry.type, entry.source)):
        first, first_block = number, len(blocks)
        lines: list[str] = []
        size = 0

        def close(lines: list[str], number: int) -> None:
            firsts.append(number - len(lines))
            heads.append(lines[0].partition("\t")[0])
            blocks.append(zlib.compress("\n".join(lines).encode(), 9))

        for entry in members:
            line = "\t".join((entry.id, entry.taxon or "", " ".join(sorted(entry.xrefs)), *entry.names))
            if lines and size + len(line) > BLOCK_CHARACTERS:
                close(lines, number)
                lines, size = [], 0
            lines.append(line)
            size += len(line)
            number += 1
        close(lines, number)
        groups.append([type, dictionaries[source]["name"], first, number, first_block, len(blocks)])
    sections = {
        "text": b"".join(blocks),
        "block_starts": np.cumsum([0, *map(len, blocks)]).astype("<u4").tobytes(),
        "block_concepts": np.array(firsts, "<u4").tobytes(),
        "block_heads": zlib.compress("\n".join(heads).encode(), 9),
    }
    return sections, groups


def _key_sections(keys: Sequence[tuple[int, str]]) -> dict[str, bytes]:
    """The CRC-32 of each key with its concept, sorted."""
    codes = np.fromiter((zlib.crc32(key.encode()) for _, key in keys), np.uint64, len(keys))
    numbers = np.fromiter((number for number, _ in keys), np.uint64, len(keys))
    rows = _distinct((codes << np.uint64(32)) | numbers)
    codes, numbers = rows >> np.uint64(32), rows & np.uint64(0xFFFFFFFF)
    starts = np.searchsorted(codes >> np.uint64(16), np.arange((1 << 16) + 1, dtype=np.uint64))
    return {
        "key_starts": starts.astype("<u4").tobytes(),
        "key_lows": (codes & np.uint64(0xFFFF)).astype("<u2").tobytes(),
        "key_concepts": (numbers & np.uint64(0xFFFF)).astype("<u2").tobytes(),
        "key_concepts_high": (numbers >> np.uint64(16)).astype("u1").tobytes(),
    }


def _near_sections(rows: Sequence[tuple[int, str]]) -> dict[str, bytes]:
    """Posting lists of trigrams over the keys of a type, in the order of concepts."""
    flat, places = _all_grams([key for _, key in rows])
    sizes = np.bincount(places, minlength=len(rows))
    ends = np.searchsorted(flat, np.arange(GRAMS), side="right")
    most = max(_FEW_KEYS, int(len(rows) * COMMON_GRAM))
    codes = np.zeros(GRAMS, "<u4")
    lists: list[bytes] = []
    start = 0
    for gram, end in enumerate(ends.tolist()):
        if 0 < end - start <= most:
            encoded, wide = encode_postings(places[start:end])
            codes[gram] = len(encoded) << 1 | wide
            lists.append(encoded)
        start = end
    return {
        "grams": zlib.compress(codes.tobytes(), 9),
        "postings": b"".join(lists),
        "concepts": zlib.compress(np.array([number for number, _ in rows], "<u4").tobytes(), 9),
        "sizes": np.minimum(sizes, 255).astype("u1").tobytes(),
    }


def _all_grams(keys: Sequence[str]) -> tuple[Numbers, Numbers]:
    """The distinct trigrams of all keys, as gram_numbers numbers them, and the place of the key that has each."""
    parts = [
        _gram_rows(keys[start : start + KEYS_TOGETHER], start, len(keys))
        for start in range(0, len(keys), KEYS_TOGETHER)
    ]
    rows = np.sort(np.concatenate(parts))
    return rows // len(keys), rows % len(keys)


def _gram_rows(keys: Sequence[str], first: int, total: int) -> Numbers:
    """gram * total + place for each distinct trigram of some keys, of which the first has this place."""
    text = np.frombuffer("".join(f" {key} " for key in keys).encode("utf-32-le"), "<u4").astype(np.int64)
    codes = np.array([alphabet_place(chr(code)) for code in range(128)])
    letters = np.where(text < len(codes), codes[np.minimum(text, len(codes) - 1)], OTHER_PLACES + (text & 1))
    lengths = np.fromiter((len(key) + 2 for key in keys), np.int64, len(keys))
    owners = np.repeat(np.arange(first, first + len(keys)), lengths)
    grams = (letters[:-2] * PLACES + letters[1:-1]) * PLACES + letters[2:]
    inside = owners[:-2] == owners[2:]
    return _distinct(grams[inside] * total + owners[:-2][inside])


def _distinct(numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The distinct numbers, sorted; np.unique, which hashes first, takes ten times as long for millions."""
    ordered = np.sort(numbers)
    is_first = np.ones(len(ordered), bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    distinct: npt.NDArray[Any] = ordered[is_first]
    return distinct


def _write(path: Path, header: dict[str, Any], sections: Mapping[str, bytes]) -> int:
    """Write prefix, header and body; the size of the file."""
    places: dict[str, list[int]] = {}
    body = bytearray()
    for name, content in sections.items():
        body += bytes(-len(body) % _ALIGNMENT)
        places[name] = [len(body), len(content)]
        body += content
    header = {**header, "sections": places, "bytes": len(body), "crc32": zlib.crc32(body)}
    raw = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    prefix = _PREFIX.pack(MAGIC, FORMAT_VERSION, len(raw), zlib.crc32(raw))
    padding = bytes(-(len(prefix) + len(raw)) % _ALIGNMENT)
    content = b"".join((prefix, raw, padding, body))
    with atomic_write(path) as stream:
        stream.write(content)
    return len(content)
