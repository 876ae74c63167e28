"""Losses of fine-tuning, by the kind of task: cross entropy, weighted, focal, dice, and distillation from teachers.

T tokens of the packed batch, S sequences, L the longest of them, N tokens or sequences that may be labeled, G groups,
C labels of a group
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
from lexome.models.attention import Packing
from lexome.models.checkpoint import load
from lexome.models.heads import EncoderWithHead
from lexome.models.hf_folder import weights_sha256
from lexome.tasks.task import IGNORE_INDEX, Example, Task
from lexome.training.finetune.batching import TaskBatch
from lexome.training.finetune.grid import start_of
from lexome.training.finetune.task_model import Crf, crf_task, head_labels
from lexome.training.sampling import Specials, Text


@dataclass(frozen=True, slots=True)
class LossSettings:
    """The loss, and how it treats rare labels.

    kind     plain, weighted (by `weights`), focal (Lin et al. 2017) or dice (Li et al. 2020)
    gamma    focal's exponent of 1 - p
    alpha    dice's exponent of 1 - p
    smooth   added to numerator and denominator of dice
    weights  of each label, group after group
    """

    kind: str = "plain"
    gamma: float = 2.0
    alpha: float = 1.0
    smooth: float = 1.0
    weights: tuple[float, ...] = ()


class TaskLoss:
    """A micro-batch's part of the step's loss; the parts of a step add up to the loss of one large batch.

    It is the mean over labels. A token with several groups counts once, with the sum over its groups. The dice loss is
    that of each micro-batch by itself, weighted by its labels.
    """

    def __init__(self, task: Task, settings: LossSettings, crf: Crf | None = None) -> None:
        self.task, self.settings, self.crf = task, settings, crf

    def __call__(self, logits: Tensor, batch: TaskBatch) -> Tensor:
        """The loss of logits as the head gives them, in float32."""
        assert batch.targets is not None
        logits, targets = logits.float(), batch.targets
        if self.crf is not None:
            return self.crf.loss(logits, targets, batch.packing) / batch.denominator
        if self.task.loss == "span":
            return span_loss(logits, targets, batch.packing) / batch.denominator
        if self.task.loss == "value":
            return value_loss(logits, targets) / batch.denominator
        if self.task.loss == "binary":
            return binary_loss(logits, targets, self.settings) / batch.denominator
        return choice_loss(logits, targets, self.task.groups, self.settings) / batch.denominator


def choice_loss(logits: Tensor, targets_NG: Tensor, groups: Sequence[int], settings: LossSettings) -> Tensor:
    """The sum over groups of one correct label each."""
    weights = _weights(settings.weights or (1.0,) * sum(groups), logits.device)
    total = logits.new_zeros(())
    parts = zip(
        torch.split(logits, list(groups), dim=-1),
        torch.split(weights, list(groups)),
        targets_NG.unbind(-1),
        strict=True,
    )
    for logits_NC, weight_C, target_N in parts:
        total = total + _choice(logits_NC, target_N, weight_C, settings)
    return total


def _choice(logits_NC: Tensor, target_N: Tensor, weight_C: Tensor, settings: LossSettings) -> Tensor:
    if settings.kind in ("plain", "weighted"):
        return functional.cross_entropy(logits_NC, target_N, weight_C, ignore_index=IGNORE_INDEX, reduction="sum")
    labeled_N = target_N != IGNORE_INDEX
    target_N1 = target_N.clamp(min=0)[:, None]
    if settings.kind == "focal":
        logp_N = logits_NC.log_softmax(-1).gather(-1, target_N1)[:, 0]
        return (-(_complement(logp_N.exp()) ** settings.gamma) * logp_N)[labeled_N].sum()
    yes_NC = torch.zeros_like(logits_NC).scatter(-1, target_N1, 1.0)
    return dice(logits_NC.softmax(-1), yes_NC, labeled_N[:, None], settings) * labeled_N.sum()


def binary_loss(logits_NC: Tensor, targets_NC: Tensor, settings: LossSettings) -> Tensor:
    """The sum over sequences of the mean over labels that are each true or false."""
    labeled_NC = targets_NC != IGNORE_INDEX
    yes_NC = targets_NC.clamp(min=0)
    if settings.kind == "dice":
        return dice(logits_NC.sigmoid(), yes_NC, labeled_NC, settings) * labeled_NC.any(-1).sum()
    losses_NC = functional.binary_cross_entropy_with_logits(logits_NC, yes_NC, reduction="none")
    if settings.kind == "weighted":
        losses_NC = losses_NC * torch.where(yes_NC > 0, _weights(settings.weights, logits_NC.device), 1.0)
    elif settings.kind == "focal":
        losses_NC = losses_NC * _complement((-losses_NC).exp()) ** settings.gamma
    losses_NC = losses_NC * labeled_NC
    return (losses_NC.sum(-1) / labeled_NC.sum(-1).clamp(min=1)).sum()


def value_loss(logits_NC: Tensor, targets_NC: Tensor) -> Tensor:
    """The sum of squared errors."""
    labeled_NC = ~targets_NC.isnan()
    return (logits_NC - targets_NC.nan_to_num()).square().masked_fill(~labeled_NC, 0.0).sum()


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


def dice(probs_NC: Tensor, yes_NC: Tensor, labeled_NC: Tensor, settings: LossSettings) -> Tensor:
    """1 - the dice coefficient of each label's predictions with the targets, over the micro-batch; mean over labels.

    Of the forms that Li et al. (2020) give it is the one over a set: summed up example by example, a small model on ten
    sentences learned to predict O for everything. It is self-adjusting: a probability p counts as (1 - p)^alpha p. The
    factor has no gradient: with one, a true label would cost least at p = 0.5 and not at 1.
    """
    counted_NC = _complement(probs_NC.detach()) ** settings.alpha * probs_NC * labeled_NC
    true_NC = yes_NC * labeled_NC
    shared_C = (counted_NC * true_NC).sum(0)
    dice_C = (2 * shared_C + settings.smooth) / (counted_NC.sum(0) + true_NC.sum(0) + settings.smooth)
    return (1 - dice_C).mean()


@cache
def _weights(weights: tuple[float, ...], device: torch.device) -> Tensor:
    """Weights on a device, copied once: a copy at every step would synchronize with the GPU."""
    return torch.tensor(weights, device=device)


def _complement(probs: Tensor) -> Tensor:
    """1 - p, but never 0: a power below 1 has no slope there."""
    return (1 - probs).clamp(min=1e-8)


class Distillation:
    """Distillation from fine-tuned teachers: how far the model's label probabilities are from theirs.

    It is the mean over all tokens of the sum over groups of KL(teachers || model), times a weight; the square of the
    temperature keeps its gradients as large as without one.
    """

    def __init__(self, teachers: Sequence[EncoderWithHead], task: Task, *, weight: float, temperature: float) -> None:
        require_token_labels(task)
        self.teachers = [teacher.eval().requires_grad_(False) for teacher in teachers]
        self.shape = (-1, len(task.groups), task.groups[0])
        self.weight, self.temperature = weight, temperature

    @torch.no_grad()
    def soft_labels(self, batch: TaskBatch) -> Tensor:
        """The mean of the teachers' probabilities, (T, G, K)."""
        every = [self._logits(teacher(batch.ids_T, batch.packing, batch.segments_T)) for teacher in self.teachers]
        return torch.stack([logits_TGK.softmax(-1) for logits_TGK in every]).mean(0)

    def loss(self, logits_TC: Tensor, soft_TGK: Tensor, batch: TaskBatch) -> Tensor:
        """A micro-batch's part of the step's loss."""
        assert batch.soft_T is not None
        student_TGK = self._logits(logits_TC).log_softmax(-1)
        # The logarithm of a probability of 0 is -inf, and 0 times that is NaN.
        teacher_TGK = soft_TGK.clamp(min=1e-9).log()
        divergence_T = (soft_TGK * (teacher_TGK - student_TGK)).sum((1, 2))
        return (divergence_T * batch.soft_T).sum() * (self.weight * self.temperature**2)

    def _logits(self, logits_TC: Tensor) -> Tensor:
        return logits_TC.float().view(self.shape) / self.temperature


