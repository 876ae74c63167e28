"""What is minimised: masked words, and pairs where there are some.

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
from lexome.models.heads import MaskedLM, MaskedLMHead, gather_positions
from lexome.training.loop import Batch, Terms
from lexome.training.sampling import NOT_ASKED

# torch gives up compiling after 8 forms of a function, and goes on slowly without a word to the caller.
RECOMPILATIONS = 64
# Logits on a GPU are filled up to a multiple of this.
LOGITS_GRAIN = 64


class PretrainingLoss:
    """Mean loss of masked words, plus mean loss of pairs where the batch has them, each over the whole step.

    The model is a MaskedLM, or a PairedLM where batches have labels of pairs.
    """

    def __init__(self, *, compiled: bool = False, autocast: torch.dtype | None = None) -> None:
        self.autocast = autocast
        # Turning logits to float32 in the same pass that adds them up saves writing them a second time.
        self.sums = torch.compile(sums) if compiled else sums

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Terms]:
        terms: Terms = {}
        with torch.autocast(batch.ids_T.device.type, self.autocast, enabled=self.autocast is not None):
            given = model(batch.ids_T, batch.packing, batch.positions_M, batch.segments_T)
            logits_MV, logits_S2 = given if batch.pair_labels_S is not None else (given, None)
            word_loss, terms["word_right"] = self.sums(logits_MV, batch.labels_M)
            total = word_loss / batch.masked_of_step
            terms["word_loss"] = word_loss.detach()
            if batch.pair_labels_S is not None and logits_S2 is not None:
                pair_loss, terms["pair_right"] = sums(logits_S2, batch.pair_labels_S)
                total = total + pair_loss / batch.sequences_of_step
                terms["pair_loss"] = pair_loss.detach()
        return total, terms


def sums(logits_NC: Tensor, labels_N: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of cross entropies where something is asked, and how many guesses are right."""
    logits_NC = logits_NC.float()
    loss = functional.cross_entropy(logits_NC, labels_N, ignore_index=NOT_ASKED, reduction="sum")
    # A label that is not asked equals no class, so fillings are never right.
    return loss, (logits_NC.argmax(-1) == labels_N).sum()


def pad_logits(model: nn.Module) -> None:
    """Let a MaskedLM or PairedLM give logits of a number that a GPU is fast at; the loss of words is the same."""
    if isinstance(head := getattr(model, "head", None), MaskedLMHead):
        head.pad_to_multiple_of = LOGITS_GRAIN


def compile_layers(model: nn.Module) -> None:
    """Compile a MaskedLM or PairedLM in place, part by part; names of weights stay.

    All layers are alike and are compiled once, so that this takes seconds and not minutes. A model that transformers
    computes stays as it is.
    """
    if isinstance(model, TransformersMaskedLM):
        return
    # A part is compiled again for training and measuring, for each kind of layer, and where a size first changes.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, RECOMPILATIONS)
    encoder, head = model.encoder, model.head
    assert isinstance(encoder, Encoder)
    assert isinstance(head, nn.Module)
    for part in (encoder.embed, *encoder.layers, head):
        part.compile()


@dataclass(frozen=True, slots=True)
class Weights:
    """What each term counts, and how it is taken; Lewis et al. (2020) where nothing is said.

    mlm          cross entropy of masked words, its mean over them
    kl           divergence of the student's guesses from the teacher's, its mean over the positions in `over`
    cosine       1 minus the cosine of last hidden states, its mean over all tokens
    temperature  what both logits are divided by for `kl`
    squared      True: `kl` is multiplied by the square of the temperature, so that its gradients keep their size
    over         "masked": guesses are compared where words are masked; "all": at every token
    """

    mlm: float = 5.0
    kl: float = 2.0
    cosine: float = 1.0
    temperature: float = 2.0
    squared: bool = True
    over: Literal["masked", "all"] = "masked"


class DistilledLM(nn.Module):
    """A MaskedLM that shows its hidden states too: logits, (N, V), and hidden states as wide as the teacher's, (T, E).

    Its parts are the student's own, under the same names, with the projection beside them: what compiles, wraps, cuts
    or optimises a MaskedLM does so here. Without a projection hidden states are as the encoder gives them.
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
    """A new matrix from the student's width to another, drawn from torch's generator as the student's own were."""
    config = student.encoder.config
    made = nn.Linear(config.hidden_size, width)
    init_weights(made, config)
    return made


