"""Recipes of vocabularies: those that are shipped, and those that make no sense."""

from pathlib import Path

import pytest
from errors import raises

from lexome.errors import RecipeError
from lexome.recipe import explain, load
from lexome.recipe.corpus_stages import VocabRecipe

RECIPES = Path(__file__).resolve().parents[3] / "recipes"
SHIPPED = [*sorted((RECIPES / "vocab").glob("*.toml")), RECIPES / "tiny" / "vocab.toml"]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_recipe_is_one(path: Path, tmp_path: Path) -> None:
    recipe = load(path, VocabRecipe)
    assert recipe.out.name == path.stem
    filled = tmp_path / "filled.toml"
    filled.write_text(explain(recipe))
    assert load(filled, VocabRecipe) == recipe


@pytest.mark.parametrize(
    ("setting", "code", "key"),
    [
        ("cased=false", "invalid-value", "cased"),
        ("size=10", "invalid-value", "size"),
        ("sample_documents=5", "invalid-value", "sample_megabytes"),
        ("kind=wordpeace", "invalid-value", "kind"),
        ("seeds=1", "unknown-key", "seeds"),
        ("max_new_tokens=5", "invalid-value", "max_new_tokens"),
        ("new=5", "renamed-key", "new"),
        ("adapt=models/lexome-12x384", "invalid-value", "kind"),
    ],
)
def test_invalid_settings_are_rejected(setting: str, code: str, key: str) -> None:
    with raises(RecipeError, code=code, value=key):
        load(RECIPES / "vocab" / "byte-bpe-50k.toml", VocabRecipe, overrides=[setting])
