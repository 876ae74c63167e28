"""The `lexome` command, and the options and output that several commands share.

Options that belong together are a group, a dataclass with a field for each, which a command takes as one parameter:

    @app.command()
    @grouped
    def build(recipe: RecipePath, *, pool: EngineOptions, quiet: Quiet = False) -> None: ...
"""

import inspect
import json
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO, get_type_hints

import typer
import typer.core

from lexome.document import printable
from lexome.errors import FormatError, UsageError

if TYPE_CHECKING:
    from lexome.concepts.matcher import CaseRule
    from lexome.formats import Tally
    from lexome.infer.concepts import ConceptOptions
    from lexome.pipeline import Engine, Part

# Longer lines are hard to read.
MAX_WIDTH = 120
NAMED_TYPES = 20
NAMED_NOTES = 12
TABLES = ("csv", "tsv", "xlsx")
STANDARD_OUTPUT = Path("-")

app = typer.Typer(
    name="lexome",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class QuotedTextCommand(typer.core.TyperCommand):
    """A command with a text argument; if the shell has split the text into words, the error suggests quotes."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The remaining arguments; errors for too many of them suggest quotes."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # of click, of which typer may have its own copy
            message = getattr(error, "message", "")
            if "unexpected extra argument" in message or "No such option: -" in message:
                quoted = (
                    "Put several words in quotes, as in 'IL-2 receptor', and words with a dash at the start after --."
                )
                error.message = f"{message.removesuffix('.')}. {quoted}"  # type: ignore[attr-defined]
            raise


def nonempty_path(text: str) -> Path:
    """The path; UsageError for an empty one, which would be the current folder: a shell's variable may be unset."""
    if not text:
        raise UsageError("a path is empty; expected that of a file or folder. Check the command.", code="empty-path")
    return Path(text)


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command with options in place of each parameter whose type is a group of them."""
    signature = inspect.signature(command)
    groups: dict[str, Any] = {
        name: one.annotation for name, one in signature.parameters.items() if is_dataclass(one.annotation)
    }
    parameters = []
    for name, parameter in signature.parameters.items():
        expanded = [parameter]
        if name in groups:
            types = get_type_hints(groups[name], include_extras=True)
            expanded = [
                inspect.Parameter(option.name, parameter.kind, default=option.default, annotation=types[option.name])
                for option in fields(groups[name])
            ]
        parameters += expanded

    @wraps(command)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{option.name: values.pop(option.name) for option in fields(group)})
        command(**values)

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": None}
    return run


AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Suppress progress and summary.")]
From = Annotated[str | None, typer.Option("--from", metavar="FORMAT", help="Input format. Default: detected.")]
Lines = Annotated[bool, typer.Option("--lines", help="Treat each line of a text or plain text file as a document.")]
Link = Annotated[bool, typer.Option("--link/--no-link", help="Link mentions to concept ids.")]
Abbreviations = Annotated[
    bool, typer.Option("--abbreviations", help="Annotate abbreviations: short and long forms that a text defines.")
]
RecipePath = Annotated[Path, typer.Argument(metavar="RECIPE", help="TOML file; recipes/ has examples.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a recipe key, sources.0.KEY in a list; KEY= removes it."),
]
ModelsPath = Annotated[
    list[Path] | None,
    typer.Option("--models-path", metavar="FOLDER", help="Folder with models by name; repeatable. Default: models."),
]


Threads = Annotated[
    int | None, typer.Option("--threads", metavar="N", min=1, help="Number of threads. Default: the usable cores.")
]
Color = Annotated[
    bool | None,
    typer.Option("--color/--no-color", help="Color the output. Default: in a terminal, unless NO_COLOR is set."),
]
DataPath = Annotated[
    Path | None, typer.Option("--data", metavar="FOLDER", help="Folder with the datasets. Default: ./data.")
]
Pooling = Annotated[str, typer.Option(metavar="mean|cls", help="Mean of all tokens, or the first token.")]


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """The models that annotate."""

    model: Annotated[
        list[Path] | None,
        typer.Option(
            "--model",
            metavar="NAME|FOLDER",
            help="Model name or exported folder; repeatable. Default: the bundled one.",
        ),
    ] = None
    models_path: ModelsPath = None
    relations: Annotated[
        bool, typer.Option("--relations", help="Also predict relations, with the model called relations.")
    ] = False

    def folders(self) -> tuple[Path, ...]:
        """The folders of all models."""
        from lexome.infer.annotator import default_model
        from lexome.infer.named_models import resolve_model, with_relations

        named = tuple(resolve_model(name, search_path=self.models_path) for name in self.model or ())
        folders = named or (default_model(),)
        return with_relations(folders, search_path=self.models_path) if self.relations else folders


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """The format to read, and options of the formats to read and to write."""

    from_: From = None
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Set a format option; read.KEY or write.KEY for one side only."
        ),
    ] = None
    counts: Annotated[
        bool, typer.Option("--counts", help="In csv, tsv and xlsx: one row per concept or name, with its counts.")
    ] = False

    def parse(self, *, example: str) -> dict[str, str]:
        """All options by name."""
        options = {"write.counts": "true"} if self.counts else {}
        return options | parse_options(self.set_, example=example)

    def split(self, to: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Options of the reader, and of the writer of a format."""
        from lexome.formats import split_options

        if self.counts and to not in TABLES:
            message = "--counts needs --to csv, tsv or xlsx, or such a file as --out."
            raise UsageError(message, code="conflicting-options", value="--counts")
        return split_options(self.parse(example="encoding=latin-1"), self.from_, to)


@dataclass(frozen=True, slots=True)
class RejectOptions:
    """How malformed documents are handled."""

    rejects: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File for rejected documents. Default: OUT.rejects.jsonl.")
    ] = None
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first malformed document.")] = False

    def path(self, out: Path) -> Path | None:
        """The file for rejected documents: OUT.rejects.jsonl, rejects.jsonl for standard output; None with --strict."""
        if self.strict:
            return None
        if self.rejects is not None and self.rejects.is_dir():
            message = f"--rejects {self.rejects}: a folder; expected the file for rejected documents."
            raise FormatError(message, code="is-a-directory", value=self.rejects)
        unnamed = not out.name or out == STANDARD_OUTPUT
        return self.rejects or (Path("rejects.jsonl") if unnamed else out.with_name(f"{out.name}.rejects.jsonl"))


