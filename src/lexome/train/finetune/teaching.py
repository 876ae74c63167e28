"""Teachers of a fine-tuning: models whose shares of each label are learnt from, on sets and on text without labels.

T tokens of the packed batch, N tokens of a row, G groups, K labels of a group, C = G K outputs
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lexome.corpus.shards.store import open_shards
from lexome.corpus.vocab.tokenizers import TOKENIZER_FILE, tokenizer_sha256
from lexome.errors import CheckpointError, UsageError
from lexome.models.checkpoint import load
from lexome.models.heads import Labeller
from lexome.models.weights import weights_sha256
from lexome.pipeline import fingerprint
from lexome.recipe.finetune import TeacherTable
from lexome.tasks.task import NOT_ASKED, Row, Task
from lexome.train.finetune.batches import Batch
from lexome.train.finetune.model import chained_task, held_labels
from lexome.train.finetune.summary import start_of
from lexome.train.text import Specials, Text


class Teaching:
    """The loss by teachers: how far the shares that a model gives to labels are from theirs.

    It is the mean over all tokens of the sum over groups of KL(teachers || model), weighed as the recipe says; the
    square of the temperature keeps its gradients as large as without one.
    """

    def __init__(self, teachers: Sequence[Labeller], task: Task, *, weight: float, temperature: float) -> None:
        _require_tokens(task)
        self.teachers = [teacher.eval().requires_grad_(False) for teacher in teachers]
        self.shape = (-1, len(task.groups), task.groups[0])
        self.weight, self.temperature = weight, temperature

    @classmethod
    def of(
        cls, table: TeacherTable, task: Task, tokenizer: Path, *, max_tokens: int, device: torch.device
    ) -> "Teaching":
        """The recipe's teachers, opened; UsageError or CheckpointError where one does not fit the task or the rows."""
        _require_tokens(task)
        teachers = [_opened(start_of(path), task, tokenizer, max_tokens=max_tokens).to(device) for path in table.models]
        return cls(teachers, task, weight=table.weight, temperature=table.temperature)

    @torch.no_grad()
    def shares(self, batch: Batch) -> Tensor:
        """What the teachers say, in the mean, (T, G, K)."""
        every = [self._logits(teacher(batch.ids_T, batch.packing, batch.segments_T)) for teacher in self.teachers]
        return torch.stack([logits_TGK.softmax(-1) for logits_TGK in every]).mean(0)

    def loss(self, logits_TC: Tensor, shares_TGK: Tensor, batch: Batch) -> Tensor:
        """The loss of a pass, as its share of the step's."""
        assert batch.taught_T is not None
        own_TGK = self._logits(logits_TC).log_softmax(-1)
        # log of a share that is 0 is -inf, and 0 of that is no number.
        theirs_TGK = shares_TGK.clamp(min=1e-9).log()
        apart_T = (shares_TGK * (theirs_TGK - own_TGK)).sum((1, 2))
        return (apart_T * batch.taught_T).sum() * (self.weight * self.temperature**2)

    def _logits(self, logits_TC: Tensor) -> Tensor:
        return logits_TC.float().view(self.shape) / self.temperature


def text_rows(shards: Path, tokenizer: Path, task: Task, *, max_tokens: int) -> tuple[Row, ...]:
    """The sequences of token shards as rows that nothing is known about."""
    opened = open_shards(shards, tokenizer_sha256=tokenizer_sha256(tokenizer))
    specials = Specials.of(json.loads((tokenizer / TOKENIZER_FILE).read_bytes()))
    text = Text(opened.train, specials, kind="sentences", shuffled=False)
    ordered = text.epoch(0, max_tokens)
    packed = text.packed(ordered.ranges, ordered.order)
    # Rows are parts of one array, and what is the same in all of them is stored once.
    unknown = np.broadcast_to(np.int64(NOT_ASKED), (max_tokens, len(task.groups)))
    zeros = np.zeros(max_tokens, np.int64)
    return tuple(
        Row(ids, zeros[: len(ids)], zeros[: len(ids)], zeros[: len(ids)], unknown[: len(ids)])
        for ids in np.split(packed.ids, packed.ends[:-1])
    )


def taught_by(table: TeacherTable) -> str:
    """The hash of the teachers' weights and of the text that they tell about."""
    text = None if table.shards is None else open_shards(table.shards).manifest
    return fingerprint([weights_sha256(start_of(path)) for path in table.models], text)


def _require_tokens(task: Task) -> None:
    """UsageError for a task that no teacher is for."""
    if task.head != "token" or task.loss != "choice" or len(set(task.groups)) != 1:
        raise UsageError(f"a teacher is for labels of tokens, and this task labels a {task.head}. Leave it out.")


def _opened(path: Path, task: Task, tokenizer: Path, *, max_tokens: int) -> Labeller:
    if held_labels(path, task.head) is None:
        raise CheckpointError(
            f"{path}: the teacher has no head for labels of a {task.head}; expected a model that was fine-tuned on the "
            "same [task]. Fine-tune it first, and name the `out` of that."
        )
    if chained_task(path) is not None:
        # What a chain makes of a token hangs on the words around it, and text without labels is not cut into words.
        raise CheckpointError(
            f"{path}: the teacher has a chain over tags (head.crf), which is no part of its shares of single labels; "
            "expected a model without one. Fine-tune a teacher with crf = false."
        )
    found = load(path, kind=task.head)
    if found.labels != task.labels:
        raise CheckpointError(
            f"{path}: the teacher has {len(found.labels)} labels, {', '.join(found.labels[:4])}, ...; the task has "
            f"{len(task.labels)}, {', '.join(task.labels[:4])}, ... Fine-tune the teacher on the same [task]."
        )
    if tokenizer_sha256(path) != tokenizer_sha256(tokenizer):
        raise CheckpointError(f"{path}: the teacher has another tokenizer than the model. Expected the same.")
    if found.config.max_tokens < max_tokens:
        raise CheckpointError(
            f"{path}: the teacher takes {found.config.max_tokens} tokens, and rows have up to {max_tokens}. Lower "
            "data.max_tokens, or take a teacher that reads as much."
        )
    assert isinstance(found.model, Labeller)
    return found.model
