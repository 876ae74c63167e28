"""What gets a label of its own in a text: words, or a tokenizer's pieces.

W words of a passage, U units of it
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

import numpy as np

from lexome.document import MAX_OFFSET, Document, Passage, Range
from lexome.tasks.task import NOWHERE, Ints
from lexome.tasks.windows import white
from lexome.values import value

_NO_WORDS = np.zeros((0, 2), np.int64)

# A run of letters and digits with the accents that combine with them, or any other single mark.
_WORD = re.compile(r"\w[\w\u0300-\u036f]*|[^\w\s]")
# What lies between two paragraphs of one passage.
_BLANK_LINE = re.compile(r"\n\s*\n")


@value
class Units:
    """The units of a document in reading order.

    ranges  where each stands
    of      for each token the unit it belongs to; NOWHERE for white space
    firsts  for each unit its first token
    runs    ranges of units that a mention may not reach out of: those of a paragraph, or of a sentence
    """

    ranges: tuple[Range, ...]
    of: Ints
    firsts: Ints
    runs: tuple[Range, ...]

    def covered(self, start: int, end: int) -> Range | None:
        """The units that a range of characters touches, as a range of them; None where it touches none."""
        first = bisect_right(self.ranges, start, key=lambda unit: unit[1])
        last = first
        while last < len(self.ranges) and self.ranges[last][0] < end:
            last += 1
        return (first, last) if last > first else None


def units_of(doc: Document, starts: Ints, ends: Ints, *, words: bool, sentences: bool = False) -> Units:
    """The units of a document's tokens: each word, or with words=False each token.

    Words are the source's own tokens where a passage has them, else runs of letters and digits, and single marks.
    Tokens that share characters are one unit, and so are words that share a token. What a tokenizer leaves out, such
    as an accent or a mark of no width, belongs to the unit it touches, and to none where it stands alone.
    """
    ranges: list[Range] = []
    firsts = [np.zeros(0, np.int64)]
    of = np.full(len(starts), NOWHERE, np.int64)
    runs: list[Range] = []
    here = np.flatnonzero(starts != NOWHERE)
    bounds = np.searchsorted(starts[here], [passage.offset for passage in doc.passages] + [MAX_OFFSET + 1])
    for passage, low, high in zip(doc.passages, bounds, bounds[1:], strict=False):
        own, begun = here[low:high], len(ranges)
        begins, found = _joined(starts[own], ends[own], _words(passage) if words else _NO_WORDS)
        of[own] = np.repeat(np.arange(begun, begun + len(begins)), np.diff(np.append(begins, len(own))))
        firsts.append(own[begins])
        ranges += _filled(passage, found)
        runs += _runs(passage, ranges, begun, sentences)
    return Units(tuple(ranges), of, np.concatenate(firsts), tuple(runs))


def _words(passage: Passage) -> Ints:
    """Where the words of a passage begin and end, (W, 2)."""
    if passage.tokens:
        found = [word for word in passage.tokens if word[1] > word[0]]
        return np.array(found, np.int64).reshape(-1, 2)
    edges = [edge for match in _WORD.finditer(passage.text) for edge in match.span()]
    return np.array(edges, np.int64).reshape(-1, 2) + passage.offset


def _joined(starts: Ints, ends: Ints, words: Ints) -> tuple[Ints, Ints]:
    """For each unit of a passage its first token, and its range, (U, 2)."""
    if not len(starts):
        return starts, _NO_WORDS
    lows, highs = starts, ends
    if len(words):
        first = np.searchsorted(words[:, 1], starts, "right")
        last = np.searchsorted(words[:, 0], ends, "left") - 1
        touched = first <= last
        lows = np.where(touched, np.minimum(starts, words[np.minimum(first, len(words) - 1), 0]), starts)
        highs = np.where(touched, np.maximum(ends, words[last, 1]), ends)
    reached = np.maximum.accumulate(highs)
    begins = np.flatnonzero(np.concatenate(([True], starts[1:] >= reached[:-1])))
    stops = reached[np.append(begins[1:], len(starts)) - 1]
    opens = np.maximum(lows[begins], np.concatenate(([0], stops[:-1])))
    return begins, np.stack((opens, stops), 1)


def _filled(passage: Passage, ranges_U2: Ints) -> list[Range]:
    """The ranges with the characters between them that are no white space, added to the one before or else after."""
    text, offset = passage.text, passage.offset
    ranges: list[Range] = list(zip(*ranges_U2.T.tolist(), strict=True))
    printed = np.append(0, np.cumsum(~white(text)))
    inner_U2 = printed[ranges_U2 - offset]
    if (inner_U2[:, 1] - inner_U2[:, 0]).sum() == printed[-1]:
        return ranges
    done = 0
    wider: list[Range] = []
    for number, (start, end) in enumerate(ranges):
        start, end = start - offset, end - offset
        while start > done and not text[start - 1].isspace():
            start -= 1
        limit = ranges[number + 1][0] - offset if number + 1 < len(ranges) else len(text)
        while end < limit and not text[end].isspace():
            end += 1
        done = end
        wider.append((start + offset, end + offset))
    return wider


def _runs(passage: Passage, ranges: Sequence[Range], begun: int, sentences: bool) -> Iterator[Range]:
    starts = {passage.offset + blank.end() for blank in _BLANK_LINE.finditer(passage.text)}
    if sentences:
        starts.update(start for start, _ in passage.sentences[1:])
    at = begun
    for start in sorted(starts):
        end = bisect_left(ranges, (start,), at)
        if end > at:
            yield at, end
        at = end
    yield at, len(ranges)
