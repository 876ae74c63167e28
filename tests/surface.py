"""The public surface of Lexome: what users type on the command line, in recipes and in Python.

    python tests/surface.py > tests/surface_first_edition.json

Each name is a string of the form in which the decision record lists it:

    Command line    lexome build --workers VALUE      lexome build ARGUMENT-1
    Recipe keys     build near.similarity             build retracted=keep
    Python names    lexome.document.Document

"..." after VALUE or ARGUMENT means that it may be repeated, brackets around ARGUMENT that it may be left out.
"""

import importlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args, get_origin

import typer
from pydantic import BaseModel

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "docs" / "decisions" / "0020-second-edition.md"
FIRST_EDITION = Path(__file__).with_name("surface_first_edition.json")
# python.md refers to the other two for the functions of their subjects. It refers to formats.md too, whose modules are
# used through lexome.read and lexome.write.
PAGES = ("python.md", "datasets.md", "metrics.md")

COMMAND_LINE, RECIPE_KEYS, PYTHON_NAMES = SECTIONS = ("Command line", "Recipe keys", "Python names")
ADDED = "Added"
REMOVED = "removed"

Surface = Mapping[str, Iterable[str]]
"""Names by section."""


def recipe_schemas() -> dict[str, type[BaseModel]]:
    """The schema of each stage's recipes; the one place here that knows where the package has them."""
    from lexome.recipe import STAGES, schema_of

    return {stage: schema_of(stage) for stage in STAGES}


# The key that names another recipe is resolved before a schema sees the recipe, so only studies have it in theirs.
INHERITANCE_KEY = "extends"


def public_surface() -> dict[str, list[str]]:
    """Today's names, sorted, by section."""
    return {
        COMMAND_LINE: sorted(set(command_line())),
        RECIPE_KEYS: sorted(set(recipe_keys())),
        PYTHON_NAMES: sorted(set(python_names())),
    }


# What there is


def command_line() -> Iterator[str]:
    """Every command with its arguments and options."""
    from lexome.cli import app

    yield from _command_names("lexome", typer.main.get_command(app))


def _command_names(path: str, command: Any, parent: Any = None) -> Iterator[str]:
    """A command, its parameters, and its subcommands. Click's types are not named: typer may bring its own copy."""
    yield path
    context = typer.Context(command, parent=parent, **command.context_settings)
    parameters = command.get_params(context)
    arguments = [parameter for parameter in parameters if parameter.param_type_name == "argument"]
    for position, argument in enumerate(arguments, 1):
        name = f"ARGUMENT-{position}" + ("..." if argument.nargs == -1 else "")
        yield f"{path} {name}" if argument.required else f"{path} [{name}]"
    for option in parameters:
        if option.param_type_name == "option":
            value = "" if option.is_flag or option.count else " VALUE..." if option.multiple else " VALUE"
            yield from (f"{path} {name}{value}" for name in (*option.opts, *option.secondary_opts))
    for name, subcommand in getattr(command, "commands", {}).items():
        yield from _command_names(f"{path} {name}", subcommand, context)


def recipe_keys() -> Iterator[str]:
    """Every key of every stage's recipes, and each value of those keys that take one of a few."""
    for stage, schema in recipe_schemas().items():
        yield f"{stage} {INHERITANCE_KEY}"
        yield from (f"{stage} {key}" for key in _schema_keys(schema))


