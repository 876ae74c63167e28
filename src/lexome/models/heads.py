"""Heads: masked language modeling, sentence pairs, and classification of tokens, sequences and answer spans.

T tokens of the packed batch, S sequences, D hidden size, V vocabulary, M masked positions, C labels
"""

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lexome.models.encoder import Encoder, EncoderConfig, Packing, activation, init_weights, layer_norm

# The logit of vocabulary padding: probability zero after softmax, and still finite in float16.
PADDING_LOGIT = -10_000.0


class MaskedLM(nn.Module):
    """An encoder with a masked-language-modeling head: logits at the masked positions only, (M, V)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.encoder = Encoder(config)
        self.head = MaskedLMHead(config)

    def forward(self, ids_T: Tensor, packing: Packing, positions_M: Tensor, segments_T: Tensor | None = None) -> Tensor:
        hidden_TD = self.encoder(ids_T, packing, segments_T)
        logits_MV: Tensor = self.head(gather_positions(hidden_TD, positions_M), self.encoder.embed.tokens.weight)
        return logits_MV


class PairedLM(nn.Module):
    """BERT's pre-training model: masked-LM logits (M, V), and next-sentence or sentence-order logits (S, 2)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.encoder = Encoder(config)
        self.head = MaskedLMHead(config)
        self.pair = PairHead(config)

    def forward(
        self, ids_T: Tensor, packing: Packing, positions_M: Tensor, segments_T: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        hidden_TD = self.encoder(ids_T, packing, segments_T)
        logits_MV = self.head(gather_positions(hidden_TD, positions_M), self.encoder.embed.tokens.weight)
        return logits_MV, self.pair(hidden_TD, packing)


class EncoderWithHead(nn.Module):
    """An encoder with a TokenHead, SequenceHead or SpanHead."""

    def __init__(self, encoder: Encoder, head: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    def forward(self, ids_T: Tensor, packing: Packing, segments_T: Tensor | None = None) -> Tensor:
        logits: Tensor = self.head(self.encoder(ids_T, packing, segments_T), packing)
        return logits


def gather_positions(hidden_TD: Tensor, positions_M: Tensor) -> Tensor:
    """The hidden states at these positions, (M, D)."""
    if hidden_TD.is_cuda and hidden_TD.dtype != torch.float32:
        gathered_MD: Tensor = _GatherPositions.apply(hidden_TD, positions_M)  # type: ignore[no-untyped-call]
        return gathered_MD
    # index_select rather than indexing, whose backward sorts all positions first.
    return hidden_TD.index_select(0, positions_M)


class _GatherPositions(torch.autograd.Function):
    """index_select whose gradient is accumulated in float32: atomic adds in 16 bits are slow on a GPU."""

    @staticmethod
    def forward(ctx: Any, hidden_TD: Tensor, positions_M: Tensor) -> Tensor:
        ctx.save_for_backward(positions_M)
        ctx.tokens = hidden_TD.shape[0]
        return hidden_TD.index_select(0, positions_M)

    @staticmethod
    def backward(ctx: Any, gradient_MD: Tensor) -> tuple[Tensor, None]:
        (positions_M,) = ctx.saved_tensors
        sum_TD = gradient_MD.new_zeros((ctx.tokens, gradient_MD.shape[1]), dtype=torch.float32)
        return sum_TD.index_add_(0, positions_M, gradient_MD.float()).to(gradient_MD.dtype), None


class MaskedLMHead(nn.Module):
    """BERT's masked-language-modeling head, whose output matrix is the token embedding, passed by the caller.

    Set `pad_to_multiple_of` to pad the vocabulary with tokens of probability zero: GPU matrix products are slow if
    rows are not aligned, and torch.compile's own padding copies the logits.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=config.head_biases)
        self.activation = activation(config.head_activation)
        self.norm = layer_norm(config)
        self.bias = nn.Parameter(torch.zeros(config.vocab))
        self.pad_to_multiple_of = 1
        init_weights(self, config)

    def forward(self, hidden_MD: Tensor, tokens_VD: Tensor) -> Tensor:
        normed_MD = self.norm(self.activation(self.dense(hidden_MD)))
        bias_V: Tensor = self.bias
        if padding := -bias_V.shape[0] % self.pad_to_multiple_of:
            tokens_VD = functional.pad(tokens_VD, (0, 0, 0, padding))
            bias_V = functional.pad(bias_V, (0, padding), value=PADDING_LOGIT)
        return functional.linear(normed_MD, tokens_VD, bias_V)


class PairHead(nn.Module):
    """BERT's pooler and two logits per sequence, for next-sentence or sentence-order prediction; (S, 2)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.pool = nn.Linear(config.hidden_size, config.hidden_size)
        self.out = nn.Linear(config.hidden_size, 2)
        init_weights(self, config)

    def forward(self, hidden_TD: Tensor, packing: Packing) -> Tensor:
        logits_S2: Tensor = self.out(self.pool(hidden_TD[packing.firsts_S]).tanh())
        return logits_S2


@dataclass(frozen=True, slots=True)
class HiddenLayers:
    """The hidden layers between the encoder and the output layer of a head.

    BioMegatron uses 1 or 2 layers of 512 or 1024 with dropout 0.5; for question answering 2 of 2048 with dropout 0.1.
    `dropout` applies before each linear layer, the output layer included. A hidden_size of None is the encoder's.
    `input_dropout` is the dropout before the first hidden layer if it differs: transformers' BERT pooler has none.
    """

    count: int = 0
    hidden_size: int | None = None
    activation: str = "relu"
    dropout: float = 0.1
    norm: bool = False
    biases: bool = True
    input_dropout: float | None = None


class TokenHead(nn.Module):
    """Token classification: logits of each token, (T, C)."""

    def __init__(self, config: EncoderConfig, labels: int, *, hidden: HiddenLayers | None = None) -> None:
        super().__init__()
        self.hidden = hidden or HiddenLayers()
        _add_layers(self, config, labels, self.hidden)

    def forward(self, hidden_TD: Tensor, packing: Packing) -> Tensor:
        return _run_layers(self, hidden_TD)


class SequenceHead(nn.Module):
    """Sequence classification: logits from the first token or from mean pooling; (S, C)."""

    def __init__(
        self, config: EncoderConfig, labels: int, *, hidden: HiddenLayers | None = None, pooling: str = "first"
    ) -> None:
        super().__init__()
        self.hidden = hidden or HiddenLayers()
        self.pooling = pooling
        _add_layers(self, config, labels, self.hidden)

    def pool(self, hidden_TD: Tensor, packing: Packing) -> Tensor:
        """One vector of each sequence, (S, D)."""
        return hidden_TD[packing.firsts_S] if self.pooling == "first" else mean_pool(hidden_TD, packing)

    def forward(self, hidden_TD: Tensor, packing: Packing) -> Tensor:
        return _run_layers(self, self.pool(hidden_TD, packing))


class SpanHead(nn.Module):
    """Extractive question answering: logits of each token being the first and the last of the answer, (T, 2)."""

    def __init__(self, config: EncoderConfig, *, hidden: HiddenLayers | None = None) -> None:
        super().__init__()
        self.hidden = hidden or HiddenLayers()
        _add_layers(self, config, 2, self.hidden)

    def forward(self, hidden_TD: Tensor, packing: Packing) -> Tensor:
        return _run_layers(self, hidden_TD)


def first_linear(head: nn.Module) -> nn.Linear:
    """The first linear layer of a label head."""
    return next(layer for layer in head.children() if isinstance(layer, nn.Linear))


def add_input_bias(head: nn.Module) -> None:
    """Give a label head whose layers have no biases one in its first linear layer, to fold a mean into."""
    first = first_linear(head)
    if "bias" not in dict(first.named_parameters()):
        first.bias = nn.Parameter(torch.zeros_like(first.weight[:, 0]))
        assert isinstance(head.hidden, HiddenLayers)
        head.hidden = replace(head.hidden, biases=True)


@torch.no_grad()
def fold_standardization(head: nn.Module, mean_D: Tensor, scale_D: Tensor) -> None:
    """Change a head that reads (vector - mean) * scale into one that reads the vector: the logits stay the same."""
    first = first_linear(head)
    first.weight.mul_(scale_D)
    first.bias.sub_(first.weight @ mean_D)


def mean_pool(hidden_TD: Tensor, packing: Packing) -> Tensor:
    """The mean hidden state of each sequence, (S, D), accumulated in float32."""
    bounds = packing.bounds_S1.long()
    lengths_S = bounds.diff()
    tokens = hidden_TD.shape[0]
    sequence_T = torch.repeat_interleave(lengths_S, output_size=tokens)
    sum_SD = hidden_TD.new_zeros((lengths_S.shape[0], hidden_TD.shape[1]), dtype=torch.float32)
    sum_SD = sum_SD.index_add(0, sequence_T, hidden_TD.float())
    return (sum_SD / lengths_S.clamp(min=1)[:, None]).to(hidden_TD.dtype)


def _add_layers(head: nn.Module, config: EncoderConfig, labels: int, hidden: HiddenLayers) -> None:
    """Add the hidden layers and the output layer to a head, in the order of execution."""
    size = config.hidden_size
    layers: OrderedDict[str, nn.Module] = OrderedDict()
    for number in range(hidden.count):
        hidden_size = hidden.hidden_size or config.hidden_size
        dropout = hidden.dropout if number or hidden.input_dropout is None else hidden.input_dropout
        layers[f"dropout{number}"] = nn.Dropout(dropout)
        layers[f"dense{number}"] = nn.Linear(size, hidden_size, bias=hidden.biases)
        layers[f"activation{number}"] = activation(hidden.activation)
        if hidden.norm:
            layers[f"norm{number}"] = nn.LayerNorm(hidden_size, eps=config.norm_eps, bias=config.norm_biases)
        size = hidden_size
    layers["dropout"] = nn.Dropout(hidden.dropout)
    layers["out"] = nn.Linear(size, labels)
    for name, layer in layers.items():
        head.add_module(name, layer)
    init_weights(head, config)


def _run_layers(head: nn.Module, hidden: Tensor) -> Tensor:
    for layer in head.children():
        hidden = layer(hidden)
    return hidden
