"""A plain transformer encoder for packed sequences. Speed and parallelism are applied from outside.

T tokens of the packed batch, S sequences, D hidden size, H heads, K head size, V vocabulary, I intermediate size
"""

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lexome.errors import UsageError
from lexome.models.attention import Packing, attend, attend_fused

# tanh is used by poolers. gelu_tanh is the approximation that Google's and NVIDIA's first BERTs were trained with.
ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "silu", "tanh")


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """Sizes and options of an encoder; the defaults are BERT's.

    intermediate_size  size of the feed-forward layer; with `gated`, of each of its two halves
    max_tokens         maximum sequence length; learned positions have as many rows, plus position_offset
    norm               "post": after the residual sum, as in BERT; "pre": before each block, as in Megatron
    position_offset    rows of the position table before position 0: 2 in RoBERTa
    segments           number of segment types (sentence A, sentence B); 0 for no segment embeddings
    first_norm         False: the first layer has no attention norm, because the embedding norm directly precedes it
    local_window       tokens that a local-attention layer attends to on each side; None: all layers are global
    global_every       layers 0, n, 2n, ... use global attention, the others local attention
    local_rotary_base  rotary base of local layers; rotary_base if None
    attention_dropout  dropout of attention weights. torch's packed CUDA kernel does not support it, so any value
                       above 0 takes a slower path there; 0 is recommended for pre-training
    scaled_init        output projections of both blocks are initialized with std / sqrt(2 * layers), as in Megatron
    """

    vocab: int
    layers: int
    hidden_size: int
    heads: int
    intermediate_size: int
    max_tokens: int = 512
    norm: str = "post"
    positions: str = "learned"
    position_offset: int = 0
    segments: int = 2
    activation: str = "gelu"
    gated: bool = False
    biases: bool = True
    norm_biases: bool = True
    norm_eps: float = 1e-12
    embedding_norm: bool = True
    final_norm: bool = False
    first_norm: bool = True
    local_window: int | None = None
    global_every: int = 1
    rotary_base: float = 10_000.0
    local_rotary_base: float | None = None
    dropout: float = 0.1
    attention_dropout: float = 0.1
    initial_std: float = 0.02
    scaled_init: bool = False
    head_activation: str = "gelu"
    head_biases: bool = True

    def __post_init__(self) -> None:
        for name in ("vocab", "layers", "hidden_size", "heads", "intermediate_size", "max_tokens", "global_every"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}; expected at least 1.", code="bad-size", value=name)
        if self.hidden_size % self.heads:
            raise UsageError(
                f"hidden_size {self.hidden_size} is not a multiple of {self.heads} heads. Change one of them.",
                code="heads-mismatch",
                value=self.heads,
            )
        choices = {"norm": ("post", "pre"), "positions": ("learned", "rotary")}
        for name, known in (choices | {"activation": ACTIVATIONS, "head_activation": ACTIVATIONS}).items():
            value = getattr(self, name)
            if value not in known:
                raise UsageError(
                    f"{name} is {value!r}; expected one of {', '.join(known)}.", code="unknown-option", value=value
                )
        if self.positions == "rotary" and self.head_size % 2:
            raise UsageError(
                f"rotary positions rotate pairs of dimensions, but the head size is {self.head_size}; expected an even "
                "one. Change hidden_size or heads.",
                code="odd-head-size",
                value=self.head_size,
            )

    @property
    def head_size(self) -> int:
        """Dimensions per attention head."""
        return self.hidden_size // self.heads

    def window(self, layer: int) -> int | None:
        """Tokens that a layer attends to on each side; None for all."""
        return self.local_window if layer % self.global_every else None

    def rotary_base_of(self, layer: int) -> float:
        """The base of a layer's rotary frequencies."""
        local = self.window(layer) is not None and self.local_rotary_base is not None
        return self.local_rotary_base if local and self.local_rotary_base else self.rotary_base


_BERT_BASE = EncoderConfig(vocab=30_522, layers=12, hidden_size=768, heads=12, intermediate_size=3072)
_BERT_LARGE = replace(_BERT_BASE, layers=24, hidden_size=1024, heads=16, intermediate_size=4096)

_ROBERTA_BASE = replace(_BERT_BASE, vocab=50_265, position_offset=2, segments=1, norm_eps=1e-5)
_ROBERTA_LARGE = replace(_ROBERTA_BASE, layers=24, hidden_size=1024, heads=16, intermediate_size=4096)

# Bioformer's paper does not print the intermediate size; four times the hidden size gives its two parameter counts.
_BIOFORMER_8L = replace(_BERT_BASE, vocab=32_768, layers=8, hidden_size=512, heads=8, intermediate_size=2048)
_BIOFORMER_16L = replace(_BIOFORMER_8L, layers=16, hidden_size=384, heads=6, intermediate_size=1536, max_tokens=1024)

