"""The model that learns a task: a checkpoint with its head, what of it is frozen, and how much it drops.

T tokens of the packed batch, S sequences, C labels
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from lexome.errors import CheckpointError, UsageError
from lexome.models import hf_config
from lexome.models.checkpoint import HUGGING_FACE, Checkpoint, encoder_of, layout_of, load
from lexome.models.config import EncoderConfig
from lexome.models.encoder import Attention, Encoder
from lexome.models.heads import EncoderWithHead, HiddenLayers, SequenceHead
from lexome.models.hf_config import write_config
from lexome.models.hf_folder import read_settings
from lexome.models.packing import Packing
from lexome.recipe.finetune import FinetuneRecipe, HeadTable
from lexome.tasks import task_of
from lexome.tasks.task import IGNORE_INDEX, TASK, Task, Transitions
from lexome.training.finetune.batching import Batch
from lexome.training.finetune.lora import LoraSettings, add_adapters


class Chain(nn.Module):
    """One group's tags: what is added for beginning with one, for ending with one, and for one after another."""

    def __init__(self, labels: int) -> None:
        super().__init__()
        self.first_C = nn.Parameter(torch.zeros(labels))
        self.last_C = nn.Parameter(torch.zeros(labels))
        self.moves_CC = nn.Parameter(torch.zeros(labels, labels))

    def loss(self, logits: Sequence[Tensor], targets: Sequence[Tensor]) -> Tensor:
        """The sum of negative log likelihoods of tag sequences; one (tokens, C) and one (tokens,) of each sequence."""
        logits_SLC = pad_sequence(list(logits), batch_first=True)
        target_SL = pad_sequence(list(targets), batch_first=True)
        lengths_S = torch.tensor([len(target) for target in targets], device=target_SL.device)
        there_SL = torch.arange(target_SL.shape[1], device=target_SL.device) < lengths_S[:, None]
        return (self._all(logits_SLC, there_SL) - self._one(logits_SLC, target_SL, there_SL)).sum()

    def _one(self, logits_SLC: Tensor, target_SL: Tensor, there_SL: Tensor) -> Tensor:
        """The score of the right tags of each sequence."""
        said_SL = logits_SLC.gather(-1, target_SL[..., None])[..., 0] * there_SL
        moved_SL = self.moves_CC[target_SL[:, :-1], target_SL[:, 1:]] * there_SL[:, 1:]
        ends_S = target_SL.gather(1, there_SL.sum(1, keepdim=True) - 1)[:, 0]
        return said_SL.sum(1) + moved_SL.sum(1) + self.first_C[target_SL[:, 0]] + self.last_C[ends_S]

    def _all(self, logits_SLC: Tensor, there_SL: Tensor) -> Tensor:
        """The log of the sum over all tags of each sequence, by the forward algorithm."""
        score_SC = self.first_C + logits_SLC[:, 0]
        for place in range(1, logits_SLC.shape[1]):
            next_SC = torch.logsumexp(score_SC[:, :, None] + self.moves_CC, dim=1) + logits_SLC[:, place]
            score_SC = torch.where(there_SL[:, place, None], next_SC, score_SC)
        return torch.logsumexp(score_SC + self.last_C, dim=-1)


class Crf(nn.Module):
    """A chain for each group of labels, over the tokens of a sequence that are asked."""

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
            logits, targets = _asked(part_TC, target_T, packing)
            if targets:
                total = total + chain.loss(logits, targets)
        return total

    def transitions(self) -> Transitions:
        """What was learnt, as decoding takes it. Groups are of one size."""
        chains = [chain for chain in self.chains if isinstance(chain, Chain)]
        between = torch.stack([chain.moves_CC for chain in chains])
        ends = [torch.stack([getattr(chain, name) for chain in chains]) for name in ("first_C", "last_C")]
        return Transitions(*(part.detach().double().cpu().numpy() for part in (between, *ends)))

    @torch.no_grad()
    def take(self, transitions: Transitions) -> None:
        """Go on from what another run learnt."""
        for number, chain in enumerate(self.chains):
            assert isinstance(chain, Chain)
            chain.moves_CC.copy_(torch.from_numpy(transitions.between[number]))
            chain.first_C.copy_(torch.from_numpy(transitions.first[number]))
            chain.last_C.copy_(torch.from_numpy(transitions.last[number]))