class DistillingLoss:
    """The weighted sum of three means over the whole step: masked words, guesses, hidden states.

    The model is a DistilledLM, wrapped or not. The teacher is run once for each pass, without gradients and without
    dropout, and guesses only where guesses are compared.
    """

    def __init__(
        self,
        teacher: MaskedLM | TransformersMaskedLM,
        weights: Weights,
        *,
        compiled: bool = False,
        autocast: torch.dtype | None = None,
    ) -> None:
        self.teacher, self.weights, self.autocast = teacher.eval().requires_grad_(False), weights, autocast
        # Compiled, each of them reads logits or hidden states once and keeps nothing in float32.
        self.sums = torch.compile(sums) if compiled else sums
        self.divergence = torch.compile(divergence) if compiled else divergence
        self.distance = torch.compile(distance) if compiled else distance

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Terms]:
        weights, masked = self.weights, self.weights.over == "masked"
        with torch.autocast(batch.ids_T.device.type, self.autocast, enabled=self.autocast is not None):
            tokens_T = torch.arange(batch.ids_T.shape[0], device=batch.ids_T.device)
            # What fills up a batch lies at its end.
            real_T = tokens_T < batch.tokens
            positions_N = batch.positions_M if masked else tokens_T
            taught_NV, aim_TE = self._taught(batch, positions_N)
            logits_NV, hidden_TE = model(batch.ids_T, batch.packing, positions_N, batch.segments_T)
            logits_MV = logits_NV if masked else logits_NV[batch.positions_M]
            word_loss, right = self.sums(logits_MV, batch.labels_M)
            terms: Terms = {"word_loss": word_loss.detach(), "word_right": right}
            total = weights.mlm * word_loss / batch.masked_of_step
            if taught_NV is not None:
                asked_N = batch.labels_M != NOT_ASKED if masked else real_T
                kl_loss = self.divergence(*_as_wide(logits_NV, taught_NV), asked_N, weights.temperature)
                kl_loss = kl_loss * weights.temperature**2 if weights.squared else kl_loss
                terms["kl_loss" if masked else "kl_loss_all"] = kl_loss.detach()
                total = total + weights.kl * kl_loss / (batch.masked_of_step if masked else batch.tokens_of_step)
            if weights.cosine:
                cosine_loss = self.distance(hidden_TE, aim_TE, real_T)
                terms["cosine_loss"] = cosine_loss.detach()
                total = total + weights.cosine * cosine_loss / batch.tokens_of_step
        return total, terms

    @torch.no_grad()
    def _taught(self, batch: Batch, positions_N: Tensor) -> tuple[Tensor | None, Tensor]:
        """The teacher's logits, where they count, and its last hidden states."""
        teacher = self.teacher
        hidden_TE: Tensor = teacher.encoder(batch.ids_T, batch.packing, batch.segments_T)
        if not self.weights.kl:
            return None, hidden_TE
        hidden_NE = hidden_TE[positions_N]
        if isinstance(teacher, TransformersMaskedLM):
            return teacher.predict(hidden_NE, batch.ids_T[positions_N]), hidden_TE
        return teacher.head(hidden_NE, teacher.encoder.embed.tokens.weight), hidden_TE


def divergence(logits_NV: Tensor, taught_NV: Tensor, asked_N: Tensor, temperature: float) -> Tensor:
    """The sum over what is asked of KL(teacher || student), both at a temperature, in float32."""
    student_NV = functional.log_softmax(logits_NV.float() / temperature, dim=-1)
    teacher_NV = functional.log_softmax(taught_NV.float() / temperature, dim=-1)
    each_N = functional.kl_div(student_NV, teacher_NV, reduction="none", log_target=True).sum(-1)
    return torch.where(asked_N, each_N, 0.0).sum()


def distance(hidden_TE: Tensor, aim_TE: Tensor, real_T: Tensor) -> Tensor:
    """The sum over real tokens of 1 minus the cosine of two hidden states, in float32."""
    each_T = 1 - functional.cosine_similarity(hidden_TE.float(), aim_TE.float(), dim=-1)
    return torch.where(real_T, each_T, 0.0).sum()


def _as_wide(logits_NV: Tensor, taught_NV: Tensor) -> tuple[Tensor, Tensor]:
    """Both without the rows that only one of them has: vocabularies may be filled up to different sizes."""
    common = min(logits_NV.shape[1], taught_NV.shape[1])
    return logits_NV[:, :common], taught_NV[:, :common]
