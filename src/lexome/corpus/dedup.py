"""Deduplication over all files: newest versions, exact duplicates, near duplicates by MinHash LSH, subsampling.

Documents are numbered through all files in the recipe's order. Of two duplicates the first is kept, so the order of
sources is their priority. Everything works on columns of keys; no text is read.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from lexome.corpus.sentences import with_sentences
from lexome.document import Document
from lexome.errors import MissingExtraError
from lexome.formats import Tally, read

Hashes = npt.NDArray[np.uint64]

SEED = 1
_WORD = re.compile(r"[^\W_]+")
# An odd multiplier with well-mixed bits: makes shingle hashes depend on word order.
_STEP = np.uint64(0x9E3779B97F4A7C15)


def words_of(text: str) -> list[str]:
    """Lower-case words of a text, without punctuation."""
    return _WORD.findall(text.lower())


def exact_key(words: Sequence[str]) -> bytes:
    """A 16-byte hash of the words of a text."""
    return hashlib.blake2b(" ".join(words).encode(), digest_size=16).digest()


def word_hashes(texts: Sequence[Sequence[str]]) -> list[Hashes]:
    """Hashes of the words of each text."""
    return [np.array(hashes, dtype=np.uint64) for hashes in _rensa().hash_token_sets(texts)]


def shingle_hashes(hashes: Hashes, run_words: int) -> Hashes:
    """Hashes of the word n-grams (shingles) of a text; of all its words if it is shorter."""
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
    """MinHash signatures, one row per text: the fraction of equal entries estimates the Jaccard similarity."""
    offsets = np.zeros(len(runs) + 1, dtype=np.uint64)
    np.cumsum([len(text) for text in runs], out=offsets[1:])
    flat = np.concatenate(runs) if runs else np.zeros(0, dtype=np.uint64)
    matrix = _rensa().digest_matrix_from_flat_token_hashes(flat, offsets, permutations, SEED)
    return np.array(matrix.to_rows(), dtype=np.uint32).reshape(len(runs), permutations)


def band_hashes(rows: npt.NDArray[np.uint32], bands: int) -> Hashes:
    """LSH: a hash of each band of the signatures."""
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
        raise MissingExtraError("rensa", extra="corpus", purpose="deduplication") from None
    return rensa.RMinHash


Ints = npt.NDArray[np.int64]
Verdicts = npt.NDArray[np.uint8]


class Verdict(IntEnum):
    """The decision on a document; its name is the reason that is counted."""

    KEPT = 0
    DROPPED_BEFORE = 1  # already counted when its file was read
    DELETED = 2
    OLDER_VERSION = 3
    EXACT_DUPLICATE = 4
    NEAR_DUPLICATE = 5
    NOT_SAMPLED = 6


# The on-disk type of signature entries.
SIGNATURE = np.dtype("<u4")


def signature_path(keys: Path) -> Path:
    """The signature file beside a key file: separate, since it is large and seldom needed."""
    return keys.with_name(keys.name.replace(".keys.npz", ".signatures"))


def columns(paths: Sequence[Path], name: str) -> Iterator[npt.NDArray[Any]]:
    """One column of keys, per file."""
    for path in paths:
        with np.load(path) as keys:
            yield keys[name]


def column(paths: Sequence[Path], name: str) -> npt.NDArray[Any]:
    """One column of keys over all files."""
    return np.concatenate(list(columns(paths, name)))


def drop_old_versions(paths: Sequence[Path], sources: Sequence[int], *, exact: bool) -> Verdicts:
    """Verdicts after versions, deletions and optionally exact duplicates; `sources` has the source of each file."""
    sizes = [len(rows) for rows in columns(paths, "row")]
    files = np.repeat(np.arange(len(paths)), sizes)
    owners = np.repeat(np.asarray(sources, np.int64), sizes)
    verdicts = np.where(column(paths, "row") < 0, Verdict.DROPPED_BEFORE, Verdict.KEPT).astype(np.uint8)
    deleted = column(paths, "deleted")
    # The highest version is the newest; of equal versions, that of the last file. Deletions have versions too.
    last = _newest_versions(column(paths, "ids"), owners, (column(paths, "version"), files))
    outdated = last != np.arange(len(last))
    standing = verdicts == Verdict.KEPT
    verdicts[standing & outdated] = Verdict.OLDER_VERSION
    verdicts[standing & outdated & deleted[last]] = Verdict.DELETED
    if exact:
        # Every kept document with the same words as an earlier kept one.
        keys, kept = column(paths, "exact"), np.flatnonzero(verdicts == Verdict.KEPT)
        order = kept[np.lexsort((keys[kept, 1], keys[kept, 0]))]
        repeated = (keys[order[1:]] == keys[order[:-1]]).all(axis=1)
        verdicts[order[1:][repeated]] = Verdict.EXACT_DUPLICATE
    return verdicts


def candidate_pairs(paths: Sequence[Path], band: int, verdicts: Verdicts) -> Ints:
    """Pairs of documents with the same hash in an LSH band: each with the first of its bucket and its predecessor.

    All pairs of a bucket would be too many when thousands share a phrase. Buckets of different bands overlap.
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


