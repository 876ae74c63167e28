"""Data sets by name, and any folder as one: splits and folds of Documents, with the task they are for.

>>> from lexome.tasks import sets
>>> sets.find("NCBI-disease").card.papers
('lee2020', 'lewis2020', 'fang2023', 'shin2020')
"""

import difflib
from pathlib import Path

from lexome.datasets.audit import Overlap, Report
from lexome.datasets.catalogue import CARDS
from lexome.datasets.dataset import Card, DataSet
from lexome.datasets.folder import folder
from lexome.datasets.splits import Files, roots
from lexome.errors import UsageError

__all__ = ["Card", "DataSet", "Files", "Overlap", "Report", "every", "find", "folder", "names"]


def names() -> list[str]:
    """What the sets are called that Lexome knows."""
    return list(CARDS)


def find(name: str, *, data: str | Path | None = None) -> DataSet:
    """The set of this name, looked for in the folder `data`, else in those of LEXOME_DATA, else in ./data.

    It is given whether its files are there or not: `here` says that, and what needs them raises.
    """
    known = {own.lower(): own for own in CARDS}
    if name.lower() not in known:
        near = difflib.get_close_matches(name.lower(), known, n=1)
        hint = f" Did you mean {known[near[0]]!r}?" if near else ""
        raise UsageError(f"there is no data set {name!r}.{hint} `lexome datasets` lists them.")
    return DataSet(CARDS[known[name.lower()]], tuple(roots(data)))


def every(*, data: str | Path | None = None) -> list[DataSet]:
    """All sets that Lexome knows, looked for in the same places."""
    where = tuple(roots(data))
    return [DataSet(card, where) for card in CARDS.values()]
