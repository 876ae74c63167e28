"""From paths to bytes and back: folders, archives, gz/xz/zst, and writing under a temporary name.

Nothing is opened but the files that were given: archive members are streamed, never extracted, and
links inside a tar are skipped and counted.
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
from lexome.formats.tally import Tally

COMPRESSIONS = (".gz", ".xz", ".zst")
ARCHIVES = (".tar", ".tgz", ".tar.gz", ".tar.xz", ".tar.zst", ".zip")
HEAD_BYTES = 1 << 16
BLOCK_BYTES = 1 << 20
# How what a folder or an archive hides, such as .DS_Store, is counted.
HIDDEN_NOTE = "hidden file or folder skipped"
# What is read from disk at a time. A larger buffer costs a small file more than its parsing.
DISK_BYTES = 1 << 17

# A line or record longer than this is no document of the field: the longest PMC article is under 20 MB.
MAX_RECORD_BYTES = 64 << 20


@dataclass(frozen=True)
class Source:
    """One file's decompressed bytes, with the name that messages give it.

    `path` is set where those bytes are a file's own, for formats that need to jump about in it, `member`
    where they are those of a file inside an archive.
    """

    name: str
    stream: io.BufferedReader
    path: Path | None = None
    member: str | None = None

    @property
    def location(self) -> str:
        """Where the file is, an archive being a folder like any other."""
        return self.name if self.member is None else f"{self.name[: -len(self.member) - 1]}/{self.member}"

    @cached_property
    def stem(self) -> str:
        """The file's name without folders, compression and ending: the start of ids made from it."""
        return PurePosixPath(uncompressed_name(self.location)).stem

    @property
    def extension(self) -> str:
        """The ending under any compression, in lower case: ".xml" for a.xml.gz."""
        return PurePosixPath(uncompressed_name(self.location)).suffix.lower()

    def head(self) -> bytes:
        """The first bytes, left in the stream."""
        return self.stream.peek(HEAD_BYTES)[:HEAD_BYTES]

    def lines(self, tally: Tally | None = None) -> Iterator[tuple[int, bytes]]:
        """Numbered lines without their end, cut at \\n alone; \\r before it and a leading BOM go.

        U+0085, U+2028 and form feeds are text, not line ends. A line that is too long is a FormatError, or, where a
        line is a document and a tally is given, is set aside there and passed over.
        """
        number = 0
        while line := self.stream.readline(MAX_RECORD_BYTES):
            number += 1
            if len(line) == MAX_RECORD_BYTES and not line.endswith(b"\n"):
                self._pass_over(number, tally)
                continue
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            yield number, line.removesuffix(b"\n").removesuffix(b"\r")

    def _pass_over(self, number: int, tally: Tally | None) -> None:
        """Set the line aside whose first bytes were read, and read the rest of it."""
        seen = f"a line is longer than {MAX_RECORD_BYTES >> 20} MiB; expected documents of a readable size."
        if tally is None:
            raise FormatError(f"{self.name}: {seen} Check that the file is of the format you named.")
        tally.reject(BadDocument("too_large", seen), where=f"{self.name}, line {number}")
        while (rest := self.stream.readline(BLOCK_BYTES)) and not rest.endswith(b"\n"):
            pass

    def read(self) -> bytes:
        """The whole file, for formats that cannot be streamed."""
        content = self.stream.read(MAX_WHOLE_BYTES + 1)
        if len(content) > MAX_WHOLE_BYTES:
            raise FormatError(
                f"{self.name}: larger than {MAX_WHOLE_BYTES >> 20} MiB, and this format is read whole. "
                "Cut it into several files."
            )
        return content


# JSON collections (BioC, SQuAD, BioASQ) are parsed whole; this bounds their memory.
MAX_WHOLE_BYTES = 512 << 20


