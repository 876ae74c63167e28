"""learn-vocab: train a tokenizer on text, or adapt one to it, and save it as a Hugging Face folder."""

import hashlib
import json
import re
import shutil
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import lexome
from lexome.corpus.records import column_batches, is_records
from lexome.corpus.vocab.tokenizers import (
    BERT_SPECIAL,
    LEARNERS,
    ROBERTA_SPECIAL,
    TOKENIZER_FILE,
    Documents,
    VocabSettings,
    load_tokenizer,
    special_by_name,
    tokenizer_sha256,
)
from lexome.errors import FormatError, RecipeError, UsageError
from lexome.files import atomic_folder, file_sha256, read_json, write_json
from lexome.formats import Tally, expand, get_format, read
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
        """A sample of about this many documents or megabytes; everything if neither is given."""
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
            yield from watched(self._stream(tally))

    def _stream(self, tally: Tally) -> Iterator[tuple[str, list[str]]]:
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
    return hashlib.sha256("\n".join(sorted(map(file_sha256, files))).encode()).hexdigest()


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
class AdaptationStats:
    """Unused slots, how many were filled with words, and the number of tokens of the text before and after."""

    free: int
    given: int
    tokens_before: int
    tokens_after: int


@dataclass(frozen=True)
class LearnedVocab:
    """A tokenizer folder, the extent of its text, and statistics of `adapt`; `new` is False if it existed."""

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
    earlier = _existing_vocab(recipe.out, fingerprint, overwrite=recipe.overwrite)
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
    identity = json.dumps({**settings, "text": content_hash(texts.files)}, sort_keys=True)
    return hashlib.sha256(identity.encode()).hexdigest()


def _existing_vocab(out: Path, fingerprint: str, *, overwrite: bool) -> LearnedVocab | None:
    """The vocabulary of an earlier run with the same fingerprint; UsageError for any other output."""
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
    if overwrite:
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
            write_json(temporary / RUN_FILE, {**run, "sha256": sha256}, sort_keys=True)
    except Exception as error:
        # The tokenizers library raises bare Exception, also if the disk is full.
        if isinstance(error, OSError) or type(error) is Exception:
            message = f"{out}: cannot be written ({error}); expected a writable folder with free space."
            raise FormatError(message, code="not-writable", value=out) from error
        raise
    return sha256


def _write_companions(tokenizer: Any, recipe: VocabRecipe, folder: Path) -> None:
    """Write the files that AutoTokenizer and older programs read beside tokenizer.json."""
    special = _special_tokens(recipe.kind) if recipe.adapt is None else special_by_name(tokenizer)
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
        key: {"__type": "AddedToken", **value} if isinstance(value, dict) else value for key, value in settings.items()
    }
    write_json(folder / "tokenizer_config.json", typed, sort_keys=True)
    write_json(folder / "special_tokens_map.json", special, sort_keys=True)
    if recipe.adapt is not None:
        explicit = recipe.max_length if "max_length" in recipe.model_fields_set else None
        _keep_companions(recipe.adapt, folder, max_length=explicit)


def _keep_companions(adapted: Path, folder: Path, *, max_length: int | None) -> None:
    """Copy the companion files of the base tokenizer; only the maximum length is changed, if one is given."""
    beside = adapted if adapted.is_dir() else adapted.parent
    for file in (beside / name for name in COMPANIONS):
        if file.is_file():
            shutil.copyfile(file, folder / file.name)
    if max_length is not None:
        path = folder / COMPANIONS[0]
        write_json(path, read_json(path) | {"model_max_length": max_length}, sort_keys=True)


def _special_tokens(kind: str) -> dict[str, Any]:
    if kind != "byte-bpe":
        pad, unknown, begin, end, mask = BERT_SPECIAL
        return {"cls_token": begin, "mask_token": mask, "pad_token": pad, "sep_token": end, "unk_token": unknown}
    begin, pad, end, unknown, mask = ROBERTA_SPECIAL
    # <mask> absorbs the space before it, as in RoBERTa.
    mask_token = {"content": mask, "lstrip": True, "normalized": False, "rstrip": False, "single_word": False}
    special = {"cls_token": begin, "mask_token": mask_token, "pad_token": pad, "sep_token": end, "unk_token": unknown}
    return {**special, "bos_token": begin, "eos_token": end}


