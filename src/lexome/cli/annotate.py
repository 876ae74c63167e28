"""`lexome annotate`: what models find in texts, files and folders, in the terminal, in a file or in bulk."""

import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from lexome.cli.app import (
    Address,
    AsJson,
    EngineName,
    Lines,
    PartName,
    Quiet,
    Strict,
    app,
    end,
    end_aside,
    end_reading,
    engine_of,
    part_of,
    print_aside,
    restartable,
)
from lexome.errors import UsageError

if TYPE_CHECKING:
    from lexome.infer.annotate import Annotation, Counts, Inputs
    from lexome.infer.annotator import Annotator
    from lexome.infer.bulk import Bulk
    from lexome.infer.embed import Embedded
    from lexome.infer.selection import Wanted

# Lines longer than this are hard to read.
WIDEST = 120
NAMED_TYPES = 20


def print_documents(work: "Annotation", *, explain: bool, colour: bool, as_json: bool) -> None:
    """Each document as it is done, for reading or as a line of JSON."""
    from lexome.formats.jsonl import to_json
    from lexome.infer.annotate import TEXT_ID
    from lexome.infer.terminal import clean, shown

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    width = min(shutil.get_terminal_size((100, 24)).columns, WIDEST)
    for number, doc in enumerate(work.documents()):
        wanted = work.wanted
        dropped = work.annotator.explain(doc, types=wanted.types, min_score=wanted.min_score) if explain else []
        if as_json:
            line = json.loads(to_json(doc)) | ({"dropped": [asdict(one) for one in dropped]} if explain else {})
            print(json.dumps(line, ensure_ascii=False), flush=True)
            continue
        print(("\n" if number else "") + shown(doc, width=width, colour=colour, named=doc.id != TEXT_ID))
        for one in dropped:
            print(f"  dropped {one.start}-{one.end} {clean(one.text)!r} {one.type} {one.score:.2f}: {clean(one.why)}")
        sys.stdout.flush()


def print_done(work: "Annotation", out: Path, *, as_json: bool, quiet: bool) -> None:
    """What was read, found and written; to standard error where standard output holds the documents."""
    done = work.done
    printed = str(out) == "-"
    stream = sys.stderr if printed else sys.stdout
    if as_json:
        print(json.dumps({**done.as_dict(), "out": str(out)}, ensure_ascii=False), file=stream)
    elif not quiet:
        print(f"read       {done.counts.documents:,} documents, {done.counts.tokens:,} tokens", file=stream)
        _print_found(done.counts, stream)
        _print_notes(done.tally.notes, stream)
        print_aside(done.tally.rejected, done.tally.rejects_path, stream)
        print(_speed(done.as_dict()), file=stream)
        if not printed:
            print(f"wrote      {done.tally.written:,} documents to {out}", file=stream)
    else:
        print_aside(done.tally.rejected, done.tally.rejects_path, sys.stderr)


def print_bulk(bulk: "Bulk", out: Path, *, as_json: bool, quiet: bool) -> None:
    """What became of many files, and the exit code."""
    if as_json:
        print(json.dumps({**bulk.as_dict(), "out": str(out)}, ensure_ascii=False))
    elif not quiet:
        kept = bulk.files - bulk.fresh_files
        print(f"read       {bulk.counts.documents:,} documents of {bulk.files:,} files, {bulk.counts.tokens:,} tokens")
        if kept:
            print(f"kept       {kept:,} files that were done before")
        _print_found(bulk.counts, sys.stdout)
        _print_notes(bulk.notes, sys.stdout)
        print_aside(bulk.rejected, bulk.rejects, sys.stdout)
        if bulk.fresh_files:
            print(_speed(bulk.as_dict()))
        print(f"wrote      {out}")
    else:
        print_aside(bulk.rejected, bulk.rejects, sys.stderr)
    end(bulk.failures, bulk.waiting, out, quiet=quiet)
    end_aside(bulk.rejected, bulk.rejects, left=bulk.counts.documents)


def _print_found(counts: "Counts", stream: TextIO) -> None:
    held = counts.as_dict()
    for what, kind in (("found", "mentions"), ("related", "relations"), ("labelled", "labels")):
        for name, times in list(held[kind].items())[:NAMED_TYPES]:
            print(f"{what:<10} {times:,} {name}", file=stream)


def _print_notes(notes: "Counter[str]", stream: TextIO) -> None:
    for what, times in notes.most_common(NAMED_TYPES):
        print(f"noted      {times:,} {what}", file=stream)


