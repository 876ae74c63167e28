"""XML files as a stream of records, split at the bytes of their tags and parsed one by one.

Memory holds one record at a time, a malformed record does not affect the others, and because records are parsed
without the file's DTD there are no entities to expand and no external files to open. results/read_speed.json
compares its speed with the incremental parsing of pubmed_parser.
"""

import codecs
import html
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from html.entities import html5

from lxml import etree

from lexome.document import shorten
from lexome.errors import BadDocument, FormatError
from lexome.formats.streams import BLOCK_BYTES, HEAD_BYTES, MAX_RECORD_BYTES, Source, truncated, utf16_of, web_encoding

# Patterns stop at the next "<", so that no input makes them backtrack.
_TAG = re.compile(rb"</?[A-Za-z_][^<>]*>")
_OPENING = re.compile(rb"<([A-Za-z_][\w.:-]*)([^<>]*)(?<!/)>")
_EMPTY_ROOT = re.compile(rb"<[A-Za-z_][^<>]*/>")
_HIDDEN = re.compile(rb"<!--|<\?|<!DOCTYPE")
_CLOSINGS = {b"<!--": b"-->", b"<![CDATA[": b"]]>", b"<?": b"?>"}
_DECLARATION = re.compile(rb"""^\s*<\?xml[^>]*?encoding\s*=\s*["']([A-Za-z0-9._-]+)["']""")
_NAMESPACE = re.compile(rb"""xmlns:[\w.-]+\s*=\s*(?:"[^"]*"|'[^']*')""")
_ASCII = (b"ascii", b"us-ascii")
_COMMON_NAMESPACES = (
    b'xmlns:mml="http://www.w3.org/1998/Math/MathML"',
    b'xmlns:xlink="http://www.w3.org/1999/xlink"',
    b'xmlns:ali="http://www.niso.org/schemas/ali/1.0/"',
    b'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"',
)
_ENTITY = re.compile(rb"&([A-Za-z][A-Za-z0-9]*);")
_PREDEFINED = {b"amp", b"lt", b"gt", b"quot", b"apos"}
_LONGEST_TAG = 64
_NEVER, _TOO_FAR = -1, -2


@dataclass(frozen=True, slots=True)
class Record:
    """The bytes of one element, its line, and the problem if it is incomplete."""

    tag: bytes
    raw: bytes
    line: int
    problem: BadDocument | None = None
    namespaces: bytes = b""

    def parse(self) -> etree._Element:
        """The parsed element without comments and processing instructions; BadDocument if malformed."""
        if self.problem is not None:
            raise self.problem
        try:
            return etree.fromstring(self.raw, _parser())
        except etree.XMLSyntaxError as error:
            if error.code == etree.ErrorTypes.NS_ERR_UNDEFINED_NAMESPACE:
                return self._parse_namespaced()
            if error.code == etree.ErrorTypes.ERR_UNDECLARED_ENTITY:
                # Entities such as &alpha; are from the DTD, which is not read.
                resolved = _ENTITY.sub(_character, self.raw)
                if resolved != self.raw:
                    return Record(self.tag, resolved, self.line, namespaces=self.namespaces).parse()
            raise _malformed_error(error, self.line) from None

    def _parse_namespaced(self) -> etree._Element:
        """Parse a record whose namespace prefixes are declared on the root element."""
        declared = _NAMESPACE.findall(self.namespaces)
        names = {part.partition(b"=")[0].strip() for part in declared}
        declared += [part for part in _COMMON_NAMESPACES if part.partition(b"=")[0] not in names]
        wrapped = b"<wrapper " + b" ".join(declared) + b">" + self.raw + b"</wrapper>"
        try:
            return etree.fromstring(wrapped, _parser())[0]
        except etree.XMLSyntaxError as error:
            raise _malformed_error(error, self.line) from None


def records(source: Source, tags: tuple[str, ...], *, header: tuple[str, ...] = ()) -> Iterator[Record]:
    """Each element with one of these tags, in file order.

    Text between records, outside of `header` elements, is yielded as a Record with a problem, so that nothing is
    lost silently. A truncated file raises FormatError after its last complete record.
    """
    yield from _Splitter(source, tags, header).split()


@cache
def _parser() -> etree.XMLParser:
    """One parser for all records: creating one takes as long as parsing a citation."""
    return etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        remove_comments=True,
        remove_pis=True,
        collect_ids=False,
    )


def _malformed_error(error: etree.XMLSyntaxError, line: int) -> BadDocument:
    at = line + (error.lineno or 1) - 1
    reason = "too_large" if error.code == etree.ErrorTypes.ERR_RESOURCE_LIMIT else "malformed_xml"
    return BadDocument(reason, f"line {at}: {error.msg}; expected well-formed XML.", value=at)


def _character(match: re.Match[bytes]) -> bytes:
    """The character of an HTML entity, escaped for XML."""
    text = html5.get(f"{match[1].decode()};")
    if text is None or match[1] in _PREDEFINED:
        return match[0]
    return html.escape(text, quote=False).encode()


