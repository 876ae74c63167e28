"""Fine-tuning throughput on one GPU: `lexome finetune` compared with Hugging Face's Trainer, on the same examples.

    python benchmarks/finetune_speed.py MODEL [--set NCBI-disease] [--data FOLDER] [--epochs 5] [--seeds 3]

Both train on the same examples (encoded by Lexome, so that tokens and tags are equal) from the same checkpoint, with
the same batch size in sequences, learning rate, schedule, epochs and seeds. The Trainer runs as users run it: bfloat16
autocast, batches padded to their longest sequence by DataCollatorForTokenClassification, the checkpoint's dropout, and
float32 weights whatever the file has: in bfloat16, as it loads ours by default, small updates are lost and it scores 7
points less. Lexome runs with packed sequences, without attention dropout, as its recipes do by default.

Only non-padding tokens count, and only the time between the end of the warm-up and the last step; the total time is
reported separately. Both models are scored on dev with Lexome's decoding. Writes results/finetune_speed.json. It also
runs on a CPU, for a trial: --device cpu --limit 20 --epochs 1.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
import transformers
from transformers import DataCollatorForTokenClassification, Trainer, TrainerCallback, TrainingArguments

from facts import facts
from lexome.models.checkpoint import load
from lexome.models.heads import EncoderWithHead
from lexome.recipe.finetune import Cell, FinetuneRecipe, Run, recipe_of_run
from lexome.training.finetune.examples import Split
from lexome.training.finetune.fit import predict, score
from lexome.training.finetune.run import RunContext, open_context, run_once
from lexome.training.finetune.task_model import TaskModel
from lexome.training.parallel import Parallel, Sizes, device_of
from lexome.training.trainer import METRICS, read_metrics

ROOT = Path(__file__).resolve().parents[1]
# Warm-up steps, in which kernels are selected and compiled.
WARM_UP = 50


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("model", type=Path)
    options.add_argument("--set", default="NCBI-disease")
    options.add_argument("--data", type=Path, help="the folder of all datasets; default: data")
    options.add_argument("--epochs", type=float, default=5)
    options.add_argument("--batch", type=int, default=32)
    options.add_argument("--lr", type=float, default=5e-5)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--limit", type=int)
    options.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    options.add_argument("--compile", action="store_true", help="add a row for compiled Lexome")
    options.add_argument("--again", action="store_true", help="add to the runs in the result, instead of replacing it")
    options.add_argument("--out", type=Path, default=ROOT / "results" / "finetune_speed.json")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        recipe = recipe_of(given, Path(scratch))
        with open_context(
            recipe, Parallel(Sizes(), device_of(recipe.device, {}, backend=recipe.parallel.backend)[0])
        ) as context:
            rows = measured(given, recipe, context, Path(scratch))
            result = {
                "facts": facts("torch", "transformers", "accelerate", "numpy"),
                "gpu": torch.cuda.get_device_name() if given.device == "cuda" else None,
                "model": given.model.name,
                "set": given.set,
                "settings": {name: getattr(given, name) for name in ("epochs", "batch", "lr", "seeds", "limit")},
                "text": text_facts(context.data.splits(None).train),
                "rows": rows,
            }
    for name, row in rows.items():
        row["times trainer"] = round(row["tokens_per_s"] / rows["trainer"]["tokens_per_s"], 2)
        print(name, json.dumps(row))
    given.out.parent.mkdir(exist_ok=True)
    if given.again:
        stored = json.loads(given.out.read_text())
        result = {**stored, "again": [*stored.get("again", []), result]}
    given.out.write_text(json.dumps(result, indent=1) + "\n")


def recipe_of(given: argparse.Namespace, scratch: Path) -> FinetuneRecipe:
    """The arguments as a recipe; dev is evaluated once, at the end."""
    data = {"sets": [given.set], "root": given.data, "limit": given.limit}
    return FinetuneRecipe.model_validate(
        {
            "stage": "finetune",
            "start": given.model,
            "out": scratch / "lexome",
            "data": data,
            "epochs": given.epochs,
            "device": given.device,
            "deterministic": False,
            "compile": False,
            "batch": {"sequences": given.batch},
            "optimizer": {"lr": given.lr},
            "evaluation": {"every": 1_000_000_000},
        }
    )


def measured(given: argparse.Namespace, recipe: FinetuneRecipe, context: RunContext, scratch: Path) -> dict[str, Any]:
    """Alternate between the systems, seed by seed."""
    ways: dict[str, Any] = {"lexome": lambda seed: lexome(recipe, context, scratch, seed)}
    if given.compile:
        compiled = recipe.model_copy(update={"compile": True})
        ways["lexome compiled"] = lambda seed: lexome(compiled, context, scratch / "compiled", seed)
    ways["trainer"] = lambda seed: trainer(given, recipe, context, scratch / f"trainer{seed}", seed)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for seed in range(given.seeds):
        for name, way in ways.items():
            found[name].append(way(seed))
            print(name, seed, found[name][-1], flush=True)
    return {
        name: {
            "tokens_per_s": round(fmean(run["tokens_per_s"] for run in runs)),
            "whole_s": round(fmean(run["whole_s"] for run in runs), 1),
            "dev_f1": [round(run["dev_f1"], 4) for run in runs],
            "memory_gb": max(run["memory_gb"] for run in runs),
        }
        for name, runs in found.items()
    }


def lexome(recipe: FinetuneRecipe, context: RunContext, scratch: Path, seed: int) -> dict[str, float]:
    """One run of Lexome; throughput is read from its metrics, starting with the second line."""
    run = Run(Cell(), seed)
    reset_memory()
    began = time.monotonic()
    done = run_once(recipe_of_run(recipe, run), run, context, scratch / "runs" / run.name, test=False)
    whole = time.monotonic() - began
    lines = [line for line in read_metrics(scratch / "runs" / run.name / METRICS) if "elapsed_s" in line]
    first = lines[0] if len(lines) > 1 else {"tokens": 0, "elapsed_s": 0.0}
    rate = (lines[-1]["tokens"] - first["tokens"]) / (lines[-1]["elapsed_s"] - first["elapsed_s"])
    return {"tokens_per_s": rate, "whole_s": whole, "dev_f1": done.scores["dev"]["f1"], "memory_gb": memory_gb()}


class Clock(TrainerCallback):  # type: ignore[misc]
    """Records the end of warm-up and of training, after synchronizing the GPU."""

    def __init__(self) -> None:
        self.times: dict[int, float] = {}

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Record the time after the warm-up and after the last step."""
        if state.global_step in (WARM_UP, state.max_steps):
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self.times[state.global_step] = time.monotonic()