# From the configuration published with BioMegatron-345m: pre-norm, gelu's tanh approximation, and a vocabulary padded
# to a multiple of 128. Scaled initialization is Megatron's.
_BIOMEGATRON_345M = replace(
    _BERT_LARGE,
    vocab=30_592,
    norm="pre",
    embedding_norm=False,
    final_norm=True,
    activation="gelu_tanh",
    head_activation="gelu_tanh",
    scaled_init=True,
)
# The paper names the larger two by parameter count only. These shapes match the counts; whether the authors used the
# same depth and hidden size is not known.
_BIOMEGATRON_800M = replace(_BIOMEGATRON_345M, layers=36, hidden_size=1280, heads=20, intermediate_size=5120)
_BIOMEGATRON_1200M = replace(_BIOMEGATRON_345M, layers=24, hidden_size=2048, heads=16, intermediate_size=8192)

_MODERN_BASE = EncoderConfig(
    vocab=50_368,
    layers=22,
    hidden_size=768,
    heads=12,
    intermediate_size=1152,
    max_tokens=8192,
    norm="pre",
    positions="rotary",
    segments=0,
    gated=True,
    biases=False,
    norm_biases=False,
    head_biases=False,
    norm_eps=1e-5,
    first_norm=False,
    final_norm=True,
    local_window=64,
    global_every=3,
    rotary_base=160_000.0,
    local_rotary_base=10_000.0,
    dropout=0.0,
    attention_dropout=0.0,
)

PRESETS: Mapping[str, EncoderConfig] = {
    "tiny": EncoderConfig(vocab=1024, layers=2, hidden_size=64, heads=4, intermediate_size=128, max_tokens=128),
    "bert-base": _BERT_BASE,
    "bert-large": _BERT_LARGE,
    "roberta-base": _ROBERTA_BASE,
    "roberta-large": _ROBERTA_LARGE,
    "distilbert": replace(_BERT_BASE, layers=6, segments=0),
    "modernbert-base": _MODERN_BASE,
    "modernbert-large": replace(_MODERN_BASE, layers=28, hidden_size=1024, heads=16, intermediate_size=2624),
    "bioformer-8l": _BIOFORMER_8L,
    "bioformer-16l": _BIOFORMER_16L,
    "biomegatron-345m": _BIOMEGATRON_345M,
    "biomegatron-800m": _BIOMEGATRON_800M,
    "biomegatron-1.2b": _BIOMEGATRON_1200M,
}


def preset(name: str, *, vocab: int | None = None) -> EncoderConfig:
    """The configuration of a named encoder, with the vocabulary size of your tokenizer."""
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, 1)
        hint = f" Did you mean {near[0]}?" if near else ""
        known = ", ".join(PRESETS)
        raise UsageError(f"unknown encoder {name!r}; expected one of {known}.{hint}", code="unknown-preset", value=name)
    return PRESETS[name] if vocab is None else replace(PRESETS[name], vocab=vocab)


# Cosines and sines of a batch's rotary angles, (T, 1, K) each, in float32.
Rotary = tuple[Tensor, Tensor]


