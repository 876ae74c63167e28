"""Input streams: files, archive members and standard input, decompressed, and the encoding of their text.

Archive members are streamed, never extracted; links inside a tar are skipped and counted.
"""

import codecs
import gzip
import io
import lzma
import os
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, BinaryIO, cast

from lexome.errors import BadDocument, FormatError, UsageError
from lexome.files import fingerprint, zstd
from lexome.formats.tally import Tally

if TYPE_CHECKING:
    from lexome.formats import Format

COMPRESSIONS = (".gz", ".xz", ".zst")
ARCHIVES = (".tar", ".tgz", ".tar.gz", ".tar.xz", ".tar.zst", ".zip")
# The end record of a zip file and the longest comment.
_MAX_ZIP_END = 22 + (1 << 16)
HEAD_BYTES, BLOCK_BYTES = 1 << 16, 1 << 20
# The note for hidden files in a folder or archive, such as .DS_Store.
HIDDEN_NOTE = "hidden file or folder skipped"
# Read size. A larger buffer costs more than parsing a small file does.
DISK_BYTES = 1 << 17
# Longer lines or records are not documents: the longest PMC article is under 20 MB.
MAX_RECORD_BYTES = 64 << 20
# JSON collections (BioC, SQuAD, BioASQ) are parsed in memory; this bounds it.
MAX_WHOLE_BYTES = 512 << 20


@dataclass(frozen=True)
class Source:
    """The decompressed bytes of one file, and its name for messages.

    `path` is set for uncompressed files, for formats that need random access; `member` for files in an archive.
    `record_bytes` is the limit of one document in formats that build it from lines, `cpu_seconds` a lower limit for
    formats that are extracted in a separate process.
    """

    name: str
    stream: io.BufferedReader
    path: Path | None = None
    member: str | None = None
    record_bytes: int = MAX_RECORD_BYTES
    cpu_seconds: int | None = None

    @property
    def location(self) -> str:
        """The file's path as text, with an archive as a folder."""
        path = self.name if self.member is None else f"{self.name[: -len(self.member) - 1]}/{self.member}"
        return printable_name(path)

    @cached_property
    def stem(self) -> str:
        """The file name without folders, compression and extension: the prefix of generated ids."""
        return PurePosixPath(uncompressed_name(self.location)).stem

    @property
    def extension(self) -> str:
        """The extension without compression, in lower case: ".xml" for a.xml.gz."""
        return PurePosixPath(uncompressed_name(self.location)).suffix.lower()

    def head(self) -> bytes:
        """The first bytes, without consuming them."""
        return self.stream.peek(HEAD_BYTES)[:HEAD_BYTES]

    def lines(self, tally: Tally | None = None) -> Iterator[tuple[int, bytes]]:
        """Numbered lines without line ending, split at \\n only; a preceding \\r and a leading BOM are removed.

        U+0085, U+2028 and form feeds are text. A line that is too long raises FormatError; with a tally (for formats
        of one document per line) it is rejected and skipped.
        """
        number = 0
        while line := self.stream.readline(MAX_RECORD_BYTES):
            number += 1
            if len(line) == MAX_RECORD_BYTES and not line.endswith(b"\n"):
                if tally is None:
                    advice = "Check that the file has the format you named."
                    raise too_large(self.name, f"line {number}", advice, value=number)
                problem = BadDocument("too_large", f"the line is larger than {MAX_RECORD_BYTES >> 20} MiB.")
                tally.reject(problem, where=f"{self.name}, line {number}")
                while (rest := self.stream.readline(BLOCK_BYTES)) and not rest.endswith(b"\n"):
                    pass
                continue
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            yield number, line.removesuffix(b"\n").removesuffix(b"\r")

    def read(self) -> bytes:
        """The whole content, for formats that cannot be streamed."""
        content = self.read_to(MAX_WHOLE_BYTES)
        if len(content) > MAX_WHOLE_BYTES:
            advice = "This format is read into memory: split the file."
            raise too_large(self.name, "the file", advice, limit=MAX_WHOLE_BYTES, value=self.name)
        return content

    def read_to(self, limit: int) -> bytes:
        """The rest of the content, or more bytes than the limit; read(limit) would reserve the limit at once."""
        blocks: list[bytes] = []
        size = 0
        while size <= limit and (block := self.stream.read1(BLOCK_BYTES)):
            blocks.append(block)
            size += len(block)
        return b"".join(blocks)


