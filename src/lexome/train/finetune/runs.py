"""The runs of a recipe: every cell of its grid, with every seed, on every fold; each a plain recipe of its own."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

from lexome.recipe.finetune import BatchTable, FinetuneRecipe, GridTable
from lexome.values import value

# Inside `out`, the folder of all runs; inside a run, that of its model.
RUNS, MODEL = "runs", "model"
# Inside `out`, the documents that scores are by, as their source has them.
GOLD = "gold"


@value
class Cell:
    """One combination of a grid; None for what the grid does not vary."""

    batch: int | None = None
    lr: float | None = None
    epochs: float | None = None

    @property
    def name(self) -> str:
        """Such as batch16-lr3e-05; empty where nothing is varied."""
        said = (("batch", self.batch), ("lr", self.lr), ("epochs", self.epochs))
        return "-".join(f"{what}{given:g}" for what, given in said if given is not None)


@value
class Run:
    """One training: a cell, a seed, and a fold where there are some."""

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
    return [Cell(*given) for given in product(grid.batch or (None,), grid.lr or (None,), grid.epochs or (None,))]


def gold_path(out: Path, split: str, fold: int | None) -> Path:
    """The file of the documents that runs are scored by: all runs of a fold have the same."""
    return out / GOLD / f"{'' if fold is None else f'fold{fold}-'}{split}.jsonl"


def runs_of(cells: Sequence[Cell], seeds: Sequence[int], folds: Sequence[int | None]) -> list[Run]:
    """Fold by fold, so that each fold's rows are made once."""
    return [Run(cell, seed, fold) for fold in folds for cell in cells for seed in seeds]


def settled(recipe: FinetuneRecipe, run: Run) -> FinetuneRecipe:
    """The recipe of one run alone, checked anew: no grid, one seed, one fold."""
    changed: dict[str, Any] = recipe.model_dump()
    changed |= {"grid": {}, "seeds": (run.seed,)}
    if run.cell.batch is not None:
        changed["batch"] = {**BatchTable().model_dump(), "sequences": run.cell.batch}
        changed["batch"]["pass_tokens"] = recipe.batch.pass_tokens
    if run.cell.lr is not None:
        changed["optimizer"]["lr"] = run.cell.lr
    if run.cell.epochs is not None:
        changed["epochs"] = run.cell.epochs
    if run.fold is not None:
        changed["folds"]["use"] = (run.fold,)
    return FinetuneRecipe.model_validate(changed)
