"""Documents that must not be learnt from, as they are in other sets: by their PubMed ids and by their sentences."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from lexome.corpus.building.leakage import pubmed_id, sentences_of
from lexome.corpus.building.shingles import words_of
from lexome.document import Document
from lexome.errors import DataSetError
from lexome.tasks.sets import DataSet, find

BY_ID, BY_TEXT = "its PubMed id is held out", "a sentence of it is held out"


class HeldOut:
    """What is held out: PubMed ids, and the first and last run of words of each sentence that is long enough."""

    def __init__(self, run_words: int) -> None:
        self.run_words = run_words
        self.pmids: set[str] = set()
        self.ends: defaultdict[str, set[str]] = defaultdict(set)

    @classmethod
    def of(cls, names: Iterable[str], *, root: Path | None, run_words: int) -> Self:
        """The splits that are named as SET:SPLIT, of sets that Lexome knows."""
        held = cls(run_words)
        for name in names:
            source, _, split = name.partition(":")
            held.add(_split(find(source, data=root), split))
        return held

    def add(self, docs: Iterable[Document]) -> None:
        """Hold out documents. A sentence that two of them have is a phrase of the trade, and is not looked for.

        A text that is there again counts once. Sets of questions have a text again, in part, for each question about
        it; of these every sentence is looked for.
        """
        counts: Counter[tuple[str, str]] = Counter()
        seen: set[str] = set()
        for doc in docs:
            if (pmid := pubmed_id(doc)) is not None:
                self.pmids.add(pmid)
            if doc.text in seen:
                continue
            seen.add(doc.text)
            ends = {(runs[0], runs[-1]) for text in sentences_of(doc) if (runs := self._runs(text))}
            if doc.questions:
                self._hold(ends)
            counts.update(ends)
        self._hold(end for end, times in counts.items() if times == 1)

    def _hold(self, ends: Iterable[tuple[str, str]]) -> None:
        for first, last in ends:
            self.ends[first].add(last)

    def why(self, doc: Document) -> str | None:
        """Why a document must not be learnt from, or None."""
        if pubmed_id(doc) in self.pmids:
            return BY_ID
        runs = set(self._runs(doc.text))
        shared = (self.ends[run] for run in runs if run in self.ends)
        return None if all(runs.isdisjoint(lasts) for lasts in shared) else BY_TEXT

    def _runs(self, text: str) -> list[str]:
        """Each run of so many words; none where there are fewer."""
        words = words_of(text)
        return [" ".join(words[at : at + self.run_words]) for at in range(len(words) - self.run_words + 1)]


def _split(source: DataSet, name: str) -> list[Document]:
    """One split of a set, without reading the others where it has a file of its own."""
    if name in source.found and source.card.refine is None:
        return source.split(name)
    read = source.splits(partial=True)
    if name not in read:
        raise DataSetError(
            f"data.exclude names {source.name}:{name}, and {source.name} has {', '.join(read)} here. Name one of "
            "those, or get the set."
        )
    return read[name]
