"""`lexome datasets` and `lexome convert-bioasq`: the dataset catalog, and BioASQ in SQuAD format."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lexome.cli.options import AsJson, DataPath, Quiet, app, print_line
from lexome.errors import UsageError

if TYPE_CHECKING:
    from lexome.datasets import AuditReport, DataSet

# Columns of the table are truncated to these widths, so that a line fits on most screens.
_LICENSE_WIDTH = 24
_SOURCE_WIDTH = 60
_SPLITS = ("train", "dev", "test")
# What the size of a dataset is counted in, by kind of task, in order of preference.
_UNITS = {
    "ner": ("mentions", "documents"),
    "relation": ("relations", "documents", "labels"),
    "document-relation": ("relations", "documents", "mentions"),
    "classes": ("documents",),
    "inference": ("documents",),
    "similarity": ("documents",),
    "questions": ("questions", "documents"),
}


@app.command()
def datasets(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Dataset to describe and check. Default: list all.")
    ] = None,
    data: DataPath = None,
    task: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="Check your own folder, NAME, for this task: ner, classes, relation, questions, ...",
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="With NAME: exit with 1 on warnings too, such as overlapping splits.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the datasets, or describe and check one.

    The list has the task, size and license of each, and whether it was found.
    """
    from lexome import datasets

    if task is not None and name is None:
        message = f"--task {task}: expected a folder to check, as in lexome datasets FOLDER --task {task}"
        raise UsageError(message, code="missing-argument", value="NAME")
    if name is None:
        _print_all(datasets.every(data=data), as_json=as_json)
        return
    if task is None and Path(name).is_dir() and name.lower() not in {card.lower() for card in datasets.cards()}:
        message = f"{name}: is a folder, and its task is unknown. Name the task to check it for, such as --task ner."
        raise UsageError(message, code="missing-argument", value="--task")
    dataset = datasets.find(name, data=data) if task is None else datasets.folder(name, task=task)
    report = dataset.check() if dataset.files else None
    if as_json:
        print(json.dumps({**_as_json(dataset), "check": asdict(report) if report else None}, ensure_ascii=False))
    else:
        _print_dataset(dataset, report)
    if report is not None and (report.errors or (strict and report.warnings)):
        raise typer.Exit(1)


