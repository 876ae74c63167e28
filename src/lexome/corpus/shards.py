"""shard: records and a tokenizer into token shards."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from lexome.corpus.output_folder import OutputFolder, recipe_keys
from lexome.corpus.records import Text, texts
from lexome.corpus.vocab.tokenizers import TOKENIZER_FILE, load_tokenizer, pieces_of, tokenizer_sha256, unknown_id
from lexome.errors import ShardError
from lexome.files import atomic_write, fingerprint, write_json
from lexome.formats import Tally, work_units
from lexome.formats.streams import printable_name, uncompressed_name
from lexome.pipeline import Advance, Engine, Job, Part, Stage, StageResult, run
from lexome.recipe.corpus_stages import ShardRecipe

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


# Raised when the same records and tokenizer would give other shards than before.
VERSION = 1

# Documents encoded at a time.
BATCH = 64

LOCAL = Engine()


@dataclass(frozen=True, slots=True)
class Sharded:
    """What sharding came to: the manifest where it is complete, and files that failed or wait for other parts."""

    manifest: dict[str, Any] | None
    failures: dict[str, str]
    waiting: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShardSettings:
    """What sharding one file needs of the recipe."""

    tokenizer: Path
    format: str | None
    held_out: float
    seed: int


def shard(
    recipe: ShardRecipe, *, engine: Engine = LOCAL, part: Part | None = None, progress_shown: bool = True
) -> Sharded:
    """Make the token shards of a recipe under its `out`; files that are done are not done again.

    A folder that another recipe made is refused, unless the recipe says `overwrite`. The manifest comes last and only
    when every file is done, so that nothing trains on a part by mistake.
    """
    tokenizer = tokenizer_file(recipe.tokenizer)
    sha256 = tokenizer_sha256(tokenizer)
    jobs = _jobs(recipe, tokenizer)
    identity = fingerprint(VERSION, sha256, recipe.held_out, recipe.seed, recipe.format)
    stage = Stage("shard", shard_file, jobs, recipe.out / ".lexome", identity)
    # Shards may be written beside their own tokenizer.
    places = (recipe.out / name for name in (MANIFEST, TOKENIZER_FILE, *PARTS))
    outputs = tuple(path for path in places if path.resolve() != tokenizer.resolve())
    folder = OutputFolder(recipe, "token shards", stage.marks, recipe.out / MANIFEST, outputs)
    folder.check()
    folder.record()
    # Before the first shard changes: a manifest of others must not vouch for them if this run is cut short.
    (recipe.out / MANIFEST).unlink(missing_ok=True)
    result = run(stage, engine=engine, part=part, progress_shown=progress_shown)
    if not result.done:
        return Sharded(None, result.failures, result.waiting)
    manifest = _write_manifest(recipe, result, sha256, _vocabulary(tokenizer))
    with atomic_write(recipe.out / TOKENIZER_FILE) as stream:
        stream.write(tokenizer.read_bytes())
    write_json(recipe.out / MANIFEST, manifest)
    return Sharded(manifest, {})


def tokenizer_file(path: Path) -> Path:
    """The tokenizer.json of a folder, or the file itself."""
    file = path / TOKENIZER_FILE if path.is_dir() else path
    if not file.is_file() or file.suffix != ".json":
        raise ShardError(
            f"{path}: there is no {TOKENIZER_FILE}. Learn a vocabulary with `lexome learn-vocab`, or save the one you "
            "have as tokenizer.json."
        )
    return file


def _jobs(recipe: ShardRecipe, tokenizer: Path) -> tuple[Job, ...]:
    settings = ShardSettings(tokenizer.resolve(), recipe.format, recipe.held_out, recipe.seed)
    jobs: dict[str, Job] = {}
    for given in recipe.inputs:
        for files in work_units([given], recipe.format, Tally()):
            name = _name(files[0], given)
            if name in jobs:
                raise ShardError(
                    f"{files[0]} and {jobs[name].inputs[0]} would make shards of the same name. Shard them apart."
                )
            outputs = tuple(path for part in PARTS for path in files_of(recipe.out / part, name))
            jobs[name] = Job(name, files, outputs, settings)
    return tuple(jobs.values())


def _name(file: Path, given: Path) -> str:
    """The shard's name: the file's place below the folder that was given, without its ending."""
    inside = PurePosixPath(file.relative_to(given)) if given.is_dir() else PurePosixPath(file.name)
    return printable_name(str(inside.with_name(PurePosixPath(uncompressed_name(inside.name)).stem or inside.name)))


@dataclass(slots=True)
class _Growing:
    """The three files of one shard while they are written."""

    files: tuple[BinaryIO, BinaryIO, BinaryIO]
    dtype: np.dtype[Any]
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("tokens", "documents", "sentences"), 0))

    def add(self, ids: list[list[int]]) -> None:
        """Add a document, a list of ids for each sentence."""
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        ends = self.counts["tokens"] + np.cumsum(lengths[lengths > 0])
        if len(ends) == 0:
            return
        if ends[-1] > np.iinfo(ENDS).max:
            raise ShardError(f"more than {np.iinfo(ENDS).max:,} tokens in one shard. Cut the records into more files.")
        tokens, documents, sentences = self.files
        flat = np.fromiter(chain.from_iterable(ids), self.dtype, int(lengths.sum()))
        tokens.write(flat.tobytes())
        sentences.write(ends.astype(ENDS).tobytes())
        documents.write(ends[-1:].astype(ENDS).tobytes())
        self.counts["tokens"] = int(ends[-1])
        self.counts["sentences"] += len(ends)
        self.counts["documents"] += 1


def shard_file(job: Job, drafts: tuple[Path, ...], advance: Advance) -> dict[str, Any]:
    """Write the shards of one file of records, for training and held out."""
    settings: ShardSettings = job.settings
    # Cores are used by files, of which each worker has one.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenizer = load_tokenizer(settings.tokenizer)
    unknown = unknown_id(tokenizer)
    dtype = token_type(pieces_of(tokenizer))
    found = {"without_tokens": 0, "unknown": 0}
    streams = [path.open("wb") for path in drafts]
    try:
        growing = [_Growing(tuple(streams[at : at + 3]), dtype) for at in (0, 3)]  # type: ignore[arg-type]
        for text, ids in _encoded(tokenizer, texts(job.inputs, settings.format)):
            if not any(ids):
                found["without_tokens"] += 1
                continue
            if unknown is not None:
                found["unknown"] += sum(sentence.count(unknown) for sentence in ids)
            growing[_is_held_out(text.id, settings)].add(ids)
            advance(sum(map(len, text.cuts)))
    finally:
        for stream in streams:
            stream.close()
    return {**found, **{part: dict(one.counts) for part, one in zip(PARTS, growing, strict=True)}}


def _encoded(tokenizer: Any, all_texts: Iterable[Text]) -> Iterator[tuple[Text, list[list[int]]]]:
    """Each text with the ids of its sentences."""
    stream = iter(all_texts)
    while batch := list(islice(stream, BATCH)):
        flat = [cut for text in batch for cut in text.cuts]
        encodings = iter(tokenizer.encode_batch_fast(flat, add_special_tokens=False))
        for text in batch:
            yield text, [encoding.ids for encoding in islice(encodings, len(text.cuts))]


def _is_held_out(id_: str, settings: ShardSettings) -> bool:
    """Chosen by the document's id and the seed alone, so that order and files do not matter."""
    if not settings.held_out:
        return False
    digest = hashlib.blake2b(f"{settings.seed}:{id_}".encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") < settings.held_out * 2**64


def _vocabulary(path: Path) -> dict[str, Any]:
    """What training must know of the vocabulary: its size and its special tokens."""
    tokenizer = load_tokenizer(path)
    special = {token.content: id_ for id_, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    return {"pieces": pieces_of(tokenizer), "special": dict(sorted(special.items(), key=lambda item: item[1]))}


def _write_manifest(
    recipe: ShardRecipe, result: StageResult, sha256: str, vocabulary: dict[str, Any]
) -> dict[str, Any]:
    parts = {
        part: [{"name": name, **report[part]} for name, report in result.reports.items() if report[part]["tokens"]]
        for part in PARTS
    }
    totals = {
        part: {key: sum(entry[key] for entry in entries) for key in ("documents", "sentences", "tokens")}
        for part, entries in parts.items()
    }
    return {
        "form": FORM,
        "version": FORM_VERSION,
        "tokenizer": {"sha256": sha256, **vocabulary},
        "dtype": token_type(vocabulary["pieces"]).str,
        "totals": totals,
        "unknown": sum(report["unknown"] for report in result.reports.values()),
        "without_tokens": sum(report["without_tokens"] for report in result.reports.values()),
        "recipe": recipe_keys(recipe),
        "shards": parts,
    }
