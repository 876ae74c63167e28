"""Hallmarks of Cancer, original files: text/PMID.txt with one sentence per line, labels/PMID.txt with their labels.

The labels of all sentences are on one line, with "<" before those of each sentence and " AND" between two:

    < <Resisting cell death--Apoptosis AND Genomic instability and mutation--Mutation<

A label is a path in a tree of 37 classes. Each becomes a span over its sentence with the path as type; the
document's labels are the hallmarks, the first steps of the paths, which is what the benchmarks score.
"""

import re
from collections.abc import Iterator
from functools import partial
from itertools import accumulate, pairwise
from pathlib import PurePosixPath

from lexome.document import Document, Passage, Span
from lexome.errors import BadDocument
from lexome.formats.streams import Source, decode, pair_files, uncompressed_name
from lexome.formats.tally import Tally
from lexome.metadata import Metadata

_AND = re.compile(r" AND ?")
_STEP = "--"

# The corpus writes this for a sentence without label.
_NONE = "NULL"


def read(sources: Iterator[Source], *, tally: Tally, encoding: str = "utf-8") -> Iterator[Document]:
    """One document per file in a folder "text", with the labels of the file of the same name in "labels".

    The files may come in any order. A text may lack labels; labels without a text are rejected.
    """
    for key, text, labels in pair_files(sources, ("text", "labels"), _key, tally):
        id = PurePosixPath(key).name
        make = partial(_document, id, text, labels, tally, encoding)
        yield from tally.accept(make, where=key, id=id, raw=b"\n".join(filter(None, (text, labels))))


def _key(source: Source) -> tuple[str, str] | None:
    """The path that a text and its labels share apart from their folders, and which of the two this is."""
    path = PurePosixPath(uncompressed_name(source.location))
    part = path.parent.name
    if part not in ("text", "labels") or path.suffix != ".txt":
        return None
    return str(path.parent.parent / path.stem), part


def _document(id: str, raw_text: bytes | None, raw_labels: bytes | None, tally: Tally, encoding: str) -> Document:
    if raw_text is None:
        raise BadDocument("no_text", "there are labels but no text file of this name. Add the text file.", value=id)
    text = decode(raw_text, encoding).removesuffix("\n")
    starts = accumulate((len(line) + 1 for line in text.split("\n")), initial=0)
    sentences = tuple((start, after - 1) for start, after in pairwise(starts)) if text else ()
    labels = _labels(decode(raw_labels, encoding), tally) if raw_labels is not None else [()] * len(sentences)
    if len(labels) != len(sentences):
        message = f"there are labels for {len(labels)} sentences, but {len(sentences)} sentences."
        raise BadDocument("labels_mismatch", message, value=len(labels))
    labeled = [(range, label) for range, names in zip(sentences, labels, strict=True) for label in names]
    return Document(
        id,
        (Passage(0, text, "abstract", sentences=sentences),) if text else (),
        tuple(
            Span(f"T{number}", label, ((start, end),), text[start:end])
            for number, ((start, end), label) in enumerate(labeled, 1)
        ),
        labels=tuple(dict.fromkeys(label.partition(_STEP)[0] for _, label in labeled)),
        meta=Metadata(pmid=id if id.isascii() and id.isdigit() else None),
    )


def _labels(text: str, tally: Tally) -> list[tuple[str, ...]]:
    """The labels of each sentence: paths without a trailing "--"."""
    before, *groups = text.split("<")
    if before.strip():
        raise BadDocument("bad_labels", "the labels do not begin with '<'; expected one before those of each sentence.")
    labels: list[tuple[str, ...]] = []
    for group in groups:
        names = [name.strip().removesuffix(_STEP) for name in _AND.split(group) if name.strip()]
        unique = dict.fromkeys(name for name in names if name != _NONE)
        if len(unique) < len(names):
            tally.note("duplicate or NULL label ignored", len(names) - len(unique))
        labels.append(tuple(unique))
    return labels
