"""Datasets by name, and any folder as a dataset: splits and folds of Documents, with their task.

>>> from lexome import datasets
>>> datasets.find("NCBI-disease").card.papers
('lee2020', 'lewis2020', 'fang2023', 'shin2020')
"""

import difflib
from pathlib import Path

from lexome.datasets.audit import AuditReport, Overlap
from lexome.datasets.catalogue import cards
from lexome.datasets.dataset import DataSet, DatasetCard, Files, data_roots, folder
from lexome.errors import UsageError

__all__ = ["AuditReport", "DataSet", "DatasetCard", "Files", "Overlap", "every", "find", "folder", "names"]


def names() -> list[str]:
    """The names of all datasets in the catalogue."""
    return list(cards())


def find(name: str, *, data: str | Path | None = None) -> DataSet:
    """The dataset of this name, in the folder `data`, else in those of LEXOME_DATA, else in ./data.

    It may be unavailable: see DataSet.available. Reading it raises then.
    """
    known = {card.lower(): card for card in cards()}
    if name.lower() not in known:
        near = difflib.get_close_matches(name.lower(), known, n=1)
        hint = f" Did you mean {known[near[0]]!r}?" if near else ""
        raise UsageError(
            f"there is no dataset {name!r}.{hint} `lexome datasets` lists them.", code="unknown-dataset", value=name
        )
    return DataSet(cards()[known[name.lower()]], tuple(data_roots(data)))


def every(*, data: str | Path | None = None) -> list[DataSet]:
    """All datasets of the catalogue, in the same folders as `find`."""
    roots = tuple(data_roots(data))
    return [DataSet(card, roots) for card in cards().values()]
