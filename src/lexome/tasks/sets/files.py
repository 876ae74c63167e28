"""The files of a set: found in a folder or an archive, under any compression, and read as Documents."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from lexome.document import Document
from lexome.errors import DataSetError, FormatError
from lexome.formats.files import ARCHIVES, COMPRESSIONS, Source, is_archive, open_sources, plain_name
from lexome.formats.registry import checked_options, named
from lexome.formats.tally import Tally
from lexome.values import value

Reader = Callable[..., Iterator[Document]]
"""A function of an iterator of Sources and a tally, for files that are read together."""

Change = Callable[[Iterable[Document], Tally], Iterator[Document]]
"""What is done to the documents of a split, one after another; all that it drops or changes is noted in the tally."""

# Where the files are looked for: a variable may name several folders, as PATH does.
VARIABLE = "LEXOME_DATA"
DEFAULT = Path("data")


@dataclass(frozen=True)
class Files:
    """The files of one split, and how they are read.

    `patterns` are paths in the set's folder, with * for anything; all of them are needed. What stands behind a "!" is a
    path inside the archive named before it, or, where there is no such archive, in the folder it was unpacked to. The
    endings of compressions and archives are left out. `reader` is a format's name, or a function that is given all the
    sources at once. `folders` are the names of the set's folders that hold such files, where not all do.
    """

    patterns: tuple[str, ...]
    reader: str | Reader
    options: Mapping[str, object] = field(default_factory=dict)
    changes: tuple[Change, ...] = ()
    folders: tuple[str, ...] = ()


@value
class Found:
    """A file that belongs to a split, and the members of it that do where it is an archive."""

    path: Path
    member: str | None = None


def roots(data: str | Path | None) -> list[Path]:
    """The folders where sets are looked for: the one named, else those of LEXOME_DATA, else ./data."""
    if data is not None:
        if not Path(data).is_dir():
            raise DataSetError(f"{data}: there is no such folder. Name the folder that holds the data sets.")
        return [Path(data)]
    named_folders = [Path(part) for part in os.environ.get(VARIABLE, "").split(os.pathsep) if part]
    return [folder for folder in (*named_folders, DEFAULT) if folder.is_dir()]


def locate(folder: Path, files: Files) -> list[Found]:
    """The files in a folder that the patterns mean, in the order of the patterns; none where one of them has none."""
    found: list[Found] = []
    for pattern in files.patterns:
        matching = _matching(folder, pattern)
        if not matching:
            return []
        found += matching
    return list(dict.fromkeys(found))


def documents(found: Iterable[Found], files: Files, tally: Tally) -> Iterator[Document]:
    """The documents in the files, read and changed as the set says."""
    docs = _read(found, files, tally)
    for change in files.changes:
        docs = change(docs, tally)
    for doc in docs:
        tally.count(doc)
        yield doc


def _matching(folder: Path, pattern: str) -> list[Found]:
    archive, inside, member = pattern.partition("!")
    if not inside:
        return [Found(path) for path in _named(folder, pattern)]
    packed = [path for path in _named(folder, archive) if is_archive(path.name)]
    if packed:
        return [Found(path, member) for path in packed]
    # Unpacked to a folder of the archive's name, or, where the path inside has folders of its own, beside it.
    own = folder / archive
    if not own.is_dir() and "/" not in member:
        return []
    unpacked = (path for path in sorted((own if own.is_dir() else folder).rglob("*")) if path.is_file())
    return [Found(path) for path in unpacked if _fits(path.relative_to(folder).as_posix(), member)]


def _named(folder: Path, pattern: str) -> list[Path]:
    """The files whose names are the pattern's, with or without the ending of a compression or an archive."""
    endings = ("", *COMPRESSIONS, *ARCHIVES)
    if "*" not in pattern:
        paths = (folder / (pattern + ending) for ending in endings)
        return [path for path in paths if path.is_file()][:1]
    return sorted(path for path in folder.glob(pattern) if path.is_file()) or sorted(
        path for ending in COMPRESSIONS for path in folder.glob(pattern + ending) if path.is_file()
    )


def _fits(path: str, pattern: str) -> bool:
    """True where the path, or its end from some folder on, is of the pattern."""
    plain = plain_name(path)
    return fnmatchcase(plain, pattern) or fnmatchcase(plain, f"*/{pattern}")


def _read(found: Iterable[Found], files: Files, tally: Tally) -> Iterator[Document]:
    sources = _sources(found, tally)
    if not isinstance(files.reader, str):
        yield from files.reader(sources, tally=tally, **files.options)
        return
    format = named(files.reader)
    function = format.read_function()
    options = checked_options(format, function, files.options)
    if format.grouped:
        yield from function(sources, tally=tally, **options)
        return
    for source in sources:
        if not source.head():
            raise FormatError(f"{source.name}: the file is empty; expected documents.")
        yield from function(source, tally=tally, **options)


def _sources(found: Iterable[Found], tally: Tally) -> Iterator[Source]:
    for file in found:
        for source in open_sources(file.path, tally):
            if file.member is None or _fits(source.member or "", file.member):
                yield source
