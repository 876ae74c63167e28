"""Text with mentions as HTML: nested, overlapping and discontinuous ones, every character in its place.

Each piece of text stands inside one element for each mention that covers it. Mentions that share
text have lanes of their own under it, short ones above long ones, so that all can be seen at once.
The text content of the result is the passage's text, character for character; only NUL, which HTML
cannot hold, is shown by its symbol.
"""

import re
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from lexome.document import Passage, Range

# Lanes that have a place of their own under the text; deeper ones are drawn in the last.
LANES = 6

# Marks that are kept apart, and those that what is said of a mark names around it. Thousands on the
# same words would make a page that no one can open.
MAX_LANES = 64
MAX_AROUND = 8

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


Part = tuple[Mark, Range]


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


def parts_by_passage(passages: tuple[Passage, ...], marks: list[Mark]) -> list[list[Part]]:
    """For each passage the parts of marks that stand in it."""
    found: list[list[Part]] = [[] for _ in passages]
    offsets = [passage.offset for passage in passages]
    for mark in marks:
        for part in mark.parts:
            found[bisect_right(offsets, part[0]) - 1].append((mark, part))
    return found


def lanes_of(parts: list[Part]) -> dict[Mark, int]:
    """The lane of each mark that has a part here: 0 next to the text, short marks before long ones."""
    ranges: dict[Mark, list[Range]] = {}
    for mark, part in parts:
        ranges.setdefault(mark, []).append(part)
    lanes: list[list[Range]] = []
    chosen: dict[Mark, int] = {}
    for mark in sorted(ranges, key=lambda mark: sum(end - start for start, end in ranges[mark])):
        free = (index for index, taken in enumerate(lanes) if _is_free(taken, ranges[mark]))
        lane = next(free, min(len(lanes), MAX_LANES))
        if lane == len(lanes):
            lanes.append([])
        for part in ranges[mark]:
            insort(lanes[lane], part)
        chosen[mark] = lane
    return chosen


def _is_free(taken: list[Range], parts: list[Range]) -> bool:
    for start, end in parts:
        index = bisect_left(taken, (start, start))
        if index < len(taken) and taken[index][0] < end:
            return False
        if index and taken[index - 1][1] > start:
            return False
    return True


@dataclass(slots=True)
class _Element:
    """A mark's element while the text is laid out: `end` is known when it closes."""

    mark: Mark
    part: Range
    lane: int
    start: int
    around: list[Mark]
    end: int = -1


def marked_text(passage: Passage, parts: list[Part], lanes: dict[Mark, int]) -> str:
    """The passage's text as HTML with the parts of marks that stand in it."""
    if not parts:
        return exact(passage.text)
    opening: dict[int, list[Part]] = {}
    cuts = {passage.offset, passage.end}
    for mark, part in parts:
        opening.setdefault(part[0], []).append((mark, part))
        cuts.update(part)
    laid_out = list(_laid_out(passage, lanes, opening, sorted(cuts)))
    return "".join(_opened(piece) if isinstance(piece, _Element) else piece for piece in laid_out)


def _laid_out(
    passage: Passage, lanes: dict[Mark, int], opening: dict[int, list[Part]], cuts: list[int]
) -> Iterator[_Element | str]:
    """Opening elements, texts and closing tags in order.

    Elements nest by lane, the highest outermost. One that crosses another is closed where the other
    begins or ends, and opened again inside or outside it.
    """
    stack: list[_Element] = []
    for at, after in pairwise([*cuts, passage.end]):
        begun = opening.get(at, [])
        touched = [lanes[mark] for mark, _ in begun] + [element.lane for element in stack if element.part[1] == at]
        reopened = begun
        while stack and touched and stack[-1].lane <= max(touched):
            closed = stack.pop()
            closed.end = at
            yield "</mark>"
            if closed.part[1] > at:
                reopened = [*reopened, (closed.mark, closed.part)]
        for mark, part in sorted(reopened, key=lambda entry: -lanes[entry[0]]):
            element = _Element(mark, part, lanes[mark], at, [outer.mark for outer in stack[-MAX_AROUND:]])
            stack.append(element)
            yield element
        yield exact(passage.text[at - passage.offset : after - passage.offset])


def _opened(element: _Element) -> str:
    """The opening tag of one mark's element; what it says names the marks around it too."""
    mark, part = element.mark, element.part
    classes = f"t{mark.type_number} l{min(element.lane, LANES - 1)}"
    extra = ""
    if element.start == part[0]:
        classes += " s"
    if element.end == part[1]:
        classes += " e"
        if part == mark.parts[-1]:
            classes += " z"
            extra += f' data-t="{shown(mark.type)}"'
    if mark.number is not None:
        classes += " cut"
        extra += f' data-n="{mark.number}"'
    if element.start == mark.parts[0][0]:
        extra += f' id="{mark.anchor}" tabindex="0"'
    said = "\n\n".join(one.about for one in (mark, *reversed(element.around)))
    return f'<mark class="{classes}" title="{shown(said)}"{extra}>'