def _speed(held: dict[str, float]) -> str:
    rates = f"{held['documents_per_second']:,.1f} documents/s, {held['tokens_per_second']:,.0f} tokens/s"
    return f"took       {held['seconds']:,.1f} s: {rates}"


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
    from lexome.infer.annotate import Annotation, inputs_of
    from lexome.infer.annotator import default_model, load
    from lexome.infer.bulk import Settings, annotate_files

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
    from lexome.formats.registry import get_format

    if out is not None and not out.strip():
        raise UsageError("--out is empty; expected the name of a file or folder, or - for standard output.")
    if to is not None:
        get_format(to).write_function()  # which says so where it is only read
    in_one_folder = to is not None and get_format(to).folder
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
    from lexome.infer.selection import wanted_of

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


ModelFolder = Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that `lexome export` made.")]
EmbedThreads = Annotated[int | None, typer.Option("--threads", min=1, help="Default: the usable cores.")]


@app.command()
def fill(
    folder: ModelFolder,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="With [MASK] where words are to be guessed.")],
    top: Annotated[int, typer.Option("--top", min=1, help="How many words for each mask.")] = 5,
    threads: EmbedThreads = None,
    as_json: AsJson = False,
) -> None:
    """Words for each [MASK] of a text, with probabilities.

    The folder holds a masked language model.
    """
    from lexome.infer.fill import fill as run
    from lexome.infer.predictor import Predictor

    masks = run(Predictor.open(folder, threads=threads), text, top=top)
    if as_json:
        print(json.dumps([[asdict(guess) for guess in guesses] for guesses in masks], ensure_ascii=False))
        return
    for number, guesses in enumerate(masks, 1):
        if len(masks) > 1:
            print(f"mask {number}")
        for guess in guesses:
            print(f"{guess.probability:.4f}  {guess.word}")


@app.command()
def embed(
    folder: ModelFolder,
    inputs: Annotated[list[Path], typer.Argument(metavar="INPUT...", help="Files, folders or archives; - for stdin.")],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Where vectors go: .npy or .parquet.")],
    unit: Annotated[str, typer.Option(metavar="document|passage|sentence", help="What has a vector.")] = "document",
    pooling: Annotated[str, typer.Option(metavar="mean|cls", help="The mean of all tokens, or the first.")] = "mean",
    batch: Annotated[int, typer.Option(min=1, help="Rows at a time. On a CPU, one is fastest.")] = 1,
    normalise: Annotated[bool, typer.Option("--normalise", help="Vectors of length 1.")] = False,
    lines: Lines = False,
    rejects: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where bad documents go. Default: OUT.rejects.jsonl.")
    ] = None,
    strict: Strict = False,
    threads: EmbedThreads = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """A vector for each document, passage or sentence.

    Files may be of any format, and each vector has its id. A text too long for the model is cut into windows whose
    vectors are averaged by their tokens; nothing is left out. Ids are in a column of the Parquet file, or beside the
    .npy in .ids.jsonl, in the order of the rows.
    """
    from lexome.infer.embed import embed as run
    from lexome.infer.predictor import Predictor

    aside = None if strict else rejects or out.with_name(out.name + ".rejects.jsonl")
    predictor = Predictor.open(folder, threads=threads)
    try:
        done = run(
            predictor,
            inputs,
            out,
            unit=unit,
            pooling=pooling,
            batch=batch,
            normalise=normalise,
            lines=lines,
            rejects=aside,
            progress_shown=not quiet,
        )
    except KeyboardInterrupt:
        print(f"interrupted: {out} was not written. Run the same command again.", file=sys.stderr)
        raise typer.Exit(130) from None
    if as_json or not quiet:
        _print_vectors(done, out, width=predictor.settings.width, as_json=as_json)
    else:
        print_aside(done.tally.rejected, done.tally.rejects_path, sys.stderr)
    end_reading(done.tally, left=done.tally.documents)


def _print_vectors(done: "Embedded", out: Path, *, width: int, as_json: bool) -> None:
    """Print what was read and set aside, and what vectors were written."""
    if as_json:
        counts = {name: getattr(done, name) for name in ("vectors", "windows", "tokens", "without_tokens")}
        print(json.dumps({**done.tally.summary(), **counts, "out": str(out)}, ensure_ascii=False))
        return
    print(f"read       {done.tally.documents:,} documents, {done.tokens:,} tokens in {done.windows:,} windows")
    print_aside(done.tally.rejected, done.tally.rejects_path, sys.stdout)
    for what, count in done.tally.notes.most_common():
        print(f"noted      {count:,} {what}")
    if done.without_tokens:
        print(f"noted      {done.without_tokens:,} without any token, which have no vector")
    print(f"wrote      {done.vectors:,} vectors of width {width:,} to {out}")