@app.command()
def convert_bioasq(
    paths: Annotated[
        list[Path], typer.Argument(metavar="IN... OUT", help="BioASQ files, then the SQuAD file to write.")
    ],
    yesno: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File for yes/no questions. Default: they are skipped.")
    ] = None,
    forms: Annotated[str, typer.Option(metavar="factoid,list", help="Question types to convert.")] = "factoid,list",
    unanswerable: Annotated[
        str,
        typer.Option(metavar="drop|keep", help="Contexts without the answer: drop them, or keep them as impossible."),
    ] = "drop",
    abstracts: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", help="PubMed files: use whole abstracts as contexts instead of snippets; repeatable."
        ),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Convert BioASQ questions to SQuAD format.

    Each context keeps its article and the offsets of its snippet.
    """
    from lexome.datasets.bioasq_squad import convert_bioasq as run
    from lexome.datasets.bioasq_squad import write_squad
    from lexome.formats import read

    if len(paths) < 2:
        message = "expected BioASQ files and the output: lexome convert-bioasq IN... OUT"
        raise UsageError(message, code="missing-argument")
    if unanswerable not in ("drop", "keep"):
        message = f"--unanswerable {unanswerable!r}: expected drop or keep."
        raise UsageError(message, code="unknown-value", value=unanswerable)
    *inputs, out = paths
    converted = run(
        inputs,
        forms=[form.strip() for form in forms.split(",") if form.strip()],
        unanswerable="keep" if unanswerable == "keep" else "drop",
        abstracts=read(abstracts) if abstracts else (),
    )
    write_squad(out, converted.squad)
    skipped = len(converted.yesno["data"])
    if yesno is not None:
        write_squad(yesno, converted.yesno)
    elif skipped and not quiet:
        print(f"note: {skipped:,} yes/no questions were skipped. Name a file for them with --yesno.", file=sys.stderr)
    if as_json:
        print(json.dumps(converted.counts, ensure_ascii=False))
    elif not quiet:
        for what, count in sorted(converted.counts.items()):
            print(f"{count:>8,} {what}")
        print(f"wrote    {out}" + (f" and {yesno}" if yesno is not None else ""))


def _print_all(datasets: Sequence["DataSet"], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([_as_json(dataset) for dataset in datasets], ensure_ascii=False))
        return
    rows = [("dataset", "task", "train/dev/test", "license", "found")]
    for dataset in datasets:
        license = _shorten(dataset.card.license, _LICENSE_WIDTH)
        rows.append((dataset.name, str(dataset.settings["kind"]), _size(dataset), license, _availability(dataset)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    for row in rows:
        print("  ".join([*(cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=True)), row[-1]]).rstrip())


def set_table(datasets: Sequence["DataSet"]) -> str:
    """The datasets as a Markdown table, for the reference page."""
    lines = [
        "| dataset | description | size of train/dev/test | papers | license | source |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for dataset in datasets:
        card = dataset.card
        papers = ", ".join(card.papers) or "-"
        cells = (card.name, card.description, _size(dataset), papers, card.license, card.source.rstrip("."))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _as_json(dataset: "DataSet") -> dict[str, Any]:
    """The description of a dataset, for --json."""
    card = dataset.card
    return {
        "name": card.name,
        "about": card.description,
        "task": dict(card.task),
        "measure": card.metric,
        "expected": {split: dict(counts) for split, counts in card.expected.items()},
        "folds": len(card.folds),
        "license": card.license,
        "licensed": card.restricted,
        "citation": card.citation,
        "papers": list(card.papers),
        "notes": list(card.notes),
        "get": card.source,
        "files": {split: [list(files.patterns) for files in options] for split, options in card.splits.items()},
        "folders": list(card.folders),
        "folder": str(dataset.folder) if dataset.folder is not None else None,
        "here": dataset.available,
        "missing": dataset.missing,
    }


def _print_dataset(dataset: "DataSet", report: "AuditReport | None") -> None:
    card, task = dataset.card, dataset.card.task
    classes = [str(name) for name in task.get("types") or task.get("labels") or [task.get("form", "")] if name]
    missing = f"incomplete: no {', '.join(dataset.missing)}" if dataset.files else "no"
    lines = [
        ("dataset", f"{card.name}: {card.description}"),
        ("task", f"{task['kind']}: {', '.join(classes)}".rstrip(": ")),
        ("metric", card.metric),
        ("papers", ", ".join(card.papers)),
        ("license", card.license),
        ("cite", card.citation),
        ("source", card.source),
        *(("note", note) for note in card.notes),
        ("found", ("yes" if dataset.available else missing) + (f", in {dataset.folder}" if dataset.folder else "")),
    ]
    if report is None:
        for split, options in card.splits.items():
            lines.append(("expected", f"{split}: {' or '.join(' + '.join(files.patterns) for files in options)}"))
    else:
        for split, counts in report.counts.items():
            if "/" not in split:
                lines.append((split, ", ".join(f"{count:,} {what}" for what, count in counts.items())))
        lines += [("noted", f"{times:,} {note}") for note, times in report.notes.items()]
        lines += [("warning", warning) for warning in report.warnings]
        lines += [("error", error) for error in report.errors]
        lines += [("checked", "no problems")] if not report.warnings and not report.errors else []
    for name, content in lines:
        if content:
            print_line(f"{name:<9} {content}")


def _size(dataset: "DataSet") -> str:
    """The expected size of each split, in the task's units or in documents."""
    card = dataset.card
    known = [counts for counts in card.expected.values() if counts]
    if not known:
        return "unknown"
    units = _UNITS[dataset.settings["kind"]]
    unit = next((unit for unit in units if all(_count(counts, unit) for counts in known)), "labels")
    if card.folds:
        return f"{max(_count(counts, unit) for counts in known):,} {unit} in {len(card.folds)} folds"
    sizes = [_count(card.expected.get(split, {}), unit) for split in _SPLITS]
    return "/".join(f"{count:,}" if count else "-" for count in sizes) + f" {unit}"


def _count(counts: Mapping[str, int], unit: str) -> int:
    """The total, or the sum over types if the total is not known."""
    return counts.get(unit) or sum(count for what, count in counts.items() if what.startswith(f"{unit} "))


def _availability(dataset: "DataSet") -> str:
    """Whether the dataset was found, and otherwise where to get it."""
    if dataset.available:
        return "yes"
    source = _shorten(dataset.card.source, _SOURCE_WIDTH)
    if dataset.files:
        return f"incomplete: no {', '.join(dataset.missing)}; source: {source}"
    return f"no; {'apply at' if dataset.card.restricted else 'source'}: {source}"


def _shorten(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