class _Splitter:
    """A window over the file that moves from record to record."""

    def __init__(self, source: Source, tags: tuple[str, ...], header: tuple[str, ...]) -> None:
        self.name = source.name
        self.tags = tags
        self.blocks = _utf8_blocks(source)
        self.open_tag = re.compile(rb"<(" + _alternatives(tags) + rb")(?=[\s>/])")
        self.open_or_hidden = re.compile(self.open_tag.pattern + rb"|<!--|<!\[CDATA\[|<\?")
        self.header = re.compile(rb"<(" + _alternatives(header) + rb")(?=[\s>/])[^<>]*>" if header else rb"(?!)")
        self.buffer = b""
        self.at = 0  # the bytes before this position have been consumed
        self.line = 1
        self.root: bytes | None = None
        self.namespaces = b""

    def split(self) -> Iterator[Record]:
        """Records and stray content until the end of the file."""
        first = True
        while (distance := self._find_open()) is not None:
            line, between = self.line, self._take(distance)
            if first:
                self._begin(between)
                first = False
            yield from self._stray(between, line)
            yield self._record()
        line, rest = self.line, self._take(self._buffered)
        if first:
            self._begin(rest)
            closed = self.root is not None and b"</" + self.root + b">" in rest
            outside = self._outside(rest)
            if not (closed or _EMPTY_ROOT.search(outside)) or _TAG.sub(b"", outside).strip():
                raise self._no_records(rest)
        yield from self._stray(rest, line)
        if self.root is not None and b"</" + self.root + b">" not in rest:
            problem = f"the file is truncated: it ends at line {self.line} without </{self.root.decode()}>"
            raise truncated(self.name, problem, value=self.line)

    def _grow(self) -> bool:
        """Read another block; False at the end of the file."""
        block = next(self.blocks, b"")
        self.buffer = self.buffer[self.at :] + block
        self.at = 0
        return bool(block)

    def _take(self, size: int) -> bytes:
        """Consume this many bytes, counting their lines."""
        content = self.buffer[self.at : self.at + size]
        self.at += len(content)
        self.line += content.count(b"\n")
        return content

    @property
    def _buffered(self) -> int:
        return len(self.buffer) - self.at

    def _find_open(self) -> int | None:
        """The distance to the next record, or None if the file ends first."""
        searched = 0
        while True:
            match = self.open_or_hidden.search(self.buffer, self.at + searched)
            if match is not None and match[1] is not None:
                return match.start() - self.at
            if match is not None:
                # A record inside a comment does not count.
                begin = match.start() - self.at
                end = self.buffer.find(_CLOSINGS[match[0]], match.end())
                if end >= 0:
                    searched = end - self.at
                    continue
                searched = begin
            else:
                searched = max(searched, self._buffered - _LONGEST_TAG, 0)
            if self._buffered > MAX_RECORD_BYTES:
                raise self._no_records(self.buffer)
            if not self._grow():
                return None

    def _record(self) -> Record:
        """The record that begins here, up to its closing tag."""
        line = self.line
        match = self.open_tag.match(self.buffer, self.at)
        assert match is not None  # _find_open stopped here
        tag = match[1]
        size = self._distance(b">", 0)
        if size >= 0 and self.buffer[self.at + size - 2] != ord("/"):
            size = self._distance(b"</" + tag + b">", size)
        if size == _NEVER:
            message = f"line {line}: the file ends inside <{tag.decode()}>. Download it again."
            return Record(tag, self._take(self._buffered), line, BadDocument("truncated", message, value=line))
        if size == _TOO_FAR:
            message = f"line {line}: a <{tag.decode()}> is larger than {MAX_RECORD_BYTES >> 20} MiB."
            return Record(tag, self._skip_large(tag), line, BadDocument("too_large", message, value=line))
        return Record(tag, self._take(size), line, namespaces=self.namespaces)

    def _distance(self, mark: bytes, searched: int) -> int:
        """The distance to the end of the next mark, _NEVER if the file ends first, _TOO_FAR if it is too long."""
        while (begin := self.buffer.find(mark, self.at + searched)) < 0:
            searched = max(searched, self._buffered - len(mark))
            if self._buffered > MAX_RECORD_BYTES:
                return _TOO_FAR
            if not self._grow():
                return _NEVER
        return begin - self.at + len(mark)

    def _skip_large(self, tag: bytes) -> bytes:
        """Skip a record that is too large; returns its beginning."""
        start = self.buffer[self.at : self.at + 1000]
        closing = b"</" + tag + b">"
        while (begin := self.buffer.find(closing, self.at)) < 0:
            self._take(max(0, self._buffered - len(closing)))
            if not self._grow():
                return start
        self._take(begin - self.at + len(closing))
        return start

    def _begin(self, prolog: bytes) -> None:
        """Set the root element and the namespaces that it declares."""
        opened = _OPENING.findall(self._outside(prolog))
        self.root = opened[0][0] if opened else None
        self.namespaces = b" ".join(part for _, attributes in opened for part in _NAMESPACE.findall(attributes))

    def _stray(self, between: bytes, line: int) -> Iterator[Record]:
        """A Record with a problem, if there is text between records."""
        if between and not between.isspace() and (text := _TAG.sub(b"", self._outside(between)).strip()):
            stray = shorten(text.decode(errors="replace"))
            message = f"line {line}: {stray!r} is outside any <{self.tags[0]}>. A tag there may be misspelled."
            yield Record(b"", between, line, BadDocument("outside_record", message, value=stray))

    def _outside(self, raw: bytes) -> bytes:
        """The bytes without comments, processing instructions, DOCTYPE and header elements."""
        return _remove(_remove(raw, _HIDDEN, _hidden_end), self.header, _element_end)

    def _no_records(self, content: bytes) -> FormatError:
        match = _OPENING.search(self._outside(content[:BLOCK_BYTES]))
        seen = "it has no XML element" if content.strip() else "it is empty"
        seen = f"its first element is <{match[1].decode(errors='replace')}>" if match else seen
        return FormatError(
            f"{self.name}: the file has no <{self.tags[0]}>; {seen}. If it has another format, name it with "
            "--from (in Python: format=).",
            code="no-records",
            value=self.tags[0],
        )