# Adapting a WordPiece vocabulary to a domain: frequent words replace pieces that the text never uses
#
# All other pieces keep their ids, so that a model trained with the vocabulary can be continued.


# White space to Python; BERT's normalizer drops these and joins the text around them.
JOINING = re.compile("[\x0b\x0c\x1c-\x1f\x85]")
UNUSED = "[unused"


@dataclass(frozen=True)
class WordCounts:
    """Word frequencies, document frequencies, and the number of added tokens in the text, such as a literal [SEP]."""

    times: Counter[str]
    documents: Counter[str]
    added: int = 0


def adapt(documents: Documents, tokenizer: Any, *, new: int, min_documents: int) -> tuple[Any, AdaptationStats]:
    """The tokenizer with up to `new` words of the text in unused slots, and how many tokens that saves.

    Candidates consist of letters and occur in at least `min_documents`. They are ranked by the tokens they save: pieces
    beyond the first, times frequency. For an unknown word, every letter counts.
    """
    require_wordpiece(tokenizer)
    counts = count_words(documents(), tokenizer)
    before = _Segmentation(tokenizer, counts.times)
    slots = free_slots(tokenizer, occurring=before.pieces)
    existing = _added_tokens(tokenizer)
    words = [word for word in rank_candidates(counts, before, min_documents=min_documents) if word not in existing]
    while True:
        replacements = dict(zip(words[:new], slots, strict=False))
        adapted = replace_pieces(tokenizer, replacements)
        after = _Segmentation(adapted, counts.times)
        lost = after.unknown - before.unknown
        if not lost:
            tokens = (before.tokens + counts.added, after.tokens + counts.added)
            return adapted, AdaptationStats(len(slots), len(replacements), *tokens)
        # WordPiece takes the longest match first, and the rest after a new word may have no pieces.
        words = [word for word in words if word not in replacements or not any(one.startswith(word) for one in lost)]


def require_wordpiece(tokenizer: Any) -> None:
    """Raise RecipeError for a tokenizer that is not WordPiece."""
    kind = type(tokenizer.model).__name__
    if kind != "WordPiece" or tokenizer.pre_tokenizer is None:
        raise RecipeError(
            f"adapt: the tokenizer is {kind}; expected WordPiece. Train a new vocabulary instead, and let "
            "`lexome pretrain` transfer the model to it.",
            code="not-wordpiece",
            value=kind,
        )


def count_words(documents: Iterable[list[str]], tokenizer: Any) -> WordCounts:
    """Count the words of documents after the tokenizer's normalization and pre-tokenization.

    Each distinct white-space-separated string is split only once. Added tokens are not words: the tokenizer extracts
    them first, even inside a longer word.
    """
    times: Counter[str] = Counter()
    in_documents: Counter[str] = Counter()
    added = 0
    cut = _WordSplitter(tokenizer)
    known = cache(cut)
    for texts in documents:
        here: Counter[str] = Counter()
        stretches: Counter[str] = Counter()
        for text in texts:
            if cut.only_whole(text):
                words, tokens = cut(text)
                here.update(words)
                added += tokens
            else:
                stretches.update(text.split())
        for stretch, count in stretches.items():
            words, tokens = known(stretch)
            added += count * tokens
            for word in words:
                here[word] += count
        times.update(here)
        in_documents.update(here.keys())
    return WordCounts(times, in_documents, added)


def free_slots(tokenizer: Any, *, occurring: Collection[str]) -> list[str]:
    """Pieces that may be replaced, in order: [unused...], then those with the highest ids.

    Vocabularies are sorted by frequency in their training text, so the last pieces are the rarest. Special tokens and
    single characters, which spell any other word, are kept.
    """
    prefix = tokenizer.model.continuing_subword_prefix
    kept = {*_added_tokens(tokenizer), tokenizer.model.unk_token, *occurring}
    pieces = tokenizer.get_vocab(with_added_tokens=False)
    free = [piece for piece in pieces if piece not in kept and len(piece.removeprefix(prefix)) > 1]
    return sorted(free, key=lambda piece: (not piece.startswith(UNUSED), -pieces[piece]))


