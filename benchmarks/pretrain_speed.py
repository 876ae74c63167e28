"""Pre-training throughput on one GPU: `lexome pretrain` compared with Hugging Face's BertForMaskedLM.

    python benchmarks/pretrain_speed.py SHARDS [--seconds 8] [--shapes 8x512,16x384,12x768] [--rows "NAME;NAME"]

SHARDS is a folder of abstracts written by `lexome shard`. Every row trains the same BERT on the same text with AdamW,
gradient clipping and 15% whole-word masking: Lexome through its own stage, without dropout, including reading, masking
and packing; Hugging Face in bfloat16 autocast with scaled-dot-product attention, eager and compiled, with batches of
128 rows, which a thread prefetches from the same sequences with the same masks, with the default dropout of 0.1 in
BertConfig and without. "padded" is one sequence of one document per row, padded to 512 tokens; "filled" is rows filled
across documents, so that there is hardly any padding. Only non-padding tokens count. FLOPs utilization is the FLOPs
needed for these tokens, including attention and the head at masks, relative to a large matrix product measured in the
same run. Writes results/pretrain_speed.json; with --rows, which measures a few rows once more, it adds them there to
"again".
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import BertConfig, BertForMaskedLM

from facts import facts
from lexome.corpus.masking import Masking, mask, sequence_draws
from lexome.corpus.shards import open_shards
from lexome.recipe.pretrain import PretrainRecipe
from lexome.training.loop import prefetch
from lexome.training.pretrain import pretrain
from lexome.training.sampling import Pieces, Text
from lexome.training.trainer import METRICS, read_metrics

ROOT = Path(__file__).resolve().parents[1]
SHAPES = {"8x512": (8, 512, 8), "16x384": (16, 384, 6), "12x768": (12, 768, 12)}
LENGTH, ROWS, RATE = 512, 128, 0.15
WARM_UP = 6
# The shape for which every row is measured; the others only have the main rows.
WHOLE_SHAPE = "8x512"
Rows = dict[str, torch.Tensor]


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("shards", type=Path)
    options.add_argument("--seconds", type=float, default=8.0, help="measurement time of each row")
    options.add_argument("--shapes", default=",".join(SHAPES))
    options.add_argument("--tokens", type=int, default=262_144, help="tokens per batch of Lexome")
    options.add_argument("--ours-only", action="store_true")
    options.add_argument("--rows", type=lambda names: names.split(";"), help="measure only these rows, once more")
    options.add_argument("--out", type=Path, default=ROOT / "results" / "pretrain_speed.json")
    given = options.parse_args()
    if not torch.cuda.is_available():
        sys.exit("this benchmark needs a GPU")
    torch.set_float32_matmul_precision("high")
    pieces = Pieces.read(given.shards / "tokenizer.json", words=True)
    texts = {
        name: Text(open_shards(given.shards).train, pieces.specials, kind=kind)
        for name, kind in (("padded", "sentences"), ("filled", "across_documents"))
    }
    result: dict[str, Any] = {
        "facts": facts("torch", "transformers", "triton", "numpy"),
        "gpu": torch.cuda.get_device_name(),
        "matmul_tflops": [matmul_tflops()],
        "text": {name: text_facts(text) for name, text in texts.items()},
        "seconds": given.seconds,
        "lexome_batch_tokens": given.tokens,
        "shapes": {},
    }
    for shape in given.shapes.split(","):
        rows: dict[str, Any] = {}
        if not given.ours_only:
            rows |= hugging_face(shape, texts, pieces, seconds=given.seconds, only=given.rows)
        for precision in ("autocast", "bf16") if shape == WHOLE_SHAPE else ("bf16",):
            if given.rows is None or f"lexome {precision}" in given.rows:
                rows[f"lexome {precision}"] = lexome(shape, given, precision=precision)
        result["shapes"][shape] = rows
        print(shape, json.dumps(rows), flush=True)
        if given.rows is None:
            given.out.write_text(json.dumps(result, indent=1) + "\n")
    result["matmul_tflops"].append(matmul_tflops())
    for shape, rows in result["shapes"].items():
        judge(rows, flops_per_token(shape, pieces.size, result["text"]), peak=max(result["matmul_tflops"]))
    if given.rows is not None:
        stored = json.loads(given.out.read_text())
        result = {**stored, "again": [*stored.get("again", []), result]}
    given.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def matmul_tflops(size: int = 8192, rounds: int = 12, products: int = 10) -> float:
    """The median FLOP/s of large bfloat16 matrix products on random values, after a second of warm-up."""
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    until = time.monotonic() + 1
    while time.monotonic() < until:
        a @ b
        torch.cuda.synchronize()
    times = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(products):
            a @ b
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1000 / products)
    return round(2 * size**3 / float(np.median(times)) / 1e12, 1)


def text_facts(text: Text) -> dict[str, float]:
    """Mean sequence length, per sequence and per token."""
    lengths = text.epoch(0, LENGTH).ranges.lengths.astype(float)
    return {"mean_tokens": round(lengths.mean(), 1), "mean_seen": round((lengths**2).sum() / lengths.sum(), 1)}


def flops_per_token(shape: str, vocab: int, text: dict[str, dict[str, float]]) -> dict[str, float]:
    """FLOPs per non-padding token, forward and backward, for each kind of text."""
    layers, width, _ = SHAPES[shape]
    matrices = layers * 12 * width**2 + RATE * (width**2 + width * vocab)
    return {name: 6 * (matrices + layers * 2 * width * found["mean_seen"]) for name, found in text.items()}


def judge(rows: dict[str, Any], needed: dict[str, float], *, peak: float) -> None:
    """Add each row's FLOPs utilization, and Lexome's speedup over each compiled peer."""
    for name, row in rows.items():
        kind = "filled" if "filled" in name else "padded"
        row["share_of_peak"] = round(row["tokens_per_s"] * needed[kind] / peak / 1e12, 4)
        for peer in rows if name.startswith("lexome") else ():
            if peer.startswith("hf compiled"):
                row[f"times {peer}"] = round(row["tokens_per_s"] / rows[peer]["tokens_per_s"], 2)


def lexome(shape: str, given: argparse.Namespace, *, precision: str) -> dict[str, Any]:
    """Run `lexome pretrain` for some seconds; throughput is read from its metrics, starting with the second line."""
    layers, width, heads = SHAPES[shape]
    with tempfile.TemporaryDirectory() as scratch:
        recipe = PretrainRecipe.model_validate(
            {
                "stage": "pretrain",
                "shards": given.shards,
                "out": Path(scratch) / "run",
                "time_budget": given.seconds + 2,
                "precision": precision,
                "model": {
                    "layers": layers,
                    "hidden_size": width,
                    "heads": heads,
                    "intermediate_size": 4 * width,
                    "dropout": 0.0,
                    "attention_dropout": 0.0,
                },
                "masking": {"rate": RATE},
                "batch": {"tokens": given.tokens},
                "optimizer": {"lr": 1e-4},
                "log": {"every": 10},
                "evaluation": {"tokens": 1_000_000},
            }
        )
        torch.cuda.reset_peak_memory_stats()
        torch._dynamo.reset()
        began = time.monotonic()
        done = pretrain(recipe, progress_shown=False)
        lines = [line for line in read_metrics(recipe.out / METRICS) if "elapsed_s" in line]
    first, last = lines[1], lines[-1]
    seconds = last["elapsed_s"] - first["elapsed_s"]
    return {
        "tokens_per_s": round((last["tokens"] - first["tokens"]) / seconds),
        "memory_gb": round(torch.cuda.max_memory_allocated() / 1e9, 1),
        "ready_s": round(time.monotonic() - began - done.seconds, 1),
        "loss": round(last["word_loss"], 3),
    }


def hugging_face(
    shape: str, texts: dict[str, Text], pieces: Pieces, *, seconds: float, only: list[str] | None = None
) -> dict[str, Any]:
    """Throughput of BertForMaskedLM: default, eager and compiled, and without dropout on padded and filled rows."""
    rows = {}
    for dropout, runs in (
        (0.1, (("hf eager, padded", "padded"), ("hf compiled, padded", "padded"))),
        (0.0, (("hf compiled, padded, no dropout", "padded"), ("hf compiled, filled, no dropout", "filled"))),
    ):
        if dropout == 0.0 and shape != WHOLE_SHAPE:
            continue
        model = bert(shape, pieces.size, dropout=dropout)
        compiled = torch.compile(model)
        for name, kind in runs:
            if only is not None and name not in only:
                continue
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            run = compiled if "compiled" in name else model
            rows[name] = timed(run, model, texts[kind], pieces, seconds=seconds)
    return rows


def bert(shape: str, vocab: int, *, dropout: float) -> BertForMaskedLM:
    """Hugging Face's model of a shape."""
    layers, width, heads = SHAPES[shape]
    config = BertConfig(
        vocab_size=vocab,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * width,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        attn_implementation="sdpa",
    )
    return BertForMaskedLM(config).cuda().train()


