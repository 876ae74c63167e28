"""XML files as a stream of records: cut at the bytes of their tags, parsed one by one.

A file of 30,000 citations is never in memory, a record that is not well-formed costs that record
alone, and since each record is parsed without the file's DTD there is no entity to expand and
nothing outside the file to open. results/read_speed.json has its speed beside pubmed_parser's, which parses
incrementally.
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
from lexome.formats.streams import BLOCK_BYTES, HEAD_BYTES, MAX_RECORD_BYTES, Source

# Patterns stop at the next "<", so that no input makes them look at the same bytes again and again.
_TAG = re.compile(rb"</?[A-Za-z_][^<>]*>")
_OPENING = re.compile(rb"<([A-Za-z_][\w.:-]*)([^<>]*)(?<!/)>")
_EMPTY_ROOT = re.compile(rb"<[A-Za-z_][^<>]*/>")
_HIDDEN = re.compile(rb"<!--|<\?|<!DOCTYPE")
_DECLARATION = re.compile(rb"""^\s*<\?xml[^>]*?encoding\s*=\s*["']([A-Za-z0-9._-]+)["']""")
_NAMESPACE = re.compile(rb"""xmlns:[\w.-]+\s*=\s*(?:"[^"]*"|'[^']*')""")
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
    """The bytes of one element, where they stand, and what is wrong with them if they are not whole."""

    tag: bytes
    raw: bytes
    line: int
    problem: BadDocument | None = None
    namespaces: bytes = b""

    def parse(self) -> etree._Element:
        """The element, with comments and processing instructions gone; BadDocument if malformed."""
        if self.problem is not None:
            raise self.problem
        try:
            return etree.fromstring(self.raw, _parser())
        except etree.XMLSyntaxError as error:
            if error.code == etree.ErrorTypes.NS_ERR_UNDEFINED_NAMESPACE:
                return self._parse_namespaced()
            if error.code == etree.ErrorTypes.ERR_UNDECLARED_ENTITY:
                return self._parse_named_characters(error)
            raise _malformed(error, self.line) from None

    def _parse_namespaced(self) -> etree._Element:
        """A record whose prefixes are declared on the file's root."""
        declared = _NAMESPACE.findall(self.namespaces)
        names = {part.partition(b"=")[0].strip() for part in declared}
        declared += [part for part in _COMMON_NAMESPACES if part.partition(b"=")[0] not in names]
        wrapped = b"<wrapper " + b" ".join(declared) + b">" + self.raw + b"</wrapper>"
        try:
            return etree.fromstring(wrapped, _parser())[0]
        except etree.XMLSyntaxError as error:
            raise _malformed(error, self.line) from None

    def _parse_named_characters(self, error: etree.XMLSyntaxError) -> etree._Element:
        """A record that uses names such as &alpha; from a DTD that is not read."""
        resolved = _ENTITY.sub(_character, self.raw)
        if resolved == self.raw:
            raise _malformed(error, self.line) from None
        return Record(self.tag, resolved, self.line, namespaces=self.namespaces).parse()


def records(source: Source, tags: tuple[str, ...], *, header: tuple[str, ...] = ()) -> Iterator[Record]:
    """Each element with one of these tags, in file order.

    Text between two records that is not in a `header` element comes as a Record with a problem, so
    that nothing is passed over. A file that ends early raises FormatError after its last whole record.
    """
    yield from _Cutter(source, tags, header).cut()


@cache
def _parser() -> etree.XMLParser:
    """The one parser: making one takes as long as parsing a citation with it."""
    return etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        remove_comments=True,
        remove_pis=True,
        collect_ids=False,
    )


def _malformed(error: etree.XMLSyntaxError, line: int) -> BadDocument:
    at = line + (error.lineno or 1) - 1
    reason = "too_large" if error.code == etree.ErrorTypes.ERR_RESOURCE_LIMIT else "malformed_xml"
    return BadDocument(reason, f"line {at}: {error.msg}; expected well-formed XML. Mend or refetch this record.")


def _character(found: re.Match[bytes]) -> bytes:
    """The character that a name of HTML's table stands for, escaped where XML needs it."""
    text = html5.get(f"{found[1].decode()};")
    if text is None or found[1] in _PREDEFINED:
        return found[0]
    return html.escape(text, quote=False).encode()


