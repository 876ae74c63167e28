"""Pre-training losses: masked language modeling, sentence pairs, and distillation.

S sequences, M masked positions, V vocabulary, C classes
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch._dynamo
from torch import Tensor, nn
from torch.nn import functional

from lexome.models.backend import TransformersMaskedLM
from lexome.models.encoder import Encoder, Packing, init_weights
from lexome.models.heads import MaskedLM, MaskedLMHead, gather_positions, mean_pool
from lexome.training.loop import Batch, Terms
from lexome.training.sampling import IGNORE_INDEX

# torch stops compiling after 8 variants of a function, and goes on slowly without a warning to the caller.
RECOMPILATIONS = 64
# Logits on a GPU are padded to a multiple of this.
LOGITS_GRAIN = 64


class PretrainingLoss:
    """Masked-language-modeling loss, plus that of sentence pairs where the batch has them, each a mean over the step.

    The model is a MaskedLM, or a PairedLM where batches have pair labels.
    """

    def __init__(self, *, compiled: bool = False, autocast: torch.dtype | None = None) -> None:
        self.autocast = autocast
        # Casting logits to float32 in the kernel that sums them up saves writing them a second time.
        self.sums = torch.compile(sums) if compiled else sums

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Terms]:
        terms: Terms = {}
        with torch.autocast(batch.ids_T.device.type, self.autocast, enabled=self.autocast is not None):
            output = model(batch.ids_T, batch.packing, batch.positions_M, batch.segments_T)
            logits_MV, logits_S2 = output if batch.pair_labels_S is not None else (output, None)
            word_loss, terms["word_right"] = self.sums(logits_MV, batch.labels_M)
            total = word_loss / batch.masked_of_step
            terms["word_loss"] = word_loss.detach()
            if batch.pair_labels_S is not None and logits_S2 is not None:
                pair_loss, terms["pair_right"] = sums(logits_S2, batch.pair_labels_S)
                total = total + pair_loss / batch.sequences_of_step
                terms["pair_loss"] = pair_loss.detach()
        return total, terms


def sums(logits_NC: Tensor, labels_N: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of cross entropies over the labels, and the number of correct predictions."""
    logits_NC = logits_NC.float()
    loss = functional.cross_entropy(logits_NC, labels_N, ignore_index=IGNORE_INDEX, reduction="sum")
    # An ignored label equals no class, so padding is never correct.
    return loss, (logits_NC.argmax(-1) == labels_N).sum()


def pad_logits(model: nn.Module) -> None:
    """Let a MaskedLM or PairedLM pad its logits to a number that a GPU is fast at; the loss is the same."""
    if isinstance(head := getattr(model, "head", None), MaskedLMHead):
        head.pad_to_multiple_of = LOGITS_GRAIN


def compile_layers(model: nn.Module) -> None:
    """Compile a MaskedLM or PairedLM in place, layer by layer; names of weights stay.

    All layers have the same code and are compiled once, so that this takes seconds and not minutes. A model that
    transformers computes stays as it is.
    """
    if isinstance(model, TransformersMaskedLM):
        return
    encoder, head = model.encoder, model.head
    assert isinstance(encoder, Encoder)
    assert isinstance(head, nn.Module)
    compile_encoder(encoder)
    head.compile()


def compile_encoder(encoder: Encoder, *, dynamic: bool | None = None) -> None:
    """Compile an encoder in place, part by part; `dynamic` is for sizes that change from batch to batch."""
    # A part is compiled again for training and evaluation, for each kind of layer, and where a size first changes.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, RECOMPILATIONS)
    for part in (encoder.embed, *encoder.layers):
        part.compile(dynamic=dynamic)


@dataclass(frozen=True, slots=True)
class LossWeights:
    """The weights of the distillation loss; by default those of Lewis et al. (2020).

    mlm          of the masked-language-modeling cross entropy, a mean over masked tokens
    kl           of KL(teacher || student) of the predictions, a mean over the positions in `over`
    cosine       of 1 minus the cosine of last hidden states, a mean over all tokens
    temperature  of both logits in `kl`
    squared      whether `kl` is multiplied by the square of the temperature, so that its gradients keep their size
    over         "masked": predictions are compared at masked tokens; "all": at every token
    """

    mlm: float = 5.0
    kl: float = 2.0
    cosine: float = 1.0
    temperature: float = 2.0
    squared: bool = True
    over: Literal["masked", "all"] = "masked"


