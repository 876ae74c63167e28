"""The file of a recipe: TOML, laid over that of another recipe where it says which one it is like."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
    """Tables laid over one another, later ones winning, tables inside them likewise."""
    result: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            known = result.get(key)
            if isinstance(known, Mapping) and isinstance(value, Mapping):
                result[key] = merged(known, value)
            else:
                result[key] = value
    return result
