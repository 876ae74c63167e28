r"""Heads and encoders on five sentence-level tasks, next to transformers' BertForSequenceClassification.

    python benchmarks/sentence_tasks.py run JOBS.json OUT --data DATASETS [--workers 12]
    python benchmarks/sentence_tasks.py join JOBS.jsonl ... --gpu-minutes 30 --revision REVISION

JOBS.json is a list of {"name", "encoder", "set", "seeds", "recipe"}: `recipe` overrides the protocol of the dataset,
and the name "transformers" stands for transformers' class and a plain training loop on the same examples, with the
same optimizer, schedule, batches and model selection. Each finished job adds a line to OUT/jobs.jsonl. Jobs run
concurrently; on a GPU, start CUDA's Multi-Process Service first, which doubled their throughput on an H200. `join`
writes results/sentence_tasks.json; with --add, what it has of other encoders is kept, and new rows have their own date
and revision.
"""

import argparse
import json
import os
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch

from facts import facts
from lexome.recipe import merge
from lexome.recipe.finetune import Cell, FinetuneRecipe, Run
from lexome.tasks.task import Example
from lexome.training.finetune.examples import Split
from lexome.training.finetune.fit import score
from lexome.training.finetune.run import open_context, plan_of
from lexome.training.finetune.stage import finetune
from lexome.training.finetune.task_model import (
    LossSettings,
    binary_loss,
    choice_loss,
    epoch_order,
    label_count,
    split_epoch,
)
from lexome.training.parallel import Parallel, Sizes

LINES = "jobs.jsonl"
SHORT = {
    "keep_models": "none",
    "score_test": "every",
    "batch": {"sequences": 16},
    "optimizer": {"lr": 5e-5},
}
# The published splits, the best epoch on dev. GAD has no dev split: a tenth of its training sentences is one.
PROTOCOLS: dict[str, dict[str, Any]] = {
    "ChemProt-scibert": {"epochs": 8},
    "HoC": {"epochs": 10},
    "GAD": {"epochs": 6, "folds": {"use": [0], "dev_fraction": 0.1}},
    "PubMedQA": {"epochs": 15, "folds": {"use": [0]}, "evaluation": {"metric": "accuracy"}},
    "DDI-2013": {"epochs": 5, "batch": {"sequences": 32}},
}
# The short protocol of benchmarks/encoders.toml, for entity datasets: scored on dev after the last step.
ENTITIES: dict[str, Any] = {
    "epochs": 6,
    "dropout": 0.1,
    "data": {"dev": "none", "test": "dev"},
    "batch": {"sequences": 32},
    "optimizer": {"lr": 1e-4},
}
# The heads that results/sentence_tasks.json compares.
HEADS = {
    "transformers": "BertForSequenceClassification and a plain training loop",
    "first-edition": "pooler with dropout before it, no probing",
    "no-probe": "probe.epochs = 0",
    "probe": "the default: probing on standardized vectors, which are folded into the head before fine-tuning",
    "probe-layer": "probing; the standardization stays a fixed layer until the end of the run",
    "probe-layer-linear": "the same with head.layers = 0",
    "probe-layer-mean": "the same with head.pooling = mean",
    "probe-layer-dropout": "the same, probed on vectors computed with the encoder's dropout",
    "token": "entity datasets by the protocol of benchmarks/encoders.toml, dev",
}
RESULT = Path(__file__).resolve().parents[1] / "results" / "sentence_tasks.json"


def main() -> None:
    options = argparse.ArgumentParser()
    ways = options.add_subparsers(dest="way", required=True)
    run = ways.add_parser("run")
    run.add_argument("jobs", type=Path)
    run.add_argument("out", type=Path)
    run.add_argument("--data", type=Path, required=True)
    run.add_argument("--workers", type=int, default=12)
    join = ways.add_parser("join")
    join.add_argument("jobs", type=Path, nargs="+")
    join.add_argument("--gpu-minutes", type=float, required=True)
    join.add_argument("--revision", required=True)
    join.add_argument("--encoders", type=Path, nargs="*", default=[], help="folders of pre-training runs")
    join.add_argument("--add", action="store_true", help="keep the rows of other encoders")
    given = options.parse_args()
    if given.way == "run":
        run_all(json.loads(given.jobs.read_text()), given.out, given.data, workers=given.workers)
    else:
        runs = {folder.name: pretraining_of(folder) for folder in given.encoders}
        print(write_result(given.jobs, runs, gpu_minutes=given.gpu_minutes, revision=given.revision, add=given.add))