def trainer(
    given: argparse.Namespace, recipe: FinetuneRecipe, context: RunContext, folder: Path, seed: int
) -> dict[str, float]:
    """One run of the Trainer on the same examples."""
    material, parts = context.data, context.data.splits(None)
    transformers.set_seed(seed)
    reset_memory()
    began = time.monotonic()
    labels = dict(enumerate(material.task.labels))
    model = transformers.AutoModelForTokenClassification.from_pretrained(
        given.model, id2label=labels, dtype=torch.float32
    )
    rows = [
        {"input_ids": row.ids.tolist(), "attention_mask": [1] * len(row.ids), "labels": row.targets[:, 0].tolist()}
        for row in parts.train.examples
        if row.targets is not None
    ]
    clock = Clock()
    learning = Trainer(
        model=model,
        args=arguments(given, recipe, folder, seed),
        train_dataset=rows,
        data_collator=DataCollatorForTokenClassification(
            transformers.AutoTokenizer.from_pretrained(material.tokenizer)
        ),
        callbacks=[clock],
    )
    started = time.monotonic()
    learning.train()
    learning.save_model(str(folder / "model"))
    whole = time.monotonic() - began
    steps = learning.state.max_steps
    counted, since = (steps - WARM_UP, clock.times[WARM_UP]) if steps > 2 * WARM_UP else (steps, started)
    tokens = sum(len(row["input_ids"]) for row in rows) * given.epochs * counted / steps
    rate = tokens / (clock.times[steps] - since)
    memory = memory_gb()
    return {
        "tokens_per_s": rate,
        "whole_s": whole,
        "dev_f1": dev_f1(folder / "model", context, given),
        "memory_gb": memory,
    }


def arguments(given: argparse.Namespace, recipe: FinetuneRecipe, folder: Path, seed: int) -> TrainingArguments:
    """The Trainer's settings: the recipe's where they exist, else its defaults."""
    return TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=given.batch,
        num_train_epochs=given.epochs,
        learning_rate=given.lr,
        warmup_steps=recipe.schedule.warmup_ratio,  # a ratio if below 1
        weight_decay=recipe.optimizer.weight_decay,
        max_grad_norm=recipe.optimizer.max_grad_norm,
        bf16=given.device == "cuda",
        use_cpu=given.device == "cpu",
        save_strategy="no",
        report_to=[],
        logging_steps=1_000_000,
        disable_tqdm=True,
        seed=seed,
    )


def dev_f1(folder: Path, context: RunContext, given: argparse.Namespace) -> float:
    """The dev score of a saved model, with Lexome's decoding."""
    material = context.data
    model = load(folder, kind="token").model.to(given.device)
    assert isinstance(model, EncoderWithHead)
    dev = material.splits(None).dev
    assert dev is not None
    autocast = torch.bfloat16 if given.device == "cuda" else None
    segments = material.frame.segments
    found = predict(TaskModel(model), dev, material.task, batch_tokens=65_536, segments=segments, autocast=autocast)
    return score(material.task, dev, found)["f1"]


def text_facts(split: Split) -> dict[str, float]:
    """The number of sequences, and their lengths."""
    lengths = [len(row.ids) for row in split.examples]
    return {"rows": len(lengths), "tokens": sum(lengths), "mean_tokens": round(fmean(lengths), 1), "most": max(lengths)}


def reset_memory() -> None:
    """Reset the peak memory statistics."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def memory_gb() -> float:
    """Peak GPU memory since the last reset."""
    return round(torch.cuda.max_memory_allocated() / 1e9, 1) if torch.cuda.is_available() else 0.0


if __name__ == "__main__":
    main()
