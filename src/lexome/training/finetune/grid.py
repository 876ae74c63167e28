"""Runs of a grid search: their recipes and records, and the summary of their scores, as JSON and as a table."""

import math
import statistics
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from lexome.errors import UsageError
from lexome.files import atomic_write, read_json, write_json
from lexome.infer.annotator import default_model
from lexome.infer.named_models import DEFAULT
from lexome.infer.predictor import MODEL as ONNX
from lexome.infer.predictor import SETTINGS, read_settings
from lexome.models.exported import write_exported
from lexome.models.hf_folder import find_checkpoint
from lexome.recipe.finetune import SPLITS, FinetuneRecipe, GridTable
from lexome.tasks.task import TASK
from lexome.training.finetune.examples import DEV, TEST
from lexome.training.record import FinetuneRecord, read_record

# The folder of all runs in `out`, and that of the model in a run.
RUNS, MODEL = "runs", "model"
# The folder of the gold documents in `out`, as read from their source; and that of an exported model's float weights.
GOLD, START = "gold", "start"
SUMMARY, TABLE = "summary.json", "summary.txt"
# What marks a folder as the output of a fine-tuning.
OUTPUTS = (RUNS, GOLD, START, SPLITS, SUMMARY, TABLE)


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination of a grid; None for settings that the grid does not vary."""

    batch: int | None = None
    lr: float | None = None
    epochs: float | None = None

    @property
    def name(self) -> str:
        """Such as batch16-lr3e-05; empty if nothing is varied."""
        settings = (("batch", self.batch), ("lr", self.lr), ("epochs", self.epochs))
        return "-".join(f"{key}{value:g}" for key, value in settings if value is not None)


@dataclass(frozen=True, slots=True)
class Run:
    """One training run: a cell, a seed, and a fold in cross-validation."""

    cell: Cell
    seed: int
    fold: int | None = None

    @property
    def name(self) -> str:
        """The name of its folder."""
        parts = [self.cell.name, f"seed{self.seed}", "" if self.fold is None else f"fold{self.fold}"]
        return "-".join(filter(None, parts))


def cells_of(grid: GridTable) -> list[Cell]:
    """Every combination of the grid, or the one cell of a recipe without one."""
    return [Cell(*values) for values in product(grid.batch or (None,), grid.lr or (None,), grid.epochs or (None,))]


def gold_path(out: Path, split: str, fold: int | None) -> Path:
    """The file of the gold documents, shared by all runs of a fold."""
    return out / GOLD / f"{'' if fold is None else f'fold{fold}-'}{split}.jsonl"


def runs_of(cells: Sequence[Cell], seeds: Sequence[int], folds: Sequence[int | None]) -> list[Run]:
    """Fold by fold, so that each fold is encoded once."""
    return [Run(cell, seed, fold) for fold in folds for cell in cells for seed in seeds]


def recipe_of_run(recipe: FinetuneRecipe, run: Run) -> FinetuneRecipe:
    """The recipe of one run alone, validated again: no grid, one seed, one fold."""
    changed: dict[str, Any] = recipe.model_dump()
    changed |= {"grid": {}, "seeds": (run.seed,)}
    if run.cell.batch is not None:
        changed["batch"] |= {"sequences": run.cell.batch, "tokens": None}
    if run.cell.lr is not None:
        changed["optimizer"]["lr"] = run.cell.lr
    if run.cell.epochs is not None:
        changed["epochs"] = run.cell.epochs
    if run.fold is not None:
        changed["folds"]["use"] = (run.fold,)
    return FinetuneRecipe.model_validate(changed)


def finished(folder: Path, identities: Collection[str]) -> FinetuneRecord | None:
    """The record of this run, by any of its identities, if finished; UsageError for a different run."""
    facts = read_record(folder, FinetuneRecord)
    if facts is not None and facts.identity not in identities:
        raise UsageError(
            f"{folder}: holds a run with other settings, on other data or from another checkpoint. Choose another "
            "`out`, or remove that folder.",
            code="other-settings",
            value=folder,
        )
    return facts


@dataclass(frozen=True, slots=True)
class Spread:
    """Statistics of the scores of several runs. `sd` is the sample standard deviation; None for a single run."""

    runs: int
    mean: float
    median: float
    sd: float | None
    least: float
    most: float

    @classmethod
    def of(cls, scores: Sequence[float]) -> "Spread":
        """The spread of at least one score."""
        sd = statistics.stdev(scores) if len(scores) > 1 else None
        return cls(len(scores), statistics.fmean(scores), statistics.median(scores), sd, min(scores), max(scores))


@dataclass(frozen=True, slots=True)
class Row:
    """One cell: the names of its runs, and score statistics by split and metric."""

    cell: Cell
    runs: tuple[str, ...]
    spreads: dict[str, dict[str, Spread]]


@dataclass(frozen=True, slots=True)
class Summary:
    """All cells of a grid; a recipe without a grid has one.

    best      the index of the cell with the highest mean on dev; None without dev scores
    best_run  the run of that cell with the highest score on dev
    failed    failed runs, with the reason
    """

    measure: str | None
    rows: tuple[Row, ...]
    best: int | None
    best_run: str | None
    warnings: tuple[str, ...]
    failed: dict[str, str]


def summarize(records: Sequence[FinetuneRecord], failed: dict[str, str]) -> Summary:
    """Summarize finished runs, with cells in order of first appearance."""
    measure = next((facts.measure for facts in records if facts.measure is not None), None)
    cells: dict[Cell, list[FinetuneRecord]] = {}
    for facts in records:
        cells.setdefault(cell_of(facts), []).append(facts)
    rows = [Row(cell, tuple(facts.name for facts in members), _spreads(members)) for cell, members in cells.items()]
    warnings = tuple(dict.fromkeys(warning for facts in records for warning in facts.warnings))
    best = best_of(rows, measure)
    run = None
    if best is not None:
        members = list(cells.values())[best]
        run = max(members, key=lambda facts: _on_dev(facts, measure)).name
    return Summary(measure, tuple(rows), best, run, warnings, failed)


def cell_of(facts: FinetuneRecord) -> Cell:
    """The cell that a run belongs to."""
    return Cell(facts.batch, facts.lr, facts.epochs)


def best_of(rows: Sequence[Row], measure: str | None) -> int | None:
    """The index of the cell with the highest mean on dev, the first on ties; a single cell is always the best."""
    if len(rows) == 1:
        return 0
    scores = [row.spreads.get(DEV, {}).get(measure or "") for row in rows]
    # An undefined mean, such as a correlation with constant values, is never the best.
    known = [
        (spread.mean, -place)
        for place, spread in enumerate(scores)
        if spread is not None and not math.isnan(spread.mean)
    ]
    return -max(known)[1] if known else None


def _on_dev(facts: FinetuneRecord, measure: str | None) -> float:
    """A run's score on dev; minus infinity if it is missing or undefined."""
    score = facts.scores.get(DEV, {}).get(measure or "", math.nan)
    return -math.inf if math.isnan(score) else score


