"""`lexome datasets` and `lexome convert-bioasq`: the data sets, what is here of them, and BioASQ in SQuAD's form."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lexome.cli.app import AsJson, Quiet, app
from lexome.errors import UsageError

if TYPE_CHECKING:
    from lexome.datasets import DataSet, Report

# Long columns of the table are cut to these widths, so that a line fits on most screens.
_LICENCE_WIDTH = 24
_GET_WIDTH = 60
_ORDER = ("train", "dev", "test")
# What the size of a set is told in, the best first.
_UNITS = {
    "ner": ("mentions", "documents"),
    "relation": ("relations", "documents", "labels"),
    "classes": ("documents",),
    "inference": ("documents",),
    "similarity": ("documents",),
    "questions": ("questions", "documents"),
}


@app.command()
def datasets(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A set to describe and check. Default: all.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where the sets are. Default: LEXOME_DATA, else ./data.")
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="NAME is a folder of your own, for ner, classes, relation, questions, ..."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="With NAME: end with 1 on a warning too, such as an overlap.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the data sets, or describe and check one.

    The list has their task, size and licence, and whether they are here.
    """
    from lexome import datasets

    if task is not None and name is None:
        raise UsageError(f"--task {task}: name the folder that it is for, as in lexome datasets FOLDER --task {task}")
    if name is None:
        _print_all(datasets.every(data=data), as_json=as_json)
        return
    found = datasets.find(name, data=data) if task is None else datasets.folder(name, task=task)
    report = found.check() if found.found else None
    if as_json:
        print(json.dumps({**_described(found), "check": asdict(report) if report else None}, ensure_ascii=False))
    else:
        _print_one(found, report)
    if report is not None and (report.errors or (strict and report.warnings)):
        raise typer.Exit(1)


