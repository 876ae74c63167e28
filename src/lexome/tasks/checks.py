"""Checks of what tasks are given, which say what was seen and what was expected."""

from collections.abc import Sequence

import numpy as np

from lexome.document import Document, shorten
from lexome.errors import BadDocument, UsageError
from lexome.tasks.task import Floats


def require_names(names: Sequence[str], what: str) -> None:
    """Raise unless these are names, one or more of them, all different."""
    if isinstance(names, str) or not names or len(set(names)) < len(names) or not all(names):
        raise UsageError(f"{what} are {names!r}; expected a list of different names, at least one.")


def require_choice(seen: str, known: Sequence[str], what: str) -> None:
    """Raise unless a setting is one of those known."""
    if seen not in known:
        raise UsageError(f"{what} is {seen!r}; expected one of {', '.join(known)}.")


def require_overlap(overlap: int) -> None:
    """Raise unless this many tokens can be shared."""
    if overlap < 0:
        raise UsageError(f"overlap is {overlap}; expected a number of tokens, 0 or more.")


def require_same(count: int, other: int, what: str, others: str) -> None:
    """Raise unless there are as many of the one as of the other."""
    if count != other:
        raise UsageError(f"there are {count} {what} and {other} {others}; expected as many.")


def require_numbers(numbers: Floats, expected: tuple[int, ...], doc: Document) -> None:
    """Raise unless a model's numbers for a row are finite and of this shape."""
    seen = np.shape(numbers)
    if seen != expected:
        raise UsageError(
            f"document {shorten(doc.id)!r}: a row has numbers of the shape {seen}; expected {expected}. The model has "
            "other labels than the task, or the numbers are another row's."
        )
    if not np.isfinite(numbers).all():
        raise UsageError(f"document {shorten(doc.id)!r}: a model says what is no number; its weights are damaged.")


def label_number(label: str, labels: Sequence[str], doc: Document) -> int:
    """The number of a label among a task's; BadDocument where it is none of them."""
    if label not in labels:
        raise BadDocument(
            "unknown_label",
            f"document {shorten(doc.id)!r} has the label {label!r}; the task has {', '.join(map(repr, labels))}. "
            "Name all labels in the task's settings, or rename those of the documents.",
        )
    return labels.index(label)
