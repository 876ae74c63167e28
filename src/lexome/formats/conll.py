"""CoNLL columns: a token and its tag a line, a blank line between sentences.

The token is the first column and the tag the last, with tabs between them, or single spaces in a line
without a tab. `-DOCSTART-` lines begin a document; without them each sentence is one.

Tags are read as conlleval reads them: B begins a mention; I goes on with one of its type, and begins
one where there is none; E ends one; S is one alone. L, U, M and W are other letters for E, S, I and S.
So IOB1, IOB2, IOBES, BILOU and IO all read right without being named. Naming the scheme checks the
letters, and says where an I without a B is as it should be (IOB1 and IO).
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO, Literal

from lexome.document import Document, Passage, Range, Span, shorten
from lexome.errors import BadDocument, FormatError
from lexome.formats.streams import MAX_RECORD_BYTES, Source, decode
from lexome.formats.tally import Tally, note_losses

BOM = b"\xef\xbb\xbf"

_HELD = frozenset({"sentences and tokens"})

# A run of letters and digits with the accents that combine with them, or any other single mark.
_WORD = re.compile(r"\w[\w\u0300-\u036f]*|[^\w\s]")
_PIECES = {"\t": re.compile(r"[^\t\n]+"), " ": re.compile(r"[^\t\n ]+")}
_DOCSTART_TEXT = "-DOCSTART-"
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
        for sentence in _sentence_lines(passage, inside, style):
            tags = _tags([owner for _, owner in sentence], style)
            lines += (word + style.separator + tag for (word, _), tag in zip(sentence, tags, strict=True))
            lines.append("")
            texts.append(" ".join(word for word, _ in sentence))
        changed = changed or "\n".join(texts) != passage.text
    if changed:
        style.tally.note("text re-spaced into tokens")
    lost = (("types",) if doc.spans and not style.types else ()) + (() if style.docstart else ("ids",))
    note_losses(doc, style.tally, supported=_HELD, lost=lost)
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


def _sentence_lines(passage: Passage, spans: list[Span], style: Style) -> Iterator[list[tuple[str, Span | None]]]:
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
    for start, end in _cut_tokens(passage, cuts, style):
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


def _cut_tokens(passage: Passage, cuts: list[int], style: Style) -> Iterator[Range]:
    """The passage's tokens, cut at these places and at white space that would end a column."""
    piece = _PIECES[style.separator]
    text, shift = passage.text, passage.offset
    for start, end in _tokens(passage):
        inner = cuts[bisect_right(cuts, start) : bisect_left(cuts, end)]
        whole = piece.fullmatch(text, start - shift, end - shift)
        if whole and not inner and not text.startswith(_DOCSTART_TEXT, start - shift, end - shift):
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
    if match[0] == _DOCSTART_TEXT or match[0].startswith(f"{_DOCSTART_TEXT} "):
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


_DOCSTART = b"-DOCSTART-"
_ID = re.compile(r"-DOCSTART-[ \t]+\(([^\t]*)\)")
_TASK_TOKEN = re.compile(r"<[^<>/\s]+>")
_LETTERS = {"auto": "BIOESLUMW", "iob1": "BIO", "iob2": "BIO", "iobes": "BIOESLUMW", "io": "IO"}
_BEGINNING = {"I": "B", "E": "S"}
_PLAIN = str.maketrans("LUMW", "ESIS")

# What a blank line counts towards a document's size: it takes more memory than its one byte.
_BLANK_BYTES = 32

Tag = tuple[str, str]
Mention = tuple[int, int, str]


def read(
    source: Source,
    *,
    tally: Tally,
    scheme: Literal["auto", "iob1", "iob2", "iobes", "io"] = "auto",
    type: str = "Entity",
    task_tokens: bool = False,
    encoding: str = "utf-8",
) -> Iterator[Document]:
    """Documents of one passage: tokens joined by a space, sentences by a line break.

    A document's id stands in brackets on its -DOCSTART- line, or is made of the file's name and the
    line's number. `type` is the type of mentions whose tags name none. Tokens such as `<ALL>` and `</ALL>`
    round a sentence tell a model its task; they are left out, and counted, unless `task_tokens` is set.
    """
    reading = _Reading(scheme, type, task_tokens, encoding, tally)
    for line, opening, raw in _chunks(source):
        doc = tally.attempt(
            partial(_document, f"{source.stem}-{line}", opening, raw, line, reading),
            where=f"{source.name}, line {line}",
            raw=raw if opening is None else opening + b"\n" + raw,
        )
        if doc is not None:
            yield doc


