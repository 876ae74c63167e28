"""Tab-separated values: tables of mentions or relations out; labelled tables are read by labelled_table."""

from collections.abc import Iterable
from typing import BinaryIO

from lexome.document import Document
from lexome.formats.mention_table import PreferredName, Table, write_delimited
from lexome.formats.tally import Tally


def write(
    docs: Iterable[Document],
    stream: BinaryIO,
    *,
    tally: Tally,
    table: Table = "mentions",
    counts: bool = False,
    escape: bool = True,
    preferred_name: PreferredName | None = None,
) -> None:
    """One row per mention or relation, or with `counts` one per concept, name or pair; the options are those of CSV."""
    write_delimited(
        docs, stream, "\t", tally=tally, counts=counts, escape=escape, preferred_name=preferred_name, table=table
    )
