"""Unicode normalization with aligned offsets: spans, sentences and answers are moved along.

NFC, runs of white space collapsed, control and zero-width characters removed, ligatures and mathematical alphabets as
plain letters. Meaningful characters are kept: Greek, ♂, ±, CO₂, 10⁻³, quotes and dashes.
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from lexome.document import Answer, Document, Passage, Question, Range, Span
from lexome.formats.tally import Tally, drop_dependents

# White space as str.isspace defines it, so that the separators U+001C to U+001F separate words.
_BREAKS = "\n\x0b\x0c\r\x85\u2028\u2029"
_ODD_SPACES = "\t\x1c-\x1f\xa0\u1680\u2000-\u200a\u202f\u205f\u3000"

# Controls, the soft hyphen, and zero-width characters: joiners, direction marks, invisible operators, the BOM.
# The zero-width joiner U+200D is kept: emoji and Indic scripts need it.
_NOTHING = (
    "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u061c\u180e\u200b\u200c\u200e\u200f\u202a-\u202e"
    "\u2060-\u2064\u2066-\u206f\ufeff"
)

# Ligatures, the micro sign, and mathematical letters, also those among the letter-like symbols.
_LETTERS = (
    "\xb5\ufb00-\ufb06\u2102\u210a-\u210e\u2110-\u2112\u2115\u2119-\u211d\u2124\u2128\u212c\u212d\u212f-\u2131"
    "\u2133\u2134\U0001d400-\U0001d7ff\U0001ee00-\U0001eeff"
)
_LETTER = re.compile(f"[{_LETTERS}]")

_GAP = rf"[ {_BREAKS}{_ODD_SPACES}{_NOTHING}]"
_ODD = re.compile(rf"[ \n]{_GAP}+|[\r\x0b\x0c\x85\u2028\u2029{_ODD_SPACES}{_NOTHING}]{_GAP}*|(?P<letter>[{_LETTERS}])")
_INVISIBLE = re.compile(f"[{_NOTHING}]")
_LINE_END = re.compile(rf"\r\n|[{_BREAKS}]")

# Text below U+0300 is already composed and does not combine with what precedes it, so only runs of other characters
# need composition, each with the character before it.
_REGION = re.compile(r"[\x00-\u02ff]?[\u0300-\U0010ffff]+")

_EMPTY = "span dropped: no text left after normalization"

Edit = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class Alignment:
    """The replaced pieces of a text, to map ranges between old and new; text between them is only shifted.

    `blank` marks pieces that became white space or nothing. A range that cuts through replaced letters (an "e" without
    its accent) is extended over them; one that cuts through white space excludes it.
    """

    old_starts: tuple[int, ...]
    old_ends: tuple[int, ...]
    new_starts: tuple[int, ...]
    new_ends: tuple[int, ...]
    blank: tuple[bool, ...]

    def to_new(self, start: int, end: int) -> Range:
        """Map a range of the old text to the new one, where it may be empty."""
        empty = start == end
        first = bisect_right(self.old_ends, start)
        if first < len(self.old_ends) and self.old_starts[first] < start:
            start = self.new_ends[first] if self.blank[first] else self.new_starts[first]
        elif first:
            start += self.new_ends[first - 1] - self.old_ends[first - 1]
        if empty:
            return start, start
        last = bisect_left(self.old_ends, end)
        if last < len(self.old_ends) and self.old_starts[last] < end:
            whole = end == self.old_ends[last] or not self.blank[last]
            end = self.new_ends[last] if whole else self.new_starts[last]
        elif last:
            end += self.new_ends[last - 1] - self.old_ends[last - 1]
        return start, max(start, end)

    def to_old(self, start: int, end: int) -> Range:
        """Map a range of the new text back to the old one."""
        first = bisect_right(self.new_ends, start)
        if first < len(self.new_ends) and self.new_starts[first] < start:
            start = self.old_starts[first]
        elif first:
            start += self.old_ends[first - 1] - self.new_ends[first - 1]
        last = bisect_left(self.new_ends, end)
        if last < len(self.new_ends) and self.new_starts[last] < end:
            end = self.old_ends[last]
        elif last:
            end += self.old_ends[last - 1] - self.new_ends[last - 1]
        return start, max(start, end)


def normalize_text(text: str) -> tuple[str, Alignment | None]:
    """The normalized text and its alignment to the original, which is None if nothing changed.

    A run of white space becomes a space, a line break if it has one, an empty line if it has more.

    >>> text, alignment = normalize_text("ﬁve\\u00a0µg")
    >>> text, alignment.to_new(4, 6), alignment.to_old(5, 7)
    ('five μg', (5, 7), (4, 6))
    """
    # A fast check that nothing changes: no line breaks, controls, unusual spaces or letters of _LETTERS.
    printable = "  " not in text and text.isprintable()
    if printable and (text.isascii() or (_LETTER.search(text) is None and unicodedata.is_normalized("NFC", text))):
        return text, None
    # Letters first: a replaced or removed character may let an accent compose.
    plain, first = _apply_edits(text, list(_character_edits(text)))
    new, second = _apply_edits(plain, list(_composing_edits(plain)))
    return new, _compose(first, second, new) if first and second else first or second


def normalize(doc: Document, *, tally: Tally | None = None) -> Document:
    """The document with normalized passages and all offsets into them adjusted.

    A span with no text left is dropped with its references, counted in `tally`. Gaps between passages keep their width.
    Texts outside of passages (questions, headings, metadata) are not changed.
    """
    normalized = [normalize_text(passage.text) for passage in doc.passages]
    if all(alignment is None for _, alignment in normalized):
        return doc
    layout = _PassageMap(doc.passages, normalized)
    tally = tally if tally is not None else Tally()
    moved = [(span, layout.span(span)) for span in doc.spans]
    dropped = {span.id for span, new in moved if new is None}
    if dropped:
        tally.note(_EMPTY, len(dropped))
    shorter = sum(new is not None and len(new.parts) < len(span.parts) for span, new in moved)
    if shorter:
        tally.note("span kept without a part: the part has no text left", shorter)
    relations, attributes = drop_dependents(dropped, doc.relations, doc.attributes, tally=tally)
    return replace(
        doc,
        passages=tuple(layout.passages),
        spans=tuple(new for _, new in moved if new is not None),
        relations=relations,
        attributes=attributes,
        questions=tuple(map(layout.question, doc.questions)),
    )


class _PassageMap:
    """The passages of a document before and after, to map ranges."""

    def __init__(self, old: tuple[Passage, ...], normalized: list[tuple[str, Alignment | None]]) -> None:
        self.starts = [passage.offset for passage in old]
        self.alignments = [alignment for _, alignment in normalized]
        self.passages: list[Passage] = []
        before = at = 0
        for passage, (text, alignment) in zip(old, normalized, strict=True):
            at += passage.offset - before
            before = passage.end
            move = partial(self._move, alignment, passage.offset, at)
            sentences, tokens = _disjoint(map(move, passage.sentences)), _disjoint(map(move, passage.tokens))
            self.passages.append(replace(passage, offset=at, text=text, sentences=sentences, tokens=tokens))
            at += len(text)

    @staticmethod
    def _move(alignment: Alignment | None, old: int, new: int, part: Range) -> Range:
        start, end = part[0] - old, part[1] - old
        if alignment is not None:
            start, end = alignment.to_new(start, end)
        return start + new, end + new

    def move(self, part: Range) -> Range:
        """Map a range of the old document to the new one."""
        index = bisect_right(self.starts, part[0]) - 1
        return self._move(self.alignments[index], self.starts[index], self.passages[index].offset, part)

    def text(self, part: Range) -> str:
        """The new document's text at a non-empty range."""
        index = bisect_right(self.passages, part[0], key=lambda passage: passage.offset) - 1
        passage = self.passages[index]
        return passage.text[part[0] - passage.offset : part[1] - passage.offset]

    def span(self, span: Span) -> Span | None:
        parts = _disjoint(map(self.move, span.parts))
        return replace(span, parts=parts, text=" ".join(map(self.text, parts))) if parts else None

    def question(self, question: Question) -> Question:
        return replace(question, answers=tuple(map(self._answer, question.answers)))

    def _answer(self, answer: Answer) -> Answer:
        if answer.start is None:
            return answer
        start, end = self.move((answer.start, answer.start + len(answer.text)))
        if end == start:
            return replace(answer, start=None, text="")
        return replace(answer, start=start, text=self.text((start, end)))


