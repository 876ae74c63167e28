"""What is minimised: masked words, and pairs where there are some.

S sequences, M masked positions, V vocabulary, C classes
"""

from collections.abc import Callable

import torch
import torch._dynamo
from torch import Tensor, nn
from torch.nn import functional

from lexome.models.encoder import Encoder
from lexome.models.heads import WordHead
from lexome.models.padded import TransformersMaskedLM
from lexome.train.batches import NOT_ASKED
from lexome.train.loader import Batch

Terms = dict[str, Tensor]
"""Sums over a pass to be counted up: of losses and of right answers. They carry no gradient."""

Loss = Callable[[nn.Module, Batch], tuple[Tensor, Terms]]
"""A pass's share of the step's loss, and its sums. Another loss, such as one with a teacher, has the same form."""

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


def even_logits(model: nn.Module) -> None:
    """Let a MaskedLM or PairedLM give logits of a number that a GPU is fast at; the loss of words is the same."""
    if isinstance(head := getattr(model, "head", None), WordHead):
        head.grain = LOGITS_GRAIN


def compile_parts(model: nn.Module) -> None:
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
