"""The tables of docs/reference/recipes.md: every key of every recipe, what it takes, its default and its meaning."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from lexome.recipe.pretrain import TrainingRecipe
from lexome.recipe.stages import STAGES, schema_of
from tables_of.results import rows

HEAD = ("key", "takes", "default", "means")
WORDS = {str: "text", int: "whole number", float: "number", bool: "true or false", Path: "path"}
# What distill shares with pretrain.
APART = {"distill": {*TrainingRecipe.model_fields}}


def recipe_keys(stage: str) -> str:
    """Every key of a stage's recipes; of a stage that is much like another, what it has beyond that."""
    return rows(HEAD, *_keys(schema_of(stage), "", {"stage", *APART.get(stage, ())}))


def _keys(schema: type[BaseModel], prefix: str, apart: set[str]) -> Iterator[tuple[str, ...]]:
    """A table's own keys, and below them the keys of the tables inside it."""
    fields = [(name, field) for name, field in schema.model_fields.items() if name not in apart]
    for name, field in fields:
        if _table_in(field.annotation) is None:
            yield f"`{prefix}{name}`", _kind(field.annotation), _default(field), _said(field.description)
    for name, field in fields:
        if (table := _table_in(field.annotation)) is not None:
            many = get_origin(field.annotation) in (tuple, dict)
            kind = "list of tables" if get_origin(field.annotation) is tuple else "table of tables" if many else "table"
            yield f"`{prefix}{name}`", kind, _default(field), _said(field.description or table.__doc__)
            yield from _keys(table, f"{prefix}{name}.{'N.' * many}", set())


def _table_in(hint: Any) -> type[BaseModel] | None:
    """The table that a key holds: itself, in a list, in a table of tables, or where it is there at all."""
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return hint
    found = (_table_in(part) for part in get_args(hint))
    return next((table for table in found if table is not None), None)


def _kind(hint: Any) -> str:
    """A type in words: "drop" or "keep"; path; list of paths."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _kind(parts[0])
    if origin is Literal:
        return " or ".join(f"`{json.dumps(value)}`" for value in parts)
    if origin in (Union, UnionType):
        return " or ".join(_kind(part) for part in parts if part is not NoneType)
    if origin is tuple:
        return f"list of {_kind(parts[0])}" + "s" * (_kind(parts[0]) in WORDS.values())
    return "table" if origin is dict else WORDS[hint]


def _default(field: FieldInfo) -> str:
    """The default as TOML has it; nothing where there is none."""
    if field.is_required():
        return "needed"
    default = field.default
    none = default is None or isinstance(default, BaseModel) or default in ("", (), {})
    return "" if none else f"`{json.dumps(default, default=str, ensure_ascii=False)}`"


def _said(text: str | None) -> str:
    """The first line, with no bar that would end a cell."""
    return (text or "").split("\n")[0].replace("|", "\\|")


TABLES = {f"recipe_{stage.replace('-', '_')}": partial(recipe_keys, stage) for stage in STAGES}
