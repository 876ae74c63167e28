"""WordPiece in pure Python, identical to the tokenizers library, and access to that library for other tokenizers.

The library depends on a download client of 30 MB that Lexome does not use; the light package has this instead. A test
compares the two over all of Unicode. They differ in some 500 characters of scripts added after Unicode 8, which the
library does not know as marks or punctuation.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lexome.errors import CheckpointError, MissingExtraError

# Blocks of Chinese characters in BERT's list: each character is a word.
_CHINESE = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
_SPACES = frozenset("\t\n\x0b\x0c\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | set(
    map(chr, range(0x2000, 0x200B))
)
# Pieces of words and of chunks between two spaces are cached. A full cache is cleared, and common words soon return:
# memory stays constant over any number of documents (results/bulk_memory.json). Longer chunks are not cached.
_CACHED_WORDS = 30_000
_CACHED_CHARACTERS = 40

Piece = tuple[int, int, int]
"""Token id, start and end in the text."""


class WordPiece:
    """The tokenizer of a tokenizer.json with BERT's normalizer, pre-tokenizer and model."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        model, normalizer = config["model"], config["normalizer"] or {}
        self.vocabulary: dict[str, int] = dict(model["vocab"])
        if not all(type(id_) is int and 0 <= id_ < 1 << 31 for id_ in self.vocabulary.values()):
            raise ValueError("a piece of the vocabulary has no token id")
        self._unknown = self.vocabulary[model["unk_token"]]
        self._inner = model["continuing_subword_prefix"]
        self._longest_word = model["max_input_chars_per_word"]
        if not (isinstance(self._inner, str) and isinstance(self._longest_word, int)):
            raise TypeError("continuing_subword_prefix or max_input_chars_per_word has another type")
        self._longest_piece = max(map(len, self.vocabulary))
        lower = normalizer.get("lowercase", False)
        strip = normalizer.get("strip_accents")
        self._characters = _Characters(
            clean=normalizer.get("clean_text", False),
            chinese=normalizer.get("handle_chinese_chars", False),
            strip=lower if strip is None else strip,
            lower=lower,
        )
        self._words: dict[str, tuple[Piece, ...]] = {}
        self._chunks: dict[str, tuple[Piece, ...]] = {}
        self._space = re.compile(f"[{re.escape(''.join(self._characters.spaces()))}]")
        added = sorted(config["added_tokens"], key=lambda token: -len(token["content"]))
        self._added: dict[str, int] = {token["content"]: token["id"] for token in added}
        if not all(type(id_) is int and 0 <= id_ < 1 << 31 for id_ in self._added.values()):
            raise ValueError("an added token has no token id")
        patterns = [
            (r"\s*" if token["lstrip"] else "")
            + f"(?P<t{number}>{re.escape(token['content'])})"
            + (r"\s*" if token["rstrip"] else "")
            for number, token in enumerate(added)
        ]
        self._special = re.compile("|".join(patterns)) if patterns else None
        self.vocabulary |= self._added

    @staticmethod
    def supports(config: Mapping[str, Any]) -> bool:
        """Whether a tokenizer.json uses only what is implemented here."""
        normalizer, split = config.get("normalizer"), config.get("pre_tokenizer")
        plain = all(not token["normalized"] and not token["single_word"] for token in config.get("added_tokens", ()))
        return (
            config.get("model", {}).get("type") == "WordPiece"
            and (normalizer is None or normalizer.get("type") == "BertNormalizer")
            and split is not None
            and split.get("type") == "BertPreTokenizer"
            and plain
        )

    def encode(self, text: str) -> list[Piece]:
        """The pieces of a text."""
        pieces: list[Piece] = []
        for start, end, token in self._split_special(text):
            if token is not None:
                pieces.append((token, start, end))
                continue
            for chunk in self._space.split(text[start:end]):
                cached = self._chunks.get(chunk)
                if cached is None:
                    cached = self._encode_chunk(chunk)
                for id_, first, last in cached:
                    pieces.append((id_, start + first, start + last))
                start += len(chunk) + 1
        return pieces

    def _encode_chunk(self, chunk: str) -> tuple[Piece, ...]:
        """The pieces of a chunk between two spaces, which do not depend on its context."""
        pieces = tuple(
            (id_, offsets[first], offsets[last - 1] + 1)
            for word, offsets in self._characters.words(chunk)
            for id_, first, last in self._encode_word(word)
        )
        if len(chunk) <= _CACHED_CHARACTERS:
            if len(self._chunks) >= _CACHED_WORDS:
                self._chunks.clear()
            self._chunks[chunk] = pieces
        return pieces

    def _split_special(self, text: str) -> Iterator[tuple[int, int, int | None]]:
        """The text split at special tokens, with their ids."""
        position = 0
        has_special = self._special is not None and any(content in text for content in self._added)
        for match in self._special.finditer(text) if self._special and has_special else ():
            if match.start() > position:
                yield position, match.start(), None
            assert match.lastgroup is not None
            yield match.start(), match.end(), self._added[match[match.lastgroup]]
            position = match.end()
        if position < len(text):
            yield position, len(text), None

    def _encode_word(self, word: str) -> tuple[Piece, ...]:
        cached = self._words.get(word)
        if cached is None:
            cached = self._longest_match_first(word)
            if len(self._words) >= _CACHED_WORDS:
                self._words.clear()
            self._words[word] = cached
        return cached

    def _longest_match_first(self, word: str) -> tuple[Piece, ...]:
        """Greedy longest-match-first pieces; one unknown piece if there is no such split."""
        unknown = ((self._unknown, 0, len(word)),)
        if len(word) > self._longest_word:
            return unknown
        pieces = []
        start = 0
        while start < len(word):
            prefix = self._inner if start else ""
            for end in range(min(len(word), start + self._longest_piece), start, -1):
                if (id_ := self.vocabulary.get(prefix + word[start:end])) is not None:
                    pieces.append((id_, start, end))
                    start = end
                    break
            else:
                return unknown
        return tuple(pieces)


