"""CoNLL columns: one token and its tag per line, blank lines between sentences.

The token is the first column and the tag the last, separated by tabs, or by single spaces in a line without tabs.
`-DOCSTART-` lines begin a document; without them each sentence is a document.

Tags are read as conlleval reads them: B begins a mention, I continues one of its type or begins one, E ends a
mention, S is a single-token mention. L, U, M and W are synonyms of E, S, I and S. IOB1, IOB2, IOBES, BILOU and IO
are therefore read without naming the scheme; naming it validates the letters, and whether an I without B is
expected (IOB1 and IO) or noted.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO, Literal

from lexome.document import Document, Passage, Range, Span, encode_utf8, shorten
from lexome.errors import BadDocument
from lexome.formats.streams import Source, decode, too_large
from lexome.formats.tally import Tally, note_losses

BOM = b"\xef\xbb\xbf"
_DOCSTART, _DOCSTART_TEXT = b"-DOCSTART-", "-DOCSTART-"
_ID = re.compile(r"-DOCSTART-[ \t]+\(([^\t]*)\)")
_TASK_TOKEN = re.compile(r"<[^<>/\s]+>")
_LETTERS = {"auto": "BIOESLUMW", "iob1": "BIO", "iob2": "BIO", "iobes": "BIOESLUMW", "io": "IO"}
_BEGINNING = {"I": "B", "E": "S"}
_PLAIN = str.maketrans("LUMW", "ESIS")
_SUPPORTED = frozenset({"sentences and tokens"})

# A run of letters and digits with combining accents, or a single other character.
_WORD = re.compile(r"\w[\w\u0300-\u036f]*|[^\w\s]")
_PIECES = {"\t": re.compile(r"[^\t\n]+"), " ": re.compile(r"[^\t\n ]+")}
_NOT_IN_TYPE = {"\t": re.compile(r"[\t\n]|[ \r]\Z"), " ": re.compile(r"[\t\n ]|\r\Z")}

# What a line adds to the size besides its bytes: a token takes more memory than its text.
_LINE_BYTES = 64
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
    """Documents of one passage: tokens joined by spaces, sentences by line breaks.

    The id is in parentheses on the -DOCSTART- line, or made of file name and line number. `type` is the type of
    mentions whose tags have none. Task tokens such as `<ALL>` and `</ALL>` around a sentence, which tell a multi-task
    model its task, are removed and counted unless `task_tokens` is set.
    """
    options = _ReadOptions(scheme, type, task_tokens, encoding, tally)
    for line, opening, raw in _chunks(source):
        yield from tally.accept(
            partial(_document, f"{source.stem}-{line}", opening, raw, line, options),
            where=f"{source.name}, line {line}",
            id=partial(_id, opening, encoding),
            raw=raw if opening is None else opening + b"\n" + raw,
        )


@dataclass(frozen=True, slots=True)
class _ReadOptions:
    """Reader options, and a cache of the parsed tags of the file."""

    scheme: str
    type: str
    task_tokens: bool
    encoding: str
    tally: Tally
    tags: dict[str, Tag] = field(default_factory=dict)

    def tag(self, text: str, line: int) -> Tag:
        """The tag's letter, one of BIOES, and its type; BadDocument if it is invalid."""
        if text in self.tags:
            return self.tags[text]
        letter, dash, label = text.partition("-")
        allowed = _LETTERS[self.scheme]
        if len(letter) != 1 or letter not in allowed or (letter == "O" and dash):
            raise BadDocument(
                "bad_tag",
                f"line {line}: the last column is {shorten(text)!r}; expected a tag: one of {' '.join(allowed)}, "
                "followed by a type, such as I-Gene. Check the columns, or name another scheme.",
                value=text,
            )
        tag = self.tags[text] = (letter.translate(_PLAIN), label if dash else self.type)
        return tag


