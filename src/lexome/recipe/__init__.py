"""Recipes: one TOML file that fully describes one run, checked against its stage's schema."""

import difflib
import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lexome.errors import RecipeError


def keys_of(path: Path) -> tuple[dict[str, Any], list[Path]]:
    """The keys of a recipe and the files that say them, its own first.

    With `like = "NAME"` they are those of NAME.toml in the same folder, with its own laid over them; that recipe may be
    like a third. `like` is none of the keys.
    """
    files, layers = [path], [toml_of(path)]
    while (like := layers[-1].pop("like", None)) is not None:
        files.append(alike(files, like))
        layers.append(toml_of(files[-1]))
    stages = {str(layer["stage"]): file for layer, file in zip(layers, files, strict=True) if "stage" in layer}
    if len(stages) > 1:
        said = " and ".join(f"{stage!r} in {file}" for stage, file in stages.items())
        raise RecipeError(f"{path}: stage is {said}; expected a recipe to be like one of its own stage.")
    return merged(*reversed(layers)), files


def toml_of(path: Path) -> dict[str, Any]:
    """What a file says; RecipeError where it is no TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RecipeError(f"{path}: there is no such recipe. Check the path.") from None
    except IsADirectoryError:
        raise RecipeError(f"{path}: is a folder; expected a recipe, a TOML file.") from None
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path}: byte {error.start} is not UTF-8; expected a TOML file.") from None
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{path}: not TOML: {error}. A text value needs quotes.") from None


def alike(files: Sequence[Path], like: object) -> Path:
    """The file that `like` names in the last of some files, each of which is like the next."""
    path = files[-1]
    if not isinstance(like, str):
        raise RecipeError(f'{path}: like is {like!r}; expected the name of a recipe, such as like = "ner".')
    other = path.parent / f"{like.removesuffix('.toml')}.toml"
    if not other.is_file():
        raise RecipeError(f"{path}: like is {like!r}, and there is no {other}. Name a recipe of the same folder.")
    if any(other.samefile(file) for file in files):
        raise RecipeError(f"{path}: like is {like!r}, which leads back to {path.name}; expected an end. Leave one out.")
    return other


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Tables laid over one another, later ones winning, tables inside them likewise; None removes a key."""
    result: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            known = result.get(key)
            if value is None:
                result.pop(key, None)
            elif isinstance(value, Mapping):
                result[key] = merged(known if isinstance(known, Mapping) else {}, value)
            else:
                result[key] = value
    return result


__all__ = ["Beta", "Recipe", "Table", "checked", "explain", "load", "overrides_of", "stage_of"]


class Table(BaseModel):
    """A table of a recipe: frozen, and a key it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Recipe(Table):
    """What every recipe says: which verb it is for. Each stage's schema adds its own keys."""

    stage: str


Schema = TypeVar("Schema", bound=Recipe)
Beta = Annotated[float, Field(ge=0, lt=1)]
"""How much of a running mean stays at each step, as AdamW takes it."""


def load(path: Path, schema: type[Schema], *, overrides: Iterable[str] = ()) -> Schema:
    """The recipe in a TOML file, with KEY=VALUE overrides; RecipeError says what is wrong and where.

    A key inside a table is named with a dot, one inside a list of tables by its place: sources.0.limit=10.
    A value is read as TOML where it is TOML (10, true, ["a"]), else as text. Without one, KEY=, the key is left out.
    """
    # A study has a `like` of its own, which adds up lists.
    given, files = (toml_of(path), [path]) if "like" in schema.model_fields else keys_of(path)
    for pair in overrides:
        _override(given, pair)
    wanted = get_args(schema.model_fields["stage"].annotation)
    stage = given.get("stage")
    if stage not in wanted:
        seen = f"stage is {stage!r}" if stage is not None else "it does not say its stage"
        names = " or ".join(map(json.dumps, wanted))
        raise RecipeError(f"{path}: {seen}; expected stage = {names}. Give it to the verb it was written for.")
    return checked(given, schema, ", like ".join(map(str, files)))


def checked(given: Mapping[str, Any], schema: type[Schema], name: str) -> Schema:
    """Keys as a recipe; a RecipeError, which begins with the name, says everything that is wrong with them."""
    try:
        return schema.model_validate(given)
    except ValidationError as error:
        raise RecipeError(f"{name}: {_problems(error, schema)}") from None


def overrides_of(pairs: Iterable[str]) -> dict[str, Any]:
    """KEY=VALUE pairs as a layer for `merged`: grid.seeds=first is {"grid": {"seeds": "first"}}, epochs= is None."""
    given: dict[str, Any] = {}
    for pair in pairs:
        _override(given, pair, keep_removed=True)
    return given


