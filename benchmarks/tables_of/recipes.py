"""The tables of docs/reference/recipes.md: every recipe key with its type, default and description."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from lexome.recipe import STAGES, schema_of
from lexome.recipe.pretrain import TrainingRecipe
from tables_of.results import rows

HEAD = ("key", "type", "default", "description")
TYPE_NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", Path: "path"}
# Keys that distill shares with pretrain, documented there.
DOCUMENTED_ELSEWHERE = {"distill": {*TrainingRecipe.model_fields}}


def recipe_keys(stage: str) -> str:
    """Every recipe key of a stage, except those documented under another stage."""
    return rows(HEAD, *_keys(schema_of(stage), "", {"stage", *DOCUMENTED_ELSEWHERE.get(stage, ())}))


def _keys(schema: type[BaseModel], prefix: str, excluded: set[str]) -> Iterator[tuple[str, ...]]:
    """A table's own keys, followed by those of its nested tables."""
    fields = [(name, field) for name, field in schema.model_fields.items() if name not in excluded]
    for name, field in fields:
        if _table_in(field.annotation) is None:
            yield f"`{prefix}{name}`", _kind(field.annotation), _default(field), _first_line(field.description)
    for name, field in fields:
        if (table := _table_in(field.annotation)) is not None:
            many = get_origin(field.annotation) in (tuple, dict)
            kind = "list of tables" if get_origin(field.annotation) is tuple else "table of tables" if many else "table"
            yield f"`{prefix}{name}`", kind, _default(field), _first_line(field.description or table.__doc__)
            yield from _keys(table, f"{prefix}{name}.{'N.' * many}", set())


def _table_in(hint: Any) -> type[BaseModel] | None:
    """The schema of a nested table: direct, optional, in a list or in a table of tables."""
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return hint
    found = (_table_in(part) for part in get_args(hint))
    return next((table for table in found if table is not None), None)


def _kind(hint: Any) -> str:
    """A type for the reader: "drop" or "keep"; path; list of paths."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _kind(parts[0])
    if origin is Literal:
        return " or ".join(f"`{json.dumps(value)}`" for value in parts)
    if origin in (Union, UnionType):
        return " or ".join(_kind(part) for part in parts if part is not NoneType)
    if origin is tuple:
        return f"list of {_kind(parts[0])}" + "s" * (_kind(parts[0]) in TYPE_NAMES.values())
    return "table" if origin is dict else TYPE_NAMES[hint]


def _default(field: FieldInfo) -> str:
    """The default in TOML syntax; empty if there is none."""
    if field.is_required():
        return "required"
    default = field.default
    none = default is None or isinstance(default, BaseModel) or default in ("", (), {})
    return "" if none else f"`{json.dumps(default, default=str, ensure_ascii=False)}`"


def _first_line(text: str | None) -> str:
    """The first line, with escaped bars."""
    return (text or "").split("\n")[0].replace("|", "\\|")


TABLES = {f"recipe_{stage.replace('-', '_')}": partial(recipe_keys, stage) for stage in STAGES}