class _Cutter:
    """A window over the file that moves from record to record."""

    def __init__(self, source: Source, tags: tuple[str, ...], header: tuple[str, ...]) -> None:
        self.name = source.name
        self.tags = tags
        self.blocks = _utf8_blocks(source)
        self.open_tag = re.compile(rb"<(" + _either(tags) + rb")(?=[\s>/])")
        self.header = re.compile(rb"<(" + _either(header) + rb")(?=[\s>/])[^<>]*>" if header else rb"(?!)")
        self.buffer = b""
        self.at = 0  # what lies before it in the buffer has been handed on
        self.line = 1
        self.root: bytes | None = None
        self.namespaces = b""

    def cut(self) -> Iterator[Record]:
        """Records and stray content until the file ends."""
        first = True
        while (found := self._find_open()) is not None:
            line, between = self.line, self._take(found)
            if first:
                self._begin(between)
                first = False
            yield from self._stray(between, line)
            yield self._record()
        line, rest = self.line, self._take(self._ahead)
        if first:
            self._require_root(rest)
        yield from self._stray(rest, line)
        if self.root is not None and b"</" + self.root + b">" not in rest:
            raise FormatError(
                f"{self.name}: the file ends at line {self.line} without </{self.root.decode()}>; expected a complete "
                "file. What came before was read; fetch the file again."
            )

    def _grow(self) -> bool:
        """Read on; False at the end of the file."""
        block = next(self.blocks, b"")
        self.buffer = self.buffer[self.at :] + block
        self.at = 0
        return bool(block)

    def _take(self, size: int) -> bytes:
        """Move past this many bytes, counting their lines."""
        taken = self.buffer[self.at : self.at + size]
        self.at += len(taken)
        self.line += taken.count(b"\n")
        return taken

    @property
    def _ahead(self) -> int:
        """How many bytes are at hand."""
        return len(self.buffer) - self.at

    def _find_open(self) -> int | None:
        """How far ahead the next record begins, or None if the file ends first."""
        searched = 0
        while True:
            found = self.open_tag.search(self.buffer, self.at + searched)
            if found is not None:
                return found.start() - self.at
            searched = max(0, self._ahead - _LONGEST_TAG)
            if self._ahead > MAX_RECORD_BYTES:
                raise self._no_records(self.buffer)
            if not self._grow():
                return None

    def _record(self) -> Record:
        """The record that begins here, up to its closing tag."""
        line = self.line
        opened = self.open_tag.match(self.buffer, self.at)
        assert opened is not None  # _find_open has just found it here
        tag = opened[1]
        size = self._size(tag)
        if size == _NEVER:
            problem = BadDocument(
                "truncated", f"line {line}: the file ends inside <{tag.decode()}>. Fetch the file again."
            )
            return Record(tag, self._take(self._ahead), line, problem)
        if size == _TOO_FAR:
            problem = BadDocument(
                "too_large",
                f"line {line}: a <{tag.decode()}> is larger than {MAX_RECORD_BYTES >> 20} MiB; expected one document.",
            )
            return Record(tag, self._skip_large(tag), line, problem)
        return Record(tag, self._take(size), line, namespaces=self.namespaces)

    def _size(self, tag: bytes) -> int:
        """The record's length, _NEVER if the file ends first, _TOO_FAR if it is too long."""
        opening = self._distance(b">", 0)
        if opening < 0:
            return opening
        if self.buffer[self.at + opening - 2] == ord("/"):
            return opening
        return self._distance(b"</" + tag + b">", opening)

    def _distance(self, mark: bytes, searched: int) -> int:
        """How far ahead the end of the next mark is."""
        while (found := self.buffer.find(mark, self.at + searched)) < 0:
            searched = max(searched, self._ahead - len(mark))
            if self._ahead > MAX_RECORD_BYTES:
                return _TOO_FAR
            if not self._grow():
                return _NEVER
        return found - self.at + len(mark)

    def _skip_large(self, tag: bytes) -> bytes:
        """Pass over a record that is too large, to its closing tag; its beginning is returned."""
        start = self.buffer[self.at : self.at + 1000]
        closing = b"</" + tag + b">"
        while (found := self.buffer.find(closing, self.at)) < 0:
            self._take(max(0, self._ahead - len(closing)))
            if not self._grow():
                return start
        self._take(found - self.at + len(closing))
        return start

    def _begin(self, prolog: bytes) -> None:
        """Learn the root element and the namespaces that it declares."""
        opened = _OPENING.findall(self._outside(prolog))
        self.root = opened[0][0] if opened else None
        self.namespaces = b" ".join(part for _, attributes in opened for part in _NAMESPACE.findall(attributes))

    def _stray(self, between: bytes, line: int) -> Iterator[Record]:
        """A Record with a problem, if there is text where no text belongs."""
        if not between or between.isspace():
            return
        text = _TAG.sub(b"", self._outside(between)).strip()
        if text:
            seen = shorten(text.decode(errors="replace"))
            message = f"line {line}: {seen!r} stands outside any <{self.tags[0]}>. A tag there may be misspelt."
            yield Record(b"", between, line, BadDocument("outside_record", message))

    def _require_root(self, content: bytes) -> None:
        """Raise unless a file without records is at least XML with a root that could hold them."""
        self._begin(content)
        closed = self.root is not None and b"</" + self.root + b">" in content
        outside = self._outside(content)
        if not (closed or _EMPTY_ROOT.search(outside)) or _TAG.sub(b"", outside).strip():
            raise self._no_records(content)

    def _outside(self, raw: bytes) -> bytes:
        """What is left of the bytes without comments, instructions, DOCTYPE and header elements."""
        return _cut_out(_cut_out(raw, _HIDDEN, _hidden_end), self.header, _element_end)

    def _no_records(self, content: bytes) -> FormatError:
        found = _OPENING.search(self._outside(content[:BLOCK_BYTES]))
        seen = f"its first element is <{found[1].decode(errors='replace')}>" if found else "it has no XML element"
        if not content.strip():
            seen = "it is empty"
        return FormatError(
            f"{self.name}: there is no <{self.tags[0]}> in it; {seen}. If it is of another format, name that with "
            "--from (in Python: format=)."
        )