def timed(run: Any, model: BertForMaskedLM, text: Text, pieces: Pieces, *, seconds: float) -> dict[str, Any]:
    """Train until the time is over, after some warm-up steps."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    began, step, tokens, loss = time.monotonic(), 0, 0, torch.zeros(())
    with prefetch(padded_rows(text, pieces), 8) as made:
        while True:
            if step == WARM_UP:
                torch.cuda.synchronize()
                ready, measured = time.monotonic() - began, time.monotonic()
            rows = {name: tensor.cuda(non_blocking=True) for name, tensor in next(made).items()}
            real = int(rows.pop("real")[0])
            with torch.autocast("cuda", torch.bfloat16):
                loss = run(**rows).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            step += 1
            tokens += real if step > WARM_UP else 0
            if step % 4 == 0 and step > WARM_UP:
                torch.cuda.synchronize()
                if time.monotonic() - measured > seconds:
                    break
    return {
        "tokens_per_s": round(tokens / (time.monotonic() - measured)),
        "memory_gb": round(torch.cuda.max_memory_allocated() / 1e9, 1),
        "ready_s": round(ready, 1),
        "loss": round(loss.item(), 3),
    }


def padded_rows(text: Text, pieces: Pieces) -> Iterator[Rows]:
    """Batches for transformers: masked IDs, attention mask and labels, one sequence per row."""
    for epoch in range(1_000_000):
        ordered = text.epoch(epoch, LENGTH)
        for at in range(0, ordered.order.size - ROWS, ROWS):
            numbers = ordered.order[at : at + ROWS]
            packed = text.packed(ordered.ranges, numbers)
            draws = sequence_draws(0, epoch, numbers, packed.ends)
            masked = mask(packed.ids, packed.ends, pieces.vocabulary, Masking("word", rate=RATE), draws)
            starts = np.concatenate([[0], packed.ends[:-1]])
            row = np.repeat(np.arange(ROWS), packed.ends - starts)
            column = np.arange(packed.ids.size) - starts[row]
            ids, seen, labels = (np.full((ROWS, LENGTH), value) for value in (pieces.specials.pad_id, 0, -100))
            ids[row, column], seen[row, column] = masked.inputs, 1
            labels[row[masked.positions], column[masked.positions]] = masked.labels
            tensors = {"input_ids": ids, "attention_mask": seen, "labels": labels}
            tensors["real"] = np.asarray([packed.ids.size])
            yield {name: torch.from_numpy(array).pin_memory() for name, array in tensors.items()}


if __name__ == "__main__":
    main()
