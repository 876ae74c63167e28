"""Tables about training: example runs, throughput compared with other libraries, and memory."""

from pathlib import Path
from typing import Any

from tables_of.results import measured, rows, stored

PRETRAIN_WAYS = {
    "hf eager, padded": "Hugging Face",
    "hf compiled, padded": "Hugging Face, compiled",
    "hf compiled, padded, no dropout": "Hugging Face, compiled, no dropout",
    "hf compiled, filled, no dropout": "Hugging Face, compiled, full rows, no dropout",
    "lexome autocast": "`lexome pretrain`, autocast",
    "lexome bf16": "`lexome pretrain`, bf16",
}


def training_runs() -> str:
    runs = stored("training_runs")
    lines = [
        (
            name,
            part["shape"],
            Path(part["start"]).parent.name if part["stage"] == "distill" else Path(part["start"] or "random").name,
            "yes" if part["teacher"] else "no",
            f"{part['seconds'] / 60:.1f} min",
            f"{part['tokens'] / 1e6:,.0f} M",
            f"{part['held_out']['loss']:.3f}",
            f"{part['held_out']['accuracy']:.1%}",
        )
        for name, part in runs.items()
    ]
    head = ("run", "shape", "initialized from", "teacher", "time", "tokens", "held-out loss", "masked-token accuracy")
    first = next(iter(runs.values()))
    where = f"{first['date']}, {first['hardware']['gpus'][0]}, torch {first['versions']['torch']}"
    return f"{rows(head, *lines)}\n\n{where}. Concurrent on the GPU: {first['shared']}"


def model_speed() -> str:
    parts = stored("model_speed")
    columns = [(what, library) for what, part in parts.items() for library in part["libraries"]]
    shapes = next(iter(next(iter(parts.values()))["libraries"].values()))
    lines = [
        (
            shape,
            *(f"{parts[what]['libraries'][library][shape]['times_bert_base']}×" for what, library in columns),
            *(f"{part['paper'][shape]}×" if shape in part["paper"] else "" for part in parts.values()),
        )
        for shape in shapes
    ]
    head = ("shape", *(f"{what}, {library}" for what, library in columns), *(f"{what}, the paper" for what in parts))
    where = "".join(f"{measured(part['facts'])} ({what}, {part['device']})" for what, part in parts.items())
    return rows(head, *lines) + where


def attention_speed() -> str:
    result = stored("attention_speed")
    ways = ("lexome forward ms", "torch forward ms", "lexome both ms", "torch both ms")
    lines = [
        (row["shape"], row["text"], *(f"{row[way]:.2f} ms" for way in ways), f"{row['ratio']:.2f}×", row["difference"])
        for row in result["rows"]
    ]
    head = (
        "shape",
        "sequences",
        "forward, Lexome",
        "forward, torch",
        "forward + backward, Lexome",
        "forward + backward, torch",
    )
    where = f"{measured(result['facts'])}, {result['gpu']}"
    return rows((*head, "ratio", "gradient difference"), *lines) + where


def pretrain_speed() -> str:
    """A table of each run; the second one is on longer documents, of which padding wastes less."""
    result = stored("pretrain_speed")
    return "\n\n".join(map(_pretrain_run, (result, *result["again"])))


def _pretrain_run(result: dict[str, Any]) -> str:
    lines = [
        (
            shape,
            PRETRAIN_WAYS[name],
            f"{row['tokens_per_s'] / 1e6:.2f} M",
            f"{row['share_of_peak']:.0%}",
            *_times(row, found, "hf compiled, padded", "hf compiled, filled, no dropout"),
            f"{row['memory_gb']:.0f} GB",
        )
        for shape, found in result["shapes"].items()
        for name, row in found.items()
    ]
    text = f"{result['text']['padded']['mean_tokens']:.0f} tokens per document"
    head = ("shape", f"pre-training, {result['gpu']}, {text}", "tokens/s", "FLOPs utilization")
    peers = ("vs. Hugging Face compiled", "vs. compiled, full rows, no dropout", "memory")
    return rows((*head, *peers), *lines) + measured(result["facts"])


def _times(row: dict[str, Any], found: dict[str, Any], *peers: str) -> tuple[str, ...]:
    """Speedup over each peer; empty if the peer was not measured."""
    rates = (found[peer]["tokens_per_s"] if peer in found else None for peer in peers)
    return tuple("" if rate is None else f"{row['tokens_per_s'] / rate:.2f}×" for rate in rates)


def finetune_speed() -> str:
    result = stored("finetune_speed")
    return "\n\n".join(map(_finetune_run, (result, *result["again"])))


def _finetune_run(result: dict[str, Any]) -> str:
    lines = [
        (
            {"lexome": "`lexome finetune`", "trainer": "Hugging Face Trainer"}[name],
            f"{row['tokens_per_s']:,}",
            f"{row['times trainer']}×",
            f"{row['whole_s']} s",
            ", ".join(f"{100 * found:.1f}" for found in row["dev_f1"]),
            f"{row['memory_gb']} GB",
        )
        for name, row in result["rows"].items()
    ]
    said = f"{result['model']} on {result['set']}, {result['settings']['epochs']:.0f} epochs, {result['gpu']}"
    head = (said, "tokens/s", "speedup", "whole run", "dev F1 by seed", "memory")
    return rows(head, *lines) + measured(result["facts"])


def training_memory() -> str:
    result = stored("training_memory")
    lines = [
        (
            step["preset"],
            f"{step['tokens']:,}",
            "yes" if step["checkpointing"] else "no",
            f"{step['measured_gb']} GB",
            f"{step['formula_gb']} GB",
            step["ratio"],
        )
        for step in result["steps"]
    ]
    head = ("preset", "tokens", "gradient checkpointing", f"measured, {result['gpu']}", "formula", "ratio")
    return rows(head, *lines) + measured(result["facts"])


TABLES = {
    made.__name__: made
    for made in (training_runs, model_speed, attention_speed, pretrain_speed, finetune_speed, training_memory)
}
