"""The text that is sharded, sentence by sentence."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lexome.corpus.records import FIELDS, batches, is_records
from lexome.corpus.sentences import split_sentences
from lexome.document import Document
from lexome.formats import read
from lexome.formats.tally import Tally


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
