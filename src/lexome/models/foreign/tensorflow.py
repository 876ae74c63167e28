"""TensorFlow 1 checkpoints of Google's BERT (BioBERT), read without TensorFlow.

A tensor bundle is NAME.index and NAME.data-0000I-of-0000N. The index is a LevelDB table (SSTable): its empty key has a
header (number of shards, byte order), every other key is a tensor's name with its dtype, shape, shard, offset, size and
checksum, all as protocol buffers.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import PurePosixPath

import numpy as np
import numpy.typing as npt
import torch

from lexome.errors import CheckpointError, MissingExtraError
from lexome.models.foreign.release import (
    ForeignCheckpoint,
    Release,
    damaged_error,
    missing_weights_error,
    read_json,
    unknown_weights_error,
)
from lexome.models.hf_folder import wordpiece_files

LAYOUT = "google"

Bytes = npt.NDArray[np.uint8]

_WORD_EMBEDDINGS = "bert/embeddings/word_embeddings"
_POSITION_EMBEDDINGS = "bert/embeddings/position_embeddings"

# Tensors that are neither of a dense layer nor of a layer norm.
_RENAMED = {
    _WORD_EMBEDDINGS: "bert.embeddings.word_embeddings.weight",
    _POSITION_EMBEDDINGS: "bert.embeddings.position_embeddings.weight",
    "bert/embeddings/token_type_embeddings": "bert.embeddings.token_type_embeddings.weight",
    "cls/predictions/output_bias": "cls.predictions.bias",
    # Not transposed, unlike every kernel.
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
_SUFFIXES = {"kernel": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}
_OPTIMIZER = re.compile(r"global_step|.*/adam_[mv]|beta[12]_power")


def find_index(release: Release) -> str | None:
    """The index of the checkpoint to read: the selected one, the last one saved, or the only one."""
    names = release.find("*.index")
    if release.selected is not None:
        stem = re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", release.selected)
        return f"{stem}.index" if f"{stem}.index" in names else None
    if len(names) > 1 and "checkpoint" in release.names:
        last = re.search(rb'^model_checkpoint_path: "([^"]+)"', release.read("checkpoint"), re.MULTILINE)
        name = PurePosixPath(last[1].decode(errors="replace")).name if last else ""
        names = [f"{name}.index"] if f"{name}.index" in names else names
    if len(names) > 1:
        stems = [name.removesuffix(".index") for name in names]
        message = f"{release.path} has several checkpoints: {', '.join(stems)}. Pass one of them instead of the folder."
        raise CheckpointError(message, code="ambiguous-checkpoint", value=stems)
    return names[0] if names else None


def read(release: Release) -> ForeignCheckpoint:
    """The checkpoint with its kernels transposed; other tensors stay memory-mapped."""
    index = find_index(release)
    assert index is not None  # detected by it
    bundle = Bundle(release, index)
    left_out = [name for name in bundle.entries if _OPTIMIZER.fullmatch(name)]
    keys = {name: hf_key(name) for name in bundle.entries if not _OPTIMIZER.fullmatch(name)}
    unknown = [name for name, key in keys.items() if key is None]
    if unknown:
        raise unknown_weights_error(release.where(index), unknown, layout="Google's BERT")
    weights = {}
    for name, key in keys.items():
        tensor = bundle.tensor(name)
        # A contiguous copy: a model that used the transposed view would be slow.
        weights[str(key)] = tensor.t().contiguous() if name.endswith("/kernel") else tensor
    config = _config(release, weights, release.where(index))
    files = {}
    if "vocab.txt" in release.names:
        rows, max_tokens = (weights[_RENAMED[name]].shape[0] for name in (_WORD_EMBEDDINGS, _POSITION_EMBEDDINGS))
        files = wordpiece_files(release.read("vocab.txt"), rows=rows, max_tokens=max_tokens)
    return ForeignCheckpoint(LAYOUT, config, weights, files, tuple(sorted(left_out)))


def hf_key(name: str) -> str | None:
    """Hugging Face's key of a tensor; None for one that BERT does not have."""
    if name in _RENAMED:
        return _RENAMED[name]
    module, _, last = name.rpartition("/")
    dense = last in ("kernel", "bias") and _DENSE.fullmatch(module)
    norm = last in ("gamma", "beta") and _NORM.fullmatch(module)
    if not dense and not norm:
        return None
    module = re.sub(r"/layer_(\d+)/", r"/layer/\1/", module)
    return f"{module}/{_SUFFIXES[last]}".replace("/", ".")


