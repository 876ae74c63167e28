"""Adapting a WordPiece vocabulary to a domain: frequent words replace pieces that the text never uses.

All other pieces keep their ids, so that a model trained with the vocabulary can be continued.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from lexome.corpus.vocab.algorithms import Documents
from lexome.errors import RecipeError

# White space to Python; BERT's normalizer drops these and joins the text around them.
JOINING = re.compile("[\x0b\x0c\x1c-\x1f\x85]")
UNUSED = "[unused"


@dataclass(frozen=True)
class AdaptationStats:
    """Unused slots, how many were filled with words, and the number of tokens of the text before and after."""

    free: int
    given: int
    tokens_before: int
    tokens_after: int


@dataclass(frozen=True)
class Counts:
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
    taken = _added_tokens(tokenizer)
    words = [word for word in rank_candidates(counts, before, min_documents=min_documents) if word not in taken]
    while True:
        given = dict(zip(words[:new], slots, strict=False))
        made = replace_pieces(tokenizer, given)
        after = _Segmentation(made, counts.times)
        lost = after.unknown - before.unknown
        if not lost:
            tokens = (before.tokens + counts.added, after.tokens + counts.added)
            return made, AdaptationStats(len(slots), len(given), *tokens)
        # WordPiece takes the longest match first, and the rest after a new word may have no pieces.
        words = [word for word in words if word not in given or not any(one.startswith(word) for one in lost)]


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


def count_words(documents: Iterable[list[str]], tokenizer: Any) -> Counts:
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
    return Counts(times, in_documents, added)


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


def rank_candidates(counts: Counts, cut: "_Segmentation", *, min_documents: int) -> list[str]:
    """Fragmented or unknown words, by the tokens they cost; ties in alphabetical order."""
    gains = {
        word: cut.cost(word) * counts.times[word]
        for word in cut.lengths
        if word.isalpha() and counts.documents[word] >= min_documents and cut.cost(word)
    }
    return sorted(gains, key=lambda word: (-gains[word], word))


def replace_pieces(tokenizer: Any, given: dict[str, str]) -> Any:
    """The tokenizer with each word in place of a piece; nothing else changes."""
    state = json.loads(tokenizer.to_str())
    place = {piece: word for word, piece in given.items()}
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
        found = self._splitter.pre_tokenize_str(normal)
        return tuple(self._same.setdefault(word, word) for word, _ in found)

    def _normal(self, text: str) -> str:
        return text if self._normalizer is None else str(self._normalizer.normalize_str(text))

    def _spans(self, text: str) -> list[tuple[int, int]]:
        """Spans of added tokens in a text. Words may have the same ids: unknown ones have that of [UNK]."""
        found = self._tokenizer.encode(text, add_special_tokens=False)
        spans: list[tuple[int, int]] = []
        for id_, (begin, end) in zip(found.ids, found.offsets, strict=True):
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
        """Tokens that a piece of its own would save a word; for an unknown word, its letters.

        A word longer than the model's limit stays unknown and costs nothing.
        """
        if word not in self.unknown:
            return self.lengths[word] - 1
        return len(word) if len(word) <= self.longest else 0
