"""Text to token ids by a tokenizer.json, with where each token stands in the text."""

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from lexome.errors import CheckpointError, MissingExtraError
from lexome.infer.wordpiece import Piece, WordPiece


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
