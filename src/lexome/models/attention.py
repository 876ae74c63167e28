"""Self-attention within each sequence of a packed batch: our Triton kernel, torch's varlen kernel, or plain SDPA.

T tokens of the packed batch, S sequences, H heads, K head size, N sequences of one length, L that length
"""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from lexome.errors import UsageError

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

    On CUDA in half precision this is torch's varlen kernel, which does not support attention dropout. With dropout, in
    float32, and on a CPU, sequences of equal length are batched for scaled_dot_product_attention.
    """
    context_THK: Tensor
    if _varlen_kernel_supports(query_THK, window=window, dropout=dropout):
        assert _varlen is not None
        sides = {} if window is None else {"window_size": (window, window)}
        bounds, longest = packing.bounds_S1, packing.longest
        context_THK = _varlen(query_THK, key_THK, value_THK, bounds, bounds, longest, longest, **sides)
    else:
        context_THK = _attend_by_length(query_THK, key_THK, value_THK, packing, window=window, dropout=dropout)
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


def _attend_padded(
    query_NLHK: Tensor, key_NLHK: Tensor, value_NLHK: Tensor, *, window: int | None, dropout: float
) -> Tensor:
    length = query_NLHK.shape[1]
    mask_LL = None
    if window is not None and window < length - 1:
        position_L = torch.arange(length, device=query_NLHK.device)
        mask_LL = (position_L[:, None] - position_L[None, :]).abs() <= window
    context_NHLK = scaled_dot_product_attention(
        query_NLHK.transpose(1, 2),
        key_NLHK.transpose(1, 2),
        value_NLHK.transpose(1, 2),
        attn_mask=mask_LL,
        dropout_p=dropout,
    )
    return context_NHLK.transpose(1, 2)