_ARRAY_OF_OBJECTS = re.compile(rb"(?:\xef\xbb\xbf)?\s*\[\s*\{")


def is_json_array(head: bytes) -> bool:
    """Whether a file that begins with these bytes is a JSON array of objects."""
    return _ARRAY_OF_OBJECTS.match(head) is not None


def empty_file(source: Source) -> FormatError:
    """The error for a file without content."""
    return FormatError(f"{source.name}: the file is empty; expected documents.", code="empty-file", value=source.name)


def too_large(name: str, what: str, advice: str, *, limit: int = MAX_RECORD_BYTES, value: object = None) -> FormatError:
    """The error for content beyond a size limit."""
    return FormatError(f"{name}: {what} is larger than {limit >> 20} MiB. {advice}", code="too-large", value=value)


def truncated(name: str, problem: str, *, value: object = None) -> FormatError:
    """The error for a file whose end is missing or damaged."""
    return FormatError(
        f"{name}: {problem}. Everything before was read; download the file again.", code="truncated", value=value
    )


def pair_files(
    sources: Iterable[Source], parts: tuple[str, str], key_of: Callable[[Source], tuple[str, str] | None], tally: Tally
) -> Iterator[tuple[str, bytes | None, bytes | None]]:
    """Keys with the contents of pairs of files, such as a text and its annotations, in any order.

    `key_of` returns a file's key and which of the two parts it is, or None for a file to skip. Files without a
    counterpart come last, with None in its place.
    """
    waiting: dict[str, tuple[str, bytes]] = {}
    for source in sources:
        key_and_part = key_of(source)
        if key_and_part is None:
            tally.note(f"file that is neither {parts[0]} nor {parts[1]} skipped")
            continue
        key, part = key_and_part
        content = source.read()
        if waiting.get(key, ("",))[0] == part:
            duplicate = BadDocument("duplicate_file", f"second {part} file of this name; expected one.", value=key)
            tally.reject(duplicate, where=source.name, raw=content)
        elif key in waiting:
            other = waiting.pop(key)[1]
            yield (key, content, other) if part == parts[0] else (key, other, content)
        else:
            waiting[key] = (part, content)
    for key, (part, content) in waiting.items():
        yield (key, content, None) if part == parts[0] else (key, None, content)


def decode(raw: bytes, encoding: str = "utf-8") -> str:
    """The decoded text; BadDocument names the first byte that is invalid in the encoding."""
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise BadDocument(
            "wrong_encoding",
            f"byte {error.start} is 0x{raw[error.start]:02x}, which is invalid in {encoding}. "
            "Set the encoding: `lexome convert IN OUT.jsonl --set encoding=latin-1`; in Python, encoding='latin-1'.",
            value=error.start,
        ) from None
    except (LookupError, UnicodeError):
        # Python also has codecs that are not for text, such as zip, or not for files, such as punycode.
        message = f"unknown encoding {encoding!r}; expected one such as utf-8 or latin-1."
        raise UsageError(message, code="unknown-encoding", value=encoding) from None


def uncompressed_name(name: str) -> str:
    """A file name without compression suffix, with forward slashes; outside Windows, a backslash is a character."""
    name = name.replace(os.sep, "/")
    suffix = next((suffix for suffix in COMPRESSIONS if name.lower().endswith(suffix)), "")
    return name[: len(name) - len(suffix)]


def printable_name(name: str) -> str:
    """A file name as text; bytes that are not UTF-8, which Linux allows, become escapes such as \\xff."""
    return os.fsencode(name).decode(errors="backslashreplace")


# File systems take names of 255 bytes; an output has an extension as well, and its draft the host and the process.
MAX_NAME_BYTES, NAME_DIGITS = 180, 12


