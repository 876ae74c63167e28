"""learn-vocab: train a tokenizer on text, or adapt one to it, and save it as a Hugging Face folder."""

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import lexome
from lexome.corpus.records import column_batches, is_records
from lexome.corpus.vocab.adapt import AdaptationStats, adapt
from lexome.corpus.vocab.algorithms import BERT_SPECIAL, LEARNERS, ROBERTA_SPECIAL, VocabSettings
from lexome.corpus.vocab.tokenizers import TOKENIZER_FILE, load_tokenizer, special_by_name, tokenizer_sha256
from lexome.errors import FormatError, UsageError
from lexome.files import atomic_folder
from lexome.formats import Tally, expand, read
from lexome.formats.registry import get_format
from lexome.progress import progress
from lexome.recipe.corpus_stages import ADAPT_KEYS, VocabRecipe

# Documents are hashed into buckets by id; a sample is the first few of them. So no pass holds a list of documents, and
# sizes are exact to this fraction of the corpus.
BUCKETS = 1 << 16


@dataclass(frozen=True)
class TextSample:
    """The texts of documents in some files, or of a sample of them, re-iterable.

    The sample is all documents in buckets below `below`, which depends on id and `seed` alone, not on order or files.
    """

    files: tuple[Path, ...]
    format: str | None = None
    seed: int = 0
    below: int = BUCKETS

    def documents(self, what: str, *, progress_shown: bool = True) -> Iterator[list[str]]:
        """The passages of each document of the sample; `what` labels the progress bar."""
        for doc_id, texts in self._all(what, progress_shown):
            if self.below == BUCKETS or bucket(doc_id, self.seed) < self.below:
                yield texts

    def sampled(
        self, *, documents: int | None = None, megabytes: float | None = None, progress_shown: bool = True
    ) -> "TextSample":
        """A sample of about this many documents or megabytes; everything where neither is given."""
        wanted = documents if documents is not None else megabytes and megabytes * 1e6
        if not wanted:
            return self
        weights = np.zeros(BUCKETS)
        for doc_id, texts in self._all("counting", progress_shown):
            weights[bucket(doc_id, self.seed)] += 1 if documents else sum(len(text.encode()) for text in texts)
        filled = int(np.searchsorted(np.cumsum(weights), wanted)) + 1
        return TextSample(self.files, self.format, self.seed, min(filled, BUCKETS))

    def _all(self, what: str, progress_shown: bool) -> Iterator[tuple[str, list[str]]]:
        tally = Tally()
        total = sum(path.stat().st_size for path in self.files)
        with progress(what, total=total, position=lambda: tally.bytes_read, shown=progress_shown) as watched:
            yield from watched(self._streamed(tally))

    def _streamed(self, tally: Tally) -> Iterator[tuple[str, list[str]]]:
        others = []
        for file in self.files:
            if is_records(file, self.format):
                yield from _read_columns(file, tally)
            else:
                others.append(file)
        if others:
            # A text file of gigabytes is not one document.
            lines = {"per": "line"} if self.format == "text" else {}
            # Together, since some formats span several files.
            for doc in read(others, self.format, tally=tally, options_if_supported=lines):
                yield doc.id, [passage.text for passage in doc.passages]


def open_texts(inputs: Sequence[Path], format: str | None = None, *, seed: int = 0) -> TextSample:
    """The text of files, folders and archives."""
    return TextSample(tuple(expand(inputs, get_format(format) if format else None, Tally())), format, seed)


def bucket(doc_id: str, seed: int) -> int:
    """The bucket of a document: a hash of its id and the seed."""
    digest = hashlib.blake2b(f"{seed}:{doc_id}".encode(errors="surrogatepass"), digest_size=2).digest()
    return int.from_bytes(digest, "big")


def content_hash(files: Sequence[Path]) -> str:
    """A hash of the files' contents, independent of names and order."""
    digests = []
    for path in files:
        with path.open("rb") as stream:
            digests.append(hashlib.file_digest(stream, "sha256").hexdigest())
    return hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()


def _read_columns(file: Path, tally: Tally) -> Iterator[tuple[str, list[str]]]:
    """Ids and texts of records, read by column."""
    for batch in column_batches(file, ("text",)):
        passages = batch.column("passages")
        ends = passages.offsets.to_numpy()
        texts = passages.values.field("text").to_pylist()
        yield from zip(batch.column("id").to_pylist(), (texts[start:end] for start, end in pairwise(ends)), strict=True)
    tally.bytes_read += file.stat().st_size


