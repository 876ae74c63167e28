"""LevelDB's sorted table of keys and values, as TensorFlow writes it for the index of a checkpoint.

footer (last 48 bytes)   where the index block lies, and a magic number
index block              for each data block, where it lies
block                    entries, each sharing a prefix with the key before; then restart points, which we don't need
after each block         one byte for its compression (0 none, 1 snappy) and four for its checksum
"""

from collections.abc import Iterator

from lexome.errors import CheckpointError
from lexome.models.foreign.crc32c import crc32c, unmasked

_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48
_TRAILER = 5

# Snappy turns at most 64 bytes into three; a block that claims more is not one.
_SNAPPY_GROWTH = 64


def read_table(content: bytes, *, where: str) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values in the table's order; CheckpointError, with `where` named, for anything damaged."""
    try:
        yield from _entries_of_all(content)
    except (IndexError, ValueError) as error:
        raise CheckpointError(f"{where}: a damaged index ({error}). Fetch the checkpoint again.") from None


def varint(content: bytes, at: int) -> tuple[int, int]:
    """An integer of seven bits a byte, lowest first, and where the next thing begins; ValueError past 64 bits."""
    number = 0
    for shift in range(0, 70, 7):
        octet = content[at]
        at += 1
        number |= (octet & 0x7F) << shift
        if octet < 0x80:
            return number, at
    raise ValueError(f"a number of more than 64 bits at byte {at}")


def _entries_of_all(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    if len(content) < _FOOTER or int.from_bytes(content[-8:], "little") != _MAGIC:
        raise ValueError("no footer of a table at its end; the file may be cut off")
    footer = content[-_FOOTER:]
    _, at = varint(footer, 0)
    _, at = varint(footer, at)
    offset, at = varint(footer, at)
    size, at = varint(footer, at)
    for _, handle in _entries(_block(content, offset, size)):
        block_at, after = varint(handle, 0)
        block_size, _ = varint(handle, after)
        yield from _entries(_block(content, block_at, block_size))


def _block(content: bytes, offset: int, size: int) -> bytes:
    stored = content[offset : offset + size + _TRAILER]
    if len(stored) != size + _TRAILER:
        raise ValueError(f"a block of {size:,} bytes at {offset:,} goes beyond the end")
    checksum = int.from_bytes(stored[-4:], "little")
    if crc32c(stored[:-4]) != unmasked(checksum):
        raise ValueError(f"the block at {offset:,} has a wrong checksum")
    kind = stored[size]
    if kind == 0:
        return stored[:size]
    if kind == 1:
        return snappy(stored[:size])
    raise ValueError(f"the block at {offset:,} has compression {kind}; expected 0 or 1")


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 - 4 * restarts
    if end < 0:
        raise ValueError(f"a block of {len(block):,} bytes claims {restarts:,} restart points")
    at, key = 0, b""
    while at < end:
        shared, at = varint(block, at)
        fresh, at = varint(block, at)
        length, at = varint(block, at)
        if shared > len(key) or at + fresh + length > end:
            raise ValueError(f"an entry at byte {at:,} goes beyond its block")
        key = key[:shared] + block[at : at + fresh]
        at += fresh
        yield key, block[at : at + length]
        at += length


def snappy(packed: bytes) -> bytes:
    """What a raw snappy block holds; ValueError where it is not one."""
    length, at = varint(packed, 0)
    if length > len(packed) * _SNAPPY_GROWTH:
        raise ValueError(f"{len(packed):,} bytes of snappy claim to hold {length:,}")
    out = bytearray()
    while at < len(packed):
        tag = packed[at]
        at += 1
        if tag & 3 == 0:
            size, at = _literal_size(packed, at, tag >> 2)
            if at + size > len(packed):
                raise ValueError("a literal of snappy goes beyond its block")
            out += packed[at : at + size]
            at += size
        else:
            size, back, at = _copy(packed, at, tag)
            _repeat(out, size, back)
        if len(out) > length:
            break
    if len(out) != length:
        raise ValueError(f"a block of snappy holds {len(out):,} bytes; expected {length:,}")
    return bytes(out)


def _literal_size(packed: bytes, at: int, size: int) -> tuple[int, int]:
    """The length of a literal: itself below 60, else in one to four bytes that follow."""
    if size < 60:
        return size + 1, at
    octets = size - 59
    return int.from_bytes(packed[at : at + octets], "little") + 1, at + octets


def _copy(packed: bytes, at: int, tag: int) -> tuple[int, int, int]:
    """The length of a copy, how far back it begins, and where the next element is."""
    if tag & 3 == 1:
        return ((tag >> 2) & 7) + 4, (tag >> 5) << 8 | packed[at], at + 1
    octets = 2 if tag & 3 == 2 else 4
    return (tag >> 2) + 1, int.from_bytes(packed[at : at + octets], "little"), at + octets


def _repeat(out: bytearray, size: int, back: int) -> None:
    if not 0 < back <= len(out):
        raise ValueError(f"a copy of snappy from {back:,} bytes back, after {len(out):,}")
    start = len(out) - back
    # A copy may reach into what it writes: "ab", 4 from 2 back, is "ababab".
    pattern = bytes(out[start : start + size])
    out += (pattern * (size // len(pattern) + 1))[:size]