@dataclass(frozen=True, slots=True)
class PrintOptions:
    """Options of printed output."""

    explain: Annotated[
        bool, typer.Option("--explain", help="Explain ids and relations, and list what was dropped.")
    ] = False
    color: Color = None
    as_json: AsJson = False
    quiet: Quiet = False

    def require_rendered(self, rendered: bool) -> None:
        """UsageError for --explain, unless documents are printed for reading."""
        if self.explain and not rendered:
            message = "--explain cannot be combined with --out or --to."
            raise UsageError(message, code="conflicting-options", value="--explain")

    def shows_progress(self, out: Path) -> bool:
        """Whether to show progress; not between documents that are printed on a terminal."""
        return not self.quiet and not (out == STANDARD_OUTPUT and sys.stdout.isatty())


@dataclass(frozen=True, slots=True)
class TermOptions:
    """The user's dictionaries, and how they are used."""

    terms: Annotated[
        list[str] | None,
        typer.Option(
            "--terms",
            metavar="[TYPE=]FILE",
            help="Dictionary that takes precedence over Lexome's own: a table (CSV, TSV, Excel) of id, name and type, "
            "an OBO file, or an index from build-terms; repeatable.",
        ),
    ] = None
    only_terms: Annotated[bool, typer.Option("--only-terms", help="Link with the dictionaries of --terms only.")] = (
        False
    )
    find: Annotated[
        bool, typer.Option("--find", help="Also find the names of --terms in text, as mentions of their types.")
    ] = False
    case: Annotated[
        str,
        typer.Option(
            "--case",
            metavar="auto|match|ignore",
            help="With --find: match case. auto: only for short names in capitals.",
        ),
    ] = "auto"
    min_link_score: Annotated[
        float | None,
        typer.Option(
            "--min-link-score",
            metavar="SCORE",
            min=0,
            max=1,
            help="Minimum probability of a concept id; below it, a mention gets no id. Default: by type.",
        ),
    ] = None

    def typed(self, type: str | None) -> "TermOptions":
        """The same options, with this type for dictionaries that are given without one."""
        from lexome.concepts.user_terms import split_type

        if type is None:
            return self
        terms = [option if split_type(option)[0] is not None else f"{type}={option}" for option in self.terms or ()]
        return replace(self, terms=terms)

    def concepts(self, *, out: Path | None = None, link: bool = True, abbreviations: bool = False) -> "ConceptOptions":
        """The options of linking; UsageError if a dictionary is the output."""
        from lexome.concepts.user_terms import split_type
        from lexome.infer.concepts import ConceptOptions

        for _, path in map(split_type, self.terms or ()):
            if out is not None and out.exists() and path.exists() and path.samefile(out):
                message = f"{path} is both a dictionary and the output. Choose another path."
                raise UsageError(message, code="same-file", value=path)
        terms = tuple(self.terms or ())
        return ConceptOptions(link, terms, self.only_terms, self.find, self._rule(), abbreviations, self.min_link_score)

    def _rule(self) -> "CaseRule":
        from lexome.concepts.matcher import CASE_RULES

        rule = next((rule for rule in CASE_RULES if rule == self.case), None)
        if rule is None:
            message = f"--case {self.case!r}: expected one of {', '.join(CASE_RULES)}."
            raise UsageError(message, code="unknown-case-rule", value=self.case)
        return rule


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Where files are processed, and which part of them this command processes."""

    engine: Annotated[
        str, typer.Option("--engine", metavar="local|ray", help="Run in local processes or on a Ray cluster.")
    ] = "local"
    workers: Annotated[
        int | None,
        typer.Option("--workers", metavar="N", min=0, help="Files to process in parallel. Default: the usable cores."),
    ] = None
    address: Annotated[
        str | None,
        typer.Option(
            "--address", metavar="ADDRESS", help="Address of a running Ray cluster. Default: start a local one."
        ),
    ] = None
    part: Annotated[
        str | None, typer.Option("--part", metavar="K/N", help="Process every N-th file from the K-th, for job arrays.")
    ] = None

    def open(self) -> "Engine":
        """The engine."""
        from lexome.pipeline import Engine

        return Engine(self.engine, self.workers, self.address)  # type: ignore[arg-type]  # which Engine checks itself

    def own_part(self) -> "Part | None":
        """The part of the files, if --part is given."""
        from lexome.pipeline import Part

        return Part.parse(self.part) if self.part is not None else None


@dataclass(frozen=True, slots=True)
class BulkOptions(EngineOptions):
    """Options for annotation into a folder."""

    workers: Annotated[
        int | None,
        typer.Option(
            "--jobs", "--workers", metavar="N", min=0, help="Files to process in parallel, with a folder as --out."
        ),
    ] = None
    redo: Annotated[bool, typer.Option("--redo", help="Replace output written with other settings.")] = False
    verify: Annotated[bool, typer.Option("--verify", help="Hash finished files and redo those that have changed.")] = (
        False
    )


@app.callback(invoke_without_command=True)
def lexome(version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    """Biomedical language models from raw literature to answers."""
    if version:
        from lexome import __version__

        print(f"lexome {__version__}")
        raise typer.Exit


@contextmanager
def interruptible(out: Path, *, kept: str | None = None) -> Iterator[None]:
    """Reports on Ctrl-C whether finished work is kept in the output, and exits with 130."""
    try:
        yield
    except KeyboardInterrupt:
        unwritten = "" if out == STANDARD_OUTPUT else f"{out} was not written. "
        message = f"{unwritten}Run the same command again."
        if kept is not None:
            message = f"{kept} in {out} are kept. Run the same command to resume."
        print(f"interrupted: {message}", file=sys.stderr)
        raise typer.Exit(130) from None


def parse_options(pairs: Iterable[str] | None, *, example: str) -> dict[str, str]:
    """Options from KEY=VALUE pairs."""
    options = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not (key and equals):
            message = f"--set {pair!r}: expected KEY=VALUE, for example --set {example}."
            raise UsageError(message, code="invalid-override", value=pair)
        options[key] = value
    return options


def print_line(line: str, stream: TextIO | None = None) -> None:
    """Print a line of a summary: names in it may come from a file, with control characters."""
    print(printable(line), file=stream)


def print_error(message: object) -> None:
    """Print a message of one or more lines to standard error."""
    for line in str(message).split("\n"):
        print_line(line, sys.stderr)


def print_summary(
    print_text: Callable[[TextIO], None],
    counts: Mapping[str, Any],
    rejected: Mapping[str, int],
    rejects: Path | None,
    *,
    out: Path,
    as_json: bool,
    quiet: bool,
) -> None:
    """Print what was done: as text, or the counts as JSON; with --quiet, only the rejected documents.

    To standard error if documents go to standard output.
    """
    stream = sys.stderr if out == STANDARD_OUTPUT else sys.stdout
    if as_json:
        print(json.dumps(counts, ensure_ascii=False), file=stream)
    elif quiet:
        print_rejected(rejected, rejects, sys.stderr)
    else:
        print_text(stream)


def print_notes(notes: Mapping[str, int], stream: TextIO) -> None:
    """A line for each note, most frequent first; what was ignored and what was not written have one line each."""
    folded = Counter(notes)
    for ending in (" ignored", " not written"):
        alike = [
            (note.removesuffix(ending), times) for note, times in Counter(notes).most_common() if note.endswith(ending)
        ]
        if len(alike) > 1:
            names = [f"{times:,} {name}" for name, times in alike[:NAMED_NOTES]]
            more = [f"{len(alike) - NAMED_NOTES:,} more kinds"] if len(alike) > NAMED_NOTES else []
            for name, _ in alike:
                del folded[name + ending]
            folded[f"{ending.strip()}: {', '.join(names + more)}"] = sum(times for _, times in alike)
    for note, times in folded.most_common(NAMED_TYPES):
        print_line(f"noted      {times:,} {note}", stream)


def print_rejected(rejected: Mapping[str, int], path: Path | None, stream: TextIO) -> None:
    """A line for each reason for which documents were rejected, most frequent first."""
    for reason, times in sorted(rejected.items(), key=lambda item: -item[1]):
        print_line(f"rejected   {times:,} {reason}, see {path}", stream)


def exit_for_tally(tally: "Tally", *, documents: int) -> None:
    """Report files that could not be read to their end, and exit with 1 for them or if no document is left."""
    for failure in tally.failures:
        print_line(f"broken     {failure}", sys.stderr)
    exit_for_rejects(tally.rejected, tally.rejects_path, documents=documents)
    if tally.failures:
        raise typer.Exit(1)


def exit_for_rejects(rejected: Mapping[str, int], path: Path | None, *, documents: int) -> None:
    """FormatError if all documents were rejected and none is left; exit code 1 for broken files in archives."""
    from lexome.formats.tally import BROKEN_FILE

    if rejected and not documents:
        raise FormatError(f"every document was rejected. The reasons are in {path}.", code="all-rejected", value=path)
    if broken := rejected.get(BROKEN_FILE):
        print_error(f"error: {broken:,} broken files in archives; see {path}. All others are done.")
        raise typer.Exit(1)


def exit_for_failures(failures: Mapping[str, str], waiting: Sequence[str], out: Path, *, quiet: bool) -> None:
    """Report failed and waiting files, and exit with 1 for failures."""
    for name, reason in failures.items():
        print_line(f"failed     {name}: {reason}", sys.stderr)
    if failures:
        message = f"error: {len(failures):,} files failed; the others are done. Fix the errors above and rerun."
        print_error(message)
        raise typer.Exit(1)
    if waiting and not quiet:
        print_line(f"waiting    {len(waiting):,} files of other parts are not done in {out}, first {waiting[0]}")


def use_color(option: bool | None) -> bool:
    """Whether to color the output: as the option says, else in a terminal unless NO_COLOR is set."""
    if option is not None:
        return option
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_width() -> int:
    """The width to print at."""
    return min(shutil.get_terminal_size((100, 24)).columns, MAX_WIDTH)
