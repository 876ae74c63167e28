"""The model of a task and its losses: a head on a checkpoint, CRF, adapters; cross entropy, focal, dice, teachers.

T tokens of the packed batch, S sequences, L the longest of them, N tokens, sequences or mention pairs that may be
labeled, G groups, C labels of a group, P pairs of entities, R relations
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from lexome.corpus.vocab.tokenizers import tokenizer_sha256
from lexome.errors import CheckpointError, UsageError
from lexome.files import read_json
from lexome.models import hf
from lexome.models.checkpoint import HUGGING_FACE, Checkpoint, StoredCheckpoint, encoder_of, layout_of, load
from lexome.models.encoder import Attention, Encoder, Packing
from lexome.models.heads import EncoderWithHead, HiddenLayers, SequenceHead
from lexome.models.hf import write_config
from lexome.models.hf_folder import read_settings
from lexome.tasks import task_of
from lexome.tasks.document_relation import FIRST, LABEL, NOVEL, PAIR, SCHEMA, SECOND
from lexome.tasks.task import IGNORE_INDEX, TASK, Example, PairOutputs, Task, Transitions, fill
from lexome.training.finetune.lora import LoraSettings, add_adapters
from lexome.training.loop import Step
from lexome.training.sampling import BatchPosition

# The longest sequence is rounded up to a multiple of this: compiled code is specialized for each value.
LENGTHS = 64
# Sequences of a micro-batch where the recipe has neither sequences nor tokens: the batch size of most papers.
USUAL_BATCH = 32
# The least difference between two padded sizes of a batch, in tokens.
SMALLEST_GRAIN = 128


@dataclass(frozen=True, slots=True)
class TaskBatch:
    """One micro-batch of a task.

    targets      of a token head (T, G), of a sequence head (S, G) or (S, C), of a span head (S, 2), of mention pairs
                 one row each, with positions in the batch; None if unlabeled
    denominator  labels of the whole step, so that the losses of its micro-batches add up to that of one large batch
    tokens       without padding
    soft_T       with teachers: the weight of each token in the distillation loss of the step; 0 for padding
    """

    ids_T: Tensor
    segments_T: Tensor | None
    packing: Packing
    targets: Tensor | None
    denominator: int | Tensor
    tokens: int
    soft_T: Tensor | None = None

    @property
    def counts(self) -> dict[str, int]:
        """Counts of loss terms; a task's loss has none."""
        return {}

    def map(self, change: Callable[[Tensor], Tensor]) -> "TaskBatch":
        """The batch with every tensor changed."""
        return replace(
            self,
            ids_T=change(self.ids_T),
            segments_T=None if self.segments_T is None else change(self.segments_T),
            packing=self.packing.map(change),
            targets=None if self.targets is None else change(self.targets),
            soft_T=None if self.soft_T is None else change(self.soft_T),
        )

    def copy_from(self, other: "TaskBatch") -> None:
        """Copy a batch of the same size into the tensors of this one, whose denominator is a tensor too."""
        for own, new in zip(self._tensors(), other._tensors(), strict=True):
            own.copy_(new, non_blocking=True)
        assert isinstance(self.denominator, Tensor)
        self.denominator.fill_(other.denominator)

    def without_labels(self, task: Task) -> "TaskBatch":
        """A batch that contributes nothing, for a process that has fewer micro-batches than another."""
        assert self.targets is not None
        if task.loss == "pairs":
            return replace(self, targets=self.targets[:0])
        nothing = torch.nan if task.loss == "value" else IGNORE_INDEX
        soft_T = None if self.soft_T is None else torch.zeros_like(self.soft_T)
        return replace(self, targets=torch.full_like(self.targets, nothing), soft_T=soft_T)

    def _tensors(self) -> list[Tensor]:
        every = (self.ids_T, self.segments_T, *self.packing.tensors, self.targets, self.soft_T)
        return [tensor for tensor in every if tensor is not None]


@dataclass(frozen=True, slots=True)
class StepSize:
    """The size of a step: `accumulation` micro-batches of `sequences` sequences, or of at most `tokens` tokens.

    limit  the maximum tokens of a micro-batch; larger ones are split further, to save memory
    """

    sequences: int | None = None
    tokens: int | None = None
    accumulation: int = 1
    limit: int = 32_768


