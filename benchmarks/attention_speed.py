"""Attention over packed sequences on one GPU: Lexome's kernels compared with torch's packed kernel.

    python benchmarks/attention_speed.py

The attention of one layer over 131,072 tokens, forward only and with the backward pass, for sequence lengths of
abstracts (about 290 tokens), short sequences (about 40) and full ones (512), for the heads of 8x512, 12x768, 16x384
and MiniLM. Query, key and value are in one tensor, as in the encoder. Differences are those of the gradients, relative
to their magnitude. Writes results/attention_speed.json.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.autograd import grad

from facts import facts
from lexome.models.encoder import Packing, attend, attend_fused

RESULT = Path(__file__).resolve().parents[1] / "results" / "attention_speed.json"
TOKENS = 131_072
HEADS = {"8x512": (8, 64), "12x768": (12, 64), "16x384": (6, 64), "6x384, 12 heads": (12, 32)}
LENGTHS = {"abstracts": (290, 110), "short": (40, 15), "full": (512, 0)}


def main() -> None:
    if not torch.cuda.is_available():
        sys.exit("this benchmark needs a GPU")
    rows = [measured(shape, text) for shape in HEADS for text in LENGTHS]
    for row in rows:
        print(json.dumps(row), flush=True)
    found = {"facts": facts("torch", "triton"), "gpu": torch.cuda.get_device_name(), "rows": rows}
    RESULT.write_text(json.dumps(found, indent=1) + "\n")


def measured(shape: str, text: str) -> dict[str, Any]:
    """Milliseconds of both kernels, and the difference of their gradients."""
    heads, width = HEADS[shape]
    packing = packed(*LENGTHS[text])
    torch.manual_seed(0)
    qkv = torch.randn(TOKENS, heads, 3, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    given = torch.randn(TOKENS, heads, width, device="cuda", dtype=torch.bfloat16)
    ways: dict[str, Callable[[], torch.Tensor]] = {
        "lexome": lambda: attend_fused(qkv, packing, window=None, dropout=0.0),
        "torch": lambda: attend(*qkv.unbind(-2), packing, window=None, dropout=0.0),  # type: ignore[call-arg]
    }
    row: dict[str, Any] = {"shape": shape, "text": text}
    gradients = {name: grad(way(), qkv, given)[0].float() for name, way in ways.items()}
    apart = (gradients["lexome"] - gradients["torch"]).norm() / gradients["torch"].norm()
    row["difference"] = float(f"{float(apart):.2g}")
    row["same bits again"] = torch.equal(grad(ways["lexome"](), qkv, given)[0].float(), gradients["lexome"])
    for name, way in ways.items():
        row[f"{name} forward ms"] = milliseconds(way)
        row[f"{name} both ms"] = milliseconds(lambda way=way: grad(way(), qkv, given))  # type: ignore[misc]
    row["ratio"] = round(row["torch both ms"] / row["lexome both ms"], 2)
    return row


def packed(mean: int, deviation: int) -> Packing:
    """Sequences of these lengths, and one that fills the remaining tokens."""
    lengths = np.random.default_rng(0).normal(mean, deviation, 2 * TOKENS // mean).clip(8, 512).astype(int)
    ends = np.cumsum(lengths)
    ends = ends[ends < TOKENS]
    filling = np.append(np.arange(ends[-1] + 512, TOKENS, 512), TOKENS)
    return Packing.of([*ends.tolist(), *filling.tolist()], "cuda", longest=512)


def milliseconds(work: Callable[[], Any], rounds: int = 10) -> float:
    """The median time of one call."""
    times = []
    for number in range(rounds + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        if number >= 3:
            times.append(begin.elapsed_time(end))
    return round(float(np.median(times)), 3)


if __name__ == "__main__":
    main()