def write(
    docs: Iterable[Document],
    stream: BinaryIO,
    *,
    tally: Tally,
    scheme: Literal["iob2", "iob1", "iobes", "io"] = "iob2",
    separator: Literal["tab", "space"] = "tab",
    docstart: bool = True,
    types: bool = True,
) -> None:
    """Each document as a -DOCSTART- line with its id, then a token and its tag a line.

    Tokens are the passage's own. Where it has none they are words and single marks; in both cases they
    are cut where a mention begins or ends, so that none is widened. Of mentions that overlap, the longest
    is kept. What columns cannot hold is left out and counted.
    """
    style = Style(scheme, "\t" if separator == "tab" else " ", docstart, types, tally)
    begun = False
    for doc in docs:
        raw = tally.attempt(partial(columns, doc, style), where=f"document {shorten(doc.id)!r}", id=doc.id)
        if raw is None:
            continue
        if not begun and raw.startswith(BOM):
            stream.write(BOM)  # A reader takes the first one as the file's, not as text.
        begun = begun or bool(raw)
        stream.write(raw)
        tally.written += 1


@dataclass(frozen=True, slots=True)
class _Reading:
    """How one file is read, and the tags it has shown so far."""

    scheme: str
    type: str
    task_tokens: bool
    encoding: str
    tally: Tally
    tags: dict[str, Tag] = field(default_factory=dict)

    def tag(self, text: str, line: int) -> Tag:
        """The tag's letter, one of BIOES, and its type; BadDocument where it is none."""
        found = self.tags.get(text)
        if found is None:
            found = self.tags[text] = self._parsed(text, line)
        return found

    def _parsed(self, text: str, line: int) -> Tag:
        letter, dash, label = text.partition("-")
        allowed = _LETTERS[self.scheme]
        if len(letter) != 1 or letter not in allowed or (letter == "O" and dash):
            raise BadDocument(
                "bad_tag",
                f"line {line}: its last column is {shorten(text)!r}; expected a tag: one of {' '.join(allowed)}, "
                "and after all but O perhaps a type, as in I-Gene. Check the columns, or name another scheme.",
            )
        return letter.translate(_PLAIN), label if dash else self.type


def _chunks(source: Source) -> Iterator[tuple[int, bytes | None, bytes]]:
    """Each document's first line number, its -DOCSTART- line if it has one, and the lines after that."""
    opening: bytes | None = None
    held: list[bytes] = []
    first = 1
    size = 0
    for number, line in source.lines():
        if line.startswith(_DOCSTART) and line[len(_DOCSTART) : len(_DOCSTART) + 1] in (b"", b" ", b"\t"):
            if held or opening is not None:
                yield first, opening, b"\n".join(held)
            opening, held, first, size = line, [], number, 0
        elif line and not line.isspace():
            first = first if held or opening is not None else number
            held.append(line)
            size += len(line)
        elif opening is not None:
            held.append(b"")
            size += _BLANK_BYTES
        elif held:
            yield first, None, b"\n".join(held)
            held, size = [], 0
        if size > MAX_RECORD_BYTES:
            raise FormatError(
                f"{source.name}: the document at line {first} is larger than {MAX_RECORD_BYTES >> 20} MiB, or has "
                f"more than {MAX_RECORD_BYTES // _BLANK_BYTES:,} blank lines; expected a -DOCSTART- line "
                "or, without any, a blank line before that. Check that the file is in columns."
            )
    if held or opening is not None:
        yield first, opening, b"\n".join(held)


