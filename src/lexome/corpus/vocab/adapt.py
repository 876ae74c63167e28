"""A WordPiece vocabulary adapted to a text: its words in the places of pieces that it never has.

All other pieces keep their ids, so that a model that was trained with the vocabulary can go on with it.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from lexome.corpus.vocab.kinds import Documents
from lexome.errors import RecipeError

# To Python these are spaces; BERT's normaliser drops them and joins what they stand between.
JOINING = re.compile("[\x0b\x0c\x1c-\x1f\x85]")
UNUSED = "[unused"


@dataclass(frozen=True)
class Adapted:
    """Slots that the text left free, how many of them words were given, and the text's tokens before and after."""

    free: int
    given: int
    tokens_before: int
    tokens_after: int


@dataclass(frozen=True)
class Counts:
    """How often each word of a text comes, and in how many documents."""

    times: Counter[str]
    documents: Counter[str]


def adapt(documents: Documents, tokenizer: Any, *, new: int, min_documents: int) -> tuple[Any, Adapted]:
    """The tokenizer with up to `new` words of the text in slots that the text leaves free, and what this saves.

    Words are of letters alone and come in `min_documents` at least. Those come first whose pieces beyond one, times
    how often the word comes, are most.
    """
    check_kind(tokenizer)
    counts = count_words(documents(), tokenizer)
    before = _Cut(tokenizer, counts.times)
    slots = free_slots(tokenizer, occurring=before.pieces)
    words = gainful(counts, before.lengths, min_documents=min_documents)
    while True:
        given = dict(zip(words[:new], slots, strict=False))
        made = with_words(tokenizer, given)
        after = _Cut(made, counts.times)
        lost = after.unknown - before.unknown
        if not lost:
            return made, Adapted(len(slots), len(given), before.tokens, after.tokens)
        # The longest piece is taken first, and behind a new word may stand what the vocabulary has no pieces for.
        words = [word for word in words if word not in given or not any(one.startswith(word) for one in lost)]


def check_kind(tokenizer: Any) -> None:
    """RecipeError where a tokenizer is of another kind than WordPiece."""
    kind = type(tokenizer.model).__name__
    if kind != "WordPiece" or tokenizer.pre_tokenizer is None:
        raise RecipeError(
            f"adapt names a tokenizer of the kind {kind}; expected WordPiece over words. Of another kind a new "
            "vocabulary can be learnt, which `lexome pretrain` carries a model over to."
        )


def count_words(documents: Iterable[list[str]], tokenizer: Any) -> Counts:
    """The words of documents, as the tokenizer normalises text and cuts it before it looks for pieces.

    Each different stretch of text between spaces is cut only once.
    """
    times: Counter[str] = Counter()
    in_documents: Counter[str] = Counter()
    words_of = _Remembered(_words_of(tokenizer))
    for texts in documents:
        stretches: Counter[str] = Counter()
        for text in texts:
            stretches.update([text] if JOINING.search(text) else text.split())
        here: Counter[str] = Counter()
        for stretch, count in stretches.items():
            for word in words_of[stretch]:
                here[word] += count
        times.update(here)
        in_documents.update(here.keys())
    return Counts(times, in_documents)


def free_slots(tokenizer: Any, *, occurring: Collection[str]) -> list[str]:
    """Pieces that may be given up, the first to go first: [unused...], then those of the highest ids.

    Vocabularies are ordered by how often a piece came when they were learnt, so the last ones are missed least.
    Special tokens stay, and single characters, of which any other word can be spelt.
    """
    prefix = tokenizer.model.continuing_subword_prefix
    kept = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    kept |= {tokenizer.model.unk_token, *occurring}
    pieces = tokenizer.get_vocab(with_added_tokens=False)
    free = [piece for piece in pieces if piece not in kept and len(piece.removeprefix(prefix)) > 1]
    return sorted(free, key=lambda piece: (not piece.startswith(UNUSED), -pieces[piece]))


def gainful(counts: Counts, lengths: dict[str, int], *, min_documents: int) -> list[str]:
    """Words that are cut up, those first that cost most pieces; ties in the order of the alphabet."""
    gains = {
        word: (length - 1) * counts.times[word]
        for word, length in lengths.items()
        if length > 1 and word.isalpha() and counts.documents[word] >= min_documents
    }
    return sorted(gains, key=lambda word: (-gains[word], word))


def with_words(tokenizer: Any, given: dict[str, str]) -> Any:
    """The tokenizer with each word in the place of a piece; everything else stays as it is."""
    state = json.loads(tokenizer.to_str())
    place = {piece: word for word, piece in given.items()}
    pieces = sorted(state["model"]["vocab"].items(), key=lambda pair: pair[1])
    state["model"]["vocab"] = {place.get(piece, piece): number for piece, number in pieces}
    return type(tokenizer).from_str(json.dumps(state))


class _Remembered(dict[str, tuple[str, ...]]):
    """Words of stretches of text, found when first asked for."""

    def __init__(self, find: Callable[[str], tuple[str, ...]]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, stretch: str) -> tuple[str, ...]:
        found = self[stretch] = self._find(stretch)
        return found


def _words_of(tokenizer: Any) -> Callable[[str], tuple[str, ...]]:
    normalizer, splitter = tokenizer.normalizer, tokenizer.pre_tokenizer
    same: dict[str, str] = {}

    def words_of(stretch: str) -> tuple[str, ...]:
        text = stretch if normalizer is None else normalizer.normalize_str(stretch)
        return tuple(same.setdefault(word, word) for word, _ in splitter.pre_tokenize_str(text))

    return words_of


class _Cut:
    """Words as a tokenizer cuts them: their lengths, the pieces that occur, the tokens in all, the unknown ones."""

    def __init__(self, tokenizer: Any, times: Counter[str]) -> None:
        model = tokenizer.model
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
