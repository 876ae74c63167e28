"""One plain encoder for packed sequences. Speed and parallelism are applied from outside.

T tokens of the packed batch, S sequences, D width, H heads, K width a head, V vocabulary, I inner width
"""

import math

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lexome.models.attention import attend, attend_fused
from lexome.models.config import EncoderConfig
from lexome.models.packing import Packing

# Cosines and sines of a batch's angles, (T, 1, K) each, in float32.
Rotary = tuple[Tensor, Tensor]


class Encoder(nn.Module):
    """Token ids of packed sequences to hidden states, (T,) to (T, D).

    Set `gradient_checkpointing` to compute each layer again in the backward pass instead of keeping what is inside it.
    New weights are drawn from torch's generator: seed it first.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.gradient_checkpointing = False
        self.embed = Embeddings(config)
        self.layers = nn.ModuleList(Layer(config, number) for number in range(config.layers))
        self.final_norm = layer_norm(config) if config.final_norm else nn.Identity()
        init_weights(self, config)

    def forward(self, ids_T: Tensor, packing: Packing, segments_T: Tensor | None = None) -> Tensor:
        hidden_TD = self.embed(ids_T, packing, segments_T)
        turns = self._turns(packing)
        for layer in self.layers:
            if self.gradient_checkpointing and self.training:
                hidden_TD = checkpoint(layer, hidden_TD, packing, turns, use_reentrant=False)
            else:
                hidden_TD = layer(hidden_TD, packing, turns)
        normed_TD: Tensor = self.final_norm(hidden_TD)
        return normed_TD

    def _turns(self, packing: Packing) -> dict[float, Rotary]:
        """The rotary turns for each base in use: once a batch, not once a layer."""
        if self.config.positions != "rotary":
            return {}
        bases = {self.config.rotary_base_of(number) for number in range(self.config.layers)}
        return {base: rotary_cos_sin(packing.positions_T, self.config.head_size, base=base) for base in sorted(bases)}


class Embeddings(nn.Module):
    """The sum of what a token, its position and its segment are, normed."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocab, config.hidden_size)
        self.position_offset = config.position_offset
        rows = config.max_tokens + config.position_offset
        self.positions = nn.Embedding(rows, config.hidden_size) if config.positions == "learned" else None
        self.segments = nn.Embedding(config.segments, config.hidden_size) if config.segments else None
        self.norm = layer_norm(config) if config.embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, ids_T: Tensor, packing: Packing, segments_T: Tensor | None) -> Tensor:
        sum_TD = self.tokens(ids_T)
        if self.positions is not None:
            sum_TD = sum_TD + self.positions(packing.positions_T + self.position_offset)
        if self.segments is not None:
            # No segments given: all of them are the first.
            kind_TD = self.segments.weight[0] if segments_T is None else self.segments(segments_T)
            sum_TD = sum_TD + kind_TD
        dropped_TD: Tensor = self.dropout(self.norm(sum_TD))
        return dropped_TD


class Layer(nn.Module):
    """Attention and feed-forward, each with its residual and its norm."""

    def __init__(self, config: EncoderConfig, number: int) -> None:
        super().__init__()
        self.pre = config.norm == "pre"
        normed = config.first_norm or number > 0
        self.attention = Attention(config, number)
        self.attention_norm = layer_norm(config) if normed else nn.Identity()
        self.mlp = FeedForward(config)
        self.mlp_norm = layer_norm(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, hidden_TD: Tensor, packing: Packing, turns: dict[float, Rotary]) -> Tensor:
        if self.pre:
            hidden_TD = hidden_TD + self.dropout(self.attention(self.attention_norm(hidden_TD), packing, turns))
            sum_TD: Tensor = hidden_TD + self.dropout(self.mlp(self.mlp_norm(hidden_TD)))
            return sum_TD
        hidden_TD = self.attention_norm(hidden_TD + self.dropout(self.attention(hidden_TD, packing, turns)))
        normed_TD: Tensor = self.mlp_norm(hidden_TD + self.dropout(self.mlp(hidden_TD)))
        return normed_TD