def output_name(stem: str) -> str:
    """The name of an output for an input's: as text, and the end of a long one, such as a title, as a hash."""
    name = printable_name(stem)
    if len(name.encode()) <= MAX_NAME_BYTES:
        return name
    start = name.encode()[: MAX_NAME_BYTES - 1 - NAME_DIGITS].decode(errors="ignore")
    return f"{start}-{fingerprint(name)[:NAME_DIGITS]}"


def is_archive(name: str) -> bool:
    """True for tar and zip files, by extension."""
    return name.lower().endswith(ARCHIVES)


class CountingReader(io.RawIOBase):
    """A raw stream that counts the bytes read in a tally, for the progress bar."""

    def __init__(self, raw: BinaryIO, tally: Tally) -> None:
        self._raw = raw
        self._tally = tally

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        # Directly into the buffer: allocating a block per call takes a third of the time of reading a small file.
        count = cast(io.RawIOBase, self._raw).readinto(buffer) or 0  # type: ignore[arg-type]  # io's own protocol
        self._tally.bytes_read += count
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


DECOMPRESSION_ERRORS = (
    EOFError, OSError, zlib.error, lzma.LZMAError, zstd.ZstdError, tarfile.ReadError, zipfile.BadZipFile
)  # fmt: skip


class DecompressingReader(io.RawIOBase):
    """A decompressing stream whose errors name the file, the position and what to do."""

    def __init__(self, stream: io.BufferedIOBase, name: str) -> None:
        self._stream = stream
        self._name = name
        self._position = 0
        self._failure: Exception | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]  # io's own protocol
        filled = 0
        while filled < len(view) and (count := self._next(view[filled:], filled)):
            filled += count
        self._position += filled
        return filled

    def _next(self, view: memoryview, pending: int) -> int:
        """Bytes read into the view; an error is held back until the data before it has been returned."""
        if self._failure is None:
            try:
                # readinto1 returns the data before the damage; a full read would lose it.
                return self._stream.readinto1(view)
            except DECOMPRESSION_ERRORS as error:
                self._failure = error
        if pending:
            return 0
        problem = f"the compressed data is truncated or damaged after {self._position:,} bytes of content"
        raise truncated(self._name, f"{problem} ({self._failure})", value=self._position) from self._failure

    def close(self) -> None:
        self._stream.close()
        super().close()


def open_sources(path: Path, tally: Tally) -> Iterator[Source]:
    """The file itself, or each file inside an archive."""
    if is_archive(path.name):
        yield from (_zip_members if path.name.lower().endswith(".zip") else _tar_members)(path, tally)
        return
    with _open(path, tally) as raw, _decompress(raw, str(path)) as stream:
        yield Source(str(path), stream, None if path.name.lower().endswith(COMPRESSIONS) else path)


def open_stream(stream: BinaryIO, name: str, tally: Tally) -> Source:
    """A Source from an open stream, such as standard input."""
    raw = _buffer(CountingReader(stream, tally), HEAD_BYTES)
    decompressed = _decompressor(raw, name)
    if decompressed is raw:
        return Source(name, raw)
    return Source(name, _buffer(DecompressingReader(decompressed, name), HEAD_BYTES))


def _buffer(raw: io.RawIOBase, size: int) -> io.BufferedReader:
    return cast(io.BufferedReader, io.BufferedReader(raw, size))


@contextmanager
def _open(path: Path, tally: Tally) -> Iterator[io.BufferedReader]:
    try:
        raw = path.open("rb", buffering=0)
    except OSError as error:
        raise FormatError(
            f"{path}: cannot be opened ({error.strerror}).", code="unreadable-file", value=path
        ) from error
    with _buffer(CountingReader(cast(BinaryIO, raw), tally), DISK_BYTES) as counted:
        yield counted


@contextmanager
def _decompress(raw: io.BufferedIOBase, name: str) -> Iterator[io.BufferedReader]:
    with _buffer(DecompressingReader(_decompressor(raw, name), name), HEAD_BYTES) as buffered:
        yield buffered


