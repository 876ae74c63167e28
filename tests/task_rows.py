"""What tests of tasks share: a real WordPiece with a vocabulary of letters, frames, a model that is always right."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lexome.infer.tokenizer import WordPiece
from lexome.tasks import DocumentRelations
from lexome.tasks.document_relation import FIRST, LABEL, NOVEL, SECOND
from lexome.tasks.task import IGNORE_INDEX, Example, Floats, Frame, Task

# So sure is the model that is always right.
SURE = 12.0

_WORDS = ("the", "gene", "##gene", "BR", "##CA", "disease", "cancer", "breast", "and", "of", "with", "in")


def tokenizer(*, cased: bool = True, words: Sequence[str] = _WORDS) -> WordPiece:
    """A WordPiece that knows some words, every ASCII letter and some others, within words too."""
    letters = [chr(code) for code in range(33, 127)] + list("αβéñµ中—")
    pieces = ["[UNK]", *words, *letters, *(f"##{letter}" for letter in letters)]
    held: dict[str, Any] = {
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {piece: number + 10 for number, piece in enumerate(dict.fromkeys(pieces))},
        },
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": not cased,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "added_tokens": [],
    }
    return WordPiece(held)


def frame(max_tokens: int = 64, *, segments: bool = True) -> Frame:
    """Rows as BERT has them: [CLS] text [SEP], or [CLS] text [SEP] text [SEP]."""
    return Frame((1,), (2,), (2,), max_tokens, segments)


def perfect(task: Task, rows: Sequence[Example]) -> list[Floats]:
    """The numbers of a model that says what the rows' targets are, and noise where they ask nothing."""
    rng = np.random.default_rng(7)
    return [_perfect(task, row, rng) for row in rows]


def _perfect(task: Task, row: Example, rng: np.random.Generator) -> Floats:
    assert row.targets is not None
    if task.loss == "value":
        return row.targets.astype(np.float64)
    if task.loss == "binary":
        return (row.targets * 2 - 1) * SURE
    if task.loss == "span":
        numbers = rng.normal(size=(len(row.ids), 2))
        for side, place in enumerate(row.targets):
            if place != IGNORE_INDEX:
                numbers[place, side] = SURE
        return numbers
    if isinstance(task, DocumentRelations):
        return _perfect_pairs(task, row)
    targets = row.targets if task.head == "token" else row.targets[None]
    numbers = rng.normal(size=(len(targets), sum(task.groups))) * SURE
    low = 0
    for group, size in enumerate(task.groups):
        own = targets[:, group]
        asked = own != IGNORE_INDEX
        numbers[asked, low : low + size] = np.eye(size)[own[asked]] * SURE
        low += size
    return numbers if task.head == "token" else numbers[0]


def _perfect_pairs(task: DocumentRelations, row: Example) -> Floats:
    """No relation has -SURE; each related pair of mentions has a dimension of its own that outweighs it."""
    assert row.targets is not None
    numbers = np.zeros((len(row.ids), len(task.relations) + len(task.novelties), task.outputs_per_relation))
    numbers[:, :, -2] = -SURE
    size = np.sqrt(3 * SURE * np.sqrt(task.width))
    related = row.targets[row.targets[:, LABEL] > 0]
    assert len(related) <= task.width
    for dimension, target in enumerate(related):
        numbers[target[FIRST], target[LABEL] - 1, dimension] = size
        numbers[target[SECOND], target[LABEL] - 1, task.width + dimension] = size
        if target[NOVEL] == 1:
            numbers[target[FIRST], len(task.relations) :, -2] = SURE
    return numbers.reshape(len(row.ids), -1)
