"""Datasets by name, and any folder as a dataset: splits and folds of Documents, with their task.

>>> from lexome import datasets
>>> datasets.find("NCBI-disease").card.papers
('lee2020', 'lewis2020', 'fang2023', 'shin2020')
"""

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path
from typing import Any

from lexome.datasets.audit import AuditReport, Overlap
from lexome.datasets.dataset import DataSet, DatasetCard, Files, data_roots, folder
from lexome.datasets.transforms import named_change, named_refinement
from lexome.errors import DataSetError, UsageError, did_you_mean

__all__ = ["AuditReport", "DataSet", "DatasetCard", "Files", "Overlap", "every", "find", "folder", "names"]


def names() -> list[str]:
    """The names of all datasets in the catalog."""
    return list(cards())


def find(name: str, *, data: str | Path | None = None) -> DataSet:
    """The dataset of this name, in the folder `data`, by default ./data.

    It may be unavailable (see DataSet.available); reading it then raises.
    """
    known = {card.lower(): card for card in cards()}
    if name.lower() not in known:
        hint = did_you_mean(name, cards())
        raise UsageError(
            f"there is no dataset {name!r}.{hint} `lexome datasets` lists them.", code="unknown-dataset", value=name
        )
    return DataSet(cards()[known[name.lower()]], tuple(data_roots(data)))


def every(*, data: str | Path | None = None) -> list[DataSet]:
    """All datasets of the catalog, in the same folders as `find`."""
    roots = tuple(data_roots(data))
    return [DataSet(card, roots) for card in cards().values()]


# The cards of all datasets that Lexome knows, from the TOML files in cards/
#
# A file has a table for each dataset, and a table `defaults` whose keys all its datasets have unless they set theirs.
# The keys are the fields of DatasetCard. `splits` has for each split a file, or a list of alternatives of which the
# first that exists is used. An alternative is a file, a list of files that are read together, or a table with the
# fields of Files; `reader`, `options` and `changes` of the dataset are the defaults of these.


FOLDER = Path(__file__).parent / "cards"
GROUPS = ("biobert_ner", "ner", "relations", "classification", "questions", "clinical")

_TYPES: Mapping[str, type] = {
    "dev_fraction": float,
    "restricted": bool,
    **dict.fromkeys(("expected", "options", "splits", "task"), dict),
    **dict.fromkeys(("changes", "folders", "folds", "notes", "optional", "papers", "patterns", "positive"), list),
}


@cache
def cards() -> Mapping[str, DatasetCard]:
    """The cards by the names of their datasets."""
    return {card.name: card for group in GROUPS for card in read_cards(FOLDER / f"{group}.toml")}


def read_cards(path: Path) -> list[DatasetCard]:
    """The cards of a file; DataSetError if one has an unknown key, lacks one, or has a value of the wrong type."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise DataSetError(f"{path}: {error}", code="invalid-toml", value=str(path)) from None
    defaults = tables.pop("defaults", {})
    return [_card(name, {**defaults, **table}, f"{path.name}, {name}") for name, table in tables.items()]


def _card(name: str, table: dict[str, Any], where: str) -> DatasetCard:
    file_keys: tuple[str, ...] = ("reader", "options", "changes")
    file_defaults = {key: table.pop(key) for key in file_keys if key in table}
    _check_keys(table, DatasetCard, where, ignored=("name",))
    splits = {
        split: tuple(
            _files(file, file_defaults, f"{where}, {split}") for file in (value if isinstance(value, list) else [value])
        )
        for split, value in table.pop("splits").items()
    }
    refinement = named_refinement(table.pop("refine")) if "refine" in table else None
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    return DatasetCard(name=name, splits=splits, refine=refinement, **values)


def _files(value: Any, defaults: Mapping[str, Any], where: str) -> Files:
    own = value if isinstance(value, dict) else {"patterns": [value] if isinstance(value, str) else value}
    table: dict[str, Any] = {**defaults, **own}
    _check_keys(table, Files, where)
    changes = tuple(named_change(change) for change in table.pop("changes", ()))
    folders, patterns = tuple(table.pop("folders", ())), tuple(table.pop("patterns"))
    return Files(patterns, changes=changes, folders=folders, **table)


def _check_keys(table: Mapping[str, Any], schema: type, where: str, *, ignored: tuple[str, ...] = ()) -> None:
    known = {field.name: field for field in fields(schema) if field.name not in ignored}
    for key, value in table.items():
        if key not in known:
            raise DataSetError(
                f"{where}: unknown key {key!r}; expected one of {', '.join(known)}.", code="unknown-key", value=key
            )
        expected = _TYPES.get(key, str)
        if not isinstance(value, expected):
            raise DataSetError(
                f"{where}: {key} is {value!r}; expected {expected.__name__}.", code="wrong-type", value=key
            )
    for key, field in known.items():
        if key not in table and field.default is MISSING and field.default_factory is MISSING:
            raise DataSetError(f"{where}: the key {key!r} is missing. Add it.", code="missing-key", value=key)
