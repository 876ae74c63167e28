"""The `lexome` command, its version, and options and output that several commands share."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from lexome.errors import FormatError, UsageError
from lexome.errors import needs as needs

if TYPE_CHECKING:
    from lexome.formats import Tally
    from lexome.pipeline import Engine, Part

app = typer.Typer(
    name="lexome",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON, even with --quiet.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Suppress progress and summary.")]
Lines = Annotated[bool, typer.Option("--lines", help="Treat each line of a plain text file as a document.")]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first malformed document.")]
RejectsPath = Annotated[
    Path | None, typer.Option(metavar="FILE", help="File for rejected documents. Default: OUT.rejects.jsonl.")
]
FormatOptions = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a format option; read.KEY or write.KEY for one side only."),
]
Counts = Annotated[
    bool, typer.Option("--counts", help="In csv, tsv and xlsx: one row per concept or name, with its counts.")
]
RecipePath = Annotated[Path, typer.Argument(metavar="RECIPE", help="TOML file; recipes/ has examples.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a recipe key, sources.0.KEY in a list; KEY= removes it."),
]
EngineName = Annotated[
    str, typer.Option("--engine", metavar="local|ray", help="Run in local processes or on a Ray cluster.")
]
Workers = Annotated[
    int | None, typer.Option("--workers", min=0, help="Files to process in parallel. Default: the usable cores.")
]
Address = Annotated[
    str | None, typer.Option("--address", help="Address of a running Ray cluster. Default: start a local one.")
]
PartName = Annotated[
    str | None, typer.Option("--part", metavar="K/N", help="Process every N-th file from the K-th, for job arrays.")
]


ModelsPath = Annotated[
    list[Path] | None,
    typer.Option(
        "--models-path", metavar="FOLDER", help="Where models are found by name; repeatable. Default: models."
    ),
]


@app.callback(invoke_without_command=True)
def lexome(version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    """Biomedical language models from raw literature to answers."""
    if version:
        from lexome import __version__

        print(f"lexome {__version__}")
        raise typer.Exit


@contextmanager
def interruptible(out: Path | None, *, kept: str | None = None) -> Iterator[None]:
    """Reports on Ctrl-C whether finished work is kept in the output, and exits with 130."""
    try:
        yield
    except KeyboardInterrupt:
        unwritten = "" if out is None else f"{out} was not written. "
        message = f"{unwritten}Run the same command again."
        if kept is not None:
            message = f"{kept} in {out} are kept. Run the same command to resume."
        print(f"interrupted: {message}", file=sys.stderr)
        raise typer.Exit(130) from None


def parse_options(pairs: Iterable[str] | None, *, example: str, counts: bool = False) -> dict[str, str]:
    """Format options from KEY=VALUE pairs and --counts."""
    options = {"write.counts": "true"} if counts else {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not (key and equals):
            message = f"--set {pair!r}: expected KEY=VALUE, for example --set {example}."
            raise UsageError(message, code="invalid-override", value=pair)
        options[key] = value
    return options


def default_rejects(out: Path) -> Path:
    """OUT.rejects.jsonl, or rejects.jsonl for standard output."""
    return Path("rejects.jsonl") if not out.name or str(out) == "-" else out.with_name(f"{out.name}.rejects.jsonl")


def print_rejected(rejected: Mapping[str, int], path: Path | None, stream: TextIO) -> None:
    """A line for each reason for which documents were rejected, most frequent first."""
    for reason, times in sorted(rejected.items(), key=lambda item: -item[1]):
        print(f"rejected   {times:,} {reason}, see {path}", file=stream)


def exit_for_tally(tally: "Tally", *, documents: int) -> None:
    """Report files that could not be read to their end, and exit with 1 for them or where no document is left."""
    for failure in tally.failures:
        print(f"broken     {failure}", file=sys.stderr)
    exit_for_rejects(tally.rejected, tally.rejects_path, documents=documents)
    if tally.failures:
        raise typer.Exit(1)


def exit_for_rejects(rejected: Mapping[str, int], path: Path | None, *, documents: int) -> None:
    """FormatError where all documents were rejected and none is left; exit code 1 for broken files in archives."""
    from lexome.formats.tally import BROKEN_FILE

    if rejected and not documents:
        raise FormatError(f"every document was rejected. The reasons are in {path}.", code="all-rejected", value=path)
    if broken := rejected.get(BROKEN_FILE):
        print(f"error: {broken:,} broken files in archives; see {path}. All others are done.", file=sys.stderr)
        raise typer.Exit(1)


def engine_of(name: str, workers: int | None, address: str | None) -> "Engine":
    """The engine of the options."""
    from lexome.pipeline import Engine

    return Engine(name, workers, address)  # type: ignore[arg-type]  # which Engine checks itself


def part_of(text: str | None) -> "Part | None":
    """The part of the option, if there is one."""
    from lexome.pipeline import Part

    return Part.parse(text) if text is not None else None


def exit_for_failures(failures: Mapping[str, str], waiting: Sequence[str], out: Path, *, quiet: bool) -> None:
    """Report failed and waiting files, and exit with 1 for failures."""
    for name, reason in failures.items():
        print(f"failed     {name}: {reason}", file=sys.stderr)
    if failures:
        message = f"error: {len(failures):,} files failed; the others are done. Fix the errors above and rerun."
        print(message, file=sys.stderr)
        raise typer.Exit(1)
    if waiting and not quiet:
        print(f"waiting    {len(waiting):,} files of other parts are not done in {out}, first {waiting[0]}")


def use_color(option: bool | None) -> bool:
    """Whether to color the output: as the option says, else in a terminal unless NO_COLOR is set."""
    if option is not None:
        return option
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
