"""Text encodings: what a file declares, what its bytes show, and what neither is text.

Files of text are UTF-8 unless an option says otherwise. Two others are told by their bytes and read with a note:
UTF-16, and Windows-1252 where a file is not UTF-8 from its first character beyond ASCII on. Binary files are named for
what they are, and never decoded.
"""

import codecs
import io
import re
from collections.abc import Container
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

from lexome.errors import FormatError
from lexome.formats.streams import BLOCK_BYTES, HEAD_BYTES, Source
from lexome.formats.tally import Tally

if TYPE_CHECKING:
    from lexome.formats.registry import Format

# Encodings of the web that every byte sequence of theirs can be decoded from in time linear in its length; Python has
# others, such as punycode, that take quadratic time, and some, such as zip, that are no encodings of text.
_ENCODINGS = frozenset(
    (
        "utf-8", "ascii", "utf-16", "utf-16-le", "utf-16-be", "gb18030", "gbk", "gb2312", "big5", "big5hkscs", "euc_jp",
        "shift_jis", "cp932", "euc_kr", "cp949", "iso2022_jp", "koi8-r", "koi8-u", "mac-roman", "mac-cyrillic",
        "tis-620",
        *(f"iso8859-{number}" for number in (*range(1, 12), *range(13, 17))),
        *(f"cp{number}" for number in (437, 850, 852, 866, 874, *range(1250, 1259))),
    )
)  # fmt: skip

_MAGIC = (
    (b"%PDF-", "a PDF", "pdf"),
    (b"{\\rtf", "an RTF document", None),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office document (.doc, .xls or .ppt)", None),
    (b"PK\x03\x04", "a zip archive or an Office document (.docx, .xlsx)", None),
    (b"\x1f\x8b", "gzip-compressed", None),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed", None),
    (b"\xfd7zXZ\x00", "xz-compressed", None),
    (b"BZh", "bzip2-compressed", None),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", None),
    (b"Rar!", "a RAR archive", None),
    (b"\x89PNG\r\n\x1a\n", "a PNG image", None),
    (b"\xff\xd8\xff", "a JPEG image", None),
    (b"GIF8", "a GIF image", None),
    (b"II*\x00", "a TIFF image", None),
    (b"MM\x00*", "a TIFF image", None),
    (b"PAR1", "a Parquet file", "parquet"),
    (b"SQLite format 3\x00", "an SQLite database", None),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", None),
    (b"\x7fELF", "a program", None),
    (b"MZ\x90\x00", "a program", None),
)
# Control characters that no text has; MEDLINE and CoNLL files of the 1990s have some others.
_CONTROLS = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f]")
_UNDEFINED = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")


def web_encoding(label: str) -> str | None:
    """Python's name of an encoding that a file may declare; None for others.

    As in browsers, latin-1 and ASCII are Windows-1252, of which they are parts.
    """
    try:
        name = codecs.lookup(label).name
    except (LookupError, ValueError):
        return None
    if name in ("ascii", "iso8859-1"):
        return "cp1252"
    return name if name in _ENCODINGS else None


