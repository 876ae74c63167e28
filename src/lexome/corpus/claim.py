"""Whose an output folder is: `build` and `shard` replace what another recipe made only where they are told to."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lexome.errors import RecipeError, UsageError
from lexome.formats.streams import replacing
from lexome.recipe import checked, difference
from lexome.recipe.corpus_stages import BuildRecipe, ShardRecipe

# Beside the marks, the recipe of the run that is under way. No mark has this name, unless its input was hidden.
NOTE = ".recipe.json"

# What says nothing about the outputs, only where they are and whether they may be replaced.
NOT_COUNTED = {"out", "overwrite"}


@dataclass(frozen=True, slots=True)
class Claim:
    """A recipe and the folder that it writes to.

    what   what the folder is to hold, such as "a corpus"
    work   where marks are, of which one is there as soon as something is done
    table  the file that comes last; it and the note have the recipe as `recipe`
    taken  all that is put in place there
    """

    recipe: BuildRecipe | ShardRecipe
    what: str
    work: Path
    table: Path
    taken: tuple[Path, ...]

    def require(self) -> None:
        """UsageError where the folder holds what another recipe made or began, or what is none of ours.

        The first may be replaced, with `overwrite`; where nothing is done yet there is nothing to lose.
        """
        out = self.recipe.out
        note = _recipe_in(self.work / NOTE, self.recipe.stage)
        before = note if note is not None else _recipe_in(self.table, self.recipe.stage)
        if before is not None:
            if not self.recipe.overwrite and self._has_results() and (other := self._other(before)):
                raise UsageError(
                    f"{out}: holds {self.what} of another recipe: {other}. Name another out, or set overwrite = true "
                    "(--set overwrite=true)."
                )
        elif not self.work.is_dir() and (found := next(filter(Path.exists, self.taken), None)) is not None:
            raise UsageError(
                f"{found}: exists, and `lexome {self.recipe.stage}` did not make it. Move it away, or name another out."
            )

    def note(self) -> None:
        """Write down whose the folder is from now on."""
        path = self.work / NOTE
        text = json.dumps({"recipe": said(self.recipe)}, ensure_ascii=False).encode() + b"\n"
        if not path.is_file() or path.read_bytes() != text:
            with replacing(path) as stream:
                stream.write(text)

    def _has_results(self) -> bool:
        return self.table.exists() or any(path.name != NOTE for path in self.work.rglob("*.json"))

    def _other(self, before: dict[str, Any]) -> str | None:
        """How an earlier recipe differs from this one, every default filled in."""
        try:
            earlier = checked(before, type(self.recipe), str(self.table))
        except RecipeError:
            return "its keys are those of another version of Lexome"
        return difference(_counted(earlier), _counted(self.recipe))


def said(recipe: BuildRecipe | ShardRecipe) -> dict[str, Any]:
    """The keys of a recipe as outputs keep them: without that which only says whether others may be replaced."""
    return recipe.model_dump(mode="json", exclude={"overwrite"})


def _counted(recipe: BuildRecipe | ShardRecipe) -> dict[str, Any]:
    return recipe.model_dump(mode="json", exclude=NOT_COUNTED, exclude_none=True)


def _recipe_in(path: Path, stage: str) -> dict[str, Any] | None:
    """The recipe that a file of ours keeps, if it is one of this stage."""
    try:
        recipe = json.loads(path.read_bytes())["recipe"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return recipe if isinstance(recipe, dict) and recipe.get("stage") == stage else None