def _cut_out(raw: bytes, opening: re.Pattern[bytes], end_of: Callable[[bytes, re.Match[bytes]], int]) -> bytes:
    """The bytes without each stretch from an opening to its end; one that never ends stays."""
    kept: list[bytes] = []
    at = 0
    while (found := opening.search(raw, at)) is not None:
        end = end_of(raw, found)
        if end < 0:
            break
        kept.append(raw[at : found.start()])
        at = end
    kept.append(raw[at:])
    return b"".join(kept)


def _hidden_end(raw: bytes, found: re.Match[bytes]) -> int:
    """Where a comment, an instruction or a DOCTYPE with its internal subset ends, or -1."""
    if found[0] != b"<!DOCTYPE":
        closing = b"-->" if found[0] == b"<!--" else b"?>"
        end = raw.find(closing, found.end())
        return end + len(closing) if end >= 0 else -1
    end, subset = raw.find(b">", found.end()), raw.find(b"[", found.end())
    if 0 <= subset < end:
        inner = raw.find(b"]", subset)
        end = raw.find(b">", inner) if inner >= 0 else -1
    return end + 1 if end >= 0 else -1


def _element_end(raw: bytes, found: re.Match[bytes]) -> int:
    """Where a header element ends, or -1."""
    if found[0].endswith(b"/>"):
        return found.end()
    closing = b"</" + found[1] + b">"
    end = raw.find(closing, found.end())
    return end + len(closing) if end >= 0 else -1


def _either(names: tuple[str, ...]) -> bytes:
    return b"|".join(re.escape(name.encode()) for name in names)


def _utf8_blocks(source: Source) -> Iterator[bytes]:
    """The file in blocks of UTF-8, whatever encoding its BOM or declaration names."""
    encoding = _encoding(source)
    if encoding is None:
        small = size = min(HEAD_BYTES, BLOCK_BYTES)
        block = source.stream.read1(size).removeprefix(codecs.BOM_UTF8)
        while block:
            yield block
            # To ask for a large block where little is left takes longer than all else that a small file needs.
            size = min(2 * size, BLOCK_BYTES) if len(block) == size else small
            block = source.stream.read1(size)
        return
    decoder = codecs.getincrementaldecoder(encoding)()
    position = 0
    while block := source.stream.read1(BLOCK_BYTES):
        try:
            yield decoder.decode(block).encode()
        except UnicodeDecodeError as error:
            raise FormatError(
                f"{source.name}: near byte {position + error.start:,} the content is not {encoding}, which the file "
                "says it is. Convert it to UTF-8, or mend its declaration."
            ) from None
        position += len(block)


def _encoding(source: Source) -> str | None:
    """The declared encoding where it is not UTF-8."""
    head = source.head()
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    declared = _DECLARATION.match(head.removeprefix(codecs.BOM_UTF8))
    if declared is None:
        return None
    try:
        name = codecs.lookup(declared[1].decode()).name
    except LookupError:
        raise FormatError(
            f"{source.name}: it says its encoding is {declared[1].decode()!r}, which is none that is known. "
            "Mend the XML declaration on its first line."
        ) from None
    return None if name in ("utf-8", "ascii") else name