class DistilledLM(nn.Module):
    """A MaskedLM that also returns hidden states: logits, (N, V), and hidden states as wide as the teacher's, (T, E).

    Its parts are the student's own, under the same names, with the projection beside them: what compiles, wraps, splits
    or optimizes a MaskedLM does so here. Without a projection, hidden states are the encoder's.
    """

    def __init__(self, student: MaskedLM, projection: nn.Linear | None = None) -> None:
        super().__init__()
        self.encoder, self.head, self.projection = student.encoder, student.head, projection

    def forward(
        self, ids_T: Tensor, packing: Packing, positions_N: Tensor, segments_T: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        hidden_TD = self.encoder(ids_T, packing, segments_T)
        logits_NV = self.head(gather_positions(hidden_TD, positions_N), self.encoder.embed.tokens.weight)
        return logits_NV, hidden_TD if self.projection is None else self.projection(hidden_TD)


def projection(student: MaskedLM, width: int) -> nn.Linear:
    """A new linear layer from the student's width to another, initialized as the student's own."""
    config = student.encoder.config
    made = nn.Linear(config.hidden_size, width)
    init_weights(made, config)
    return made


class DistillingLoss:
    """The distillation loss: a weighted sum of three means over the step, of labels, predictions and hidden states.

    The model is a DistilledLM, wrapped or not. The teacher runs once per micro-batch, without gradients and without
    dropout, and predicts only where predictions are compared.
    """

    def __init__(
        self,
        teacher: MaskedLM | TransformersMaskedLM,
        weights: LossWeights,
        *,
        compiled: bool = False,
        autocast: torch.dtype | None = None,
    ) -> None:
        self.teacher, self.weights, self.autocast = teacher.eval().requires_grad_(False), weights, autocast
        # Compiled, each of them reads logits or hidden states once and stores nothing in float32.
        self.sums = torch.compile(sums) if compiled else sums
        self.divergence = torch.compile(divergence) if compiled else divergence
        self.distance = torch.compile(distance) if compiled else distance

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Terms]:
        weights, masked = self.weights, self.weights.over == "masked"
        with torch.autocast(batch.ids_T.device.type, self.autocast, enabled=self.autocast is not None):
            tokens_T = torch.arange(batch.ids_T.shape[0], device=batch.ids_T.device)
            # Padding lies at the end of a batch.
            real_T = tokens_T < batch.tokens
            positions_N = batch.positions_M if masked else tokens_T
            teacher_NV, teacher_TE = self._teacher_outputs(batch, positions_N)
            logits_NV, hidden_TE = model(batch.ids_T, batch.packing, positions_N, batch.segments_T)
            logits_MV = logits_NV if masked else logits_NV[batch.positions_M]
            word_loss, right = self.sums(logits_MV, batch.labels_M)
            terms: Terms = {"word_loss": word_loss.detach(), "word_right": right}
            total = weights.mlm * word_loss / batch.masked_of_step
            if teacher_NV is not None:
                labeled_N = batch.labels_M != IGNORE_INDEX if masked else real_T
                kl_loss = self.divergence(*_same_vocabulary(logits_NV, teacher_NV), labeled_N, weights.temperature)
                kl_loss = kl_loss * weights.temperature**2 if weights.squared else kl_loss
                terms["kl_loss" if masked else "kl_loss_all"] = kl_loss.detach()
                total = total + weights.kl * kl_loss / (batch.masked_of_step if masked else batch.tokens_of_step)
            if weights.cosine:
                cosine_loss = self.distance(hidden_TE, teacher_TE, real_T)
                terms["cosine_loss"] = cosine_loss.detach()
                total = total + weights.cosine * cosine_loss / batch.tokens_of_step
        return total, terms

    @torch.no_grad()
    def _teacher_outputs(self, batch: Batch, positions_N: Tensor) -> tuple[Tensor | None, Tensor]:
        """The teacher's logits, where they are used, and its last hidden states."""
        teacher = self.teacher
        hidden_TE: Tensor = teacher.encoder(batch.ids_T, batch.packing, batch.segments_T)
        if not self.weights.kl:
            return None, hidden_TE
        hidden_NE = hidden_TE[positions_N]
        if isinstance(teacher, TransformersMaskedLM):
            return teacher.predict(hidden_NE, batch.ids_T[positions_N]), hidden_TE
        return teacher.head(hidden_NE, teacher.encoder.embed.tokens.weight), hidden_TE


def divergence(logits_NV: Tensor, teacher_NV: Tensor, labeled_N: Tensor, temperature: float) -> Tensor:
    """The sum of KL(teacher || student) over labeled positions, both at a temperature, in float32."""
    student_NV = functional.log_softmax(logits_NV.float() / temperature, dim=-1)
    teacher_NV = functional.log_softmax(teacher_NV.float() / temperature, dim=-1)
    each_N = functional.kl_div(student_NV, teacher_NV, reduction="none", log_target=True).sum(-1)
    return torch.where(labeled_N, each_N, 0.0).sum()


def distance(hidden_TE: Tensor, teacher_TE: Tensor, real_T: Tensor) -> Tensor:
    """The sum of 1 minus the cosine of two hidden states over real tokens, in float32."""
    each_T = 1 - functional.cosine_similarity(hidden_TE.float(), teacher_TE.float(), dim=-1)
    return torch.where(real_T, each_T, 0.0).sum()


def _same_vocabulary(logits_NV: Tensor, teacher_NV: Tensor) -> tuple[Tensor, Tensor]:
    """Both without the columns that only one of them has: vocabularies may be padded to different sizes."""
    common = min(logits_NV.shape[1], teacher_NV.shape[1])
    return logits_NV[:, :common], teacher_NV[:, :common]


