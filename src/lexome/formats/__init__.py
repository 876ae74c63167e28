"""Bytes to Documents and back, in every format of the field: `read` and `write`."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from itertools import chain
from pathlib import Path, PurePosixPath

from lexome.document import Document
from lexome.errors import FormatError, UsageError
from lexome.files import atomic_write
from lexome.formats.registry import (
    Format,
    detect,
    detect_by_content,
    formats_by_extension,
    get_format,
    option_parameters,
    parse_options,
)
from lexome.formats.streams import (
    COMPRESSIONS,
    HIDDEN_NOTE,
    Source,
    is_archive,
    open_sources,
    open_stream,
    uncompressed_name,
)
from lexome.formats.tally import Tally

STANDARD_INPUT = "standard input"

Paths = str | Path | Iterable[str | Path]
Reader = Callable[..., Iterator[Document]]
Readers = Callable[[Format], Reader]

__all__ = ["Paths", "Tally", "expand", "read", "units", "write", "writing_format"]


def read(
    paths: Paths,
    format: str | None = None,
    *,
    rejects: str | Path | None = None,
    tally: Tally | None = None,
    options_if_supported: Mapping[str, object] | None = None,
    **options: object,
) -> Iterator[Document]:
    """The documents of files, folders and archives, one by one, in any format Lexome knows.

    The format is told from the file's ending and first bytes unless it is named. A document that
    cannot be read raises, or, where `rejects` names a file, is set aside there with its reason while
    the rest is read. Pass a Tally to have everything counted; `options` are the format's own, and
    `options_if_supported` holds those that are meant for whichever of the files' formats have them.
    """
    if tally is not None and rejects is not None:
        raise UsageError("give either rejects or a tally, not both; a Tally takes rejects itself.")
    chosen = get_format(format) if format is not None else None
    tally = tally if tally is not None else Tally(rejects)
    files = expand([paths] if isinstance(paths, str | Path) else paths, chosen, tally)
    return _counted(_read_files(files, chosen, tally, _readers(options, options_if_supported or {})), tally)


def write(
    path: str | Path,
    docs: Iterable[Document],
    format: str | None = None,
    *,
    tally: Tally | None = None,
    **options: object,
) -> None:
    """Write documents to a file (to standard output for "-"), in the format of its ending or the one named.

    The file appears only when all is written; .gz, .xz and .zst compress it. A document that the
    format cannot hold raises, or is set aside where the tally has a place for rejects.
    """
    path = Path(path)
    chosen = writing_format(path, format)
    function = chosen.write_function()
    checked = parse_options(chosen, function, options)
    tally = tally if tally is not None else Tally()
    if is_archive(path.name):
        raise UsageError(f"{path}: archives are read but not written. Name a file or, for brat, a folder.")
    if chosen.folder and str(path) == "-":
        raise UsageError(f"the format {chosen.name!r} is written as a folder; name one instead of standard output.")
    if chosen.folder:
        function(docs, path, tally=tally, **checked)
    elif str(path) == "-":
        function(docs, sys.stdout.buffer, tally=tally, **checked)
        sys.stdout.buffer.flush()
    else:
        with atomic_write(path) as stream:
            function(docs, stream, tally=tally, **checked)


def _counted(docs: Iterator[Document], tally: Tally) -> Iterator[Document]:
    with tally:
        for doc in docs:
            tally.count(doc)
            yield doc


def expand(paths: Iterable[str | Path], format: Format | None, tally: Tally) -> list[Path]:
    """The files behind the paths: folders searched in name order, files that belong together added."""
    files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            files += _in_folder(path, format, tally)
        elif str(path) != "-" and not path.exists():
            raise FormatError(f"{path}: no such file or folder. Check the path.", code="missing-file", value=path)
        else:
            files += _with_companions(path, format)
    return list(dict.fromkeys(files))


def work_units(paths: Iterable[str | Path], format: str | None, tally: Tally) -> list[tuple[Path, ...]]:
    """The files behind the paths in the smallest sets that can be read apart: mostly one by one.

    Formats whose documents are spread over files, such as brat, are one set.
    """
    chosen = get_format(format) if format is not None else None
    files = expand(paths, chosen, tally)
    group = chosen if chosen is not None else _shared_group(files)
    return [tuple(files)] if group is not None and group.grouped else [(file,) for file in files]


def _in_folder(folder: Path, format: Format | None, tally: Tally) -> list[Path]:
    kept: list[Path] = []
    hidden_before = tally.notes[HIDDEN_NOTE]
    for path in sorted(_found(folder, tally)):
        fitting = formats_by_extension(path.name)
        if is_archive(path.name) or (fitting and (format is None or _fits(path.name, format))) or path.is_dir():
            kept.append(path)
        else:
            _note_stranger(path.name, tally)
    if not kept:
        what = f"{format.name} " if format is not None else ""
        hidden = tally.notes[HIDDEN_NOTE] - hidden_before
        but = f" {hidden:,} hidden files or folders in it are skipped, unless they are named themselves." * (hidden > 0)
        raise FormatError(f"{folder}: the folder holds no {what}file that can be read.{but}")
    return kept


def _found(folder: Path, tally: Tally) -> Iterator[Path]:
    """The files in a folder and in those below it, without hidden ones, which are counted.

    A folder that may not be opened is among them: it breaks when it is read, as a file does that may not be opened.
    """
    closed: list[Path] = []
    for place, folders, names in os.walk(folder, onerror=lambda error: closed.append(Path(error.filename))):
        if hidden := sum(name.startswith(".") for name in (*folders, *names)):
            tally.note(HIDDEN_NOTE, hidden)
        folders[:] = [name for name in folders if not name.startswith(".")]
        for path in (Path(place, name) for name in (*folders, *names) if not name.startswith(".")):
            if path.is_file():
                yield path
            elif path.is_symlink():
                tally.note("link to a folder, not followed" if path.is_dir() else "link that leads to no file, skipped")
    yield from closed


def _fits(name: str, format: Format) -> bool:
    return uncompressed_name(name).lower().endswith(format.extensions)


def _note_stranger(name: str, tally: Tally) -> None:
    tally.note(f"file of another kind skipped: {PurePosixPath(name).suffix or 'no ending'}")


def _with_companions(path: Path, format: Format | None) -> list[Path]:
    """The file, and beside it those that complete a format spread over several files."""
    candidates = [format] if format is not None else formats_by_extension(path.name)
    if len(candidates) != 1 or not candidates[0].companions or is_archive(path.name):
        return [path]
    stem = Path(uncompressed_name(path.name)).stem
    wanted = [name.format(stem=stem) for name in candidates[0].companions]
    found = [path.with_name(name + ending) for name in wanted for ending in ("", *COMPRESSIONS)]
    return [path, *(file for file in found if file != path and file.exists())]


def _read_files(files: list[Path], format: Format | None, tally: Tally, reader: Readers) -> Iterator[Document]:
    format = format if format is not None else _shared_group(files)
    if format is not None and format.grouped:
        sources = (source for file in files for source in _sources(file, tally))
        yield from _surviving(_read_group(sources, format, tally, reader), tally)
        return
    for file in files:
        yield from _surviving(_read_file(file, format, tally, reader), tally)


def _shared_group(files: list[Path]) -> Format | None:
    """The grouped format that all these files belong to, if one of them can belong to nothing else."""
    for file in files:
        candidates = formats_by_extension(file.name)
        if len(candidates) == 1 and candidates[0].grouped and all(_fits(other.name, candidates[0]) for other in files):
            return candidates[0]
    return None


def _read_file(file: Path, format: Format | None, tally: Tally, reader: Readers) -> Iterator[Document]:
    sources = _sources(file, tally)
    if is_archive(file.name):
        yield from _read_archive(sources, format, tally, reader)
        return
    for source in sources:
        if not source.head():
            raise FormatError(f"{source.name}: the file is empty; expected documents.")
        yield from _read_source(source, format if format is not None else _detected(source), tally, reader)


def _read_archive(
    sources: Iterator[Source], format: Format | None, tally: Tally, reader: Readers
) -> Iterator[Document]:
    """The documents of each file inside; as in a folder, one that breaks does not end the others."""
    for source in sources:
        candidates = formats_by_extension(source.name)
        if not (_fits(source.name, format) if format is not None else candidates):
            _note_stranger(source.name, tally)
        elif format is None and len(candidates) == 1 and candidates[0].grouped:
            # The first such file says that the rest of the archive belongs to it.
            yield from _read_group(chain((source,), sources), candidates[0], tally, reader)
        else:
            yield from _surviving(_read_member(source, format, tally, reader), tally, member=True)


def _read_member(source: Source, format: Format | None, tally: Tally, reader: Readers) -> Iterator[Document]:
    if source.head():
        yield from _read_source(source, format if format is not None else detect(source), tally, reader)
    else:
        tally.note("empty file in an archive skipped")


def _read_source(source: Source, format: Format, tally: Tally, reader: Readers) -> Iterator[Document]:
    yield from reader(format)(source, tally=tally)
    tally.files[format.name] += 1


def _read_group(sources: Iterator[Source], format: Format, tally: Tally, reader: Readers) -> Iterator[Document]:
    def counted() -> Iterator[Source]:
        for source in sources:
            yield source
            tally.files[format.name] += 1

    yield from reader(format)(counted(), tally=tally)


def _surviving(docs: Iterator[Document], tally: Tally, *, member: bool = False) -> Iterator[Document]:
    """The documents up to where a file breaks; the break raises only where rejects have no place."""
    try:
        yield from docs
    except FormatError as error:
        if tally.rejects_path is None:
            raise
        tally.failures.append(str(error))
        if member:
            tally.member_failures.append(str(error))


def _sources(file: Path, tally: Tally) -> Iterator[Source]:
    if str(file) == "-":
        yield open_stream(sys.stdin.buffer, STANDARD_INPUT, tally)
    else:
        yield from open_sources(file, tally)


def _detected(source: Source) -> Format:
    return detect_by_content(source) if source.name == STANDARD_INPUT else detect(source)


def _readers(options: Mapping[str, object], options_if_supported: Mapping[str, object]) -> Readers:
    """A function that gives a format's reader with these options, checked once and not for every file."""

    @cache
    def reader(format: Format) -> Reader:
        function = format.read_function()
        known = option_parameters(function)
        wanted = {**{name: value for name, value in options_if_supported.items() if name in known}, **options}
        return partial(function, **parse_options(format, function, wanted))

    return reader


def writing_format(path: Path, format: str | None) -> Format:
    """The format to write a file in: the one named, else the one of its ending."""
    if format is not None:
        return get_format(format)
    if str(path) == "-":
        return get_format("text")
    candidates = formats_by_extension(path.name, writing=True)
    # The first ending of a format is its own; .txt is PubTator's too, but first of all plain text.
    owners = [format for format in candidates if uncompressed_name(path.name).lower().endswith(format.extensions[0])]
    if len(owners or candidates) == 1:
        return (owners or candidates)[0]
    if not candidates:
        raise UsageError(f"{path}: no format is written to files that end so. Name one with --to (in Python: format=).")
    names = ", ".join(format.name for format in candidates)
    raise UsageError(f"{path}: {names} all end so. Name the one you mean with --to (in Python: format=).")