# What was trained, from what, with which versions. No time and no machine, so that reruns give the same bytes.
RUN_FILE = "lexome.json"

# Keys that do not change the vocabulary: moving text or output does not require a new one.
NOT_COUNTED = {"inputs", "out", "overwrite", "adapt"}

# Files that an adapted tokenizer keeps from its base.
COMPANIONS = ("tokenizer_config.json", "special_tokens_map.json")


@dataclass(frozen=True)
class LearnedVocab:
    """A tokenizer folder, the extent of its text, and statistics of `adapt`; `new` is False where it existed."""

    folder: Path
    sha256: str
    pieces: int
    documents: int
    text_bytes: int
    new: bool = True
    adapted: AdaptationStats | None = None


def learn_vocab(recipe: VocabRecipe, *, progress_shown: bool = True) -> LearnedVocab:
    """Train the tokenizer of a recipe, unless the same recipe and text already did.

    Text is streamed two or three times: for the sample size, the alphabet and the words.
    """
    texts = open_texts(recipe.inputs, recipe.format, seed=recipe.seed)
    base = None if recipe.adapt is None else load_tokenizer(recipe.adapt)
    fingerprint = _fingerprint(recipe, texts, base)
    earlier = _existing_vocab(recipe, fingerprint)
    if earlier is not None:
        return earlier
    sample = texts.sampled(
        documents=recipe.sample_documents, megabytes=recipe.sample_megabytes, progress_shown=progress_shown
    )
    counted = _CountedDocuments(sample, progress_shown)
    adapted = None
    if base is None:
        setting = VocabSettings(recipe.size, recipe.cased, recipe.min_frequency, recipe.alphabet)
        tokenizer = LEARNERS[recipe.kind](counted, setting)
    else:
        tokenizer, adapted = adapt(counted, base, new=recipe.max_new_tokens, min_documents=recipe.min_documents)
    counts = {"pieces": tokenizer.get_vocab_size(), "documents": counted.documents, "text_bytes": counted.text_bytes}
    libraries = ("tokenizers", *(("sentencepiece",) if recipe.kind == "sentencepiece-unigram" else ()))
    run = {
        "recipe": recipe.model_dump(mode="json"),
        "fingerprint": fingerprint,
        **counts,
        **({} if adapted is None else {"adapted": asdict(adapted)}),
        # In a source tree that is not installed, Lexome has no package metadata.
        "versions": {"lexome": lexome.__version__, **{name: version(name) for name in libraries}},
    }
    sha256 = _write_folder(tokenizer, recipe, run)
    return LearnedVocab(recipe.out, sha256, **counts, adapted=adapted)


class _CountedDocuments:
    """The documents of the sample, re-iterable; counts those of the last pass."""

    def __init__(self, texts: TextSample, progress_shown: bool) -> None:
        self._texts = texts
        self._shown = progress_shown
        self.documents = self.text_bytes = 0

    def __call__(self) -> Iterator[list[str]]:
        self.documents = self.text_bytes = 0
        for texts in self._texts.documents("learning", progress_shown=self._shown):
            self.documents += 1
            self.text_bytes += sum(len(text.encode()) for text in texts)
            yield texts
        if not self.text_bytes:
            names = ", ".join(map(str, self._texts.files[:3]))
            raise FormatError(f"{names}: no text found. Check inputs.", code="no-text", value=names)