# Sentence-level objectives, combined with masked language modeling on the same packed sequences
#
# Embedding distillation matches a teacher's mean-pooled embedding of each sequence. The contrastive loss (InfoNCE)
# discriminates the other view of a text from the views of all other texts in the batch.


@dataclass(frozen=True, slots=True)
class SentenceWeights:
    """Weights relative to the masked language modeling loss; 0 disables an objective."""

    embedding: float = 0.0
    contrastive: float = 0.0
    temperature: float = 0.05
    pooling: str = "first"


class SentenceLoss:
    """Cross entropy of masked words, cosine distance of embeddings and contrastive loss, each a mean over the step.

    The model is a DistilledLM, wrapped or not: logits at the masked positions, and hidden states as wide as the
    teacher's. The teacher reads the text without masks.
    """

    def __init__(
        self,
        weights: SentenceWeights,
        teacher: Encoder | None = None,
        *,
        compiled: bool = False,
        autocast: torch.dtype | None = None,
    ) -> None:
        self.weights, self.autocast = weights, autocast
        self.teacher = None if teacher is None else teacher.eval().requires_grad_(False)
        self.sums = torch.compile(sums) if compiled else sums

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Terms]:
        weights = self.weights
        with torch.autocast(batch.ids_T.device.type, self.autocast, enabled=self.autocast is not None):
            logits_MV, hidden_TE = model(batch.ids_T, batch.packing, batch.positions_M, batch.segments_T)
            word_loss, word_right = self.sums(logits_MV, batch.labels_M)
            terms: Terms = {"word_loss": word_loss.detach(), "word_right": word_right}
            total = word_loss / batch.masked_of_step
            if self.teacher is not None and weights.embedding:
                distance = embedding_distance(hidden_TE, self._teacher_states(batch), batch)
                terms["embedding_loss"] = distance.detach()
                total = total + weights.embedding * distance / batch.sequences_of_step
            if batch.views_P2 is not None and weights.contrastive and len(batch.views_P2) > 1:
                pooled_SD = pool(hidden_TE, batch, pooling=weights.pooling)
                loss, correct = contrastive_sums(pooled_SD, batch.views_P2, temperature=weights.temperature)
                terms |= {"contrastive_loss": loss.detach(), "contrastive_correct": correct}
                terms["contrastive_pairs"] = torch.full_like(correct, len(batch.views_P2))
                total = total + weights.contrastive * loss / batch.views_of_step
        return total, terms

    @torch.no_grad()
    def _teacher_states(self, batch: Batch) -> Tensor:
        """The teacher's hidden states of the text without masks, (T, E)."""
        assert self.teacher is not None
        hidden_TE: Tensor = self.teacher(unmask(batch), batch.packing, batch.segments_T)
        return hidden_TE


def unmask(batch: Batch) -> Tensor:
    """The ids of a batch with the masked words restored, (T,)."""
    masked_M = batch.labels_M != IGNORE_INDEX
    # Unused positions point at token 0, the first [CLS], and write its own id there.
    words_M = torch.where(masked_M, batch.labels_M, batch.ids_T[0])
    positions_M = torch.where(masked_M, batch.positions_M, 0)
    return batch.ids_T.index_put((positions_M,), words_M)


def pool(hidden_TD: Tensor, batch: Batch, *, pooling: str) -> Tensor:
    """One vector for each sequence that is not padding, (S, D), in float32."""
    if pooling == "first":
        return hidden_TD[batch.packing.firsts_S[: batch.sequences]].float()
    return mean_pool(hidden_TD, batch.packing)[: batch.sequences].float()


def embedding_distance(hidden_TE: Tensor, teacher_TE: Tensor, batch: Batch) -> Tensor:
    """Sum over sequences of 1 minus the cosine of the two mean-pooled embeddings, in float32."""
    embedding_SE, target_SE = (pool(states, batch, pooling="mean") for states in (hidden_TE, teacher_TE))
    return (1 - functional.cosine_similarity(embedding_SE, target_SE, dim=-1)).sum()


def contrastive_sums(pooled_SD: Tensor, pairs_P2: Tensor, *, temperature: float) -> tuple[Tensor, Tensor]:
    """Sum over pairs of the InfoNCE loss, averaged over both directions, and how many first views find the second.

    The negatives of a view are the other sides of all other pairs in the batch.
    """
    unit_SD = functional.normalize(pooled_SD, dim=-1)
    similarity_PP = unit_SD[pairs_P2[:, 0]] @ unit_SD[pairs_P2[:, 1]].T / temperature
    target_P = torch.arange(len(pairs_P2), device=similarity_PP.device)
    forward = functional.cross_entropy(similarity_PP, target_P, reduction="sum")
    backward = functional.cross_entropy(similarity_PP.T, target_P, reduction="sum")
    return (forward + backward) / 2, (similarity_PP.argmax(-1) == target_P).sum()
