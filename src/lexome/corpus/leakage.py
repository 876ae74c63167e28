"""Data leakage: benchmark documents in a corpus, found by PubMed id and by shared sentences."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from lexome.corpus.dedup import Hashes, shingle_hashes, word_hashes, words_of
from lexome.corpus.sentences import with_sentences
from lexome.document import Document
from lexome.formats import Tally, read

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
