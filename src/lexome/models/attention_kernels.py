"""Triton kernels of packed_attention.py: a program for each head and each tile of tokens of one sequence.

A tile is (its first token, the first token of its sequence, the end of its sequence); one of zeros has nothing to do.

T tokens of the packed batch, H heads, K width a head, M tokens of a program's own tile, N tokens of another tile
"""

import triton
import triton.language as tl


@triton.jit
def forward(
    qkv,
    mixed,
    sums,
    tiles,
    tokens,
    scale,
    H: tl.constexpr,
    K: tl.constexpr,
    M: tl.constexpr,
):
    tile, head = tl.program_id(0), tl.program_id(1)
    begin, first, end = tl.load(tiles + tile * 3), tl.load(tiles + tile * 3 + 1), tl.load(tiles + tile * 3 + 2)
    if begin < end:
        k_K = tl.arange(0, K)
        t_M = begin + tl.arange(0, M)
        live_M = t_M < end
        row_M = t_M.to(tl.int64) * (3 * H * K) + head * (3 * K)
        query_MK = tl.load(qkv + row_M[:, None] + k_K[None, :], mask=live_M[:, None], other=0.0)
        most_M = tl.full((M,), -1e30, tl.float32)
        sum_M = tl.zeros((M,), tl.float32)
        mixed_MK = tl.zeros((M, K), tl.float32)
        for at in range(first, end, M):
            t_N = at + tl.arange(0, M)
            live_N = t_N < end
            row_N = t_N.to(tl.int64) * (3 * H * K) + head * (3 * K)
            key_NK = tl.load(qkv + row_N[:, None] + (K + k_K)[None, :], mask=live_N[:, None], other=0.0)
            value_NK = tl.load(qkv + row_N[:, None] + (2 * K + k_K)[None, :], mask=live_N[:, None], other=0.0)
            score_MN = tl.dot(query_MK, tl.trans(key_NK)) * scale
            score_MN = tl.where(live_N[None, :], score_MN, -1e30)
            higher_M = tl.maximum(most_M, tl.max(score_MN, 1))
            share_MN = tl.exp2(score_MN - higher_M[:, None])
            shrink_M = tl.exp2(most_M - higher_M)
            sum_M = sum_M * shrink_M + tl.sum(share_MN, 1)
            mixed_MK = tl.dot(share_MN.to(value_NK.dtype), value_NK, mixed_MK * shrink_M[:, None])
            most_M = higher_M
        mixed_MK = mixed_MK / sum_M[:, None]
        out_M = t_M.to(tl.int64) * (H * K) + head * K
        tl.store(mixed + out_M[:, None] + k_K[None, :], mixed_MK.to(query_MK.dtype), mask=live_M[:, None])
        tl.store(sums + head * tokens + t_M, most_M + tl.log2(sum_M), mask=live_M)


@triton.jit
def backward_query(
    qkv,
    mixed,
    gradient,
    gradients,
    sums,
    own,
    tiles,
    tokens,
    scale,
    scale_log2,
    H: tl.constexpr,
    K: tl.constexpr,
    M: tl.constexpr,
):
    tile, head = tl.program_id(0), tl.program_id(1)
    begin, first, end = tl.load(tiles + tile * 3), tl.load(tiles + tile * 3 + 1), tl.load(tiles + tile * 3 + 2)
    if begin < end:
        k_K = tl.arange(0, K)
        t_M = begin + tl.arange(0, M)
        live_M = t_M < end
        row_M = t_M.to(tl.int64) * (3 * H * K) + head * (3 * K)
        out_M = t_M.to(tl.int64) * (H * K) + head * K
        query_MK = tl.load(qkv + row_M[:, None] + k_K[None, :], mask=live_M[:, None], other=0.0)
        mixed_MK = tl.load(mixed + out_M[:, None] + k_K[None, :], mask=live_M[:, None], other=0.0)
        given_MK = tl.load(gradient + out_M[:, None] + k_K[None, :], mask=live_M[:, None], other=0.0)
        sum_M = tl.load(sums + head * tokens + t_M, mask=live_M, other=0.0)
        # What a share's gradient is measured from: the mean over the shares of a token.
        own_M = tl.sum(mixed_MK.to(tl.float32) * given_MK.to(tl.float32), 1)
        tl.store(own + head * tokens + t_M, own_M, mask=live_M)
        gradient_MK = tl.zeros((M, K), tl.float32)
        for at in range(first, end, M):
            t_N = at + tl.arange(0, M)
            live_N = t_N < end
            row_N = t_N.to(tl.int64) * (3 * H * K) + head * (3 * K)
            key_NK = tl.load(qkv + row_N[:, None] + (K + k_K)[None, :], mask=live_N[:, None], other=0.0)
            value_NK = tl.load(qkv + row_N[:, None] + (2 * K + k_K)[None, :], mask=live_N[:, None], other=0.0)
            score_MN = tl.dot(query_MK, tl.trans(key_NK)) * scale_log2
            share_MN = tl.where(live_N[None, :], tl.exp2(score_MN - sum_M[:, None]), 0.0)
            change_MN = share_MN * (tl.dot(given_MK, tl.trans(value_NK)) - own_M[:, None])
            gradient_MK = tl.dot(change_MN.to(key_NK.dtype), key_NK, gradient_MK)
        gradient_MK = (gradient_MK * scale).to(query_MK.dtype)
        tl.store(gradients + row_M[:, None] + k_K[None, :], gradient_MK, mask=live_M[:, None])