def _chunks(source: Source) -> Iterator[tuple[int, bytes | None, bytes]]:
    """The first line number, the -DOCSTART- line or None, and the following lines of each document."""
    opening: bytes | None = None
    lines: list[bytes] = []
    first = 1
    size = 0
    for number, line in source.lines():
        if line.startswith(_DOCSTART) and line[len(_DOCSTART) : len(_DOCSTART) + 1] in (b"", b" ", b"\t"):
            if lines or opening is not None:
                yield first, opening, b"\n".join(lines)
            opening, lines, first, size = line, [], number, 0
        elif line and not line.isspace():
            first = first if lines or opening is not None else number
            lines.append(line)
            size += len(line) + _LINE_BYTES
        elif opening is not None:
            lines.append(b"")
            size += _LINE_BYTES
        elif lines:
            yield first, None, b"\n".join(lines)
            lines, size = [], 0
        if size > source.record_bytes:
            what = f"the document at line {first}, with {_LINE_BYTES} bytes for each line,"
            advice = "Check that the file has columns, and -DOCSTART- or blank lines between documents."
            raise too_large(source.name, what, advice, limit=source.record_bytes, value=first)
    if lines or opening is not None:
        yield first, opening, b"\n".join(lines)


def _id(opening: bytes | None, encoding: str) -> str | None:
    """The id on a -DOCSTART- line."""
    match = _ID.match(decode(opening or b"", encoding))
    return match[1] if match is not None else None


def _document(name: str, opening: bytes | None, raw: bytes, line: int, options: _ReadOptions) -> Document:
    if opening is not None:
        own = _id(opening, options.encoding)
        name = name if own is None else own
        line += 1
    texts: list[str] = []
    sentences: list[Range] = []
    tokens: list[Range] = []
    mentions: list[Mention] = []
    at = 0
    for words, tags in _sentences(decode(raw, options.encoding), line, options):
        start = at
        ranges: list[Range] = []
        for word in words:
            ranges.append((at, at + len(word)))
            at += len(word) + 1
        texts.append(" ".join(words))
        sentences.append((start, at - 1))
        tokens += ranges
        mentions += _mentions(ranges, tags, options)
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


def _sentences(text: str, first: int, options: _ReadOptions) -> Iterator[tuple[list[str], list[Tag]]]:
    words: list[str] = []
    tags: list[Tag] = []
    known = options.tags
    has_extra_columns = after_lost_token = False
    for number, line in enumerate((*text.split("\n"), ""), first):
        if line:
            # Nearly every line is a token, a tab and a known tag: one dictionary lookup.
            word, _, last = line.partition("\t")
            tag = known.get(last) if word else None
            if tag is None:
                word, last, more = _split_columns(line, number)
                tag = options.tag(last, number)
                has_extra_columns = has_extra_columns or more
            if not word:
                # The token was lost when the file was made, but its tag may still separate two mentions.
                options.tally.note("line without a token skipped")
                after_lost_token = after_lost_token or tag[0] != "I" or (bool(tags) and tag[1] != tags[-1][1])
                continue
            if after_lost_token:
                tag, after_lost_token = (_BEGINNING.get(tag[0], tag[0]), tag[1]), False
            words.append(word)
            tags.append(tag)
        elif words:
            if not options.task_tokens and words[0].startswith("<"):
                words, tags = _without_task_tokens(words, tags, options.tally)
            if words:
                yield words, tags
            words, tags, after_lost_token = [], [], False
    if has_extra_columns:
        options.tally.note("columns between token and tag ignored")


def _split_columns(line: str, number: int) -> tuple[str, str, bool]:
    """The first and the last column, and whether there are more."""
    line = line.rstrip(" \t")
    separator = "\t" if "\t" in line else " "
    word, separated, rest = line.partition(separator)
    between, _, tag = rest.rpartition(separator)
    if not separated:
        raise BadDocument(
            "one_column",
            f"line {number} has one column, {shorten(line)!r}; expected columns separated by a tab or a space, the "
            "token first and its tag last.",
            value=number,
        )
    return word, tag, bool(between)