def _schema_keys(schema: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field_info in schema.model_fields.items():
        key = f"{prefix}{field_info.alias or name}"
        yield key
        yield from (f"{key}={value}" for value in _choices(field_info.annotation))
        for table in _tables(field_info.annotation):
            many = get_origin(field_info.annotation) in (tuple, list, dict)
            yield from _schema_keys(table, f"{key}.N." if many else f"{key}.")


def _choices(hint: Any) -> Iterator[object]:
    """The values of every Literal in a type."""
    if get_origin(hint) is Literal:
        yield from get_args(hint)
    else:
        for part in get_args(hint):
            yield from _choices(part)


def _tables(hint: Any) -> Iterator[type[BaseModel]]:
    """Every schema in a type."""
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield hint
    else:
        for part in get_args(hint):
            yield from _tables(part)


def python_names() -> Iterator[str]:
    """`lexome.__all__`, and what the reference documents."""
    import lexome

    yield from (f"lexome.{name}" for name in lexome.__all__)
    for page in PAGES:
        yield from documented_names((ROOT / "docs" / "reference" / page).read_text(encoding="utf-8"))


def documented_names(page: str) -> Iterator[str]:
    """The names that a page's mkdocstrings directives document; raises where one of them does not exist."""
    for directive in re.finditer(r"^::: (\S+)\n((?:[ \t]+.*\n|\n(?=[ \t]))*)", page + "\n", re.MULTILINE):
        path, options = directive.groups()
        documented = _imported(path)
        members = re.search(r"members: *\[([^\]]*)\]", options)
        if members is not None:
            names = [name.strip() for name in members[1].split(",")]
        elif isinstance(documented, ModuleType):
            names = [name for name, value in vars(documented).items() if _is_own(name, value, documented)]
        else:
            yield path
            continue
        for name in names:
            getattr(documented, name)
            yield f"{path}.{name}"


def _imported(path: str) -> Any:
    """The module of a dotted path, or the attribute of one."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name != path:
            raise
        module, _, name = path.rpartition(".")
        return getattr(importlib.import_module(module), name)


def _is_own(name: str, value: object, module: ModuleType) -> bool:
    """Whether a module defines this function or class itself, for others to use."""
    return not name.startswith("_") and callable(value) and getattr(value, "__module__", None) == module.__name__


# What the record says


@dataclass
class Record:
    """The changes that a decision record lists: old to new names (None: removed) by section, and additions."""

    changes: dict[str, dict[str, str | None]] = field(default_factory=lambda: {section: {} for section in SECTIONS})
    added: dict[str, set[str]] = field(default_factory=lambda: {section: set() for section in SECTIONS})


def read_record(text: str) -> Record:
    """The tables of a record: `old | new | why` in a section of each kind, `section | name | why` in Added."""
    record = Record()
    for heading, body in re.findall(r"^## (.+?)\s*\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL):
        if heading not in (*SECTIONS, ADDED):
            continue
        for line in _table_rows(body):
            cells = [cell.strip().strip("`") for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
            if len(cells) != 3 or not all(cells):
                raise ValueError(f"{heading}: {line!r} has {len(cells)} cells; expected 3, none of them empty")
            first, second, _ = cells
            if heading == ADDED and first not in SECTIONS:
                raise ValueError(f"{ADDED}: {first!r} is no section; expected one of {', '.join(SECTIONS)}")
            if heading == ADDED:
                record.added[first].add(second)
            elif first in record.changes[heading]:
                raise ValueError(f"{heading}: {first!r} has two rows")
            else:
                record.changes[heading][first] = None if second == REMOVED else second
    return record


def _table_rows(body: str) -> list[str]:
    """The rows of the tables in a section, without their heads."""
    lines = [line for line in body.splitlines() if line.startswith("|")]
    rules = [number for number, line in enumerate(lines) if set(line) <= set("|-: ")]
    heads = {number - 1 for number in rules}
    return [line for number, line in enumerate(lines) if number not in heads and number not in rules]


# Whether they agree


def differences(before: Surface, now: Surface, record: Record) -> list[str]:
    """Everything in which today's surface is not the earlier one with the record's changes, a line each."""
    problems: list[str] = []
    for section in SECTIONS:
        old, new = set(before[section]), set(now[section])
        changes = record.changes[section]
        used: set[str] = set()
        expected: dict[str, str] = {}
        for name in sorted(old):
            row = _row_of(name, changes, section)
            if row is not None:
                used.add(row)
            renamed = name if row is None else _renamed(name, row, changes[row], section)
            if renamed is not None:
                expected[renamed] = name
        for name in sorted(expected.keys() - new):
            origin = "" if expected[name] == name else f" (renamed from {expected[name]!r})"
            problems.append(f"{section}: missing {name!r}{origin}")
        unexpected, added = new - expected.keys(), record.added[section]
        for name in sorted(name for name in unexpected if not any(_is_under(name, row) for row in added)):
            problems.append(f"{section}: not in the first edition {name!r}")
        for row in sorted(changes.keys() - used):
            problems.append(f"{section}: the record changes {row!r}, which the first edition does not have")
        for row in sorted(row for row in added if not any(_is_under(name, row) for name in unexpected)):
            problems.append(f"{section}: the record adds {row!r}, which is not there, or not new")
    return problems


def _row_of(name: str, changes: Mapping[str, str | None], section: str) -> str | None:
    """The row that a name falls under: its own, or the longest that it is a part of (a key's table, a command)."""
    short = name.partition(" ")[2] if section == RECIPE_KEYS else name
    rows = [row for row in changes if _is_under(name, row) or _is_under(short, row)]
    # A row that names the stage is about that stage alone, and goes before one that is about all.
    return max(rows, key=lambda row: (_is_under(name, row), len(row)), default=None)


def _is_under(name: str, row: str) -> bool:
    return name == row or (name.startswith(row) and name[len(row)] in ".= ")


def _renamed(name: str, row: str, replacement: str | None, section: str) -> str | None:
    """The new name of a name that falls under a row, or None."""
    if replacement is None:
        return None
    if section == RECIPE_KEYS:
        # A row that names no stage leaves each key in its own, and the new name may leave out the stage too.
        stage, _, short = name.partition(" ")
        row, replacement = row.removeprefix(f"{stage} "), replacement.removeprefix(f"{stage} ")
        return f"{stage} {replacement}{short[len(row) :]}"
    return replacement + name[len(row) :]


if __name__ == "__main__":
    print(json.dumps(public_surface(), indent=1, ensure_ascii=False))
