"""`lexome index`, `search`, `ask` and `models`: passages and answers in your own documents; models by name."""

import json
import os
import sys
import textwrap
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from lexome.cli.options import (
    AsJson,
    Color,
    From,
    Lines,
    ModelsPath,
    Pooling,
    Quiet,
    QuotedTextCommand,
    RejectOptions,
    app,
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
from lexome.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lexome.document import Range
    from lexome.search.ask import AskResult, Evidence
    from lexome.search.build import IndexResult
    from lexome.search.engine import Filters, Hit, SearchResult

# Longer lines are hard to read.
MAX_WIDTH = 110
# Answers after the best one that are less probable are noise. JSON has them all.
LEAST_SHOWN = 0.05
BOLD, DIM, RESET = "\x1b[1m", "\x1b[2m", "\x1b[0m"
# Characters of a passage that are shown around its first highlight.
SHOWN = 480

Inputs = Annotated[
    list[Path],
    typer.Argument(
        parser=nonempty_path, metavar="DOCS... OUT", help="Files, folders or archives, then the folder of the index."
    ),
]
Encoder = Annotated[
    Path | None,
    typer.Option("--embed", metavar="FOLDER", help="Exported encoder, to also search by vectors (embeddings)."),
]
IndexFolder = Annotated[
    Path, typer.Argument(parser=nonempty_path, metavar="INDEX", help="Folder written by `lexome index`.")
]
Query = Annotated[
    str, typer.Argument(metavar="QUERY", help="Plain words, in quotes if there are several; there is no query syntax.")
]


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """Which passages are searched."""

    concept: Annotated[
        list[str] | None,
        typer.Option(
            "--concept",
            metavar="CURIE|NAME",
            help="Only passages that mention this concept, by id, such as mesh:D003924, or by name; repeatable.",
        ),
    ] = None
    type_: Annotated[
        list[str] | None,
        typer.Option(
            "--type", metavar="TYPE", help="Only passages with a mention of this type, such as Gene; repeatable."
        ),
    ] = None
    year: Annotated[
        str | None,
        typer.Option("--year", metavar="YEARS", help="Only documents of these years: 2019, 2015-2020, 2015- or -2020."),
    ] = None
    journal: Annotated[
        list[str] | None, typer.Option("--journal", metavar="NAME", help="Only documents of this journal; repeatable.")
    ] = None

    def parse(self) -> "Filters":
        """The filters; UsageError for an invalid range of years."""
        from lexome.search.engine import Filters, parse_years

        years = parse_years(self.year) if self.year is not None else (None, None)
        return Filters(tuple(self.concept or ()), tuple(self.type_ or ()), years, tuple(self.journal or ()))


Limit = Annotated[int, typer.Option("--limit", metavar="N", min=0, help="Maximum number of results; 0 for all.")]
By = Annotated[
    str | None,
    typer.Option(
        "--by",
        metavar="bm25|vectors|both",
        help="Ranking by words, by vectors, or by both. Default: both, if the index has vectors.",
    ),
]


@app.command()
@grouped
def index(
    paths: Inputs,
    *,
    encoder: Encoder = None,
    pooling: Pooling = "mean",
    from_: From = None,
    lines: Lines = False,
    redo: Annotated[bool, typer.Option("--redo", help="Rebuild an existing index.")] = False,
    threads: Annotated[
        int | None, typer.Option("--threads", metavar="N", min=1, help="Threads of the encoder.")
    ] = None,
    rejection: RejectOptions,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Index documents for `lexome search` and `lexome ask`.

    The last argument is the folder of the index. Rerunning the command reads new and changed files, removes the
    documents of files that are deleted or no longer given, and keeps all others; an interrupted run resumes. Index
    annotated documents to search by concept and type.
    """
    from lexome.search.build import index as run

    if len(paths) < 2:
        message = "only one path; expected documents and the folder of the index: lexome index DOCS OUT."
        raise UsageError(message, code="no-output", value=paths)
    *inputs, out = paths
    with interruptible(out, kept="finished batches"):
        result = run(
            inputs,
            out,
            embed=encoder,
            pooling=pooling,
            from_=from_,
            lines=lines,
            redo=redo,
            threads=threads,
            rejects=rejection.path(out),
            progress_shown=not quiet,
        )
    print_summary(
        partial(_print_index, result, out),
        {**result.as_dict(), "out": str(out)},
        result.tally.rejected,
        result.tally.rejects_path,
        out=out,
        as_json=as_json,
        quiet=quiet,
    )
    exit_for_tally(result.tally, documents=result.documents)


def _print_index(result: "IndexResult", out: Path, stream: TextIO) -> None:
    files = {
        "new": result.new_files,
        "changed": result.changed_files,
        "removed": result.removed_files,
        "unchanged": result.unchanged_files,
    }
    print("files      " + ", ".join(f"{count:,} {name}" for name, count in files.items() if count), file=stream)
    vectors = f", {result.vectors:,} vectors" if result.vectors else ""
    print(f"indexed    {result.new_documents:,} documents", file=stream)
    print_notes(result.tally.notes, stream)
    print_rejected(result.tally.rejected, result.tally.rejects_path, stream)
    counts = f"{result.documents:,} documents, {result.passages:,} passages, {result.mentions:,} mentions{vectors}"
    print(f"holds      {counts}", file=stream)
    print_line(f"wrote      {out}", stream)


@app.command(cls=QuotedTextCommand)
@grouped
def search(
    folder: IndexFolder,
    query: Query = "",
    *,
    filters: FilterOptions,
    limit: Limit = 10,
    by: By = None,
    encoder: Encoder = None,
    color: Color = None,
    as_json: AsJson = False,
) -> None:
    """Search an index by words, by concepts, or both.

    With several --concept, a passage must mention all of them. --concept and --type need an index of annotated
    documents. Each result has its document, passage and offsets; query words are highlighted.
    """
    from lexome.search.engine import Index

    _require_order(folder, query, usage="lexome search INDEX QUERY")
    with Index.open(folder, encoder=encoder) as opened:
        selected = filters.parse()
        result = opened.search_filtered(query, selected, limit=limit, method=by)  # type: ignore[arg-type]  # checked there
        types = opened.mention_types() if selected.types and not result.total else ()
    if as_json:
        print(json.dumps(result.as_dict(), ensure_ascii=False))
        return
    for name, curie in result.concepts.items():
        print(f"{printable(name)} is {curie}", file=sys.stderr)
    if result.note is not None:
        print(f"note: {result.note}", file=sys.stderr)
    _print_hits(result, color=use_color(color))
    present = {name.casefold() for name in types}
    for name in selected.types:
        if types and name.casefold() not in present:
            print_line(f"no mention in the index has the type {name!r}. Types: {', '.join(types)}.")


def _require_order(path: Path, words: str, *, usage: str) -> None:
    """UsageError if the arguments are swapped: the words are an existing path, and the path does not exist."""
    if words and os.path.exists(words) and not os.path.exists(path):
        message = f"{path}: no such file or folder, but {words} is one: the order is {usage}."
        raise UsageError(message, code="swapped-arguments", value=words)


def _print_hits(result: "SearchResult", *, color: bool) -> None:
    for number, hit in enumerate(result.hits, 1):
        print(f"{number}. {heading(hit, color=color)}")
        for line in excerpt(hit, color=color):
            print(f"   {line}")
        for mention in hit.mentions:
            named = f" {mention.concept}" if mention.concept else ""
            print_line(f"   {mention.start}-{mention.end} {mention.text} {mention.type}{named}")
        print()
    shown = len(result.hits)
    passages = "passage" if result.total == 1 else "passages"
    more = f", {shown:,} shown; --limit shows more" if shown < result.total else ""
    print(f"{result.total:,} {passages} found{more}")


def heading(hit: "Hit", *, color: bool) -> str:
    """Document, title, year and journal; passage and offsets."""
    title = printable(hit.title or "")
    source = ", ".join(str(part) for part in (hit.journal, hit.year) if part)
    place = f"{printable(hit.kind)} {hit.start}-{hit.end}"
    head = f"{BOLD}{printable(hit.document)}{RESET}" if color else printable(hit.document)
    score = f"score {hit.score:.3g}"
    return "  ".join(part for part in (head, title, printable(source), place, score) if part)


def excerpt(hit: "Hit", *, color: bool) -> list[str]:
    """The lines of a passage around its first highlight, the highlights marked in color or with asterisks."""
    first = hit.highlights[0][0] if hit.highlights else hit.start
    low = max(hit.start, min(first - SHOWN // 4, hit.end - SHOWN))
    high = min(hit.end, low + SHOWN)
    # To whole words.
    while low > hit.start and not hit.text[low - hit.start - 1].isspace():
        low -= 1
    while high < hit.end and not hit.text[high - hit.start].isspace():
        high += 1
    marks = [(start, end) for start, end in hit.highlights if low <= start and end <= high]
    around = ("…" if low > hit.start else "", "…" if high < hit.end else "")
    return _wrap(hit.text[low - hit.start : high - hit.start], low, marks, color=color, around=around)


def _wrap(
    text: str, offset: int, marks: "Sequence[Range]", *, color: bool, around: tuple[str, str] = ("", "")
) -> list[str]:
    """The lines of a text that begins at `offset`, with these ranges marked."""
    opening, closing = (BOLD, RESET) if color else ("*", "*")
    pieces, at = [around[0]], offset
    for start, end in marks:
        pieces += (printable(text[at - offset : start - offset]), opening)
        pieces += (printable(text[start - offset : end - offset]), closing)
        at = end
    pieces += (printable(text[at - offset :]), around[1])
    width = min(terminal_width(), MAX_WIDTH) - 3
    return textwrap.wrap("".join(pieces), width, break_on_hyphens=False) or [""]


@app.command(cls=QuotedTextCommand)
@grouped
def ask(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="A question in English.")],
    source: Annotated[
        Path,
        typer.Argument(parser=nonempty_path, metavar="INDEX|FOLDER|FILE", help="An index, or documents of any format."),
    ],
    *,
    model: Annotated[
        list[str] | None,
        typer.Option(
            "--model",
            metavar="NAME|FOLDER",
            help="Reader; repeatable, one per form of question. Default: reader and reader-yesno, if available.",
        ),
    ] = None,
    evidence_only: Annotated[
        bool, typer.Option("--evidence-only", help="Run no model; print the sentences closest to the question.")
    ] = False,
    models_path: ModelsPath = None,
    form: Annotated[
        str | None,
        typer.Option("--form", metavar="factoid|list|yesno", help="Form of the question. Default: by its first words."),
    ] = None,
    passages: Annotated[int, typer.Option(metavar="N", min=1, max=100, help="Passages to read.")] = 6,
    limit: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Maximum number of answers or sentences. Default: 5; 20 answers to a list question.",
        ),
    ] = None,
    min_score: Annotated[
        float | None,
        typer.Option(
            metavar="SCORE", min=0, max=1, help="Minimum probability of the best answer; below it, there is none."
        ),
    ] = None,
    filters: FilterOptions,
    by: By = None,
    encoder: Encoder = None,
    threads: Annotated[int | None, typer.Option("--threads", metavar="N", min=1, help="Threads of the reader.")] = None,
    color: Color = None,
    as_json: AsJson = False,
) -> None:
    """Answer a question from documents, with evidence.

    Retrieves passages like `lexome search`, and extracts answers from them with a question-answering model, a reader.
    Factoid and list questions need one reader, yes/no questions another. Without a reader, or if the reader finds no
    answer that is probable enough, the sentences closest to the question are printed as evidence.
    """
    from lexome.formats import Tally
    from lexome.infer.named_models import find_readers, resolve_model
    from lexome.search.ask import ask as run
    from lexome.search.ask import open_readers, open_source

    _require_order(source, question, usage="lexome ask QUESTION INDEX")
    named = [resolve_model(name, search_path=models_path) for name in model or ()]
    folders = [] if evidence_only else named or find_readers(search_path=models_path)
    readers = open_readers(folders, threads=threads)
    selected = filters.parse()
    tally = Tally()
    with open_source(source, encoder=encoder, tally=tally) as index:
        result = run(
            index,
            question,
            readers=readers,
            form=form,  # type: ignore[arg-type]  # which ask checks itself
            filters=selected,
            passages=passages,
            limit=limit,
            min_probability=min_score,
            method=by,  # type: ignore[arg-type]
        )
    for reason, times in tally.rejected.most_common():
        print_line(f"rejected   {times:,} {reason}; `lexome index` keeps what it rejects", sys.stderr)
    for failure in tally.failures:
        print_line(f"broken     {failure}", sys.stderr)
    if as_json:
        print(json.dumps(result.as_dict(), ensure_ascii=False))
        return
    _print_answers(result, color=use_color(color), models_given=bool(readers))


def _print_answers(result: "AskResult", *, color: bool, models_given: bool) -> None:
    if result.answers and result.note is not None:
        print(result.note)
    for number, answer in enumerate(result.answers, 1):
        if number > 1 and answer.probability < LEAST_SHOWN:
            break
        place = "" if answer.start is None else f"  {printable(answer.document or '')} {answer.start}-{answer.end}"
        raw = "" if result.calibrated else ", not calibrated"
        print(f"{number}. {printable(answer.text)}  probability {answer.probability:.2f}{raw}{place}")
        if answer.sentence is not None:
            _print_sentence(answer.sentence, color=color)
    if result.passages and result.answers and result.form != "yesno":
        return
    if result.answers:
        print("passages that were read say:")
    elif result.passages and result.reader is None and not models_given:
        print("no reader model (--model): these sentences are evidence, not an answer.")
    else:
        print(result.note)
    for sentence in result.evidence:
        title = f"  {printable(sentence.title)}" if sentence.title else ""
        print(f"{printable(sentence.document)} {sentence.start}-{sentence.end}{title}")
        _print_sentence(sentence, color=color)


def _print_sentence(sentence: "Evidence", *, color: bool) -> None:
    for line in _wrap(sentence.text, sentence.start, sentence.highlights, color=color):
        print(f"   {line}")


@app.command()
def models(models_path: ModelsPath = None, as_json: AsJson = False) -> None:
    """List the models that --model accepts by name.

    These are the bundled model, and the folders in ./models or --models-path. A checkpoint is listed, but must be
    exported before it runs. Scores are from the model's certificate, measured on held-out documents.
    """
    from lexome.infer.named_models import list_models

    available = list_models(search_path=models_path)
    if as_json:
        print(json.dumps([model.as_dict() for model in available], ensure_ascii=False))
        return
    for model in available:
        task = model.task or "checkpoint; export it to run it"
        facts = (task, f"{model.megabytes:,.1f} MB", f"license {model.license or 'not stated'}")
        print(f"{model.name:<16} " + ", ".join(facts))
        if model.scores:
            print(f"{'':<16} " + ", ".join(f"{name} {score:.3f}" for name, score in model.scores.items()))
        print(f"{'':<16} {model.card or model.folder}")
        if model.problem is not None:
            print(f"{'':<16} cannot run: {model.problem}")