def _asked(part_TC: Tensor, target_T: Tensor, packing: Packing) -> tuple[list[Tensor], list[Tensor]]:
    """Logits and targets of each sequence's asked tokens; sequences that ask nothing are left out."""
    logits, targets = [], []
    lengths = list(packing.lengths)
    for part, target in zip(torch.split(part_TC, lengths), torch.split(target_T, lengths), strict=True):
        asked = target != IGNORE_INDEX
        if bool(asked.any()):
            logits.append(part[asked])
            targets.append(target[asked])
    return logits, targets


# How transformers' classes with each kind of head end.
CLASSES = {"token": "ForTokenClassification", "sequence": "ForSequenceClassification", "span": "ForQuestionAnswering"}


class Learner(nn.Module):
    """A labeller, with a chain over its tags where there is one: a batch to the head's logits.

    With `frozen` the encoder computes as it serves, without dropout and without gradients.
    """

    def __init__(self, model: EncoderWithHead, crf: Crf | None, *, frozen: bool = False) -> None:
        super().__init__()
        self.model, self.crf, self.frozen = model, crf, frozen
        if frozen:
            model.encoder.requires_grad_(False)

    def forward(self, batch: Batch) -> Tensor:
        if not self.frozen:
            logits: Tensor = self.model(batch.ids_T, batch.packing, batch.segments_T)
            return logits
        with torch.no_grad():
            hidden_TD = self.model.encoder(batch.ids_T, batch.packing, batch.segments_T)
        headed: Tensor = self.model.head(hidden_TD, batch.packing)
        return headed

    def train(self, mode: bool = True) -> "Learner":
        """As every module; a frozen encoder stays in evaluation."""
        super().train(mode)
        if self.frozen:
            self.model.encoder.eval()
        return self


@dataclass(frozen=True, slots=True)
class Begun:
    """A model at the beginning of its run, and what is known about the checkpoint."""

    learner: Learner
    checkpoint: Checkpoint
    new_head: bool


def begin(recipe: FinetuneRecipe, start: Path, task: Task) -> Begun:
    """The recipe's model for a task; new weights are drawn from torch's generator."""
    found = _loaded(start, task, recipe.head, new_head=recipe.new_head)
    model = found.model
    assert isinstance(model, EncoderWithHead)
    if recipe.layers is not None:
        _cut(model, recipe.layers)
        # Now, and not after all steps: what cannot be saved is not trained.
        write_config(model.encoder.config, found.architecture)
    _set_dropout(model, recipe)
    encoder_of(model).gradient_checkpointing = recipe.gradient_checkpointing
    if recipe.method == "lora":
        add_adapters(model, found.architecture, lora_settings(recipe))
    crf = _chain(start, task) if recipe.head.crf else None
    learner = Learner(model, crf, frozen=recipe.method == "frozen")
    return Begun(learner, found, new_head=any(name.startswith("head.out") for name in found.new))


def _cut(model: EncoderWithHead, layers: int) -> None:
    """Keep only the first layers of an encoder: the last ones know most about words that are masked."""
    encoder = model.encoder
    if not isinstance(encoder, Encoder) or layers > encoder.config.layers:
        seen = f"has {encoder.config.layers} layers" if isinstance(encoder, Encoder) else "is computed by transformers"
        raise UsageError(f"layers is {layers}, and the model {seen}. Leave it out, or ask for fewer.")
    encoder.layers = encoder.layers[:layers]
    encoder.config = replace(encoder.config, layers=layers)


def lora_settings(recipe: FinetuneRecipe) -> LoraSettings:
    """The recipe's adapters."""
    given = recipe.lora
    return LoraSettings(given.rank, given.alpha, given.dropout, given.targets)


def _chain(start: Path, task: Task) -> Crf:
    """A chain over the task's tags: new, or as an earlier run with the same ones has left it."""
    task.require_crf()
    crf = Crf(task.groups)
    held = chained_task(start)
    if held is not None and held.transitions is not None and held.labels == task.labels:
        crf.take(held.transitions)
    return crf


def chained_task(start: Path) -> Task | None:
    """The task of a checkpoint that was fine-tuned with a chain over tags; None for any other checkpoint."""
    path = start / TASK
    held = task_of(json.loads(path.read_bytes())) if path.is_file() else None
    return held if held is not None and held.transitions is not None else None


def _loaded(start: Path, task: Task, head: HeadTable, *, new_head: bool) -> Checkpoint:
    """The checkpoint with a head for the task: its own where it has one, else a new one."""
    held = None if new_head else held_labels(start, task.head)
    if held is not None and task.head != "span" and held != task.labels:
        raise CheckpointError(
            f"{start}: its head has the labels {_some(held)}; the task has {_some(task.labels)}. Choose a task with "
            "the same labels, or set new_head = true to begin with a new head."
        )
    if new_head:
        return _beheaded(start, task, head)
    hidden = _hidden(head) if held is None else None
    found = load(start, kind=task.head, labels=task.labels, hidden=hidden, new_head=True)
    if held is not None:
        _require_like(found, head)
    return _as_asked(found, head)