def drop_near_duplicates(verdicts: Verdicts, pairs: Ints, paths: Sequence[Path], *, similarity: float) -> int:
    """Mark near duplicates among candidate pairs, all but the first of each component; return the number compared."""
    pairs = np.unique(pairs, axis=0) if len(pairs) else pairs.reshape(0, 2)
    involved = np.unique(pairs)
    rows = _load_signatures(paths, involved)
    left, right = (np.searchsorted(involved, pairs[:, side]) for side in (0, 1))
    alike = np.zeros(len(pairs), np.bool_)
    for begin in range(0, len(pairs), 100_000):  # bounds memory to a hundred megabytes
        some = slice(begin, begin + 100_000)
        alike[some] = (rows[left[some]] == rows[right[some]]).mean(axis=1) >= similarity
    first = _lowest_of_component(len(involved), left[alike], right[alike])
    verdicts[involved[first != np.arange(len(first))]] = Verdict.NEAR_DUPLICATE
    return len(pairs)


def subsample(verdicts: Verdicts, rows: npt.NDArray[np.bool_], sizes: Ints, ranks: Hashes, limit: int) -> None:
    """Mark the documents of a source beyond a total size, taken in the order of their ranks."""
    standing = np.flatnonzero(rows & (verdicts == Verdict.KEPT))
    order = standing[np.argsort(ranks[standing], kind="stable")]
    verdicts[order[np.cumsum(sizes[order]) > limit]] = Verdict.NOT_SAMPLED


def sampling_ranks(ids: Hashes, seed: int) -> Hashes:
    """A random rank for each document that depends only on its id and the seed."""
    with np.errstate(over="ignore"):
        mixed = ids[:, 0] + np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        return mixed ^ (mixed >> np.uint64(31))


def _newest_versions(ids: Hashes, owners: Ints, age: tuple[Ints, Ints]) -> Ints:
    """The index of the newest document with the same id in the same source, for each document."""
    # Stable: of otherwise equal documents the later row is the newer.
    order = np.lexsort((age[1], age[0], ids[:, 1], ids[:, 0], owners))
    changes = (ids[order[1:]] != ids[order[:-1]]).any(axis=1) | (owners[order[1:]] != owners[order[:-1]])
    group = np.concatenate([[0], np.cumsum(changes)]) if len(order) else order
    ends = np.append(np.flatnonzero(changes), len(order) - 1)
    last = np.empty(len(order), np.int64)
    last[order] = order[ends[group]] if len(order) else order
    return last


def _load_signatures(paths: Sequence[Path], wanted: Ints) -> npt.NDArray[np.uint32]:
    """The signatures of the documents with these ascending indices; each file is opened once."""
    parts = []
    begin = 0
    for path in paths:
        with np.load(path) as keys:
            count, width = len(keys["row"]), int(keys["permutations"])
        # Indices ascend, so each file is one slice.
        low, high = np.searchsorted(wanted, (begin, begin + count))
        if low < high:
            mapped = np.memmap(signature_path(path), SIGNATURE, mode="r", shape=(count, width))
            parts.append(mapped[wanted[low:high] - begin])
        begin += count
    return np.concatenate(parts) if parts else np.zeros((0, 1), SIGNATURE)