def write_summary(folder: Path, summary: Summary) -> None:
    """Write summary.json and summary.txt."""
    write_json(folder / SUMMARY, asdict(summary))
    with atomic_write(folder / TABLE) as stream:
        stream.write(table_of(summary).encode())


def read_best(folder: Path) -> str | None:
    """The name of the best run of an earlier fine-tuning in a folder; None if there is none."""
    path = folder / SUMMARY
    if not path.is_file():
        return None
    best = read_json(path, remedy="Run the fine-tuning again.").get("best_run")
    return best if isinstance(best, str) else None


def start_of(path: Path, out: Path | None = None) -> Path:
    """The checkpoint at a path: the path itself, or the best model of an earlier fine-tuning there.

    For an exported model, and for "default", the default model, the float weights are written below `out`.
    """
    if out is not None:
        if str(path) == DEFAULT and not path.exists():
            return _exported_checkpoint(default_model(), out / START)
        if all((path / name).is_file() for name in (ONNX, SETTINGS)):
            return _exported_checkpoint(path, out / START)
    best = read_best(path)
    if best is None:
        return find_checkpoint(path)
    model = path / RUNS / best / MODEL
    if not model.is_dir():
        message = f"{path}: the weights of its best run, {best}, were not saved. Rerun it with keep_models set to best."
        raise UsageError(message, code="missing-weights", value=best)
    return model


def _exported_checkpoint(exported: Path, folder: Path) -> Path:
    """An exported model as a checkpoint in this folder, written once; its task is beside the weights."""
    settings = read_settings(exported)
    # Named by the hash of the weights, so that another version of the model gets a folder of its own.
    checkpoint = folder / f"{settings.source['name']}-{settings.source['weights_sha256'][:8]}"
    if not (checkpoint / TASK).is_file():
        write_exported(
            exported / ONNX,
            checkpoint,
            kind=settings.kind,
            labels=settings.labels,
            tokenizer=exported,
            name=settings.source["name"],
        )
        write_json(checkpoint / TASK, settings.task)
    return checkpoint


def table_of(summary: Summary) -> str:
    """The summary as a text table: a line for each cell and split, with the selection metric."""
    lines: list[tuple[str, ...]] = [("", "split", "runs", "mean", "median", "sd", "least", "most")]
    for place, row in enumerate(summary.rows):
        name = row.cell.name or "all runs"
        name += " *" if place == summary.best and len(summary.rows) > 1 else ""
        for split in (DEV, TEST):
            spread = row.spreads.get(split, {}).get(summary.measure or "")
            if spread is not None:
                lines.append((name, split, str(spread.runs), *_numbers(spread)))
                name = ""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = [f"{summary.measure or 'no scores'}"]
    for line in lines:
        # Names to the left, numbers to the right.
        cells = [*map(str.ljust, line[:2], widths[:2]), *map(str.rjust, line[2:], widths[2:])]
        text.append("  ".join(cells).rstrip())
    text += [f"warning: {warning}" for warning in summary.warnings]
    text += [f"failed: {name}: {reason}" for name, reason in summary.failed.items()]
    return "\n".join(text) + "\n"


def _numbers(spread: Spread) -> tuple[str, ...]:
    values = (spread.mean, spread.median, spread.sd, spread.least, spread.most)
    return tuple("-" if value is None else f"{value:.4f}" for value in values)


def _spreads(members: Sequence[FinetuneRecord]) -> dict[str, dict[str, Spread]]:
    """Statistics by split and metric, over the runs that have it."""
    spreads: dict[str, dict[str, Spread]] = {}
    for split in (DEV, TEST):
        scores = [facts.scores[split] for facts in members if split in facts.scores]
        names = dict.fromkeys(name for metrics in scores for name in metrics)
        if names:
            spreads[split] = {
                name: Spread.of([metrics[name] for metrics in scores if name in metrics]) for name in names
            }
    return spreads