class Encoder(nn.Module):
    """Token ids of packed sequences to hidden states, (T,) to (T, D).

    Set `gradient_checkpointing` to recompute each layer in the backward pass instead of keeping its activations.
    Weights are initialized from torch's generator: seed it first.
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
        rotary = self._rotary(packing)
        for layer in self.layers:
            if self.gradient_checkpointing and self.training:
                hidden_TD = checkpoint(layer, hidden_TD, packing, rotary, use_reentrant=False)
            else:
                hidden_TD = layer(hidden_TD, packing, rotary)
        normed_TD: Tensor = self.final_norm(hidden_TD)
        return normed_TD

    def _rotary(self, packing: Packing) -> dict[float, Rotary]:
        """The cosines and sines for each rotary base: once per batch, not once per layer."""
        if self.config.positions != "rotary":
            return {}
        bases = {self.config.rotary_base_of(number) for number in range(self.config.layers)}
        return {base: rotary_cos_sin(packing.positions_T, self.config.head_size, base=base) for base in sorted(bases)}


class Embeddings(nn.Module):
    """The normalized sum of token, position and segment embeddings."""

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
            segment_TD = self.segments.weight[0] if segments_T is None else self.segments(segments_T)
            sum_TD = sum_TD + segment_TD
        dropped_TD: Tensor = self.dropout(self.norm(sum_TD))
        return dropped_TD


class Layer(nn.Module):
    """Self-attention and feed-forward, each with a residual connection and a layer norm."""

    def __init__(self, config: EncoderConfig, number: int) -> None:
        super().__init__()
        self.pre = config.norm == "pre"
        self.attention = Attention(config, number)
        self.attention_norm = layer_norm(config) if config.first_norm or number > 0 else nn.Identity()
        self.mlp = FeedForward(config)
        self.mlp_norm = layer_norm(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, hidden_TD: Tensor, packing: Packing, rotary: dict[float, Rotary]) -> Tensor:
        if self.pre:
            hidden_TD = hidden_TD + self.dropout(self.attention(self.attention_norm(hidden_TD), packing, rotary))
            sum_TD: Tensor = hidden_TD + self.dropout(self.mlp(self.mlp_norm(hidden_TD)))
            return sum_TD
        hidden_TD = self.attention_norm(hidden_TD + self.dropout(self.attention(hidden_TD, packing, rotary)))
        normed_TD: Tensor = self.mlp_norm(hidden_TD + self.dropout(self.mlp(hidden_TD)))
        return normed_TD


class Attention(nn.Module):
    """Self-attention with a fused query, key and value projection.

    Its rows are ordered by head: K rows of a head's query, K of its key, K of its value, then the next head. So a
    block of rows is a block of whole heads, which torch's tensor parallelism can shard. key_mapping.fuse_qkv and
    split_qkv convert from and to three separate matrices.
    """

    def __init__(self, config: EncoderConfig, number: int) -> None:
        super().__init__()
        self.head_size = config.head_size
        self.window = config.window(number)
        self.rotary_base = config.rotary_base_of(number)
        self.dropout = config.attention_dropout
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=config.biases)
        self.out = nn.Linear(config.hidden_size, config.hidden_size, bias=config.biases)

    def forward(self, hidden_TD: Tensor, packing: Packing, rotary: dict[float, Rotary]) -> Tensor:
        # -1: with tensor parallelism a process has only some of the heads.
        qkv_TH3K = self.qkv(hidden_TD).unflatten(-1, (-1, 3, self.head_size))
        dropout = self.dropout if self.training else 0.0
        if rotary:
            query_THK, key_THK, value_THK = qkv_TH3K.unbind(-2)
            query_THK = apply_rotary(query_THK, rotary[self.rotary_base])
            key_THK = apply_rotary(key_THK, rotary[self.rotary_base])
            context_THK = attend(query_THK, key_THK, value_THK, packing, window=self.window, dropout=dropout)
        else:
            context_THK = attend_fused(qkv_TH3K, packing, window=self.window, dropout=dropout)
        out_TD: Tensor = self.out(context_THK.flatten(-2))
        return out_TD


class FeedForward(nn.Module):
    """A two-layer MLP; if gated, one half of the first layer's output gates the other."""

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


def rotary_cos_sin(positions_T: Tensor, head_size: int, *, base: float) -> Rotary:
    """Cosine and sine of each position's angles. In float32: bfloat16 cannot represent all integers to 8,192.

    The frequencies are computed here and not kept as a buffer, which casting the model would round.
    """
    with torch.autocast(positions_T.device.type, enabled=False):
        even = torch.arange(0, head_size, 2, device=positions_T.device, dtype=torch.float32)
        frequencies = 1.0 / base ** (even / head_size)
        angles_TK = (positions_T.float()[:, None] * frequencies).repeat(1, 2)
        return angles_TK.cos()[:, None], angles_TK.sin()[:, None]


def apply_rotary(vectors_THK: Tensor, rotary: Rotary) -> Tensor:
    """Vectors with each pair of dimensions (k, k + K/2) rotated by its angle, in their own dtype."""
    cos_T1K, sin_T1K = rotary
    float_THK = vectors_THK.float()
    first, second = float_THK.chunk(2, dim=-1)
    rotated_THK = torch.cat((-second, first), dim=-1)
    return (float_THK * cos_T1K + rotated_THK * sin_T1K).to(vectors_THK.dtype)


def activation(name: str) -> nn.Module:
    """The module for a name in config.ACTIVATIONS."""
    known = {"relu": nn.ReLU, "silu": nn.SiLU, "tanh": nn.Tanh}
    if name in known:
        return known[name]()
    return nn.GELU(approximate="tanh" if name == "gelu_tanh" else "none")


def layer_norm(config: EncoderConfig) -> nn.LayerNorm:
    """A layer norm over the hidden size."""
    return nn.LayerNorm(config.hidden_size, eps=config.norm_eps, bias=config.norm_biases)


def init_weights(module: nn.Module, config: EncoderConfig) -> None:
    """Initialize weights as BERT does: normal, biases 0, norms 1. Also for use after `to_empty` on another device."""
    for name, part in module.named_modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            scaled = config.scaled_init and name.endswith((".attention.out", ".mlp.down"))
            std = config.initial_std / math.sqrt(2 * config.layers) if scaled else config.initial_std
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
    """The number of parameters; tied weights count once."""
    return sum(weight.numel() for weight in module.parameters())