def pair_files(
    sources: Iterable[Source], parts: tuple[str, str], key_of: Callable[[Source], tuple[str, str] | None], tally: Tally
) -> Iterator[tuple[str, bytes | None, bytes | None]]:
    """The contents of files that belong together in twos, in whatever order they come, each pair with its key.

    `key_of` gives a file's key and which of the two parts it is, or None for a file to skip. What has no other
    half comes last, with None in its place.
    """
    waiting: dict[str, tuple[str, bytes]] = {}
    for source in sources:
        found = key_of(source)
        if found is None:
            tally.note(f"file that is neither {parts[0]} nor {parts[1]} skipped")
            continue
        key, part = found
        content = source.read()
        if waiting.get(key, ("",))[0] == part:
            twice = BadDocument("duplicate_file", f"a file of this name came before; expected one {part} a name.")
            tally.reject(twice, where=source.name, raw=content)
        elif key in waiting:
            other = waiting.pop(key)[1]
            yield (key, content, other) if part == parts[0] else (key, other, content)
        else:
            waiting[key] = (part, content)
    for key, (part, content) in waiting.items():
        yield (key, content, None) if part == parts[0] else (key, None, content)


def decode(raw: bytes, encoding: str = "utf-8") -> str:
    """The text of some bytes; BadDocument names the first byte that is not of the encoding."""
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise BadDocument(
            "wrong_encoding",
            f"byte {error.start} is 0x{raw[error.start]:02x}, which is not {encoding}. "
            "Name the right one: `lexome convert IN OUT.jsonl --set encoding=latin-1`; in Python, encoding='latin-1'.",
        ) from None
    except LookupError:
        raise UsageError(f"the option encoding={encoding!r} names no encoding; utf-8 and latin-1 are two.") from None


def uncompressed_name(name: str) -> str:
    """A file name without its compression ending, with forward slashes."""
    name = name.replace("\\", "/")
    for ending in COMPRESSIONS:
        if name.lower().endswith(ending):
            return name[: -len(ending)]
    return name


def printable_name(name: str) -> str:
    """A file's name as text: bytes that are no UTF-8, which Linux allows in names, are written as \\xff."""
    return os.fsencode(name).decode(errors="backslashreplace")


def is_archive(name: str) -> bool:
    """True for tar and zip files, by their ending."""
    return name.lower().endswith(ARCHIVES)


class CountingReader(io.RawIOBase):
    """A raw stream that adds what is read from it to a tally, for progress by bytes on disk."""

    def __init__(self, raw: BinaryIO, tally: Tally) -> None:
        self._raw = raw
        self._tally = tally

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        # Straight into the buffer: a block of its own each time is a third of the time of reading a small file.
        count = cast(io.RawIOBase, self._raw).readinto(buffer) or 0  # type: ignore[arg-type]  # io's own protocol
        self._tally.bytes_read += count
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


DECOMPRESSION_ERRORS = (
    EOFError,
    OSError,
    zlib.error,
    lzma.LZMAError,
    zstd.ZstdError,
    tarfile.ReadError,
    zipfile.BadZipFile,
)


class DecompressingReader(io.RawIOBase):
    """A decompressing stream whose failures say which file broke, where, and what to do."""

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
        while filled < len(view):
            count = self._next(view[filled:], filled)
            if not count:
                break
            filled += count
        self._position += filled
        return filled

    def _next(self, view: memoryview, pending: int) -> int:
        """How much was read into the view; a failure waits until what came before it has been handed on."""
        if self._failure is None:
            try:
                # One read at a time hands over what is there before the break; a full read would lose it.
                return self._stream.readinto1(view)
            except DECOMPRESSION_ERRORS as error:
                self._failure = error
        if pending:
            return 0
        raise FormatError(
            f"{self._name}: the compressed data breaks off or is damaged after {self._position:,} bytes of "
            f"content ({self._failure}); expected a complete file. What came before was read; fetch the file again."
        ) from self._failure

    def close(self) -> None:
        self._stream.close()
        super().close()


def open_sources(path: Path, tally: Tally) -> Iterator[Source]:
    """The file itself, or each file inside an archive, one after another."""
    if is_archive(path.name):
        yield from _members(path, tally)
        return
    with _opened(path, tally) as raw, _decompressed(raw, str(path)) as stream:
        yield Source(str(path), stream, None if path.name.lower().endswith(COMPRESSIONS) else path)


