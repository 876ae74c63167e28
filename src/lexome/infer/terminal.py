"""A document in a terminal: mentions in brackets with type and score, in colour where that is wanted.

Colour only repeats what the brackets say. Control characters of a text are shown as symbols, never obeyed.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from unicodedata import combining, east_asian_width

from lexome.document import Document, Passage, Relation, Span
from lexome.formats.html import colour_of

BOLD, DIM, RESET = "\x1b[1m", "\x1b[2m", "\x1b[0m"
# The hues of a terminal's colours in OKLCH, and their codes; dark blue is hard to read, so blue is the bright one.
_HUES = {29: 31, 110: 33, 142: 32, 195: 36, 264: 94, 325: 35}
# From this lightness on, the bright code.
_BRIGHT = 0.79
# Below this chroma a colour is a grey, which stands for the terminal's own.
_GREY = 0.05

# Control characters, and those that turn the direction of the text around them.
_UNSHOWN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

# A space at which no line ends.
TIED = "\u00a0"

Piece = tuple[str, str]
"""A text without spaces, and the codes that colour it, or nothing."""


def shown(doc: Document, *, width: int = 100, colour: bool = False, named: bool = True) -> str:
    """The document as lines of text: each passage wrapped, then what stands in no single place.

    >>> from lexome.document import Document, Passage, Span
    >>> span = Span("T1", "Gene", ((13, 18),), "BRCA1", score=0.98)
    >>> print(shown(Document("text", (Passage(0, "Mutations in BRCA1."),), (span,)), named=False))
    Mutations in [BRCA1|Gene 0.98].
    """
    lines = [_coloured(clean(doc.id), BOLD, colour)] if named else []
    for passage in doc.passages:
        nested, apart = _nested(passage, doc.spans)
        lines += _wrapped(_words(_pieces(passage, nested)), width, colour)
        lines += (_coloured(f"  also {_label(span)}", code_of(span.type), colour) for span in apart)
    texts = {span.id: span.text for span in doc.spans}
    lines += (f"  {_relation(relation, texts)}" for relation in doc.relations)
    if doc.labels:
        lines.append("  labels: " + clean(", ".join(doc.labels)))
    for question in doc.questions:
        lines.append(f"  question: {clean(question.text)}")
        lines += (f"  answer: {clean(answer.text)}{_score(answer.score)}" for answer in question.answers)
    return "\n".join(lines)


def clean(text: str) -> str:
    """The text without anything that a terminal would obey."""
    return _UNSHOWN.sub(_symbol, text.replace("\t", " ").replace("\n", " "))


def code_of(type: str) -> str:
    """The code that turns on a type's colour, the nearest to that on the HTML page."""
    colour = colour_of(type)
    if colour.chroma < _GREY:
        return BOLD
    nearest = min(_HUES, key=lambda hue: abs((hue - colour.hue + 180) % 360 - 180))
    code = _HUES[nearest]
    return f"\x1b[1;{code + 60 if colour.dark > _BRIGHT and code < 90 else code}m"


def _symbol(found: re.Match[str]) -> str:
    code = ord(found[0])
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else "\ufffd"


def _coloured(text: str, code: str, colour: bool) -> str:
    return f"{code}{text}{RESET}" if colour and code else text


def _score(score: float | None) -> str:
    return "" if score is None else f" {score:.2f}"


def _label(span: Span) -> str:
    return f"[{clean(span.text)}|{clean(span.type)}{_score(span.score)}]"


def _relation(relation: Relation, texts: Mapping[str, str]) -> str:
    named = (
        (argument.role, texts.get(argument.target or "", argument.target or argument.concept or ""))
        for argument in relation.arguments
    )
    told = ", ".join(f"{role}: {text}" for role, text in named)
    return clean(f"{relation.type}({told})") + _score(relation.score)


def _nested(passage: Passage, spans: Iterable[Span]) -> tuple[list[Span], list[Span]]:
    """The passage's mentions that brackets can hold, outer ones first, and those that cross others or have parts."""
    own = [span for span in spans if passage.offset <= span.start and span.end <= passage.end]
    nested: list[Span] = []
    apart: list[Span] = []
    open_: list[int] = []
    for span in sorted(own, key=lambda span: (span.start, -span.end)):
        while open_ and open_[-1] <= span.start:
            open_.pop()
        if len(span.parts) > 1 or (open_ and span.end > open_[-1]):
            apart.append(span)
        else:
            open_.append(span.end)
            nested.append(span)
    return nested, apart


def _pieces(passage: Passage, nested: list[Span]) -> Iterator[Piece]:
    """The passage's text with brackets, cut wherever the colour changes."""
    open_: list[Span] = []
    done = passage.offset

    def text_to(place: int) -> Piece:
        text = passage.text[done - passage.offset : place - passage.offset]
        return text, code_of(open_[-1].type) if open_ else ""

    for span in [*nested, None]:
        place = span.start if span is not None else passage.end
        while open_ and open_[-1].end <= place:
            yield text_to(open_[-1].end)
            done = open_[-1].end
            inner = open_.pop()
            # Type and score stay on one line.
            yield f"|{inner.type}{_score(inner.score)}]".replace(" ", TIED), code_of(inner.type)
        yield text_to(place)
        done = place
        if span is not None:
            open_.append(span)
            yield "[", code_of(span.type)


def _words(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Words, each of one or more pieces; spaces inside a mention part words too."""
    word: list[Piece] = []
    for text, code in pieces:
        for number, part in enumerate(re.split(r"[ \t\n\r\f\v]", text)):
            if number and word:
                yield word
                word = []
            if part:
                word.append((clean(part).replace(TIED, " "), code))
    if word:
        yield word


def _wrapped(words: Iterable[list[Piece]], width: int, colour: bool) -> Iterator[str]:
    line: list[str] = []
    used = 0
    for word in words:
        wide = sum(_width(text) for text, _ in word)
        if line and used + 1 + wide > width:
            yield " ".join(line)
            line, used = [], 0
        used += wide + (1 if line else 0)
        line.append("".join(_coloured(text, code, colour) for text, code in word))
    if line:
        yield " ".join(line)


def _width(text: str) -> int:
    """Columns in a terminal: two for wide characters, none for marks on others."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)
