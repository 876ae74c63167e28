r"""F1 against GPU minutes of pre-training, with `lexome pretrain` and with Hugging Face's Trainer.

    python benchmarks/f1_minutes.py lexome START SHARDS FOLDER --minutes 1 2 4
    python benchmarks/f1_minutes.py trainer START SHARDS FOLDER --minutes 1 2 4
    lexome reproduce benchmarks/encoders.toml -m start=START -m lexome-1=FOLDER/lexome-1/model ... \
        -m shipped=models/lexome-12x384 --out STUDY
    python benchmarks/f1_minutes.py draw FOLDER STUDY [STUDY ...]

Both training loops start from the same weights, START in the vocabulary of SHARDS, and read the same tokens. Minutes
are wall-clock time including compilation: a first run of `lexome pretrain` measures the setup time on a fresh machine,
and each run trains for the remaining time. The Trainer gets the full minutes from its first step on, after a trial that
determines how many steps fit. `lexome pretrain` uses recipes/pretrain/gte-small.toml. The Trainer is set up like
Hugging Face's language-modeling example: concatenated documents split into rows of 512, 15% of tokens masked by its
collator, AdamW, linear decay; plus what a careful user adds: bfloat16, batches of 65,536 tokens, a learning rate of
5e-4 with warm-up, and data-loader workers.

F1 is the mean on the development splits of seven entity tasks under the protocol of benchmarks/encoders.toml, and over
studies that differ only in their seed (`--set "seeds=[1]"`). `draw` writes results/f1_minutes.json and
docs/images/f1_minutes.png; `redraw` writes only the picture, from results/f1_minutes.json and, for later recipes, from
results/sentence_tasks.json.
"""

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import (
    AutoModelForMaskedLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from facts import facts
from lexome.corpus.shards import Shards, open_shards
from lexome.recipe import load
from lexome.recipe.pretrain import PretrainRecipe
from lexome.reproduce.tables import STUDY, read_result
from lexome.training.pretrain import pretrain

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "recipes" / "pretrain" / "gte-small.toml"
LENGTH, ROWS, RATE, WARM_UP = 512, 128, 5e-4, 0.05
# Trial steps that measure the Trainer's speed, and how many of them are warm-up.
TRIED, NOT_COUNTED = 60, 20
CARRIED = "carried"
LOOPS = {"lexome": "lexome pretrain", "trainer": "Hugging Face Trainer"}
SHIPPED = ROOT / "models" / "lexome-12x384" / "run.json"
RESULT = ROOT / "results" / "f1_minutes.json"
PICTURE = ROOT / "docs" / "images" / "f1_minutes.png"
# Later recipes: the pre-training run and the encoder of results/sentence_tasks.json, and what they are.
LATER = {
    "encoder": ("encoder", "make encoder, with sentence-level objectives"),
    "encoder-420": ("default-teacher", "the same, then a stage on all entity datasets"),
}


def main() -> None:
    options = argparse.ArgumentParser()
    ways = options.add_subparsers(dest="way", required=True)
    for name in LOOPS:
        one = ways.add_parser(name)
        for argument in ("start", "shards", "folder"):
            one.add_argument(argument, type=Path)
        one.add_argument("--minutes", type=float, nargs="+", default=[1, 2, 4])
    ways.add_parser("redraw")
    draw = ways.add_parser("draw")
    draw.add_argument("folder", type=Path)
    draw.add_argument("studies", type=Path, nargs="+", metavar="study")
    given = options.parse_args()
    if given.way == "redraw":
        picture(json.loads(RESULT.read_text())["runs"], PICTURE)
        return
    if given.way == "draw":
        drawn(given.folder, given.studies)
        return
    given.folder.mkdir(parents=True, exist_ok=True)
    train = by_lexome if given.way == "lexome" else by_trainer
    train(given.start, given.shards, given.folder, given.minutes)


def by_lexome(start: Path, shards: Path, folder: Path, minutes: list[float]) -> None:
    """A short run measures the setup time on a fresh machine; then one run per number of minutes."""
    if not (folder / CARRIED).exists():
        carried(start, shards, folder / CARRIED)
    with tempfile.TemporaryDirectory() as scratch:
        ready = lexome_run(folder / CARRIED, shards, Path(scratch), 2.0)["ready_s"]
    for given in minutes:
        row = lexome_run(folder / CARRIED, shards, folder / f"lexome-{given:g}", 60 * given - ready)
        told(folder, f"lexome-{given:g}", row | {"minutes": given, "ready_on_a_bare_machine_s": ready})


def lexome_run(start: Path, shards: Path, out: Path, seconds: float) -> dict[str, Any]:
    """Run `lexome pretrain` for some seconds; returns its results and setup time."""
    began = time.monotonic()
    done = pretrain(recipe_of(start, shards, out, time_budget=seconds), progress_shown=False)
    return {
        "tokens": done.tokens,
        "train_s": round(done.seconds, 1),
        "ready_s": round(time.monotonic() - began - done.seconds, 1),
        "held_out": done.held_out,
    }


def carried(start: Path, shards: Path, out: Path) -> None:
    """START in the vocabulary of the shards, the common initialization: one step with a negligible learning rate."""
    with tempfile.TemporaryDirectory() as scratch:
        recipe = recipe_of(
            start, shards, Path(scratch), steps=1, time_budget=None, compile=False, optimizer={"lr": 1e-12}
        )
        shutil.copytree(pretrain(recipe, progress_shown=False).folder, out)


def recipe_of(start: Path, shards: Path, out: Path, **changes: Any) -> PretrainRecipe:
    """The recipe of the encoder, with other paths and length."""
    held = load(RECIPE, PretrainRecipe).model_dump()
    held |= {"start": start, "shards": shards, "out": out} | changes
    held["evaluation"]["every"] = None
    return PretrainRecipe.model_validate(held)


def by_trainer(start: Path, shards: Path, folder: Path, minutes: list[float]) -> None:
    """Run the Trainer for each number of minutes, counted from its first step."""
    if not (folder / CARRIED).exists():
        carried(start, shards, folder / CARRIED)
    rows = filled_rows(open_shards(shards))
    tried = trainer_run(folder / CARRIED, rows, None, steps=TRIED, seconds=float("inf"))
    for given in minutes:
        steps = int(60 * given / tried["step_s"])
        out = folder / f"trainer-{given:g}"
        told(folder, out.name, trainer_run(folder / CARRIED, rows, out, steps=steps, seconds=60 * given))


def filled_rows(shards: Shards) -> NDArray[np.unsignedinteger[Any]]:
    """Concatenated documents with special tokens, split into rows; the remainder is dropped."""
    special = shards.manifest["tokenizer"]["special"]
    begin, end = (np.asarray([special[name]], dtype=np.uint16) for name in ("[CLS]", "[SEP]"))
    parts: list[NDArray[Any]] = []
    for shard in shards.train:
        for document in np.split(shard.tokens, shard.document_ends[:-1]):
            parts += [begin, document, end]
    every = np.concatenate(parts)
    rows: NDArray[np.unsignedinteger[Any]] = every[: every.size // LENGTH * LENGTH].reshape(-1, LENGTH)
    return rows


class Clock(TrainerCallback):  # type: ignore[misc]
    """Records when each step ended, and stops the run when its time is over."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.ends: list[float] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if not self.ends:
            self.ends.append(time.monotonic())

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if state.global_step % 10 == 0 and torch.cuda.is_available():
            torch.cuda.synchronize()
        self.ends.append(time.monotonic())
        if self.ends[-1] - self.ends[0] >= self.seconds:
            control.should_training_stop = True


class Rows(torch.utils.data.Dataset[dict[str, Any]]):
    """Token rows in the form that the collator expects."""

    def __init__(self, rows: NDArray[Any]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, number: int) -> dict[str, Any]:
        return {"input_ids": self.rows[number].astype(np.int64)}


def trainer_run(start: Path, rows: NDArray[Any], out: Path | None, *, steps: int, seconds: float) -> dict[str, Any]:
    """Train for a number of steps or seconds, and save the model if a folder is given."""
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(start)
    model = AutoModelForMaskedLM.from_pretrained(start, dtype=torch.float32)
    clock = Clock(seconds)
    with tempfile.TemporaryDirectory() as scratch:
        trainer = Trainer(
            model=model,
            args=trainer_settings(scratch, steps),
            train_dataset=Rows(rows),
            data_collator=DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15),
            callbacks=[clock],
        )
        trainer.train()
    if out is not None:
        model.save_pretrained(out / "model")
        tokenizer.save_pretrained(out / "model")
    made = len(clock.ends) - 1
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    return {
        "minutes": round(seconds / 60, 3),
        "tokens": made * ROWS * LENGTH,
        "train_s": round(clock.ends[-1] - clock.ends[0], 1),
        "step_s": (clock.ends[-1] - clock.ends[min(NOT_COUNTED, made - 1)]) / max(1, made - NOT_COUNTED),
        "steps": made,
        "loss": losses[-1] if losses else None,
    }


def trainer_settings(scratch: str, steps: int) -> TrainingArguments:
    """The settings of Hugging Face's example, with a careful user's changes."""
    return TrainingArguments(
        output_dir=scratch,
        max_steps=steps,
        per_device_train_batch_size=ROWS,
        learning_rate=RATE,
        warmup_steps=int(WARM_UP * steps),
        weight_decay=0.01,
        bf16=torch.cuda.is_available(),
        use_cpu=not torch.cuda.is_available(),
        dataloader_num_workers=12,
        dataloader_drop_last=True,
        save_strategy="no",
        logging_steps=100,
        report_to="none",
        disable_tqdm=True,
    )


def told(folder: Path, name: str, row: dict[str, Any]) -> None:
    """Store the result of a run immediately."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    made = facts("torch", "transformers", "accelerate", "numpy") | {"gpu": gpu}
    (folder / f"{name}.json").write_text(json.dumps(row | {"facts": made}, indent=1) + "\n")
    print(name, json.dumps(row), flush=True)


def drawn(folder: Path, studies: list[Path]) -> None:
    """Merge minutes and F1, store and plot them."""
    outcomes = [read_result(study / STUDY) for study in studies]
    runs: dict[str, Any] = {}
    for name in outcomes[0].models:
        each = [[row.ours[name].value for row in outcome.rows] for outcome in outcomes]
        sets = {row.task: round(fmean(found), 2) for row, *found in zip(outcomes[0].rows, *each, strict=True)}
        means = [round(fmean(found), 2) for found in each]
        runs[name] = told_of(folder, name) | {"mean_f1": round(fmean(map(fmean, each)), 2), "each": means, "f1": sets}
    made = {name: run.pop("facts") for name, run in runs.items() if "facts" in run}
    result = {"facts": next(iter(made.values())), "scored": outcomes[0].environment, "runs": runs}
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    picture(runs, PICTURE)


def told_of(folder: Path, name: str) -> dict[str, Any]:
    """The stored record of a run; for models without a run, only their minutes."""
    if name == "start":
        return {"minutes": 0}
    if name == "shipped":
        return {"minutes": json.loads(SHIPPED.read_text())["gpu_minutes"]["pretraining_in_all"]}
    held: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return held


def later_recipes() -> list[tuple[str, float, float]]:
    """What later recipes are, minutes of their pre-training without compilation, and mean dev F1."""
    result = json.loads((ROOT / "results" / "sentence_tasks.json").read_text())
    found = []
    for run, (encoder, said) in LATER.items():
        rows = [row for row in result["rows"] if (row["encoder"], row["head"]) == (encoder, "token")]
        found.append((said, result["pretraining"][run]["seconds"] / 60, fmean(row["dev_mean"] for row in rows)))
    return found


def picture(runs: dict[str, Any], path: Path) -> None:
    """Plot one line per training loop, both from the same starting point, and a point for each later recipe."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for (loop, label), color in zip(LOOPS.items(), ("#1f6fb2", "#d1602b"), strict=True):
        points = [(0.0, runs["start"]["mean_f1"])]
        points += sorted((run["minutes"], run["mean_f1"]) for name, run in runs.items() if name.startswith(f"{loop}-"))
        axes.plot(*zip(*points, strict=True), "o-", color=color, label=label)
        for minutes, f1 in points[1:]:
            above = loop == "lexome"
            axes.annotate(f"{f1:.1f}", (minutes, f1), (0, 7 if above else -14), textcoords="offset points", ha="center")
    if shipped := runs.get("shipped"):
        said = f"models/lexome-12x384, {shipped['minutes']:.0f} minutes: {shipped['mean_f1']:.1f}"
        axes.axhline(shipped["mean_f1"], color="0.5", linestyle="--", linewidth=1, label=said)
    for (said, minutes, f1), marker in zip(later_recipes(), "s^", strict=True):
        axes.plot(minutes, f1, marker, color="#3b7f4a", label=said)
        axes.annotate(f"{f1:.1f}", (minutes, f1), (0, 7), textcoords="offset points", ha="center")
    axes.set_xlabel("GPU minutes of pre-training")
    axes.set_ylabel("mean F1 on seven development splits")
    axes.margins(y=0.12)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