class _Characters:
    """BERT's normalization of each character, cached: removed, a space, letters, or a word of its own."""

    def __init__(self, *, clean: bool, chinese: bool, strip: bool, lower: bool) -> None:
        self._clean, self._chinese, self._strip, self._lower = clean, chinese, strip, lower
        self._cache: dict[str, tuple[str, bool, bool]] = {}

    def spaces(self) -> list[str]:
        """Characters that separate words."""
        return [character for character in sorted(_SPACES) if self._normalize(character)[1]]

    def words(self, text: str) -> Iterator[tuple[str, list[int]]]:
        """Normalized words with the offset in the text of each of their characters."""
        letters: list[str] = []
        offsets: list[int] = []
        for offset, character in enumerate(text):
            cached = self._cache.get(character)
            if cached is None:
                cached = self._cache[character] = self._normalize(character)
            normalized, is_space, is_word = cached
            if (is_space or is_word) and letters:
                yield "".join(letters), offsets
                letters, offsets = [], []
            if is_word:
                for letter in normalized:
                    yield letter, [offset]
            else:
                letters += normalized
                offsets += [offset] * len(normalized)
        if letters:
            yield "".join(letters), offsets

    def _normalize(self, character: str) -> tuple[str, bool, bool]:
        """Its letters, whether it separates words, and whether it is a word of its own."""
        is_control = character not in "\t\n\r" and unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs")
        if self._clean and (is_control or character in "\0\ufffd"):
            return "", False, False
        if character in _SPACES:
            return "", True, False
        normalized = character
        if self._strip:
            decomposed = unicodedata.normalize("NFD", normalized)
            normalized = "".join(part for part in decomposed if unicodedata.category(part) != "Mn")
        if self._lower:
            normalized = "".join(part.lower() for part in normalized)
        if self._chinese and any(low <= ord(character) <= high for low, high in _CHINESE):
            return normalized, False, True
        return normalized, False, len(normalized) == 1 and _is_punctuation(normalized)


def _is_punctuation(character: str) -> bool:
    if character.isascii():
        return character.isprintable() and not character.isalnum() and character != " "
    return unicodedata.category(character).startswith("P")


@dataclass(frozen=True)
class SubwordTokenizer:
    """A tokenizer: `encode` gives pieces without special tokens around them, `word` the text of a token id."""

    vocabulary: dict[str, int]
    encode: Callable[[str], list[Piece]]
    word: Callable[[int], str]

    def ids(self, text: str) -> list[int]:
        """Token ids of a text."""
        return [piece[0] for piece in self.encode(text)]


def open_tokenizer(path: Path) -> SubwordTokenizer:
    """The tokenizer in a tokenizer.json: WordPiece of this module, or else the tokenizers library."""
    try:
        config = json.loads(path.read_bytes())
        if isinstance(config, dict) and WordPiece.supports(config):
            tokenizer = WordPiece(config)
            names = {id_: piece for piece, id_ in tokenizer.vocabulary.items()}
            return SubwordTokenizer(tokenizer.vocabulary, tokenizer.encode, lambda id_: names.get(id_, ""))
    except (AttributeError, IndexError, KeyError, OSError, TypeError, ValueError, RecursionError) as error:
        raise _invalid_tokenizer(path, repr(error)) from None
    return _open_with_library(path)


def _open_with_library(path: Path) -> SubwordTokenizer:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise MissingExtraError("tokenizers", extra="tokenizers", purpose="a tokenizer other than WordPiece") from None
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise _invalid_tokenizer(path, str(error)) from None
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def encode(text: str) -> list[Piece]:
        encoding = tokenizer.encode(text, add_special_tokens=False)
        return [(id_, start, end) for id_, (start, end) in zip(encoding.ids, encoding.offsets, strict=True)]

    def word(id_: int) -> str:
        return str(tokenizer.decode([id_], skip_special_tokens=False)).strip()

    return SubwordTokenizer(tokenizer.get_vocab(with_added_tokens=True), encode, word)


def _invalid_tokenizer(path: Path, reason: str) -> CheckpointError:
    message = f"{path}: not a valid tokenizer ({reason}). Export the model again."
    return CheckpointError(message, code="invalid-tokenizer", value=path)
