"""Bulk annotation: each input file a job of the runner, its documents into a file of one folder.

OUT/.lexome has the marks of what is done, the settings that all of it was done with, and each file's rejects, which are
gathered in one file at the end. Killed anywhere and started again, it goes on and ends with the same bytes.
"""

import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from lexome.document import Document
from lexome.errors import UsageError
from lexome.formats import Tally, read, write
from lexome.formats.files import replacing
from lexome.formats.registry import named
from lexome.infer.annotate import annotated, findable, rates, reading, tokens_run
from lexome.infer.annotator import Annotator
from lexome.infer.counts import Counts
from lexome.infer.folder import agree, inputs_by_name, sweep, work_of
from lexome.infer.identity import identity_of
from lexome.infer.wanted import Wanted
from lexome.pipeline import Advance, Engine, Job, Outcome, Part, Stage, fingerprint, run
from lexome.pipeline.local import usable_cores

# Raised when the same models and options would give other files than before.
VERSION = 1

LOCAL = Engine()
EVERYTHING = Wanted()


@dataclass(frozen=True, slots=True)
class Settings:
    """What annotating a file needs to know; all but `strict` and `threads` decides what is written."""

    models: tuple[Path, ...]
    format: str
    wanted: Wanted = EVERYTHING
    from_: str | None = None
    lines: bool = False
    strict: bool = False
    threads: int | None = None

    def said(self) -> dict[str, Any]:
        """What the outputs depend on, by the names of the options."""
        # Asked itself: it is installed under several names.
        import onnxruntime

        return {
            "version": VERSION,
            "onnxruntime": onnxruntime.__version__,
            "model": [identity_of(folder) for folder in self.models],
            "to": self.format,
            "types": None if self.wanted.types is None else sorted(self.wanted.types),
            "min-score": self.wanted.min_score,
            "from": self.from_,
            "lines": self.lines,
        }


