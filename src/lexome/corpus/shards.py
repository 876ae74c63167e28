"""Token shards: memory-mapped token ids with document and sentence ends; and `shard`, which writes them."""

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
from lexome.corpus.records import SentenceText, read_texts
from lexome.corpus.vocab.tokenizers import TOKENIZER_FILE, load_tokenizer, tokenizer_sha256, unknown_id, vocab_size
from lexome.errors import ShardError
from lexome.files import atomic_write, fingerprint, write_json
from lexome.formats import Tally, work_units
from lexome.formats.streams import output_name, printable_name, uncompressed_name
from lexome.pipeline import Advance, Engine, Job, Part, Stage, StageResult, run
from lexome.recipe import made_by
from lexome.recipe.corpus_stages import ShardRecipe

MANIFEST = "manifest.json"
FORM = "lexome.shards"
FORM_VERSION = 1
PARTS = ("train", "held_out")

# The type of document and sentence ends: a shard with more tokens than it holds is refused.
ENDS = np.dtype("<u4")


@dataclass(frozen=True, slots=True)
class Shard:
    """The tokens of one file of records, memory-mapped."""

    name: str
    tokens: npt.NDArray[np.unsignedinteger[Any]]
    document_ends: npt.NDArray[np.uint32]
    sentence_ends: npt.NDArray[np.uint32]

    @property
    def source(self) -> str:
        """The first part of its name; for a built corpus, the source in the recipe."""
        return self.name.partition("/")[0]