def unlabeled_examples(shards: Path, tokenizer: Path, task: Task, *, max_tokens: int) -> tuple[Example, ...]:
    """The sequences of token shards as examples without labels."""
    opened = open_shards(shards, tokenizer_sha256=tokenizer_sha256(tokenizer))
    specials = Specials.of(json.loads((tokenizer / TOKENIZER_FILE).read_bytes()))
    text = Text(opened.train, specials, kind="sentences", shuffled=False)
    ordered = text.epoch(0, max_tokens)
    packed = text.packed(ordered.ranges, ordered.order)
    # Examples are views of one array, and what is the same in all of them is stored once.
    unknown = np.broadcast_to(np.int64(IGNORE_INDEX), (max_tokens, len(task.groups)))
    zeros = np.zeros(max_tokens, np.int64)
    return tuple(
        Example(ids, zeros[: len(ids)], zeros[: len(ids)], zeros[: len(ids)], unknown[: len(ids)])
        for ids in np.split(packed.ids, packed.ends[:-1])
    )


def teachers_sha256(models: Sequence[Path], shards: Path | None) -> str:
    """The hash of the teachers' weights and of their unlabeled text."""
    text = None if shards is None else open_shards(shards).manifest
    return fingerprint([weights_sha256(start_of(path)) for path in models], text)


