"""`lexome annotate`, `embed` and `fill`: exported models on texts, files and folders."""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from lexome.cli.app import (
    Address,
    AsJson,
    Counts,
    EngineName,
    FormatOptions,
    Lines,
    ModelsPath,
    PartName,
    Quiet,
    RejectsPath,
    Strict,
    app,
    default_rejects,
    engine_of,
    exit_for_failures,
    exit_for_rejects,
    exit_for_tally,
    interruptible,
    parse_options,
    part_of,
    print_rejected,
    use_color,
)
from lexome.errors import UsageError, needs

if TYPE_CHECKING:
    from lexome.concepts.matcher import CaseRule
    from lexome.infer.annotation import Annotation
    from lexome.infer.annotator import Annotator
    from lexome.infer.bulk import BulkResult
    from lexome.infer.concepts import ConceptOptions
    from lexome.infer.embed import EmbedResult
    from lexome.infer.sessions import Device

# Longer lines are hard to read.
MAX_WIDTH = 120
NAMED_TYPES = 20

# A folder is written in this format unless --to names another.
BULK_FORMAT = "jsonl"
NAMED_ORPHANS = 3
STANDARD_OUTPUT = Path("-")


@dataclass(frozen=True, slots=True)
class _Output:
    """Where documents go, in which format (None: rendered for reading), and whether to a folder of files."""

    path: Path
    format: str | None
    bulk: bool = False

    @property
    def printed(self) -> bool:
        """Whether documents go to standard output."""
        return self.path == STANDARD_OUTPUT


Texts = Annotated[
    list[str] | None,
    typer.Argument(metavar="INPUT", help="Text, files, folders, patterns or archives; - for standard input."),
]
Models = Annotated[
    list[Path] | None,
    typer.Option(
        "--model", metavar="NAME|FOLDER", help="Model name or exported folder; repeatable. Default: the bundled one."
    ),
]
Out = Annotated[
    str | None, typer.Option("--out", metavar="FILE|FOLDER", help="Output file or folder. Default: standard output.")
]
To = Annotated[
    str | None, typer.Option("--to", metavar="FORMAT", help="Output format. Default: plain text with marked mentions.")
]
From = Annotated[str | None, typer.Option("--from", metavar="FORMAT", help="Input format. Default: detected.")]
IsText = Annotated[bool, typer.Option("--text", help="Treat every INPUT as a text, also a single word.")]
Types = Annotated[
    list[str] | None, typer.Option("--types", metavar="TYPE,...", help="Predict only these mention types.")
]
MinScore = Annotated[
    list[str] | None,
    typer.Option(
        "--min-score",
        metavar="[TYPE=]SCORE",
        help="Drop mentions with a lower score, from 0 to 1. Default: the model's own; 0 keeps all.",
    ),
]
OverlapsOption = Annotated[
    str | None,
    typer.Option(
        "--overlaps",
        metavar="resolve|keep",
        help="Whether one place has one type or all. Default: resolve, for models with rules.",
    ),
]
NoRule = Annotated[
    list[str] | None,
    typer.Option("--no-rule", metavar="RULE,...", help="Switch off rules of the model, or all; repeatable."),
]
Explain = Annotated[
    bool, typer.Option("--explain", help="List dropped mentions with reasons, and why mentions have their ids.")
]
Color = Annotated[
    bool | None,
    typer.Option("--color/--no-color", help="Color the output. Default: in a terminal, unless NO_COLOR is set."),
]
Threads = Annotated[
    int | None, typer.Option("--threads", min=1, help="Number of threads per process. Default: use all cores.")
]
DeviceName = Annotated[
    str | None,
    typer.Option(
        "--device", metavar="cuda|cpu", help="Run NER models with torch on this device. Default: onnxruntime."
    ),
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", "--workers", min=0, help="Files to process in parallel, with a folder as --out.")
]
LinkOption = Annotated[bool, typer.Option("--link/--no-link", help="Give mentions the ids of their concepts.")]
Terms = Annotated[
    list[str] | None,
    typer.Option(
        "--terms",
        metavar="[TYPE=]FILE",
        help="Dictionary to link with before Lexome's own: a table of id, name and type, an OBO file, or an index of "
        "build-terms; repeatable.",
    ),
]
OnlyTerms = Annotated[bool, typer.Option("--only-terms", help="Link with the dictionaries of --terms only.")]
Find = Annotated[
    bool, typer.Option("--find", help="Also find the names of --terms in text, as mentions of their types.")
]
Case = Annotated[
    str,
    typer.Option(
        "--case",
        metavar="auto|match|ignore",
        help="With --find: whether names have to match in case; auto: short ones in capitals.",
    ),
]
Abbreviations = Annotated[
    bool, typer.Option("--abbreviations", help="Mark short forms and long forms where a text defines them.")
]
Redo = Annotated[bool, typer.Option("--redo", help="Replace output written with other settings.")]
Verify = Annotated[bool, typer.Option("--verify", help="Hash finished files and redo those that have changed.")]


