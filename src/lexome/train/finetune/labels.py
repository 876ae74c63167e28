"""How labels are spread over rows: counts, the bias of a set, weights for rare labels, and rows to see more often.

N rows or tokens, G groups
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lexome.tasks.task import NOT_ASKED, Row, Task


def label_counts(rows: Sequence[Row], task: Task) -> dict[str, int]:
    """How often each label is right, by name; empty for numbers and for spans."""
    targets = [row.targets for row in rows if row.targets is not None]
    if task.loss == "binary":
        yes = np.sum([target == 1 for target in targets], axis=0)
        return dict(zip(task.labels, map(int, yes), strict=True))
    if task.loss != "choice":
        return {}
    counts = [np.bincount(part, minlength=size) for part, size in zip(_by_group(rows, task), task.groups, strict=True)]
    return dict(zip(task.labels, map(int, np.concatenate(counts)), strict=True))


def label_bias(rows: Sequence[Row], task: Task) -> float | None:
    """The share of what is asked whose right label is not the usual one, as BioMegatron's table 8 has it.

    Of tokens, those in a mention; of sequences, those that are not of the largest class; of labels that are true or
    not, the true ones; of questions, the tokens inside their answers. None where there is no such thing.
    """
    if task.loss == "span":
        places = [row.targets for row in rows if row.targets is not None and row.targets[0] != NOT_ASKED]
        inside = sum(int(last - first + 1) for first, last in places if first > 0)
        return inside / max(1, sum(len(row.ids) for row in rows))
    if task.loss == "binary":
        asked = [row.targets[row.targets != NOT_ASKED] for row in rows if row.targets is not None]
        return float(np.concatenate(asked).mean())
    if task.loss != "choice":
        return None
    parts = [np.bincount(part) for part in _by_group(rows, task) if len(part)]
    total = sum(int(part.sum()) for part in parts)
    return 1 - sum(int(part.max()) for part in parts) / max(1, total)


def label_weights(rows: Sequence[Row], task: Task, *, power: float) -> tuple[float, ...]:
    """A weight for each label: the rarer, the larger. One that never occurs has 1, and one that is always true.

    Of one right label: in each group, the weights of all that is asked are 1 in the mean where the power is 1. Of
    labels that are true or not: how many times as often the label is not true.
    """
    counts = np.array(list(label_counts(rows, task).values()), dtype=np.float64)
    if task.loss == "binary":
        wrong = np.sum([row.targets == 0 for row in rows if row.targets is not None], axis=0)
        # A weight of 0 would leave a label that is always true unlearnt.
        return tuple(np.where((counts > 0) & (wrong > 0), wrong / np.maximum(counts, 1), 1.0) ** power)
    if task.loss != "choice":
        return ()
    weights = []
    for part in np.split(counts, np.cumsum(task.groups)[:-1]):
        usual = part.sum() / max(1, int((part > 0).sum()))
        weights += (np.where(part > 0, usual / np.maximum(part, 1), 1.0) ** power).tolist()
    return tuple(weights)


def repetitions(rows: Sequence[Row], task: Task, *, power: float) -> NDArray[np.float64]:
    """How often each row comes in an epoch: more often the rarer the rarest label in it, as far as `power` says."""
    if not power:
        return np.ones(len(rows))
    usual = [int(np.bincount(part).argmax()) if len(part) else 0 for part in _by_group(rows, task)]
    held = [_held(row, task, usual) for row in rows]
    counts = Counter(label for labels in held for label in labels)
    most = max(counts.values())
    return np.array([max(most / counts[label] for label in labels) ** power for labels in held])


def _by_group(rows: Sequence[Row], task: Task) -> list[NDArray[np.int64]]:
    """Of each group, the labels that are right wherever it is asked."""
    if task.loss != "choice":
        return []
    joined_NG = np.concatenate([np.atleast_2d(row.targets) for row in rows if row.targets is not None])
    return [part[part != NOT_ASKED] for part in joined_NG.T]


def _held(row: Row, task: Task, usual: Sequence[int]) -> set[object]:
    """The labels of a row that set it apart; of a token task not the usual one, which is in every row."""
    targets = np.asarray(row.targets)
    if task.loss == "span":
        return {bool(targets[0] > 0)}
    if task.loss == "value":
        return {None}
    if task.loss == "binary":
        return set(np.flatnonzero(targets == 1).tolist()) or {None}
    found: set[object] = set()
    for group, column in enumerate(np.atleast_2d(targets).T):
        own = set(np.unique(column).tolist()) - {NOT_ASKED}
        own -= {usual[group]} if task.head == "token" else set()
        found |= {(group, label) for label in own}
    return found or {None}
