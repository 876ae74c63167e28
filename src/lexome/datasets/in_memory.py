"""Splits that a program has in memory, as documents, records or DataFrames, written as the files of a folder."""

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lexome.document import Document
from lexome.errors import BadDocument, UsageError
from lexome.files import atomic_write
from lexome.formats.jsonl import from_record, to_json
from lexome.formats.tally import Tally


def write_splits(folder: Path, splits: Mapping[str, Any]) -> Path:
    """Write a JSON Lines file for each split, unless it exists; the folder is a dataset for `datasets.folder`.

    UsageError if the folder has other documents: a run that was trained on those must not resume with these.
    """
    if not isinstance(splits, Mapping) or "train" not in splits:
        has = ", ".join(map(repr, splits)) if isinstance(splits, Mapping) else f"a {type(splits).__name__}"
        message = f'splits has {has or "nothing"}; expected train, and dev and test if needed: {{"train": ...}}.'
        raise UsageError(message, code="missing-split", value="train")
    for name, items in splits.items():
        content = b"".join(to_json(doc, all_keys=True) + b"\n" for doc in split_documents(name, items))
        path = folder / f"{name}.jsonl"
        if not content:
            raise UsageError(f"splits: {name} is empty; expected documents.", code="empty-split", value=name)
        if not path.is_file():
            with atomic_write(path) as stream:
                stream.write(content)
        elif path.read_bytes() != content:
            message = f"{path}: holds other documents than {name} has now. Choose another `out`, or remove that folder."
            raise UsageError(message, code="other-settings", value=name)
    return folder


def split_documents(name: str, items: Any) -> Iterator[Document]:
    """The documents of a split from documents, from records with a text and a label, or from a DataFrame of these."""
    tally = Tally()
    for number, item in enumerate(_rows(items), 1):
        if isinstance(item, Document):
            yield item
        elif isinstance(item, Mapping):
            try:
                # pandas has NaN for a missing value, which does not equal itself.
                record = {str(key): value for key, value in item.items() if value is not None and value == value}
                yield from_record(record, f"{name}-{number}", tally)
            except BadDocument as error:
                message = f"item {number:,} of {name}: {error}"
                raise UsageError(message, code=error.code, value=number) from None
        else:
            message = f"item {number:,} of {name} is a {type(item).__name__}; expected a Document or a dictionary."
            raise UsageError(message, code="not-a-document", value=number)
    for note, times in tally.notes.items():
        print(f"note: {name}: {times:,} {note}", file=sys.stderr)


def _rows(items: Any) -> Iterable[Any]:
    """The items, or the rows of a DataFrame of pandas or polars."""
    if hasattr(items, "to_dicts"):
        rows: Iterable[Any] = items.to_dicts()
        return rows
    if hasattr(items, "columns") and hasattr(items, "to_dict"):
        rows = items.to_dict("records")
        return rows
    if isinstance(items, str | bytes | Mapping | Document) or not isinstance(items, Iterable):
        message = f"a split is a {type(items).__name__}; expected a list of documents or records, or a DataFrame."
        raise UsageError(message, code="not-documents", value=items)
    return items