def _without_task_tokens(words: list[str], tags: list[Tag], tally: Tally) -> tuple[list[str], list[Tag]]:
    """The sentence without a pair such as `<ALL>` and `</ALL>` around it."""
    while (
        len(words) > 1
        and _TASK_TOKEN.fullmatch(words[0]) is not None
        and words[-1] == f"</{words[0][1:]}"
        and tags[0][0] == tags[-1][0] == "O"
    ):
        tally.note("task token removed", 2)
        words, tags = words[1:-1], tags[1:-1]
    return words, tags


def _mentions(ranges: list[Range], tags: list[Tag], options: _ReadOptions) -> Iterator[Mention]:
    """Start, end and type of each mention of a sentence."""
    start = -1  # of the open mention
    last = ("O", "")
    orphans = unended = 0
    for index, tag in enumerate(tags):
        letter, label = tag
        if start >= 0 and (letter in "OBS" or label != last[1]):
            unended += 1
            yield start, ranges[index - 1][1], last[1]
            start = -1
        if letter != "O" and start < 0:
            start = ranges[index][0]
            orphans += letter in "IE"
        if letter in "ES":
            yield start, ranges[index][1], label
            start = -1
        last = tag
    if start >= 0:
        unended += 1
        yield start, ranges[-1][1], last[1]
    if orphans and options.scheme not in ("iob1", "io"):
        options.tally.note("I without B", orphans)
    if unended and options.scheme == "iobes":
        options.tally.note("B without E", unended)


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
    """Each document as a -DOCSTART- line with its id, then one token and tag per line.

    Tokens are the passage's, or words and punctuation marks if it has none; they are split where a mention begins or
    ends, so that mentions keep their boundaries. Of overlapping mentions the longest is kept. What columns cannot
    represent is skipped and counted.
    """
    style = Style(scheme, "\t" if separator == "tab" else " ", docstart, types, tally)
    started = False
    for doc in docs:
        raw = tally.attempt(partial(_document_lines, doc, style), where=f"document {shorten(doc.id)!r}", id=doc.id)
        if raw is None:
            continue
        if not started and raw.startswith(BOM):
            stream.write(BOM)  # readers take the first one as the file's byte order mark
        started = started or bool(raw)
        stream.write(raw)
        tally.written += 1


@dataclass(frozen=True, slots=True)
class Style:
    """Writer options."""

    scheme: str
    separator: str
    docstart: bool
    types: bool
    tally: Tally

    def label(self, span: Span) -> str:
        """The part of a span's tags after the letter."""
        if not self.types:
            return ""
        if _NOT_IN_TYPE[self.separator].search(span.type):
            raise BadDocument(
                "bad_type",
                f"the type {shorten(span.type)!r} has white space, which separates columns. Rename the type, or set "
                "types=false.",
                value=span.type,
            )
        return f"-{span.type}"


def _document_lines(doc: Document, style: Style) -> bytes:
    lines: list[str] = []
    if style.docstart:
        if "\t" in doc.id or "\n" in doc.id:
            raise BadDocument("bad_id", f"the id {shorten(doc.id)!r} has a tab or line break.", value=doc.id)
        lines += (f"-DOCSTART- ({doc.id}){style.separator}O", "")
    spans = _flat_spans(doc, style.tally)
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
        style.tally.note("white space between tokens changed")
    lost = (("types",) if doc.spans and not style.types else ()) + (() if style.docstart else ("ids",))
    note_losses(doc, style.tally, supported=_SUPPORTED, lost=lost)
    return encode_utf8("".join(f"{line}\n" for line in lines))


def _first_from(spans: list[Span], offset: int) -> int:
    return bisect_left(spans, offset, key=lambda span: span.start)


