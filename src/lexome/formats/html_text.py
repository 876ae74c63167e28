"""Text with mentions as HTML: nested, overlapping and discontinuous ones, every character in its place.

The text is cut wherever a mention begins or ends. Each piece stands inside one element for each
mention that covers it, the outermost in the lowest lane under the line, so that all of them can be
seen at once. The text content of the result is the passage's text, character for character; only
NUL, which HTML cannot hold, is shown by its symbol.
"""

import re
from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from lexome.document import Passage, Range

# Lanes that have a place of their own under the text; deeper ones share the last.
LANES = 6

# Characters that would be invisible, or turn the text around them: controls other than tab and line
# ends, the embedding, override and isolate marks, non-characters, halves of surrogate pairs.
_STRANGE = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufffe\uffff"
_IN_TEXT = re.compile(f"[{_STRANGE}]")
_IN_NAMES = re.compile(f"[{_STRANGE}\r\ud800-\udfff]")


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """A mention to be shown: its type's number and name, what to say of it, and its anchor.

    `number` joins the parts of a discontinuous mention; it is None for one of a single part.
    """

    parts: tuple[Range, ...]
    type_number: int
    type: str
    about: str
    anchor: str
    number: int | None = None


def shown(text: str) -> str:
    """Text for a heading, a cell or an attribute: escaped, and nothing in it invisible or turning."""
    return escape(_IN_NAMES.sub(lambda match: f"‹{_code(match.group())}›", text))


def exact(text: str) -> str:
    """Passage text: escaped, every character kept, strange ones marked by an element around them."""
    plain = escape(text, quote=False).replace("\r", "&#13;")
    return _IN_TEXT.sub(_marked, plain)


def _marked(match: re.Match[str]) -> str:
    character = match.group()
    kept = "␀" if character == "\x00" else character
    return f'<span class="ctl" data-c="{_code(character)}">{kept}</span>'


def _code(character: str) -> str:
    return f"U+{ord(character):04X}"


def lanes_of(marks: list[Mark], passage: Passage) -> dict[Mark, int]:
    """The lane of each mark that touches the passage: 0 next to the text, short ones before long ones."""
    inside = {mark: _parts_inside(mark, passage) for mark in marks}
    lanes: list[list[Range]] = []
    chosen: dict[Mark, int] = {}
    touching = [mark for mark in marks if inside[mark]]
    for mark in sorted(touching, key=lambda mark: sum(end - start for start, end in inside[mark])):
        free = (index for index, taken in enumerate(lanes) if _is_free(taken, inside[mark]))
        lane = next(free, len(lanes))
        if lane == len(lanes):
            lanes.append([])
        for part in inside[mark]:
            insort(lanes[lane], part)
        chosen[mark] = lane
    return chosen


def _parts_inside(mark: Mark, passage: Passage) -> list[Range]:
    return [(start, end) for start, end in mark.parts if passage.offset <= start and end <= passage.end]


def _is_free(taken: list[Range], parts: list[Range]) -> bool:
    for start, end in parts:
        index = bisect_left(taken, (start, start))
        if index < len(taken) and taken[index][0] < end:
            return False
        if index and taken[index - 1][1] > start:
            return False
    return True


def marked_text(passage: Passage, lanes: dict[Mark, int]) -> str:
    """The passage's text as HTML with its marks."""
    if not lanes:
        return exact(passage.text)
    opening: dict[int, list[tuple[Mark, Range]]] = {}
    cuts = {passage.offset, passage.end}
    for mark in lanes:
        for part in _parts_inside(mark, passage):
            opening.setdefault(part[0], []).append((mark, part))
            cuts.update(part)
    return "".join(_pieces(passage, lanes, opening, sorted(cuts)))


def _pieces(
    passage: Passage, lanes: dict[Mark, int], opening: dict[int, list[tuple[Mark, Range]]], cuts: list[int]
) -> Iterator[str]:
    active: list[tuple[Mark, Range]] = []
    for start, end in pairwise(cuts):
        active = [(mark, part) for mark, part in active if part[1] > start] + opening.get(start, [])
        active.sort(key=lambda entry: -lanes[entry[0]])
        for depth, (mark, part) in enumerate(active):
            around = [outer for outer, _ in active[:depth]]
            yield _opened(mark, part, (start, end), lanes[mark], around)
        yield exact(passage.text[start - passage.offset : end - passage.offset])
        yield "</mark>" * len(active)


def _opened(mark: Mark, part: Range, piece: Range, lane: int, around: list[Mark]) -> str:
    """The opening tag of one mark around one piece; what it says names the marks around it too."""
    classes = f"t{mark.type_number} l{min(lane, LANES - 1)}"
    extra = ""
    if piece[0] == part[0]:
        classes += " s"
    if piece[1] == part[1]:
        classes += " e"
        if part == mark.parts[-1]:
            classes += " z"
            extra += f' data-t="{shown(mark.type)}"'
    if mark.number is not None:
        classes += " cut"
        extra += f' data-n="{mark.number}"'
    if piece[0] == mark.parts[0][0]:
        extra += f' id="{mark.anchor}" tabindex="0"'
    said = "\n\n".join(mark.about for mark in (mark, *reversed(around)))
    return f'<mark class="{classes}" title="{shown(said)}"{extra}>'
