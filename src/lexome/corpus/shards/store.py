"""Token shards: ids in memory-mapped files, with the ends of documents and sentences, and a manifest.

manifest.json           counts, and the hash of the tokenizer that made the ids
tokenizer.json          that tokenizer
train/NAME.tokens       ids, two bytes each below 65,536 pieces, else four
train/NAME.documents    where each document ends, in tokens, exclusive; four bytes each
train/NAME.sentences    where each sentence ends; every document's end is one too
held_out/...            the same for documents kept apart
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lexome.errors import ShardError

MANIFEST = "manifest.json"
FORM = "lexome.shards"
FORM_VERSION = 1
PARTS = ("train", "held_out")

# Where documents and sentences end: a shard of more tokens than this holds is refused when it is written.
ENDS = np.dtype("<u4")


@dataclass(frozen=True, slots=True)
class Shard:
    """The tokens of one file of records, mapped from disk."""

    name: str
    tokens: npt.NDArray[np.unsignedinteger[Any]]
    document_ends: npt.NDArray[np.uint32]
    sentence_ends: npt.NDArray[np.uint32]

    @property
    def source(self) -> str:
        """Where its text is from: the first part of its name, which for a built corpus is the recipe's source."""
        return self.name.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Shards:
    """A folder of shards: `train` and `held_out`, and what made them."""

    folder: Path
    manifest: dict[str, Any]
    train: tuple[Shard, ...]
    held_out: tuple[Shard, ...]

    @property
    def tokenizer_sha256(self) -> str:
        """The identity of the tokenizer that made the ids."""
        return str(self.manifest["tokenizer"]["sha256"])

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources that there is text of to train on."""
        return tuple(dict.fromkeys(shard.source for shard in self.train if shard.tokens.size))


def open_shards(folder: Path, *, tokenizer_sha256: str | None = None) -> Shards:
    """The shards in a folder; ShardError where they are damaged, or made by another tokenizer than the one named."""
    manifest = _manifest(folder)
    made_by = manifest["tokenizer"]["sha256"]
    if tokenizer_sha256 is not None and tokenizer_sha256 != made_by:
        raise ShardError(
            f"shards in {folder} were made with tokenizer {made_by[:8]}, but {tokenizer_sha256[:8]} is to be used. "
            f"Use {folder / 'tokenizer.json'}, or run `lexome shard` again."
        )
    dtype = np.dtype(manifest["dtype"])
    parts = {
        part: tuple(_shard(folder / part, entry, dtype) for entry in manifest["shards"].get(part, ())) for part in PARTS
    }
    return Shards(folder, manifest, parts["train"], parts["held_out"])


def files_of(folder: Path, name: str) -> tuple[Path, Path, Path]:
    """The three files of a shard: tokens, ends of documents, ends of sentences."""
    return (folder / f"{name}.tokens", folder / f"{name}.documents", folder / f"{name}.sentences")


def token_type(pieces: int) -> np.dtype[Any]:
    """The type that holds the ids of so many pieces."""
    return np.dtype("<u2") if pieces <= 1 << 16 else np.dtype("<u4")


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        manifest: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ShardError(
            f"{folder}: there is no {MANIFEST}, so no finished shards. Run `lexome shard` (again, if it was stopped)."
        ) from None
    except ValueError as error:
        raise ShardError(f"{path}: not JSON ({error}). Run `lexome shard` again.") from None
    if not isinstance(manifest, dict) or manifest.get("form") != FORM:
        raise ShardError(f"{path}: not a manifest of token shards. Check the folder.")
    if manifest.get("version") != FORM_VERSION:
        raise ShardError(
            f"{path}: shards of form {manifest.get('version')}; this Lexome knows {FORM_VERSION}. Shard again."
        )
    return manifest


def _shard(folder: Path, entry: dict[str, Any], dtype: np.dtype[Any]) -> Shard:
    kinds = (("tokens", dtype), ("documents", ENDS), ("sentences", ENDS))
    arrays = []
    for path, (key, kind) in zip(files_of(folder, entry["name"]), kinds, strict=True):
        wanted = entry[key] * kind.itemsize
        size = path.stat().st_size if path.exists() else -1
        if size != wanted:
            seen = "is missing" if size < 0 else f"has {size:,} bytes"
            raise ShardError(f"{path} {seen}; expected {wanted:,} bytes. Copy it again, or run `lexome shard` again.")
        # An empty file cannot be mapped.
        arrays.append(np.memmap(path, kind, mode="r") if wanted else np.zeros(0, kind))
    return Shard(entry["name"], *arrays)