def _decompressor(raw: io.BufferedIOBase, name: str) -> io.BufferedIOBase:
    """The decompressed stream, by the file's extension or, without one, its first bytes."""
    lower = name.lower()
    head = raw.peek(6)[:6] if isinstance(raw, io.BufferedReader) else b""
    if lower.endswith((".gz", ".tgz")) or head.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=raw)
    if lower.endswith(".xz") or head == b"\xfd7zXZ\x00":
        return lzma.LZMAFile(cast(BinaryIO, raw))
    if lower.endswith(".zst") or head.startswith(b"\x28\xb5\x2f\xfd"):
        return cast(io.BufferedIOBase, zstd.ZstdFile(cast(BinaryIO, raw)))
    return raw


def _is_skipped(name: str, tally: Tally) -> bool:
    """Whether an archive member is hidden or macOS metadata; such files are counted."""
    parts = PurePosixPath(name).parts
    hidden = any(part == "__MACOSX" or (part.startswith(".") and part != "..") for part in parts)
    if hidden:
        tally.note(HIDDEN_NOTE)
    return hidden


def _tar_members(path: Path, tally: Tally) -> Iterator[Source]:
    with _open(path, tally) as raw, _decompress(raw, str(path)) as stream:
        try:
            for member in tar_members(stream, tally):
                if not _is_skipped(member.name, tally):
                    name = f"{path}!{member.name}"
                    with _decompress(member.content, name) as content:
                        yield Source(name, content, member=member.name)
        except tarfile.TarError as error:
            raise truncated(str(path), f"the archive is truncated or damaged ({error})", value=path) from error


def _zip_members(path: Path, tally: Tally) -> Iterator[Source]:
    with _open(path, tally):
        pass  # raises the same error as for other files that cannot be opened
    try:
        with zipfile.ZipFile(path) as archive:
            _require_all_entries(path, len(archive.infolist()))
            for member in archive.infolist():
                # Opening also checks that the member's own header has the name in the directory.
                opened = cast(io.BufferedIOBase, archive.open(member))
                if member.is_dir() or _is_skipped(member.filename, tally):
                    opened.close()
                    continue
                inside = _member_name(member)
                name = f"{path}!{inside}"
                with opened, _decompress(opened, name) as content:
                    yield Source(name, content, member=inside)
        tally.bytes_read += path.stat().st_size
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, ValueError, LookupError, OSError) as error:
        # Members that are encrypted or use an unsupported compression; names that are not in their encoding; offsets
        # outside the file.
        message = f"{path}: not a readable zip file ({error}). Download it again, or unpack it first."
        raise FormatError(message, code="bad-archive", value=path) from error


def _member_name(member: zipfile.ZipInfo) -> str:
    """The path of a file in a zip archive, where the program that wrote it was not quite to the standard."""
    name = member.filename
    # Without this flag names should be in CP437, but macOS and Info-ZIP write UTF-8.
    if not member.flag_bits & 0x800 and not name.isascii():
        with suppress(UnicodeError):
            name = name.encode("cp437").decode("utf-8")
    # Some programs for Windows write backslashes between folders.
    return name.replace("\\", "/")


