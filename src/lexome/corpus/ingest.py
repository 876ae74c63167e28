"""One file of literature into cleaned documents and the keys by which they are compared with all others.

The keys have a row for every document that was read, dropped ones too: a newer version that is dropped still
outdates an older one.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from lexome.corpus import leakage
from lexome.corpus.dedup import SIGNATURE, Hashes, band_hashes, exact_key, run_hashes, signatures, word_hashes, words_of
from lexome.corpus.filters import licence_name, running_text, stated_reason, text_reason
from lexome.corpus.normalise import normalise
from lexome.corpus.sentences import with_sentences
from lexome.document import Document
from lexome.formats import Tally, parquet, read
from lexome.pipeline import Advance, Job
from lexome.recipe.corpus_stages import Near, Source

# Documents hashed at a time: enough to keep the hashing quick, few enough to hold.
BATCH = 128

# PubMed's update files name citations that are to go; other formats have no such thing.
DELETIONS = {"deletions": True}


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """What reading needs of the recipe."""

    source: Source
    languages: tuple[str, ...]
    min_words: int
    retracted: str
    near: Near
    leaks: str
    benchmarks: Path | None


@dataclass(slots=True)
class _Keys:
    """The keys of one file's documents, a row each, as they grow."""

    ids: list[bytes] = field(default_factory=list)
    version: list[int] = field(default_factory=list)
    deleted: list[bool] = field(default_factory=list)
    row: list[int] = field(default_factory=list)
    words: list[int] = field(default_factory=list)
    size: list[int] = field(default_factory=list)
    licence: list[str] = field(default_factory=list)
    exact: list[bytes] = field(default_factory=list)
    bands: list[Hashes] = field(default_factory=list)

    def without(self, aside: list[int]) -> None:
        """Note that some of the documents that stay, by their rows, could not be stored: they have no row."""
        gone = set(aside)
        if gone:
            self.row = [-1 if row in gone else row for row in self.row]


@dataclass(slots=True)
class _Draft:
    """A document on its way: what it is compared by, and why it is dropped, if it is."""

    doc: Document
    reason: str | None
    words: list[str]
    count: int = 0


def read_file(job: Job, drafts: tuple[Path, ...], advance: Advance) -> dict[str, Any]:
    """Write the documents of a job's files that pass every filter of their own, their keys, and what is set aside."""
    settings: ReadSettings = job.settings
    documents, keys_path, signatures_path, rejects = drafts
    rejects.touch()
    benchmarks = leakage.load(settings.benchmarks) if settings.benchmarks is not None else None
    drops: Counter[str] = Counter()
    leaks: Counter[str] = Counter()
    keys = _Keys()
    with Tally(rejects) as tally, documents.open("wb") as stream, signatures_path.open("wb") as signed:
        options: dict[str, Any] = settings.source.options
        found = read(job.inputs, settings.source.format, tally=tally, options_if_supported=DELETIONS, **options)
        docs = _watched(found, tally, advance)
        kept = _kept(docs, settings, benchmarks, (keys, signed, drops, leaks, tally))
        keys.without(parquet.write_rows(kept, stream, tally=tally))
        tally.raise_failures(str(job.inputs[0]))
    _save(keys, keys_path, settings.near)
    return {
        "read": tally.documents - sum(keys.deleted),  # which name documents and are none
        "drops": dict(sorted(drops.items())),
        "leaks": dict(sorted(leaks.items())),
        "set_aside": dict(sorted(tally.rejected.items())),
        "notes": dict(sorted(tally.notes.items())),
    }


def _watched(docs: Iterator[Document], tally: Tally, advance: Advance) -> Iterator[Document]:
    told = 0
    for doc in docs:
        if tally.bytes_read > told:
            advance(tally.bytes_read - told)
            told = tally.bytes_read
        yield doc