def rank_candidates(counts: WordCounts, cut: "_Segmentation", *, min_documents: int) -> list[str]:
    """Fragmented or unknown words, by the tokens they cost; ties in alphabetical order."""
    gains = {
        word: cut.cost(word) * counts.times[word]
        for word in cut.lengths
        if word.isalpha() and counts.documents[word] >= min_documents and cut.cost(word)
    }
    return sorted(gains, key=lambda word: (-gains[word], word))


def replace_pieces(tokenizer: Any, replacements: dict[str, str]) -> Any:
    """The tokenizer with each word in place of a piece; nothing else changes."""
    state = json.loads(tokenizer.to_str())
    place = {piece: word for word, piece in replacements.items()}
    pieces = sorted(state["model"]["vocab"].items(), key=lambda pair: pair[1])
    state["model"]["vocab"] = {place.get(piece, piece): number for piece, number in pieces}
    return type(tokenizer).from_str(json.dumps(state))


Words = tuple[tuple[str, ...], int]
"""The words of a text, and the number of added tokens between them."""


class _WordSplitter:
    """Splits text into words as a tokenizer does before it applies its model."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self._normalizer, self._splitter = tokenizer, tokenizer.normalizer, tokenizer.pre_tokenizer
        self._tokens = tokenizer.get_added_tokens_decoder()
        contents = _added_tokens(tokenizer)
        contents |= set(map(self._normal, contents))
        self._maybe = re.compile("|".join(map(re.escape, sorted(contents))) if contents else "(?!)")
        self._spaced = any(re.search(r"\s", content) for content in contents)
        self._same: dict[str, str] = {}

    def __call__(self, text: str) -> Words:
        normal = self._normal(text)
        if not self._maybe.search(text) and not self._maybe.search(normal):
            return self._words(normal), 0
        spans = self._spans(text)
        begins, ends = [0, *(end for _, end in spans)], [*(begin for begin, _ in spans), len(text)]
        parts = (self._words(self._normal(text[begin:end])) for begin, end in zip(begins, ends, strict=True))
        return tuple(word for part in parts for word in part), len(spans)

    def only_whole(self, text: str) -> bool:
        """Whether a text must not be split at white space first."""
        return self._spaced or JOINING.search(text) is not None

    def _words(self, normal: str) -> tuple[str, ...]:
        words = self._splitter.pre_tokenize_str(normal)
        return tuple(self._same.setdefault(word, word) for word, _ in words)

    def _normal(self, text: str) -> str:
        return text if self._normalizer is None else str(self._normalizer.normalize_str(text))

    def _spans(self, text: str) -> list[tuple[int, int]]:
        """Spans of added tokens in a text. Words may have the same ids: unknown ones have that of [UNK]."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        spans: list[tuple[int, int]] = []
        for id_, (begin, end) in zip(encoding.ids, encoding.offsets, strict=True):
            token, word = self._tokens.get(id_), text[begin:end].strip()
            same = self._normal if token is not None and token.normalized else str
            if token is not None and same(word) == same(token.content):
                spans.append((begin, end))
        return spans


def _added_tokens(tokenizer: Any) -> set[str]:
    """The contents of a tokenizer's added tokens, special ones included."""
    return {token.content for token in tokenizer.get_added_tokens_decoder().values()}


class _Segmentation:
    """The segmentation of words: pieces per word, pieces used, total tokens, unknown words."""

    def __init__(self, tokenizer: Any, times: Counter[str]) -> None:
        model = tokenizer.model
        self.longest: int = model.max_input_chars_per_word
        self.lengths: dict[str, int] = {}
        self.pieces: set[str] = set()
        self.unknown: set[str] = set()
        for word in times:
            cut = [token.value for token in model.tokenize(word)]
            self.lengths[word] = len(cut)
            self.pieces.update(cut)
            if model.unk_token in cut:
                self.unknown.add(word)
        self.tokens = sum(count * self.lengths[word] for word, count in times.items())

    def cost(self, word: str) -> int:
        """The tokens that a word would save as a single piece; for an unknown word, its letters.

        A word longer than the model's limit stays unknown and costs nothing.
        """
        if word not in self.unknown:
            return self.lengths[word] - 1
        return len(word) if len(word) <= self.longest else 0
