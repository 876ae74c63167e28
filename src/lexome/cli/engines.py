"""What verbs of bulk work share: where files are worked on, which part of them, and how it ends."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from lexome.pipeline import Engine, Part

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