@dataclass(frozen=True, slots=True)
class Padding:
    """The few sizes that batches are padded to, since a CUDA graph is recorded for each.

    grain      tokens are padded to a multiple of it
    sequences  maximum sequences of a batch
    longest    maximum tokens of a sequence
    """

    grain: int
    sequences: int
    longest: int

    @property
    def slots(self) -> int:
        """Sequences of a padded batch: the examples, the padding tokens, and empty ones."""
        return self.sequences + -(-self.grain // self.longest)


class TrainingPlan:
    """Which examples go into which step: a function of the examples and the seed alone.

    repeats  how often each example occurs in an epoch, such as 2.3 times
    epochs   the length of the run; or instead of it
    steps    the number of optimizer steps
    soft     whether micro-batches have the weights of a distillation loss
    """

    def __init__(
        self,
        examples: Sequence[Example],
        task: Task,
        size: StepSize,
        *,
        repeats: NDArray[np.float64],
        seed: int,
        segments: bool,
        epochs: float | None = None,
        steps: int | None = None,
        soft: bool = False,
        replica: int = 0,
        replicas: int = 1,
    ) -> None:
        self.examples, self.task, self.size, self.repeats, self.seed = examples, task, size, repeats, seed
        self.segments, self.soft, self.replica, self.replicas = segments, soft, replica, replicas
        self.lengths = [len(example.ids) for example in examples]
        self.padding: Padding | None = None
        self.steps_of_epoch = self._steps_of_epoch(epochs, steps)
        self.count = sum(self.steps_of_epoch)

    def steps(self, *, done: int = 0) -> Iterator[Step]:
        """All steps in order, from the first that is not done."""
        for epoch, count in enumerate(self.steps_of_epoch):
            skipped, done = min(done, count), max(0, done - count)
            if skipped == count:
                continue
            for number, chosen in enumerate(self._epoch(epoch)[skipped:count], skipped + 1):
                batches = self._micro_batches(chosen)
                tokens = sum(self.lengths[index] for index in chosen)
                yield Step(tuple(batches), tokens, BatchPosition(epoch, number), ends_epoch=number == count)

    def choose_padding(self) -> None:
        """Pad batches to few sizes: about four up to the mean size, so that padding is an eighth of it on average."""
        steps = [step for epoch, count in enumerate(self.steps_of_epoch) for step in self._epoch(epoch)[:count]]
        mean = sum(self.lengths[index] for step in steps for index in step) / len(steps)
        grain = max(SMALLEST_GRAIN, 2 ** round(math.log2(mean / 4)))
        self.padding = Padding(grain, max(map(len, steps)), round_up(max(self.lengths), LENGTHS))

    def _micro_batches(self, chosen: Sequence[int]) -> list[TaskBatch]:
        return micro_batches(
            [self.examples[index] for index in chosen],
            self.task,
            self.size,
            segments=self.segments,
            padding=self.padding,
            soft=self.soft,
            replica=self.replica,
            replicas=self.replicas,
        )

    def _epoch(self, epoch: int) -> list[list[int]]:
        return split_epoch(epoch_order(epoch, self.repeats, seed=self.seed), self.lengths, self.size)

    def _steps_of_epoch(self, epochs: float | None, steps: int | None) -> list[int]:
        """The number of steps of each epoch; the last may be a part of one."""
        counts: list[int] = []
        if steps is not None:
            while sum(counts) < steps:
                counts.append(min(len(self._epoch(len(counts))), steps - sum(counts)))
            return counts
        assert epochs is not None
        for epoch in range(math.ceil(epochs)):
            fraction = min(1.0, epochs - epoch)
            counts.append(max(1, round(fraction * len(self._epoch(epoch)))))
        return counts


def epoch_order(epoch: int, repeats: NDArray[np.float64], *, seed: int) -> list[int]:
    """The examples of an epoch, shuffled. One that repeats 2.3 times occurs twice, in 30% of epochs three times."""
    rng = np.random.default_rng([seed, epoch])
    times = np.floor(repeats + rng.random(len(repeats))).astype(np.int64)
    order = np.repeat(np.arange(len(repeats)), times)
    rng.shuffle(order)
    indices: list[int] = order.tolist()
    return indices


def split_epoch(order: Sequence[int], lengths: Sequence[int], size: StepSize) -> list[list[int]]:
    """The examples of each step, in order. The last step may be smaller."""
    if size.tokens is not None:
        parts = fill(order, lengths, size.tokens)
        starts = range(0, len(parts), size.accumulation)
        return [[index for part in parts[start : start + size.accumulation] for index in part] for start in starts]
    count = (size.sequences or 1) * size.accumulation
    return [list(order[start : start + count]) for start in range(0, len(order), count)]


def micro_batches(
    examples: Sequence[Example],
    task: Task,
    size: StepSize,
    *,
    segments: bool,
    padding: Padding | None = None,
    soft: bool = False,
    replica: int = 0,
    replicas: int = 1,
) -> list[TaskBatch]:
    """The micro-batches of one step that this replica computes; with `padding`, a single micro-batch is padded.

    All replicas have the same number: one with too few examples adds batches without labels, whose loss is 0.
    """
    limit = min(size.limit, size.tokens or size.limit)
    lengths = [len(example.ids) for example in examples]
    every = [
        fill(range(start, len(examples), replicas), lengths, limit, sequences=size.sequences)
        for start in range(replicas)
    ]
    parts = every[replica] or every[0][:1]
    denominator = max(1, sum(map(label_count, examples)))
    padding = padding if len(parts) == 1 else None
    batches = [
        to_batch([examples[index] for index in part], task, segments=segments, denominator=denominator, padding=padding)
        for part in parts
    ]
    if soft:
        batches = [replace(batch, soft_T=_token_weights(batch, sum(lengths))) for batch in batches]
    if not every[replica]:
        batches = [batch.without_labels(task) for batch in batches]
    missing = max(map(len, every)) - len(batches)
    return [*batches, *(batches[0].without_labels(task) for _ in range(missing))]


def _token_weights(batch: TaskBatch, tokens: int) -> Tensor:
    """The weight of each token of a micro-batch in a step of this many tokens."""
    weights_T = torch.zeros(len(batch.ids_T))
    weights_T[: batch.tokens] = 1 / tokens
    return weights_T


def to_batch(
    examples: Sequence[Example], task: Task, *, segments: bool, denominator: int = 1, padding: Padding | None = None
) -> TaskBatch:
    """Examples as one packed batch, with their targets where all of them have some."""
    lengths = [len(example.ids) for example in examples]
    ends = np.cumsum(lengths)
    tokens = int(ends[-1])
    size, slots, longest = tokens, len(examples), round_up(max(lengths), LENGTHS)
    if padding is not None:
        size, slots, longest = round_up(tokens, padding.grain), padding.slots, padding.longest
        ends = np.concatenate([ends, np.arange(tokens + longest, size, longest), [size] if size > tokens else []])
    targets: Tensor | None = None
    if task.loss == "pairs":
        targets = pair_targets(examples, lengths)
    elif all(example.targets is not None for example in examples):
        each = [np.asarray(example.targets) for example in examples]
        stacked = np.concatenate(each) if task.head == "token" else np.stack(each)
        stacked = stacked.astype(np.float32 if task.loss in ("binary", "value") else np.int64)
        nothing = np.nan if task.loss == "value" else IGNORE_INDEX
        targets = torch.from_numpy(_pad(stacked, size if task.head == "token" else slots, nothing))
    kinds = _pad(np.concatenate([example.segments for example in examples]), size).astype(np.int64)
    ids = _pad(np.concatenate([example.ids for example in examples]), size).astype(np.int64)
    packing = Packing.of(ends.astype(np.int64).tolist(), longest=longest, sequences=slots)
    segments_T = torch.from_numpy(kinds) if segments else None
    return TaskBatch(torch.from_numpy(ids), segments_T, packing, targets, denominator, tokens)


def pair_targets(examples: Sequence[Example], lengths: Sequence[int]) -> Tensor | None:
    """The rows of all mention pairs, with token positions and pair numbers of the whole batch."""
    rows: list[NDArray[Any]] = []
    tokens = pairs = 0
    for example, length in zip(examples, lengths, strict=True):
        if example.targets is None:
            return None
        own = example.targets + np.array([pairs, tokens, tokens, 0, 0, 0], np.int64)
        rows.append(own)
        tokens += length
        pairs = int(own[:, PAIR].max()) + 1 if len(own) else pairs
    return torch.from_numpy(np.concatenate(rows))


def round_up(count: int, grain: int) -> int:
    """A count rounded up to a multiple."""
    return -(-count // grain) * grain


def _pad(array: NDArray[Any], size: int, value: float = 0) -> NDArray[Any]:
    """An array padded to `size` rows."""
    if len(array) == size:
        return array
    rest = np.full((size - len(array), *array.shape[1:]), value, array.dtype)
    return np.concatenate([array, rest])


def label_count(example: Example) -> int:
    """The labels of an example that the loss counts: labeled tokens or mention pairs, else 1; 0 without labels."""
    if example.targets is None:
        return 0
    labeled = (example.targets != IGNORE_INDEX) & ~np.isnan(example.targets)
    return int(labeled.any(axis=-1).sum())


# Models


class Chain(nn.Module):
    """The transition scores of one group of tags: of the first tag, of the last, and from one to the next."""

    def __init__(self, labels: int) -> None:
        super().__init__()
        self.first_C = nn.Parameter(torch.zeros(labels))
        self.last_C = nn.Parameter(torch.zeros(labels))
        self.moves_CC = nn.Parameter(torch.zeros(labels, labels))

    def loss(self, logits: Sequence[Tensor], targets: Sequence[Tensor]) -> Tensor:
        """The sum of negative log likelihoods of tag sequences, each with logits (tokens, C) and targets (tokens,)."""
        logits_SLC = pad_sequence(list(logits), batch_first=True)
        target_SL = pad_sequence(list(targets), batch_first=True)
        lengths_S = torch.tensor([len(target) for target in targets], device=target_SL.device)
        mask_SL = torch.arange(target_SL.shape[1], device=target_SL.device) < lengths_S[:, None]
        return (self._log_partition(logits_SLC, mask_SL) - self._target_score(logits_SLC, target_SL, mask_SL)).sum()

    def _target_score(self, logits_SLC: Tensor, target_SL: Tensor, mask_SL: Tensor) -> Tensor:
        """The score of the target tags of each sequence."""
        emitted_SL = logits_SLC.gather(-1, target_SL[..., None])[..., 0] * mask_SL
        moved_SL = self.moves_CC[target_SL[:, :-1], target_SL[:, 1:]] * mask_SL[:, 1:]
        ends_S = target_SL.gather(1, mask_SL.sum(1, keepdim=True) - 1)[:, 0]
        return emitted_SL.sum(1) + moved_SL.sum(1) + self.first_C[target_SL[:, 0]] + self.last_C[ends_S]

    def _log_partition(self, logits_SLC: Tensor, mask_SL: Tensor) -> Tensor:
        """The logarithm of the sum over all tag sequences, by the forward algorithm."""
        score_SC = self.first_C + logits_SLC[:, 0]
        for place in range(1, logits_SLC.shape[1]):
            next_SC = torch.logsumexp(score_SC[:, :, None] + self.moves_CC, dim=1) + logits_SLC[:, place]
            score_SC = torch.where(mask_SL[:, place, None], next_SC, score_SC)
        return torch.logsumexp(score_SC + self.last_C, dim=-1)


class Crf(nn.Module):
    """A linear-chain conditional random field for each group of labels, over the labeled tokens of a sequence."""

    def __init__(self, groups: Sequence[int]) -> None:
        super().__init__()
        self.groups = tuple(groups)
        self.chains = nn.ModuleList(Chain(labels) for labels in groups)

    def loss(self, logits_TC: Tensor, targets_TG: Tensor, packing: Packing) -> Tensor:
        """The sum of the negative log likelihoods of all sequences in all groups."""
        total = logits_TC.new_zeros(())
        parts = zip(self.chains, torch.split(logits_TC, list(self.groups), dim=-1), targets_TG.unbind(-1), strict=True)
        for chain, part_TC, target_T in parts:
            assert isinstance(chain, Chain)
            logits, targets = _select_labeled(part_TC, target_T, packing)
            if targets:
                total = total + chain.loss(logits, targets)
            else:
                # Under DDP every weight needs a gradient, also in a micro-batch without labels.
                total = total + 0.0 * (part_TC.sum() + sum(weight.sum() for weight in chain.parameters()))
        return total

    def transitions(self) -> Transitions:
        """The learned transitions, for decoding. All groups have the same size."""
        chains = [chain for chain in self.chains if isinstance(chain, Chain)]
        between = torch.stack([chain.moves_CC for chain in chains])
        ends = [torch.stack([getattr(chain, name) for chain in chains]) for name in ("first_C", "last_C")]
        return Transitions(*(part.detach().double().cpu().numpy() for part in (between, *ends)))

    @torch.no_grad()
    def load(self, transitions: Transitions) -> None:
        """Start from the transitions of another run."""
        for number, chain in enumerate(self.chains):
            assert isinstance(chain, Chain)
            chain.moves_CC.copy_(torch.from_numpy(transitions.between[number]))
            chain.first_C.copy_(torch.from_numpy(transitions.first[number]))
            chain.last_C.copy_(torch.from_numpy(transitions.last[number]))


def _select_labeled(part_TC: Tensor, target_T: Tensor, packing: Packing) -> tuple[list[Tensor], list[Tensor]]:
    """Logits and targets of each sequence's labeled tokens; sequences without labels are left out."""
    logits, targets = [], []
    lengths = list(packing.lengths)
    for part, target in zip(torch.split(part_TC, lengths), torch.split(target_T, lengths), strict=True):
        labeled = target != IGNORE_INDEX
        if bool(labeled.any()):
            logits.append(part[labeled])
            targets.append(target[labeled])
    return logits, targets


# The suffixes of transformers' classes with each kind of head.
CLASS_SUFFIXES = {
    "token": "ForTokenClassification",
    "sequence": "ForSequenceClassification",
    "span": "ForQuestionAnswering",
}


class TaskModel(nn.Module):
    """An encoder with a head, and optionally a CRF over its tags: maps a batch to the head's logits.

    With `frozen`, the encoder runs without dropout and without gradients.
    """

    def __init__(self, model: EncoderWithHead, crf: Crf | None = None, *, frozen: bool = False) -> None:
        super().__init__()
        self.model, self.crf, self.frozen = model, crf, frozen
        if frozen:
            model.encoder.requires_grad_(False)

    def forward(self, batch: TaskBatch) -> Tensor:
        if not self.frozen:
            logits: Tensor = self.model(batch.ids_T, batch.packing, batch.segments_T)
            return logits
        with torch.no_grad():
            hidden_TD = self.model.encoder(batch.ids_T, batch.packing, batch.segments_T)
        logits = self.model.head(hidden_TD, batch.packing)
        return logits

    def train(self, mode: bool = True) -> "TaskModel":
        """Set training mode; a frozen encoder stays in evaluation mode."""
        super().train(mode)
        if self.frozen:
            self.model.encoder.eval()
        return self


@dataclass(frozen=True, slots=True)
class HeadSettings:
    """The head of a task model; None leaves it to the checkpoint or to transformers.

    input_dropout  before the first hidden layer, where it differs from `dropout`
    """

    layers: int | None = None
    hidden_size: int | None = None
    activation: str = "relu"
    dropout: float | None = None
    pooling: str | None = None
    crf: bool = False
    input_dropout: float | None = None

    @property
    def hidden(self) -> HiddenLayers | None:
        """The hidden layers; None where they are left to the checkpoint."""
        if self.layers is None:
            return None
        dropout = 0.1 if self.dropout is None else self.dropout
        return HiddenLayers(
            self.layers,
            hidden_size=self.hidden_size,
            activation=self.activation,
            dropout=dropout,
            input_dropout=self.input_dropout,
        )


def build_task_model(
    stored: StoredCheckpoint,
    task: Task,
    *,
    head: HeadSettings | None = None,
    new_head: bool = False,
    layers: int | None = None,
    method: str = "full",
    lora: LoraSettings | None = None,
    dropout: float | None = None,
    attention_dropout: float | str = 0.0,
    gradient_checkpointing: bool = False,
) -> tuple[TaskModel, Checkpoint]:
    """The model of a task, and the checkpoint it was built from; new weights are drawn from torch's generator."""
    head = head or HeadSettings()
    if task.loss == "pairs":
        # Mention vectors have a large common part; dropout of it adds noise as large as their differences.
        head = replace(head, input_dropout=0.0)
    checkpoint = _with_head(stored, task, head, new_head=new_head)
    model = checkpoint.model
    assert isinstance(model, EncoderWithHead)
    if layers is not None:
        _keep_layers(model, layers)
        # Fails now, and not after training, if the architecture cannot be saved with fewer layers.
        write_config(model.encoder.config, checkpoint.architecture)
    _set_dropout(model, dropout, attention_dropout)
    encoder_of(model).gradient_checkpointing = gradient_checkpointing
    if method == "lora":
        add_adapters(model, checkpoint.architecture, lora or LoraSettings())
    crf = _crf(stored.folder, task) if head.crf else None
    return TaskModel(model, crf, frozen=method == "frozen"), checkpoint


def _keep_layers(model: EncoderWithHead, layers: int) -> None:
    """Keep only the first layers of an encoder; the last ones are the most specific to masked language modeling."""
    encoder = model.encoder
    if not isinstance(encoder, Encoder) or layers > encoder.config.layers:
        seen = f"has {encoder.config.layers} layers" if isinstance(encoder, Encoder) else "is computed by transformers"
        message = f"layers is {layers}, and the model {seen}. Leave it out, or keep fewer."
        raise UsageError(message, code="too-many-layers", value=layers)
    encoder.layers = encoder.layers[:layers]
    encoder.config = replace(encoder.config, layers=layers)


def _crf(start: Path, task: Task) -> Crf:
    """A CRF over the task's tags: new, or with the transitions of an earlier run with the same tags."""
    task.require_crf()
    crf = Crf(task.groups)
    earlier = crf_task(start)
    if earlier is not None and earlier.transitions is not None and earlier.labels == task.labels:
        crf.load(earlier.transitions)
    return crf


def crf_task(start: Path) -> Task | None:
    """The task of a checkpoint that was fine-tuned with a CRF; None for any other checkpoint."""
    path = start / TASK
    task = task_of(read_json(path)) if path.is_file() else None
    return task if task is not None and task.transitions is not None else None


def _with_head(stored: StoredCheckpoint, task: Task, head: HeadSettings, *, new_head: bool) -> Checkpoint:
    """The checkpoint with a head for the task: its own where it has one, else a new one."""
    if new_head:
        return _replace_head(stored, task, head)
    labels = head_labels(stored.folder, task.head)
    if labels is not None and task.head != "span" and labels != task.labels:
        raise CheckpointError(
            f"{stored.folder}: its head has the labels {_some(labels)}; the task has {_some(task.labels)}. Choose a "
            "task with the same labels, or set new_head = true to start with a new head.",
            code="label-mismatch",
            value=labels,
        )
    if labels is None and any(
        head_labels(stored.folder, kind) is not None for kind in CLASS_SUFFIXES if kind != task.head
    ):
        # Heads of different kinds have weights of the same names.
        return _replace_head(stored, task, head)
    hidden = head.hidden if labels is None else None
    checkpoint = stored.build(kind=task.head, labels=task.labels, hidden=hidden, new_head=True)
    assert isinstance(checkpoint.model, EncoderWithHead)
    own = checkpoint.model.head.hidden
    assert isinstance(own, HiddenLayers)
    if labels is not None and head.hidden is not None and _shape(own, checkpoint) != _shape(head.hidden, checkpoint):
        raise CheckpointError(
            f"{stored.folder}: its head has {_shape(own, checkpoint)}; the recipe asks for "
            f"{_shape(head.hidden, checkpoint)}. Leave head.layers out to train that head further, or set new_head = "
            "true to start with a new one.",
            code="head-mismatch",
            value=head.layers,
        )
    return _configure_head(checkpoint, head)


def _shape(hidden: HiddenLayers, checkpoint: Checkpoint) -> str:
    if not hidden.count:
        return "no hidden layers"
    width = hidden.hidden_size or checkpoint.config.hidden_size
    return f"hidden layers: {hidden.count} of width {width} with {hidden.activation}"


def head_labels(start: Path, kind: str) -> tuple[str, ...] | None:
    """The labels of a checkpoint's head of this kind; None where it has none."""
    if layout_of(start) != HUGGING_FACE:
        return None
    settings = read_settings(start)
    own = settings.get(hf.CUSTOM_HEAD, {}).get("kind") == kind
    if not own and not any(name.endswith(CLASS_SUFFIXES[kind]) for name in settings.get("architectures") or ()):
        return None
    return hf.read_labels(settings)


def _replace_head(stored: StoredCheckpoint, task: Task, head: HeadSettings) -> Checkpoint:
    """The checkpoint's encoder under a new head."""
    checkpoint = stored.build(kind="encoder")
    settings = {key: value for key, value in checkpoint.settings.items() if key != hf.CUSTOM_HEAD}
    hidden = head.hidden or hf.read_hidden_layers(settings, checkpoint.architecture, task.head)
    pooling = hf.read_pooling(settings, task.head)
    module = hf.build_head(checkpoint.config, task.head, labels=len(task.labels), hidden=hidden, pooling=pooling)
    model = EncoderWithHead(encoder_of(checkpoint.model), module).eval()  # type: ignore[arg-type]
    new = tuple(f"head.{name}" for name in module.state_dict())
    return _configure_head(replace(checkpoint, model=model, kind=task.head, labels=task.labels, new=new), head)


def _configure_head(checkpoint: Checkpoint, head: HeadSettings) -> Checkpoint:
    """The checkpoint with the recipe's pooling and dropout in its head."""
    assert isinstance(checkpoint.model, EncoderWithHead)
    module = checkpoint.model.head
    if head.pooling is not None:
        if not isinstance(module, SequenceHead):
            message = (
                f"head.pooling is for labels of sequences, and this task labels a {checkpoint.kind}. Leave it out."
            )
            raise UsageError(message, code="unsupported-task", value="head.pooling")
        module.pooling = head.pooling
    if head.dropout is not None:
        assert isinstance(module.hidden, HiddenLayers)
        keeps_input = module.hidden.count > 0 and module.hidden.input_dropout == 0.0
        for name, part in module.named_modules():
            if isinstance(part, nn.Dropout) and not (keeps_input and name == "dropout0"):
                part.p = head.dropout
        module.hidden = replace(module.hidden, dropout=head.dropout)
    return checkpoint


def _set_dropout(model: EncoderWithHead, dropout: float | None, attention_dropout: float | str) -> None:
    """Set the encoder's dropout for training. The saved configuration keeps the checkpoint's own."""
    encoder = encoder_of(model)
    for part in encoder.modules():
        if isinstance(part, nn.Dropout) and dropout is not None:
            part.p = dropout
        if isinstance(part, Attention) and isinstance(attention_dropout, float | int):
            part.dropout = float(attention_dropout)
    if not isinstance(encoder, Encoder) and attention_dropout not in (0.0, "checkpoint"):
        message = "attention_dropout is not supported for models that transformers computes. Leave it out."
        raise UsageError(message, code="unsupported-model", value="attention_dropout")


def _some(labels: tuple[str, ...]) -> str:
    shown = ", ".join(labels[:6])
    return f"{shown}, ... ({len(labels)})" if len(labels) > 6 else shown


# Losses


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

    The loss is a mean over labels. A token with several groups counts once, with the sum over its groups. The dice loss
    is computed for each micro-batch by itself and weighted by its number of labels.
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
        if self.task.loss == "pairs":
            return pair_loss(logits, targets, self.task.pair_outputs) / batch.denominator
        return choice_loss(logits, targets, self.task.groups, self.settings) / batch.denominator


def choice_loss(logits: Tensor, targets_NG: Tensor, groups: Sequence[int], settings: LossSettings) -> Tensor:
    """The sum over tokens or sequences, and over groups with one correct label each, of the loss of that label."""
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
    """The sum over sequences of the mean loss of their labels, each of which is true or false."""
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


def pair_loss(logits_TC: Tensor, targets_NK: Tensor, outputs: PairOutputs) -> Tensor:
    """The sum over pairs of entities of the cross entropy of their relation, and of novelty where it is known.

    Logits of the mention pairs of two entities are pooled by logsumexp; no relation has the logit 0.
    """
    if not len(targets_NK):
        return logits_TC.sum() * 0.0
    pair_N, count = targets_NK[:, PAIR], int(targets_NK[:, PAIR].max()) + 1
    width = outputs.width
    first_NRO, second_NRO = (
        logits_TC.index_select(0, targets_NK[:, side]).view(len(pair_N), -1, 2 * width + 2) for side in (FIRST, SECOND)
    )
    product_NR = (first_NRO[..., :width] * second_NRO[..., width : 2 * width]).sum(-1) / math.sqrt(width)
    pooled_PR = _pool_rows(product_NR + first_NRO[..., -2] + second_NRO[..., -1], pair_N, count)
    # All rows of a pair have the same schema, label and novelty.
    schema_P, label_P, novel_P = (
        pair_N.new_zeros(count).index_put((pair_N,), targets_NK[:, column]) for column in (SCHEMA, LABEL, NOVEL)
    )
    relations = len(outputs.schema_of_relation)
    schema_R = torch.from_numpy(outputs.schema_of_relation).to(pair_N.device)
    foreign_PR = schema_R[None] != schema_P[:, None]
    logits_PR = pooled_PR[:, :relations].masked_fill(foreign_PR, torch.finfo(pooled_PR.dtype).min)
    none_P1 = logits_PR.new_zeros((count, 1))
    loss = functional.cross_entropy(
        torch.cat((none_P1, logits_PR), dim=1), label_P, ignore_index=IGNORE_INDEX, reduction="sum"
    )
    for column, schema in enumerate(outputs.schema_of_novelty.tolist(), relations):
        known_P = (schema_P == schema) & (novel_P != IGNORE_INDEX)
        losses_P = functional.binary_cross_entropy_with_logits(
            pooled_PR[:, column], novel_P.clamp(min=0).to(pooled_PR.dtype), reduction="none"
        )
        loss = loss + (losses_P * known_P).sum()
    return loss


def _pool_rows(scores_NR: Tensor, pair_N: Tensor, count: int) -> Tensor:
    """The logsumexp of the rows of each pair, (P, R)."""
    index_NR = pair_N[:, None].expand_as(scores_NR)
    least_PR = scores_NR.new_full((count, scores_NR.shape[1]), torch.finfo(scores_NR.dtype).min)
    most_PR = least_PR.scatter_reduce(0, index_NR, scores_NR.detach(), "amax")
    exponents_NR = (scores_NR - most_PR[pair_N]).exp()
    return torch.zeros_like(most_PR).index_add(0, pair_N, exponents_NR).log() + most_PR


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

    This is the set-level form of Li et al. (2020): with the example-level form, a small model on ten sentences learned
    to predict O for everything. It is self-adjusting: a probability p counts as (1 - p)^alpha p. The factor has no
    gradient; with one, the loss of a true label would be lowest at p = 0.5 instead of 1.
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
    """1 - p, but never 0, where the gradient of a power below 1 is infinite."""
    return (1 - probs).clamp(min=1e-8)


class Distillation:
    """Distillation from fine-tuned teachers: the KL divergence of the model's label probabilities from theirs.

    The loss is the mean over all tokens of the sum over groups of KL(teachers || model), times a weight and the square
    of the temperature, which keeps gradients as large as at temperature 1.
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