def _fingerprint(recipe: VocabRecipe, texts: TextSample, base: Any) -> str:
    settings = recipe.model_dump(mode="json", exclude=NOT_COUNTED | (set(ADAPT_KEYS) if base is None else set()))
    if base is not None:
        settings["base"] = hashlib.sha256(base.to_str().encode()).hexdigest()
    told = json.dumps({**settings, "text": content_hash(texts.files)}, sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()


def _existing_vocab(recipe: VocabRecipe, fingerprint: str) -> LearnedVocab | None:
    """The vocabulary of an earlier run with the same fingerprint; UsageError for any other output."""
    out = recipe.out
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return None
    run = _read_run(out)
    if run is None:
        message = f"{out}: exists and was not written by `lexome learn-vocab`. Move it, or choose another out."
        raise UsageError(message, code="foreign-output", value=out)
    whole = (out / TOKENIZER_FILE).is_file() and tokenizer_sha256(out) == run.get("sha256")
    if whole and run.get("fingerprint") == fingerprint:
        counts = {name: run[name] for name in ("pieces", "documents", "text_bytes")}
        adapted = AdaptationStats(**run["adapted"]) if "adapted" in run else None
        return LearnedVocab(out, run["sha256"], **counts, new=False, adapted=adapted)
    if recipe.overwrite:
        return None
    seen = "of other settings or other text" if whole else f"whose {TOKENIZER_FILE} was modified"
    message = f"{out}: holds a vocabulary {seen}. Choose another out, or set overwrite = true (--set overwrite=true)."
    raise UsageError(message, code="other-settings", value=out)


def _read_run(folder: Path) -> dict[str, Any] | None:
    try:
        run = json.loads((folder / RUN_FILE).read_bytes())
    except (OSError, ValueError):
        return None
    ours = isinstance(run, dict) and isinstance(run.get("recipe"), dict) and run["recipe"].get("stage") == "learn-vocab"
    return run if ours else None


def _write_folder(tokenizer: Any, recipe: VocabRecipe, run: dict[str, Any]) -> str:
    """Write the tokenizer folder atomically; the hash of its tokenizer.json."""
    out = recipe.out
    try:
        with atomic_folder(out) as temporary:
            tokenizer.save(str(temporary / TOKENIZER_FILE))
            _write_companions(tokenizer, recipe, temporary)
            sha256 = tokenizer_sha256(temporary)
            _write_json(temporary / RUN_FILE, {**run, "sha256": sha256})
    except Exception as error:
        # The tokenizers library raises bare Exception, also where the disk is full.
        if isinstance(error, OSError) or type(error) is Exception:
            message = f"{out}: cannot be written ({error}); expected a writable folder with free space."
            raise FormatError(message, code="not-writable", value=out) from error
        raise
    return sha256


def _write_companions(tokenizer: Any, recipe: VocabRecipe, folder: Path) -> None:
    """Write the files that AutoTokenizer and older programs read beside tokenizer.json."""
    special = _special_tokens(recipe) if recipe.adapt is None else special_by_name(tokenizer)
    settings: dict[str, Any] = {"clean_up_tokenization_spaces": False, "model_max_length": recipe.max_length, **special}
    if recipe.kind == "wordpiece":
        pieces = sorted(tokenizer.get_vocab().items(), key=lambda pair: pair[1])
        (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece, _ in pieces), encoding="utf-8")
        cased = recipe.cased if recipe.adapt is None else not getattr(tokenizer.normalizer, "lowercase", False)
        settings |= {"tokenizer_class": "BertTokenizer", "do_lower_case": not cased}
        settings |= {"strip_accents": not cased, "tokenize_chinese_chars": True}
    elif recipe.kind == "byte-bpe":
        tokenizer.model.save(str(folder))
        settings |= {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": False, "trim_offsets": True}
    else:
        # No class of transformers has these rules; this one uses tokenizer.json as it is.
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    typed = {
        key: {"__type": "AddedToken", **held} if isinstance(held, dict) else held for key, held in settings.items()
    }
    _write_json(folder / "tokenizer_config.json", typed)
    _write_json(folder / "special_tokens_map.json", special)
    if recipe.adapt is not None:
        _keep_companions(recipe.adapt, recipe, folder)


def _keep_companions(adapted: Path, recipe: VocabRecipe, folder: Path) -> None:
    """Copy the companion files of the base tokenizer; only an explicit max_length is changed."""
    beside = adapted if adapted.is_dir() else adapted.parent
    for file in (beside / name for name in COMPANIONS):
        if file.is_file():
            shutil.copyfile(file, folder / file.name)
    if "max_length" in recipe.model_fields_set:
        path = folder / COMPANIONS[0]
        _write_json(path, json.loads(path.read_bytes()) | {"model_max_length": recipe.max_length})


def _special_tokens(recipe: VocabRecipe) -> dict[str, Any]:
    if recipe.kind != "byte-bpe":
        pad, unknown, begin, end, mask = BERT_SPECIAL
        return {"cls_token": begin, "mask_token": mask, "pad_token": pad, "sep_token": end, "unk_token": unknown}
    begin, pad, end, unknown, mask = ROBERTA_SPECIAL
    # <mask> absorbs the space before it, as in RoBERTa.
    held = {"content": mask, "lstrip": True, "normalized": False, "rstrip": False, "single_word": False}
    special = {"cls_token": begin, "mask_token": held, "pad_token": pad, "sep_token": end, "unk_token": unknown}
    return {**special, "bos_token": begin, "eos_token": end}


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
