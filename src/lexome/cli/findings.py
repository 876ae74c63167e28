"""What `lexome annotate` prints: documents, and what was read, found, set aside and written."""

import json
import shutil
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from lexome.cli.ending import end_aside, print_aside
from lexome.cli.engines import end

if TYPE_CHECKING:
    from lexome.infer.annotate import Annotation
    from lexome.infer.bulk import Bulk
    from lexome.infer.counts import Counts

# Lines longer than this are hard to read.
WIDEST = 120
NAMED_TYPES = 20


def print_documents(work: "Annotation", *, explain: bool, colour: bool, as_json: bool) -> None:
    """Each document as it is done, for reading or as a line of JSON."""
    from lexome.formats.records.jsonl import to_json
    from lexome.infer.inputs import TEXT_ID
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
