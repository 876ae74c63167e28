"""Models of the transformers library behind the interface of our own: packed sequences outside, padding inside.

T tokens of the packed batch, N sequences of a group, L the longest of them, D width, M masked positions, V vocabulary
"""

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lexome.errors import UsageError
from lexome.models.config import EncoderConfig
from lexome.models.packing import Packing
from lexome.values import value

# Sequences are padded together while a quarter more, and a few tokens, makes the shortest as long as the longest.
STRETCH = 1.25
SPARE_TOKENS = 8


class TransformersEncoder(nn.Module):
    """Token ids of packed sequences to hidden states, (T,) to (T, D), by a base model of transformers.

    `config` has the sizes that other parts read; what the layers are like, the model alone knows.
    """

    def __init__(self, model: nn.Module, config: EncoderConfig) -> None:
        super().__init__()
        self.model: Any = model
        self.config = config
        self.accepts = frozenset(inspect.signature(model.forward).parameters)

    def forward(self, ids_T: Tensor, packing: Packing, segments_T: Tensor | None = None) -> Tensor:
        longest = max(packing.lengths)
        if longest > self.config.max_tokens:
            raise UsageError(f"a sequence has {longest} tokens; the model takes {self.config.max_tokens}. Cut it.")
        groups = padded_groups(packing.lengths)
        hidden = []
        for group in groups:
            place_NL, real_NL, kept = (torch.from_numpy(array).to(ids_T.device) for array in group.arrays)
            ids_NL = ids_T[place_NL].masked_fill(~real_NL, self._padding())
            given = {"input_ids": ids_NL, "attention_mask": real_NL.long(), "return_dict": True}
            if segments_T is not None and self._tells_segments():
                given["token_type_ids"] = segments_T[place_NL]
            if "use_cache" in self.accepts:
                given["use_cache"] = False
            hidden.append(self.model(**given).last_hidden_state.flatten(0, 1)[kept])
        undo = np.argsort(np.concatenate([group.tokens for group in groups]), kind="stable")
        return torch.cat(hidden)[torch.from_numpy(undo).to(ids_T.device)]

    @property
    def checkpointing(self) -> bool:
        """Whether each layer is computed again in the backward pass, instead of keeping what is inside it."""
        return bool(self.model.is_gradient_checkpointing)

    @checkpointing.setter
    def checkpointing(self, wanted: bool) -> None:
        if wanted:
            self.model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        elif self.model.is_gradient_checkpointing:
            self.model.gradient_checkpointing_disable()

    def _padding(self) -> int:
        """The number that fills up. Decoders may have none, or -1: any does, for nothing looks at it."""
        return max(0, getattr(self.model.config, "pad_token_id", None) or 0)

    def _tells_segments(self) -> bool:
        """Whether the model has embeddings of segments. GPT-2 takes segments, and looks them up among its words."""
        kinds = getattr(self.model.config, "type_vocab_size", None) or 0
        return "token_type_ids" in self.accepts and kinds > 1


class TransformersMaskedLM(nn.Module):
    """A masked language model of transformers: logits over the vocabulary at the masked positions only, (M, V)."""

    def __init__(self, model: nn.Module, config: EncoderConfig) -> None:
        super().__init__()
        self.model: Any = model
        self.config = config

    @property
    def encoder(self) -> TransformersEncoder:
        """The model without its head; the weights are the same ones."""
        return TransformersEncoder(self.model.base_model, self.config)

    def forward(self, ids_T: Tensor, packing: Packing, positions_M: Tensor, segments_T: Tensor | None = None) -> Tensor:
        hidden_TD = self.encoder(ids_T, packing, segments_T)
        return self.words(hidden_TD[positions_M], ids_T[positions_M])

    def words(self, hidden_MD: Tensor, ids_M: Tensor) -> Tensor:
        """The head alone, which every architecture writes in its own way.

        The whole model is called, and its base answers with the states that were computed before.
        """
        from transformers.modeling_outputs import BaseModelOutput

        base = self.model.base_model
        base.forward = lambda *_, **__: BaseModelOutput(last_hidden_state=hidden_MD[None])
        try:
            logits_MV: Tensor = self.model(input_ids=ids_M[None], return_dict=True).logits[0]
        finally:
            del base.forward
        return logits_MV


@value
class Group:
    """Sequences of about one length: the token at each place, which places are real, and those that are, flat.

    `tokens` are the numbers of the real ones in the order they come out.
    """

    arrays: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]
    tokens: np.ndarray[Any, Any]


def padded_groups(lengths: Sequence[int]) -> list[Group]:
    """Sequences sorted by length and cut where padding them together would waste much; empty ones are left out."""
    sizes = np.asarray(lengths)
    starts = np.cumsum(sizes) - sizes
    groups: list[list[int]] = []
    for number in sorted(np.flatnonzero(sizes).tolist(), key=lambda number: (-sizes[number], number)):
        if groups and sizes[groups[-1][0]] <= STRETCH * sizes[number] + SPARE_TOKENS:
            groups[-1].append(number)
        else:
            groups.append([number])
    return [_group(starts[chosen, None], sizes[chosen, None]) for chosen in groups]


def _group(starts_N1: np.ndarray[Any, Any], sizes_N1: np.ndarray[Any, Any]) -> Group:
    steps_L = np.arange(sizes_N1.max())
    real_NL = steps_L < sizes_N1
    # Padding repeats the last token of its sequence, and is written over.
    place_NL = starts_N1 + np.minimum(steps_L, sizes_N1 - 1)
    return Group((place_NL, real_NL, np.flatnonzero(real_NL)), place_NL[real_NL])
