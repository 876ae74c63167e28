"""Encoder throughput on a CPU: the graph of `lexome export` compared with torch's own export and torch itself.

    python benchmarks/onnx_speed.py [--threads 1]

Encoders of 8 x 512 and 12 x 384 with random weights, which do not affect speed, on the same texts of 40 to 300 tokens:
one at a time, and with batch size 8, sorted by length or unsorted. Rounds alternate between variants; the throughput is
the median, in non-padding tokens per second. Writes one part of results/onnx_speed.json per number of threads.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from transformers import BertConfig, BertModel

from facts import facts
from lexome.export.export import export
from lexome.infer.predictor import Predictor
from lexome.models import checkpoint
from lexome.models.checkpoint import Card
from lexome.models.encoder import Encoder, EncoderConfig, Packing

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "results" / "onnx_speed.json"
SHAPES = {"8x512": (8, 512, 8), "12x384": (12, 384, 12)}
TEXTS, ROUNDS, BATCH = 20, 5, 8
PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
Way = Callable[[], Any]


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    threads = options.parse_args().threads
    torch.set_num_threads(threads)
    rows = np.random.default_rng(0)
    texts = [rows.integers(5, 30_000, size).tolist() for size in rows.integers(40, 301, TEXTS)]
    with tempfile.TemporaryDirectory() as scratch:
        shapes = {name: measured(name, texts, Path(scratch) / name, threads) for name in SHAPES}
    found = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    found[f"{threads} threads"] = {
        "facts": facts("onnxruntime", "onnx", "torch", "transformers"),
        "texts": TEXTS,
        "tokens": sum(map(len, texts)),
        "shapes": shapes,
    }
    RESULT.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(shapes, indent=1))


def measured(shape: str, texts: list[list[int]], scratch: Path, threads: int) -> dict[str, int]:
    """Non-padding tokens per second of each variant."""
    layers, width, heads = SHAPES[shape]
    scratch.mkdir()
    torch.manual_seed(0)
    encoder = Encoder(
        EncoderConfig(vocab=30_522, layers=layers, hidden_size=width, heads=heads, intermediate_size=4 * width)
    ).eval()
    ways = {
        **ours(encoder, texts, scratch, threads),
        "torch's export of transformers, one at a time": theirs_exported(encoder, texts, scratch, threads),
        "transformers, one at a time": transformers_way(encoder, texts),
        "Lexome in torch, packed by 8": packed_way(encoder, texts),
    }
    rounds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS + 1):
        for name, way in ways.items():
            began = time.monotonic()
            way()
            rounds[name].append(time.monotonic() - began)
    # The first round is warm-up.
    return {name: round(sum(map(len, texts)) / statistics.median(times[1:])) for name, times in rounds.items()}


def ours(encoder: Encoder, texts: list[list[int]], scratch: Path, threads: int) -> dict[str, Way]:
    """The exported folder, run by the Predictor."""
    (scratch / "vocab.txt").write_text("\n".join([*PIECES, *(f"w{number}" for number in range(30_517))]))
    card = Card(title="random", summary="", license="unknown", data="none")
    checkpoint.save(scratch / "model", encoder, architecture="bert", tokenizer=scratch, card=card)
    export(scratch / "model", scratch / "onnx", kind="encoder")
    predictor = Predictor.open(scratch / "onnx", threads=threads)

    def as_they_come() -> None:
        for at in range(0, len(texts), BATCH):
            predictor.hidden(texts[at : at + BATCH], batch=BATCH)

    return {
        "Lexome's graph, one at a time": lambda: predictor.hidden(texts),
        "Lexome's graph, batch size 8, sorted": lambda: predictor.hidden(texts, batch=BATCH),
        "Lexome's graph, batch size 8, unsorted": as_they_come,
    }


def theirs(encoder: Encoder) -> BertModel:
    """transformers' BERT of the same shape."""
    config = encoder.config
    made = BertConfig(
        vocab_size=config.vocab,
        hidden_size=config.hidden_size,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        intermediate_size=config.intermediate_size,
    )
    return BertModel(made, add_pooling_layer=False).eval()


def transformers_way(encoder: Encoder, texts: list[list[int]]) -> Way:
    model = theirs(encoder)

    @torch.inference_mode()
    def run() -> None:
        for text in texts:
            model(torch.tensor([text]))

    return run


def theirs_exported(encoder: Encoder, texts: list[list[int]], scratch: Path, threads: int) -> Way:
    """transformers' BERT through torch.onnx, in onnxruntime."""
    path = scratch / "theirs.onnx"
    ids, mask = torch.ones(2, 16, dtype=torch.long), torch.ones(2, 16, dtype=torch.long)
    sizes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    torch.onnx.export(
        theirs(encoder),
        (ids, mask),
        str(path),
        input_names=["ids", "mask"],
        output_names=["hidden"],
        dynamic_shapes={"input_ids": sizes, "attention_mask": sizes},
        dynamo=True,
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run() -> None:
        for text in texts:
            row = np.asarray([text])
            session.run(["hidden"], {"ids": row, "mask": np.ones_like(row)})

    return run


def packed_way(encoder: Encoder, texts: list[list[int]]) -> Way:
    @torch.inference_mode()
    def run() -> None:
        for at in range(0, len(texts), BATCH):
            part = texts[at : at + BATCH]
            ends = np.cumsum([len(text) for text in part]).tolist()
            encoder(torch.tensor(list(chain(*part))), Packing.of(ends))

    return run


if __name__ == "__main__":
    main()
