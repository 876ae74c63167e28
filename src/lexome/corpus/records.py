"""Texts for tokenization: records (Lexome's Parquet) are read by column, 20 times as fast as building documents."""

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

# Rows per batch: a few megabytes of full text.
BATCH_ROWS = 256

# The passage fields that are read by column.
FIELDS = ("offset", "text", "sentences")


def is_records(path: Path, format: str | None = None) -> bool:
    """Whether a file is Parquet whose rows are documents; other tables are left to their reader, which reports why."""
    if format not in (None, "parquet") or path.suffix != ".parquet":
        return False
    with _open_parquet(path) as table:
        columns = {
            column.split(".")[3] for column in _column_paths(table) if _is_selected(column, FIELDS) and column != "id"
        }
        return "id" in table.schema_arrow.names and columns == set(FIELDS)


def column_batches(path: Path, fields: Sequence[str]) -> Iterator[Any]:
    """Record batches with document ids and these fields of their passages."""
    import pyarrow as pa

    with _open_parquet(path) as table:
        columns = [column for column in _column_paths(table) if _is_selected(column, fields)]
        try:
            yield from table.iter_batches(BATCH_ROWS, columns=columns)
        except (pa.ArrowException, OSError, ValueError) as error:
            first = str(error).split("\n", 1)[0]
            message = f"{path}: the data is corrupt ({first}). Build or write the file again."
            raise FormatError(message, code="damaged", value=path) from error


def _open_parquet(path: Path) -> Any:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingExtraError("pyarrow", extra="corpus", purpose="reading records") from None
    try:
        return pq.ParquetFile(path, pre_buffer=False, page_checksum_verification=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        first = str(error).split("\n", 1)[0]
        message = f"{path}: not a Parquet file, or truncated ({first}). Build or write it again."
        raise FormatError(message, code="bad-parquet", value=path) from error


def _column_paths(table: Any) -> list[str]:
    return [table.schema.column(number).path for number in range(len(table.schema))]


def _is_selected(column: str, fields: Sequence[str]) -> bool:
    """Whether a column is one of these passage fields; the name of list items differs between writers."""
    steps = column.split(".")
    return column == "id" or (steps[0] == "passages" and len(steps) > 3 and steps[3] in fields)


@dataclass(frozen=True, slots=True)
class SentenceText:
    """A document split at the ends of its sentences.

    Each piece keeps the white space before its sentence, so that the pieces join to the passages again.
    """

    id: str
    pieces: tuple[str, ...]


def read_texts(
    files: tuple[Path, ...], format: str | None = None, *, tally: Tally | None = None
) -> Iterator[SentenceText]:
    """The texts of files that belong together: records by column, anything else by document."""
    if len(files) == 1 and is_records(files[0], format):
        for batch in column_batches(files[0], FIELDS):
            yield from _batch_texts(batch)
        return
    for doc in read(files, format, tally=tally if tally is not None else Tally()):
        yield split_document(doc)


def split_document(doc: Document) -> SentenceText:
    """A document split at its sentences, which are split by rule if it has none."""
    pieces: list[str] = []
    for passage in doc.passages:
        _append_sentences(passage.text, [end - passage.offset for _, end in passage.sentences], pieces)
    return SentenceText(doc.id, tuple(pieces))


def _append_sentences(text: str, ends: list[int], pieces: list[str]) -> None:
    """Append the pieces of a passage; text after the last sentence stays with it."""
    begin = 0
    ends = ends or [end for _, end in split_sentences(text)]
    for end in ends[:-1]:
        pieces.append(text[begin:end])
        begin = end
    if begin < len(text):
        pieces.append(text[begin:])


def _batch_texts(batch: Any) -> Iterator[SentenceText]:
    """The texts of a record batch; nested lists are flattened once and sliced by their offsets."""
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
        pieces: list[str] = []
        for number in range(place, place + size):
            _append_sentences(whole[number], ends[bounds[number] : bounds[number + 1]], pieces)
        place += size
        yield SentenceText(id_, tuple(pieces))
