"""A plain transformer encoder for packed sequences. Speed and parallelism are applied from outside.

T tokens of the packed batch, S sequences, D hidden size, H heads, K head size, V vocabulary, I intermediate size
"""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from lexome.errors import UsageError, did_you_mean

# Tokens of a sequence per program of the attention kernel.
TILE = 64


class Packing:
    """The boundaries of each sequence in a packed batch.

    bounds_S1    int32, cumulative lengths: the first is 0, the last is T
    longest      at least the length of the longest sequence
    positions_T  int64: each token's position in its sequence
    tiles_B3     int32: for each tile its first token, and the start and end of its sequence; padded with zeros
    lengths      of each sequence, as Python integers, for the path without a packed kernel
    """

    def __init__(
        self, lengths: tuple[int, ...], bounds_S1: Tensor, *, longest: int, positions_T: Tensor, tiles_B3: Tensor
    ) -> None:
        self.lengths, self.longest = lengths, longest
        self.bounds_S1, self.positions_T, self.tiles_B3 = bounds_S1, positions_T, tiles_B3
        self._groups: tuple[list[Tensor], Tensor] | None = None

    @classmethod
    def of(
        cls,
        ends: Iterable[int],
        device: torch.device | str = "cpu",
        *,
        longest: int | None = None,
        sequences: int | None = None,
    ) -> "Packing":
        """The packing of sequences with these ends (exclusive): ends [3, 5] are tokens 0-2 and 3-4.

        torch.compile recompiles when a size changes. `longest` and `sequences` fix two of them to upper bounds; the
        sequences added for that are empty, at the end.
        """
        bounds = np.concatenate([[0], np.asarray(list(ends), dtype=np.int64)])
        lengths = np.diff(bounds)
        if len(lengths) == 0 or (lengths < 0).any():
            first = bounds[1:].tolist()[:8]
            message = f"sequence ends {first}; expected at least one, ascending."
            raise UsageError(message, code="bad-sequence-ends", value=first)
        most = int(lengths.max())
        if longest is not None and longest < most:
            message = f"a sequence has {most} tokens; the limit is {longest}. Truncate it."
            raise UsageError(message, code="sequence-too-long", value=most)
        if sequences is not None:
            if sequences < len(lengths):
                message = f"{len(lengths)} sequences; the limit is {sequences}"
                raise UsageError(message, code="too-many-sequences", value=len(lengths))
            bounds = np.pad(bounds, (0, sequences - len(lengths)), mode="edge")
        positions = np.arange(bounds[-1]) - np.repeat(bounds[: len(lengths)], lengths)
        return cls(
            tuple(lengths.tolist()),
            torch.from_numpy(bounds.astype(np.int32)).to(device, non_blocking=True),
            longest=most if longest is None else longest,
            positions_T=torch.from_numpy(positions).to(device, non_blocking=True),
            tiles_B3=torch.from_numpy(_tiles(bounds, fixed=sequences is not None)).to(device, non_blocking=True),
        )

    def to(self, device: torch.device | str) -> "Packing":
        """The same packing on another device."""
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))

    def map(self, transform: Callable[[Tensor], Tensor]) -> "Packing":
        """The same packing with a function applied to every tensor."""
        bounds_S1, positions_T, tiles_B3 = map(transform, self.tensors)
        return Packing(self.lengths, bounds_S1, longest=self.longest, positions_T=positions_T, tiles_B3=tiles_B3)

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """All tensors on the device."""
        return self.bounds_S1, self.positions_T, self.tiles_B3

    @property
    def firsts_S(self) -> Tensor:
        """The first token of each sequence, [CLS] in BERT; for empty sequences at the end, the last token."""
        return self.bounds_S1[:-1].long().clamp(max=self.positions_T.shape[0] - 1)

    def groups(self) -> tuple[list[Tensor], Tensor]:
        """Token indices of sequences of equal length, (N, L) each, and the permutation back to the packed order."""
        if self._groups is None:
            starts = np.cumsum([0, *self.lengths[:-1]])
            by_length: dict[int, list[int]] = {}
            for start, length in zip(starts.tolist(), self.lengths, strict=True):
                if length:
                    by_length.setdefault(length, []).append(start)
            indices = [np.asarray(firsts)[:, None] + np.arange(length) for length, firsts in by_length.items()]
            undo = np.argsort(np.concatenate([index.ravel() for index in indices]), kind="stable")
            device = self.positions_T.device
            self._groups = [torch.from_numpy(one).to(device) for one in indices], torch.from_numpy(undo).to(device)
        return self._groups


