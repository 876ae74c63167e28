"""Sentence-level pre-training objectives, combined with masked language modeling on the same packed sequences.

Embedding distillation matches a teacher's mean-pooled embedding of each sequence. The contrastive loss (InfoNCE)
discriminates the other view of a text from the views of all other texts in the batch.

T tokens of the packed batch, S sequences, M masked positions, P pairs of sequences, D hidden size, E the teacher's
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from lexome.models.encoder import Encoder
from lexome.models.heads import mean_pool
from lexome.training.loop import Batch, Terms
from lexome.training.losses import sums
from lexome.training.sampling import IGNORE_INDEX


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
