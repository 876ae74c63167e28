"""Records, which are Lexome's own Parquet, read by columns: twenty times as fast as building documents."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lexome.corpus.sentences import split_sentences
from lexome.document import Document
from lexome.errors import FormatError, MissingExtraError
from lexome.formats import read
from lexome.formats.tally import Tally

# Rows read at a time: a few megabytes of full text.
BATCH_ROWS = 256

# The fields of passages that are read by columns.
FIELDS = ("offset", "text", "sentences")


def is_records(path: Path, format: str | None = None) -> bool:
    """True for Parquet whose rows are documents; tables of another kind are left to their reader, which says why."""
    if format not in (None, "parquet") or path.suffix != ".parquet":
        return False
    with _table(path) as table:
        held = {column.split(".")[3] for column in _paths(table) if _wanted(column, FIELDS) and column != "id"}
        return "id" in table.schema_arrow.names and held == set(FIELDS)


def batches(path: Path, fields: Sequence[str]) -> Iterator[Any]:
    """Record batches with the ids of documents and these fields of their passages."""
    import pyarrow as pa

    with _table(path) as table:
        columns = [column for column in _paths(table) if _wanted(column, fields)]
        try:
            yield from table.iter_batches(BATCH_ROWS, columns=columns)
        except (pa.ArrowException, OSError, ValueError) as error:
            first = str(error).split("\n", 1)[0]
            raise FormatError(f"{path}: the data is damaged ({first}). Build or write the file again.") from error


def _table(path: Path) -> Any:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtraError("pyarrow", extra="corpus", purpose="reading records") from None
    try:
        return pq.ParquetFile(path, pre_buffer=False, page_checksum_verification=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        first = str(error).split("\n", 1)[0]
        raise FormatError(
            f"{path}: not a Parquet file, or one that breaks off ({first}). Build or write it again."
        ) from error


def _paths(table: Any) -> list[str]:
    return [table.schema.column(number).path for number in range(len(table.schema))]


def _wanted(column: str, fields: Sequence[str]) -> bool:
    """Whether a column belongs to a field of the passages; what lists are called inside differs between writers."""
    steps = column.split(".")
    return column == "id" or (steps[0] == "passages" and len(steps) > 3 and steps[3] in fields)


@dataclass(frozen=True, slots=True)
class Text:
    """A document as sentences: `cuts` are its passages cut at the ends of sentences, in order.

    Each piece begins with the space that stands before its sentence, so that joined they are the passages again.
    """

    id: str
    cuts: tuple[str, ...]


def texts(files: tuple[Path, ...], format: str | None = None, *, tally: Tally | None = None) -> Iterator[Text]:
    """The texts of one set of files: of records by columns, of anything else by documents."""
    if len(files) == 1 and is_records(files[0], format):
        for batch in batches(files[0], FIELDS):
            yield from _batch_texts(batch)
        return
    for doc in read(files, format, tally=tally if tally is not None else Tally()):
        yield text_of(doc)


def text_of(doc: Document) -> Text:
    """A document's text, cut at its sentences; where it has none, they are found."""
    cuts: list[str] = []
    for passage in doc.passages:
        _cut(passage.text, [end - passage.offset for _, end in passage.sentences], cuts)
    return Text(doc.id, tuple(cuts))


def _cut(text: str, ends: list[int], cuts: list[str]) -> None:
    """Add the pieces of a passage, its sentences found where none are given; what follows the last stays with it."""
    begin = 0
    ends = ends or [end for _, end in split_sentences(text)]
    for end in ends[:-1]:
        cuts.append(text[begin:end])
        begin = end
    if begin < len(text):
        cuts.append(text[begin:])


def _batch_texts(batch: Any) -> Iterator[Text]:
    """The texts of a record batch; its lists are flattened once and cut by their offsets."""
    passages = batch.column("passages")
    inner = passages.flatten()
    whole = inner.field("text").to_pylist()
    starts = inner.field("offset").to_numpy(zero_copy_only=False)
    sentences = inner.field("sentences")
    ends = sentences.flatten().field("end").to_numpy(zero_copy_only=False)
    counts = np.asarray(sentences.value_lengths().fill_null(0))
    ends = (ends - np.repeat(starts, counts)).tolist()
    bounds = np.concatenate([[0], np.cumsum(counts)]).tolist()
    sizes = passages.value_lengths().fill_null(0).to_pylist()
    place = 0
    for id_, size in zip(batch.column("id").to_pylist(), sizes, strict=True):
        cuts: list[str] = []
        for number in range(place, place + size):
            _cut(whole[number], ends[bounds[number] : bounds[number + 1]], cuts)
        place += size
        yield Text(id_, tuple(cuts))
