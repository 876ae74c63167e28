"""Whole texts, alone or in pairs, as rows for a head that answers once a row, and one answer from several rows."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lexome.document import Document, shorten
from lexome.errors import BadDocument, UsageError
from lexome.tasks.checks import label_number, require_numbers
from lexome.tasks.task import Floats, Frame, Ints, Row, Tokenizer
from lexome.tasks.windows import Tokens, pair_row, pair_windows, room, single_row, tokens_of, windows

Pool = Literal["mean", "max"]


def text_rows(
    tokens: Tokens, frame: Frame, *, overlap: int, targets: NDArray[Any] | None, about: tuple[str, ...] = ()
) -> list[Row]:
    """A row for each window of a text; a text without tokens has one row of special tokens alone."""
    return [
        single_row(tokens.part(start, end), frame, targets=targets, about=about)
        for start, end in windows(tokens.begins, size=room(frame), overlap=overlap)
    ]


def pair_rows(
    first: Tokens,
    second: Tokens,
    frame: Frame,
    *,
    overlap: int,
    targets: NDArray[Any] | None,
    about: tuple[str, ...] = (),
) -> list[Row]:
    """A row for each meeting of a window of one text with one of the other."""
    return [
        pair_row(first.part(*left), second.part(*right), frame, targets=targets, about=about)
        for left, right in pair_windows(first, second, frame, overlap=overlap)
    ]


def two_texts(doc: Document, tokenizer: Tokenizer) -> tuple[Tokens, Tokens]:
    """The tokens of the two passages of a pair."""
    if len(doc.passages) != 2:
        raise BadDocument(
            "not_a_pair",
            f"document {shorten(doc.id)!r} has {len(doc.passages)} passages; expected two, the texts of a pair.",
        )
    first, second = (tokens_of((passage,), tokenizer) for passage in doc.passages)
    return first, second


def over_rows(logits: Sequence[Floats], pool: Pool, doc: Document, *, outputs: int) -> Floats:
    """One answer (C,) of the answers of all rows: their mean, or the largest of each."""
    if not len(logits):
        raise UsageError(f"there are no numbers for document {shorten(doc.id)!r}; expected those of all its rows.")
    for numbers in logits:
        require_numbers(numbers, (outputs,), doc)
    stacked = np.stack([np.asarray(numbers, np.float64) for numbers in logits])
    return np.asarray(stacked.mean(0) if pool == "mean" else stacked.max(0))


def one_label(doc: Document, labels: Sequence[str], empty: str | None = None) -> Ints:
    """The number of the one label of a document, (1,); `empty` is what no label means."""
    own = doc.labels or ((empty,) if empty is not None else ())
    if len(own) != 1:
        raise BadDocument(
            "no_label" if not own else "several_labels",
            f"document {shorten(doc.id)!r} has {len(own)} labels; expected one of {', '.join(map(repr, labels))}.",
        )
    return np.array([label_number(own[0], labels, doc)], np.int64)