def open_stream(stream: BinaryIO, name: str, tally: Tally) -> Source:
    """A Source from a stream that is already open, such as standard input."""
    raw = _buffered(CountingReader(stream, tally), HEAD_BYTES)
    unpacked = _decompressor(raw, name)
    return Source(name, raw if unpacked is raw else _buffered(DecompressingReader(unpacked, name), HEAD_BYTES))


def _buffered(raw: io.RawIOBase, size: int) -> io.BufferedReader:
    return cast(io.BufferedReader, io.BufferedReader(raw, size))


@contextmanager
def _opened(path: Path, tally: Tally) -> Iterator[io.BufferedReader]:
    try:
        raw = path.open("rb", buffering=0)
    except OSError as error:
        raise FormatError(f"{path}: cannot be opened ({error.strerror}); expected a file that can be read.") from error
    with _buffered(CountingReader(cast(BinaryIO, raw), tally), DISK_BYTES) as counted:
        yield counted


@contextmanager
def _decompressed(raw: io.BufferedIOBase, name: str) -> Iterator[io.BufferedReader]:
    with _buffered(DecompressingReader(_decompressor(raw, name), name), HEAD_BYTES) as buffered:
        yield buffered


def _decompressor(raw: io.BufferedIOBase, name: str) -> io.BufferedIOBase:
    """The stream unpacked, by the file's ending or, where that is missing, by its first bytes."""
    lower = name.lower()
    head = raw.peek(6)[:6] if isinstance(raw, io.BufferedReader) else b""
    if lower.endswith((".gz", ".tgz")) or head.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=raw)
    if lower.endswith(".xz") or head == b"\xfd7zXZ\x00":
        return lzma.LZMAFile(cast(BinaryIO, raw))
    if lower.endswith(".zst") or head.startswith(b"\x28\xb5\x2f\xfd"):
        return cast(io.BufferedIOBase, zstd.ZstdFile(cast(BinaryIO, raw)))
    return raw


def _members(path: Path, tally: Tally) -> Iterator[Source]:
    members = _zip_members if path.name.lower().endswith(".zip") else _tar_members
    yield from members(path, tally)


def _is_skipped(name: str, tally: Tally) -> bool:
    """Whether a file inside an archive is hidden, or what a Mac packs beside each of its files; it is counted."""
    parts = PurePosixPath(name).parts
    hidden = any(part == "__MACOSX" or (part.startswith(".") and part != "..") for part in parts)
    if hidden:
        tally.note(HIDDEN_NOTE)
    return hidden


def _tar_members(path: Path, tally: Tally) -> Iterator[Source]:
    with _opened(path, tally) as raw, _decompressed(raw, str(path)) as stream:
        try:
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                for member in archive:
                    if member.isdir() or _is_skipped(member.name, tally):
                        continue
                    opened = archive.extractfile(member) if member.isfile() else None
                    if opened is None:
                        tally.note("archive member that is not a file, skipped")
                        continue
                    name = f"{path}!{member.name}"
                    with _decompressed(cast(io.BufferedIOBase, opened), name) as content:
                        yield Source(name, content, member=member.name)
        except tarfile.TarError as error:
            raise FormatError(
                f"{path}: the archive breaks off or is damaged ({error}); expected a complete tar file. "
                "What came before was read; fetch the file again."
            ) from error


def _zip_members(path: Path, tally: Tally) -> Iterator[Source]:
    with _opened(path, tally):
        pass  # the clear message for a file that cannot be opened
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if not member.is_dir() and not _is_skipped(member.filename, tally):
                    name = f"{path}!{member.filename}"
                    with (
                        archive.open(member) as opened,
                        _decompressed(cast(io.BufferedIOBase, opened), name) as content,
                    ):
                        yield Source(name, content, member=member.filename)
        tally.bytes_read += path.stat().st_size
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
        # The last two are for members that are encrypted or packed in a way that is not known.
        raise FormatError(
            f"{path}: not a zip file, or one that cannot be read ({error}). Fetch it again, or unpack it yourself."
        ) from error
