"""CSV: tables of mentions or relations out; labelled tables are read by labelled_table."""

from codecs import BOM_UTF8
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
    bom: bool = True,
    preferred_name: PreferredName | None = None,
) -> None:
    """One row per mention or relation, or with `counts` one per concept, name or pair of these, with its documents.

    `escape` puts an apostrophe before text that a spreadsheet would run as a formula. `bom` begins the file with a
    byte order mark, without which Excel reads UTF-8 as Windows-1252. `preferred_name` is a function from a concept id
    to its name, for the last column; from the command line it cannot be set.
    """
    if bom:
        stream.write(BOM_UTF8)
    write_delimited(
        docs, stream, ",", tally=tally, counts=counts, escape=escape, preferred_name=preferred_name, table=table
    )
