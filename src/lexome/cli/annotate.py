"""`lexome annotate`, `link`, `embed` and `fill`: models and dictionaries on texts, files and folders."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from lexome.cli.options import (
    NAMED_TYPES,
    STANDARD_OUTPUT,
    TABLES,
    Abbreviations,
    AsJson,
    BulkOptions,
    FormatOptions,
    Lines,
    Link,
    ModelOptions,
    Pooling,
    PrintOptions,
    Quiet,
    RejectOptions,
    TermOptions,
    Threads,
    app,
    exit_for_failures,
    exit_for_rejects,
    exit_for_tally,
    grouped,
    interruptible,
    nonempty_path,
    print_line,
    print_notes,
    print_rejected,
    print_summary,
    terminal_width,
    use_color,
)
from lexome.document import printable
from lexome.errors import UsageError, needs

if TYPE_CHECKING:
    from lexome.infer.annotation import Annotation, Inputs, Linking
    from lexome.infer.annotator import Annotator
    from lexome.infer.bulk import BulkResult, BulkSettings
    from lexome.infer.concepts import ConceptOptions
    from lexome.infer.selection import SelectionRequest
    from lexome.infer.sessions import Device

# A folder is written in this format unless --to names another.
BULK_FORMAT = "jsonl"
NAMED_ORPHANS = 3


@dataclass(frozen=True, slots=True)
class _Output:
    """The output path, its format (None: rendered for reading), and whether it is a folder of files."""

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
Out = Annotated[
    str | None, typer.Option("--out", metavar="FILE|FOLDER", help="Output file or folder. Default: standard output.")
]
To = Annotated[
    str | None, typer.Option("--to", metavar="FORMAT", help="Output format. Default: plain text with marked mentions.")
]
IsText = Annotated[bool, typer.Option("--text", help="Treat every INPUT as a text, even a single word.")]


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """What the models run on."""

    threads: Annotated[
        int | None,
        typer.Option("--threads", metavar="N", min=1, help="Number of threads per process. Default: use all cores."),
    ] = None
    device: Annotated[
        str | None,
        typer.Option(
            "--device", metavar="cuda|cpu", help="Run NER models with torch on this device. Default: onnxruntime."
        ),
    ] = None

    def load(self, folders: tuple[Path, ...], concepts: "ConceptOptions", *, bulk: bool) -> "Annotator":
        """The annotator; in bulk only its types are used, since each worker process opens the models itself."""
        if self.device is None or bulk:
            from lexome.infer.annotator import load

            return load(*folders, threads=1 if bulk else self.threads, concepts=concepts)
        with needs("train", purpose="--device"):
            from lexome.export.device import load_on_device
        return load_on_device(folders, self.device, concepts=concepts)


@dataclass(frozen=True, slots=True)
class SelectionOptions:
    """Filters predictions by type, score and rule."""

    types: Annotated[
        list[str] | None,
        typer.Option("--types", metavar="TYPE,...", help="Predict only these mention types, such as Gene,Disease."),
    ] = None
    min_score: Annotated[
        list[str] | None,
        typer.Option(
            "--min-score",
            metavar="[TYPE=]SCORE",
            help="Drop mentions with a lower score, from 0 to 1. Default: the model's own; 0 keeps all.",
        ),
    ] = None
    overlaps: Annotated[
        str | None,
        typer.Option(
            "--overlaps",
            metavar="resolve|keep",
            help="Resolve overlapping mentions to the best one, or keep all. Default: resolve, for models with rules.",
        ),
    ] = None
    no_rule: Annotated[
        list[str] | None,
        typer.Option("--no-rule", metavar="RULE,...", help="Disable these rules, or all; repeatable."),
    ] = None
    relation_types: Annotated[
        list[str] | None,
        typer.Option("--relation-types", metavar="TYPE,...", help="Predict only relations of these types."),
    ] = None
    min_relation_score: Annotated[
        float | None,
        typer.Option(
            metavar="SCORE", min=0, max=1, help="Drop relations with a lower score. Default: that of --min-score."
        ),
    ] = None

    def parse(self, annotator: "Annotator", *, relations: bool = False) -> "SelectionRequest":
        """The request for the models; UsageError for types and rules that they lack.

        With `relations`, types among which no pair can be related are an error too.
        """
        from lexome.infer.selection import (
            SelectionRequest,
            parse_min_score,
            parse_overlaps,
            parse_rules,
            parse_types,
        )

        types = parse_types(self.types or [], (*annotator.types, *annotator.extra_types))
        scored = (*annotator.types, *annotator.relation_types, *annotator.extra_types)
        related = (annotator.relation_types, self.min_relation_score)
        min_score = parse_min_score(self.min_score or [], scored, relations=related)
        relation_types = parse_types(self.relation_types or [], annotator.relation_types, name="--relation-types")
        rules = tuple(sorted(parse_rules(self.no_rule or [])))
        request = SelectionRequest(types, min_score, parse_overlaps(self.overlaps), rules, relation_types)
        annotator.resolve(request)  # raises for unknown types
        if relations:
            annotator.require_pairs(types)
        return request


@app.command()
@grouped
def annotate(
    inputs: Texts = None,
    *,
    models: ModelOptions,
    runtime: RuntimeOptions,
    out: Out = None,
    to: To = None,
    formats: FormatOptions,
    text: IsText = False,
    lines: Lines = False,
    selection: SelectionOptions,
    link: Link = True,
    dictionaries: TermOptions,
    abbreviations: Abbreviations = False,
    bulk: BulkOptions,
    rejection: RejectOptions,
    printing: PrintOptions,
) -> None:
    """Find genes, diseases and more in texts and documents.

    INPUT is a text, or files in any format that Lexome reads: PubMed XML, plain text, PDF, Word, Excel and others. An
    argument that contains a space and is not a path is taken as a text. The default model finds genes, diseases,
    chemicals, species, cell lines and variants (named-entity recognition).

    Without --out and --to, documents are printed with each mention in brackets, [BRCA1|Gene NCBIGene:672 0.98]: its
    type, the id of its concept and its score. A mention has no id if none is probable enough. --relations adds
    relations, such as which chemical inhibits which gene.

    --out mentions.csv or .xlsx writes a table. If --out is a folder, each input file gets an output file there, several
    in parallel; an interrupted run resumes when run again.
    """
    from lexome.infer.annotation import Annotation, InputFiles, parse_inputs

    output = _output(out, to)
    printing.require_rendered(output.printed and output.format is None)
    _require_folder(output, bulk)
    written_as = output.format or (BULK_FORMAT if output.bulk else None)
    read_options, write_options = formats.split(written_as)
    parsed = parse_inputs(_arguments(inputs), text=text and bool(inputs), lines=lines)
    if read_options and not parsed.paths:
        message = f"--set {next(iter(read_options))}: there is no file to read, only text, which has no options."
        raise UsageError(message, code="conflicting-options", value="--set")
    folders = models.folders()
    concepts = dictionaries.concepts(out=output.path, link=link, abbreviations=abbreviations)
    rejects = rejection.path(output.path)
    kept = "finished files" if output.bulk else None
    with interruptible(output.path, kept=kept):
        annotator = runtime.load(folders, concepts, bulk=output.bulk)
        if written_as in TABLES:
            write_options = _table_options(annotator, relations=models.relations) | write_options
        request = selection.parse(annotator, relations=models.relations)
        if output.bulk:
            from lexome.infer.bulk import BulkSettings

            del annotator
            settings = BulkSettings(
                folders,
                written_as or BULK_FORMAT,
                request=request,
                from_=formats.from_,
                lines=lines,
                strict=rejection.strict,
                threads=runtime.threads,
                read_options=read_options,
                write_options=write_options,
                concepts=concepts,
            )
            with _serve_on_device(folders, runtime.device, bulk.engine) as remote:
                settings = replace(settings, device=remote)
                result = _annotate_files(parsed, output.path, settings, bulk, rejects=rejects, quiet=printing.quiet)
            _finish_bulk(result, output.path, as_json=printing.as_json, quiet=printing.quiet)
            return
        files = InputFiles(
            parsed.paths,
            from_=formats.from_,
            read_options=read_options,
            rejects=rejects,
            progress_shown=printing.shows_progress(output.path),
        )
        work = Annotation(annotator, files, texts=parsed.text_documents(), request=request, lines=lines)
        if output.format is None:
            _print_documents(work, printing)
        else:
            work.write(output.path, output.format, **write_options)
    _print_annotation_counts(work, output, as_json=printing.as_json and output.format is not None, quiet=printing.quiet)
    exit_for_tally(work.tally, documents=work.counts.documents)


def _annotate_files(
    inputs: "Inputs",
    folder: Path,
    settings: "BulkSettings",
    bulk: BulkOptions,
    *,
    rejects: Path | None,
    quiet: bool,
) -> "BulkResult":
    """Annotate files into a folder."""
    from lexome.infer.bulk import annotate_files

    if inputs.texts or STANDARD_OUTPUT in inputs.paths:
        message = "a text or standard input cannot be annotated into a folder. Name a file with --out."
        raise UsageError(message, code="conflicting-options", value="--out")
    return annotate_files(
        inputs.paths,
        folder,
        settings,
        engine=bulk.open(),
        part=bulk.own_part(),
        rejects=rejects,
        redo=bulk.redo,
        verify=bulk.verify,
        progress_shown=not quiet,
    )


def _table_options(annotator: "Annotator", *, relations: bool) -> dict[str, Any]:
    """The default table: relations with --relations, labels if the models predict nothing else, otherwise mentions."""
    if relations:
        return {"table": "relations"}
    labels = all(model.kind in ("classes", "inference", "similarity") for model in annotator.models)
    return {"table": "labels"} if labels else {}


def _require_folder(output: _Output, bulk: BulkOptions) -> None:
    """UsageError for options that need a folder as the output."""
    if not output.bulk and bulk != BulkOptions():
        message = "--jobs, --engine, --address, --part, --redo and --verify need a folder as --out."
        raise UsageError(message, code="conflicting-options", value="--out")


@contextmanager
def _serve_on_device(folders: tuple[Path, ...], device: str | None, engine: str) -> Iterator["Device | None"]:
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


def _output(out: str | None, to: str | None) -> _Output:
    """Path and format of --out and --to; a path without a suffix, or with a slash at its end, is a folder."""
    if out is None and to is None:
        return _Output(STANDARD_OUTPUT, None)
    from lexome.formats import get_format, writing_format

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


def _print_documents(work: "Annotation | Linking", printing: PrintOptions) -> None:
    """Print each document when it is done, rendered or as a line of JSON.

    --explain adds why mentions have their ids, and for annotation what was dropped and why entities are related.
    """
    from lexome.infer.annotation import Annotation
    from lexome.infer.annotator import TEXT_ID
    from lexome.infer.concepts import explanation_record
    from lexome.infer.selection import made_by_rule
    from lexome.infer.terminal import explain_ids, explain_relation, render

    width, color, concepts = terminal_width(), use_color(printing.color), work.concepts
    annotation = work if printing.explain and isinstance(work, Annotation) else None
    for number, doc in enumerate(work.documents()):
        candidates = annotation.explain(doc) if annotation is not None else []
        related = annotation.explain_relations(doc) if annotation is not None else []
        linked = list(concepts.explain(doc).values()) if printing.explain and concepts is not None else []
        if printing.as_json:
            line = doc.to_dict()
            if annotation is not None:
                line["dropped"] = [asdict(one) for one in candidates]
                line["related"] = [one.as_dict() for one in related]
            if printing.explain:
                line["linked"] = list(map(explanation_record, linked))
            print(json.dumps(line, ensure_ascii=False), flush=True)
            continue
        print(("\n" if number else "") + render(doc, width=width, color=color, show_id=doc.id != TEXT_ID))
        if annotation is not None:
            for span, rule in made_by_rule(doc):
                print_line(f"  by rule {span.start}-{span.end} {printable(span.text)!r} {span.type}: {rule}")
        for candidate in candidates:
            place = f"{candidate.start}-{candidate.end} {printable(candidate.text)!r}"
            print_line(f"  dropped {place} {candidate.type} {candidate.score:.2f}: {candidate.why}")
        for explanation in linked:
            print("\n".join(f"  {line}" for line in explain_ids(explanation)))
        for one in related:
            print("\n".join(f"  {line}" for line in explain_relation(one)))
        sys.stdout.flush()


def _print_annotation_counts(work: "Annotation", output: _Output, *, as_json: bool, quiet: bool) -> None:
    """Print counts and throughput."""
    counts, rejects = work.as_dict(), work.tally.rejects_path

    def print_text(stream: TextIO) -> None:
        print(f"annotated  {work.counts.documents:,} documents, {work.counts.tokens:,} tokens", file=stream)
        _print_counts(counts, rejects, stream)
        if not output.printed:
            print_line(f"wrote      {work.tally.written:,} documents to {output.path}", stream)

    as_dict = {**counts, "out": str(output.path)}
    print_summary(print_text, as_dict, work.tally.rejected, rejects, out=output.path, as_json=as_json, quiet=quiet)


def _finish_bulk(result: "BulkResult", out: Path, *, as_json: bool, quiet: bool) -> None:
    """Print counts and throughput of many files, and exit with 1 for failures."""

    def print_text(stream: TextIO) -> None:
        counts, skipped = result.counts, result.files - result.new_files
        if skipped and not result.new_files and not result.failures and not result.waiting:
            print(
                f"complete   all {skipped:,} outputs are complete already: nothing was done (--verify hashes them)",
                file=stream,
            )
        print(
            f"annotated  {counts.documents:,} documents of {result.files:,} files, {counts.tokens:,} tokens",
            file=stream,
        )
        if 0 < skipped < result.files:
            print(f"skipped    {skipped:,} files that were done before", file=stream)
        if result.orphans:
            named = ", ".join(result.orphans[:NAMED_ORPHANS]) + (", ..." if len(result.orphans) > NAMED_ORPHANS else "")
            print_line(
                f"left       {len(result.orphans):,} outputs of inputs that are no longer given: {named}", stream
            )
        _print_counts(result.as_dict(), result.rejects, stream)
        print_line(f"wrote      {out}", stream)

    as_dict = {**result.as_dict(), "out": str(out)}
    print_summary(print_text, as_dict, result.rejected, result.rejects, out=out, as_json=as_json, quiet=quiet)
    exit_for_failures(result.failures, result.waiting, out, quiet=quiet)
    exit_for_rejects(result.rejected, result.rejects, documents=result.counts.documents)


def _print_counts(counts: dict[str, Any], rejects: Path | None, stream: TextIO) -> None:
    kinds = ("mentions", "linked", "relations", "labels")
    for label, kind in zip(("found", "linked", "related", "labeled"), kinds, strict=True):
        for name, times in list(counts[kind].items())[:NAMED_TYPES]:
            print_line(f"{label:<10} {times:,} {name}", stream)
    print_notes(counts["notes"], stream)
    print_rejected(counts["rejected"], rejects, stream)
    if counts["documents_per_second"]:
        rates = f"{counts['documents_per_second']:,.1f} documents/s, {counts['tokens_per_second']:,.0f} tokens/s"
        print(f"took       {counts['seconds']:,.1f} s: {rates}", file=stream)


LinkedFiles = Annotated[
    list[Path],
    typer.Argument(
        parser=nonempty_path, metavar="DOCS", help="Files, folders or archives with mentions; - for standard input."
    ),
]
LinkOut = Annotated[
    Path, typer.Option("--out", metavar="FILE", show_default=False, help="Output file. Default: standard output.")
]
LinkTo = Annotated[
    str | None,
    typer.Option("--to", metavar="FORMAT", help="Output format. Default: by extension, or text with marked mentions."),
]
LinkedTypes = Annotated[
    list[str] | None, typer.Option("--types", metavar="TYPE,...", help="Link only mentions of these types.")
]
NamesType = Annotated[
    str | None,
    typer.Option(
        "--type", metavar="TYPE", help="Type of the names in a list, or in a table or dictionary without types."
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite/--keep", help="Replace existing ids, or keep them.")]


@app.command()
@grouped
def link(
    inputs: LinkedFiles,
    *,
    out: LinkOut = STANDARD_OUTPUT,
    to: LinkTo = None,
    formats: FormatOptions,
    dictionaries: TermOptions,
    abbreviations: Abbreviations = False,
    type_: NamesType = None,
    types: LinkedTypes = None,
    overwrite: Overwrite = False,
    rejection: RejectOptions,
    printing: PrintOptions,
) -> None:
    """Link the mentions of documents to concept ids.

    Entity linking (normalization) for documents that already have mentions, from curators or another tool. No model
    runs; to find mentions in plain text, use `lexome annotate`. In a table (.csv, .tsv, .xlsx), each row is a mention,
    with a column called name, term or text and a column called type. --type is the type of names without one; with it,
    each line of a plain text file is a name. A mention whose best candidate is too improbable gets no id. Existing ids
    are kept unless --overwrite finds different ones.
    """
    from lexome.formats import writing_format
    from lexome.infer.annotation import InputFiles, Linking
    from lexome.infer.concepts import Concepts
    from lexome.infer.selection import parse_types

    rendered = to is None and out == STANDARD_OUTPUT
    printing.require_rendered(rendered)
    format = None if rendered else writing_format(out, to).name
    read_options, write_options = formats.split(format)
    concepts = Concepts(dictionaries.typed(type_).concepts(out=out, abbreviations=abbreviations))
    files = InputFiles(
        inputs,
        from_=formats.from_,
        read_options=read_options,
        rejects=rejection.path(out),
        progress_shown=printing.shows_progress(out),
    )
    work = Linking(concepts, files, types=parse_types(types or []), overwrite=overwrite, names_type=type_)
    with interruptible(out):
        if rendered:
            _print_documents(work, printing)
        else:
            work.write(out, format, **write_options)
    _print_link_counts(work, out, as_json=printing.as_json and not rendered, quiet=printing.quiet)
    exit_for_tally(work.tally, documents=work.counts.documents)


def _print_link_counts(work: "Linking", out: Path, *, as_json: bool, quiet: bool) -> None:
    """Print counts by type."""
    tally, counts = work.tally, work.counts

    def print_text(stream: TextIO) -> None:
        print(f"read       {counts.documents:,} documents", file=stream)
        for label, counter in (
            ("found", counts.found),
            ("linked", counts.linked),
            ("abstained", counts.abstained),
            ("kept", counts.kept),
            ("no terms", counts.no_dictionary),
        ):
            for name, times in counter.most_common(NAMED_TYPES):
                print_line(f"{label:<10} {times:,} {name}", stream)
        print_notes(tally.notes, stream)
        if counts.documents and not tally.spans and work.concepts.finder is None:
            print(
                "nothing to link: no document has mentions. `lexome annotate` finds and links them; for a list of "
                "names, one per line, add their type, as in --type Gene.",
                file=stream,
            )
        print_rejected(tally.rejected, tally.rejects_path, stream)
        if out != STANDARD_OUTPUT:
            print_line(f"wrote      {tally.written:,} documents to {out}", stream)

    as_dict = {**work.as_dict(), "out": str(out)}
    print_summary(print_text, as_dict, tally.rejected, tally.rejects_path, out=out, as_json=as_json, quiet=quiet)


ModelFolder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder written by `lexome export`.")]


@app.command()
def fill(
    folder: ModelFolder,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Text with [MASK] for each word to predict.")],
    top: Annotated[int, typer.Option("--top", metavar="N", min=1, help="Number of words per mask.")] = 5,
    threads: Threads = None,
    as_json: AsJson = False,
) -> None:
    """Fill in each [MASK] of a text.

    Prints the most probable words of a masked language model, with their probabilities.
    """
    from lexome.infer.embed import fill as run
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
@grouped
def embed(
    folder: ModelFolder,
    inputs: Annotated[
        list[Path],
        typer.Argument(parser=nonempty_path, metavar="INPUT", help="Files, folders or archives; - for standard input."),
    ],
    *,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="Output file: .npy or .parquet.")],
    unit: Annotated[str, typer.Option(metavar="document|passage|sentence", help="Unit of text to embed.")] = "document",
    pooling: Pooling = "mean",
    batch: Annotated[int, typer.Option(metavar="N", min=1, help="Batch size. On a CPU, 1 is fastest.")] = 1,
    normalize: Annotated[bool, typer.Option("--normalize", help="Scale vectors to unit length.")] = False,
    lines: Lines = False,
    rejection: RejectOptions,
    threads: Threads = None,
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

    predictor = Predictor.open(folder, threads=threads)
    with interruptible(out):
        result = run(
            predictor,
            inputs,
            out,
            unit=unit,
            pooling=pooling,
            batch=batch,
            normalize=normalize,
            lines=lines,
            rejects=rejection.path(out),
            progress_shown=not quiet,
        )
    tally = result.tally

    def print_text(stream: TextIO) -> None:
        read = f"{tally.documents:,} documents, {result.tokens:,} tokens in {result.windows:,} windows"
        print(f"read       {read}", file=stream)
        print_rejected(tally.rejected, tally.rejects_path, stream)
        print_notes(tally.notes, stream)
        if result.without_tokens:
            print(f"noted      {result.without_tokens:,} without tokens, which have no vector", file=stream)
        wrote = f"{result.vectors:,} vectors of width {predictor.settings.width:,} to {out}"
        print_line(f"wrote      {wrote}", stream)

    vectors = {name: getattr(result, name) for name in ("vectors", "windows", "tokens", "without_tokens")}
    as_dict = {**tally.summary(), **vectors, "out": str(out)}
    print_summary(print_text, as_dict, tally.rejected, tally.rejects_path, out=out, as_json=as_json, quiet=quiet)
    exit_for_tally(tally, documents=tally.documents)