def _document(name: str, opening: bytes | None, raw: bytes, line: int, reading: _Reading) -> Document:
    if opening is not None:
        given = _ID.match(decode(opening, reading.encoding))
        name = given[1] if given is not None else name
        line += 1
    texts: list[str] = []
    sentences: list[Range] = []
    tokens: list[Range] = []
    mentions: list[Mention] = []
    at = 0
    for words, tags in _sentences(decode(raw, reading.encoding), line, reading):
        begun = at
        ranges: list[Range] = []
        for word in words:
            ranges.append((at, at + len(word)))
            at += len(word) + 1
        texts.append(" ".join(words))
        sentences.append((begun, at - 1))
        tokens += ranges
        mentions += _mentions(ranges, tags, reading)
    if not texts:
        return Document(name)
    text = "\n".join(texts)
    kind = "sentence" if len(sentences) == 1 else "paragraph"
    passage = Passage(0, text, kind, sentences=tuple(sentences), tokens=tuple(tokens))
    spans = tuple(
        Span(f"T{number}", label, ((start, end),), text[start:end])
        for number, (start, end, label) in enumerate(mentions, 1)
    )
    return Document(name, (passage,), spans)


def _sentences(text: str, first: int, reading: _Reading) -> Iterator[tuple[list[str], list[Tag]]]:
    """The words and tags of each sentence that has any."""
    words: list[str] = []
    tags: list[Tag] = []
    known = reading.tags
    extra = apart = False
    for number, line in enumerate((*text.split("\n"), ""), first):
        if line:
            # Nearly every line is a token, a tab and a tag seen before: one look-up tells.
            word, _, last = line.partition("\t")
            tag = known.get(last) if word else None
            if tag is None:
                word, last, between = _cut(line, number)
                tag = reading.tag(last, number)
                extra = extra or between
            if not word:
                # Its character was lost before, but its tag may still tell two mentions apart.
                reading.tally.note("line without a token left out")
                apart = apart or tag[0] != "I" or (bool(tags) and tag[1] != tags[-1][1])
                continue
            if apart:
                tag, apart = (_BEGINNING.get(tag[0], tag[0]), tag[1]), False
            words.append(word)
            tags.append(tag)
        elif words:
            if not reading.task_tokens and words[0].startswith("<"):
                words, tags = _without_task(words, tags, reading.tally)
            if words:
                yield words, tags
            words, tags, apart = [], [], False
    if extra:
        reading.tally.note("columns between token and tag ignored")


def _cut(line: str, number: int) -> tuple[str, str, bool]:
    """The first column, the last, and whether there are more between."""
    line = line.rstrip(" \t")
    separator = "\t" if "\t" in line else " "
    word, found, rest = line.partition(separator)
    between, _, tag = rest.rpartition(separator)
    if not found:
        raise BadDocument(
            "one_column",
            f"line {number}: it has one column, {shorten(line)!r}; expected a token and its tag, with a tab or a space "
            "between. Check that the file is in columns.",
        )
    return word, tag, bool(between)


def _without_task(words: list[str], tags: list[Tag], tally: Tally) -> tuple[list[str], list[Tag]]:
    """The sentence without a pair such as `<ALL>` and `</ALL>` round it."""
    while (
        len(words) > 1
        and _TASK_TOKEN.fullmatch(words[0]) is not None
        and words[-1] == f"</{words[0][1:]}"
        and tags[0][0] == tags[-1][0] == "O"
    ):
        tally.note("task token left out", 2)
        words, tags = words[1:-1], tags[1:-1]
    return words, tags


def _mentions(ranges: list[Range], tags: list[Tag], reading: _Reading) -> Iterator[Mention]:
    """Where each mention of a sentence begins and ends, and its type."""
    begun = -1  # where the mention that is open begins
    last = ("O", "")
    orphans = unended = 0
    for place, tag in enumerate(tags):
        letter, label = tag
        if begun >= 0 and (letter in "OBS" or label != last[1]):
            unended += 1
            yield begun, ranges[place - 1][1], last[1]
            begun = -1
        if letter != "O" and begun < 0:
            begun = ranges[place][0]
            orphans += letter in "IE"
        if letter in "ES":
            yield begun, ranges[place][1], label
            begun = -1
        last = tag
    if begun >= 0:
        unended += 1
        yield begun, ranges[-1][1], last[1]
    if orphans and reading.scheme not in ("iob1", "io"):
        reading.tally.note("I without B", orphans)
    if unended and reading.scheme == "iobes":
        reading.tally.note("B without E", unended)
