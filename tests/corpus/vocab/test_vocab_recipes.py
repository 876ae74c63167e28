"""Recipes of vocabularies: those that are shipped, and those that make no sense."""

from pathlib import Path

import pytest

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
    ("setting", "message"),
    [
        ("cased=false", "byte-bpe keeps every byte, so it is always cased"),
        ("size=10", "size: Input should be greater than or equal to 300, seen 10"),
        ("sample_documents=5", "sample_documents and sample_megabytes are both given"),
        ("kind=wordpeace", "kind: Input should be 'wordpiece'"),
        ("seeds=1", "unknown key seeds; did you mean seed?"),
        ("new=5", "new says nothing without adapt"),
        ("adapt=models/lexome-12x384", "kind is that of the tokenizer that adapt names"),
    ],
)
def test_what_a_recipe_cannot_say(setting: str, message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        load(RECIPES / "vocab" / "byte-bpe-50k.toml", VocabRecipe, overrides=[setting])