def _require_all_entries(path: Path, entries: int) -> None:
    """BadZipFile if the directory has fewer entries than the end of the file says: zipfile does not check."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _MAX_ZIP_END))
        tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    declared = int.from_bytes(tail[at + 10 : at + 12], "little")
    # 65,535 means that the number is stored elsewhere, as in archives of more members.
    if at < 0 or (declared != 0xFFFF and declared != entries & 0xFFFF):
        raise zipfile.BadZipFile(f"its directory has {entries:,} entries, its end says {declared:,}")


# Members of a tar archive, read strictly as a stream
#
# Python's tarfile takes a damaged header after the first member for the end of the archive, so that the documents after
# it are lost silently; reads extended headers of any size into memory; and trusts the sizes of sparse files. Here
# an archive ends with its end mark, a header that is not valid is an error, extended headers are bounded, and sparse
# files are skipped and counted. tarfile still parses the fields of a header.


BLOCK = 512
# The maximum size of an extended header, which holds names and times; the longest path of Linux has 4,096 bytes.
MAX_HEADER_BYTES = 1 << 20
# No file system holds a larger file.
MAX_MEMBER_BYTES = 1 << 60
_EXTENDED, _GLOBAL = (b"x", b"X"), b"g"
_LONG_NAME, _LONG_LINK = b"L", b"K"
_FILES = (b"0", b"\x00", b"7")
_WITHOUT_CONTENT = (b"1", b"2", b"3", b"4", b"5", b"6")
_ZEROS = bytes(BLOCK)


class TarDamaged(tarfile.ReadError):
    """A tar archive that is truncated or damaged."""


@dataclass(frozen=True, slots=True)
class Member:
    """A regular file of an archive: its name, and its content, which ends with the next member."""

    name: str
    content: io.BufferedIOBase


def tar_members(stream: BinaryIO, tally: Tally) -> Iterator[Member]:
    """The regular files of an archive; others are skipped and counted. TarDamaged if the archive is not complete."""
    long_name: str | None = None
    pax: dict[str, bytes] = {}
    first = True
    while True:
        block = _exactly(stream, BLOCK, "the end mark is missing" if not first else "it has no header")
        if block == _ZEROS:
            while rest := stream.read(1 << 16):
                if rest.count(0) < len(rest):
                    raise TarDamaged("there is content after its end mark")
            return
        try:
            header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except (tarfile.HeaderError, ValueError, OverflowError) as error:
            raise TarDamaged(f"a header is not valid: {error}") from None
        first = False
        if header.size < 0 or header.size > MAX_MEMBER_BYTES:
            raise TarDamaged(f"a member claims {header.size:,} bytes")
        if header.type in (*_EXTENDED, _GLOBAL, _LONG_NAME, _LONG_LINK):
            if header.size > MAX_HEADER_BYTES:
                raise TarDamaged(f"an extended header claims {header.size:,} bytes")
            content = _exactly(stream, header.size, "it ends inside a header")
            _exactly(stream, -header.size % BLOCK, "it ends inside a header")
            if header.type == _LONG_NAME:
                long_name = content.rstrip(b"\x00").decode("utf-8", "surrogateescape")
            elif header.type in _EXTENDED:
                pax = _pax_records(content)
            continue
        name = pax.get("path", b"").decode("utf-8", "surrogateescape") or long_name or header.name
        size = _pax_size(pax["size"]) if "size" in pax else header.size
        is_sparse = header.type == b"S" or any(key.startswith("GNU.sparse.") for key in pax)
        long_name, pax = None, {}
        # Links, devices and folders have no content, whatever size they claim.
        size = 0 if header.type in _WITHOUT_CONTENT else size
        content_stream = _Content(stream, size)
        if is_sparse:
            tally.note("sparse file in an archive skipped")
            _skip_sparse_headers(stream, block)
        elif header.type in _FILES and not header.name.endswith("/"):
            yield Member(name, io.BufferedReader(content_stream))
        elif header.type != b"5" and not header.name.endswith("/"):
            tally.note("archive member that is not a regular file skipped")
        content_stream.skip()
        _exactly(stream, -size % BLOCK, "it ends inside a member")


class _Content(io.RawIOBase):
    """The content of one member; TarDamaged if the archive ends before it does."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self._stream, self._left = stream, size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        view = memoryview(buffer)  # type: ignore[arg-type]  # io's own protocol
        block = self._stream.read(min(len(view), self._left)) if self._left else b""
        if self._left and not block:
            raise TarDamaged("it ends inside a member")
        view[: len(block)] = block
        self._left -= len(block)
        return len(block)

    def skip(self) -> None:
        """Read the rest."""
        while self._left:
            block = self._stream.read(min(self._left, 1 << 16))
            if not block:
                raise TarDamaged("it ends inside a member")
            self._left -= len(block)


def _exactly(stream: BinaryIO, size: int, problem: str) -> bytes:
    content = bytearray()
    while len(content) < size and (block := stream.read(size - len(content))):
        content += block
    if len(content) < size:
        raise TarDamaged(problem)
    return bytes(content)


def _skip_sparse_headers(stream: BinaryIO, header: bytes) -> None:
    """Read the further headers of an old GNU sparse file, whose number no valid file leaves open."""
    extended = header[156:157] == b"S" and header[482] == 1
    while extended:
        extended = _exactly(stream, BLOCK, "it ends inside a header")[504] == 1