def _kept(
    docs: Iterator[Document],
    settings: ReadSettings,
    benchmarks: leakage.Benchmarks | None,
    books: tuple[_Keys, BinaryIO, Counter[str], Counter[str], Tally],
) -> Iterator[Document]:
    """The documents that stay, while the books are kept of all."""
    keys, signed, drops, leaks, tally = books
    rows = 0
    while batch := list(islice(docs, BATCH)):
        drafts = [_cleaned(doc, settings, tally) for doc in batch]
        hashes = word_hashes([draft.words for draft in drafts])
        for draft, found in zip(drafts, hashes, strict=True):
            leak = benchmarks.found(draft.doc, found) if benchmarks is not None and not draft.reason else None
            if leak is not None:
                leaks[leak] += 1
                draft.reason = leak if settings.leaks == "drop" else None
            if draft.reason is not None and not draft.doc.meta.deleted:
                drops[draft.reason] += 1
        rows_of_hashes = _signatures(drafts, hashes, settings.near)
        signed.write(rows_of_hashes.astype(SIGNATURE).tobytes())
        keys.bands.append(band_hashes(rows_of_hashes, settings.near.bands))
        _note(keys, drafts, rows)
        staying = [draft.doc for draft in drafts if draft.reason is None]
        rows += len(staying)
        yield from staying


def _cleaned(doc: Document, settings: ReadSettings, tally: Tally) -> _Draft:
    """The document as it would be kept, with the reason if it is not."""
    if doc.meta.deleted:
        return _Draft(doc, "deleted", [])
    reason = stated_reason(doc, licences=settings.source.licences, retracted=settings.retracted)
    if reason is not None:
        return _Draft(doc, reason, [])
    doc = running_text(doc, leave_out=settings.source.exclude_passages, languages=settings.languages, tally=tally)
    doc = normalise(doc, tally=tally)
    words = [word for passage in doc.passages for word in words_of(passage.text)]
    count = sum(len(passage.text.split()) for passage in doc.passages)
    reason = text_reason(words, count, languages=settings.languages, min_words=settings.min_words)
    return _Draft(with_sentences(doc) if reason is None else doc, reason, words, count)


def _signatures(drafts: list[_Draft], hashes: list[Hashes], near: Near) -> npt.NDArray[np.uint32]:
    """The signature of each document; of those that are dropped, that of nothing."""
    runs = [
        run_hashes(found, near.shingle_words) if draft.reason is None else found[:0]
        for draft, found in zip(drafts, hashes, strict=True)
    ]
    return signatures(runs, permutations=near.permutations)


def _note(keys: _Keys, drafts: list[_Draft], row: int) -> None:
    """Add a row of keys for each document."""
    for draft in drafts:
        doc = draft.doc
        stays = draft.reason is None
        keys.ids.append(hashlib.blake2b(doc.id.encode(errors="surrogatepass"), digest_size=16).digest())
        keys.version.append(doc.meta.version or 0)
        keys.deleted.append(doc.meta.deleted)
        keys.row.append(row if stays else -1)
        keys.words.append(draft.count)
        keys.size.append(sum(len(passage.text.encode()) for passage in doc.passages) if stays else 0)
        keys.licence.append(licence_name(doc.meta))
        keys.exact.append(exact_key(draft.words))
        row += stays


def _save(keys: _Keys, path: Path, near: Near) -> None:
    """Write the keys, each column for itself so that one can be read without the others."""
    bands = np.concatenate(keys.bands) if keys.bands else np.zeros((0, near.bands), np.uint64)
    names, licence = np.unique(np.array(keys.licence, dtype=np.str_), return_inverse=True)
    columns: dict[str, npt.NDArray[Any]] = {
        "ids": pairs(keys.ids),
        "version": np.array(keys.version, np.int64),
        "deleted": np.array(keys.deleted, np.bool_),
        "row": np.array(keys.row, np.int64),
        "words": np.array(keys.words, np.int64),
        "bytes": np.array(keys.size, np.int64),
        "licences": names,
        "licence": licence.astype(np.int64),
        "exact": pairs(keys.exact),
        "permutations": np.array(near.permutations),
        **{f"band_{number}": bands[:, number].copy() for number in range(near.bands)},
    }
    with path.open("wb") as file:
        np.savez(file, **columns)  # type: ignore[arg-type]  # its stubs take the columns for its own options


def pairs(digests: Iterable[bytes]) -> Hashes:
    """Digests of sixteen bytes as rows of two numbers."""
    return np.frombuffer(b"".join(digests), dtype="<u8").reshape(-1, 2).copy()
