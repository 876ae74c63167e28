"""CRC-32C (Castagnoli) of large buffers, in numpy: 440 MB of weights in about a second and not in minutes.

A checksum is linear in the message: a word equals, for the checksum, another word that is XORed onto the message any
number of words later. So long messages are folded, row onto row, until a few bytes are left.
"""

from functools import cache

import numpy as np
import numpy.typing as npt

# The polynomial with its bits reversed, as the checksum is defined.
_POLYNOMIAL = 0x82F63B78
_ONES = 0xFFFFFFFF

# Words in a row: a row and the two tables below stay in a second-level cache.
_ROW = 1 << 14

Words = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]


def crc32c(content: bytes | Bytes) -> int:
    """The checksum of bytes."""
    octets = np.frombuffer(content, np.uint8) if isinstance(content, bytes) else content
    whole = octets.size // 4
    state = _ONES
    if whole:
        words = _fold(octets[: whole * 4].view("<u4"), state)
        state = _by_bytes(words.astype("<u4").tobytes(), 0)
    return _by_bytes(octets[whole * 4 :].tobytes(), state) ^ _ONES


def unmasked(stored: int) -> int:
    """The checksum that LevelDB and TensorFlow hide in what they store."""
    turned = (stored - 0xA282EAD8) & _ONES
    return ((turned >> 17) | (turned << 15)) & _ONES


def _by_bytes(content: bytes, state: int) -> int:
    table = _byte_table()
    for octet in content:
        state = table[(state ^ octet) & 0xFF] ^ (state >> 8)
    return state


def _fold(words: Words, state: int) -> Words:
    """A few words whose checksum, begun at zero, is that of all the words begun at `state`."""
    lead = -words.size % _ROW if words.size > _ROW else 0
    # Zeros before the message change nothing once `state` is part of the message.
    row = np.zeros(_ROW if lead else min(words.size, _ROW), np.uint32)
    first = row.size - lead
    row[lead:] = words[:first]
    row[lead] ^= state
    low, high = _tables(_ROW)
    for start in range(first, words.size, _ROW):
        row = low[row & 0xFFFF] ^ high[row >> 16] ^ words[start : start + _ROW]
    while row.size > 8 and row.size % 2 == 0:
        half = row.size // 2
        row = _advanced(row[:half], _columns(half)) ^ row[half:]
    return row


def _advanced(words: Words, columns: tuple[int, ...]) -> Words:
    moved = np.zeros_like(words)
    for bit, column in enumerate(columns):
        moved ^= ((words >> np.uint32(bit)) & np.uint32(1)) * np.uint32(column)
    return moved


@cache
def _byte_table() -> tuple[int, ...]:
    table = []
    for state in range(256):
        for _ in range(8):
            state = (state >> 1) ^ (_POLYNOMIAL if state & 1 else 0)
        table.append(state)
    return tuple(table)


@cache
def _columns(words: int) -> tuple[int, ...]:
    """What each bit of a word becomes when it is moved so many words on; a power of two, or any small number."""
    if words == 1:
        return tuple(_by_bytes(bytes(4), 1 << bit) for bit in range(32))
    half, rest = divmod(words, 2)
    once = _columns(half)
    twice = tuple(_through(column, once) for column in once)
    return tuple(_through(column, _columns(1)) for column in twice) if rest else twice


def _through(state: int, columns: tuple[int, ...]) -> int:
    moved = 0
    for bit, column in enumerate(columns):
        if state >> bit & 1:
            moved ^= column
    return moved


@cache
def _tables(words: int) -> tuple[Words, Words]:
    """Where the low and the high half of every word go, so many words on."""
    halves = np.arange(1 << 16, dtype=np.uint32)
    columns = _columns(words)
    return _advanced(halves, columns), _advanced(halves << np.uint32(16), columns)
