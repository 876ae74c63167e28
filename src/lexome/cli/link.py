"""`lexome link`: ids for mentions that documents already have."""

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lexome.cli.annotate import (
    MAX_WIDTH,
    NAMED_TYPES,
    STANDARD_OUTPUT,
    Abbreviations,
    Case,
    Color,
    Find,
    From,
    OnlyTerms,
    Terms,
    case_rule,
    ignore_closed_pipe,
)
from lexome.cli.app import (
    AsJson,
    Counts,
    FormatOptions,
    Quiet,
    RejectsPath,
    Strict,
    app,
    default_rejects,
    exit_for_tally,
    interruptible,
    parse_options,
    print_rejected,
    use_color,
)

if TYPE_CHECKING:
    from lexome.infer.link import Linking

Out = Annotated[
    Path, typer.Option("--out", metavar="FILE", show_default=False, help="Output file. Default: standard output.")
]
To = Annotated[
    str | None,
    typer.Option("--to", metavar="FORMAT", help="Output format. Default: by extension, or text with marked mentions."),
]
Types = Annotated[
    list[str] | None, typer.Option("--types", metavar="TYPE,...", help="Link only mentions of these types.")
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite/--keep", help="Replace the ids that mentions have, or keep them.")
]
Explain = Annotated[
    bool, typer.Option("--explain", help="Say why each mention has its ids, and which others came near.")
]


@app.command()
def link(
    inputs: Annotated[
        list[Path],
        typer.Argument(metavar="DOCS...", help="Files, folders or archives with mentions; - for standard input."),
    ],
    out: Out = STANDARD_OUTPUT,
    to: To = None,
    from_: From = None,
    set_: FormatOptions = None,
    counts: Counts = False,
    terms: Terms = None,
    only_terms: OnlyTerms = False,
    find: Find = False,
    case: Case = "auto",
    abbreviations: Abbreviations = False,
    types: Types = None,
    overwrite: Overwrite = False,
    explain: Explain = False,
    color: Color = None,
    rejects: RejectsPath = None,
    strict: Strict = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Give the mentions of documents the ids of their concepts.

    The mentions are those that the documents have: curated ones, or those of another tool. No model runs; to find
    mentions in plain text, use `lexome annotate`. A mention whose best candidate is too unlikely has no id. Ids that
    are there already are kept, unless --overwrite is given.
    """
    from lexome.errors import UsageError
    from lexome.formats import writing_format
    from lexome.formats.conversion import split_options
    from lexome.infer.concepts import ConceptOptions, Concepts
    from lexome.infer.link import Linking
    from lexome.infer.selection import parse_types

    rendered = to is None and out == STANDARD_OUTPUT
    if explain and not rendered:
        message = "--explain cannot be combined with --out or --to."
        raise UsageError(message, code="conflicting-options", value="--explain")
    format = None if rendered else writing_format(out, to).name
    options = split_options(parse_options(set_, example="encoding=latin-1", counts=counts), from_, format)
    concepts = Concepts(ConceptOptions(True, tuple(terms or ()), only_terms, find, case_rule(case), abbreviations))
    work = Linking(
        concepts,
        inputs,
        types=parse_types(types or []),
        overwrite=overwrite,
        from_=from_,
        read_options=options[0],
        rejects=None if strict else rejects or default_rejects(out),
        progress_shown=not quiet and not (rendered and sys.stdout.isatty()),
    )
    with interruptible(None if out == STANDARD_OUTPUT else out), ignore_closed_pipe():
        if rendered:
            _print_documents(work, explain=explain, color=use_color(color), as_json=as_json)
        else:
            work.write(out, format, **options[1])
    _print_counts(work, out, as_json=as_json and not rendered, quiet=quiet)
    exit_for_tally(work.tally, documents=work.counts.documents)


def _print_documents(work: "Linking", *, explain: bool, color: bool, as_json: bool) -> None:
    """Each document as it is linked, rendered or as a line of JSON."""
    from lexome.infer.concepts import explanation_record
    from lexome.infer.terminal import explain_ids, render

    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    width = min(shutil.get_terminal_size((100, 24)).columns, MAX_WIDTH)
    for number, doc in enumerate(work.documents()):
        linked = list(work.concepts.explain(doc).values()) if explain else []
        if as_json:
            line = doc.to_dict() | ({"linked": list(map(explanation_record, linked))} if explain else {})
            print(json.dumps(line, ensure_ascii=False), flush=True)
            continue
        print(("\n" if number else "") + render(doc, width=width, color=color))
        for explanation in linked:
            print("\n".join(f"  {line}" for line in explain_ids(explanation)))
        sys.stdout.flush()


def _print_counts(work: "Linking", out: Path, *, as_json: bool, quiet: bool) -> None:
    """Counts by type; on standard error where standard output has the documents."""
    stream = sys.stderr if out == STANDARD_OUTPUT else sys.stdout
    if as_json:
        print(json.dumps({**work.as_dict(), "out": str(out)}, ensure_ascii=False), file=stream)
        return
    if quiet:
        print_rejected(work.tally.rejected, work.tally.rejects_path, sys.stderr)
        return
    counts = work.counts
    print(f"read       {counts.documents:,} documents", file=stream)
    for label, counter in (
        ("linked", counts.linked),
        ("abstained", counts.abstained),
        ("kept", counts.kept),
        ("no terms", counts.no_dictionary),
        ("noted", work.tally.notes),
    ):
        for name, times in counter.most_common(NAMED_TYPES):
            print(f"{label:<10} {times:,} {name}", file=stream)
    print_rejected(work.tally.rejected, work.tally.rejects_path, stream)
    if out != STANDARD_OUTPUT:
        print(f"wrote      {work.tally.written:,} documents to {out}", file=stream)
