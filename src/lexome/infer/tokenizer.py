"""WordPiece in plain Python, piece for piece as the tokenizers library does it.

The library brings a download client of 30 MB that Lexome has no use for; the light package has this instead. A test
holds the two against each other over all of Unicode. They part at some 500 characters of scripts that came after
Unicode 8, which the library does not know as marks or punctuation.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from lexome.errors import CheckpointError, MissingExtraError

# Blocks of Chinese characters as BERT lists them: each stands alone.
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
# What stands between two spaces is kept with its pieces, and so are words; text repeats itself. When there are so many
# they are let go, and common ones are soon back: memory stays flat over documents that each have a name of their own
# (results/bulk_memory.json). Longer ones than these are not kept.
_KEPT_WORDS = 30_000
_KEPT_CHARACTERS = 40

Piece = tuple[int, int, int]


class WordPiece:
    """A tokenizer.json of BERT's kind: `fits` says which, `encode` gives pieces."""

    def __init__(self, held: Mapping[str, Any]) -> None:
        model, normalizer = held["model"], held["normalizer"] or {}
        self.vocabulary: dict[str, int] = dict(model["vocab"])
        self._unknown = self.vocabulary[model["unk_token"]]
        self._inner = model["continuing_subword_prefix"]
        self._longest_word = model["max_input_chars_per_word"]
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
        added = sorted(held["added_tokens"], key=lambda token: -len(token["content"]))
        self._added: dict[str, int] = {token["content"]: token["id"] for token in added}
        ways = [
            (r"\s*" if token["lstrip"] else "")
            + f"(?P<t{number}>{re.escape(token['content'])})"
            + (r"\s*" if token["rstrip"] else "")
            for number, token in enumerate(added)
        ]
        self._special = re.compile("|".join(ways)) if ways else None
        self.vocabulary |= self._added

    @staticmethod
    def fits(held: Mapping[str, Any]) -> bool:
        """Whether a tokenizer.json asks for nothing beyond what is here."""
        normalizer, split = held.get("normalizer"), held.get("pre_tokenizer")
        plain = all(not token["normalized"] and not token["single_word"] for token in held.get("added_tokens", ()))
        return (
            held.get("model", {}).get("type") == "WordPiece"
            and (normalizer is None or normalizer.get("type") == "BertNormalizer")
            and split is not None
            and split.get("type") == "BertPreTokenizer"
            and plain
        )

    def encode(self, text: str) -> list[Piece]:
        """Each piece's id, and where it begins and ends in the text."""
        pieces: list[Piece] = []
        for start, end, token in self._parts(text):
            if token is not None:
                pieces.append((token, start, end))
                continue
            for chunk in self._space.split(text[start:end]):
                known = self._chunks.get(chunk)
                if known is None:
                    known = self._pieces_of(chunk)
                for id_, first, last in known:
                    pieces.append((id_, start + first, start + last))
                start += len(chunk) + 1
        return pieces

    def _pieces_of(self, chunk: str) -> tuple[Piece, ...]:
        """The pieces of what stands between two spaces, which depend on nothing around it."""
        known = tuple(
            (id_, places[first], places[last - 1] + 1)
            for word, places in self._characters.words(chunk)
            for id_, first, last in self._cut(word)
        )
        if len(chunk) <= _KEPT_CHARACTERS:
            if len(self._chunks) >= _KEPT_WORDS:
                self._chunks.clear()
            self._chunks[chunk] = known
        return known

    def _parts(self, text: str) -> Iterator[tuple[int, int, int | None]]:
        """The text cut at special tokens, with the ids of these."""
        done = 0
        there = self._special is not None and any(content in text for content in self._added)
        for found in self._special.finditer(text) if self._special and there else ():
            if found.start() > done:
                yield done, found.start(), None
            assert found.lastgroup is not None
            yield found.start(), found.end(), self._added[found[found.lastgroup]]
            done = found.end()
        if done < len(text):
            yield done, len(text), None

    def _cut(self, word: str) -> tuple[Piece, ...]:
        """The word's pieces, the longest first; one unknown piece where that does not come out."""
        known = self._words.get(word)
        if known is None:
            known = self._longest_first(word)
            if len(self._words) >= _KEPT_WORDS:
                self._words.clear()
            self._words[word] = known
        return known

    def _longest_first(self, word: str) -> tuple[Piece, ...]:
        whole = ((self._unknown, 0, len(word)),)
        if len(word) > self._longest_word:
            return whole
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
                return whole
        return tuple(pieces)