@dataclass(slots=True)
class Bulk:
    """What bulk annotation came to: counts over all files that are done, and of those that this run did."""

    files: int = 0
    counts: Counts = field(default_factory=Counts)
    fresh_files: int = 0
    fresh: Counts = field(default_factory=Counts)
    seconds: float = 0.0
    rejected: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    rejects: Path | None = None
    failures: dict[str, str] = field(default_factory=dict)
    waiting: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Everything as JSON has it; rates are those of this run."""
        return {
            "files": self.files,
            **self.counts.as_dict(),
            "rejected": dict(self.rejected.most_common()),
            "notes": dict(self.notes.most_common()),
            "failures": self.failures,
            "waiting": list(self.waiting),
            "files_now": self.fresh_files,
            "documents_now": self.fresh.documents,
            **rates(self.fresh, self.seconds),
        }


def annotate_files(
    inputs: Sequence[Path],
    out: Path,
    settings: Settings,
    *,
    engine: Engine = LOCAL,
    part: Part | None = None,
    rejects: Path | None = None,
    redo: bool = False,
    progress_shown: bool = True,
) -> Bulk:
    """Annotate every file into the folder `out`; what an earlier run with these settings has done is not done again.

    A folder that was made with other models or options is refused, or with `redo` emptied of them first. Bad documents
    of all files are gathered in `rejects`.
    """
    if redo and part is not None:
        raise UsageError("--redo empties the folder, which other parts write to. Name another folder for the parts.")
    if engine.kind == "ray":
        # Workers have a folder of their own to start from.
        inputs, out = [path.absolute() for path in inputs], out.absolute()
    settings = replace(settings, models=tuple(folder.absolute() for folder in settings.models))
    tally = Tally()
    files = inputs_by_name(inputs, out, settings.from_, rejects=rejects, tally=tally)
    if part is None:
        sweep(out, rejects)
    said = settings.said()
    agree(out, said, redo=redo)
    engine, threads = shares(engine, settings.threads, files=len(files))
    jobs = tuple(_job(out, name, paths, replace(settings, threads=threads)) for name, paths in files.items())
    stage = Stage("annotating", annotate_file, jobs, work_of(out) / "marks", fingerprint(said))
    started = time.monotonic()
    outcome = run(stage, engine=engine, part=part, progress_shown=progress_shown)
    bulk = _counted(outcome, time.monotonic() - started)
    bulk.notes.update(tally.notes)
    bulk.rejects = work_of(out) / "rejects"
    # Of several parts, the one that sees all done gathers for all.
    if rejects is not None and not outcome.waiting:
        bulk.rejects = rejects
        _gather([job.outputs[1] for job in jobs if job.name in outcome.reports], rejects)
    return bulk


def shares(engine: Engine, threads: int | None, *, files: int) -> tuple[Engine, int]:
    """The engine and the threads of each process, so that processes times threads are the cores.

    Most processes with one thread each do most. Where files are fewer than cores, each process has more threads.
    """
    if engine.kind == "ray":
        return engine, threads or 1
    cores = usable_cores()
    wanted = engine.workers if engine.workers is not None else max(1, cores // (threads or 1))
    workers = min(wanted, max(1, files))
    return replace(engine, workers=workers), threads or max(1, cores // max(1, workers))


def annotate_file(job: Job, drafts: tuple[Path, ...], advance: Advance) -> dict[str, Any]:
    """Write the annotated documents of a job's files, and what is set aside of them."""
    settings: Settings = job.settings
    out, rejects = drafts
    rejects.touch()
    annotator = opened(settings.models, settings.threads)
    counts, before = Counts(found=findable(annotator, settings.wanted)), tokens_run(annotator)
    with Tally(None if settings.strict else rejects) as tally:
        found = read(job.inputs, settings.from_, tally=tally, where_known=reading(lines=settings.lines))
        docs = annotated(annotator, _watched(found, tally, advance), settings.wanted, tally)
        write(out, counts.watched(docs), settings.format, tally=tally)
        tally.settle_failures(str(job.inputs[0]))
    counts.tokens = tokens_run(annotator) - before
    rejected, notes = dict(sorted(tally.rejected.items())), dict(sorted(tally.notes.items()))
    return {**counts.as_dict(), "rejected": rejected, "notes": notes}


@lru_cache(maxsize=1)
def opened(models: tuple[Path, ...], threads: int | None) -> Annotator:
    """The models, opened once in a process for all its jobs."""
    return Annotator.open(*models, threads=threads)


def _watched(docs: Iterator[Document], tally: Tally, advance: Advance) -> Iterator[Document]:
    told = 0
    for doc in docs:
        advance(tally.bytes_read - told, 1)
        told = tally.bytes_read
        yield doc


def _job(out: Path, name: str, paths: tuple[Path, ...], settings: Settings) -> Job:
    ending = named(settings.format).endings[0]
    return Job(name, paths, (out / f"{name}{ending}", work_of(out) / "rejects" / f"{name}.jsonl"), settings)


def _counted(outcome: Outcome, seconds: float) -> Bulk:
    bulk = Bulk(len(outcome.reports), seconds=seconds, failures=outcome.failures, waiting=outcome.waiting)
    for name, report in outcome.reports.items():
        bulk.counts.add(report)
        bulk.rejected.update(report["rejected"])
        bulk.notes.update(report["notes"])
        if name in outcome.fresh:
            bulk.fresh_files += 1
            bulk.fresh.add(report)
    return bulk


def _gather(parts: Sequence[Path], into: Path) -> None:
    """All rejects in one file, in the order of the inputs; no file where there are none."""
    held = [path for path in parts if path.stat().st_size]
    if not held:
        into.unlink(missing_ok=True)
        return
    with replacing(into) as stream:
        for path in held:
            with path.open("rb") as part:
                shutil.copyfileobj(part, stream)
