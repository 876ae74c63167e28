"""The table of docs/reference/formats.md: every format with its extensions, directions and options."""

import inspect
from collections.abc import Callable
from typing import Any

from lexome.formats import FORMATS, Format
from tables_of.results import rows


def formats() -> str:
    """Every format, in the order of `lexome convert --help`."""
    lines = (
        (
            f"`{format.name}`",
            format.description,
            " ".join(f"`{extension}`" for extension in format.extensions),
            format.directions,
            ", ".join(f"`{name}`" for name in _options(format)),
        )
        for format in FORMATS
    )
    return rows(("name", "format", "extensions", "supports", "options"), *lines)


def _options(format: Format) -> list[str]:
    """The options of its reader and writer, each once."""
    functions: list[Callable[..., Any]] = []
    if format.reads:
        functions.append(format.read_function())
    if format.writes:
        functions.append(format.write_function())
    parameters = [parameter for function in functions for parameter in inspect.signature(function).parameters.values()]
    names = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    return [name for name in dict.fromkeys(names) if name != "tally"]


TABLES = {"formats": formats}