class _Characters:
    """What becomes of each character, worked out once: gone, a space, letters, or punctuation that stands alone."""

    def __init__(self, *, clean: bool, chinese: bool, strip: bool, lower: bool) -> None:
        self._clean, self._chinese, self._strip, self._lower = clean, chinese, strip, lower
        self._known: dict[str, tuple[str, bool, bool]] = {}

    def spaces(self) -> list[str]:
        """The characters that part words, and of which nothing is left."""
        return [character for character in sorted(_SPACES) if self._look_up(character)[1]]

    def words(self, text: str) -> Iterator[tuple[str, list[int]]]:
        """Normalised words with the place in the text that each of their characters comes from."""
        letters: list[str] = []
        places: list[int] = []
        for place, character in enumerate(text):
            known = self._known.get(character)
            if known is None:
                known = self._known[character] = self._look_up(character)
            made, space, alone = known
            if (space or alone) and letters:
                yield "".join(letters), places
                letters, places = [], []
            if alone:
                for letter in made:
                    yield letter, [place]
            else:
                letters += made
                places += [place] * len(made)
        if letters:
            yield "".join(letters), places

    def _look_up(self, character: str) -> tuple[str, bool, bool]:
        """Its letters, whether it parts words, and whether it stands alone."""
        if self._clean and (character in "\0\ufffd" or _is_control(character)):
            return "", False, False
        if character in _SPACES:
            return "", True, False
        made = character
        if self._strip:
            parts = unicodedata.normalize("NFD", made)
            made = "".join(part for part in parts if unicodedata.category(part) != "Mn")
        if self._lower:
            made = "".join(part.lower() for part in made)
        if self._chinese and any(low <= ord(character) <= high for low, high in _CHINESE):
            return made, False, True
        return made, False, len(made) == 1 and _is_punctuation(made)


def _is_control(character: str) -> bool:
    return character not in "\t\n\r" and unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs")


def _is_punctuation(character: str) -> bool:
    if character.isascii():
        return character.isprintable() and not character.isalnum() and character != " "
    return unicodedata.category(character).startswith("P")


class Tokens:
    """A tokenizer: `encode` gives pieces without special tokens around them, `word` what a piece says."""

    def __init__(
        self, vocabulary: dict[str, int], encode: Callable[[str], list[Piece]], word: Callable[[int], str]
    ) -> None:
        self.vocabulary = vocabulary
        self.encode = encode
        self.word = word

    def ids(self, text: str) -> list[int]:
        """The ids alone."""
        return [piece[0] for piece in self.encode(text)]


def open_tokens(path: Path) -> Tokens:
    """The tokenizer in a file: WordPiece is done here, any other kind by the tokenizers library."""
    try:
        held = json.loads(path.read_bytes())
        if isinstance(held, dict) and WordPiece.fits(held):
            made = WordPiece(held)
            names = {id_: piece for piece, id_ in made.vocabulary.items()}
            return Tokens(made.vocabulary, made.encode, lambda id_: names.get(id_, ""))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: holds no tokenizer that can be read ({error!r}). Export again.") from None
    return _by_library(path)


def _by_library(path: Path) -> Tokens:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise MissingExtraError("tokenizers", extra="tokenizers", purpose="a tokenizer other than WordPiece") from None
    try:
        made = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise CheckpointError(f"{path}: holds no tokenizer that can be read ({error}). Export again.") from None
    made.no_truncation()
    made.no_padding()

    def encode(text: str) -> list[Piece]:
        found = made.encode(text, add_special_tokens=False)
        return [(id_, start, end) for id_, (start, end) in zip(found.ids, found.offsets, strict=True)]

    def word(id_: int) -> str:
        return str(made.decode([id_], skip_special_tokens=False)).strip()

    return Tokens(made.get_vocab(with_added_tokens=True), encode, word)


def windows(ids: Sequence[int], most: int) -> list[list[int]]:
    """The ids in as few windows as they need, none longer than `most`, all of about one length.

    >>> windows([1, 2, 3, 4, 5, 6, 7], 3)
    [[1, 2, 3], [4, 5], [6, 7]]
    """
    count = max(1, -(-len(ids) // most))
    small, more = divmod(len(ids), count)
    bounds = [number * small + min(number, more) for number in range(count + 1)]
    return [list(ids[start:end]) for start, end in pairwise(bounds)]
