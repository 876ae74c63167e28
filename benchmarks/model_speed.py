"""Bioformer's figure 3: speed of sequence classification at length 512, relative to BERT-base.

    python benchmarks/model_speed.py train        on a GPU: training steps
    python benchmarks/model_speed.py inference    on a CPU

Shapes are those of BERT-base, DistilBERT and Bioformer with 8 and 16 layers; weights are random, which does not affect
speed. Sequences of 512 tokens without padding, batch size 64 in training (bfloat16 autocast, AdamW) and 4 in inference
(float32), in transformers and in Lexome, and for training also in compiled Lexome. Rounds alternate between shapes; the
ratio to BERT-base is the median over rounds. Each command writes its own part of results/model_speed.json.
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DistilBertConfig,
    DistilBertForSequenceClassification,
)

from facts import facts
from lexome.models.checkpoint import build
from lexome.models.encoder import EncoderConfig, Packing, preset

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "results" / "model_speed.json"
BASE = "bert-base"
SHAPES = (BASE, "distilbert", "bioformer-8l", "bioformer-16l")
# Bioformer's own, on a P100 and a Xeon; DistilBERT is said to be about as fast as the 8-layer model.
PAPER = {"train": {"bioformer-8l": 2.8, "bioformer-16l": 2.0}, "inference": {"bioformer-8l": 3.0, "bioformer-16l": 2.2}}
LIBRARIES = {"train": ("transformers", "lexome", "lexome compiled"), "inference": ("transformers", "lexome")}
LENGTH = 512
ROWS = {"train": 64, "inference": 4}
ROUNDS = {"train": 5, "inference": 5}
STEPS = {"train": 6, "inference": 1}
Work = Callable[[], Any]


def main() -> None:
    what = sys.argv[1] if len(sys.argv) == 2 else ""
    if what not in ROWS:
        sys.exit("say train (on a GPU) or inference (on a CPU)")
    if what == "train" and not torch.cuda.is_available():
        sys.exit("training is measured on a GPU, and there is none here")
    device = "cuda" if what == "train" else "cpu"
    torch.set_float32_matmul_precision("high")
    rows: dict[str, Any] = {}
    for library in LIBRARIES[what]:
        rows[library] = measured(library, what, device)
        print(library, json.dumps(rows[library]), flush=True)
    found = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    found[what] = {
        "facts": facts("torch", "transformers"),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "rows": ROWS[what],
        "tokens_a_row": LENGTH,
        "paper": PAPER[what],
        "libraries": rows,
    }
    RESULT.write_text(json.dumps(found, indent=1) + "\n")


def measured(library: str, what: str, device: str) -> dict[str, Any]:
    """Sequences per second of every shape, and the speedup over BERT-base."""
    torch._dynamo.reset()
    works = {shape: work(library, shape, what, device) for shape in SHAPES}
    for one in works.values():
        for _ in range(3 if what == "train" else 1):
            one()
    rounds = []
    for _ in range(ROUNDS[what]):
        rounds.append({shape: rate(one, what) for shape, one in works.items()})
    return {
        shape: {
            "sequences_per_s": round(median(found[shape] for found in rounds), 2),
            "times_bert_base": round(median(found[shape] / found[BASE] for found in rounds), 2),
        }
        for shape in SHAPES
    }


def rate(work: Work, what: str) -> float:
    """Sequences per second."""
    if what == "train":
        torch.cuda.synchronize()
    began = time.monotonic()
    for _ in range(STEPS[what]):
        work()
    if what == "train":
        torch.cuda.synchronize()
    return STEPS[what] * ROWS[what] / (time.monotonic() - began)


def work(library: str, shape: str, what: str, device: str) -> Work:
    """One training step, or one forward pass."""
    torch.manual_seed(0)
    config = replace(preset(shape), attention_dropout=0.0, dropout=0.0)
    ids = torch.randint(5, config.vocab, (ROWS[what], LENGTH), device=device)
    labels = torch.randint(0, 2, (ROWS[what],), device=device)
    if library.startswith("lexome"):
        model = build(config, "sequence", labels=2).to(device)
        packing = Packing.of(range(LENGTH, ids.numel() + 1, LENGTH), device)
        given: tuple[Any, ...] = (ids.flatten(), packing)
    else:
        model, given = theirs(config, shape).to(device), (ids,)
    if library.endswith("compiled"):
        for part in (model.encoder.embed, *model.encoder.layers):
            part.compile()

    def logits() -> torch.Tensor:
        out = model(*given)
        found: torch.Tensor = out if isinstance(out, torch.Tensor) else out.logits
        return found

    if what == "inference":
        model.eval()
        return torch.inference_mode()(logits)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def step() -> None:
        with torch.autocast(device, torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(logits().float(), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def theirs(config: EncoderConfig, shape: str) -> torch.nn.Module:
    """The same shape in transformers."""
    if shape == "distilbert":
        made = DistilBertConfig(vocab_size=config.vocab, dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0)
        return DistilBertForSequenceClassification(made)
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=config.vocab,
            hidden_size=config.hidden_size,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            intermediate_size=config.intermediate_size,
            max_position_embeddings=config.max_tokens,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )


if __name__ == "__main__":
    main()