def _pax_records(content: bytes) -> dict[str, bytes]:
    """The records "length key=value\\n" of an extended header."""
    records: dict[str, bytes] = {}
    at = 0
    while at < len(content) and content[at] != 0:
        length, blank, _ = content[at : at + 24].partition(b" ")
        if not blank or not length.isdigit() or not len(length) < int(length) <= len(content) - at:
            raise TarDamaged("an extended header is not valid")
        record = content[at + len(length) + 1 : at + int(length)]
        key, equals, value = record.partition(b"=")
        if not equals or not value.endswith(b"\n"):
            raise TarDamaged("an extended header is not valid")
        records[key.decode("utf-8", "backslashreplace")] = value[:-1]
        at += int(length)
    return records


def _pax_size(value: bytes) -> int:
    if not value.isdigit() or len(value) > 19 or int(value) > MAX_MEMBER_BYTES:
        raise TarDamaged(f"a member claims {value[:40].decode(errors='replace')} bytes")
    return int(value)


# Text encodings: what a file declares, what its bytes show, and what neither is text
#
# Files of text are UTF-8 unless an option says otherwise. Two others are recognized by their bytes and noted:
# UTF-16, and Windows-1252 if a file is not UTF-8 from its first character beyond ASCII on. Binary files are named
# for what they are, and never decoded.


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

_OLD_OFFICE = "an old Office document (.doc, .xls or .ppt)"
_ZIP = "a zip archive or an Office document (.docx, .xlsx)"
_MAGIC = (
    (b"%PDF-", "a PDF", "pdf"),
    (b"{\\rtf", "an RTF document", None),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", _OLD_OFFICE, None),
    (b"PK\x03\x04", _ZIP, None),
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

    As in browsers, latin-1 and ASCII are read as Windows-1252, which extends them.
    """
    try:
        name = codecs.lookup(label).name
    except (LookupError, ValueError):
        return None
    if name in ("ascii", "iso8859-1"):
        return "cp1252"
    return name if name in _ENCODINGS else None


@dataclass(frozen=True, slots=True)
class Binary:
    """The kind of a file that is not text, and the format that reads it, if one does."""

    what: str
    format: str | None = None

    @property
    def advice(self) -> str:
        """What to do with the file."""
        if self.what == _OLD_OFFICE:
            return "Open it in Word, Excel or LibreOffice, and save it as .docx, .xlsx or PDF."
        format = "docx or --from xlsx" if self.what == _ZIP else self.format
        return f"Read it with --from {format} (in Python: format=)." if format else "Convert it to text first."


def describe_binary(head: bytes) -> Binary | None:
    """The kind of a file that is not text, by its first bytes; None for text."""
    for magic, what, format in _MAGIC:
        if head.startswith(magic) and not (magic == b"BZh" and head[3:4] not in b"123456789"):
            return Binary(what, format)
    if head[257:262] == b"ustar":
        return Binary("a tar archive")
    sample = head[:4096]
    if utf16_of(head) is not None or len(_CONTROLS.findall(sample)) <= max(2, len(sample) // 100):
        return None
    try:
        # Some texts have control characters, but binary data is hardly ever valid UTF-8.
        codecs.utf_8_decode(sample, "strict", False)
    except UnicodeDecodeError:
        return Binary("binary")
    return Binary("binary") if sample.count(0) > len(sample) // 2 else None


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
    binary = describe_binary(source.head())
    if binary is None:
        return
    raise FormatError(
        f"{source.name}: the file is {binary.what}, not text, which the format {format!r} is made of. {binary.advice}",
        code="not-text",
        value=binary.what,
    )


def prepare_text(source: Source, format: "Format", tally: Tally, options: Container[str]) -> Source:
    """The source as the reader of a format expects it: its text in UTF-8 unless `options` names its encoding.

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

    With `line_ends`, bare carriage returns, as in files of old Macs, become line feeds.
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
        self._partial_character = b""  # the beginning of a character at the end of an undecided block
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
        if not self._decided and not (block.isascii() and not self._partial_character):
            block, self._partial_character = self._partial_character + block, b""
            self._decide(block, final)
            if not self._decided:
                self._partial_character, block = block, b""
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