def _remove(raw: bytes, opening: re.Pattern[bytes], end_of: Callable[[bytes, re.Match[bytes]], int]) -> bytes:
    """The bytes without each range from an opening to its end; one that never ends stays."""
    kept: list[bytes] = []
    at = 0
    while (match := opening.search(raw, at)) is not None:
        end = end_of(raw, match)
        if end < 0:
            break
        kept.append(raw[at : match.start()])
        at = end
    kept.append(raw[at:])
    return b"".join(kept)


def _hidden_end(raw: bytes, match: re.Match[bytes]) -> int:
    """The end of a comment, processing instruction or DOCTYPE with its internal subset, or -1."""
    if match[0] != b"<!DOCTYPE":
        return _end(raw, b"-->" if match[0] == b"<!--" else b"?>", match.end())
    end, subset = raw.find(b">", match.end()), raw.find(b"[", match.end())
    if 0 <= subset < end:
        inner = raw.find(b"]", subset)
        return _end(raw, b">", inner) if inner >= 0 else -1
    return end + 1 if end >= 0 else -1


def _element_end(raw: bytes, match: re.Match[bytes]) -> int:
    """The end of a header element, or -1."""
    return match.end() if match[0].endswith(b"/>") else _end(raw, b"</" + match[1] + b">", match.end())


def _end(raw: bytes, closing: bytes, start: int) -> int:
    at = raw.find(closing, start)
    return at + len(closing) if at >= 0 else -1


def _alternatives(names: tuple[str, ...]) -> bytes:
    return b"|".join(re.escape(name.encode()) for name in names)


def _utf8_blocks(source: Source) -> Iterator[bytes]:
    """The file in blocks of UTF-8, converted from the encoding that its BOM or declaration names."""
    encoding = _encoding(source)
    if encoding is None:
        small = size = min(HEAD_BYTES, BLOCK_BYTES)
        block = source.stream.read1(size).removeprefix(codecs.BOM_UTF8)
        while block:
            yield block
            # Allocating a large block at the end of a file takes longer than parsing a small file.
            size = min(2 * size, BLOCK_BYTES) if len(block) == size else small
            block = source.stream.read1(size)
        return
    decoder = codecs.getincrementaldecoder(encoding)()
    position = 0
    block = b"start"
    while block:
        block = source.stream.read1(BLOCK_BYTES)
        try:
            # A block may end inside a character, and only the end of the file ends the records.
            if (converted := decoder.decode(block, not block).encode("utf-8", "replace")) or not block:
                yield converted
        except UnicodeDecodeError as error:
            raise FormatError(
                f"{source.name}: byte {position + error.start:,} is not valid {encoding}, the declared "
                "encoding. Convert the file to UTF-8, or fix its declaration.",
                code="wrong-encoding",
                value=position + error.start,
            ) from None
        position += len(block)


def _encoding(source: Source) -> str | None:
    """The encoding that the file's bytes show or its declaration names, as browsers choose; None for UTF-8."""
    head = source.head()
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    seen = utf16_of(head)
    if seen is not None:
        return seen
    declared = _DECLARATION.match(head.removeprefix(codecs.BOM_UTF8))
    # A byte order mark wins over the declaration, and one that could be read as ASCII is not in UTF-16.
    if declared is None or head.startswith(codecs.BOM_UTF8):
        return None
    name = web_encoding(declared[1].decode())
    if name is None:
        raise FormatError(
            f"{source.name}: unknown encoding {declared[1].decode()!r} in the XML declaration on the first line. "
            "Fix the declaration, or convert the file to UTF-8.",
            code="unknown-encoding",
            value=declared[1].decode(),
        )
    return None if name in ("utf-8", "utf-16", "utf-16-le", "utf-16-be") or declared[1].lower() in _ASCII else name
