"""Attention inside each sequence of a packed batch, through torch's own kernels.

T tokens of the packed batch, S sequences, H heads, K width a head, N sequences of one length, L that length
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from lexome.models.packing import TILE, Packing

try:
    from lexome.models import attention_kernels as kernels
except ImportError:  # torch for CPUs comes without Triton
    kernels = None  # type: ignore[assignment]

HEAD_WIDTHS = (32, 64, 128)
LOG2_E = 1.4426950408889634
# How each kernel is compiled: the fastest of those tried on an H200 with heads of 64.
FORWARD = {"num_warps": 4, "num_stages": 3}
QUERY = {"num_warps": 4, "num_stages": 2}
KEY_VALUE = {"num_warps": 4, "num_stages": 1}


def tile_kernel_supports(qkv_TH3K: Tensor) -> bool:
    """Whether the kernels are here and take such tensors."""
    return (
        kernels is not None
        and qkv_TH3K.is_cuda
        and qkv_TH3K.dtype in (torch.bfloat16, torch.float16)
        and qkv_TH3K.shape[-1] in HEAD_WIDTHS
    )


def attend_tiles(qkv_TH3K: Tensor, packing: Packing) -> Tensor:
    """Each token's mix of the values of its own sequence; (T, H, K)."""
    mixed_THK: Tensor = packed_attention(qkv_TH3K, packing.tiles_B3)[0]
    return mixed_THK


@torch.library.custom_op("lexome::packed_attention", mutates_args=())
def packed_attention(qkv_TH3K: Tensor, tiles_B3: Tensor) -> tuple[Tensor, Tensor]:
    """The mix, (T, H, K), and the logarithms to base 2 of the softmax's sums, (H, T)."""
    qkv_TH3K = qkv_TH3K.contiguous()
    tokens, heads, _, width = qkv_TH3K.shape
    mixed_THK = qkv_TH3K.new_empty((tokens, heads, width))
    sums_HT = qkv_TH3K.new_empty((heads, tokens), dtype=torch.float32)
    kernels.forward[(tiles_B3.shape[0], heads)](
        qkv_TH3K, mixed_THK, sums_HT, tiles_B3, tokens, width**-0.5 * LOG2_E, heads, width, TILE, **FORWARD
    )
    return mixed_THK, sums_HT


@packed_attention.register_fake
def _(qkv_TH3K: Tensor, tiles_B3: Tensor) -> tuple[Tensor, Tensor]:
    tokens, heads, _, width = qkv_TH3K.shape
    sums_HT = qkv_TH3K.new_empty((heads, tokens), dtype=torch.float32)
    return qkv_TH3K.new_empty((tokens, heads, width)), sums_HT


@torch.library.custom_op("lexome::packed_attention_backward", mutates_args=())
def packed_attention_backward(
    gradient_THK: Tensor, qkv_TH3K: Tensor, mixed_THK: Tensor, sums_HT: Tensor, tiles_B3: Tensor
) -> Tensor:
    """The gradient of query, key and value, (T, H, 3, K)."""
    qkv_TH3K, gradient_THK = qkv_TH3K.contiguous(), gradient_THK.contiguous()
    tokens, heads, _, width = qkv_TH3K.shape
    gradient_TH3K = torch.empty_like(qkv_TH3K)
    own_HT = torch.empty_like(sums_HT)
    grid, scale = (tiles_B3.shape[0], heads), width**-0.5
    shared = (sums_HT, own_HT, tiles_B3, tokens, scale, scale * LOG2_E, heads, width, TILE)
    kernels.backward_query[grid](qkv_TH3K, mixed_THK, gradient_THK, gradient_TH3K, *shared, **QUERY)
    kernels.backward_key_value[grid](qkv_TH3K, gradient_THK, gradient_TH3K, *shared, **KEY_VALUE)
    return gradient_TH3K


@packed_attention_backward.register_fake
def _(gradient_THK: Tensor, qkv_TH3K: Tensor, mixed_THK: Tensor, sums_HT: Tensor, tiles_B3: Tensor) -> Tensor:
    return qkv_TH3K.new_empty(qkv_TH3K.shape)


def _setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(inputs[0], *output, inputs[1])


def _backward(ctx: Any, gradient_THK: Tensor, _: Tensor) -> tuple[Tensor, None]:
    return packed_attention_backward(gradient_THK, *ctx.saved_tensors), None


packed_attention.register_autograd(_backward, setup_context=_setup_context)


