"""What fine-tuning minimises, by the kind of task, and what it does about rare labels.

T tokens of the packed batch, S sequences, L the longest of them, N tokens or sequences that may be asked, G groups, C
labels of a group
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from lexome.corpus.shards import open_shards
from lexome.corpus.vocab.tokenizers import TOKENIZER_FILE, tokenizer_sha256
from lexome.errors import CheckpointError, UsageError
from lexome.files import fingerprint
from lexome.models.checkpoint import load
from lexome.models.heads import EncoderWithHead
from lexome.models.hf_folder import weights_sha256
from lexome.models.packing import Packing
from lexome.recipe.finetune import TeacherTable
from lexome.tasks.task import IGNORE_INDEX, Example, Task
from lexome.training.finetune.batching import Batch
from lexome.training.finetune.grid import start_of
from lexome.training.finetune.task_model import Crf, chained_task, held_labels
from lexome.training.sampling import Specials, Text


@dataclass(frozen=True, slots=True)
class Rules:
    """How a wrong answer is weighed.

    kind     plain, weighted (by `weights`), focal (Lin et al. 2017) or dice (Li et al. 2020)
    gamma    focal's exponent of 1 - p
    alpha    dice's exponent of 1 - p
    smooth   dice's number above and below
    weights  of each label, group after group
    """

    kind: str = "plain"
    gamma: float = 2.0
    alpha: float = 1.0
    smooth: float = 1.0
    weights: tuple[float, ...] = ()


class TaskLoss:
    """The loss of a pass, as its share of the step's: passes of one step add up to the loss of one large batch.

    It is the mean over what is asked. A token with several groups counts once, with the sum over its groups. The dice
    loss is that of each pass by itself, weighed by what it asks.
    """

    def __init__(self, task: Task, rules: Rules, crf: Crf | None = None) -> None:
        self.task, self.rules, self.crf = task, rules, crf

    def __call__(self, logits: Tensor, batch: Batch) -> Tensor:
        """The loss of logits as the head gives them, in float32."""
        assert batch.targets is not None
        logits, targets = logits.float(), batch.targets
        if self.crf is not None:
            return self.crf.loss(logits, targets, batch.packing) / batch.asked
        if self.task.loss == "span":
            return span_loss(logits, targets, batch.packing) / batch.asked
        if self.task.loss == "value":
            return value_loss(logits, targets) / batch.asked
        if self.task.loss == "binary":
            return binary_loss(logits, targets, self.rules) / batch.asked
        return choice_loss(logits, targets, self.task.groups, self.rules) / batch.asked


def choice_loss(logits: Tensor, targets_NG: Tensor, groups: Sequence[int], rules: Rules) -> Tensor:
    """The sum over groups of one right label each, where it is asked."""
    weights = _weights(rules.weights or (1.0,) * sum(groups), logits.device)
    total = logits.new_zeros(())
    parts = zip(
        torch.split(logits, list(groups), dim=-1),
        torch.split(weights, list(groups)),
        targets_NG.unbind(-1),
        strict=True,
    )
    for logits_NC, weight_C, target_N in parts:
        total = total + _choice(logits_NC, target_N, weight_C, rules)
    return total


def _choice(logits_NC: Tensor, target_N: Tensor, weight_C: Tensor, rules: Rules) -> Tensor:
    if rules.kind in ("plain", "weighted"):
        return functional.cross_entropy(logits_NC, target_N, weight_C, ignore_index=IGNORE_INDEX, reduction="sum")
    asked_N = target_N != IGNORE_INDEX
    right_N1 = target_N.clamp(min=0)[:, None]
    if rules.kind == "focal":
        sure_N = logits_NC.log_softmax(-1).gather(-1, right_N1)[:, 0]
        return (-(_left(sure_N.exp()) ** rules.gamma) * sure_N)[asked_N].sum()
    yes_NC = torch.zeros_like(logits_NC).scatter(-1, right_N1, 1.0)
    return dice(logits_NC.softmax(-1), yes_NC, asked_N[:, None], rules) * asked_N.sum()


def binary_loss(logits_NC: Tensor, targets_NC: Tensor, rules: Rules) -> Tensor:
    """The sum over sequences of the mean over labels that are each true or not, where it is asked."""
    asked_NC = targets_NC != IGNORE_INDEX
    yes_NC = targets_NC.clamp(min=0)
    if rules.kind == "dice":
        return dice(logits_NC.sigmoid(), yes_NC, asked_NC, rules) * asked_NC.any(-1).sum()
    losses_NC = functional.binary_cross_entropy_with_logits(logits_NC, yes_NC, reduction="none")
    if rules.kind == "weighted":
        losses_NC = losses_NC * torch.where(yes_NC > 0, _weights(rules.weights, logits_NC.device), 1.0)
    elif rules.kind == "focal":
        losses_NC = losses_NC * _left((-losses_NC).exp()) ** rules.gamma
    losses_NC = losses_NC * asked_NC
    return (losses_NC.sum(-1) / asked_NC.sum(-1).clamp(min=1)).sum()


def value_loss(logits_NC: Tensor, targets_NC: Tensor) -> Tensor:
    """The sum of squared differences, where a number is known."""
    asked_NC = ~targets_NC.isnan()
    return (logits_NC - targets_NC.nan_to_num()).square().masked_fill(~asked_NC, 0.0).sum()


def span_loss(logits_T2: Tensor, targets_S2: Tensor, packing: Packing) -> Tensor:
    """The sum over sequences of the mean cross entropy of the first and of the last token, among its own tokens."""
    lengths_S = packing.bounds_S1.long().diff()
    sequence_T = torch.repeat_interleave(lengths_S, output_size=logits_T2.shape[0])
    # A rectangle of two numbers a token costs nothing beside the encoder, and is the same bits each time on a GPU.
    # No number is -inf: a sequence that only fills up a batch has no token, and its softmax must not be NaN.
    empty_SL2 = logits_T2.new_full((len(lengths_S), packing.longest, 2), torch.finfo(logits_T2.dtype).min)
    logits_SL2 = empty_SL2.index_put((sequence_T, packing.positions_T), logits_T2)
    right_S2 = logits_SL2.log_softmax(1).gather(1, targets_S2.clamp(min=0)[:, None])[:, 0]
    return torch.where(targets_S2 != IGNORE_INDEX, -right_S2, 0.0).sum() / 2


def dice(shares_NC: Tensor, yes_NC: Tensor, asked_NC: Tensor, rules: Rules) -> Tensor:
    """1 - the dice coefficient of each label's answers with the truth, over all of the pass; the mean over labels.

    Of the forms that Li et al. (2020) give it is the one over a set: summed up answer by answer, a small model on ten
    sentences learnt to say O to everything. It is self-adjusting: an answer p counts as (1 - p)^alpha p. The factor is
    a weight here, of which no gradient is taken: with one, a true label would cost least at p = 0.5 and not at 1.
    """
    counted_NC = _left(shares_NC.detach()) ** rules.alpha * shares_NC * asked_NC
    true_NC = yes_NC * asked_NC
    shared_C = (counted_NC * true_NC).sum(0)
    dice_C = (2 * shared_C + rules.smooth) / (counted_NC.sum(0) + true_NC.sum(0) + rules.smooth)
    return (1 - dice_C).mean()


@cache
def _weights(weights: tuple[float, ...], device: torch.device) -> Tensor:
    """Weights on a device, put there once: a copy at every step would wait for the GPU."""
    return torch.tensor(weights, device=device)


def _left(shares: Tensor) -> Tensor:
    """What is left to learn of answers. Never quite 0: a power below 1 has no slope there."""
    return (1 - shares).clamp(min=1e-8)


class Teaching:
    """The loss by teachers: how far the shares that a model gives to labels are from theirs.

    It is the mean over all tokens of the sum over groups of KL(teachers || model), weighed as the recipe says; the
    square of the temperature keeps its gradients as large as without one.
    """

    def __init__(self, teachers: Sequence[EncoderWithHead], task: Task, *, weight: float, temperature: float) -> None:
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


def text_rows(shards: Path, tokenizer: Path, task: Task, *, max_tokens: int) -> tuple[Example, ...]:
    """The sequences of token shards as rows that nothing is known about."""
    opened = open_shards(shards, tokenizer_sha256=tokenizer_sha256(tokenizer))
    specials = Specials.of(json.loads((tokenizer / TOKENIZER_FILE).read_bytes()))
    text = Text(opened.train, specials, kind="sentences", shuffled=False)
    ordered = text.epoch(0, max_tokens)
    packed = text.packed(ordered.ranges, ordered.order)
    # Rows are parts of one array, and what is the same in all of them is stored once.
    unknown = np.broadcast_to(np.int64(IGNORE_INDEX), (max_tokens, len(task.groups)))
    zeros = np.zeros(max_tokens, np.int64)
    return tuple(
        Example(ids, zeros[: len(ids)], zeros[: len(ids)], zeros[: len(ids)], unknown[: len(ids)])
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


def _opened(path: Path, task: Task, tokenizer: Path, *, max_tokens: int) -> EncoderWithHead:
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
    assert isinstance(found.model, EncoderWithHead)
    return found.model
