"""Texts of any length in rows of a model's length: overlapping windows, and one answer for each token again.

T tokens of a document, C outputs of the head
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lexome.document import MAX_OFFSET, Document, Passage, Range
from lexome.errors import UsageError
from lexome.tasks.task import NO_OFFSET, Example, Floats, Frame, Ints, Tokenizer

# How good a place is to begin a window at.
INSIDE, WORD, SENTENCE = 0, 1, 2

# How many tokens earlier than it must a window begins at most, to begin at a sentence.
SLACK = 64

# No character with a higher code is white space.
LAST_SPACE = 0x3000

# So many tokens make the hash that anchors are chosen by.
HASHED = 8


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of one or more passages: ids, places in the document, and how well a window begins at each.

    A piece that stands for white space alone has no place.
    """

    ids: Ints
    starts: Ints
    ends: Ints
    begins: Ints

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, start: int, end: int) -> "Tokens":
        """The tokens of a range."""
        return Tokens(self.ids[start:end], self.starts[start:end], self.ends[start:end], self.begins[start:end])


_NO_TOKENS = Tokens(*(np.zeros(0, np.int64) for _ in range(4)))


def tokenize(passages: Iterable[Passage], tokenizer: Tokenizer) -> Tokens:
    """The tokens of passages, one passage after another, with nothing between them."""
    parts = [_passage_tokens(passage, tokenizer) for passage in passages] or [_NO_TOKENS]
    if len(parts) == 1:
        return parts[0]
    return Tokens(
        np.concatenate([part.ids for part in parts]),
        np.concatenate([part.starts for part in parts]),
        np.concatenate([part.ends for part in parts]),
        np.concatenate([part.begins for part in parts]),
    )


def _passage_tokens(passage: Passage, tokenizer: Tokenizer) -> Tokens:
    text, offset = passage.text, passage.offset
    pieces = tokenizer.encode(text)
    ids, starts, ends = np.fromiter(chain.from_iterable(pieces), np.int64, 3 * len(pieces)).reshape(-1, 3).T.copy()
    # Behind the text stands one more, for a piece that has no characters.
    space = np.append(whitespace_mask(text), True)
    for place in np.flatnonzero((starts >= ends) | space[starts] | space[ends - 1]).tolist():
        starts[place], ends[place] = _trimmed(text, int(starts[place]), int(ends[place]))
    here = np.flatnonzero(starts != NO_OFFSET)
    begun, ended = starts[here], ends[here]
    begins = np.full(len(ids), INSIDE, np.int64)
    begins[here[np.append(NO_OFFSET, ended)[:-1] < begun]] = WORD
    bounds = sorted({0, *(start - offset for start, _ in passage.sentences)})
    first = np.searchsorted(np.maximum.accumulate(begun), bounds)
    begins[here[first[first < len(here)]]] = SENTENCE
    starts[here] += offset
    ends[here] += offset
    return Tokens(ids, starts, ends, begins)


def tokenize_text(text: str, tokenizer: Tokenizer) -> Tokens:
    """The tokens of a text that stands in no document, such as a question."""
    found = tokenize((Passage(0, text),), tokenizer)
    nowhere = np.full(len(found), NO_OFFSET, np.int64)
    return Tokens(found.ids, nowhere, nowhere, found.begins)


def text_capacity(frame: Frame, *, texts: int = 1) -> int:
    """How many tokens of text a row holds beside its special ones."""
    special = len(frame.before) + len(frame.after) + (len(frame.between) if texts == 2 else 0)
    if frame.max_tokens - special < texts:
        raise UsageError(
            f"rows of {frame.max_tokens} tokens, {special} of them special, have no room for a text. "
            "Set a larger max_tokens."
        )
    return frame.max_tokens - special


