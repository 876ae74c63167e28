"""Which documents of all files stay: newest versions, no duplicates, sources in their sizes.

Documents are numbered through all files in the recipe's order. Of two that say the same, the first stays, so that the
order of sources is their rank. Everything here works on columns of keys; no text is read.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lexome.errors import MissingExtraError

Hashes = npt.NDArray[np.uint64]

SEED = 1
_WORD = re.compile(r"[^\W_]+")
# An odd number with well-mixed bits: each word of a run weighs differently, whatever the order.
_STEP = np.uint64(0x9E3779B97F4A7C15)


def words_of(text: str) -> list[str]:
    """The words of a text, in lower case, without punctuation."""
    return _WORD.findall(text.lower())


def exact_key(words: Sequence[str]) -> bytes:
    """Sixteen bytes that two texts share only if their words do."""
    return hashlib.blake2b(" ".join(words).encode(), digest_size=16).digest()


def word_hashes(texts: Sequence[Sequence[str]]) -> list[Hashes]:
    """The hash of each word of each text."""
    return [np.array(hashes, dtype=np.uint64) for hashes in _rensa().hash_token_sets(texts)]


def run_hashes(hashes: Hashes, run_words: int) -> Hashes:
    """The hash of each run of so many words; of all words together where there are fewer."""
    size = min(run_words, len(hashes))
    if size == 0:
        return hashes
    count = len(hashes) - size + 1
    runs = hashes[:count].copy()
    with np.errstate(over="ignore"):
        for place in range(1, size):
            runs *= _STEP
            runs += hashes[place : place + count]
    return runs


def signatures(runs: Sequence[Hashes], *, permutations: int) -> npt.NDArray[np.uint32]:
    """The MinHash signatures of texts, a row each: two rows agree in as many places as the texts share runs."""
    offsets = np.zeros(len(runs) + 1, dtype=np.uint64)
    np.cumsum([len(text) for text in runs], out=offsets[1:])
    flat = np.concatenate(runs) if runs else np.zeros(0, dtype=np.uint64)
    matrix = _rensa().digest_matrix_from_flat_token_hashes(flat, offsets, permutations, SEED)
    return np.array(matrix.to_rows(), dtype=np.uint32).reshape(len(runs), permutations)


def band_hashes(rows: npt.NDArray[np.uint32], bands: int) -> Hashes:
    """A hash of each of the bands that the signatures are cut into."""
    cut = rows.reshape(len(rows), bands, rows.shape[1] // bands)
    mixed = np.zeros(cut.shape[:2], dtype=np.uint64)
    with np.errstate(over="ignore"):
        for place in range(cut.shape[2]):
            mixed = (mixed ^ cut[:, :, place]) * _STEP
            mixed ^= mixed >> np.uint64(29)
    return mixed


def _rensa() -> Any:
    try:
        import rensa
    except ImportError:
        raise MissingExtraError("rensa", extra="corpus", purpose="finding duplicates") from None
    return rensa.RMinHash


Ints = npt.NDArray[np.int64]
Verdicts = npt.NDArray[np.uint8]


class Verdict(IntEnum):
    """What becomes of a document; the name is the reason that is counted."""

    KEPT = 0
    DROPPED_BEFORE = 1  # while its file was read, where it was counted
    DELETED = 2
    OLDER_VERSION = 3
    EXACT_DUPLICATE = 4
    NEAR_DUPLICATE = 5
    NOT_SAMPLED = 6


# The type of a signature's places on disk.
SIGNATURE = np.dtype("<u4")


def signatures_of(keys: Path) -> Path:
    """The file of signatures that stands beside a file of keys: apart, since they are most of it and seldom needed."""
    return keys.with_name(keys.name.replace(".keys.npz", ".signatures"))


def columns(paths: Sequence[Path], name: str) -> Iterator[npt.NDArray[Any]]:
    """One column of keys, file by file."""
    for path in paths:
        with np.load(path) as keys:
            yield keys[name]


def column(paths: Sequence[Path], name: str) -> npt.NDArray[Any]:
    """One column of keys through all files."""
    return np.concatenate(list(columns(paths, name)))


def newest(paths: Sequence[Path], sources: Sequence[int], *, exact: bool) -> Verdicts:
    """Verdicts after versions, deletions and, where wanted, exact duplicates; `sources` has a number for each file."""
    sizes = [len(rows) for rows in columns(paths, "row")]
    files = np.repeat(np.arange(len(paths)), sizes)
    owners = np.repeat(np.asarray(sources, np.int64), sizes)
    verdicts = np.where(column(paths, "row") < 0, Verdict.DROPPED_BEFORE, Verdict.KEPT).astype(np.uint8)
    deleted = column(paths, "deleted")
    # The highest version is the newest, and of one version that of the last file. A deletion names its version too.
    last = _last_of_each(column(paths, "ids"), owners, (column(paths, "version"), files))
    outdated = last != np.arange(len(last))
    standing = verdicts == Verdict.KEPT
    verdicts[standing & outdated] = Verdict.OLDER_VERSION
    verdicts[standing & outdated & deleted[last]] = Verdict.DELETED
    if exact:
        _drop_repeated(verdicts, column(paths, "exact"))
    return verdicts


def links(paths: Sequence[Path], band: int, verdicts: Verdicts) -> Ints:
    """Pairs of documents that agree in a band of their signatures: each with the first and the last before it.

    All pairs of a group would be too many where thousands share a phrase. Over the bands, groups overlap.
    """
    standing = np.flatnonzero(verdicts == Verdict.KEPT)
    hashes = column(paths, f"band_{band}")[standing]
    order = np.argsort(hashes, kind="stable")
    same = np.flatnonzero(hashes[order[:-1]] == hashes[order[1:]])
    begins = np.ones(len(order), np.bool_)
    begins[same + 1] = False
    firsts = np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))
    this, before, first = (standing[order[place]] for place in (same + 1, same, firsts[same]))
    return np.concatenate([np.stack([before, this], axis=1), np.stack([first, this], axis=1)])


def drop_near(verdicts: Verdicts, pairs: Ints, paths: Sequence[Path], *, similarity: float) -> int:
    """Mark near duplicates among the linked pairs, all but the first of each group; how many pairs were compared."""
    pairs = np.unique(pairs, axis=0) if len(pairs) else pairs.reshape(0, 2)
    involved = np.unique(pairs)
    found = _signatures(paths, involved)
    left, right = (np.searchsorted(involved, pairs[:, side]) for side in (0, 1))
    alike = np.zeros(len(pairs), np.bool_)
    for begin in range(0, len(pairs), 100_000):  # bounds what is compared at a time to a hundred megabytes
        some = slice(begin, begin + 100_000)
        alike[some] = (found[left[some]] == found[right[some]]).mean(axis=1) >= similarity
    first = _first_of_group(len(involved), left[alike], right[alike])
    verdicts[involved[first != np.arange(len(first))]] = Verdict.NEAR_DUPLICATE
    return len(pairs)


def drop_beyond(verdicts: Verdicts, rows: npt.NDArray[np.bool_], sizes: Ints, ranks: Hashes, limit: int) -> None:
    """Mark what does not fit when a source's documents are taken in the order of their ranks up to a size."""
    standing = np.flatnonzero(rows & (verdicts == Verdict.KEPT))
    order = standing[np.argsort(ranks[standing], kind="stable")]
    verdicts[order[np.cumsum(sizes[order]) > limit]] = Verdict.NOT_SAMPLED