class Attention(nn.Module):
    """Self-attention whose query, key and value come from one matrix.

    Its rows go head by head: the K of a head's query, of its key, of its value, then the next head. So a block of
    rows is a block of whole heads, and torch's tensor parallel can cut it as it is. names.join_qkv and names.cut_qkv
    go between this and three separate matrices.
    """

    def __init__(self, config: EncoderConfig, number: int) -> None:
        super().__init__()
        self.head_size = config.head_size
        self.window = config.window(number)
        self.angle_base = config.rotary_base_of(number)
        self.dropout = config.attention_dropout
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=config.biases)
        self.out = nn.Linear(config.hidden_size, config.hidden_size, bias=config.biases)

    def forward(self, hidden_TD: Tensor, packing: Packing, turns: dict[float, Rotary]) -> Tensor:
        # -1: under tensor parallel a process has only some of the heads.
        qkv_TH3K = self.qkv(hidden_TD).unflatten(-1, (-1, 3, self.head_size))
        dropout = self.dropout if self.training else 0.0
        if turns:
            query_THK, key_THK, value_THK = qkv_TH3K.unbind(-2)
            query_THK = apply_rotary(query_THK, turns[self.angle_base])
            key_THK = apply_rotary(key_THK, turns[self.angle_base])
            mixed_THK = attend(query_THK, key_THK, value_THK, packing, window=self.window, dropout=dropout)
        else:
            mixed_THK = attend_fused(qkv_TH3K, packing, window=self.window, dropout=dropout)
        out_TD: Tensor = self.out(mixed_THK.flatten(-2))
        return out_TD


class FeedForward(nn.Module):
    """Up to the inner width, an activation, and down again; gated, one half opens and shuts the other."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.gated = config.gated
        self.activation = activation(config.activation)
        self.up = nn.Linear(
            config.hidden_size, config.intermediate_size * (2 if config.gated else 1), bias=config.biases
        )
        self.down = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.biases)

    def forward(self, hidden_TD: Tensor) -> Tensor:
        inner_TI = self.up(hidden_TD)
        if self.gated:
            inner_TI, gate_TI = inner_TI.chunk(2, dim=-1)
            inner_TI = self.activation(inner_TI) * gate_TI
        else:
            inner_TI = self.activation(inner_TI)
        out_TD: Tensor = self.down(inner_TI)
        return out_TD


def rotary_cos_sin(positions_T: Tensor, head_width: int, *, base: float) -> Rotary:
    """Cosine and sine of each position's angles. In float32: bfloat16 cannot count to 8,192.

    The frequencies are made here and not kept as a buffer, which a cast of the model would round.
    """
    with torch.autocast(positions_T.device.type, enabled=False):
        even = torch.arange(0, head_width, 2, device=positions_T.device, dtype=torch.float32)
        frequencies = 1.0 / base ** (even / head_width)
        angles_TK = (positions_T.float()[:, None] * frequencies).repeat(1, 2)
        return angles_TK.cos()[:, None], angles_TK.sin()[:, None]


def apply_rotary(vectors_THK: Tensor, turns: Rotary) -> Tensor:
    """Vectors with each pair (k, k + K/2) turned by its angle, in the type they came in."""
    cos_T1K, sin_T1K = turns
    exact_THK = vectors_THK.float()
    first, second = exact_THK.chunk(2, dim=-1)
    quarter_THK = torch.cat((-second, first), dim=-1)
    return (exact_THK * cos_T1K + quarter_THK * sin_T1K).to(vectors_THK.dtype)


def activation(name: str) -> nn.Module:
    """The module for a name in config.ACTIVATIONS."""
    known = {"relu": nn.ReLU, "silu": nn.SiLU, "tanh": nn.Tanh}
    if name in known:
        return known[name]()
    return nn.GELU(approximate="tanh" if name == "gelu_tanh" else "none")


def layer_norm(config: EncoderConfig) -> nn.LayerNorm:
    """A layer norm as the configuration wants it."""
    return nn.LayerNorm(config.hidden_size, eps=config.norm_eps, bias=config.norm_biases)


def init_weights(module: nn.Module, config: EncoderConfig) -> None:
    """Draw new weights: normal with BERT's deviation, biases 0, norms 1. Also after `to_empty` on another device."""
    for name, part in module.named_modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            shrunk = config.scaled_init and name.endswith((".attention.out", ".mlp.down"))
            std = config.initial_std / math.sqrt(2 * config.layers) if shrunk else config.initial_std
            nn.init.normal_(part.weight, std=std)
            if isinstance(part, nn.Linear) and part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(bias := getattr(part, "bias", None), nn.Parameter):
            nn.init.zeros_(bias)


def count_parameters(module: nn.Module) -> int:
    """How many numbers a model learns; shared weights count once."""
    return sum(weight.numel() for weight in module.parameters())
