"""How a verb that reads documents ends: what was set aside or broke is said, and the exit code follows one rule.

1 where a file broke, also one inside an archive, or where every document was set aside; 0 where only some were.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import typer

from lexome.errors import FormatError

if TYPE_CHECKING:
    from lexome.formats import Tally


def print_aside(rejected: Mapping[str, int], path: Path | None, stream: TextIO) -> None:
    """A line for each reason for which documents were set aside, the most frequent first."""
    for reason, times in sorted(rejected.items(), key=lambda item: -item[1]):
        print(f"set aside  {times:,} {reason}, in {path}", file=stream)


def end_reading(tally: "Tally", *, left: int) -> None:
    """Name the files that broke, and end as reading went, with `left` documents."""
    for failure in tally.failures:
        print(f"broken     {failure}", file=sys.stderr)
    end_aside(tally.rejected, tally.rejects_path, left=left)
    if tally.failures:
        raise typer.Exit(1)


def end_aside(rejected: Mapping[str, int], path: Path | None, *, left: int) -> None:
    """End as documents were set aside: FormatError where none is left, 1 where a file inside an archive broke."""
    from lexome.formats.tally import BROKEN_FILE

    if rejected and not left:
        raise FormatError(f"every document was set aside. What is wrong with each is in {path}.")
    if broken := rejected.get(BROKEN_FILE):
        said = f"error: {broken:,} files inside archives broke; {path} says where. All else is done."
        print(said, file=sys.stderr)
        raise typer.Exit(1)