def stage_of(path: Path) -> str | None:
    """The verb a recipe says it is for."""
    stage = keys_of(path)[0].get("stage")
    return stage if isinstance(stage, str) else None


def explain(recipe: Recipe) -> str:
    """The recipe with every default filled in, as TOML."""
    lines: list[str] = []
    tables: list[str] = []
    for key, value in recipe.model_dump(mode="json").items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            tables += [f"\n[[{key}]]\n{_pairs(item)}" for item in value]
        elif isinstance(value, dict):
            tables.append(f"\n[{key}]\n{_pairs(value)}")
        else:
            lines.append(_pairs({key: value}))
    return "\n".join([*filter(None, lines), *tables])


def _override(given: dict[str, Any], pair: str, *, keep_removed: bool = False) -> None:
    """Set one key in the nested tables. KEY= removes it, or with `keep_removed` leaves a None for `merged`."""
    key, equals, text = pair.partition("=")
    if not (key and equals):
        raise RecipeError(f"--set {pair!r}: expected KEY=VALUE, for example --set seed=1")
    *outer, last = key.strip().split(".")
    place: Any = given
    for name in outer:
        place = _inside(place, name, pair)
    if isinstance(place, list):
        place[_index(place, last, pair)] = _value(text)
    elif isinstance(place, dict) and not text and not keep_removed:
        place.pop(last, None)
    elif isinstance(place, dict):
        place[last] = _value(text) if text else None
    else:
        raise RecipeError(f"--set {pair!r}: {'.'.join(outer)} is no table, so it has no key {last!r}.")


def _inside(place: Any, name: str, pair: str) -> Any:
    if isinstance(place, list):
        return place[_index(place, name, pair)]
    if not isinstance(place, dict):
        raise RecipeError(f"--set {pair!r}: there is no table to hold {name!r}.")
    return place.setdefault(name, {})


def _index(place: list[Any], name: str, pair: str) -> int:
    if not name.isdigit() or int(name) >= len(place):
        raise RecipeError(f"--set {pair!r}: {name!r} is no place in a list of {len(place)}; they count from 0.")
    return int(name)


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _problems(error: ValidationError, schema: type[BaseModel]) -> str:
    """Everything that is wrong, a sentence each, with a near name for each unknown key."""
    said = []
    for problem in error.errors(include_url=False):
        where = ".".join(map(str, problem["loc"]))
        if problem["type"] == "extra_forbidden":
            near = difflib.get_close_matches(str(problem["loc"][-1]), _keys(schema, problem["loc"][:-1]), 1)
            said.append(f"unknown key {where}" + (f"; did you mean {near[0]}?" if near else "."))
        elif problem["type"] == "missing":
            said.append(f"{where} is missing; it has no default.")
        else:
            seen = problem["input"]
            shown = "" if isinstance(seen, Mapping) else f", seen {json.dumps(seen, default=str, ensure_ascii=False)}"
            # pydantic puts these words before what a check of ours says.
            message = problem["msg"].removeprefix("Value error, ")
            said.append(f"{where or 'the recipe'}: {message}{shown}.")
    return " ".join(said)


def _keys(schema: type[BaseModel], path: tuple[int | str, ...]) -> list[str]:
    """The names a table knows, found by walking the schema to it."""
    for name in path:
        if isinstance(name, int):
            continue
        field = schema.model_fields.get(name)
        inner = next((kind for kind in _models(field.annotation if field else None)), None)
        if inner is None:
            return []
        schema = inner
    return list(schema.model_fields)


def _models(hint: Any) -> list[type[BaseModel]]:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return [hint]
    return [model for part in getattr(hint, "__args__", ()) for model in _models(part)]


def _pairs(table: Mapping[str, Any]) -> str:
    return "\n".join(f"{_key(key)} = {_literal(value)}" for key, value in table.items() if value is not None)


def _key(key: str) -> str:
    """A key as TOML writes it: in quotes where it is more than letters, digits, - and _."""
    bare = key.replace("-", "").replace("_", "")
    return key if bare.isascii() and bare.isalnum() else json.dumps(key, ensure_ascii=False)


def _literal(value: Any) -> str:
    """A value as TOML, which for what recipes hold is JSON, tables apart."""
    if isinstance(value, dict):
        return (
            "{" + ", ".join(f"{_key(key)} = {_literal(item)}" for key, item in value.items() if item is not None) + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(_literal, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
