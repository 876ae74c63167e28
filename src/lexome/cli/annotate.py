"""`lexome annotate`: what models find in texts, files and folders, in the terminal, in a file or in bulk."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lexome.cli.app import AsJson, Lines, Quiet, Strict, app
from lexome.cli.ending import end_reading
from lexome.cli.engines import Address, EngineName, PartName, engine_of, part_of, restartable
from lexome.cli.findings import print_bulk, print_documents, print_done
from lexome.errors import UsageError

if TYPE_CHECKING:
    from lexome.infer.annotator import Annotator
    from lexome.infer.inputs import Inputs
    from lexome.infer.wanted import Wanted

# A folder is written in this format unless --to names another.
BULK_FORMAT = "jsonl"
STANDARD_OUTPUT = Path("-")


@dataclass(frozen=True, slots=True)
class _Output:
    """Where documents go, the format, None for reading, and whether that is a folder with a file for each input."""

    path: Path
    format: str | None
    bulk: bool = False

    @property
    def printed(self) -> bool:
        """Whether documents go to standard output."""
        return self.path == STANDARD_OUTPUT


Texts = Annotated[
    list[str] | None,
    typer.Argument(metavar="INPUT", help="A text, files, folders, patterns or archives; - for stdin."),
]
Models = Annotated[
    list[Path] | None,
    typer.Option("--model", metavar="FOLDER", help="An exported model; several work one after another."),
]
Out = Annotated[str | None, typer.Option("--out", metavar="FILE|FOLDER", help="Without it, standard output.")]
To = Annotated[str | None, typer.Option("--to", metavar="FORMAT", help="The format to write; without it, for reading.")]
From = Annotated[str | None, typer.Option("--from", metavar="FORMAT", help="The format of the inputs.")]
IsText = Annotated[bool, typer.Option("--text", help="Every INPUT is a text.")]
Types = Annotated[list[str] | None, typer.Option("--types", metavar="TYPE,...", help="Only mentions of these types.")]
MinScore = Annotated[
    list[str] | None,
    typer.Option("--min-score", metavar="[TYPE=]SCORE", help="Leave out what scores less, from 0 to 1."),
]
Explain = Annotated[bool, typer.Option("--explain", help="Say which mentions were dropped, and why.")]
Colour = Annotated[
    bool | None, typer.Option("--color/--no-color", help="Default: in a terminal, unless NO_COLOR is set.")
]
Threads = Annotated[int | None, typer.Option("--threads", min=1, help="Of each process. Default: all cores are used.")]
Jobs = Annotated[
    int | None, typer.Option("--jobs", "--workers", min=0, help="Into a folder: how many files at a time.")
]
Redo = Annotated[bool, typer.Option("--redo", help="Replace what a folder has of other settings.")]
Rejects = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Where bad documents go. Default: OUT.rejects.jsonl, here for stdout."),
]


@app.command()
def annotate(
    inputs: Texts = None,
    model: Models = None,
    out: Out = None,
    to: To = None,
    from_: From = None,
    text: IsText = False,
    lines: Lines = False,
    types: Types = None,
    min_score: MinScore = None,
    explain: Explain = False,
    color: Colour = None,
    threads: Threads = None,
    jobs: Jobs = None,
    engine: EngineName = "local",
    address: Address = None,
    part: PartName = None,
    redo: Redo = False,
    rejects: Rejects = None,
    strict: Strict = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Find genes, diseases and more in texts and documents.

    Documents may be of any format. INPUT with a space in it that is no path is a text. Without --out and --to,
    documents are printed for reading, each mention as [BRCA1|Gene 0.98]. Where --out is a folder, each file is
    annotated into a file there, many at a time; stopped and run again, it goes on. Without --model, the model that
    comes with Lexome is used.
    """
    from lexome.infer.annotate import Annotation
    from lexome.infer.bulk import Settings, annotate_files
    from lexome.infer.inputs import inputs_of
    from lexome.infer.loading import default_model, load

    output = _output(out, to)
    given = inputs_of(_words(inputs), text=text and bool(inputs))
    aside = None if strict else rejects or _beside(output)
    _check(output, explain=explain, bulk_options=redo or part is not None or engine != "local" or jobs is not None)
    folders = tuple(model or [default_model()])
    with restartable(output.path) if output.bulk else _interruptible(output):
        # Of many files each process opens its own models; here they only have to say their types.
        annotator = load(*folders, threads=1 if output.bulk else threads)
        wanted = _wanted(annotator, types, min_score)
        if output.bulk:
            del annotator
            bulk = annotate_files(
                _files(given),
                output.path,
                Settings(folders, output.format or BULK_FORMAT, wanted, from_, lines, strict, threads),
                engine=engine_of(engine, jobs, address),
                part=part_of(part),
                rejects=aside,
                redo=redo,
                progress_shown=not quiet,
            )
            print_bulk(bulk, output.path, as_json=as_json, quiet=quiet)
            return
        shown = not quiet and not (output.printed and sys.stdout.isatty())
        work = Annotation(
            annotator, given, wanted=wanted, from_=from_, lines=lines, rejects=aside, progress_shown=shown
        )
        if output.format is None:
            print_documents(work, explain=explain, colour=_coloured(color), as_json=as_json)
        else:
            work.write(output.path, output.format)
    print_done(work, output.path, as_json=as_json and output.format is not None, quiet=quiet)
    end_reading(work.done.tally, left=work.done.counts.documents)


