"""Hallmarks of Cancer, the original files: text/PMID.txt with a sentence a line, labels/PMID.txt with theirs.

The labels of the sentences stand on one line, a "<" before each sentence's, " AND" between two of one:

    < <Resisting cell death--Apoptosis AND Genomic instability and mutation--Mutation<

A label is a path in a tree of 37 classes. Each becomes a span over its sentence, of that type, so that
no label is lost; the document's labels are the hallmarks themselves, the first steps of those paths,
which is what the benchmarks score.
"""

import re
from collections.abc import Iterator
from functools import partial
from pathlib import PurePosixPath

from lexome.document import Document, Passage, Range, Span
from lexome.errors import BadDocument
from lexome.formats.streams import Source, decode, pair_files, uncompressed_name
from lexome.formats.tally import Tally
from lexome.metadata import Metadata

_AND = re.compile(r" AND ?")
_STEP = "--"

# What the corpus writes where a sentence was looked at and has no label.
_NONE = "NULL"


def read(sources: Iterator[Source], *, tally: Tally, encoding: str = "utf-8") -> Iterator[Document]:
    """A document for each text, whose file lies in a folder "text", with the labels of its namesake in "labels".

    They may come in any order. A text without labels is a document without them; labels without a
    text are rejected.
    """
    for key, text, labels in pair_files(sources, ("text", "labels"), _key, tally):
        yield from _attempted(key, text, labels, tally, encoding)


def _key(source: Source) -> tuple[str, str] | None:
    """The path that a text and its labels share but for their folders, and which of them this is."""
    path = PurePosixPath(uncompressed_name(source.location))
    part = path.parent.name
    wanted = part in ("text", "labels") and path.suffix == ".txt"
    return (str(path.parent.parent / path.stem), part) if wanted else None


def _attempted(key: str, text: bytes | None, labels: bytes | None, tally: Tally, encoding: str) -> Iterator[Document]:
    id = PurePosixPath(key).name
    make = partial(_document, id, text, labels, tally, encoding)
    doc = tally.attempt(make, where=key, id=id, raw=b"\n".join(filter(None, (text, labels))))
    if doc is not None:
        yield doc


def _document(id: str, raw_text: bytes | None, raw_labels: bytes | None, tally: Tally, encoding: str) -> Document:
    if raw_text is None:
        raise BadDocument("no_text", "there are labels but no text of this name; expected both. Add the text file.")
    text = decode(raw_text, encoding).removesuffix("\n")
    sentences = _lines(text) if text else ()
    labels = _labels(decode(raw_labels, encoding), tally) if raw_labels is not None else [()] * len(sentences)
    if len(labels) != len(sentences):
        raise BadDocument(
            "labels_mismatch",
            f"there are labels for {len(labels)} sentences, but {len(sentences)} sentences; expected as many.",
        )
    marked = [(range, label) for range, own in zip(sentences, labels, strict=True) for label in own]
    return Document(
        id,
        (Passage(0, text, "abstract", sentences=sentences),) if text else (),
        tuple(
            Span(f"T{number}", label, ((start, end),), text[start:end])
            for number, ((start, end), label) in enumerate(marked, 1)
        ),
        labels=tuple(dict.fromkeys(label.partition(_STEP)[0] for _, label in marked)),
        meta=Metadata(pmid=id if id.isascii() and id.isdigit() else None),
    )


def _lines(text: str) -> tuple[Range, ...]:
    """Where each line stands in the text."""
    ranges: list[Range] = []
    at = 0
    for line in text.split("\n"):
        ranges.append((at, at + len(line)))
        at += len(line) + 1
    return tuple(ranges)


def _labels(text: str, tally: Tally) -> list[tuple[str, ...]]:
    """The labels of each sentence: paths without the "--" that some end with."""
    before, *groups = text.split("<")
    if before.strip():
        raise BadDocument("bad_labels", "the labels do not begin with '<'; expected one before each sentence's.")
    found: list[tuple[str, ...]] = []
    for group in groups:
        names = [name.strip().removesuffix(_STEP) for name in _AND.split(group) if name.strip()]
        own = dict.fromkeys(name for name in names if name != _NONE)
        if len(own) < len(names):
            tally.note("label given twice or NULL left out", len(names) - len(own))
        found.append(tuple(own))
    return found
