"""Members of a tar archive, read strictly as a stream.

Python's tarfile takes a damaged header after the first member for the end of the archive, so that the documents after
it are lost without a word; reads extended headers of any size into memory; and trusts the sizes of sparse files. Here
an archive ends with its end mark, a header that is not valid is an error, extended headers are bounded, and sparse
files are skipped and counted. tarfile still parses the fields of a header.
"""

import io
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from lexome.formats.tally import Tally

BLOCK = 512
# Of an extended header, which holds names and times; the longest path of Linux has 4,096 bytes.
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


def members(stream: BinaryIO, tally: Tally) -> Iterator[Member]:
    """The regular files of an archive; others are skipped and counted. TarDamaged where it is not a whole archive."""
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
        """Read what is left."""
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
