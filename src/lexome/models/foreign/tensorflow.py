"""TensorFlow's tensor bundle (NAME.index and NAME.data-0000I-of-0000N), read without TensorFlow.

The index is a sorted table: the empty key has a header (how many shards, which byte order), every other key is a
tensor's name with its type, shape, shard, place, length and checksum, all as protocol buffers.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import PurePosixPath

import numpy as np
import numpy.typing as npt
import torch

from lexome.errors import CheckpointError
from lexome.models.foreign.release import (
    ForeignCheckpoint,
    Release,
    missing_weights_error,
    read_json,
    unknown_weights_error,
)
from lexome.models.tokenizer_files import wordpiece_files

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


# Numbers of TensorFlow's DataType. bfloat16 has no type in numpy: its bits are read and then called so.
_TYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8", 14: "<i2", 19: "<f2"}
_BFLOAT16 = 14

Message = dict[int, list[int | bytes]]


@dataclass(frozen=True, slots=True)
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


LAYOUT = "google"

_TABLES = {
    "bert/embeddings/word_embeddings": "bert.embeddings.word_embeddings.weight",
    "bert/embeddings/position_embeddings": "bert.embeddings.position_embeddings.weight",
    "bert/embeddings/token_type_embeddings": "bert.embeddings.token_type_embeddings.weight",
    "cls/predictions/output_bias": "cls.predictions.bias",
    # Saved as it is used by PyTorch, unlike every kernel.
    "cls/seq_relationship/output_weights": "cls.seq_relationship.weight",
    "cls/seq_relationship/output_bias": "cls.seq_relationship.bias",
}

_DENSE = re.compile(
    r"bert/encoder/layer_\d+/(attention/self/(query|key|value)|attention/output/dense|intermediate/dense|output/dense)"
    r"|bert/pooler/dense|cls/predictions/transform/dense"
)
_NORM = re.compile(
    r"bert/encoder/layer_\d+/(attention/)?output/LayerNorm|bert/embeddings/LayerNorm|cls/predictions/transform/LayerNorm"
)
_OURS = {"kernel": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}
_OPTIMIZER = re.compile(r"global_step|.*/adam_[mv]|beta[12]_power")


def find_index(release: Release) -> str | None:
    """The index of the checkpoint to read: the one named, the last one saved, or the only one."""
    found = release.find("*.index")
    if release.chosen is not None:
        stem = re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", release.chosen)
        return f"{stem}.index" if f"{stem}.index" in found else None
    if len(found) > 1 and "checkpoint" in release.names:
        last = re.search(rb'^model_checkpoint_path: "([^"]+)"', release.read("checkpoint"), re.MULTILINE)
        name = PurePosixPath(last[1].decode(errors="replace")).name if last else ""
        found = [f"{name}.index"] if f"{name}.index" in found else found
    if len(found) > 1:
        raise CheckpointError(
            f"{release.path} has the checkpoints {', '.join(name.removesuffix('.index') for name in found)}. "
            "Name one of them instead of the folder."
        )
    return found[0] if found else None


def read(release: Release) -> ForeignCheckpoint:
    """The checkpoint, its kernels transposed; all else stays mapped from the file."""
    index = find_index(release)
    assert index is not None  # detected by it
    bundle = Bundle(release, index)
    left_out = [name for name in bundle.entries if _OPTIMIZER.fullmatch(name)]
    names = {name: hf_name(name) for name in bundle.entries if name not in set(left_out)}
    strange = [name for name, ours in names.items() if ours is None]
    if strange:
        raise unknown_weights_error(release.where(index), strange, layout="Google's BERT")
    weights = {}
    for name, ours in names.items():
        tensor = bundle.tensor(name)
        # A copy, and not a view across: a model that takes the tensor as it is would be slow ever after.
        weights[str(ours)] = tensor.t().contiguous() if name.endswith("/kernel") else tensor
    config = _config(release, weights, release.where(index))
    files = {}
    if "vocab.txt" in release.names:
        rows = weights["bert.embeddings.word_embeddings.weight"].shape[0]
        longest = weights["bert.embeddings.position_embeddings.weight"].shape[0]
        files = wordpiece_files(release.read("vocab.txt"), rows=rows, max_tokens=longest)
    return ForeignCheckpoint(LAYOUT, config, weights, files, tuple(sorted(left_out)))


def hf_name(name: str) -> str | None:
    """Hugging Face's name of a tensor; None for one that BERT does not have."""
    if name in _TABLES:
        return _TABLES[name]
    module, _, last = name.rpartition("/")
    if not (
        (last in ("kernel", "bias") and _DENSE.fullmatch(module))
        or (last in ("gamma", "beta") and _NORM.fullmatch(module))
    ):
        return None
    module = re.sub(r"/layer_(\d+)/", r"/layer/\1/", module)
    return f"{module}/{_OURS[last]}".replace("/", ".")


def _config(release: Release, weights: dict[str, torch.Tensor], where: str) -> dict[str, object]:
    found = release.find("bert_config.json") or release.find("config.json") or release.find("*config*.json")
    if len(found) != 1:
        raise CheckpointError(f"{release.path}: no bert_config.json, which says how many heads there are. Add it.")
    config = read_json(release, found[0])
    for table in ("bert/embeddings/word_embeddings", "bert/embeddings/position_embeddings"):
        if _TABLES[table] not in weights:
            raise missing_weights_error(where, table, layout="BERT")
    rows, width = weights["bert.embeddings.word_embeddings.weight"].shape
    said = (config.get("vocab_size"), config.get("hidden_size"))
    if said != (rows, width):
        raise CheckpointError(
            f"{release.where(found[0])} says {said[0]} pieces of width {said[1]}, but the checkpoint has "
            f"{rows} of {width}. Use the file that came with it."
        )
    heads = {name.partition(".")[2].partition(".")[0] for name in weights if name.startswith("cls.")}
    architecture = {0: "BertModel", 2: "BertForPreTraining"}.get(len(heads))
    architecture = architecture or ("BertForMaskedLM" if "predictions" in heads else "BertForNextSentencePrediction")
    return {"layer_norm_eps": 1e-12, "pad_token_id": 0, **config, "model_type": "bert", "architectures": [architecture]}
