"""Recipes: read, overridden, refused with a reason, explained."""

from pathlib import Path

import pytest

from lexome.errors import RecipeError
from lexome.recipe import explain, load, stage_of
from lexome.recipe.corpus_stages import BuildRecipe
from lexome.recipe.stages import STAGES, schema_of

ROOT = Path(__file__).resolve().parents[1]
RECIPE = """
stage = "build"
out = "made"

[[sources]]
name = "one"
paths = ["a.xml"]

[near]
similarity = 0.7
"""


def written(folder: Path, text: str = RECIPE) -> Path:
    path = folder / "recipe.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(folder: Path, text: str, *overrides: str) -> str:
    with pytest.raises(RecipeError) as error:
        load(written(folder, text), BuildRecipe, overrides=overrides)
    return str(error.value)


def test_load_fills_in_what_is_not_said(tmp_path: Path) -> None:
    recipe = load(written(tmp_path), BuildRecipe)
    assert (recipe.near.similarity, recipe.near.bands, recipe.min_words) == (0.7, 16, 20)


@pytest.mark.parametrize(
    ("pair", "seen"),
    [
        ("seed=3", lambda recipe: recipe.seed == 3),
        ("out=other place", lambda recipe: recipe.out == Path("other place")),
        ("near.similarity=0.9", lambda recipe: recipe.near.similarity == 0.9),
        ("leakage.action=report", lambda recipe: recipe.leakage.action == "report"),
        (
            'sources.0.paths=["b.xml", "c.xml"]',
            lambda recipe: recipe.sources[0].paths == (Path("b.xml"), Path("c.xml")),
        ),
        ("languages=[]", lambda recipe: recipe.languages == ()),
        ("near.similarity=", lambda recipe: recipe.near.similarity == 0.8),
        ("seed=", lambda recipe: recipe.seed == 0),
    ],
)
def test_set_changes_one_key(tmp_path: Path, pair: str, seen) -> None:  # type: ignore[no-untyped-def]
    assert seen(load(written(tmp_path), BuildRecipe, overrides=[pair]))


def test_an_unknown_key_is_refused_with_a_near_name(tmp_path: Path) -> None:
    assert "unknown key near.similarty; did you mean similarity?" in refusal(
        tmp_path, RECIPE.replace("similarity", "similarty")
    )
    assert "unknown key sources.0.path; did you mean paths?" in refusal(tmp_path, RECIPE.replace("paths", "path"))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('stage = "build"', 'stage = "shard"', "stage is 'shard'; expected stage = \"build\""),
        ('stage = "build"', "", "it does not say its stage"),
        ('out = "made"', "", "out is missing"),
        ("0.7", "7", "near.similarity: Input should be less than or equal to 1, seen 7"),
        ('"one"', '"../one"', "sources.0.name"),
        ('paths = ["a.xml"]', 'paths = ["a.xml"]\nas_large_as = "two"', "expected another source's name"),
        ('paths = ["a.xml"]', "paths = []", "sources.0.paths"),
        ("similarity = 0.7", "bands = 7", "7 does not divide 128"),
        ('"made"', "made", "not TOML"),
    ],
)
def test_a_wrong_recipe_is_refused_with_what_was_seen(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert said in refusal(tmp_path, RECIPE.replace(old, new))


@pytest.mark.parametrize("pair", ["seed=-1", "seed=18446744073709551616", 'languages=["eng"]', 'languages=["zh"]'])
def test_what_no_build_can_do_is_refused_before_it_begins(tmp_path: Path, pair: str) -> None:
    assert pair.partition("=")[0] in refusal(tmp_path, RECIPE, pair)


@pytest.mark.parametrize("pair", ["seed", "=3", "sources.1.name=x", "sources.first.name=x", "out.inner=1"])
def test_a_wrong_override_is_refused(tmp_path: Path, pair: str) -> None:
    assert refusal(tmp_path, RECIPE, pair).startswith("--set")


def test_two_sources_of_one_name_are_refused(tmp_path: Path) -> None:
    twice = RECIPE + '\n[[sources]]\nname = "one"\npaths = ["b.xml"]\n'
    assert "two sources have the same name" in refusal(tmp_path, twice)


def test_a_file_that_is_no_recipe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="no such recipe"):
        stage_of(tmp_path / "missing.toml")
    with pytest.raises(RecipeError, match="is a folder"):
        stage_of(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b'out = "\xe9"')
    with pytest.raises(RecipeError, match="not UTF-8"):
        stage_of(tmp_path / "latin.toml")


