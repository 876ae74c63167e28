"""convert: documents from files of any format into one file of another."""

from collections.abc import Iterator, Sequence
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
    """Everything counted while documents went from `inputs` to `out`.

    Without `rejects` the first bad document raises, and nothing is written.
    """
    target = writing_format(out, to)
    reading, writing = _share_out(options or {}, from_, target.name)
    with Tally(rejects) as tally:
        files = _apart(inputs, out, rejects, expand(inputs, get_format(from_) if from_ else None, tally))
        docs = read(files, from_, tally=tally, **reading)
        total = sum(path.stat().st_size for path in files if path.is_file())
        with progress("converting", total=total, position=lambda: tally.bytes_read, shown=progress_shown) as watched:
            write(out, _something(watched(docs), tally), target.name, tally=tally, **writing)
    return tally


def _apart(inputs: Sequence[Path], out: Path, rejects: Path | None, files: list[Path]) -> list[Path]:
    """The files to read, without what this run writes; UsageError where one was named as input itself."""
    written = [path for path in (out, rejects) if path is not None and path.exists() and str(path) != "-"]
    for path in written:
        if any(given.exists() and given.samefile(path) for given in inputs):
            raise UsageError(f"{path} is both input and output. Write to another file.")
    if rejects is not None and rejects.resolve() == out.resolve():
        raise UsageError(
            f"{out} is both the output and the place for bad documents. Name another file for one of them."
        )
    kept = [file for file in files if str(file) == "-" or not any(file.samefile(path) for path in written)]
    if rejects is not None and rejects.is_file():
        rejects.unlink()  # of an earlier run; this one begins its own
    return kept


def _something(docs: Iterator[Document], tally: Tally) -> Iterator[Document]:
    """The documents; if a file broke before its first one, an error, so that an older output stays."""
    yield from docs
    if tally.failures and not tally.documents:
        raise FormatError(tally.failures[0])


def _share_out(options: dict[str, str], from_: str | None, to: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of the reader and of the writer: by their prefix, else by who knows the name."""
    reading: dict[str, str] = {}
    writing: dict[str, str] = {}
    known_to_writer = option_parameters(get_format(to).write_function())
    known_to_reader = option_parameters(get_format(from_).read_function()) if from_ is not None else {}
    for key, value in options.items():
        side, dot, name = key.partition(".")
        if dot and side in ("read", "write"):
            (reading if side == "read" else writing)[name] = value
        elif key in known_to_writer and key in known_to_reader:
            raise UsageError(
                f"--set {key}={value}: both {from_} and {to} have this option. Say read.{key}= or write.{key}="
            )
        else:
            (writing if key in known_to_writer else reading)[key] = value
    return reading, writing
