"""From a Document to CoNLL columns: which mentions can be held, where tokens are cut, which tags they get."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from lexome.document import Document, Passage, Range, Span, shorten
from lexome.errors import BadDocument
from lexome.formats.losses import note_losses
from lexome.formats.tally import Tally

BOM = b"\xef\xbb\xbf"

_HELD = frozenset({"sentences and tokens"})

# A run of letters and digits with the accents that combine with them, or any other single mark.
_WORD = re.compile(r"\w[\w\u0300-\u036f]*|[^\w\s]")
_PIECES = {"\t": re.compile(r"[^\t\n]+"), " ": re.compile(r"[^\t\n ]+")}
_DOCSTART = "-DOCSTART-"
_UNFIT = {"\t": re.compile(r"[\t\n]|[ \r]\Z"), " ": re.compile(r"[\t\n ]|\r\Z")}


@dataclass(frozen=True, slots=True)
class Style:
    """How columns are written."""

    scheme: str
    separator: str
    docstart: bool
    types: bool
    tally: Tally

    def label(self, span: Span) -> str:
        """What follows the letter in the tags of a span."""
        if not self.types:
            return ""
        if _UNFIT[self.separator].search(span.type):
            raise BadDocument(
                "bad_type",
                f"the type {shorten(span.type)!r} has white space that ends a column; expected none. Rename the type, "
                "or set types=false.",
            )
        return f"-{span.type}"


def columns(doc: Document, style: Style) -> bytes:
    """The lines of one document."""
    lines: list[str] = []
    if style.docstart:
        if "\t" in doc.id or "\n" in doc.id:
            raise BadDocument("bad_id", f"the id {shorten(doc.id)!r} has a tab or line break; expected none.")
        lines += (f"-DOCSTART- ({doc.id}){style.separator}O", "")
    spans = _held(doc, style.tally)
    changed = False
    for passage in doc.passages:
        inside = spans[_first_from(spans, passage.offset) : _first_from(spans, passage.end)]
        texts: list[str] = []
        for sentence in _sentences(passage, inside, style):
            tags = _tags([owner for _, owner in sentence], style)
            lines += (word + style.separator + tag for (word, _), tag in zip(sentence, tags, strict=True))
            lines.append("")
            texts.append(" ".join(word for word, _ in sentence))
        changed = changed or "\n".join(texts) != passage.text
    if changed:
        style.tally.note("text re-spaced into tokens")
    lost = (("types",) if doc.spans and not style.types else ()) + (() if style.docstart else ("ids",))
    note_losses(doc, style.tally, held=_HELD, lost=lost)
    try:
        return "".join(f"{line}\n" for line in lines).encode()
    except UnicodeEncodeError:
        raise BadDocument("not_unicode", "its id or a type has half a surrogate pair; expected whole text.") from None


def _first_from(spans: list[Span], offset: int) -> int:
    return bisect_left(spans, offset, key=lambda span: span.start)


def _held(doc: Document, tally: Tally) -> list[Span]:
    """The spans that columns can hold, in reading order: of those that overlap, the longest."""
    whole = [span for span in doc.spans if len(span.parts) == 1]
    held: list[Span] = []
    for span in sorted(whole, key=lambda span: span.start - span.end):
        at = _first_from(held, span.start)
        clear_before = at == 0 or held[at - 1].end <= span.start
        if clear_before and (at == len(held) or span.end <= held[at].start):
            held.insert(at, span)
    if len(whole) < len(doc.spans):
        tally.note("discontinuous span not written", len(doc.spans) - len(whole))
    if len(held) < len(whole):
        tally.note("overlapping span not written", len(whole) - len(held))
    return held


def _sentences(passage: Passage, spans: list[Span], style: Style) -> Iterator[list[tuple[str, Span | None]]]:
    """Words, each with the span that it belongs to, a sentence at a time."""
    ends = {place for sentence in passage.sentences for place in sentence}
    crossed = {place for place in ends if _inside(spans, place)} if ends else set()
    if crossed:
        # A mention cut in two would be two mentions.
        style.tally.note("sentences joined: a mention crosses their border")
    borders = sorted(ends - crossed)
    cuts = sorted({*borders, *(place for span in spans for place in (span.start, span.end))})
    sentence: list[tuple[str, Span | None]] = []
    written: dict[int, Range] = {}  # where the words of each span begin and end
    part, at = -1, 0
    for start, end in _cut(passage, cuts, style):
        before, part = part, bisect_right(borders, start)
        if sentence and part != before:
            yield sentence
            sentence = []
        while at < len(spans) and spans[at].end <= start:
            at += 1
        owner = spans[at] if at < len(spans) and spans[at].start <= start else None
        if owner is not None:
            written[at] = (written[at][0] if at in written else start, end)
        sentence.append((passage.text[start - passage.offset : end - passage.offset], owner))
    if sentence:
        yield sentence
    if len(written) < len(spans):
        style.tally.note("span without a token not written", len(spans) - len(written))
    trimmed = sum(words != spans[number].parts[0] for number, words in written.items())
    if trimmed:
        style.tally.note("white space at a mention's edge not written", trimmed)


def _inside(spans: list[Span], place: int) -> bool:
    at = _first_from(spans, place) - 1
    return at >= 0 and place < spans[at].end


def _cut(passage: Passage, cuts: list[int], style: Style) -> Iterator[Range]:
    """The passage's tokens, cut at these places and at white space that would end a column."""
    piece = _PIECES[style.separator]
    text, shift = passage.text, passage.offset
    for start, end in _tokens(passage):
        inner = cuts[bisect_right(cuts, start) : bisect_left(cuts, end)]
        whole = piece.fullmatch(text, start - shift, end - shift)
        if whole and not inner and not text.startswith(_DOCSTART, start - shift, end - shift):
            yield start, end
            continue
        if passage.tokens:
            style.tally.note("token cut where a mention, sentence or column ends")
        for left, right in zip((start, *inner), (*inner, end), strict=True):
            for match in piece.finditer(text, left - shift, right - shift):
                yield from _not_docstart(match, shift)