def _tiles(bounds: NDArray[np.int64], *, fixed: bool) -> NDArray[np.int32]:
    """The tiles of all sequences; with `fixed`, padded to the maximum for this number of tokens and sequences."""
    firsts, ends = bounds[:-1], bounds[1:]
    counts = -(-(ends - firsts) // TILE)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    begins = np.repeat(firsts, counts) + TILE * within
    tiles = np.stack([begins, np.repeat(firsts, counts), np.repeat(ends, counts)], axis=1).astype(np.int32)
    most = int(bounds[-1]) // TILE + len(firsts) if fixed else len(tiles)
    return np.pad(tiles, ((0, most - len(tiles)), (0, 0)))


try:
    from lexome.models import attention_kernels as kernels
except ImportError:  # torch for CPUs comes without Triton
    kernels = None  # type: ignore[assignment]

HEAD_SIZES = (32, 64, 128)
LOG2_E = 1.4426950408889634
# Compilation options of each kernel: the fastest of those tried on an H200 with a head size of 64.
FORWARD = {"num_warps": 4, "num_stages": 3}
QUERY = {"num_warps": 4, "num_stages": 2}
KEY_VALUE = {"num_warps": 4, "num_stages": 1}


def tile_kernel_supports(qkv_TH3K: Tensor) -> bool:
    """Whether our kernels are available and support such tensors."""
    return (
        kernels is not None
        and qkv_TH3K.is_cuda
        and qkv_TH3K.dtype in (torch.bfloat16, torch.float16)
        and qkv_TH3K.shape[-1] in HEAD_SIZES
    )


def attend_tiles(qkv_TH3K: Tensor, packing: Packing) -> Tensor:
    """Self-attention by our kernel; (T, H, K)."""
    context_THK: Tensor = packed_attention(qkv_TH3K, packing.tiles_B3)[0]
    return context_THK


@torch.library.custom_op("lexome::packed_attention", mutates_args=())
def packed_attention(qkv_TH3K: Tensor, tiles_B3: Tensor) -> tuple[Tensor, Tensor]:
    """The output, (T, H, K), and the base-2 log-sum-exp of the attention scores, (H, T)."""
    qkv_TH3K = qkv_TH3K.contiguous()
    tokens, heads, _, head_size = qkv_TH3K.shape
    context_THK = qkv_TH3K.new_empty((tokens, heads, head_size))
    lse_HT = qkv_TH3K.new_empty((heads, tokens), dtype=torch.float32)
    kernels.forward[(tiles_B3.shape[0], heads)](
        qkv_TH3K, context_THK, lse_HT, tiles_B3, tokens, head_size**-0.5 * LOG2_E, heads, head_size, TILE, **FORWARD
    )
    return context_THK, lse_HT


@packed_attention.register_fake
def _(qkv_TH3K: Tensor, tiles_B3: Tensor) -> tuple[Tensor, Tensor]:
    tokens, heads, _, head_size = qkv_TH3K.shape
    lse_HT = qkv_TH3K.new_empty((heads, tokens), dtype=torch.float32)
    return qkv_TH3K.new_empty((tokens, heads, head_size)), lse_HT


@torch.library.custom_op("lexome::packed_attention_backward", mutates_args=())
def packed_attention_backward(
    gradient_THK: Tensor, qkv_TH3K: Tensor, context_THK: Tensor, lse_HT: Tensor, tiles_B3: Tensor
) -> Tensor:
    """The gradient of query, key and value, (T, H, 3, K)."""
    qkv_TH3K, gradient_THK = qkv_TH3K.contiguous(), gradient_THK.contiguous()
    tokens, heads, _, head_size = qkv_TH3K.shape
    gradient_TH3K = torch.empty_like(qkv_TH3K)
    delta_HT = torch.empty_like(lse_HT)
    grid, scale = (tiles_B3.shape[0], heads), head_size**-0.5
    shared = (lse_HT, delta_HT, tiles_B3, tokens, scale, scale * LOG2_E, heads, head_size, TILE)
    kernels.backward_query[grid](qkv_TH3K, context_THK, gradient_THK, gradient_TH3K, *shared, **QUERY)
    kernels.backward_key_value[grid](qkv_TH3K, gradient_THK, gradient_TH3K, *shared, **KEY_VALUE)
    return gradient_TH3K


@packed_attention_backward.register_fake
def _(gradient_THK: Tensor, qkv_TH3K: Tensor, context_THK: Tensor, lse_HT: Tensor, tiles_B3: Tensor) -> Tensor:
    return qkv_TH3K.new_empty(qkv_TH3K.shape)


def _setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(inputs[0], *output, inputs[1])


def _backward(ctx: Any, gradient_THK: Tensor, _: Tensor) -> tuple[Tensor, None]:
    return packed_attention_backward(gradient_THK, *ctx.saved_tensors), None


packed_attention.register_autograd(_backward, setup_context=_setup_context)


try:
    from torch.nn.attention.varlen import varlen_attn

    _varlen: Callable[..., Any] | None = varlen_attn
    # The first releases with this kernel had no sliding window.
    _varlen_has_windows = "window_size" in inspect.signature(varlen_attn).parameters
except ImportError:  # torch before 2.10
    _varlen, _varlen_has_windows = None, False

# The dtypes that flash attention supports. Others take the general path.
KERNEL_DTYPES = (torch.bfloat16, torch.float16)


def attend_fused(qkv_TH3K: Tensor, packing: Packing, *, window: int | None, dropout: float) -> Tensor:
    """`attend` for query, key and value in one tensor, as a fused projection gives them."""
    if window is None and dropout == 0.0 and tile_kernel_supports(qkv_TH3K):
        return attend_tiles(qkv_TH3K, packing)
    query_THK, key_THK, value_THK = qkv_TH3K.unbind(-2)
    return attend(query_THK, key_THK, value_THK, packing, window=window, dropout=dropout)


def attend(
    query_THK: Tensor, key_THK: Tensor, value_THK: Tensor, packing: Packing, *, window: int | None, dropout: float
) -> Tensor:
    """Self-attention within each sequence, or within `window` tokens on each side; (T, H, K).

    On CUDA in half precision this is torch's varlen kernel, which does not support attention dropout. With dropout and
    in float32, sequences of equal length are batched for scaled_dot_product_attention; on a CPU each is by itself.
    """
    context_THK: Tensor
    if _varlen_kernel_supports(query_THK, window=window, dropout=dropout):
        assert _varlen is not None
        sides = {} if window is None else {"window_size": (window, window)}
        bounds, longest = packing.bounds_S1, packing.longest
        context_THK = _varlen(query_THK, key_THK, value_THK, bounds, bounds, longest, longest, **sides)
    else:
        apart = _attend_by_sequence if query_THK.device.type == "cpu" else _attend_by_length
        context_THK = apart(query_THK, key_THK, value_THK, packing, window=window, dropout=dropout)
    return context_THK


def _varlen_kernel_supports(query_THK: Tensor, *, window: int | None, dropout: float) -> bool:
    available = varlen_kernel_available(query_THK.dtype, windows=window is not None)
    return available and query_THK.is_cuda and dropout == 0.0


def varlen_kernel_available(dtype: torch.dtype | None, *, windows: bool) -> bool:
    """Whether tensors of this dtype on a GPU use the varlen kernel, without dropout."""
    return _varlen is not None and dtype in KERNEL_DTYPES and (_varlen_has_windows or not windows)


# Lengths are Python integers here, so a compiled graph would be recompiled for every batch.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def _attend_by_length(
    query_THK: Tensor, key_THK: Tensor, value_THK: Tensor, packing: Packing, *, window: int | None, dropout: float
) -> Tensor:
    """Attention over each group of sequences of equal length: exact, with one call per length."""
    lengths = set(packing.lengths)
    if len(lengths) == 1:
        # The batch is already rectangular.
        shape = (len(packing.lengths), packing.lengths[0])
        parts = [tensor.view(*shape, *tensor.shape[1:]) for tensor in (query_THK, key_THK, value_THK)]
        return _attend_padded(*parts, window=window, dropout=dropout).flatten(0, 1)
    groups, undo_T = packing.groups()
    context = [
        _attend_padded(query_THK[index_NL], key_THK[index_NL], value_THK[index_NL], window=window, dropout=dropout)
        for index_NL in groups
    ]
    return torch.cat([part_NLHK.flatten(0, 1) for part_NLHK in context])[undo_T]


