"""The convert command: documents from files of any format to one file in another."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lexome.document import Document
from lexome.errors import FormatError, UsageError
from lexome.formats import Tally, expand, read, write, writing_format
from lexome.formats.registry import get_format, option_parameters
from lexome.progress import progress


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
