"""A table for notebooks: one row for each mention or relation, in a pandas or polars DataFrame."""

from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, get_args

from lexome.document import Document
from lexome.errors import LexomeError, UsageError
from lexome.formats.mention_table import PreferredName, Table, table_rows
from lexome.formats.tally import Tally

LIBRARIES = ("pandas", "polars")
NUMBERS = {"start": "int64", "end": "int64", "score": "float64"}
# The arguments of a relation may be concepts without a mention, which have no offsets.
NUMBERS |= {f"{side}_{what}": "Int64" for side in ("first", "second") for what in ("start", "end")}


def to_dataframe(
    docs: Document | Iterable[Document],
    *,
    table: Table = "mentions",
    library: str | None = None,
    preferred_name: PreferredName | None = None,
) -> Any:
    """The mentions of documents as a DataFrame, one row each, of pandas or, where only that is installed, polars.

    The columns are those of CSV: document, pmid, passage, start, end, text, type, score, concept and name; with
    `table="relations"`, one row per relation. Documents without mentions have no row; what a mention lacks is a missing
    value.
    """
    if table not in get_args(Table):
        message = f"table is {table!r}; expected {' or '.join(get_args(Table))}."
        raise UsageError(message, code="unknown-table", value=table)
    if library not in (None, *LIBRARIES):
        message = f"library is {library!r}; expected one of {', '.join(LIBRARIES)}."
        raise UsageError(message, code="unknown-library", value=library)
    wanted = LIBRARIES if library is None else (library,)
    name = next((name for name in wanted if find_spec(name) is not None), None)
    if name is None:
        message = f"a DataFrame needs {' or '.join(wanted)}, which is not installed. Run: pip install {wanted[0]}"
        raise LexomeError(message, code="missing-package", value=wanted[0])
    listed = [docs] if isinstance(docs, Document) else docs
    names, *rows = table_rows(listed, counts=False, preferred_name=preferred_name, tally=Tally(), table=table)
    columns = {
        str(column): [row[index] if row[index] != "" else None for row in rows] for index, column in enumerate(names)
    }
    module = import_module(name)
    if name == "polars":
        schema = {column: module.Float64 if column == "score" else module.Int64 for column in NUMBERS}
        return module.DataFrame(columns, schema={column: schema.get(column, module.String) for column in columns})
    # By itself, pandas would give an empty column another type than a full one.
    return module.DataFrame({key: module.Series(values, dtype=NUMBERS.get(key)) for key, values in columns.items()})