def _disjoint(parts: Iterable[Range]) -> tuple[Range, ...]:
    """The non-empty ranges, made disjoint."""
    kept: list[Range] = []
    for start, end in parts:
        start = max(start, kept[-1][1]) if kept else start
        if end > start:
            kept.append((start, end))
    return tuple(kept)


def _character_edits(text: str) -> Iterator[Edit]:
    """Edits of single characters and runs of white space."""
    for match in _ODD.finditer(text):
        old = match[0]
        new = unicodedata.normalize("NFKC", old) if match["letter"] else _collapse_whitespace(old)
        if new != old:
            yield match.start(), match.end(), new


def _collapse_whitespace(run: str) -> str:
    # Invisible characters first: one may separate the two halves of a line end.
    run = _INVISIBLE.sub("", run)
    breaks = len(_LINE_END.findall(run)) + run.count("\u2029")
    if breaks:
        return "\n" if breaks == 1 else "\n\n"
    return " " if any(map(str.isspace, run)) else ""


def _composing_edits(text: str) -> Iterator[Edit]:
    """Edits that compose letters and combining marks (NFC)."""
    if unicodedata.is_normalized("NFC", text):
        return
    for match in _REGION.finditer(text):
        region = match[0]
        if not unicodedata.is_normalized("NFC", region):
            yield from _clusters(region, match.start())