def _lowest_of_component(count: int, left: Ints, right: Ints) -> Ints:
    """Union-find: for each node the lowest node of its connected component."""
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


# Data leakage: benchmark documents in the corpus, found by PubMed id and by shared sentences


_NUMBER = re.compile("[1-9][0-9]{4,8}")

BY_ID = "benchmark_id"
BY_TEXT = "benchmark_text"


@dataclass(frozen=True)
class Benchmarks:
    """PubMed ids of benchmark datasets, and the first and last n-gram of each long sentence, sorted by the first."""

    pmids: frozenset[str]
    firsts: Hashes
    lasts: Hashes
    run_words: int

    @property
    def sentences(self) -> int:
        """The number of indexed sentences."""
        return len(self.firsts)

    def match(self, doc: Document, hashes: Hashes) -> str | None:
        """Why a document counts as part of a benchmark, or None; `hashes` are its word hashes."""
        if pubmed_id(doc) in self.pmids:
            return BY_ID
        if len(hashes) < self.run_words or not len(self.firsts):
            return None
        runs = shingle_hashes(hashes, self.run_words)
        places = np.minimum(np.searchsorted(self.firsts, runs), len(self.firsts) - 1)
        seen = runs[self.firsts[places] == runs]
        if not len(seen):
            return None
        begun = np.isin(self.firsts, seen)
        return BY_TEXT if np.isin(self.lasts[begun], runs).any() else None

    def save(self, file: BinaryIO) -> None:
        """Write the index for other processes."""
        pmids = np.array(sorted(self.pmids), dtype=np.str_)
        np.savez(file, pmids=pmids, firsts=self.firsts, lasts=self.lasts, run_words=np.array(self.run_words))


def load_benchmarks(path: Path) -> Benchmarks:
    """Read what `save` wrote."""
    with np.load(path) as arrays:
        pmids: npt.NDArray[np.str_] = arrays["pmids"]
        return Benchmarks(frozenset(pmids.tolist()), arrays["firsts"], arrays["lasts"], int(arrays["run_words"]))


def index_benchmarks(paths: Sequence[Path], *, run_words: int) -> Benchmarks:
    """Index benchmark datasets in any format Lexome reads.

    A sentence that occurs twice in one file is boilerplate and is not indexed: LINNAEUS, which has whole articles,
    declares five times that authors have no competing interests. Question datasets are exempt: they repeat a text
    for each question about it.
    """
    pmids: set[str] = set()
    ends: set[tuple[int, int]] = set()
    phrases: set[tuple[int, int]] = set()
    for path in paths:
        counts: Counter[tuple[int, int]] = Counter()
        # Only the text matters, so wrong offsets of mentions are repaired.
        for doc in read(path, tally=Tally(), options_if_supported={"offsets": "repair"}):
            if (pmid := pubmed_id(doc)) is not None:
                pmids.add(pmid)
            (ends if doc.questions else counts).update(_sentence_ends(doc, run_words))
        ends.update(counts)
        phrases.update(end for end, count in counts.items() if count > 1)
    ordered = np.array(sorted(ends - phrases), dtype=np.uint64).reshape(-1, 2)
    return Benchmarks(frozenset(pmids), ordered[:, 0].copy(), ordered[:, 1].copy(), run_words)


def _sentence_ends(doc: Document, run_words: int) -> Iterable[tuple[int, int]]:
    """Hashes of the first and last n-gram of each sentence that is long enough to be distinctive."""
    for hashes in word_hashes([words_of(text) for text in sentences_of(doc)]):
        if len(hashes) >= run_words:
            runs = shingle_hashes(hashes, run_words)
            yield int(runs[0]), int(runs[-1])


def sentences_of(doc: Document) -> list[str]:
    """The sentences of a document: annotated ones, or split by rule."""
    return [
        passage.text[start - passage.offset : end - passage.offset]
        for passage in with_sentences(doc).passages
        for start, end in passage.sentences
    ]


def pubmed_id(doc: Document) -> str | None:
    """The PubMed id of a document: from its metadata, or a numeric document id as in PubTator files.

    Some tables use row numbers as ids; only numbers of five or more digits count as PubMed ids.
    """
    return doc.meta.pmid or (doc.id if _NUMBER.fullmatch(doc.id) else None)
