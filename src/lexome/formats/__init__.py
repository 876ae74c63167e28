"""Reading and writing documents in every supported format: `read` and `write`."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

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
    empty_file,
    is_archive,
    open_sources,
    open_stream,
    prepare_text,
    uncompressed_name,
)
from lexome.formats.tally import Tally
from lexome.progress import progress

STANDARD_INPUT = "standard input"

Paths = str | Path | Iterable[str | Path]
Reader = Callable[..., Iterator[Document]]

__all__ = ["Paths", "Tally", "expand", "read", "work_units", "write", "writing_format"]


def read(
    paths: Paths,
    format: str | None = None,
    *,
    rejects: str | Path | None = None,
    tally: Tally | None = None,
    options_if_supported: Mapping[str, object] | None = None,
    **options: object,
) -> Iterator[Document]:
    """Stream the documents of files, folders and archives in any supported format.

    The format is detected from the file's extension and first bytes unless it is named. A document that
    cannot be read raises; with `rejects`, it is written to that file with the reason, and reading continues.
    Pass a Tally to get counts. `options` are those of the format; `options_if_supported` apply only to the
    formats that have them.
    """
    if tally is not None and rejects is not None:
        raise UsageError(
            "pass either rejects or a tally, not both: Tally(rejects=...).", code="conflicting-options", value="rejects"
        )
    chosen = get_format(format) if format is not None else None
    tally = tally if tally is not None else Tally(rejects)
    files = expand([paths] if isinstance(paths, str | Path) else paths, chosen, tally)
    docs = _FileReader(chosen, tally, options, options_if_supported or {}).read(files)

    def count_documents() -> Iterator[Document]:
        with tally:
            for doc in docs:
                tally.count(doc)
                yield doc

    return count_documents()


def write(
    path: str | Path,
    docs: Iterable[Document],
    format: str | None = None,
    *,
    tally: Tally | None = None,
    **options: object,
) -> None:
    """Write documents to a file ("-" is standard output), in the format of its extension or the one named.

    The file is written atomically; .gz, .xz and .zst compress it. A document that the format cannot represent
    raises; if the tally has a rejects file, it goes there.
    """
    path = Path(path)
    chosen = writing_format(path, format)
    function = chosen.write_function()
    parsed = parse_options(chosen, function, options)
    tally = tally if tally is not None else Tally()
    if is_archive(path.name):
        message = f"{path}: archives can be read but not written. Name a file or, for brat, a folder."
        raise UsageError(message, code="archive-output", value=path)
    if chosen.folder and str(path) == "-":
        message = f"the format {chosen.name!r} is written as a folder, not to standard output. Name a folder."
        raise UsageError(message, code="folder-format", value=chosen.name)
    if chosen.folder:
        function(docs, path, tally=tally, **parsed)
    elif str(path) == "-":
        function(docs, sys.stdout.buffer, tally=tally, **parsed)
        sys.stdout.buffer.flush()
    else:
        with atomic_write(path) as stream:
            function(docs, stream, tally=tally, **parsed)


def writing_format(path: Path, format: str | None) -> Format:
    """The format to write a file in: the one named, else the one of its extension."""
    if format is not None:
        return get_format(format)
    if str(path) == "-":
        return get_format("text")
    candidates = formats_by_extension(path.name, writing=True)
    # A format's first extension is its primary one: .txt is one of PubTator's, but the first of plain text.
    primary = [format for format in candidates if _has_extension(path.name, format.extensions[:1])]
    if len(primary or candidates) == 1:
        return (primary or candidates)[0]
    if not candidates:
        message = (
            f"{path}: no format is written with this file extension; expected one such as .csv, .xlsx, .html, "
            ".jsonl or .bioc.xml. Change it, or name the format with --to (in Python: format=)."
        )
        raise UsageError(message, code="unknown-extension", value=path)
    names = ", ".join(format.name for format in candidates)
    message = f"{path}: {names} all have this file extension. Name the format with --to (in Python: format=)."
    raise UsageError(message, code="ambiguous-extension", value=path)


def expand(paths: Iterable[str | Path], format: Format | None, tally: Tally) -> list[Path]:
    """The files under the paths: folders searched in name order, companion files added."""
    files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            files += _files_in_folder(path, format, tally)
        elif str(path) != "-" and not path.exists():
            raise FormatError(f"{path}: no such file or folder. Check the path.", code="missing-file", value=path)
        else:
            files += _with_companions(path, format)
    return list(dict.fromkeys(files))


def work_units(paths: Iterable[str | Path], format: str | None, tally: Tally) -> list[tuple[Path, ...]]:
    """The files under the paths in the smallest groups that can be read independently: mostly one by one.

    The files of a grouped format, such as brat, are one unit.
    """
    chosen = get_format(format) if format is not None else None
    files = expand(paths, chosen, tally)
    group = chosen if chosen is not None else _common_grouped_format(files)
    return [tuple(files)] if group is not None and group.grouped else [(file,) for file in files]


def _files_in_folder(folder: Path, format: Format | None, tally: Tally) -> list[Path]:
    readable: list[Path] = []
    hidden_before = tally.notes[HIDDEN_NOTE]
    for path in sorted(_walk(folder, tally)):
        candidates = formats_by_extension(path.name)
        fits = candidates and (format is None or _has_extension(path.name, format.extensions))
        if is_archive(path.name) or fits or path.is_dir():
            readable.append(path)
        else:
            _note_unsupported(path.name, tally)
    if not readable:
        kind = f"{format.name} " if format is not None else ""
        hidden = tally.notes[HIDDEN_NOTE] - hidden_before
        hint = f" {hidden:,} hidden files or folders were skipped; name them to read them." if hidden else ""
        expected = "expected documents in a format that `lexome convert --help` lists"
        message = f"{folder}: the folder has no readable {kind}file; {expected}.{hint}"
        raise FormatError(message, code="empty-folder", value=folder)
    return readable


def _walk(folder: Path, tally: Tally) -> Iterator[Path]:
    """The files in a folder and its subfolders, without hidden ones, which are counted.

    A folder without permission to list it is yielded too: like an unreadable file, it fails when it is read.
    """
    unreadable: list[Path] = []
    for parent, folders, names in os.walk(folder, onerror=lambda error: unreadable.append(Path(error.filename))):
        if hidden := sum(name.startswith(".") for name in (*folders, *names)):
            tally.note(HIDDEN_NOTE, hidden)
        folders[:] = [name for name in folders if not name.startswith(".")]
        for path in (Path(parent, name) for name in (*folders, *names) if not name.startswith(".")):
            if path.is_file():
                yield path
            elif path.is_symlink():
                tally.note(
                    "symbolic link to a folder not followed" if path.is_dir() else "broken symbolic link skipped"
                )
    yield from unreadable


def _has_extension(name: str, extensions: tuple[str, ...]) -> bool:
    return uncompressed_name(name).lower().endswith(extensions)


def _note_unsupported(name: str, tally: Tally) -> None:
    tally.note(f"file with unsupported extension skipped: {PurePosixPath(name).suffix or 'none'}")


def _with_companions(path: Path, format: Format | None) -> list[Path]:
    """The file, and the existing companion files of a grouped format."""
    candidates = [format] if format is not None else formats_by_extension(path.name)
    if len(candidates) != 1 or not candidates[0].companions or is_archive(path.name):
        return [path]
    stem = Path(uncompressed_name(path.name)).stem.removesuffix(".txt")
    names = [name.format(stem=stem) for name in candidates[0].companions]
    companions = [path.with_name(name + compression) for name in names for compression in ("", *COMPRESSIONS)]
    return [path, *(file for file in companions if file != path and file.exists())]


def _common_grouped_format(files: list[Path]) -> Format | None:
    """The grouped format of all these files, if one of them can have no other."""
    for file in files:
        candidates = formats_by_extension(file.name)
        if len(candidates) == 1 and candidates[0].grouped:
            group = candidates[0]
            if all(_has_extension(other.name, group.extensions) for other in files):
                return group
    return None


class _FileReader:
    """Reads files with one tally and one set of options, which are validated once per format."""

    def __init__(
        self, format: Format | None, tally: Tally, options: Mapping[str, object], if_supported: Mapping[str, object]
    ) -> None:
        self.format = format
        self.tally = tally
        self.options = options
        self.options_if_supported = if_supported
        self.readers: dict[str, Reader] = {}

    def read(self, files: list[Path]) -> Iterator[Document]:
        """The documents of all files."""
        group = self.format if self.format is not None else _common_grouped_format(files)
        if group is not None and group.grouped:
            sources = (source for file in files for source in self._sources(file))
            yield from self._until_broken(self._read_group(sources, group))
            return
        for file in files:
            yield from self._until_broken(self._read_file(file))

    def _reader(self, format: Format) -> Reader:
        if format.name not in self.readers:
            function = format.read_function()
            known = option_parameters(function)
            supported = {name: value for name, value in self.options_if_supported.items() if name in known}
            options = parse_options(format, function, {**supported, **self.options})
            self.readers[format.name] = partial(function, tally=self.tally, **options)
        return self.readers[format.name]

    def _sources(self, file: Path) -> Iterator[Source]:
        if str(file) == "-":
            yield open_stream(sys.stdin.buffer, STANDARD_INPUT, self.tally)
        else:
            yield from open_sources(file, self.tally)

    def _read_file(self, file: Path) -> Iterator[Document]:
        if is_archive(file.name):
            yield from self._read_archive(file)
            return
        for source in self._sources(file):
            if not source.head():
                raise empty_file(source)
            detected = detect_by_content if source.name == STANDARD_INPUT else detect
            yield from self._read_source(source, self.format or detected(source))

    def _read_archive(self, file: Path) -> Iterator[Document]:
        """The documents of each member; as in a folder, a broken member does not end the others."""
        sources = self._sources(file)
        readable = False
        for source in sources:
            candidates = formats_by_extension(source.name)
            if not (_has_extension(source.name, self.format.extensions) if self.format is not None else candidates):
                _note_unsupported(source.name, self.tally)
            elif self.format is None and len(candidates) == 1 and candidates[0].grouped:
                # The first file of a grouped format claims the rest of the archive.
                readable = True
                yield from self._read_group(chain((source,), sources), candidates[0])
            else:
                readable = True
                yield from self._until_broken(self._read_member(source), member=True)
        if not readable:
            kind = f"{self.format.name} " if self.format is not None else ""
            message = f"{file}: the archive has no readable {kind}file. Check its contents, or name their format."
            raise FormatError(message, code="empty-archive", value=file)

    def _read_member(self, source: Source) -> Iterator[Document]:
        if source.head():
            yield from self._read_source(source, self.format or detect(source))
        else:
            self.tally.note("empty file in an archive skipped")

    def _read_source(self, source: Source, format: Format) -> Iterator[Document]:
        yield from self._reader(format)(prepare_text(source, format, self.tally, self.options))
        self.tally.files[format.name] += 1

    def _read_group(self, sources: Iterator[Source], format: Format) -> Iterator[Document]:
        def count_files() -> Iterator[Source]:
            for source in sources:
                yield prepare_text(source, format, self.tally, self.options)
                self.tally.files[format.name] += 1

        yield from self._reader(format)(count_files())

    def _until_broken(self, docs: Iterator[Document], *, member: bool = False) -> Iterator[Document]:
        """The documents before the point where a file is damaged; the damage raises only without a rejects file."""
        try:
            yield from docs
        except FormatError as error:
            if self.tally.rejects_path is None:
                raise
            self.tally.failures.append(str(error))
            if member:
                self.tally.member_failures.append(str(error))


# The convert command: documents from files of any format to one file in another


def convert(
    inputs: Sequence[Path],
    out: Path,
    *,
    from_: str | None = None,
    to: str | None = None,
    options: dict[str, str] | None = None,
    rejects: Path | None = None,
    progress_shown: bool = True,
) -> Tally:
    """Convert the documents of `inputs` and write them to `out`; returns the counts.

    Without `rejects` the first bad document raises, and nothing is written.
    """
    target = writing_format(out, to)
    read_options, write_options = split_options(options or {}, from_, target.name)
    with Tally(rejects) as tally:
        files = input_files(inputs, from_, tally, out=out)
        if rejects is not None and rejects.is_file():
            rejects.unlink()  # left by an earlier run
        docs = read(files, from_, tally=tally, **read_options)
        total = sum(path.stat().st_size for path in files if path.is_file())
        with progress("converting", total=total, position=lambda: tally.bytes_read, shown=progress_shown) as watched:
            write(out, _unless_nothing_read(watched(docs), tally), target.name, tally=tally, **write_options)
    return tally


def input_files(inputs: Sequence[Path], format: str | None, tally: Tally, *, out: Path | None) -> list[Path]:
    """The files of `inputs`, without `out` and the rejects of `tally`; UsageError if one of these is named as input."""
    rejects = tally.rejects_path
    outputs = [path for path in (out, rejects) if path is not None and path.exists() and str(path) != "-"]
    for path in outputs:
        if any(input.exists() and input.samefile(path) for input in inputs):
            raise UsageError(f"{path} is both input and output. Choose another path.", code="same-file", value=path)
    if rejects is not None and out is not None and rejects.resolve() == out.resolve():
        message = f"{out} is both the output and the rejects file. Choose another path for one of them."
        raise UsageError(message, code="same-file", value=out)

    def is_output(file: Path) -> bool:
        return any(
            file.samefile(path) or (path.is_dir() and file.resolve().is_relative_to(path.resolve())) for path in outputs
        )

    files = expand(inputs, get_format(format) if format is not None else None, tally)
    return [file for file in files if str(file) == "-" or not is_output(file)]


def _unless_nothing_read(docs: Iterator[Document], tally: Tally) -> Iterator[Document]:
    """The documents; raises if a damaged file left none, so that an existing output is not replaced."""
    yield from docs
    if tally.failures and not tally.documents:
        raise FormatError(tally.failures[0], code="broken-file")


def split_options(
    options: Mapping[str, str], from_: str | None, to: str | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Reader options and writer options: by the prefix "read." or "write.", else by name.

    Without a format to write, as for the terminal, all are the reader's.
    """
    reading: dict[str, str] = {}
    writing: dict[str, str] = {}
    known_to_writer = option_parameters(get_format(to).write_function()) if to is not None else {}
    known_to_reader = option_parameters(get_format(from_).read_function()) if from_ is not None else {}
    for key, value in options.items():
        side, dot, name = key.partition(".")
        if dot and side in ("read", "write"):
            (reading if side == "read" else writing)[name] = value
        elif key in known_to_writer and key in known_to_reader:
            message = f"--set {key}={value}: both {from_} and {to} have this option. Use read.{key}= or write.{key}="
            raise UsageError(message, code="ambiguous-option", value=key)
        else:
            (writing if key in known_to_writer else reading)[key] = value
    return reading, writing