def _clusters(region: str, at: int) -> Iterator[Edit]:
    """The edits of a region, each of a letter with its marks."""
    # Marks, and Hangul vowels and finals, may compose with the character before them.
    joins = ["\u1160" <= one <= "\u11ff" or unicodedata.category(one)[0] == "M" for one in region]
    cuts = [index for index, join in enumerate(joins) if not index or not join]
    pieces = [region[start:end] for start, end in zip(cuts, [*cuts[1:], len(region)], strict=True)]
    composed = [unicodedata.normalize("NFC", piece) for piece in pieces]
    # A later Unicode version may compose other letters; then the region is one edit.
    if "".join(composed) != unicodedata.normalize("NFC", region):
        pieces, composed, cuts = [region], [unicodedata.normalize("NFC", region)], [0]
    for start, old, new in zip(cuts, pieces, composed, strict=True):
        if new != old:
            yield at + start, at + start + len(old), new


def _apply_edits(text: str, edits: list[Edit]) -> tuple[str, Alignment | None]:
    if not edits:
        return text, None
    pieces: list[str] = []
    moved: list[tuple[Range, Range]] = []
    at = shift = 0
    for start, end, new in edits:
        pieces += (text[at:start], new)
        moved.append(((start, end), (start + shift, start + shift + len(new))))
        shift += len(new) - (end - start)
        at = end
    pieces.append(text[at:])
    changed = "".join(pieces)
    return changed, _alignment(moved, changed)


def _alignment(moved: list[tuple[Range, Range]], text: str) -> Alignment:
    return Alignment(
        tuple(old[0] for old, _ in moved),
        tuple(old[1] for old, _ in moved),
        tuple(new[0] for _, new in moved),
        tuple(new[1] for _, new in moved),
        tuple(not text[slice(*new)].strip() for _, new in moved),
    )


def _compose(first: Alignment, second: Alignment, text: str) -> Alignment:
    """The composition of two alignments: a piece of the second absorbs the pieces of the first that it touches."""
    moved: list[tuple[Range, Range]] = []
    for middle in zip(second.old_starts, second.old_ends, strict=True):
        old = first.to_old(*middle)
        moved.append((old, second.to_new(*first.to_new(*old))))
    ends = [old[1] for old, _ in moved]
    apart = []
    for old in zip(first.old_starts, first.old_ends, strict=True):
        index = bisect_right(ends, old[0])
        if index == len(ends) or old[1] <= moved[index][0][0]:
            apart.append((old, second.to_new(*first.to_new(*old))))
    return _alignment(sorted(moved + apart), text)