def _flat_spans(doc: Document, tally: Tally) -> list[Span]:
    """The continuous spans, in reading order; of overlapping ones, the longest."""
    continuous = [span for span in doc.spans if len(span.parts) == 1]
    flat: list[Span] = []
    for span in sorted(continuous, key=lambda span: span.start - span.end):
        at = _first_from(flat, span.start)
        free_before = at == 0 or flat[at - 1].end <= span.start
        if free_before and (at == len(flat) or span.end <= flat[at].start):
            flat.insert(at, span)
    if len(continuous) < len(doc.spans):
        tally.note("discontinuous span not written", len(doc.spans) - len(continuous))
    if len(flat) < len(continuous):
        tally.note("overlapping span not written", len(continuous) - len(flat))
    return flat


def _sentence_lines(passage: Passage, spans: list[Span], style: Style) -> Iterator[list[tuple[str, Span | None]]]:
    boundaries = {offset for sentence in passage.sentences for offset in sentence}
    crossed = {offset for offset in boundaries if (at := _first_from(spans, offset)) and offset < spans[at - 1].end}
    if crossed:
        # A mention split in two would be two mentions.
        style.tally.note("sentences merged: a mention crosses their boundary")
    borders = sorted(boundaries - crossed)
    cuts = sorted({*borders, *(offset for span in spans for offset in (span.start, span.end))})
    sentence: list[tuple[str, Span | None]] = []
    written: dict[int, Range] = {}  # the range of the words of each span
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
        style.tally.note("white space at the edge of a mention not written", trimmed)


def _cut_tokens(passage: Passage, cuts: list[int], style: Style) -> Iterator[Range]:
    """The passage's tokens, split at these offsets and at white space that would end a column."""
    piece = _PIECES[style.separator]
    text, shift = passage.text, passage.offset
    for start, end in _tokens(passage):
        inner = cuts[bisect_right(cuts, start) : bisect_left(cuts, end)]
        whole = piece.fullmatch(text, start - shift, end - shift)
        if whole and not inner and not text.startswith(_DOCSTART_TEXT, start - shift, end - shift):
            yield start, end
            continue
        if passage.tokens:
            style.tally.note("token split at the boundary of a mention, sentence or column")
        for left, right in zip((start, *inner), (*inner, end), strict=True):
            for match in piece.finditer(text, left - shift, right - shift):
                first, last = match.start() + shift, match.end() + shift
                # Split in two if it would be read as the beginning of a document.
                if match[0] == _DOCSTART_TEXT or match[0].startswith(f"{_DOCSTART_TEXT} "):
                    yield first, first + 1
                    first += 1
                yield first, last


def _tokens(passage: Passage) -> Iterator[Range]:
    """The passage's tokens, and words of the text between them."""
    at = passage.offset
    for start, end in (*passage.tokens, (passage.end, passage.end)):
        if start > at + 1 or (start > at and not passage.text[at - passage.offset].isspace()):
            for match in _WORD.finditer(passage.text, at - passage.offset, start - passage.offset):
                yield match.start() + passage.offset, match.end() + passage.offset
        if start < end:
            yield start, end
        at = end


def _tags(owners: list[Span | None], style: Style) -> list[str]:
    tags: list[str] = []
    for before, owner, after in zip((None, *owners), owners, (*owners[1:], None), strict=False):
        if owner is None:
            tags.append("O")
            continue
        label = style.label(owner)
        adjacent = before is not None and before is not owner and style.label(before) == label
        if style.scheme == "io" and adjacent:
            style.tally.note("adjacent spans of one type written as one")
        tags.append(_letter(style.scheme, before is not owner, after is not owner, adjacent) + label)
    return tags


def _letter(scheme: str, first: bool, last: bool, adjacent: bool) -> str:
    if scheme == "io":
        return "I"
    if scheme == "iob1":
        return "B" if adjacent else "I"
    if scheme == "iobes" and last:
        return "S" if first else "E"
    return "B" if first else "I"