# A group's gradient is as large as the batch, which costs a CPU more than a call: with 64 sequences of 15 to 60 tokens,
# forward and backward take half the time of groups.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def _attend_by_sequence(
    query_THK: Tensor, key_THK: Tensor, value_THK: Tensor, packing: Packing, *, window: int | None, dropout: float
) -> Tensor:
    """Attention over each sequence: exact, with one call per sequence, or a single call if all have one length."""
    if len(set(packing.lengths)) == 1:
        whole_THK: Tensor = _attend_by_length(query_THK, key_THK, value_THK, packing, window=window, dropout=dropout)
        return whole_THK
    sides = [torch.split(tensor, list(packing.lengths)) for tensor in (query_THK, key_THK, value_THK)]
    context = [
        _attend_padded(*(part_LHK[None] for part_LHK in parts), window=window, dropout=dropout)[0]
        for parts in zip(*sides, strict=True)
        if len(parts[0])
    ]
    return torch.cat(context)


def _attend_padded(
    query_NLHK: Tensor, key_NLHK: Tensor, value_NLHK: Tensor, *, window: int | None, dropout: float
) -> Tensor:
    length = query_NLHK.shape[1]
    mask_LL = None
    if window is not None and window < length - 1:
        position_L = torch.arange(length, device=query_NLHK.device)
        mask_LL = (position_L[:, None] - position_L[None, :]).abs() <= window
    sides = (query_NLHK.transpose(1, 2), key_NLHK.transpose(1, 2), value_NLHK.transpose(1, 2))
    trains_on_cpu = query_NLHK.device.type == "cpu" and torch.is_grad_enabled()
    if trains_on_cpu and query_NLHK.dtype == torch.bfloat16 and mask_LL is None:
        return _attend_by_products(*sides, dropout=dropout).transpose(1, 2)
    context_NHLK = functional.scaled_dot_product_attention(*sides, attn_mask=mask_LL, dropout_p=dropout)
    return context_NHLK.transpose(1, 2)