def windows(begins: Sequence[int] | Ints, *, size: int, overlap: int) -> list[Range]:
    """Ranges of at most `size` tokens that cover all of them, each sharing `overlap` or more with the next.

    A window begins at a sentence if one begins up to `overlap` tokens earlier than it must, and no more than SLACK,
    else at a word, else (in a word longer than that) anywhere. The overlap is never more than half a window. No tokens:
    one empty window.

    >>> windows([2, 0, 1, 1, 2, 1, 1, 1], size=5, overlap=2)
    [(0, 5), (3, 8)]
    """
    count = len(begins)
    overlap = min(overlap, size // 2)
    found = [(0, min(size, count))]
    while found[-1][1] < count:
        start, end = found[-1]
        latest = max(end - overlap, start + 1)
        earliest = max(latest - min(overlap, SLACK), start + 1)
        begin = _best_begin(begins, earliest, latest)
        found.append((begin, min(begin + size, count)))
    return found


def anchored_windows(tokens: Tokens, *, size: int, overlap: int) -> list[Range]:
    """Windows as `windows` gives them, whose places depend on the text near them and on nothing else.

    A long text is cut at anchors, and each part is read with half an overlap of what lies before and behind it; a part
    that is longer than a window takes several. So what is added or cut off elsewhere moves no window.
    """
    count = len(tokens)
    if count <= size:
        return [(0, count)]
    overlap = min(overlap, size // 2)
    side = (overlap + 1) // 2
    # Parts are twice the reach long on average; few are too long for one window.
    cuts = [0, *_anchors(tokens, reach=max(1, (size - overlap) // 3)), count]
    found: list[Range] = []
    for low, high in pairwise(cuts):
        start, end = max(0, low - side), min(count, high + side)
        if found and end <= found[-1][1]:
            continue
        if found and start == found[-1][0]:
            found.pop()
        inner = windows(tokens.begins[start:end], size=size, overlap=overlap)
        found += [(start + first, start + last) for first, last in inner]
    return found


def assign_windows(ranges: Sequence[Range], count: int) -> Ints:
    """For each token the window in which it stands farthest from an edge; the first of them where it is a tie.

    This is the one place that says whose numbers count, so a token's answer has the most context there is for it.
    """
    owners = np.full(count, NO_OFFSET, np.int64)
    best = np.full(count, -1, np.int64)
    for number, (start, end) in enumerate(ranges):
        places = np.arange(start, end)
        distance = np.minimum(places - start, end - 1 - places)
        better = distance > best[start:end]
        best[start:end][better] = distance[better]
        owners[start:end][better] = number
    return owners


def merge_windows(ranges: Sequence[Range], logits: Sequence[Floats], count: int) -> Floats:
    """One row of numbers (T, C) for a whole text from those of its windows, each token's from its own window."""
    if list(ranges) == [(0, count)]:
        return np.asarray(logits[0], np.float64)
    owners = assign_windows(ranges, count)
    if (owners == NO_OFFSET).any():
        raise UsageError(
            f"token {int(np.argmin(owners))} of {count} is in none of the {len(ranges)} rows given; expected all the "
            "rows of a document together."
        )
    width = logits[0].shape[-1] if logits else 0
    whole = np.zeros((count, width), np.float64)
    for number, ((start, end), own) in enumerate(zip(ranges, logits, strict=True)):
        kept = owners[start:end] == number
        whole[start:end][kept] = own[kept]
    return whole


def single_example(
    tokens: Tokens, frame: Frame, *, targets: NDArray[Any] | None = None, key: tuple[str, ...] = ()
) -> Example:
    """A row of one text, special tokens around it."""
    size = len(frame.before) + len(tokens) + len(frame.after)
    return Example(
        np.concatenate((_ints(frame.before), tokens.ids, _ints(frame.after))),
        np.zeros(size, np.int64),
        pad_special(tokens.starts, frame),
        pad_special(tokens.ends, frame),
        targets,
        key,
    )


def pad_special(values: Ints, frame: Frame, filled: int = NO_OFFSET) -> Ints:
    """Values of a text's tokens with another one at the special tokens around them."""
    before = len(frame.before)
    row = np.full((before + len(values) + len(frame.after), *values.shape[1:]), filled, np.int64)
    row[before : before + len(values)] = values
    return row


def pair_example(
    first: Tokens, second: Tokens, frame: Frame, *, targets: NDArray[Any] | None = None, key: tuple[str, ...] = ()
) -> Example:
    """A row of two texts; the second is segment 1 in models that have segments."""
    before, between, after = _ints(frame.before), _ints(frame.between), _ints(frame.after)
    ids = np.concatenate((before, first.ids, between, second.ids, after))
    segments = np.zeros(len(ids), np.int64)
    if frame.segments:
        segments[len(before) + len(first) + len(between) :] = 1
    places = [
        np.concatenate(
            [
                np.full(len(before), NO_OFFSET),
                own,
                np.full(len(between), NO_OFFSET),
                other,
                np.full(len(after), NO_OFFSET),
            ]
        ).astype(np.int64)
        for own, other in ((first.starts, second.starts), (first.ends, second.ends))
    ]
    return Example(ids, segments, places[0], places[1], targets, key)


def pair_windows(first: Tokens, second: Tokens, frame: Frame, *, overlap: int) -> list[tuple[Range, Range]]:
    """Ranges of two texts that go into a row together, such that each meets the whole of the other.

    Where both do not fit, the longer is cut into windows and the shorter is whole in each; where the shorter takes
    more than half a row it is cut too, and every window of one meets every window of the other.
    """
    space = text_capacity(frame, texts=2)
    if len(first) + len(second) <= space:
        return [((0, len(first)), (0, len(second)))]
    size = min(len(first), max(space // 2, space - len(second)))
    return [
        (left, right)
        for left in windows(first.begins, size=size, overlap=overlap)
        for right in windows(second.begins, size=space - size, overlap=overlap)
    ]


def _anchors(tokens: Tokens, *, reach: int) -> list[int]:
    """Tokens where a text may be cut: each is the best begin within so many tokens on either side.

    A sentence is better than a word; among equals a hash of the next few tokens decides, as in any copy of the text.
    """
    ids = np.append(tokens.ids, np.zeros(HASHED - 1, np.int64)).astype(np.uint64)
    total = np.zeros(len(tokens), np.uint64)
    for number in range(HASHED):
        # Whole numbers of 64 bits that overflow, as hashes do.
        total = (total ^ ids[number : number + len(tokens)]) * np.uint64(0x9E3779B97F4A7C15)
        total ^= total >> np.uint64(29)
    worst = np.uint64(0xFFFFFFFFFFFFFFFF)
    keys = (total >> np.uint64(2)) + ((SENTENCE - tokens.begins).astype(np.uint64) << np.uint64(62))
    keys[tokens.begins == INSIDE] = worst
    around = np.concatenate((np.full(reach, worst), keys, np.full(reach, worst)))
    least = np.lib.stride_tricks.sliding_window_view(around, reach).min(axis=1)
    before, behind = least[: len(tokens)], least[reach + 1 : reach + 1 + len(tokens)]
    # Of equal ones that are near to each other, the first.
    found = np.flatnonzero((keys < before) & (keys <= behind) & (keys < worst))
    return [place for place in found.tolist() if place]


def _best_begin(begins: Sequence[int] | Ints, earliest: int, latest: int) -> int:
    for wanted in (SENTENCE, WORD):
        for place in range(latest, earliest - 1, -1):
            if begins[place] >= wanted:
                return place
    return latest


def whitespace_mask(text: str) -> NDArray[np.bool_]:
    """For each character of a text whether it is white space.

    >>> white("a b").tolist()
    [False, True, False]
    """
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    table = _white_table()
    return table[np.minimum(codes, len(table) - 1)]


@cache
def _white_table() -> NDArray[np.bool_]:
    """Whether each code is white space up to the last that is, and one more for all above."""
    return np.array([chr(code).isspace() for code in range(LAST_SPACE + 2)])


def _trimmed(text: str, start: int, end: int) -> Range:
    """The range without white space at its ends: some tokenizers count the space before a word to it."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return (start, end) if start < end else (NO_OFFSET, NO_OFFSET)


def _ints(values: Iterable[int]) -> Ints:
    return np.array(list(values), np.int64)


_NO_WORDS = np.zeros((0, 2), np.int64)

# A run of letters and digits with the accents that combine with them, or any other single mark.
_WORD = re.compile(r"\w[\w\u0300-\u036f]*|[^\w\s]")
# What lies between two paragraphs of one passage.
_BLANK_LINE = re.compile(r"\n\s*\n")


@dataclass(frozen=True, slots=True)
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


def split_units(doc: Document, starts: Ints, ends: Ints, *, words: bool, sentences: bool = False) -> Units:
    """The units of a document's tokens: each word, or with words=False each token.

    Words are the source's own tokens where a passage has them, else runs of letters and digits, and single marks.
    Tokens that share characters are one unit, and so are words that share a token. What a tokenizer leaves out, such
    as an accent or a mark of no width, belongs to the unit it touches, and to none where it stands alone.
    """
    ranges: list[Range] = []
    firsts = [np.zeros(0, np.int64)]
    of = np.full(len(starts), NO_OFFSET, np.int64)
    runs: list[Range] = []
    here = np.flatnonzero(starts != NO_OFFSET)
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
    printed = np.append(0, np.cumsum(~whitespace_mask(text)))
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
