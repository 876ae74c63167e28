"""Lengths of time in recipes."""

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(given: Any) -> Any:
    """The seconds that "90s", "20m", "1h30m" or "2d" stand for; other values pass for the schema to judge."""
    if not isinstance(given, str):
        return given
    if not re.fullmatch(r"(\d+(\.\d+)?[smhd])+", given):
        raise ValueError('expected a time such as "90s", "20m", "1h30m" or "2d"')
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?)([smhd])", given))


Seconds = Annotated[float, BeforeValidator(seconds), PlainSerializer(lambda value: f"{value:g}s")]
