"""TensorFlow's tensor bundle (NAME.index and NAME.data-0000I-of-0000N), read without TensorFlow.

The index is a sorted table: the empty key has a header (how many shards, which byte order), every other key is a
tensor's name with its type, shape, shard, place, length and checksum, all as protocol buffers.
"""

from collections.abc import Iterator
from math import prod

import numpy as np
import numpy.typing as npt
import torch

from lexome.errors import CheckpointError
from lexome.models.foreign.crc32c import crc32c, unmasked
from lexome.models.foreign.release import Release
from lexome.models.foreign.sstable import read_table, varint
from lexome.values import value

# Numbers of TensorFlow's DataType. bfloat16 has no type in numpy: its bits are read and then called so.
_TYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8", 14: "<i2", 19: "<f2"}
_BFLOAT16 = 14

Message = dict[int, list[int | bytes]]


@value
class Entry:
    """A tensor as the index describes it."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int
    sliced: bool


class Bundle:
    """The tensors of one checkpoint by name; each is mapped from its file and checked when it is asked for."""

    def __init__(self, release: Release, index: str) -> None:
        self._release = release
        self._stem = index.removesuffix(".index")
        self._where = release.where(index)
        self._maps: dict[int, npt.NDArray[np.uint8]] = {}
        self.entries: dict[str, Entry] = {}
        self._shards = 0
        for key, content in read_table(release.read(index), where=self._where):
            try:
                self._take(key, content)
            except (IndexError, ValueError) as error:
                raise CheckpointError(f"{self._where}: a damaged entry {key!r} ({error}). Fetch it again.") from None
        if not self._shards:
            raise CheckpointError(f"{self._where}: no header of a checkpoint. Fetch it again.")

    def tensor(self, name: str) -> torch.Tensor:
        """The tensor, still on disk until it is used; CheckpointError where its bytes are not those saved."""
        entry = self.entries[name]
        self._check(name, entry)
        octets = self._shard(entry.shard)[entry.offset : entry.offset + entry.size]
        if octets.size != entry.size:
            raise CheckpointError(
                f"{self._file(entry.shard)}: {name} needs bytes {entry.offset:,} to {entry.offset + entry.size:,}, "
                f"but the file has {self._shard(entry.shard).size:,}. It is cut off; fetch it again."
            )
        if crc32c(octets) != unmasked(entry.checksum):
            raise CheckpointError(f"{self._file(entry.shard)}: {name} has a wrong checksum. Fetch the file again.")
        if not octets.size:
            return torch.zeros(entry.shape)
        array = np.require(octets.view(_TYPES[entry.dtype]).reshape(entry.shape), requirements="A")
        tensor = torch.from_numpy(array)
        return tensor.view(torch.bfloat16) if entry.dtype == _BFLOAT16 else tensor

    def _take(self, key: bytes, content: bytes) -> None:
        message = _message(content)
        if key:
            self.entries[key.decode()] = _entry(message)
            return
        self._shards = _number(message, 1)
        if _number(message, 2):
            raise CheckpointError(f"{self._where}: saved with the high byte first; only the low first is read.")

    def _check(self, name: str, entry: Entry) -> None:
        if entry.dtype not in _TYPES or entry.sliced:
            seen = "cut into slices" if entry.sliced else f"of TensorFlow's type {entry.dtype}"
            raise CheckpointError(f"{self._where}: {name} is {seen}; expected whole float or integer tensors.")
        claimed = prod(entry.shape) * np.dtype(_TYPES[entry.dtype]).itemsize
        if claimed != entry.size:
            raise CheckpointError(
                f"{self._where}: {name} of shape {entry.shape} needs {claimed:,} bytes, but the index says "
                f"{entry.size:,}. The index is damaged; fetch it again."
            )

    def _file(self, shard: int) -> str:
        name = f"{self._stem}.data-{shard:05d}-of-{self._shards:05d}"
        return name if name not in self._release.names else self._release.where(name)

    def _shard(self, shard: int) -> npt.NDArray[np.uint8]:
        if shard not in self._maps:
            name = f"{self._stem}.data-{shard:05d}-of-{self._shards:05d}"
            if name not in self._release.names:
                raise CheckpointError(
                    f"{self._release.path}: {name} is missing; the checkpoint has {self._shards} such files. "
                    "Put all of them in one folder."
                )
            self._maps[shard] = self._release.map(name)
        return self._maps[shard]


def _entry(message: Message) -> Entry:
    shape = []
    for described in message.get(2, [])[-1:]:
        for dimension in _message(_bytes(described)).get(2, []):
            size = _number(_message(_bytes(dimension)), 1)
            # A negative number comes as its two's complement.
            if size >= 1 << 40:
                raise ValueError(f"a dimension of {size:,}")
            shape.append(size)
    return Entry(
        _number(message, 1),
        tuple(shape),
        _number(message, 3),
        _number(message, 4),
        _number(message, 5),
        _number(message, 6),
        7 in message,
    )


def _number(message: Message, field: int) -> int:
    """A field's number; 0, which is never written, where it is missing."""
    number = message.get(field, [0])[-1]
    if not isinstance(number, int):
        raise ValueError(f"field {field} is no number")
    return number


def _bytes(field: int | bytes) -> bytes:
    if not isinstance(field, bytes):
        raise ValueError("a number where a message was expected")
    return field


def _message(content: bytes) -> Message:
    fields: Message = {}
    for number, field in _fields(content):
        fields.setdefault(number, []).append(field)
    return fields


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protocol buffer: a number each, or the bytes of what it contains."""
    at = 0
    while at < len(content):
        tag, at = varint(content, at)
        wire = tag & 7
        if wire == 0:
            number, at = varint(content, at)
            yield tag >> 3, number
            continue
        if wire == 2:
            size, at = varint(content, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if at + size > len(content):
            raise ValueError("a field goes beyond its message")
        field = content[at : at + size]
        yield tag >> 3, field if wire == 2 else int.from_bytes(field, "little")
        at += size
