"""The command itself: `lexome`, its version, and the options that several verbs share."""

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
    """Around the import of a verb's work: a package that is not installed is an error that says what to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "lexome":
            raise
        raise MissingExtraError(error.name, extra=extra, purpose=purpose) from None


def print_aside(rejected: Mapping[str, int], path: Path | None, stream: TextIO) -> None:
    """A line for each reason for which documents were set aside, the most frequent first."""
    for reason, times in sorted(rejected.items(), key=lambda item: -item[1]):
        print(f"set aside  {times:,} {reason}, in {path}", file=stream)


def end_reading(tally: "Tally", *, left: int) -> None:
    """Name the files that broke, and end as reading went, with `left` documents."""
    for failure in tally.failures:
        print(f"broken     {failure}", file=sys.stderr)
    end_aside(tally.rejected, tally.rejects_path, left=left)
    if tally.failures:
        raise typer.Exit(1)


def end_aside(rejected: Mapping[str, int], path: Path | None, *, left: int) -> None:
    """End as documents were set aside: FormatError where none is left, 1 where a file inside an archive broke."""
    from lexome.formats.tally import BROKEN_FILE

    if rejected and not left:
        raise FormatError(f"every document was set aside. What is wrong with each is in {path}.")
    if broken := rejected.get(BROKEN_FILE):
        said = f"error: {broken:,} files inside archives broke; {path} says where. All else is done."
        print(said, file=sys.stderr)
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
    """The engine that the options name."""
    from lexome.pipeline import Engine

    return Engine(name, workers, address)  # type: ignore[arg-type]  # which Engine checks itself


def part_of(text: str | None) -> "Part | None":
    """The part that the option names, if it is there."""
    from lexome.pipeline import Part

    return Part.parse(text) if text is not None else None


@contextmanager
def restartable(out: Path) -> Iterator[None]:
    """Say, when interrupted, that nothing is lost."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"interrupted: what is done in {out} stays. Run the same command again to go on.", file=sys.stderr)
        raise typer.Exit(130) from None


def end(failures: Mapping[str, str], waiting: Sequence[str], out: Path, *, quiet: bool) -> None:
    """Name what failed or waits, and choose the exit code."""
    for name, why in failures.items():
        print(f"failed     {name}: {why}", file=sys.stderr)
    if failures:
        said = f"error: {len(failures):,} files failed; the others are done. Mend what is said above, and run again."
        print(said, file=sys.stderr)
        raise typer.Exit(1)
    if waiting and not quiet:
        print(f"waiting    {len(waiting):,} files of other parts are not done in {out}, first {waiting[0]}")
