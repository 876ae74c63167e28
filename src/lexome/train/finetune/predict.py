"""A model's answers on documents: rows to logits, and through the task's own decoding to documents and scores.

C labels
"""

from collections.abc import Sequence

import numpy as np
import torch

from lexome.document import Document
from lexome.tasks.task import Floats, Row, Scores, Task
from lexome.train.finetune.batches import batch_of, filled
from lexome.train.finetune.material import Split
from lexome.train.finetune.model import Learner


@torch.inference_mode()
def logits_of(
    learner: Learner, rows: Sequence[Row], task: Task, *, limit: int, segments: bool, autocast: torch.dtype | None
) -> list[Floats]:
    """The logits of each row, (C,) or (its tokens, C), in passes of at most `limit` tokens of rows of like length."""
    was = learner.training
    learner.eval()
    device = next(learner.parameters()).device
    lengths = [len(row.ids) for row in rows]
    order = sorted(range(len(rows)), key=lambda number: -lengths[number])
    results: dict[int, Floats] = {}
    for part in filled(order, lengths, limit):
        batch = batch_of([rows[number] for number in part], task, segments=segments).to(device)
        with torch.autocast(device.type, autocast, enabled=autocast is not None):
            logits = learner(batch)
        numbers = logits.float().cpu().numpy()
        pieces = numbers if task.head == "sequence" else np.split(numbers, np.cumsum([lengths[n] for n in part])[:-1])
        results.update(zip(part, pieces, strict=True))
    learner.train(was)
    return [results[number] for number in range(len(rows))]


def answered(
    learner: Learner, split: Split, task: Task, *, limit: int, segments: bool, autocast: torch.dtype | None
) -> list[Document]:
    """The documents of a split with what the model says in place of what is known."""
    logits = logits_of(learner, split.flat, task, limit=limit, segments=segments, autocast=autocast)
    crossed = iter(logits)
    found = []
    for doc, rows in zip(split.docs, split.rows, strict=True):
        found.append(task.decode(doc, rows, [next(crossed) for _ in rows]))
    return found


def scored(task: Task, split: Split, found: Sequence[Document]) -> Scores:
    """The task's measures. With documents of several sources each is scored by what it annotates; first comes the mean.

    The mean is that of the task's first measure, every source counting the same.
    """
    sources = dict.fromkeys(split.sources)
    if len(sources) == 1:
        return task.of_source(next(iter(sources))).score(split.docs, found)
    parts: dict[str, Scores] = {}
    for name in sources:
        places = [place for place, source in enumerate(split.sources) if source == name]
        gold = [split.docs[place] for place in places]
        parts[name] = task.of_source(name).score(gold, [found[place] for place in places])
    first = next(iter(next(iter(parts.values()))))
    scores = {first: float(np.mean([part[first] for part in parts.values()]))}
    return scores | {f"{name} {measure}": held for name, part in parts.items() for measure, held in part.items()}
