"""Masking one sequence, one word, one token at a time: slow, and plain to read. Small batches to try it on."""

from typing import Any

import numpy as np

from lexome.corpus.masking import Masked, Masking, Vocabulary

CLS, SEP, MASK = 0, 1, 2


def vocabulary(size: int = 50, *, continuing: range = range(0), closing: range = range(0)) -> Vocabulary:
    """Ids 0, 1 and 2 are special; those in `continuing` go on with a word, those in `closing` end one."""
    special, starts, closes = np.zeros((3, size), bool)
    special[:3] = True
    starts[:] = True
    starts[continuing] = False
    closes[closing] = True
    return Vocabulary(MASK, special, starts, closes)


def batch(*sequences: list[int]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    ids = np.array([id_ for sequence in sequences for id_ in sequence], np.uint16)
    return ids, np.cumsum([len(sequence) for sequence in sequences], dtype=np.int64)


def text_of(rng: np.random.Generator, sequences: int, length: int, size: int = 50) -> tuple[Any, Any]:
    """Sequences of one length, of random ordinary ids."""
    return rng.integers(3, size, sequences * length).astype(np.uint16), np.arange(1, sequences + 1) * length


def slow_mask(ids: Any, ends: Any, vocabulary: Vocabulary, masking: Masking, draws: Any) -> Masked:
    inputs = ids.copy()
    positions = []
    start = 0
    for end in ends.tolist():
        words = slow_words(ids, range(start, end), vocabulary, masking.unit)
        units = slow_spans(words, masking, draws[3]) if masking.unit == "span" else [[word] for word in words]
        for unit in units if masking.independent else slow_budget(units, masking.rate, draws[0]):
            if masking.independent and draws[0][unit[0][0]] >= masking.rate:
                continue
            leader = next(other for other in units if unit[0] in other)[0][0]
            for token in [token for word in unit for token in word]:
                positions.append(token)
                roll = draws[1][leader if masking.replace_whole_unit else token]
                ordinary = [id_ for id_ in range(len(vocabulary.special)) if not vocabulary.special[id_]]
                if roll < masking.mask_ratio:
                    inputs[token] = vocabulary.mask_id
                elif roll < masking.mask_ratio + masking.random_ratio:
                    inputs[token] = ordinary[int(draws[2][token] * len(ordinary))]
        start = end
    positions.sort()
    return Masked(inputs, np.array(positions, np.int64), ids[np.array(positions, np.int64)])


def slow_words(ids: Any, tokens: range, vocabulary: Vocabulary, unit: str) -> list[list[int]]:
    words: list[list[int]] = []
    previous = None
    for token in tokens:
        id_ = ids[token]
        if not vocabulary.special[id_]:
            fresh = previous is None or vocabulary.special[previous] or vocabulary.closes[previous]
            if fresh or vocabulary.starts[id_] or unit == "token":
                words.append([])
            words[-1].append(token)
        previous = id_
    return words


def slow_spans(words: list[list[int]], masking: Masking, draws: Any) -> list[list[list[int]]]:
    """Words in runs of drawn lengths, around the sequence; a special token between two words ends a run early."""
    if not words:
        return []
    lengths = [slow_length(draws[word[0]], masking) for word in words]
    turn = int(draws[words[-1][0]] * len(words))
    spans: list[list[list[int]]] = []
    left = 0
    for word in words[turn:] + words[:turn]:
        if left == 0:
            left = lengths.pop(0)
            spans.append([])
        elif word is not words[0] and spans[-1][-1][-1] + 1 != word[0]:
            spans.append([])
        spans[-1].append(word)
        left -= 1
    return spans


def slow_length(draw: float, masking: Masking) -> int:
    chances = [masking.span_stop * (1 - masking.span_stop) ** n for n in range(masking.span_longest)]
    for length in range(1, masking.span_longest):
        if draw < sum(chances[:length]) / sum(chances):
            return length
    return masking.span_longest


def slow_budget(units: list[list[list[int]]], rate: float, draws: Any) -> list[list[list[int]]]:
    """The words taken, each as a unit of its own."""
    room = max(1, round(rate * sum(len(word) for unit in units for word in unit)))
    taken = []
    for unit in sorted(units, key=lambda unit: draws[unit[0][0]]):
        for word in unit:
            if len(word) <= room:
                taken.append([word])
                room -= len(word)
    return taken