def sampling_ranks(ids: Hashes, seed: int) -> Hashes:
    """A random number for each document that depends on its id and the seed alone."""
    with np.errstate(over="ignore"):
        mixed = ids[:, 0] + np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        return mixed ^ (mixed >> np.uint64(31))


def _last_of_each(ids: Hashes, owners: Ints, age: tuple[Ints, Ints]) -> Ints:
    """For each document, the number of the newest with its id in its source."""
    # Stable, so that of documents with all else equal the later row is the newer.
    order = np.lexsort((age[1], age[0], ids[:, 1], ids[:, 0], owners))
    changes = (ids[order[1:]] != ids[order[:-1]]).any(axis=1) | (owners[order[1:]] != owners[order[:-1]])
    group = np.concatenate([[0], np.cumsum(changes)]) if len(order) else order
    ends = np.append(np.flatnonzero(changes), len(order) - 1)
    last = np.empty(len(order), np.int64)
    last[order] = order[ends[group]] if len(order) else order
    return last


def _drop_repeated(verdicts: Verdicts, keys: Hashes) -> None:
    """Mark every standing document whose words are those of an earlier standing one."""
    standing = np.flatnonzero(verdicts == Verdict.KEPT)
    order = np.lexsort((keys[standing, 1], keys[standing, 0]))
    mine = keys[standing[order]]
    repeated = (mine[1:] == mine[:-1]).all(axis=1)
    verdicts[standing[order[1:][repeated]]] = Verdict.EXACT_DUPLICATE


def _signatures(paths: Sequence[Path], wanted: Ints) -> npt.NDArray[np.uint32]:
    """The signatures of some documents, whose numbers are in order, each file opened once."""
    parts = []
    begin = 0
    for path in paths:
        with np.load(path) as keys:
            count, width = len(keys["row"]), int(keys["permutations"])
        # They are in order; asking each for its file would be quadratic.
        low, high = np.searchsorted(wanted, (begin, begin + count))
        if low < high:
            mapped = np.memmap(signatures_of(path), SIGNATURE, mode="r", shape=(count, width))
            parts.append(mapped[wanted[low:high] - begin])
        begin += count
    return np.concatenate(parts) if parts else np.zeros((0, 1), SIGNATURE)


def _first_of_group(count: int, left: Ints, right: Ints) -> Ints:
    """For each of so many, the lowest number it is linked with, over any number of links."""
    parent = list(range(count))

    def root(one: int) -> int:
        while parent[one] != one:
            parent[one] = parent[parent[one]]
            one = parent[one]
        return one

    for one, other in zip(left.tolist(), right.tolist(), strict=True):
        low, high = sorted((root(one), root(other)))
        parent[high] = low
    return np.array([root(one) for one in range(count)], dtype=np.int64)
