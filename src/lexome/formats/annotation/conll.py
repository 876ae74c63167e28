"""CoNLL columns: a token and its tag a line, a blank line between sentences.

The token is the first column and the tag the last, with tabs between them, or single spaces in a line
without a tab. `-DOCSTART-` lines begin a document; without them each sentence is one.

Tags are read as conlleval reads them: B begins a mention; I goes on with one of its type, and begins
one where there is none; E ends one; S is one alone. L, U, M and W are other letters for E, S, I and S.
So IOB1, IOB2, IOBES, BILOU and IO all read right without being named. Naming the scheme checks the
letters, and says where an I without a B is as it should be (IOB1 and IO).
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import BinaryIO, Literal

from lexome.document import Document, Passage, Range, Span, shorten
from lexome.errors import BadDocument, FormatError
from lexome.formats.annotation.conll_writing import BOM, Style, columns
from lexome.formats.files import MAX_RECORD_BYTES, Source, decode
from lexome.formats.tally import Tally

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