def _not_docstart(match: re.Match[str], shift: int) -> Iterator[Range]:
    """The piece, in two where it would be taken for the beginning of a document."""
    start, end = match.start() + shift, match.end() + shift
    if match[0] == _DOCSTART or match[0].startswith(f"{_DOCSTART} "):
        yield start, start + 1
        start += 1
    yield start, end


def _tokens(passage: Passage) -> Iterator[Range]:
    """The passage's own tokens, and the words of what they leave out."""
    at = passage.offset
    for start, end in (*passage.tokens, (passage.end, passage.end)):
        if start > at + 1 or (start > at and not passage.text[at - passage.offset].isspace()):
            for match in _WORD.finditer(passage.text, at - passage.offset, start - passage.offset):
                yield match.start() + passage.offset, match.end() + passage.offset
        if start < end:
            yield start, end
        at = end


def _tags(owners: list[Span | None], style: Style) -> list[str]:
    """The tags of a sentence whose words belong to these spans."""
    tags: list[str] = []
    for before, owner, after in zip((None, *owners), owners, (*owners[1:], None), strict=False):
        if owner is None:
            tags.append("O")
            continue
        label = style.label(owner)
        touching = before is not None and before is not owner and style.label(before) == label
        if style.scheme == "io" and touching:
            style.tally.note("touching spans of one type written as one")
        tags.append(_letter(style.scheme, before is not owner, after is not owner, touching) + label)
    return tags


def _letter(scheme: str, first: bool, last: bool, touching: bool) -> str:
    if scheme == "io":
        return "I"
    if scheme == "iob1":
        return "B" if touching else "I"
    if scheme == "iobes" and last:
        return "S" if first else "E"
    return "B" if first else "I"
