"""The `lexome` command, its version, and options and output that several commands share."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from lexome.errors import FormatError, MissingExtraError

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
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no summary.")]
Lines = Annotated[bool, typer.Option("--lines", help="Each line of a plain text file is a document.")]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first bad document.")]
RecipePath = Annotated[Path, typer.Argument(metavar="RECIPE", help="A TOML file; recipes/ has examples.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A key of the recipe; sources.0.KEY in a list.")
]


@app.callback(invoke_without_command=True)
def lexome(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    """Biomedical language models from raw literature to answers."""
    if version:
        from lexome import __version__

        print(f"lexome {__version__}")
        raise typer.Exit


@contextmanager
def needs(extra: str, *, purpose: str) -> Iterator[None]:
    """Wraps the imports of a command: a missing package is reported with the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "lexome":
            raise
        raise MissingExtraError(error.name, extra=extra, purpose=purpose) from None


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


EngineName = Annotated[str, typer.Option("--engine", metavar="local|ray", help="Where files are worked on.")]
Workers = Annotated[
    int | None, typer.Option("--workers", min=0, help="How many files at a time. Default: the usable cores.")
]
Address = Annotated[str | None, typer.Option("--address", help="A running Ray cluster; without it one is started.")]
PartName = Annotated[
    str | None, typer.Option("--part", metavar="K/N", help="Only every N-th file, from the K-th: for job arrays.")
]


def engine_of(name: str, workers: int | None, address: str | None) -> "Engine":
    """The engine of the options."""
    from lexome.pipeline import Engine

    return Engine(name, workers, address)  # type: ignore[arg-type]  # which Engine checks itself


def part_of(text: str | None) -> "Part | None":
    """The part of the option, if there is one."""
    from lexome.pipeline import Part

    return Part.parse(text) if text is not None else None


@contextmanager
def restartable(out: Path) -> Iterator[None]:
    """Reports on Ctrl-C that finished work is kept."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"interrupted: finished files in {out} are kept. Run the same command again to resume.", file=sys.stderr)
        raise typer.Exit(130) from None


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
