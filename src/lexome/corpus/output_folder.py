"""Refuses to overwrite another recipe's corpus or shards unless `overwrite` is set."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lexome.errors import RecipeError, UsageError
from lexome.files import atomic_write, refuse_other_settings
from lexome.recipe import upgrade, validate
from lexome.recipe.corpus_stages import BuildRecipe, ShardRecipe

# The recipe of the run in progress, next to the completion marks, none of which has this name.
RECIPE_FILE = ".recipe.json"


@dataclass(frozen=True, slots=True)
class OutputFolder:
    """The output folder of a recipe.

    holds     what it is for, such as "a corpus"
    work      where completion marks are; it exists as soon as a job is done
    summary   the file written last; it and RECIPE_FILE have the recipe under the key "recipe"
    outputs   everything that is written into the folder
    """

    recipe: BuildRecipe | ShardRecipe
    holds: str
    work: Path
    summary: Path
    outputs: tuple[Path, ...]

    def check(self) -> None:
        """Raise UsageError if the folder has results of another recipe, or files that Lexome did not write."""
        out, stage = self.recipe.out, self.recipe.stage
        recorded = _recorded_recipe(self.work / RECIPE_FILE, stage) or _recorded_recipe(self.summary, stage)
        if recorded is None:
            if not self.work.is_dir() and (existing := next(filter(Path.exists, self.outputs), None)) is not None:
                message = f"{existing}: exists and was not written by `lexome {stage}`. Move it, or choose another out."
                raise UsageError(message, code="foreign-output", value=existing)
            return
        has_results = self.summary.exists() or any(path.name != RECIPE_FILE for path in self.work.rglob("*.json"))
        if self.recipe.overwrite or not has_results:
            return
        try:
            earlier = _settings(validate(upgrade(recorded, self.recipe.stage), type(self.recipe), str(self.summary)))
        except RecipeError:
            # Another version of Lexome wrote it: compare the keys as recorded, without defaults.
            earlier = recorded
        refuse_other_settings(
            out,
            earlier,
            _settings(self.recipe),
            holds=f"{self.holds} of another recipe",
            remedy="Choose another out, or set overwrite = true (--set overwrite=true).",
        )

    def record(self) -> None:
        """Write the recipe beside the completion marks."""
        path = self.work / RECIPE_FILE
        text = json.dumps({"recipe": recipe_keys(self.recipe)}, ensure_ascii=False).encode() + b"\n"
        if not path.is_file() or path.read_bytes() != text:
            with atomic_write(path) as stream:
                stream.write(text)


def recipe_keys(recipe: BuildRecipe | ShardRecipe) -> dict[str, Any]:
    """The recipe as outputs record it: all keys but `overwrite`, which says nothing about them."""
    return recipe.model_dump(mode="json", exclude={"overwrite"})


def _settings(recipe: BuildRecipe | ShardRecipe) -> dict[str, Any]:
    """The keys that the outputs depend on."""
    return recipe.model_dump(mode="json", exclude={"out", "overwrite"}, exclude_none=True)


def _recorded_recipe(path: Path, stage: str) -> dict[str, Any] | None:
    try:
        recipe = json.loads(path.read_bytes())["recipe"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return recipe if isinstance(recipe, dict) and recipe.get("stage") == stage else None
