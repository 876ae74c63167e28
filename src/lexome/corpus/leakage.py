"""Benchmark documents in a corpus: found by their PubMed id, and by the sentences they share."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from lexome.corpus.dedup import Hashes, run_hashes, word_hashes, words_of
from lexome.corpus.sentences import split_sentences
from lexome.document import Document
from lexome.formats import Tally, read

_NUMBER = re.compile("[1-9][0-9]{4,8}")

BY_ID = "benchmark_id"
BY_TEXT = "benchmark_text"


@dataclass(frozen=True)
class Benchmarks:
    """What benchmark sets hold: PubMed ids, and the first and last run of words of each long enough sentence.

    Sentences are in the order of `firsts`.
    """

    pmids: frozenset[str]
    firsts: Hashes
    lasts: Hashes
    run_words: int

    @property
    def sentences(self) -> int:
        """How many sentences can be found."""
        return len(self.firsts)

    def found(self, doc: Document, hashes: Hashes) -> str | None:
        """Why a document counts as part of a benchmark, or None; `hashes` are those of its words."""
        if pubmed_id(doc) in self.pmids:
            return BY_ID
        if len(hashes) < self.run_words or not len(self.firsts):
            return None
        runs = run_hashes(hashes, self.run_words)
        places = np.minimum(np.searchsorted(self.firsts, runs), len(self.firsts) - 1)
        seen = runs[self.firsts[places] == runs]
        if not len(seen):
            return None
        begun = np.isin(self.firsts, seen)
        return BY_TEXT if np.isin(self.lasts[begun], runs).any() else None

    def save(self, file: BinaryIO) -> None:
        """Write it for other processes."""
        pmids = np.array(sorted(self.pmids), dtype=np.str_)
        np.savez(file, pmids=pmids, firsts=self.firsts, lasts=self.lasts, run_words=np.array(self.run_words))


def load(path: Path) -> Benchmarks:
    """What `save` wrote."""
    with np.load(path) as arrays:
        pmids: npt.NDArray[np.str_] = arrays["pmids"]
        return Benchmarks(frozenset(pmids.tolist()), arrays["firsts"], arrays["lasts"], int(arrays["run_words"]))


def index(paths: Sequence[Path], *, run_words: int) -> Benchmarks:
    """The benchmark sets in these files, in any format Lexome reads.

    A sentence that stands twice in one file is no finding but a phrase of the trade, and is not looked for: LINNAEUS,
    which has whole articles, says five times that authors have no competing interests. Question
    sets are not taken so: they have a text again for each question about it.
    """
    pmids: set[str] = set()
    ends: set[tuple[int, int]] = set()
    phrases: set[tuple[int, int]] = set()
    for path in paths:
        counts: Counter[tuple[int, int]] = Counter()
        # Only text counts here, so mentions at wrong places are no reason to stop.
        for doc in read(path, tally=Tally(), options_if_supported={"offsets": "repair"}):
            if (pmid := pubmed_id(doc)) is not None:
                pmids.add(pmid)
            (ends if doc.questions else counts).update(_sentence_ends(doc, run_words))
        ends.update(counts)
        phrases.update(end for end, count in counts.items() if count > 1)
    ordered = np.array(sorted(ends - phrases), dtype=np.uint64).reshape(-1, 2)
    return Benchmarks(frozenset(pmids), ordered[:, 0].copy(), ordered[:, 1].copy(), run_words)


def _sentence_ends(doc: Document, run_words: int) -> Iterable[tuple[int, int]]:
    """The hashes of the first and last run of each sentence that is long enough to be told from a phrase."""
    for hashes in word_hashes([words_of(text) for text in sentences_of(doc)]):
        if len(hashes) >= run_words:
            runs = run_hashes(hashes, run_words)
            yield int(runs[0]), int(runs[-1])


def sentences_of(doc: Document) -> list[str]:
    """The sentences of a document, as it marks them, else as they are split."""
    return [
        passage.text[start:end]
        for passage in doc.passages
        for start, end in _sentences(passage.offset, passage.text, passage.sentences)
    ]


def _sentences(offset: int, text: str, given: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    if given:
        return [(start - offset, end - offset) for start, end in given]
    return split_sentences(text)


def pubmed_id(doc: Document) -> str | None:
    """The PubMed id a document says it has, or the number that is its id, as in PubTator files.

    Row numbers are ids of some tables; from five digits on, a number is taken for a PubMed id.
    """
    return doc.meta.pmid or (doc.id if _NUMBER.fullmatch(doc.id) else None)
