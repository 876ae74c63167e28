"""The text a vocabulary is learnt from: streamed from files, the same sample on every pass."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from lexome.corpus.records import batches, is_records
from lexome.formats import Tally, expand, read
from lexome.formats.registry import named
from lexome.runlog import progress

# A document falls into one of so many buckets by its id; a sample is the first few of them. So no pass holds a
# list of documents, and a sample is exact to this fraction of the corpus.
BUCKETS = 1 << 16


@dataclass(frozen=True)
class Texts:
    """Documents of some files as pairs of id and passages' texts, as often as asked.

    Only documents in buckets below `below` are given, which depends on their id and `seed` alone: neither order,
    nor file, nor how many files there are.
    """

    files: tuple[Path, ...]
    format: str | None = None
    seed: int = 0
    below: int = BUCKETS

    def documents(self, what: str, *, progress_shown: bool = True) -> Iterator[list[str]]:
        """The texts of each document of the sample; `what` names the pass on the progress bar."""
        for doc_id, texts in self._all(what, progress_shown):
            if self.below == BUCKETS or bucket(doc_id, self.seed) < self.below:
                yield texts

    def sampled(
        self, *, documents: int | None = None, megabytes: float | None = None, progress_shown: bool = True
    ) -> "Texts":
        """A sample of about so many documents or megabytes; all of it where neither is given or it has no more."""
        wanted = documents if documents is not None else megabytes and megabytes * 1e6
        if not wanted:
            return self
        weights = np.zeros(BUCKETS)
        for doc_id, texts in self._all("counting", progress_shown):
            weights[bucket(doc_id, self.seed)] += 1 if documents else sum(len(text.encode()) for text in texts)
        filled = int(np.searchsorted(np.cumsum(weights), wanted)) + 1
        return Texts(self.files, self.format, self.seed, min(filled, BUCKETS))

    def _all(self, what: str, progress_shown: bool) -> Iterator[tuple[str, list[str]]]:
        tally = Tally()
        total = sum(path.stat().st_size for path in self.files)
        with progress(what, total=total, position=lambda: tally.bytes_read, shown=progress_shown) as watched:
            yield from watched(self._streamed(tally))

    def _streamed(self, tally: Tally) -> Iterator[tuple[str, list[str]]]:
        others = []
        for file in self.files:
            if is_records(file, self.format):
                yield from _columns(file, tally)
            else:
                others.append(file)
        if others:
            # A plain text of gigabytes is not one document.
            lines = {"per": "line"} if self.format == "text" else {}
            # Together, as some formats are spread over several files.
            for doc in read(others, self.format, tally=tally, where_known=lines):
                yield doc.id, [passage.text for passage in doc.passages]


def texts_of(inputs: Sequence[Path], format: str | None = None, *, seed: int = 0) -> Texts:
    """The text of files, folders and archives."""
    return Texts(tuple(expand(inputs, named(format) if format else None, Tally())), format, seed)


def bucket(doc_id: str, seed: int) -> int:
    """A document's place between 0 and BUCKETS, random in its id and the seed, the same everywhere."""
    digest = hashlib.blake2b(f"{seed}:{doc_id}".encode(errors="surrogatepass"), digest_size=2).digest()
    return int.from_bytes(digest, "big")


def digest_of(files: Sequence[Path]) -> str:
    """A hash of the files' contents, whatever their names and order."""
    digests = []
    for path in files:
        with path.open("rb") as stream:
            digests.append(hashlib.file_digest(stream, "sha256").hexdigest())
    return hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()


def _columns(file: Path, tally: Tally) -> Iterator[tuple[str, list[str]]]:
    """Ids and texts of records, their bytes counted when all is read."""
    for batch in batches(file, ("text",)):
        passages = batch.column("passages")
        ends = passages.offsets.to_numpy()
        texts = passages.values.field("text").to_pylist()
        yield from zip(batch.column("id").to_pylist(), (texts[start:end] for start, end in pairwise(ends)), strict=True)
    tally.bytes_read += file.stat().st_size
