"""Triton kernels of the attention in encoder.py: one program per head and tile of tokens of one sequence.

A tile is (its first token, the start of its sequence, the end of its sequence); a tile of zeros is padding.

T tokens of the packed batch, H heads, K head size, M tokens of a program's own tile, N tokens of another tile
"""

import triton
import triton.language as tl


@triton.jit
def forward(qkv, out, lse, tiles, tokens, scale, H: tl.constexpr, K: tl.constexpr, M: tl.constexpr):
    tile, head = tl.program_id(0), tl.program_id(1)
    tile_start, start, end = tl.load(tiles + tile * 3), tl.load(tiles + tile * 3 + 1), tl.load(tiles + tile * 3 + 2)
    if tile_start < end:
        k_K = tl.arange(0, K)
        t_M = tile_start + tl.arange(0, M)
        live_M = t_M < end
        row_M = t_M.to(tl.int64) * (3 * H * K) + head * (3 * K)
        query_MK = tl.load(qkv + row_M[:, None] + k_K[None, :], mask=live_M[:, None], other=0.0)
        max_M = tl.full((M,), -1e30, tl.float32)
        sum_M = tl.zeros((M,), tl.float32)
        out_MK = tl.zeros((M, K), tl.float32)
        for block_start in range(start, end, M):
            t_N = block_start + tl.arange(0, M)
            live_N = t_N < end
            row_N = t_N.to(tl.int64) * (3 * H * K) + head * (3 * K)
            key_NK = tl.load(qkv + row_N[:, None] + (K + k_K)[None, :], mask=live_N[:, None], other=0.0)
            value_NK = tl.load(qkv + row_N[:, None] + (2 * K + k_K)[None, :], mask=live_N[:, None], other=0.0)
            score_MN = tl.dot(query_MK, tl.trans(key_NK)) * scale
            score_MN = tl.where(live_N[None, :], score_MN, -1e30)
            new_max_M = tl.maximum(max_M, tl.max(score_MN, 1))
            prob_MN = tl.exp2(score_MN - new_max_M[:, None])
            rescale_M = tl.exp2(max_M - new_max_M)
            sum_M = sum_M * rescale_M + tl.sum(prob_MN, 1)
            out_MK = tl.dot(prob_MN.to(value_NK.dtype), value_NK, out_MK * rescale_M[:, None])
            max_M = new_max_M
        out_MK = out_MK / sum_M[:, None]
        out_row_M = t_M.to(tl.int64) * (H * K) + head * K
        tl.store(out + out_row_M[:, None] + k_K[None, :], out_MK.to(query_MK.dtype), mask=live_M[:, None])
        tl.store(lse + head * tokens + t_M, max_M + tl.log2(sum_M), mask=live_M)


@triton.jit
def backward_query(
    qkv,
    out,
    grad_out,
    grad_qkv,
    lse,
    delta,
    tiles,
    tokens,
    scale,
    scale_log2,
    H: tl.constexpr,
    K: tl.constexpr,
    M: tl.constexpr,
):
    tile, head = tl.program_id(0), tl.program_id(1)
    tile_start, start, end = tl.load(tiles + tile * 3), tl.load(tiles + tile * 3 + 1), tl.load(tiles + tile * 3 + 2)
    if tile_start < end:
        k_K = tl.arange(0, K)
        t_M = tile_start + tl.arange(0, M)
        live_M = t_M < end
        row_M = t_M.to(tl.int64) * (3 * H * K) + head * (3 * K)
        out_row_M = t_M.to(tl.int64) * (H * K) + head * K
        query_MK = tl.load(qkv + row_M[:, None] + k_K[None, :], mask=live_M[:, None], other=0.0)
        out_MK = tl.load(out + out_row_M[:, None] + k_K[None, :], mask=live_M[:, None], other=0.0)
        grad_out_MK = tl.load(grad_out + out_row_M[:, None] + k_K[None, :], mask=live_M[:, None], other=0.0)
        lse_M = tl.load(lse + head * tokens + t_M, mask=live_M, other=0.0)
        # The softmax gradient subtracts the row sum of out * grad_out (FlashAttention's delta).
        delta_M = tl.sum(out_MK.to(tl.float32) * grad_out_MK.to(tl.float32), 1)
        tl.store(delta + head * tokens + t_M, delta_M, mask=live_M)
        grad_query_MK = tl.zeros((M, K), tl.float32)
        for block_start in range(start, end, M):
            t_N = block_start + tl.arange(0, M)
            live_N = t_N < end
            row_N = t_N.to(tl.int64) * (3 * H * K) + head * (3 * K)
            key_NK = tl.load(qkv + row_N[:, None] + (K + k_K)[None, :], mask=live_N[:, None], other=0.0)
            value_NK = tl.load(qkv + row_N[:, None] + (2 * K + k_K)[None, :], mask=live_N[:, None], other=0.0)
            score_MN = tl.dot(query_MK, tl.trans(key_NK)) * scale_log2
            prob_MN = tl.where(live_N[None, :], tl.exp2(score_MN - lse_M[:, None]), 0.0)
            grad_score_MN = prob_MN * (tl.dot(grad_out_MK, tl.trans(value_NK)) - delta_M[:, None])
            grad_query_MK = tl.dot(grad_score_MN.to(key_NK.dtype), key_NK, grad_query_MK)
        grad_query_MK = (grad_query_MK * scale).to(query_MK.dtype)
        tl.store(grad_qkv + row_M[:, None] + k_K[None, :], grad_query_MK, mask=live_M[:, None])