def run_all(jobs: list[dict[str, Any]], out: Path, data: Path, *, workers: int) -> None:
    """Run jobs in worker processes; each takes the next job when it is free."""
    out.mkdir(parents=True, exist_ok=True)
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    for job in jobs:
        queue.put(job)
    for _ in range(workers):
        queue.put(None)
    running = [context.Process(target=work, args=(queue, out, data, number)) for number in range(workers)]
    for process in running:
        process.start()
    for process in running:
        process.join()


def work(queue: Any, out: Path, data: Path, number: int) -> None:
    torch.set_num_threads(1)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    while (job := queue.get()) is not None:
        began = time.monotonic()
        try:
            name = "-".join([job["name"], job["set"], *Path(job["encoder"]).parts[-2:], *map(str, job["seeds"])])
            scores = run_job(job, out / "runs" / name, data)
            line = {**job, "scores": scores}
        except Exception as error:
            traceback.print_exc()
            line = {**job, "error": repr(error)[:300]}
        line |= {"seconds": round(time.monotonic() - began, 1), "worker": number, "ended": time.time()}
        with (out / LINES).open("a") as stream:
            stream.write(json.dumps(line) + "\n")


def run_job(job: dict[str, Any], out: Path, data: Path) -> list[dict[str, Any]]:
    """The scores of each seed, by split."""
    protocol = merge(SHORT, PROTOCOLS[job["set"]]) if job["set"] in PROTOCOLS else merge(SHORT, ENTITIES)
    keys = {
        "stage": "finetune",
        "start": job["encoder"],
        "out": str(out),
        "seeds": job["seeds"],
        "data": {"sets": [job["set"]], "root": str(data)},
    }
    recipe = FinetuneRecipe.model_validate(merge(keys, protocol, job.get("recipe", {})))
    if job["name"].startswith("transformers"):
        return [with_transformers(recipe, seed) for seed in recipe.seeds]
    finetune(recipe, progress_shown=False)
    found = []
    for seed in recipe.seeds:
        for path in sorted((out / "runs").glob(f"*seed{seed}*/run.json")):
            run = json.loads(path.read_text())
            lines = [json.loads(line) for line in (path.parent / "metrics.jsonl").read_text().splitlines()]
            curve = [round(next(iter(line["dev"].values())), 4) for line in lines if "dev" in line]
            found.append({"seed": seed, **run["scores"], "curve": curve, "seconds": run["seconds"]})
    return found


