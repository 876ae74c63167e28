"""The text of records, sentence by sentence, read from columns without building documents."""

from collections.abc import Iterator
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


@dataclass(frozen=True, slots=True)
class Text:
    """A document as sentences: `cuts` are its passages cut at the ends of sentences, in order.

    Each piece begins with the space that stands before its sentence, so that joined they are the passages again.
    """

    id: str
    cuts: tuple[str, ...]


def texts(files: tuple[Path, ...], format: str | None = None, *, tally: Tally | None = None) -> Iterator[Text]:
    """The texts of one set of files: of Lexome's own Parquet by columns, of anything else by documents."""
    if len(files) == 1 and format in (None, "parquet") and files[0].suffix == ".parquet" and _is_records(files[0]):
        yield from _from_columns(files[0])
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


def _is_records(path: Path) -> bool:
    """True for Parquet that Lexome wrote itself; anything else is left to its own reader."""
    pq = _parquet()
    try:
        metadata = pq.read_schema(path).metadata or {}
    except (OSError, ValueError):
        return False
    return metadata.get(b"lexome.form") == b"document" and metadata.get(b"lexome.version") == b"1"


def _from_columns(path: Path) -> Iterator[Text]:
    pq = _parquet()
    wanted = ["id", "passages.list.element.offset", "passages.list.element.text", "passages.list.element.sentences"]
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as table:
            for batch in table.iter_batches(BATCH_ROWS, columns=_present(table, wanted)):
                yield from _batch_texts(batch)
    except (OSError, ValueError) as error:
        raise FormatError(f"{path}: {str(error).splitlines()[0]}. The file is damaged; build it again.") from error


def _present(table: Any, wanted: list[str]) -> list[str]:
    """The column paths as this file names them: the inner name of a list differs between writers."""
    paths = [table.schema.column(number).path for number in range(len(table.schema))]
    ends = {name.rpartition(".")[2] for name in wanted}
    return [
        path
        for path in paths
        if path == "id" or (path.startswith("passages.") and ends & set(path.split(".")) and ".tokens." not in path)
    ]


def _batch_texts(batch: Any) -> Iterator[Text]:
    """The texts of a record batch; its lists are flattened once and cut by their offsets."""
    passages = batch.column("passages")
    inner = passages.flatten()
    texts = inner.field("text").to_pylist()
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
            _cut(texts[number], ends[bounds[number] : bounds[number + 1]], cuts)
        place += size
        yield Text(id_, tuple(cuts))


def _parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError:
        raise MissingExtraError("pyarrow", extra="corpus", purpose="reading records") from None
    return pyarrow.parquet
