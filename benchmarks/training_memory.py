"""Memory of a training step on one GPU: what torch allocated at most, beside the formula of docs/how-to/many-gpus.md.

    python benchmarks/training_memory.py

Each preset makes two steps of AdamW in bfloat16 autocast, not compiled, on sequences of 512 tokens of which 15% are
masked, with and without computing layers again in the backward pass. Writes results/training_memory.json.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from facts import facts
from lexome.models.heads import MaskedLM
from lexome.models.packing import Packing
from lexome.models.presets import preset
from lexome.train.losses import sums
from lexome.train.memory import Load, memory

RESULT = Path(__file__).resolve().parents[1] / "results" / "training_memory.json"
LENGTH, RATE = 512, 0.15
# Presets with the tokens of a step: so many that what is kept for the backward pass weighs as much as the weights.
STEPS = {"bioformer-8l": 65_536, "bert-base": 65_536, "biomegatron-345m": 32_768, "biomegatron-1.2b": 16_384}


def main() -> None:
    if not torch.cuda.is_available():
        sys.exit("this is measured on a GPU, and there is none here")
    rows = [measured(name, tokens, again=again) for name, tokens in STEPS.items() for again in (False, True)]
    for row in rows:
        print(json.dumps(row), flush=True)
    found = {"facts": facts("torch"), "gpu": torch.cuda.get_device_name(), "steps": rows}
    RESULT.write_text(json.dumps(found, indent=1) + "\n")


def measured(name: str, tokens: int, *, again: bool) -> dict[str, Any]:
    """The largest memory of a step of a preset, and what the formula says."""
    config = replace(preset(name), attention_dropout=0.0)
    torch.cuda.empty_cache()
    with torch.device("cuda"):
        model = MaskedLM(config).train()
        model.encoder.checkpointing = again
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
        ids = torch.randint(0, config.vocab, (tokens,))
        positions = torch.arange(0, tokens, round(1 / RATE))
        packing = Packing.of(range(LENGTH, tokens + 1, LENGTH), "cuda")
    for _ in range(2):
        torch.cuda.reset_peak_memory_stats()
        with torch.autocast("cuda", torch.bfloat16):
            loss, _ = sums(model(ids, packing, positions), ids[positions])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    seen = torch.cuda.max_memory_allocated()
    load = Load(tokens, positions.numel(), half=True, checkpointing=again)
    said = memory(config, load).total
    return {
        "preset": name,
        "tokens": tokens,
        "checkpointing": again,
        "measured_gb": round(seen / 1e9, 2),
        "formula_gb": round(said / 1e9, 2),
        "ratio": round(seen / said, 3),
    }


if __name__ == "__main__":
    main()