def test_explain_writes_a_recipe_that_says_the_same(tmp_path: Path) -> None:
    recipe = load(written(tmp_path), BuildRecipe, overrides=['sources.0.format=text "quoted" \\ é'])
    again = tmp_path / "again.toml"
    again.write_text(explain(recipe), encoding="utf-8")
    assert load(again, BuildRecipe) == recipe


def like(folder: Path, name: str, keys: str, stage: str = "build") -> Path:
    """A recipe that is like another of the folder, beside recipe.toml."""
    written(folder)
    path = folder / f"{name}.toml"
    path.write_text(f'stage = "{stage}"\n{keys}', encoding="utf-8")
    return path


def test_a_recipe_takes_over_the_keys_of_the_one_it_is_like(tmp_path: Path) -> None:
    recipe = load(like(tmp_path, "other", 'like = "recipe"\nout = "elsewhere"\n[near]\nbands = 8\n'), BuildRecipe)
    same = load(tmp_path / "recipe.toml", BuildRecipe, overrides=["out=elsewhere", "near.bands=8"])
    assert recipe == same
    assert (recipe.near.similarity, "like" in explain(recipe)) == (0.7, False)


def test_a_list_takes_the_place_of_the_other_recipes_list(tmp_path: Path) -> None:
    sources = '[[sources]]\nname = "two"\npaths = ["b.xml"]\n'
    recipe = load(like(tmp_path, "other", f'like = "recipe"\n{sources}'), BuildRecipe)
    assert [source.name for source in recipe.sources] == ["two"]


def test_a_recipe_may_be_like_one_that_is_like_a_third(tmp_path: Path) -> None:
    like(tmp_path, "second", 'like = "recipe.toml"\nseed = 2\nmin_words = 5\n')
    path = like(tmp_path, "third", 'like = "second"\nseed = 3\n')
    recipe = load(path, BuildRecipe, overrides=["near.similarity=0.9"])
    assert (recipe.seed, recipe.min_words, recipe.near.similarity, recipe.out) == (3, 5, 0.9, Path("made"))


def test_a_stage_that_is_not_said_is_that_of_the_other_recipe(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "other.toml").write_text('like = "recipe"\n')
    assert stage_of(tmp_path / "other.toml") == "build"


@pytest.mark.parametrize(
    ("keys", "stage", "said"),
    [
        ('like = "missing"', "build", "there is no .*missing.toml. Name a recipe of the same folder"),
        ('like = "other"', "build", "leads back to other.toml"),
        ('like = "back"', "build", "back.toml: like is 'other', which leads back to back.toml"),
        ("like = 3", "build", "like is 3; expected the name of a recipe"),
        ('like = "recipe"', "shard", "stage is 'shard' in .*other.toml and 'build' in .*recipe.toml"),
        ('like = "recipe"\nsed = 1', "build", "other.toml, like .*recipe.toml: unknown key sed; did you mean seed"),
    ],
)
def test_a_recipe_that_is_like_none_is_refused(tmp_path: Path, keys: str, stage: str, said: str) -> None:
    like(tmp_path, "back", 'like = "other"')
    with pytest.raises(RecipeError, match=said):
        load(like(tmp_path, "other", keys, stage), BuildRecipe)


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").rglob("*.toml")), ids=lambda path: path.stem)
def test_every_shipped_recipe_is_valid(path: Path) -> None:
    stage = stage_of(path)
    assert stage in STAGES
    assert load(path, schema_of(str(stage))).stage == stage