def _output(out: str | None, to: str | None) -> _Output:
    """Where and how, from --out and --to; a name without an ending, or with a slash at its end, is a folder's."""
    from lexome.formats import writing_format
    from lexome.formats.registry import named

    if out is not None and not out.strip():
        raise UsageError("--out is empty; expected the name of a file or folder, or - for standard output.")
    if to is not None:
        named(to).write_function()  # which says so where it is only read
    in_one_folder = to is not None and named(to).folder
    path = Path(out) if out is not None else STANDARD_OUTPUT
    if path == STANDARD_OUTPUT:
        if in_one_folder:
            raise UsageError(f"--to {to} is written as a folder. Name one with --out.")
        return _Output(path, to)
    ends_as_folder = str(out).endswith(("/", os.sep)) or not path.suffix
    if not in_one_folder and (path.is_dir() or (not path.exists() and ends_as_folder)):
        return _Output(path, to, bulk=True)
    return _Output(path, to or writing_format(path, None).name)


def _words(inputs: list[str] | None) -> list[str]:
    if inputs:
        return inputs
    # A process without standard input has none at all.
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError(
            'nothing to annotate was given. Give a text, as in lexome annotate "BRCA1 binds RAD51.", or files, '
            "folders, or - for standard input."
        )
    return ["-"]


def _beside(output: _Output) -> Path:
    if output.printed or not output.path.name:
        return Path("rejects.jsonl")
    return output.path.with_name(output.path.name + ".rejects.jsonl")


def _check(output: _Output, *, explain: bool, bulk_options: bool) -> None:
    if explain and not (output.printed and output.format is None):
        raise UsageError("--explain prints for reading; it takes no --out and no --to.")
    if bulk_options and not output.bulk:
        raise UsageError("--jobs, --engine, --part and --redo are for many files. Name a folder with --out.")


def _files(given: "Inputs") -> tuple[Path, ...]:
    if given.texts or Path("-") in given.paths:
        raise UsageError("a text or standard input cannot go into a folder. Name a file with --out.")
    return given.paths


def _wanted(annotator: "Annotator", types: list[str] | None, min_score: list[str] | None) -> "Wanted":
    from lexome.infer.wanted import wanted_of

    relations = [label for model in annotator.models if model.kind == "relation" for label in model.labels]
    return wanted_of(
        types or [],
        min_score or [],
        found=annotator.types,
        scored=(*annotator.types, *relations),
        extra=annotator.extra_types,
    )


def _coloured(asked: bool | None) -> bool:
    if asked is not None:
        return asked
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


@contextmanager
def _interruptible(output: _Output) -> Iterator[None]:
    """Say what an interruption left behind; a reader that has seen enough, such as head, is no error."""
    try:
        yield
        sys.stdout.flush()
    except KeyboardInterrupt:
        left = "" if output.printed else f"{output.path} was not written. "
        print(f"interrupted: {left}Run the same command again.", file=sys.stderr)
        raise typer.Exit(130) from None
    except BrokenPipeError:
        # Python would complain once more when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