try:
    from torch.nn.attention.varlen import varlen_attn

    _varlen: Callable[..., Any] | None = varlen_attn
    # The first releases with this kernel knew only whole sequences.
    _varlen_has_windows = "window_size" in inspect.signature(varlen_attn).parameters
except ImportError:  # torch before 2.10
    _varlen, _varlen_has_windows = None, False

# What flash attention is compiled for. Other types take the general path.
KERNEL_TYPES = (torch.bfloat16, torch.float16)


def attend_fused(qkv_TH3K: Tensor, packing: Packing, *, window: int | None, dropout: float) -> Tensor:
    """`attend` for query, key and value that lie in one tensor as they came out of one matrix."""
    if window is None and dropout == 0.0 and tile_kernel_supports(qkv_TH3K):
        return attend_tiles(qkv_TH3K, packing)
    query_THK, key_THK, value_THK = qkv_TH3K.unbind(-2)
    return attend(query_THK, key_THK, value_THK, packing, window=window, dropout=dropout)


def attend(
    query_THK: Tensor, key_THK: Tensor, value_THK: Tensor, packing: Packing, *, window: int | None, dropout: float
) -> Tensor:
    """Each token's mix of the values of its own sequence, or of `window` tokens to each side; (T, H, K).

    On CUDA in half precision this is one packed kernel. It has no dropout of attention weights: torch gives it none.
    With dropout, in float32, and on a CPU, sequences of equal length go together through ordinary attention.
    """
    mixed_THK: Tensor
    if _varlen_kernel_supports(query_THK, window=window, dropout=dropout):
        assert _varlen is not None
        sides = {} if window is None else {"window_size": (window, window)}
        bounds, longest = packing.bounds_S1, packing.longest
        mixed_THK = _varlen(query_THK, key_THK, value_THK, bounds, bounds, longest, longest, **sides)
        return mixed_THK
    mixed_THK = _attend_by_length(query_THK, key_THK, value_THK, packing, window=window, dropout=dropout)
    return mixed_THK


def _varlen_kernel_supports(query_THK: Tensor, *, window: int | None, dropout: float) -> bool:
    return (
        _varlen is not None
        and query_THK.is_cuda
        and query_THK.dtype in KERNEL_TYPES
        and dropout == 0.0
        and (window is None or _varlen_has_windows)
    )


def varlen_kernel_available(dtype: torch.dtype | None, *, windows: bool) -> bool:
    """Whether tensors of this type on a GPU go through the packed kernel, if nothing is dropped."""
    return _varlen is not None and dtype in KERNEL_TYPES and (_varlen_has_windows or not windows)


# Lengths are Python numbers here, so a compiled graph would be made anew for every batch.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def _attend_by_length(
    query_THK: Tensor, key_THK: Tensor, value_THK: Tensor, packing: Packing, *, window: int | None, dropout: float
) -> Tensor:
    """Attention over each group of sequences of one length. Exact, and as many calls as there are lengths."""
    lengths = set(packing.lengths)
    if len(lengths) == 1:
        # Nothing to gather: the batch is a rectangle already.
        shape = (len(packing.lengths), packing.lengths[0])
        parts = [tensor.view(*shape, *tensor.shape[1:]) for tensor in (query_THK, key_THK, value_THK)]
        return _attend_padded(*parts, window=window, dropout=dropout).flatten(0, 1)
    places, undo_T = packing.groups()
    mixed = [
        _attend_padded(query_THK[place_NL], key_THK[place_NL], value_THK[place_NL], window=window, dropout=dropout)
        for place_NL in places
    ]
    return torch.cat([part_NLHK.flatten(0, 1) for part_NLHK in mixed])[undo_T]


def _attend_padded(
    query_NLHK: Tensor, key_NLHK: Tensor, value_NLHK: Tensor, *, window: int | None, dropout: float
) -> Tensor:
    length = query_NLHK.shape[1]
    seen_LL = None
    if window is not None and window < length - 1:
        place_L = torch.arange(length, device=query_NLHK.device)
        seen_LL = (place_L[:, None] - place_L[None, :]).abs() <= window
    mixed_NHLK = scaled_dot_product_attention(
        query_NLHK.transpose(1, 2),
        key_NLHK.transpose(1, 2),
        value_NLHK.transpose(1, 2),
        attn_mask=seen_LL,
        dropout_p=dropout,
    )
    return mixed_NHLK.transpose(1, 2)