@dataclass(frozen=True, slots=True)
class Shards:
    """A folder of shards, `train` and `held_out`, with its manifest."""

    folder: Path
    manifest: dict[str, Any]
    train: tuple[Shard, ...]
    held_out: tuple[Shard, ...]

    @property
    def tokenizer_sha256(self) -> str:
        """SHA-256 of the tokenizer the ids were made with."""
        return str(self.manifest["tokenizer"]["sha256"])

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources with training text."""
        return tuple(dict.fromkeys(shard.source for shard in self.train if shard.tokens.size))


def open_shards(folder: Path, *, tokenizer_sha256: str | None = None) -> Shards:
    """Open the shards in a folder; ShardError if they are corrupt or were made with another tokenizer."""
    manifest = _read_manifest(folder)
    made_by = manifest["tokenizer"]["sha256"]
    if tokenizer_sha256 is not None and tokenizer_sha256 != made_by:
        raise ShardError(
            f"shards in {folder} were made with tokenizer {made_by[:8]}, but the model uses {tokenizer_sha256[:8]}. "
            f"Use {folder / 'tokenizer.json'}, or run `lexome shard` again.",
            code="tokenizer-mismatch",
            value=made_by,
        )
    dtype = np.dtype(manifest["dtype"])
    parts = {
        part: tuple(_open_shard(folder / part, entry, dtype) for entry in manifest["shards"].get(part, ()))
        for part in PARTS
    }
    return Shards(folder, manifest, parts["train"], parts["held_out"])


def shard_paths(folder: Path, name: str) -> tuple[Path, Path, Path]:
    """The three files of a shard: tokens, document ends, sentence ends."""
    return (folder / f"{name}.tokens", folder / f"{name}.documents", folder / f"{name}.sentences")


def token_dtype(pieces: int) -> np.dtype[Any]:
    """The smallest type that holds the ids of a vocabulary of this size."""
    return np.dtype("<u2") if pieces <= 1 << 16 else np.dtype("<u4")


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        manifest: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ShardError(
            f"{folder}: has no {MANIFEST}: no finished shards. Run `lexome shard`, or rerun it if it was interrupted."
            f"{made_by(folder)}",
            code="missing-manifest",
            value=folder,
        ) from None
    except ValueError as error:
        raise ShardError(
            f"{path}: not JSON ({error}). Run `lexome shard` again.", code="bad-manifest", value=path
        ) from None
    if not isinstance(manifest, dict) or manifest.get("form") != FORM:
        raise ShardError(f"{path}: not a manifest of token shards. Check the folder.", code="bad-manifest", value=path)
    if manifest.get("version") != FORM_VERSION:
        message = f"{path}: shard format {manifest.get('version')}; expected {FORM_VERSION}. Run `lexome shard` again."
        raise ShardError(message, code="shard-version", value=manifest.get("version"))
    return manifest


def _open_shard(folder: Path, entry: dict[str, Any], dtype: np.dtype[Any]) -> Shard:
    kinds = (("tokens", dtype), ("documents", ENDS), ("sentences", ENDS))
    arrays = []
    for path, (key, kind) in zip(shard_paths(folder, entry["name"]), kinds, strict=True):
        wanted = entry[key] * kind.itemsize
        size = path.stat().st_size if path.exists() else -1
        if size != wanted:
            seen = "is missing" if size < 0 else f"has {size:,} bytes"
            message = f"{path} {seen}; expected {wanted:,} bytes. Copy it again, or run `lexome shard` again."
            raise ShardError(message, code="truncated-shard", value=path)
        # An empty file cannot be memory-mapped.
        arrays.append(np.memmap(path, kind, mode="r") if wanted else np.zeros(0, kind))
    return Shard(entry["name"], *arrays)


# Incremented when the same records and tokenizer would give different shards.
VERSION = 1

# Documents tokenized per call.
BATCH = 64

LOCAL = Engine()


@dataclass(frozen=True, slots=True)
class ShardResult:
    """The manifest, if sharding is complete, and files that failed or wait for other parts."""

    manifest: dict[str, Any] | None
    failures: dict[str, str]
    waiting: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ShardSettings:
    """The part of the recipe that sharding one file needs."""

    tokenizer: Path
    format: str | None
    held_out: float
    seed: int


def shard(
    recipe: ShardRecipe, *, engine: Engine = LOCAL, part: Part | None = None, progress_shown: bool = True
) -> ShardResult:
    """Write the token shards of a recipe to its `out`; finished files are not repeated.

    The output of another recipe is refused unless `overwrite` is set. The manifest is written last, when every file is
    finished, so incomplete shards cannot be used by mistake.
    """
    tokenizer = tokenizer_file(recipe.tokenizer)
    sha256 = tokenizer_sha256(tokenizer)
    jobs = _jobs(recipe, tokenizer)
    identity = fingerprint(VERSION, sha256, recipe.held_out, recipe.seed, recipe.format)
    stage = Stage("shard", shard_file, jobs, recipe.out / ".lexome", identity)
    # Shards may be written to the folder of their tokenizer, which is then no output.
    places = (recipe.out / name for name in (MANIFEST, TOKENIZER_FILE, *PARTS))
    outputs = tuple(path for path in places if path.resolve() != tokenizer.resolve())
    folder = OutputFolder(recipe, "token shards", stage.marks, recipe.out / MANIFEST, outputs)
    folder.check()
    folder.record()
    # Before the first shard changes: an old manifest must not describe new shards if this run is interrupted.
    (recipe.out / MANIFEST).unlink(missing_ok=True)
    result = run(stage, engine=engine, part=part, progress_shown=progress_shown)
    if not result.done:
        return ShardResult(None, result.failures, result.waiting)
    manifest = _build_manifest(recipe, result, tokenizer, sha256)
    with atomic_write(recipe.out / TOKENIZER_FILE) as stream:
        stream.write(tokenizer.read_bytes())
    write_json(recipe.out / MANIFEST, manifest)
    return ShardResult(manifest, {})


def tokenizer_file(path: Path) -> Path:
    """The tokenizer.json of a folder, or the file itself."""
    file = path / TOKENIZER_FILE if path.is_dir() else path
    if not file.is_file() or file.suffix != ".json":
        raise ShardError(
            f"{path}: has no {TOKENIZER_FILE}. Train a tokenizer with `lexome learn-vocab`, or save yours as "
            "tokenizer.json.",
            code="missing-tokenizer",
            value=path,
        )
    return file


def _jobs(recipe: ShardRecipe, tokenizer: Path) -> tuple[Job, ...]:
    settings = ShardSettings(tokenizer.resolve(), recipe.format, recipe.held_out, recipe.seed)
    jobs: dict[str, Job] = {}
    for input_path in recipe.inputs:
        for files in work_units([input_path], recipe.format, Tally()):
            name = _name(files[0], input_path)
            if name in jobs:
                raise ShardError(
                    f"{files[0]} and {jobs[name].inputs[0]} would have shards of the same name. Shard them separately.",
                    code="duplicate-name",
                    value=name,
                )
            outputs = tuple(path for part in PARTS for path in shard_paths(recipe.out / part, name))
            jobs[name] = Job(name, files, outputs, settings)
    return tuple(jobs.values())


def _name(file: Path, input_path: Path) -> str:
    """The shard's name: the file's path relative to its input folder, without suffix."""
    inside = PurePosixPath(file.relative_to(input_path)) if input_path.is_dir() else PurePosixPath(file.name)
    stem = output_name(PurePosixPath(uncompressed_name(inside.name)).stem or inside.name)
    return printable_name(str(inside.with_name(stem)))


@dataclass(slots=True)
class _ShardWriter:
    """Writes the three files of one shard."""

    files: tuple[BinaryIO, BinaryIO, BinaryIO]
    dtype: np.dtype[Any]
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("tokens", "documents", "sentences"), 0))

    def add(self, ids: list[list[int]]) -> None:
        """Append a document: a list of ids for each sentence."""
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        ends = self.counts["tokens"] + np.cumsum(lengths[lengths > 0])
        if len(ends) == 0:
            return
        if ends[-1] > np.iinfo(ENDS).max:
            message = f"more than {np.iinfo(ENDS).max:,} tokens in one shard. Split the records into more files."
            raise ShardError(message, code="shard-too-large", value=int(ends[-1]))
        tokens, documents, sentences = self.files
        flat = np.fromiter(chain.from_iterable(ids), self.dtype, int(lengths.sum()))
        tokens.write(flat.tobytes())
        sentences.write(ends.astype(ENDS).tobytes())
        documents.write(ends[-1:].astype(ENDS).tobytes())
        self.counts["tokens"] = int(ends[-1])
        self.counts["sentences"] += len(ends)
        self.counts["documents"] += 1


def shard_file(job: Job, drafts: tuple[Path, ...], advance: Advance) -> dict[str, Any]:
    """Write the training and held-out shards of one file of records."""
    settings: ShardSettings = job.settings
    # Parallelism is over files, one per worker.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    tokenizer = load_tokenizer(settings.tokenizer)
    unknown = unknown_id(tokenizer)
    dtype = token_dtype(vocab_size(tokenizer))
    totals = {"without_tokens": 0, "unknown": 0}
    streams = [path.open("wb") for path in drafts]
    try:
        growing = [_ShardWriter(tuple(streams[at : at + 3]), dtype) for at in (0, 3)]  # type: ignore[arg-type]
        for text, ids in _encode(tokenizer, read_texts(job.inputs, settings.format)):
            if not any(ids):
                totals["without_tokens"] += 1
                continue
            if unknown is not None:
                totals["unknown"] += sum(sentence.count(unknown) for sentence in ids)
            growing[_is_held_out(text.id, settings)].add(ids)
            advance(sum(map(len, text.pieces)))
    finally:
        for stream in streams:
            stream.close()
    return {**totals, **{part: dict(one.counts) for part, one in zip(PARTS, growing, strict=True)}}


def _encode(tokenizer: Any, all_texts: Iterable[SentenceText]) -> Iterator[tuple[SentenceText, list[list[int]]]]:
    """Each text with the token ids of its sentences."""
    stream = iter(all_texts)
    while batch := list(islice(stream, BATCH)):
        flat = [piece for text in batch for piece in text.pieces]
        encodings = iter(tokenizer.encode_batch_fast(flat, add_special_tokens=False))
        for text in batch:
            yield text, [encoding.ids for encoding in islice(encodings, len(text.pieces))]


def _is_held_out(id_: str, settings: ShardSettings) -> bool:
    """Decided by document id and seed alone, so that order and files do not matter."""
    if not settings.held_out:
        return False
    digest = hashlib.blake2b(f"{settings.seed}:{id_}".encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") < settings.held_out * 2**64


def _build_manifest(recipe: ShardRecipe, result: StageResult, path: Path, sha256: str) -> dict[str, Any]:
    tokenizer = load_tokenizer(path)
    pieces = vocab_size(tokenizer)
    special = {token.content: id_ for id_, token in tokenizer.get_added_tokens_decoder().items() if token.special}
    ordered = dict(sorted(special.items(), key=lambda item: item[1]))
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
        "tokenizer": {"sha256": sha256, "pieces": pieces, "special": ordered},
        "dtype": token_dtype(pieces).str,
        "totals": totals,
        **{key: sum(report[key] for report in result.reports.values()) for key in ("unknown", "without_tokens")},
        "recipe": recipe_keys(recipe),
        "shards": parts,
    }
