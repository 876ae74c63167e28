"""A WordPiece vocabulary adapted to a text: its words in the places of pieces that it never has.

All other pieces keep their ids, so that a model that was trained with the vocabulary can go on with it.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from lexome.corpus.vocab.algorithms import Documents
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
    """How often each word of a text comes, and in how many documents; and its added tokens, such as a literal [SEP]."""

    times: Counter[str]
    documents: Counter[str]
    added: int = 0


def adapt(documents: Documents, tokenizer: Any, *, new: int, min_documents: int) -> tuple[Any, Adapted]:
    """The tokenizer with up to `new` words of the text in slots that the text leaves free, and what this saves.

    Words are of letters alone and come in `min_documents` at least. Those come first whose pieces beyond one, times
    how often the word comes, are most. Of a word that is unknown as a whole, every letter counts.
    """
    check_kind(tokenizer)
    counts = count_words(documents(), tokenizer)
    before = _Cut(tokenizer, counts.times)
    slots = free_slots(tokenizer, occurring=before.pieces)
    taken = _added(tokenizer)
    words = [word for word in gainful(counts, before, min_documents=min_documents) if word not in taken]
    while True:
        given = dict(zip(words[:new], slots, strict=False))
        made = with_words(tokenizer, given)
        after = _Cut(made, counts.times)
        lost = after.unknown - before.unknown
        if not lost:
            return made, Adapted(len(slots), len(given), before.tokens + counts.added, after.tokens + counts.added)
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
    """The words of documents, as the tokenizer cuts text and normalises it before it looks for pieces.

    Each different stretch of text between spaces is cut only once. What an added token stands for is no word: the
    tokenizer takes it out of the text first, also where it is a part of a longer word.
    """
    times: Counter[str] = Counter()
    in_documents: Counter[str] = Counter()
    added = 0
    cut = _Cutting(tokenizer)
    known = _Remembered(cut)
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
            words, tokens = known[stretch]
            added += count * tokens
            for word in words:
                here[word] += count
        times.update(here)
        in_documents.update(here.keys())
    return Counts(times, in_documents, added)


def free_slots(tokenizer: Any, *, occurring: Collection[str]) -> list[str]:
    """Pieces that may be given up, the first to go first: [unused...], then those of the highest ids.

    Vocabularies are ordered by how often a piece came when they were learnt, so the last ones are missed least.
    Special tokens stay, and single characters, of which any other word can be spelt.
    """
    prefix = tokenizer.model.continuing_subword_prefix
    kept = {*_added(tokenizer), tokenizer.model.unk_token, *occurring}
    pieces = tokenizer.get_vocab(with_added_tokens=False)
    free = [piece for piece in pieces if piece not in kept and len(piece.removeprefix(prefix)) > 1]
    return sorted(free, key=lambda piece: (not piece.startswith(UNUSED), -pieces[piece]))


def gainful(counts: Counts, cut: "_Cut", *, min_documents: int) -> list[str]:
    """Words that are cut up or unknown, those first that cost most pieces; ties in the order of the alphabet."""
    gains = {
        word: cut.cost(word) * counts.times[word]
        for word in cut.lengths
        if word.isalpha() and counts.documents[word] >= min_documents and cut.cost(word)
    }
    return sorted(gains, key=lambda word: (-gains[word], word))


def with_words(tokenizer: Any, given: dict[str, str]) -> Any:
    """The tokenizer with each word in the place of a piece; everything else stays as it is."""
    state = json.loads(tokenizer.to_str())
    place = {piece: word for word, piece in given.items()}
    pieces = sorted(state["model"]["vocab"].items(), key=lambda pair: pair[1])
    state["model"]["vocab"] = {place.get(piece, piece): number for piece, number in pieces}
    return type(tokenizer).from_str(json.dumps(state))


Words = tuple[tuple[str, ...], int]
"""The words of a text, and how many added tokens stand between them."""


class _Remembered(dict[str, Words]):
    """Words of stretches of text, found when first asked for."""

    def __init__(self, find: Callable[[str], Words]) -> None:
        super().__init__()
        self._find = find

    def __missing__(self, stretch: str) -> Words:
        found = self[stretch] = self._find(stretch)
        return found


class _Cutting:
    """A text into words, as a tokenizer does it before it looks for pieces."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self._normalizer, self._splitter = tokenizer, tokenizer.normalizer, tokenizer.pre_tokenizer
        self._tokens = tokenizer.get_added_tokens_decoder()
        contents = _added(tokenizer)
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
        """Where a text is not the sum of what stands between its spaces."""
        return self._spaced or JOINING.search(text) is not None

    def _words(self, normal: str) -> tuple[str, ...]:
        found = self._splitter.pre_tokenize_str(normal)
        return tuple(self._same.setdefault(word, word) for word, _ in found)

    def _normal(self, text: str) -> str:
        return text if self._normalizer is None else str(self._normalizer.normalize_str(text))

    def _spans(self, text: str) -> list[tuple[int, int]]:
        """Where added tokens stand in a text. Words may get the same ids as pieces: the unknown ones get [UNK]'s."""
        found = self._tokenizer.encode(text, add_special_tokens=False)
        spans = zip(found.ids, found.offsets, strict=True)
        return [(begin, end) for id_, (begin, end) in spans if self._is_added(id_, text[begin:end].strip())]

    def _is_added(self, id_: int, text: str) -> bool:
        token = self._tokens.get(id_)
        if token is None:
            return False
        return self._normal(text) == self._normal(token.content) if token.normalized else text == token.content


def _added(tokenizer: Any) -> set[str]:
    """The texts that a tokenizer takes as one token wherever they stand, special ones among them."""
    return {token.content for token in tokenizer.get_added_tokens_decoder().values()}


class _Cut:
    """Words as a tokenizer cuts them: their lengths, the pieces that occur, the tokens in all, the unknown ones."""

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
        """What a word of its own would save: the pieces beyond one, or the letters that nothing is left of.

        A word that is too long for any vocabulary stays unknown, and costs nothing.
        """
        if word not in self.unknown:
            return self.lengths[word] - 1
        return len(word) if len(word) <= self.longest else 0