def _config(release: Release, weights: dict[str, torch.Tensor], where: str) -> dict[str, object]:
    names = release.find("bert_config.json") or release.find("config.json") or release.find("*config*.json")
    if len(names) != 1:
        message = f"{release.path}: no bert_config.json, which has the number of attention heads. Add it."
        raise CheckpointError(message, code="missing-file", value="bert_config.json")
    config = read_json(release, names[0])
    for table in (_WORD_EMBEDDINGS, _POSITION_EMBEDDINGS):
        if _RENAMED[table] not in weights:
            raise missing_weights_error(where, table, layout="BERT")
    shape = tuple(weights[_RENAMED[_WORD_EMBEDDINGS]].shape)
    declared = (config.get("vocab_size"), config.get("hidden_size"))
    if declared != shape:
        message = f"{release.where(names[0])}: shape {declared}, but the embeddings are {shape}. Use its own file."
        raise CheckpointError(message, code="shape-mismatch", value=declared)
    heads = {name.partition(".")[2].partition(".")[0] for name in weights if name.startswith("cls.")}
    architecture = {0: "BertModel", 2: "BertForPreTraining"}.get(len(heads))
    architecture = architecture or ("BertForMaskedLM" if "predictions" in heads else "BertForNextSentencePrediction")
    return {"layer_norm_eps": 1e-12, "pad_token_id": 0, **config, "model_type": "bert", "architectures": [architecture]}


# The tensor bundle

# TensorFlow's DataType. numpy has no bfloat16: its bits are read as int16 and reinterpreted.
_DTYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8", 14: "<i2", 19: "<f2"}
_BFLOAT16 = 14

# A protocol buffer: the values of each field, by field number.
Message = dict[int, list[int | bytes]]


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor as the index describes it."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int
    sliced: bool


class Bundle:
    """The tensors of one checkpoint by name, memory-mapped and verified on access."""

    def __init__(self, release: Release, index: str) -> None:
        self._release = release
        self._stem = index.removesuffix(".index")
        self._where = release.where(index)
        self._maps: dict[int, Bytes] = {}
        self.entries: dict[str, TensorEntry] = {}
        self._shards = 0
        for key, content in read_table(release.read(index), where=self._where):
            try:
                self._add(key, content)
            except (IndexError, ValueError) as error:
                raise damaged_error(self._where, f"invalid entry {key!r}: {error}") from None
        if not self._shards:
            raise damaged_error(self._where, "no header")

    def tensor(self, name: str) -> torch.Tensor:
        """The tensor, memory-mapped; CheckpointError if its checksum is wrong."""
        entry = self.entries[name]
        self._check(name, entry)
        shard = self._shard(entry.shard)
        content = shard[entry.offset : entry.offset + entry.size]
        if content.size != entry.size:
            raise damaged_error(
                self._release.where(self._file(entry.shard)),
                f"{name} needs bytes {entry.offset:,} to {entry.offset + entry.size:,} of {shard.size:,}: truncated",
            )
        if crc32c(content) != unmask(entry.checksum):
            raise damaged_error(self._release.where(self._file(entry.shard)), f"wrong checksum of {name}")
        if not content.size:
            return torch.zeros(entry.shape)
        array = np.require(content.view(_DTYPES[entry.dtype]).reshape(entry.shape), requirements="A")
        tensor = torch.from_numpy(array)
        return tensor.view(torch.bfloat16) if entry.dtype == _BFLOAT16 else tensor

    def _add(self, key: bytes, content: bytes) -> None:
        fields = _parse_message(content)
        if key:
            self.entries[key.decode()] = _parse_entry(fields)
            return
        self._shards = _integer(fields, 1)
        if _integer(fields, 2):
            message = f"{self._where}: saved in big-endian byte order; only little-endian is supported."
            raise CheckpointError(message, code="unsupported-format", value="big-endian")

    def _check(self, name: str, entry: TensorEntry) -> None:
        if entry.dtype not in _DTYPES or entry.sliced:
            problem = "partitioned into slices" if entry.sliced else f"of TensorFlow's dtype {entry.dtype}"
            message = f"{self._where}: {name} is {problem}; expected whole numeric tensors."
            raise CheckpointError(message, code="unsupported-format", value=name)
        expected = prod(entry.shape) * np.dtype(_DTYPES[entry.dtype]).itemsize
        if expected != entry.size:
            raise damaged_error(
                self._where, f"{name} of shape {entry.shape} needs {expected:,} bytes, but its size is {entry.size:,}"
            )

    def _file(self, shard: int) -> str:
        name = f"{self._stem}.data-{shard:05d}-of-{self._shards:05d}"
        if name not in self._release.names:
            message = f"{self._release.path}: {name} is missing, one of {self._shards} files. Put all in one folder."
            raise CheckpointError(message, code="missing-file", value=name)
        return name

    def _shard(self, shard: int) -> Bytes:
        if shard not in self._maps:
            self._maps[shard] = self._release.map(self._file(shard))
        return self._maps[shard]


def _parse_entry(message: Message) -> TensorEntry:
    shape = []
    for described in message.get(2, [])[-1:]:
        for dimension in _parse_message(_nested_message(described)).get(2, []):
            size = _integer(_parse_message(_nested_message(dimension)), 1)
            # A negative number is stored as its two's complement.
            if size >= 1 << 40:
                raise ValueError(f"a dimension of {size:,}")
            shape.append(size)
    dtype, shard, offset, size, checksum = (_integer(message, field) for field in (1, 3, 4, 5, 6))
    return TensorEntry(dtype, tuple(shape), shard, offset, size, checksum, sliced=7 in message)


