"""The command itself: `lexome`, its version, and the options that several verbs share."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from lexome.errors import MissingExtraError

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