def describe_binary(head: bytes) -> tuple[str, str | None] | None:
    """What a file is that is not text, by its first bytes, and the format that reads it; None for text."""
    for magic, what, format in _MAGIC:
        if head.startswith(magic) and not (magic == b"BZh" and head[3:4] not in b"123456789"):
            return what, format
    if head[257:262] == b"ustar":
        return "a tar archive", None
    sample = head[:4096]
    if utf16_of(head) is not None or len(_CONTROLS.findall(sample)) <= max(2, len(sample) // 100):
        return None
    try:
        # Some text has control characters; what is binary is hardly ever valid UTF-8.
        codecs.utf_8_decode(sample, "strict", False)
    except UnicodeDecodeError:
        return "binary", None
    return ("binary", None) if sample.count(0) > len(sample) // 2 else None


def utf16_of(head: bytes) -> str | None:
    """The UTF-16 encoding of a file, by its byte order mark or by the zero bytes of Latin text."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    sample = head[:1024]
    even, odd = sample[::2].count(0), sample[1::2].count(0)
    half = len(sample) // 2
    if half >= 4 and odd > 0.7 * half and not even:
        return "utf-16-le"
    return "utf-16-be" if half >= 4 and even > 0.7 * half and not odd else None


def require_text(source: Source, format: str) -> None:
    """FormatError that names what the file is, if it is not text."""
    found = describe_binary(source.head())
    if found is None:
        return
    what, reader = found
    suffix = "docx or --from xlsx" if what.startswith("a zip") else reader
    advice = f"Read it with --from {suffix} (in Python: format=)." if suffix else "Convert it to text first."
    raise FormatError(
        f"{source.name}: the file is {what}, not text, which the format {format!r} is made of. {advice}",
        code="not-text",
        value=what,
    )


def prepare_text(source: Source, format: "Format", tally: Tally, options: Container[str]) -> Source:
    """The source as the reader of a format takes it: its text in UTF-8 unless `options` names its encoding.

    FormatError if the format is one of text and the file is not.
    """
    if format.binary:
        return source
    require_text(source, format.name)
    if "encoding" in options or not format.is_recoded:
        return source
    return as_utf8(source, tally, line_ends=not format.grouped)


def as_utf8(source: Source, tally: Tally, *, line_ends: bool) -> Source:
    """The source with its text in UTF-8, converted while it is read.

    With `line_ends`, carriage returns alone, of files from old Macs, become line feeds.
    """
    head = source.head()
    encoding = utf16_of(head)
    returns = line_ends and encoding is None and b"\r" in head and b"\n" not in head
    if encoding is None and head.isascii() and len(head) < HEAD_BYTES and not returns:
        return source
    raw = _Transcoder(source, tally, encoding, returns)
    stream = cast(io.BufferedReader, io.BufferedReader(raw, HEAD_BYTES))
    return replace(source, stream=stream, path=None)


class _Transcoder(io.RawIOBase):
    """A stream of UTF-8 from one in UTF-8, UTF-16 or Windows-1252, as the first bytes beyond ASCII decide."""

    def __init__(self, source: Source, tally: Tally, encoding: str | None, returns: bool) -> None:
        self._source, self._tally, self._encoding, self._returns = source, tally, encoding, returns
        self._decoder = codecs.getincrementaldecoder(encoding)() if encoding is not None else None
        self._decided = encoding is not None
        self._pending = b""
        self._held = b""  # the beginning of a character at the end of an undecided block
        if encoding is not None:
            tally.note("file in UTF-16 read as such")
        if returns:
            tally.note("carriage returns read as line breaks")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]  # io's own protocol
        while not self._pending:
            block = self._source.stream.read1(BLOCK_BYTES)
            self._pending = self._convert(block)
            if not block:
                break
        count = min(len(view), len(self._pending))
        view[:count] = self._pending[:count]
        self._pending = self._pending[count:]
        return count

    def _convert(self, block: bytes) -> bytes:
        final = not block
        if not self._decided and not (block.isascii() and not self._held):
            block, self._held = self._held + block, b""
            self._decide(block, final)
            if not self._decided:
                self._held, block = block, b""
        if self._decoder is not None:
            try:
                block = self._decoder.decode(block, final).encode("utf-8", "surrogatepass")
            except UnicodeDecodeError as error:
                raise FormatError(
                    f"{self._source.name}: the file begins as {self._encoding}, but has a byte sequence that is not "
                    f"({error.reason}). Convert the file to UTF-8.",
                    code="wrong-encoding",
                    value=self._encoding,
                ) from None
        return block.replace(b"\r", b"\n") if self._returns else block

    def _decide(self, block: bytes, final: bool) -> None:
        """UTF-8 if the first characters beyond ASCII are; else Windows-1252 unless it has bytes that no text has."""
        try:
            valid = codecs.utf_8_decode(block, "strict", final)[1]
            # Undecided while the block has only the beginning of a character.
            self._decided = (valid > 0 and not block[:valid].isascii()) or final
            return
        except UnicodeDecodeError as error:
            self._decided = True
            if not block[: error.start].isascii() or _UNDEFINED.search(block) or _CONTROLS.search(block):
                return
        self._encoding = "cp1252"
        self._decoder = partial(codecs.getincrementaldecoder("cp1252"), "replace")()
        self._tally.note("file that is not UTF-8 read as Windows-1252")