@triton.jit
def backward_key_value(
    qkv,
    grad_out,
    grad_qkv,
    lse,
    delta,
    tiles,
    tokens,
    scale,
    scale_log2,
    H: tl.constexpr,
    K: tl.constexpr,
    M: tl.constexpr,
):
    tile, head = tl.program_id(0), tl.program_id(1)
    tile_start, start, end = tl.load(tiles + tile * 3), tl.load(tiles + tile * 3 + 1), tl.load(tiles + tile * 3 + 2)
    if tile_start < end:
        k_K = tl.arange(0, K)
        t_M = tile_start + tl.arange(0, M)
        live_M = t_M < end
        row_M = t_M.to(tl.int64) * (3 * H * K) + head * (3 * K)
        key_MK = tl.load(qkv + row_M[:, None] + (K + k_K)[None, :], mask=live_M[:, None], other=0.0)
        value_MK = tl.load(qkv + row_M[:, None] + (2 * K + k_K)[None, :], mask=live_M[:, None], other=0.0)
        grad_key_MK = tl.zeros((M, K), tl.float32)
        grad_value_MK = tl.zeros((M, K), tl.float32)
        for block_start in range(start, end, M):
            t_N = block_start + tl.arange(0, M)
            live_N = t_N < end
            row_N = t_N.to(tl.int64) * (3 * H * K) + head * (3 * K)
            out_row_N = t_N.to(tl.int64) * (H * K) + head * K
            # Tokens past the end load as zeros, so they contribute nothing.
            query_NK = tl.load(qkv + row_N[:, None] + k_K[None, :], mask=live_N[:, None], other=0.0)
            grad_out_NK = tl.load(grad_out + out_row_N[:, None] + k_K[None, :], mask=live_N[:, None], other=0.0)
            lse_N = tl.load(lse + head * tokens + t_N, mask=live_N, other=0.0)
            delta_N = tl.load(delta + head * tokens + t_N, mask=live_N, other=0.0)
            prob_MN = tl.exp2(tl.dot(key_MK, tl.trans(query_NK)) * scale_log2 - lse_N[None, :])
            grad_value_MK = tl.dot(prob_MN.to(grad_out_NK.dtype), grad_out_NK, grad_value_MK)
            grad_score_MN = prob_MN * (tl.dot(value_MK, tl.trans(grad_out_NK)) - delta_N[None, :])
            grad_key_MK = tl.dot(grad_score_MN.to(query_NK.dtype), query_NK, grad_key_MK)
        grad_key_MK = (grad_key_MK * scale).to(key_MK.dtype)
        tl.store(grad_qkv + row_M[:, None] + (K + k_K)[None, :], grad_key_MK, mask=live_M[:, None])
        grad_value_MK = grad_value_MK.to(key_MK.dtype)
        tl.store(grad_qkv + row_M[:, None] + (2 * K + k_K)[None, :], grad_value_MK, mask=live_M[:, None])
