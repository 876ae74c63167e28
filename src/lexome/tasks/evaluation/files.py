"""Documents of a file to be compared, with the tags themselves where it is in columns.

Reading columns mends their tags: an I that follows nothing becomes the beginning of a mention. Programs that score tags
differ on just that, so the tags are read as they stand as well.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lexome.document import Document
from lexome.errors import FormatError
from lexome.formats import Tally, expand, read
from lexome.formats.files import Source, decode, open_sources
from lexome.formats.registry import named
from lexome.values import value

# Words and their tags.
Sentence = tuple[tuple[str, str], ...]

_DOCSTART = b"-DOCSTART-"


@value
class Loaded:
    """The documents of a file and, where it is in columns, the tagged sentences of each."""

    name: str
    docs: tuple[Document, ...]
    tags: tuple[tuple[Sentence, ...], ...] | None


def load(path: Path, format: str | None = None, options: Mapping[str, str] | None = None) -> Loaded:
    """All documents of a file, folder or archive; a bad one raises, for it would be scored as if it weren't there."""
    if str(path) == "-":
        raise FormatError("standard input cannot be compared: it can be read only once. Write it to a file.")
    tally = Tally()
    given: dict[str, Any] = dict(options or {})
    docs = tuple(read(path, format, tally=tally, **given))
    if set(tally.files) != {"conll"}:
        return Loaded(str(path), docs, None)
    tags = tuple(_tags(path, format, (options or {}).get("encoding", "utf-8")))
    return Loaded(str(path), docs, tags if len(tags) == len(docs) else None)


def _tags(path: Path, format: str | None, encoding: str) -> Iterator[tuple[Sentence, ...]]:
    """The tagged sentences of each document of files in columns."""
    tally = Tally()
    for file in expand([path], named(format) if format is not None else None, tally):
        for source in open_sources(file, tally):
            yield from tagged_documents(source, encoding)


def tagged_documents(source: Source, encoding: str = "utf-8") -> Iterator[tuple[Sentence, ...]]:
    """The sentences of each document of a file in columns; without -DOCSTART- lines each is a document."""
    sentences: list[Sentence] = []
    words: list[tuple[str, str]] = []
    opened = False
    for line in _lines(source, encoding):
        if line is None or not line:
            if words:
                sentences.append(tuple(words))
                words = []
            if (line is None and (opened or sentences)) or (sentences and not opened):
                yield tuple(sentences)
                sentences = []
            opened = opened or line is None
        elif line[0] not in "\t ":  # a line without a token is no part of the document either
            words.append(_word_and_tag(line))
    if words:
        sentences.append(tuple(words))
    if sentences or opened:
        yield tuple(sentences)


def _lines(source: Source, encoding: str) -> Iterator[str | None]:
    """The lines, None for one that begins a document, "" for a blank one."""
    for _, line in source.lines():
        if line.startswith(_DOCSTART) and line[len(_DOCSTART) : len(_DOCSTART) + 1] in (b"", b" ", b"\t"):
            yield None
        else:
            yield "" if line.isspace() else decode(line, encoding).rstrip(" \t")


def _word_and_tag(line: str) -> tuple[str, str]:
    separator = "\t" if "\t" in line else " "
    return line.partition(separator)[0], line.rpartition(separator)[2]


def tags_of(sentences: Iterable[Sentence]) -> list[list[str]]:
    """The tags of sentences, without their words."""
    return [[tag for _, tag in sentence] for sentence in sentences]