def with_transformers(recipe: FinetuneRecipe, seed: int) -> dict[str, Any]:
    """BertForSequenceClassification on the same examples: scores of the best epoch on dev."""
    from transformers import BertForSequenceClassification, get_linear_schedule_with_warmup

    with open_context(recipe, Parallel(Sizes(), torch.device("cuda"))) as context:
        task = context.data.task
        run = Run(Cell(), seed, None if recipe.folds is None else recipe.folds.use[0])
        splits, plan = context.data.splits(run.fold), plan_of(recipe, run, context)
        torch.manual_seed(seed)
        model = BertForSequenceClassification.from_pretrained(
            str(context.start), num_labels=len(task.labels), dtype=torch.float32
        ).cuda()
        matrices = [weight for weight in model.parameters() if weight.ndim > 1]
        vectors = [weight for weight in model.parameters() if weight.ndim <= 1]
        groups = [{"params": matrices, "weight_decay": 0.01}, {"params": vectors, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=recipe.optimizer.lr, fused=True)
        schedule = get_linear_schedule_with_warmup(optimizer, round(0.1 * plan.count), plan.count)

        def forward(batch: Sequence[Example]) -> torch.Tensor:
            width = max(len(example.ids) for example in batch)
            ids, kinds, seen = (torch.zeros(len(batch), width, dtype=torch.long) for _ in range(3))
            for place, example in enumerate(batch):
                ids[place, : len(example.ids)] = torch.as_tensor(example.ids)
                kinds[place, : len(example.ids)] = torch.as_tensor(example.segments)
                seen[place, : len(example.ids)] = 1
            with torch.autocast("cuda", torch.bfloat16):
                logits = model(ids.cuda(), attention_mask=seen.cuda(), token_type_ids=kinds.cuda()).logits
            return torch.as_tensor(logits).float()

        @torch.no_grad()
        def evaluate(split: Split) -> dict[str, float]:
            model.eval()
            order = sorted(range(len(split.examples)), key=lambda index: len(split.examples[index].ids))
            logits: dict[int, Any] = {}
            for at in range(0, len(order), 128):
                part = order[at : at + 128]
                found = forward([split.examples[index] for index in part])
                logits.update(zip(part, found.cpu().numpy(), strict=True))
            remaining = iter(logits[index] for index in range(len(order)))
            documents = zip(split.docs, split.encoded, strict=True)
            predictions = [task.decode(doc, parts, [next(remaining) for _ in parts]) for doc, parts in documents]
            model.train()
            return dict(score(task, split, predictions))

        best: dict[str, Any] = {}
        curve = []
        model.train()
        epochs = [
            split_epoch(epoch_order(epoch, plan.repeats, seed=seed), plan.lengths, plan.size)[:count]
            for epoch, count in enumerate(plan.steps_of_epoch)
        ]
        for number, indices in [(number, indices) for epoch in epochs for number, indices in enumerate(epoch, 1)]:
            examples = [plan.examples[index] for index in indices]
            targets = torch.stack([torch.as_tensor(example.targets) for example in examples]).cuda()
            logits, labels = forward(examples), max(1, sum(map(label_count, examples)))
            if task.loss == "binary":
                loss = binary_loss(logits, targets.float(), LossSettings()) / labels
            else:
                loss = choice_loss(logits, targets.long(), task.groups, LossSettings()) / labels
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            schedule.step()
            if number < len(epochs[len(curve)]):
                continue
            assert splits.dev is not None
            assert splits.test is not None
            dev = evaluate(splits.dev)
            metric = recipe.evaluation.metric or next(iter(dev))
            curve.append(round(dev[metric], 4))
            if not best or dev[metric] > best["dev"][metric]:
                best = {"seed": seed, "dev": dev, "test": evaluate(splits.test)}
        return best | {"curve": curve}


def score_of(job: dict[str, Any], scores: dict[str, float]) -> float:
    return 100 * scores["accuracy" if job["set"] == "PubMedQA" else next(iter(scores))]


def pretraining_of(folder: Path) -> dict[str, Any]:
    """Tokens, seconds, throughput of the last ten log lines, and held-out losses of a pre-training run."""
    run = json.loads((folder / "run.json").read_text())
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    logged = [line for line in lines if "tokens_per_s" in line]
    losses = {name: value for name, value in logged[-1].items() if name.endswith(("_loss", "_accuracy"))}
    rate = median(line["tokens_per_s"] for line in logged[-10:])
    return {
        "tokens": run["tokens"],
        "seconds": round(run["seconds"], 1),
        "tokens_per_s": rate,
        "last": losses,
        "held_out": run["held_out"],
    }


def write_result(
    files: list[Path], runs: dict[str, Any], *, gpu_minutes: float, revision: str, add: bool = False
) -> str:
    """Write the scores of all jobs, seeds of one setting together; returns a table."""
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for job in (json.loads(line) for path in files for line in path.read_text().splitlines()):
        parts = Path(job["encoder"]).parts
        encoder = parts[-2] if parts[-1] == "model" else parts[-1]
        row = rows.setdefault(
            (job["set"], encoder, job["name"]),
            {"set": job["set"], "encoder": encoder, "head": job["name"], "seeds": []},
        )
        for scores in job.get("scores", ()):
            row["seeds"].append(scores["seed"])
            for split in ("dev", "test"):
                if split in scores:
                    # Entity datasets are scored on dev alone, which their protocol names as the test split.
                    scored = split if job["set"] in PROTOCOLS else "dev"
                    row.setdefault(scored, []).append(round(score_of(job, scores[split]), 2))
    lines = []
    for row in rows.values():
        for split in ("dev", "test"):
            if split in row:
                row[f"{split}_mean"] = round(fmean(row[split]), 2)
        means = "  ".join(f"{split} {row[f'{split}_mean']:.2f}" for split in ("dev", "test") if split in row)
        lines.append(f"{row['set']:<18}{row['encoder']:<16}{row['head']:<16}{means}  ({len(row['seeds'])})")
    facts_of_run = {"hardware": "one NVIDIA H200, 16 CPU cores", "gpu_minutes": gpu_minutes, "revision": revision}
    found = {**facts_of_run, "date": facts()["date"], "heads": HEADS, "protocols": PROTOCOLS}
    found["pretraining"] = runs
    found["rows"] = list(rows.values())
    if add:
        made = {"date": found["date"], "revision": revision, "gpu_minutes": gpu_minutes}
        before = json.loads(RESULT.read_text())
        encoders = {row["encoder"] for row in found["rows"]}
        kept = [row for row in before["rows"] if row["encoder"] not in encoders]
        found = before | {"pretraining": before["pretraining"] | {name: run | made for name, run in runs.items()}}
        found["rows"] = kept + [row | made for row in rows.values()]
    RESULT.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return "\n".join(sorted(lines))


if __name__ == "__main__":
    main()
