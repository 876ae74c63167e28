"""Pieces of a unigram vocabulary, learnt by the sentencepiece library from counted words."""

import io
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lexome.errors import MissingExtraError

Array = npt.NDArray[np.int64]

# The longest names of the field that recur as a word: SentencePiece's own limit of 16 would cut hydroxychloroquine.
LONGEST_PIECE = 32

# As many candidates as SentencePiece itself begins with.
MOST_SEEDS = 1_000_000

# Sums of floats depend on how they are shared out among threads, so their number is part of the result.
THREADS = 8

# Words come as this project cuts them, in the characters they have; a character of the alphabet is never left out.
SETTINGS: dict[str, Any] = {
    "model_type": "unigram",
    "input_format": "tsv",
    "hard_vocab_limit": False,
    "character_coverage": 1.0,
    "normalization_rule_name": "identity",
    "add_dummy_prefix": False,
    "remove_extra_whitespaces": False,
    "split_by_unicode_script": False,
    "split_by_number": False,
    "max_sentencepiece_length": LONGEST_PIECE,
    "num_threads": THREADS,
    "pad_id": 0,
    "unk_id": 1,
    "bos_id": 2,
    "eos_id": 3,
    "minloglevel": 2,
}

# Odd numbers that spread neighbouring values over all 64 bits.
SPREAD, MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)


def unigram_pieces(
    words: Counter[str], *, alphabet: list[str], size: int, special: tuple[str, ...]
) -> list[tuple[str, float]]:
    """Pieces with their scores: `special` first (padding, unknown, begin, end, mask), the rest by score.

    Words come with their counts, so that the text itself is never held. Given so, SentencePiece would weigh
    single characters by the text and longer candidates by the list of words, and end up spelling: 4.4 pieces a word
    for the chemicals of BC5CDR, where 3.3 are needed at the same size. So the candidates are counted here.
    """
    try:
        import sentencepiece
    except ImportError:
        raise MissingExtraError("sentencepiece", extra="corpus", purpose="a unigram vocabulary") from None
    known = sorted(_inside(words, alphabet).items())
    pad, unknown, begin, end, mask = special
    written = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "seeds.tsv"
        with file.open("w", encoding="utf-8") as lines:
            lines.writelines(f"{piece}\t{score}\n" for piece, score in seeds(known))
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_lines(known, alphabet),
            model_writer=written,
            seed_sentencepieces_file=str(file),
            vocab_size=size,
            pad_piece=pad,
            unk_piece=unknown,
            bos_piece=begin,
            eos_piece=end,
            control_symbols=[mask],
            **SETTINGS,
        )
    model = sentencepiece.SentencePieceProcessor(model_proto=written.getvalue())
    pieces = [(model.id_to_piece(number), model.get_score(number)) for number in range(model.get_piece_size())]
    return _complete(pieces, alphabet, size)


def _complete(pieces: list[tuple[str, float]], alphabet: list[str], size: int) -> list[tuple[str, float]]:
    """The pieces with the whole alphabet among them, the least likely longer ones making room.

    SentencePiece compares the share of characters it has with 1.0 in single precision, so that in a text of more than
    16 million characters it leaves out the rarest: ♀ in the first one tried.
    """
    known = {piece for piece, _ in pieces}
    missing = [char for char in alphabet if char not in known]
    longer = [place for place, (piece, score) in enumerate(pieces) if len(piece) > 1 and score]
    surplus = set(longer[max(0, len(longer) - max(0, len(pieces) + len(missing) - size)) :]) if missing else set()
    lowest = min(score for _, score in pieces)
    kept = [piece for place, piece in enumerate(pieces) if place not in surplus]
    return kept + [(char, lowest) for char in missing]


def seeds(words: list[tuple[str, int]], *, longest: int = LONGEST_PIECE) -> list[tuple[str, int]]:
    """Substrings of two and more characters that words hold more than once, scored by the text they cover.

    A substring that always goes on with the same character is left out for the longer one.
    """
    text = "".join(word for word, _ in words)
    lengths = np.array([len(word) for word, _ in words], np.int64)
    weights: Array = np.repeat(np.array([count for _, count in words], np.int64), lengths)
    ends: Array = np.repeat(np.cumsum(lengths), lengths)
    found = [part for part in _repeated(text, weights, ends, longest) if part[1] > 1 and len(part[0])]
    if not found:
        return []
    places = np.concatenate([part[0] for part in found])
    sizes = np.concatenate([np.full(len(part[0]), part[1]) for part in found])
    scores = np.concatenate([part[2] for part in found]) * sizes
    order = np.lexsort((sizes, places, -scores))[:MOST_SEEDS]
    return [
        (text[place : place + size], int(score))
        for place, size, score in zip(places[order], sizes[order], scores[order], strict=True)
    ]


def _repeated(text: str, weights: Array, ends: Array, longest: int) -> Iterator[tuple[Array, int, Array]]:
    """For each length, where a substring first stands and how often it comes, those seen once left out.

    Substrings are told apart by a hash of 64 bits that grows with them. That any two of ten million collide, and
    share a count, has a chance of about one in 400,000.
    """
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32).astype(np.uint64)
    places: Array = np.arange(len(codes))
    hashes = codes * SPREAD
    counts = np.zeros(len(codes), np.int64)
    before: tuple[Array, Array] | None = None
    for length in range(1, longest + 2):
        if length > 1:
            fits = places + length <= ends[places]
            places = places[fits]
            hashes = (hashes[fits] ^ (hashes[fits] >> np.uint64(29))) * MIX + codes[places + length - 1] * SPREAD
        _, first, group = np.unique(hashes, return_index=True, return_inverse=True)
        total = np.bincount(group, weights[places], minlength=len(first)).astype(np.int64)
        counts[:] = 0
        counts[places] = total[group]
        if before is not None:
            at, seen = before
            # Seen as often with one more character: it never comes without it.
            kept = (seen > 1) & (counts[at] != seen)
            yield at[kept], length - 1, seen[kept]
        before = places[first], total
        # What comes once does not come twice with a character more.
        again = total[group] > 1
        places, hashes = places[again], hashes[again]


def _inside(words: Counter[str], alphabet: list[str]) -> Counter[str]:
    """The words, cut at characters outside the alphabet."""
    outside = re.compile(f"[^{re.escape(''.join(alphabet))}]+")
    kept: Counter[str] = Counter()
    for word, count in words.items():
        for part in outside.split(word):
            if part:
                kept[part] += count
    return kept


def _lines(words: list[tuple[str, int]], alphabet: list[str]) -> Iterator[str]:
    """A word and its count a line; first each character by itself, as some are kept without being in the text."""
    yield from (f"{char}\t1" for char in alphabet)
    yield from (f"{word}\t{count}" for word, count in words)
