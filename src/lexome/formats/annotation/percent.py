"""Ids and names made fit for file names and fields, by percent-encoding that is undone on reading.

What was not written here is left as it is: "50%.txt" and "a b.txt" keep their names as ids.
"""

import re
from urllib.parse import quote, unquote

from lexome.document import shorten
from lexome.errors import BadDocument

_UNFIT = re.compile(r"[\s%\x00-\x1f\x7f]")
_NUMBERED = re.compile(r"(.*)%_[0-9]+", re.DOTALL)

# File systems take 255 bytes; an ending, a number and the temporary name's parts need room too.
LONGEST_STEM = 200


def escaped(name: str) -> str:
    """The name without white space and control characters, as one field of a line."""
    return _UNFIT.sub(lambda match: quote(match[0], safe=""), name)


def unescaped(field: str) -> str:
    """The name that `escaped` made this field of, or the field itself where it did not."""
    if "%" not in field:
        return field
    name = unquote(field)
    return name if escaped(name) == field else field


def file_stem(id: str) -> str:
    """The id as a file name without ending: one part of a path, never hidden, never above its folder."""
    try:
        stem = quote(id, safe="")
    except UnicodeEncodeError:
        raise BadDocument("not_unicode", f"the id {id!r} has half a surrogate pair; expected whole text.") from None
    if len(stem) > LONGEST_STEM:
        raise BadDocument(
            "id_too_long",
            f"the id {shorten(id)!r} makes a file name of {len(stem)} bytes; expected at most {LONGEST_STEM}. "
            "Give the document a shorter id.",
        )
    return f"%2E{stem[1:]}" if stem.startswith(".") else stem


def id_of(stem: str) -> str:
    """The id that a file name was made of, or the name itself where it was made otherwise."""
    numbered = _NUMBERED.fullmatch(stem)
    base = numbered[1] if numbered is not None else stem
    id = unquote(base)
    try:
        return id if file_stem(id) == base else stem
    except BadDocument:
        return stem


class Stems:
    """File names for ids, apart even where ids are the same or differ in case alone."""

    def __init__(self) -> None:
        self._used: dict[str, int] = {}

    def take(self, id: str) -> str:
        """The id's file name; a second one of the same name gets a number that `id_of` takes off again."""
        stem = file_stem(id)
        number = self._used[stem.lower()] = self._used.get(stem.lower(), 0) + 1
        return stem if stem and number == 1 else f"{stem}%_{number}"