# The backward pass of torch's fused attention for CPUs is slow in bfloat16. One layer of 12 heads of 32, forward and
# backward on one core with AMX: 48 sequences of 15 to 90 tokens take 96 ms as products and 267 ms fused, 8 abstracts
# 87 and 110 ms. In float32, the fused one is faster.
def _attend_by_products(query_NHLK: Tensor, key_NHLK: Tensor, value_NHLK: Tensor, *, dropout: float) -> Tensor:
    """Attention as two matrix products with a float32 softmax between them."""
    scores_NHLL = query_NHLK * query_NHLK.shape[-1] ** -0.5 @ key_NHLK.transpose(-1, -2)
    weights_NHLL = functional.dropout(scores_NHLL.float().softmax(-1), dropout)
    return weights_NHLL.to(value_NHLK.dtype) @ value_NHLK


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
            message = f"hidden_size {self.hidden_size} is not a multiple of {self.heads} heads. Change one of them."
            raise UsageError(message, code="heads-mismatch", value=self.heads)
        choices = {"norm": ("post", "pre"), "positions": ("learned", "rotary")}
        for name, known in (choices | {"activation": ACTIVATIONS, "head_activation": ACTIVATIONS}).items():
            value = getattr(self, name)
            if value not in known:
                message = f"{name} is {value!r}; expected one of {', '.join(known)}."
                raise UsageError(message, code="unknown-option", value=value)
        if self.positions == "rotary" and self.head_size % 2:
            message = f"rotary positions need an even head size, not {self.head_size}. Change hidden_size or heads."
            raise UsageError(message, code="odd-head-size", value=self.head_size)

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
        hint = did_you_mean(name, PRESETS)
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
    block of rows is a block of whole heads, which torch's tensor parallelism can shard. hf.fuse_qkv and
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
