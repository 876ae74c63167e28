"""Recipes: read, overridden, refused with a reason, explained."""

from pathlib import Path

import pytest
from errors import raises

from lexome.errors import RecipeError
from lexome.recipe import RENAMED_KEYS, STAGES, _known_keys, downgrade, explain, load, of, schema_of, stage_of, upgrade
from lexome.recipe.corpus_stages import BuildRecipe
from lexome.recipe.pretrain import PretrainRecipe

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


def test_load_fills_in_what_is_not_said(tmp_path: Path) -> None:
    recipe = load(str(written(tmp_path)), BuildRecipe)
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


@pytest.mark.parametrize(
    ("old", "new", "code", "value"),
    [
        ("similarity", "similarty", "unknown-key", "near.similarty"),
        ("paths", "path", "missing-key", "sources.0.paths"),
        ('stage = "build"', 'stage = "shard"', "wrong-stage", "shard"),
        ('stage = "build"', "", "wrong-stage", None),
        ('out = "made"', "", "missing-key", "out"),
        ("0.7", "7", "invalid-value", "near.similarity"),
        ('"one"', '"../one"', "invalid-value", "sources.0.name"),
        ('paths = ["a.xml"]', 'paths = ["a.xml"]\nmatch_size_of = "two"', "invalid-value", "sources.one.match_size_of"),
        ('paths = ["a.xml"]', "paths = []", "invalid-value", "sources.0.paths"),
        ("similarity = 0.7", "bands = 7", "invalid-value", "near.bands"),
        ('paths = ["a.xml"]', 'paths = ["a.xml"]\nas_large_as = "two"', "renamed-key", "sources.0.as_large_as"),
        ("similarity = 0.7", "run_words = 7", "renamed-key", "near.run_words"),
    ],
)
def test_invalid_recipes_are_rejected(tmp_path: Path, old: str, new: str, code: str, value: str | None) -> None:
    with raises(RecipeError, code=code, value=value):
        load(written(tmp_path, RECIPE.replace(old, new)), BuildRecipe)


def test_an_unknown_key_comes_with_a_similar_one(tmp_path: Path) -> None:
    with raises(RecipeError, code="unknown-key", value="near.similarty", mentions="similarity"):
        load(written(tmp_path, RECIPE.replace("similarity", "similarty")), BuildRecipe)


@pytest.mark.parametrize("pair", ["seed=-1", "seed=18446744073709551616", 'languages=["eng"]', 'languages=["zh"]'])
def test_invalid_overrides_of_a_value_are_rejected(tmp_path: Path, pair: str) -> None:
    with raises(RecipeError, code="invalid-value", mentions=pair.partition("=")[0]):
        load(written(tmp_path), BuildRecipe, overrides=[pair])


@pytest.mark.parametrize("pair", ["seed", "=3", "sources.1.name=x", "sources.first.name=x", "out.inner=1"])
def test_overrides_that_name_no_key_are_rejected(tmp_path: Path, pair: str) -> None:
    with raises(RecipeError, code="invalid-override", value=pair):
        load(written(tmp_path), BuildRecipe, overrides=[pair])


def test_two_sources_of_one_name_are_rejected(tmp_path: Path) -> None:
    with raises(RecipeError, code="invalid-value", value="sources"):
        load(written(tmp_path, RECIPE + '\n[[sources]]\nname = "one"\npaths = ["b.xml"]\n'), BuildRecipe)


def test_files_that_are_not_recipes_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b'out = "\xe9"')
    (tmp_path / "bare.toml").write_text("out = made")
    (tmp_path / "deep.toml").write_text("x = " + "[" * 5_000)
    for name, code in (
        ("missing.toml", "missing-file"),
        ("", "not-a-file"),
        ("latin.toml", "invalid-encoding"),
        ("bare.toml", "invalid-toml"),
        ("deep.toml", "invalid-toml"),
    ):
        with raises(RecipeError, code=code, value=tmp_path / name):
            stage_of(tmp_path / name)


def test_a_value_of_another_kind_under_a_key_with_renamed_values_is_rejected() -> None:
    with raises(RecipeError, code="invalid-value", value="new_vocabulary"):
        of({"out": "a", "shards": "b", "new_vocabulary": []}, PretrainRecipe)


