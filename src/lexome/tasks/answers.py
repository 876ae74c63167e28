"""Spans of a text as answers: the best of a row, and those of all rows of a question together.

T tokens of a row
"""

from collections.abc import Iterator, Sequence

import numpy as np

from lexome.document import Document
from lexome.tasks.task import Floats, Row

Candidate = tuple[int, int, float]
"""Where an answer begins and ends in the document, and how good it is: the sum of its two numbers."""


def best_spans(doc: Document, row: Row, logits_T2: Floats, *, best: int, longest: int) -> Iterator[Candidate]:
    """Spans of a row's text between its best beginnings and ends, none of them over two passages."""
    here = np.flatnonzero(row.starts >= 0)
    firsts, lasts = (here[np.argsort(-logits_T2[here, side], kind="stable")[:best]] for side in (0, 1))
    for first in firsts.tolist():
        passage = doc.passage_at(int(row.starts[first]))
        for last in lasts.tolist():
            end = int(row.ends[last])
            if first <= last < first + longest and passage is not None and end <= passage.end:
                yield int(row.starts[first]), end, float(logits_T2[first, 0] + logits_T2[last, 1])


def no_answer(logits: Sequence[Floats]) -> float:
    """How firmly a question's rows say that there is no answer: as firmly as the one that says it least.

    They say so at their first token. One window that holds an answer is enough, however many others do not.
    """
    return min(float(numbers[0].sum()) for numbers in logits)


def ranked(doc: Document, candidates: Sequence[Candidate], *, most: int, apart: bool) -> list[Candidate]:
    """The best candidates, the same words once; with `apart` none that shares characters with a better one.

    Windows overlap and snippets repeat each other, so an answer comes up many times: its best place stands for it.
    """
    kept: list[Candidate] = []
    said: set[str] = set()
    for candidate in sorted(candidates, key=lambda candidate: (-candidate[2], candidate[0], candidate[1])):
        start, end, _ = candidate
        if len(kept) == most:
            break
        if apart and any(start < other_end and other < end for other, other_end, _ in kept):
            continue
        words = plain(doc.slice(start, end))
        if words not in said:
            said.add(words)
            kept.append(candidate)
    return kept


def plain(text: str) -> str:
    """A text in lower case, white space as single spaces."""
    return " ".join(text.lower().split())