def _require_like(found: Checkpoint, head: HeadTable) -> None:
    """CheckpointError where a checkpoint's own head has other layers than the recipe asks for."""
    assert isinstance(found.model, EncoderWithHead)
    own, asked = found.model.head.hidden, _hidden(head)
    assert isinstance(own, HiddenLayers)
    if asked is not None and (seen := _shape(own, found.config)) != (wanted := _shape(asked, found.config)):
        raise CheckpointError(
            f"{found.folder}: its head has {seen}; the recipe asks for {wanted}. Leave head.layers out to go on with "
            "that head, or set new_head = true to begin with a new one."
        )


def _shape(hidden: HiddenLayers, config: EncoderConfig) -> str:
    """The layers of a head in words."""
    if not hidden.count:
        return "no hidden layers"
    return f"hidden layers: {hidden.count} of width {hidden.hidden_size or config.hidden_size} with {hidden.activation}"


def held_labels(start: Path, kind: str) -> tuple[str, ...] | None:
    """The labels of the head that a checkpoint has for this kind; None where it has none."""
    if layout_of(start) != HUGGING_FACE:
        return None
    settings = read_settings(start)
    own = settings.get(hf_config.CUSTOM_HEAD, {}).get("kind") == kind
    if not own and not any(name.endswith(CLASSES[kind]) for name in settings.get("architectures") or ()):
        return None
    return hf_config.read_labels(settings)


def _beheaded(start: Path, task: Task, head: HeadTable) -> Checkpoint:
    """The checkpoint's encoder under a new head."""
    found = load(start, kind="encoder")
    settings = {key: held for key, held in found.settings.items() if key != hf_config.CUSTOM_HEAD}
    hidden = _hidden(head) or hf_config.read_hidden_layers(settings, found.architecture, task.head)
    pooling = hf_config.read_pooling(settings, task.head)
    made = hf_config.build_head(found.config, task.head, labels=len(task.labels), hidden=hidden, pooling=pooling)
    model = EncoderWithHead(encoder_of(found.model), made).eval()  # type: ignore[arg-type]
    new = tuple(f"head.{name}" for name in made.state_dict())
    return _as_asked(replace(found, model=model, kind=task.head, labels=task.labels, new=new), head)


def _hidden(head: HeadTable) -> HiddenLayers | None:
    """The layers the recipe asks for; None where it leaves them to the checkpoint."""
    if head.layers is None:
        return None
    dropout = 0.1 if head.dropout is None else head.dropout
    return HiddenLayers(head.layers, hidden_size=head.hidden_size, activation=head.activation, dropout=dropout)


def _as_asked(found: Checkpoint, head: HeadTable) -> Checkpoint:
    """The checkpoint with the recipe's pooling and dropout in its head."""
    assert isinstance(found.model, EncoderWithHead)
    made = found.model.head
    if head.pooling is not None:
        if not isinstance(made, SequenceHead):
            raise UsageError(
                f"head.pooling is for labels of whole texts, and this task labels a {found.kind}. Leave it out."
            )
        made.pooling = head.pooling
    if head.dropout is not None:
        for part in made.modules():
            if isinstance(part, nn.Dropout):
                part.p = head.dropout
        assert isinstance(made.hidden, HiddenLayers)
        made.hidden = replace(made.hidden, dropout=head.dropout)
    return found


def _set_dropout(model: EncoderWithHead, recipe: FinetuneRecipe) -> None:
    """Put the recipe's dropout in place of the encoder's. What is saved still says the checkpoint's own."""
    encoder = encoder_of(model)
    for part in encoder.modules():
        if isinstance(part, nn.Dropout) and recipe.dropout is not None:
            part.p = recipe.dropout
        if isinstance(part, Attention) and isinstance(recipe.attention_dropout, float | int):
            part.dropout = float(recipe.attention_dropout)
    if not isinstance(encoder, Encoder) and recipe.attention_dropout not in (0.0, "checkpoint"):
        raise UsageError("attention_dropout cannot be set in a model that transformers computes. Leave it out.")


def _some(labels: tuple[str, ...]) -> str:
    shown = ", ".join(labels[:6])
    return f"{shown}, ... ({len(labels)})" if len(labels) > 6 else shown