def _integer(message: Message, field: int) -> int:
    """An integer field; 0, which protocol buffers omit, if it is missing."""
    value = message.get(field, [0])[-1]
    if not isinstance(value, int):
        raise ValueError(f"field {field} is not an integer")
    return value


def _nested_message(value: int | bytes) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("an integer in place of a message")
    return value


def _parse_message(content: bytes) -> Message:
    fields: Message = {}
    at = 0
    while at < len(content):
        tag, at = varint(content, at)
        wire = tag & 7
        if wire == 0:
            value, at = varint(content, at)
            fields.setdefault(tag >> 3, []).append(value)
            continue
        if wire == 2:
            size, at = varint(content, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if at + size > len(content):
            raise ValueError("a field exceeds its message")
        field = content[at : at + size]
        fields.setdefault(tag >> 3, []).append(field if wire == 2 else int.from_bytes(field, "little"))
        at += size
    return fields


# The LevelDB table

_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48
_TRAILER = 5

# Snappy expands three bytes to at most 64; a block that claims a higher ratio is invalid.
_MAX_SNAPPY_RATIO = 64


def read_table(content: bytes, *, where: str) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values in the table's order; CheckpointError for a damaged table."""
    try:
        if len(content) < _FOOTER or int.from_bytes(content[-8:], "little") != _MAGIC:
            raise ValueError("no footer; the file may be truncated")
        footer = content[-_FOOTER:]
        # The footer has the offsets and sizes of two blocks: the metadata, which is not needed, and the index.
        _, at = varint(footer, 0)
        _, at = varint(footer, at)
        offset, at = varint(footer, at)
        size, _ = varint(footer, at)
        for _, handle in _block_entries(_block(content, offset, size)):
            offset, at = varint(handle, 0)
            size, _ = varint(handle, at)
            yield from _block_entries(_block(content, offset, size))
    except (IndexError, ValueError) as error:
        raise damaged_error(where, f"invalid index: {error}") from None


def varint(content: bytes, at: int) -> tuple[int, int]:
    """A variable-length integer and the offset after it; ValueError beyond 64 bits."""
    number = 0
    for shift in range(0, 70, 7):
        octet = content[at]
        at += 1
        number |= (octet & 0x7F) << shift
        if octet < 0x80:
            return number, at
    raise ValueError(f"an integer of more than 64 bits at byte {at}")


def _block(content: bytes, offset: int, size: int) -> bytes:
    stored = content[offset : offset + size + _TRAILER]
    if len(stored) != size + _TRAILER:
        raise ValueError(f"a block of {size:,} bytes at {offset:,} exceeds the file")
    if crc32c(stored[:-4]) != unmask(int.from_bytes(stored[-4:], "little")):
        raise ValueError(f"wrong checksum of the block at {offset:,}")
    compression = stored[size]
    if compression not in (0, 1):
        raise ValueError(f"compression {compression} of the block at {offset:,}; expected 0 or 1")
    return decompress_snappy(stored[:size]) if compression else stored[:size]


def _block_entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 - 4 * restarts
    if end < 0:
        raise ValueError(f"a block of {len(block):,} bytes claims {restarts:,} restart points")
    at, key = 0, b""
    while at < end:
        shared, at = varint(block, at)
        unshared, at = varint(block, at)
        length, at = varint(block, at)
        if shared > len(key) or at + unshared + length > end:
            raise ValueError(f"an entry at byte {at:,} exceeds its block")
        key = key[:shared] + block[at : at + unshared]
        at += unshared
        yield key, block[at : at + length]
        at += length


def decompress_snappy(compressed: bytes) -> bytes:
    """The content of a raw snappy block; ValueError if it is invalid."""
    import pyarrow

    size, _ = varint(compressed, 0)
    if size > len(compressed) * _MAX_SNAPPY_RATIO:
        raise ValueError(f"{len(compressed):,} bytes of snappy claim to contain {size:,}")
    try:
        return bytes(pyarrow.decompress(compressed, decompressed_size=size, codec="snappy", asbytes=True))
    except OSError as error:
        raise ValueError(f"invalid snappy block: {error}") from None


def crc32c(content: bytes | Bytes) -> int:
    """The CRC-32C checksum of bytes."""
    try:
        import google_crc32c
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            error.name or "google-crc32c", extra="train", purpose="reading a TensorFlow checkpoint"
        ) from None
    return int(google_crc32c.value(content))


def unmask(stored: int) -> int:
    """A checksum from the masked form in which LevelDB and TensorFlow store it."""
    rotated = (stored - 0xA282EAD8) & 0xFFFFFFFF
    return ((rotated >> 17) | (rotated << 15)) & 0xFFFFFFFF
