"""convert: documents from files of any format into one file of another."""

from collections.abc import Sequence
from pathlib import Path

from lexome.errors import UsageError
from lexome.formats import Tally, read, write, writing_format
from lexome.formats.registry import named, options_of
from lexome.runlog import progress


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
    _require_apart(inputs, out)
    target = writing_format(out, to)
    reading, writing = _share_out(options or {}, from_, target.name)
    with Tally(rejects) as tally:
        docs = read(inputs, from_, tally=tally, **reading)
        total = sum(path.stat().st_size for path in inputs if path.is_file())
        with progress("converting", total=total, position=lambda: tally.bytes_read, shown=progress_shown) as watched:
            write(out, watched(docs), target.name, tally=tally, **writing)
    return tally


def _require_apart(inputs: Sequence[Path], out: Path) -> None:
    if str(out) != "-" and any(path.exists() and out.exists() and path.samefile(out) for path in inputs):
        raise UsageError(f"{out} is both input and output. Write to another file.")


def _share_out(options: dict[str, str], from_: str | None, to: str) -> tuple[dict[str, str], dict[str, str]]:
    """The options of the reader and of the writer: by their prefix, else by who knows the name."""
    reading: dict[str, str] = {}
    writing: dict[str, str] = {}
    known_to_writer = options_of(named(to).write_function())
    known_to_reader = options_of(named(from_).read_function()) if from_ is not None else {}
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
