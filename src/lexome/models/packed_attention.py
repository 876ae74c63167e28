"""Attention for packed sequences of a few hundred tokens, forward and backward, as Triton kernels.

torch's own packed kernel is made for long sequences: on abstracts most of its backward pass is work on tiles that are
half empty, and it adds up in any order unless told otherwise, which is slower still. These go in tiles of 64 tokens,
read query, key and value where they lie, write their gradients there too, and give the same bits each time.
docs/decisions/0016-attention.md has what was measured.

T tokens of the packed batch, H heads, K width a head, B tiles
"""

from typing import Any

import torch
from torch import Tensor

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


def fits(qkv_TH3K: Tensor) -> bool:
    """Whether the kernels are here and take such tensors."""
    return (
        kernels is not None
        and qkv_TH3K.is_cuda
        and qkv_TH3K.dtype in (torch.bfloat16, torch.float16)
        and qkv_TH3K.shape[-1] in HEAD_WIDTHS
    )


def attend_packed(qkv_TH3K: Tensor, packing: Packing) -> Tensor:
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


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(inputs[0], *output, inputs[1])


def _differentiate(ctx: Any, gradient_THK: Tensor, _: Tensor) -> tuple[Tensor, None]:
    return packed_attention_backward(gradient_THK, *ctx.saved_tensors), None


packed_attention.register_autograd(_differentiate, setup_context=_keep)
