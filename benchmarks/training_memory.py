"""Memory of a training step on one GPU: peak allocation compared with the formula of docs/how-to/many-gpus.md.

    python benchmarks/training_memory.py              on a GPU: measure
    python benchmarks/training_memory.py --formula    anywhere: recompute the formula for the stored measurements

Each preset makes two AdamW steps in bfloat16 autocast, not compiled, on sequences of 512 tokens of which 15% are
masked, with and without gradient checkpointing. Writes results/training_memory.json.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from facts import facts
from lexome.models.encoder import Packing, preset
from lexome.models.heads import MaskedLM
from lexome.training.losses import sums
from lexome.training.memory import Load, memory

RESULT = Path(__file__).resolve().parents[1] / "results" / "training_memory.json"
LENGTH, RATE = 512, 0.15
# Presets with the tokens of a step, chosen so that activations take as much memory as the weights.
STEPS = {"bioformer-8l": 65_536, "bert-base": 65_536, "biomegatron-345m": 32_768, "biomegatron-1.2b": 16_384}


def main() -> None:
    if sys.argv[1:] == ["--formula"]:
        found = json.loads(RESULT.read_text())
    elif torch.cuda.is_available():
        rows = [measured(name, tokens, again=again) for name, tokens in STEPS.items() for again in (False, True)]
        found = {"facts": facts("torch"), "gpu": torch.cuda.get_device_name(), "steps": rows}
    else:
        sys.exit("this is measured on a GPU, and there is none here")
    found["steps"] = [beside_formula(row) for row in found["steps"]]
    for row in found["steps"]:
        print(json.dumps(row))
    RESULT.write_text(json.dumps(found, indent=1) + "\n")


def masked_of(tokens: int) -> torch.Tensor:
    """The masked positions."""
    return torch.arange(0, tokens, round(1 / RATE))


def beside_formula(row: dict[str, Any]) -> dict[str, Any]:
    """A measurement with the formula's estimate."""
    config = replace(preset(row["preset"]), attention_dropout=0.0)
    masked = masked_of(row["tokens"]).numel()
    said = memory(config, Load(row["tokens"], masked, half=True, checkpointing=row["checkpointing"])).total / 1e9
    return row | {"masked": masked, "formula_gb": round(said, 2), "ratio": round(row["measured_gb"] / said, 3)}


def measured(name: str, tokens: int, *, again: bool) -> dict[str, Any]:
    """Peak memory of a training step of a preset."""
    config = replace(preset(name), attention_dropout=0.0)
    torch.cuda.empty_cache()
    with torch.device("cuda"):
        model = MaskedLM(config).train()
        model.encoder.gradient_checkpointing = again
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
        ids = torch.randint(0, config.vocab, (tokens,))
        positions = masked_of(tokens)
        packing = Packing.of(range(LENGTH, tokens + 1, LENGTH), "cuda")
    for _ in range(2):
        torch.cuda.reset_peak_memory_stats()
        with torch.autocast("cuda", torch.bfloat16):
            loss, _ = sums(model(ids, packing, positions), ids[positions])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    seen = torch.cuda.max_memory_allocated()
    return {"preset": name, "tokens": tokens, "checkpointing": again, "measured_gb": round(seen / 1e9, 2)}


if __name__ == "__main__":
    main()