def require_token_labels(task: Task) -> None:
    """UsageError for a task that distillation does not support."""
    if task.head != "token" or task.loss != "choice" or len(set(task.groups)) != 1:
        message = f"[teacher] is for token labels, and this task labels a {task.head}. Leave it out."
        raise UsageError(message, code="unsupported-task", value="teacher")


def load_teacher(path: Path, task: Task, tokenizer: Path, *, max_tokens: int) -> EncoderWithHead:
    """A fine-tuned model with the task's labels; CheckpointError where it does not fit the task or the examples."""

    def unfit(problem: str, code: str) -> CheckpointError:
        return CheckpointError(f"{path}: the teacher {problem}", code=code, value=path)

    if head_labels(path, task.head) is None:
        raise unfit(
            f"has no head for labels of a {task.head}; expected a model that was fine-tuned on the same [task]. "
            "Fine-tune it first, and name the `out` of that.",
            "no-head",
        )
    if crf_task(path) is not None:
        # A CRF's tag of a token depends on the words around it, and text without labels is not split into words.
        raise unfit(
            "has a CRF over tags (head.crf), which is not part of its probabilities of single labels; expected a model "
            "without one. Fine-tune a teacher with crf = false.",
            "crf-teacher",
        )
    teacher = load(path, kind=task.head)
    if teacher.labels != task.labels:
        raise unfit(
            f"has {len(teacher.labels)} labels, {', '.join(teacher.labels[:4])}, ...; the task has {len(task.labels)}, "
            f"{', '.join(task.labels[:4])}, ... Fine-tune the teacher on the same [task].",
            "label-mismatch",
        )
    if tokenizer_sha256(path) != tokenizer_sha256(tokenizer):
        raise unfit("has another tokenizer than the model. Expected the same.", "tokenizer-mismatch")
    if teacher.config.max_tokens < max_tokens:
        raise unfit(
            f"takes {teacher.config.max_tokens} tokens, and sequences have up to {max_tokens}. Lower data.max_tokens, "
            "or choose a teacher that takes as many.",
            "too-long",
        )
    assert isinstance(teacher.model, EncoderWithHead)
    return teacher.model
