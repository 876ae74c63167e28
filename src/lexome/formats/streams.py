"""Input streams: files, archive members and standard input, decompressed.

Archive members are streamed, never extracted; links inside a tar are skipped and counted.
"""

import gzip
import io
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from lexome.errors import BadDocument, FormatError, UsageError
from lexome.files import zstd
from lexome.formats import tar_stream
from lexome.formats.tally import Tally

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
    `record_bytes` is the limit of one document in formats that build it from lines.
    """

    name: str
    stream: io.BufferedReader
    path: Path | None = None
    member: str | None = None
    record_bytes: int = MAX_RECORD_BYTES

    @property
    def location(self) -> str:
        """The file's path, with an archive as a folder."""
        return self.name if self.member is None else f"{self.name[: -len(self.member) - 1]}/{self.member}"

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
    except LookupError:
        message = f"unknown encoding {encoding!r}; expected one such as utf-8 or latin-1."
        raise UsageError(message, code="unknown-encoding", value=encoding) from None


def uncompressed_name(name: str) -> str:
    """A file name without compression suffix, with forward slashes."""
    name = name.replace("\\", "/")
    suffix = next((suffix for suffix in COMPRESSIONS if name.lower().endswith(suffix)), "")
    return name[: len(name) - len(suffix)]


def printable_name(name: str) -> str:
    """A file name as text; bytes that are not UTF-8, which Linux allows, become escapes such as \\xff."""
    return os.fsencode(name).decode(errors="backslashreplace")


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
    with _opened(path, tally) as raw, _decompressed(raw, str(path)) as stream:
        yield Source(str(path), stream, None if path.name.lower().endswith(COMPRESSIONS) else path)


def open_stream(stream: BinaryIO, name: str, tally: Tally) -> Source:
    """A Source from an open stream, such as standard input."""
    raw = _buffered(CountingReader(stream, tally), HEAD_BYTES)
    decompressed = _decompressor(raw, name)
    if decompressed is raw:
        return Source(name, raw)
    return Source(name, _buffered(DecompressingReader(decompressed, name), HEAD_BYTES))


def _buffered(raw: io.RawIOBase, size: int) -> io.BufferedReader:
    return cast(io.BufferedReader, io.BufferedReader(raw, size))


@contextmanager
def _opened(path: Path, tally: Tally) -> Iterator[io.BufferedReader]:
    try:
        raw = path.open("rb", buffering=0)
    except OSError as error:
        raise FormatError(
            f"{path}: cannot be opened ({error.strerror}).", code="unreadable-file", value=path
        ) from error
    with _buffered(CountingReader(cast(BinaryIO, raw), tally), DISK_BYTES) as counted:
        yield counted


@contextmanager
def _decompressed(raw: io.BufferedIOBase, name: str) -> Iterator[io.BufferedReader]:
    with _buffered(DecompressingReader(_decompressor(raw, name), name), HEAD_BYTES) as buffered:
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
    with _opened(path, tally) as raw, _decompressed(raw, str(path)) as stream:
        try:
            for member in tar_stream.members(stream, tally):
                if not _is_skipped(member.name, tally):
                    name = f"{path}!{member.name}"
                    with _decompressed(member.content, name) as content:
                        yield Source(name, content, member=member.name)
        except tarfile.TarError as error:
            raise truncated(str(path), f"the archive is truncated or damaged ({error})", value=path) from error


def _zip_members(path: Path, tally: Tally) -> Iterator[Source]:
    with _opened(path, tally):
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
                name = f"{path}!{member.filename}"
                with opened, _decompressed(opened, name) as content:
                    yield Source(name, content, member=member.filename)
        tally.bytes_read += path.stat().st_size
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, ValueError, LookupError, OSError) as error:
        # Members that are encrypted or use an unsupported compression; names that are not in their encoding; offsets
        # outside the file.
        message = f"{path}: not a readable zip file ({error}). Download it again, or unpack it first."
        raise FormatError(message, code="bad-archive", value=path) from error


def _require_all_entries(path: Path, entries: int) -> None:
    """BadZipFile if the directory has fewer entries than the end of the file says: zipfile does not check."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _MAX_ZIP_END))
        tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    said = int.from_bytes(tail[at + 10 : at + 12], "little")
    # 65,535 says that the number is elsewhere, as in archives of more members.
    if at < 0 or (said != 0xFFFF and said != entries & 0xFFFF):
        raise zipfile.BadZipFile(f"its directory has {entries:,} entries, its end says {said:,}")