@triton.jit
def backward_key_value(
    qkv,
    gradient,
    gradients,
    sums,
    own,
    tiles,
    tokens,
    scale,
    scale_log2,
    H: tl.constexpr,
    K: tl.constexpr,
    M: tl.constexpr,
):
    tile, head = tl.program_id(0), tl.program_id(1)
    begin, first, end = tl.load(tiles + tile * 3), tl.load(tiles + tile * 3 + 1), tl.load(tiles + tile * 3 + 2)
    if begin < end:
        k_K = tl.arange(0, K)
        t_M = begin + tl.arange(0, M)
        live_M = t_M < end
        row_M = t_M.to(tl.int64) * (3 * H * K) + head * (3 * K)
        key_MK = tl.load(qkv + row_M[:, None] + (K + k_K)[None, :], mask=live_M[:, None], other=0.0)
        value_MK = tl.load(qkv + row_M[:, None] + (2 * K + k_K)[None, :], mask=live_M[:, None], other=0.0)
        key_gradient_MK = tl.zeros((M, K), tl.float32)
        value_gradient_MK = tl.zeros((M, K), tl.float32)
        for at in range(first, end, M):
            t_N = at + tl.arange(0, M)
            live_N = t_N < end
            row_N = t_N.to(tl.int64) * (3 * H * K) + head * (3 * K)
            out_N = t_N.to(tl.int64) * (H * K) + head * K
            # Tokens past the end are zeros everywhere, so they add nothing.
            query_NK = tl.load(qkv + row_N[:, None] + k_K[None, :], mask=live_N[:, None], other=0.0)
            given_NK = tl.load(gradient + out_N[:, None] + k_K[None, :], mask=live_N[:, None], other=0.0)
            sum_N = tl.load(sums + head * tokens + t_N, mask=live_N, other=0.0)
            own_N = tl.load(own + head * tokens + t_N, mask=live_N, other=0.0)
            share_MN = tl.exp2(tl.dot(key_MK, tl.trans(query_NK)) * scale_log2 - sum_N[None, :])
            value_gradient_MK = tl.dot(share_MN.to(given_NK.dtype), given_NK, value_gradient_MK)
            change_MN = share_MN * (tl.dot(value_MK, tl.trans(given_NK)) - own_N[None, :])
            key_gradient_MK = tl.dot(change_MN.to(query_NK.dtype), query_NK, key_gradient_MK)
        key_gradient_MK = (key_gradient_MK * scale).to(key_MK.dtype)
        tl.store(gradients + row_M[:, None] + (K + k_K)[None, :], key_gradient_MK, mask=live_M[:, None])
        value_gradient_MK = value_gradient_MK.to(key_MK.dtype)
        tl.store(gradients + row_M[:, None] + (2 * K + k_K)[None, :], value_gradient_MK, mask=live_M[:, None])