@app.command()
def annotate(
    inputs: Texts = None,
    model: Models = None,
    models_path: ModelsPath = None,
    out: Out = None,
    to: To = None,
    from_: From = None,
    set_: FormatOptions = None,
    counts: Counts = False,
    text: IsText = False,
    lines: Lines = False,
    types: Types = None,
    min_score: MinScore = None,
    overlaps: OverlapsOption = None,
    no_rule: NoRule = None,
    link: LinkOption = True,
    terms: Terms = None,
    only_terms: OnlyTerms = False,
    find: Find = False,
    case: Case = "auto",
    abbreviations: Abbreviations = False,
    explain: Explain = False,
    color: Color = None,
    threads: Threads = None,
    device: DeviceName = None,
    jobs: Jobs = None,
    engine: EngineName = "local",
    address: Address = None,
    part: PartName = None,
    redo: Redo = False,
    verify: Verify = False,
    rejects: RejectsPath = None,
    strict: Strict = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Find genes, diseases and more in texts and documents.

    Documents may have any format that Lexome reads: PubMed XML, plain text, PDF, Word, Excel and others. An INPUT that
    contains a space and is not a path is a text. Without --out and --to, documents are printed with each mention as
    [BRCA1|Gene NCBIGene:672 0.98]: type, id and the score of the mention. --out mentions.csv or .xlsx writes a table.
    Mentions have the ids of their concepts where these are sure enough, unless --no-link is given. If --out is a
    folder, each file is annotated into a file there, several in parallel; an interrupted run resumes when run again.
    Without --model, the default model is used.
    """
    from lexome.formats.conversion import split_options
    from lexome.infer.annotation import Annotation, parse_inputs
    from lexome.infer.annotator import default_model, load
    from lexome.infer.concepts import ConceptOptions
    from lexome.infer.named_models import resolve_model
    from lexome.infer.selection import parse_min_score, parse_overlaps, parse_rules, parse_types

    output = _output(out, to)
    if counts and output.format is None and not output.bulk:
        raise UsageError("--counts needs --to csv, tsv or xlsx, or such a file as --out.", code="conflicting-options")
    written_as = output.format or (BULK_FORMAT if output.bulk else None)
    options = split_options(parse_options(set_, example="encoding=latin-1", counts=counts), from_, written_as)
    parsed = parse_inputs(_arguments(inputs), text=text and bool(inputs))
    rejects_path = None if strict else rejects or default_rejects(output.path)
    if explain and not (output.printed and output.format is None):
        message = "--explain cannot be combined with --out or --to."
        raise UsageError(message, code="conflicting-options", value="--explain")
    if not output.bulk and (redo or verify or part is not None or engine != "local" or jobs is not None):
        message = "--jobs, --engine, --part, --redo and --verify need a folder as --out."
        raise UsageError(message, code="conflicting-options", value="--out")
    resolution = parse_overlaps(overlaps)
    folders = tuple(resolve_model(name, search_path=models_path) for name in model or [default_model()])
    concepts = ConceptOptions(link, tuple(terms or ()), only_terms, find, case_rule(case), abbreviations)
    kept = "finished files" if output.bulk else None
    with interruptible(None if output.printed else output.path, kept=kept), ignore_closed_pipe():
        # In bulk each process opens the models; here only their types are needed.
        if device is None or output.bulk:
            annotator = load(*folders, threads=1 if output.bulk else threads, concepts=concepts)
        else:
            annotator = _load_on_device(folders, device, concepts)
        selected = parse_types(types or [], (*annotator.types, *annotator.extra_types))
        scored = (*annotator.types, *annotator.relation_types, *annotator.extra_types)
        min_scores = parse_min_score(min_score or [], scored)
        without_rules = tuple(sorted(parse_rules(no_rule or [])))
        annotator.select(types=selected, min_score=min_scores)  # raises for unknown types
        if output.bulk:
            from lexome.infer.bulk import BulkSettings, annotate_files

            if parsed.texts or STANDARD_OUTPUT in parsed.paths:
                message = "a text or standard input cannot be annotated into a folder. Name a file with --out."
                raise UsageError(message, code="conflicting-options", value="--out")
            del annotator
            settings = BulkSettings(
                folders,
                output.format or BULK_FORMAT,
                selected,
                min_scores,
                from_,
                lines,
                strict,
                threads,
                *options,
                overlaps=resolution,
                without_rules=without_rules,
                concepts=concepts,
            )
            with _served(folders, device, engine) as remote:
                result = annotate_files(
                    parsed.paths,
                    output.path,
                    replace(settings, device=remote),
                    engine=engine_of(engine, jobs, address),
                    part=part_of(part),
                    rejects=rejects_path,
                    redo=redo,
                    verify=verify,
                    progress_shown=not quiet,
                )
            _finish_bulk(result, output.path, as_json=as_json, quiet=quiet)
            return
        work = Annotation(
            annotator,
            parsed,
            types=selected,
            min_score=min_scores,
            overlaps=resolution,
            without_rules=without_rules,
            from_=from_,
            lines=lines,
            read_options=options[0],
            rejects=rejects_path,
            progress_shown=not quiet and not (output.printed and sys.stdout.isatty()),
        )
        if output.format is None:
            _print_documents(work, explain=explain, color=use_color(color), as_json=as_json)
        else:
            work.write(output.path, output.format, **options[1])
    _print_summary(work, output, as_json=as_json and output.format is not None, quiet=quiet)
    exit_for_tally(work.tally, documents=work.counts.documents)


@contextmanager
def _served(folders: tuple[Path, ...], device: str | None, engine: str) -> Iterator["Device | None"]:
    """The process that runs the models on a device for all workers; None without one."""
    if device is None:
        yield None
        return
    if engine != "local":
        message = f"--device cannot be combined with --engine {engine}: workers on other machines cannot reach it."
        raise UsageError(message, code="conflicting-options", value="--device")
    with needs("train", purpose="--device"):
        from lexome.export.device import serve_models
    with serve_models(folders, device) as server:
        yield server.device


def _load_on_device(folders: tuple[Path, ...], device: str, concepts: "ConceptOptions") -> "Annotator":
    with needs("train", purpose="--device"):
        from lexome.export.device import load_on_device
    return load_on_device(folders, device, concepts=concepts)


def _output(out: str | None, to: str | None) -> _Output:
    """Path and format of --out and --to; a path without a suffix, or with a slash at its end, is a folder."""
    if out is None and to is None:
        return _Output(STANDARD_OUTPUT, None)
    from lexome.formats import writing_format
    from lexome.formats.registry import get_format

    if out is not None and not out.strip():
        message = "--out is empty; expected a file, a folder, or - for standard output."
        raise UsageError(message, code="empty-option", value="--out")
    if to is not None:
        get_format(to).write_function()  # raises for a format that is only read
    in_one_folder = to is not None and get_format(to).folder
    path = Path(out) if out is not None else STANDARD_OUTPUT
    if path == STANDARD_OUTPUT:
        if in_one_folder:
            raise UsageError(f"--to {to} is written as a folder. Name one with --out.", code="needs-folder", value=to)
        return _Output(path, to)
    ends_as_folder = str(out).endswith(("/", os.sep)) or not path.suffix
    if not in_one_folder and (path.is_dir() or (not path.exists() and ends_as_folder)):
        return _Output(path, to, bulk=True)
    return _Output(path, to or writing_format(path, None).name)


def _arguments(inputs: list[str] | None) -> list[str]:
    if inputs:
        return inputs
    # Standard input is None in a process that has none.
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError(
            'no input. Give a text, as in lexome annotate "BRCA1 binds RAD51.", or files, folders, or - for standard '
            "input.",
            code="no-input",
        )
    return ["-"]


def case_rule(name: str) -> "CaseRule":
    """The rule of --case; UsageError for an unknown one."""
    from lexome.concepts.matcher import CASE_RULES

    rule = next((rule for rule in CASE_RULES if rule == name), None)
    if rule is None:
        message = f"--case {name!r}: expected one of {', '.join(CASE_RULES)}."
        raise UsageError(message, code="unknown-case-rule", value=name)
    return rule


@contextmanager
def ignore_closed_pipe() -> Iterator[None]:
    """A reader that closes the pipe, such as head, is not an error to report."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Python would report it once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None


def _print_documents(work: "Annotation", *, explain: bool, color: bool, as_json: bool) -> None:
    """Each document as it is annotated, rendered or as a line of JSON."""
    from lexome.infer.annotator import TEXT_ID
    from lexome.infer.concepts import explanation_record
    from lexome.infer.refinement import made_by_rule
    from lexome.infer.terminal import explain_ids, printable, render

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    width = min(shutil.get_terminal_size((100, 24)).columns, MAX_WIDTH)
    for number, doc in enumerate(work.documents()):
        dropped = work.explain(doc) if explain else []
        linked = list(work.annotator.explain_concepts(doc).values()) if explain else []
        if as_json:
            reasons = {"dropped": [asdict(one) for one in dropped], "linked": list(map(explanation_record, linked))}
            line = doc.to_dict() | (reasons if explain else {})
            print(json.dumps(line, ensure_ascii=False), flush=True)
            continue
        print(("\n" if number else "") + render(doc, width=width, color=color, show_id=doc.id != TEXT_ID))
        if explain:
            for span, rule in made_by_rule(doc):
                print(f"  by rule {span.start}-{span.end} {printable(span.text)!r} {span.type}: {rule}")
        for one in dropped:
            place = f"{one.start}-{one.end} {printable(one.text)!r}"
            print(f"  dropped {place} {one.type} {one.score:.2f}: {printable(one.why)}")
        for explanation in linked:
            print("\n".join(f"  {line}" for line in explain_ids(explanation)))
        sys.stdout.flush()


def _print_summary(work: "Annotation", output: _Output, *, as_json: bool, quiet: bool) -> None:
    """Counts and throughput; on standard error where standard output has the documents."""
    stream = sys.stderr if output.printed else sys.stdout
    if as_json:
        print(json.dumps({**work.as_dict(), "out": str(output.path)}, ensure_ascii=False), file=stream)
    elif quiet:
        print_rejected(work.tally.rejected, work.tally.rejects_path, sys.stderr)
    else:
        print(f"annotated  {work.counts.documents:,} documents, {work.counts.tokens:,} tokens", file=stream)
        _print_counts(work.as_dict(), work.tally.rejects_path, stream)
        if not output.printed:
            print(f"wrote      {work.tally.written:,} documents to {output.path}", file=stream)


def _finish_bulk(result: "BulkResult", out: Path, *, as_json: bool, quiet: bool) -> None:
    """Counts and throughput of many files, and the exit code."""
    if as_json:
        print(json.dumps({**result.as_dict(), "out": str(out)}, ensure_ascii=False))
    elif quiet:
        print_rejected(result.rejected, result.rejects, sys.stderr)
    else:
        counts, skipped = result.counts, result.files - result.new_files
        print(f"annotated  {counts.documents:,} documents of {result.files:,} files, {counts.tokens:,} tokens")
        if skipped:
            print(f"skipped    {skipped:,} files that were done before")
        if result.orphans:
            named = ", ".join(result.orphans[:NAMED_ORPHANS]) + (", ..." if len(result.orphans) > NAMED_ORPHANS else "")
            print(f"left       {len(result.orphans):,} outputs of inputs that are no longer given: {named}")
        _print_counts(result.as_dict(), result.rejects, sys.stdout)
        print(f"wrote      {out}")
    exit_for_failures(result.failures, result.waiting, out, quiet=quiet)
    exit_for_rejects(result.rejected, result.rejects, documents=result.counts.documents)


def _print_counts(counts: dict[str, Any], rejects: Path | None, stream: TextIO) -> None:
    kinds = ("mentions", "linked", "relations", "labels", "notes")
    for label, kind in zip(("found", "linked", "related", "labelled", "noted"), kinds, strict=True):
        for name, times in list(counts[kind].items())[:NAMED_TYPES]:
            print(f"{label:<10} {times:,} {name}", file=stream)
    print_rejected(counts["rejected"], rejects, stream)
    if counts["seconds"]:
        rates = f"{counts['documents_per_second']:,.1f} documents/s, {counts['tokens_per_second']:,.0f} tokens/s"
        print(f"took       {counts['seconds']:,.1f} s: {rates}", file=stream)


ModelFolder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder written by `lexome export`.")]
EmbedThreads = Annotated[
    int | None, typer.Option("--threads", min=1, help="Number of threads. Default: the usable cores.")
]


@app.command()
def fill(
    folder: ModelFolder,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Text with [MASK] for each word to predict.")],
    top: Annotated[int, typer.Option("--top", min=1, help="Number of words per mask.")] = 5,
    threads: EmbedThreads = None,
    as_json: AsJson = False,
) -> None:
    """Fill in each [MASK] of a text.

    Prints the most probable words of a masked language model, with their probabilities.
    """
    from lexome.infer.fill import fill as run
    from lexome.infer.predictor import Predictor

    masks = run(Predictor.open(folder, threads=threads), text, top=top)
    if as_json:
        print(json.dumps([[asdict(word) for word in words] for words in masks], ensure_ascii=False))
        return
    for number, words in enumerate(masks, 1):
        if len(masks) > 1:
            print(f"mask {number}")
        for word in words:
            print(f"{word.probability:.4f}  {word.word}")


@app.command()
def embed(
    folder: ModelFolder,
    inputs: Annotated[
        list[Path], typer.Argument(metavar="INPUT...", help="Files, folders or archives; - for standard input.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Output file: .npy or .parquet.")],
    unit: Annotated[str, typer.Option(metavar="document|passage|sentence", help="Unit of text to embed.")] = "document",
    pooling: Annotated[str, typer.Option(metavar="mean|cls", help="Mean of all tokens, or the first token.")] = "mean",
    batch: Annotated[int, typer.Option(min=1, help="Batch size. On a CPU, 1 is fastest.")] = 1,
    normalise: Annotated[bool, typer.Option("--normalise", help="Scale vectors to unit length.")] = False,
    lines: Lines = False,
    rejects: RejectsPath = None,
    strict: Strict = False,
    threads: EmbedThreads = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Embed each document, passage or sentence as a vector.

    Files may have any format. A text too long for the model is split into windows whose vectors are averaged, weighted
    by tokens; nothing is truncated. Ids are in a column of the Parquet file, or beside the .npy in .ids.jsonl, in the
    order of the rows.
    """
    from lexome.infer.embed import embed as run
    from lexome.infer.predictor import Predictor

    rejects_path = None if strict else rejects or default_rejects(out)
    predictor = Predictor.open(folder, threads=threads)
    with interruptible(out):
        result = run(
            predictor,
            inputs,
            out,
            unit=unit,
            pooling=pooling,
            batch=batch,
            normalise=normalise,
            lines=lines,
            rejects=rejects_path,
            progress_shown=not quiet,
        )
    if as_json or not quiet:
        _print_vectors(result, out, width=predictor.settings.width, as_json=as_json)
    else:
        print_rejected(result.tally.rejected, result.tally.rejects_path, sys.stderr)
    exit_for_tally(result.tally, documents=result.tally.documents)


def _print_vectors(result: "EmbedResult", out: Path, *, width: int, as_json: bool) -> None:
    """Counts of documents and vectors."""
    tally = result.tally
    if as_json:
        counts = {name: getattr(result, name) for name in ("vectors", "windows", "tokens", "without_tokens")}
        print(json.dumps({**tally.summary(), **counts, "out": str(out)}, ensure_ascii=False))
        return
    print(f"read       {tally.documents:,} documents, {result.tokens:,} tokens in {result.windows:,} windows")
    print_rejected(tally.rejected, tally.rejects_path, sys.stdout)
    for note, count in tally.notes.most_common():
        print(f"noted      {count:,} {note}")
    if result.without_tokens:
        print(f"noted      {result.without_tokens:,} without tokens, which have no vector")
    print(f"wrote      {result.vectors:,} vectors of width {width:,} to {out}")