def test_every_renamed_key_is_a_key_of_its_stage_and_the_old_one_is_not() -> None:
    for stage, renamed in RENAMED_KEYS.items():
        for old, new in renamed.items():
            if "recipe." in old or "variants." in old or "report." in old or "selection." in old:
                continue  # keys of a fine-tuning recipe inside a study
            if old.startswith("model."):
                continue  # fields of EncoderConfig, which the schema does not list
            assert new.split(".")[-1] in known_keys(stage, new), (stage, new)
            assert old.split(".")[-1] not in known_keys(stage, old), (stage, old)


def known_keys(stage: str, key: str) -> list[str]:
    """The keys of the table that a key is in."""
    *outer, _ = key.split(".")
    return _known_keys(schema_of(stage), tuple(0 if name == "*" else name for name in outer))


def test_keys_of_the_first_edition_are_upgraded_and_downgraded() -> None:
    old = {"optimizer": {"decay": 0.1, "lr": 1e-3}, "batch": {"passes": 2}, "new_vocabulary": "carry"}
    new = {
        "optimizer": {"weight_decay": 0.1, "lr": 1e-3},
        "batch": {"gradient_accumulation": 2},
        "new_vocabulary": "transfer",
    }
    assert upgrade(old, "pretrain") == new
    assert downgrade(new, "pretrain") == old


def test_explain_writes_a_recipe_that_says_the_same(tmp_path: Path) -> None:
    recipe = load(written(tmp_path), BuildRecipe, overrides=['sources.0.format=text "quoted" \\ é'])
    again = tmp_path / "again.toml"
    again.write_text(explain(recipe), encoding="utf-8")
    assert load(again, BuildRecipe) == recipe


def extending(folder: Path, name: str, keys: str, stage: str = "build") -> Path:
    """A recipe that extends another in the folder, beside recipe.toml."""
    written(folder)
    path = folder / f"{name}.toml"
    path.write_text(f'stage = "{stage}"\n{keys}', encoding="utf-8")
    return path


def test_a_recipe_takes_over_the_keys_of_the_one_it_extends(tmp_path: Path) -> None:
    recipe = load(
        extending(tmp_path, "other", 'extends = "recipe"\nout = "elsewhere"\n[near]\nbands = 8\n'), BuildRecipe
    )
    same = load(tmp_path / "recipe.toml", BuildRecipe, overrides=["out=elsewhere", "near.bands=8"])
    assert recipe == same
    assert (recipe.near.similarity, "extends" in explain(recipe)) == (0.7, False)


def test_a_list_takes_the_place_of_the_other_recipes_list(tmp_path: Path) -> None:
    sources = '[[sources]]\nname = "two"\npaths = ["b.xml"]\n'
    recipe = load(extending(tmp_path, "other", f'extends = "recipe"\n{sources}'), BuildRecipe)
    assert [source.name for source in recipe.sources] == ["two"]


def test_a_recipe_may_extend_one_that_extends_a_third(tmp_path: Path) -> None:
    extending(tmp_path, "second", 'extends = "recipe.toml"\nseed = 2\nmin_words = 5\n')
    path = extending(tmp_path, "third", 'extends = "second"\nseed = 3\n')
    recipe = load(path, BuildRecipe, overrides=["near.similarity=0.9"])
    assert (recipe.seed, recipe.min_words, recipe.near.similarity, recipe.out) == (3, 5, 0.9, Path("made"))


def test_a_stage_that_is_not_said_is_that_of_the_other_recipe(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "other.toml").write_text('extends = "recipe"\n')
    assert stage_of(tmp_path / "other.toml") == "build"


@pytest.mark.parametrize(
    ("keys", "stage", "code"),
    [
        ('extends = "missing"', "build", "missing-file"),
        ('extends = "other"', "build", "circular-extends"),
        ('extends = "back"', "build", "circular-extends"),
        ("extends = 3", "build", "invalid-value"),
        ('extends = "recipe"', "shard", "stage-conflict"),
        ('extends = "recipe"\nsed = 1', "build", "unknown-key"),
        ('like = "recipe"', "build", "renamed-key"),
    ],
)
def test_recipes_that_extend_no_recipe_are_rejected(tmp_path: Path, keys: str, stage: str, code: str) -> None:
    extending(tmp_path, "back", 'extends = "other"')
    with raises(RecipeError, code=code):
        load(extending(tmp_path, "other", keys, stage), BuildRecipe)


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").rglob("*.toml")), ids=lambda path: path.stem)
def test_every_shipped_recipe_is_valid(path: Path) -> None:
    stage = stage_of(path)
    assert stage in STAGES
    assert load(path, schema_of(str(stage))).stage == stage