@app.command()
def convert_bioasq(
    paths: Annotated[
        list[Path], typer.Argument(metavar="IN... OUT", help="BioASQ files, then the SQuAD file to write.")
    ],
    yesno: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where yes or no questions go. Default: they are left out.")
    ] = None,
    forms: Annotated[str, typer.Option(metavar="factoid,list", help="The questions that are wanted.")] = "factoid,list",
    unanswerable: Annotated[
        str, typer.Option(metavar="drop|keep", help="Contexts without the answer: left out, or kept as impossible.")
    ] = "drop",
    abstracts: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="PubMed files: ask of whole abstracts instead of snippets. May be repeated."),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Write BioASQ's questions in SQuAD's form.

    Each context has its article and the place of its snippet.
    """
    from lexome.datasets.bioasq_squad import convert_bioasq as run
    from lexome.datasets.bioasq_squad import write_squad
    from lexome.formats import read

    if len(paths) < 2:
        raise UsageError("convert-bioasq takes BioASQ files and then the output: lexome convert-bioasq IN... OUT")
    if unanswerable not in ("drop", "keep"):
        raise UsageError(f"--unanswerable {unanswerable!r}: expected drop or keep.")
    *inputs, out = paths
    made = run(
        inputs,
        forms=[form.strip() for form in forms.split(",") if form.strip()],
        unanswerable="keep" if unanswerable == "keep" else "drop",
        abstracts=read(abstracts) if abstracts else (),
    )
    write_squad(out, made.squad)
    if yesno is not None:
        write_squad(yesno, made.yesno)
    elif made.yesno["data"] and not quiet:
        print(
            f"note: {len(made.yesno['data']):,} yes or no questions are not written. Name a file with --yesno.",
            file=sys.stderr,
        )
    if as_json:
        print(json.dumps(made.counts, ensure_ascii=False))
    elif not quiet:
        for what, count in sorted(made.counts.items()):
            print(f"{count:>8,} {what}")
        print(f"wrote    {out}" + (f" and {yesno}" if yesno is not None else ""))


def _print_all(found: Sequence["DataSet"], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps([_described(one) for one in found], ensure_ascii=False))
        return
    rows = [("set", "task", "train/dev/test", "licence", "here")]
    rows += [
        (one.name, str(one.settings["kind"]), _size(one), _short(one.card.licence, _LICENCE_WIDTH), _here(one))
        for one in found
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    for row in rows:
        print("  ".join([*(cell.ljust(width) for cell, width in zip(row[:4], widths, strict=True)), row[4]]).rstrip())


def set_table(found: Sequence["DataSet"]) -> str:
    """The sets as a table in Markdown, for the reference page."""
    lines = [
        "| set | what | size of train/dev/test | papers | licence | from |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for one in found:
        card = one.card
        cells = (card.name, card.about, _size(one), ", ".join(card.papers) or "-", card.licence, card.get.rstrip("."))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _described(one: "DataSet") -> dict[str, Any]:
    """What is known of a set, as JSON has it."""
    card = one.card
    return {
        "name": card.name,
        "about": card.about,
        "task": dict(card.task),
        "measure": card.measure,
        "expected": {split: dict(counts) for split, counts in card.expected.items()},
        "folds": len(card.folds),
        "licence": card.licence,
        "licensed": card.licensed,
        "citation": card.citation,
        "papers": list(card.papers),
        "notes": list(card.notes),
        "get": card.get,
        "files": {split: [list(files.patterns) for files in wanted] for split, wanted in card.splits.items()},
        "folders": list(card.folders),
        "folder": str(one.folder) if one.folder is not None else None,
        "here": one.here,
        "missing": one.missing,
    }


def _print_one(one: "DataSet", report: "Report | None") -> None:
    card = one.card
    _line("set", f"{card.name}: {card.about}")
    _line("task", f"{card.task['kind']}: {', '.join(_classes(card.task))}".rstrip(": "))
    for what, said in (
        ("measure", card.measure),
        ("papers", ", ".join(card.papers)),
        ("licence", card.licence),
        ("cite", card.citation),
        ("get", card.get),
    ):
        if said:
            _line(what, said)
    for note in card.notes:
        _line("note", note)
    _line(
        "here", f"{'all' if one.here else 'not ' + ', '.join(one.missing)}{f', in {one.folder}' if one.folder else ''}"
    )
    if report is None:
        for split, wanted in card.splits.items():
            _line("expected", f"{split}: {' or '.join(' + '.join(files.patterns) for files in wanted)}")
        return
    for split, counts in report.counts.items():
        if "/" not in split:
            _line(split, ", ".join(f"{count:,} {what}" for what, count in counts.items()))
    for warning in report.warnings:
        _line("warning", warning)
    for error in report.errors:
        _line("error", error)
    if not report.warnings and not report.errors:
        _line("checked", "nothing to warn of")


def _line(what: str, said: str) -> None:
    print(f"{what:<9} {said}")


def _classes(task: Any) -> list[str]:
    return [str(name) for name in task.get("types") or task.get("labels") or [task.get("form", "")] if name]


def _size(one: "DataSet") -> str:
    """How much is known to be in each split, in what the task counts, or in documents."""
    own = [counts for counts in one.card.expected.values() if counts]
    if not own:
        return "not known"
    unit = next(
        (unit for unit in _UNITS[one.settings["kind"]] if all(_count(counts, unit) for counts in own)), "labels"
    )
    if one.card.folds:
        return f"{max(_count(counts, unit) for counts in own):,} {unit} in {len(one.card.folds)} folds"
    known = [_count(one.card.expected.get(split, {}), unit) for split in _ORDER]
    return "/".join(f"{count:,}" if count else "-" for count in known) + f" {unit}"


def _count(counts: Mapping[str, int], unit: str) -> int:
    """The number of all, or the sum over the types where that is what is known."""
    return counts.get(unit) or sum(count for what, count in counts.items() if what.startswith(f"{unit} "))


def _here(one: "DataSet") -> str:
    """Whether the set is here, and where to get what is not."""
    if one.here:
        return "here"
    get = _short(one.card.get, _GET_WIDTH)
    if one.found:
        return f"here but {', '.join(one.missing)}; get: {get}"
    return f"no; {'apply' if one.card.licensed else 'get'}: {get}"


def _short(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
