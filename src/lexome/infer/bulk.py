"""Bulk annotation: each input file a job of the runner, its documents into a file of one folder.

OUT/.lexome has the marks of what is done, the settings that all of it was done with, and each file's rejects, which are
gathered in one file at the end. Killed anywhere and started again, it goes on and ends with the same bytes.
"""

import glob
import json
import shutil
import time
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from lexome.document import Document
from lexome.errors import FormatError, UsageError
from lexome.files import atomic_write, fingerprint, usable_cores
from lexome.formats import Tally, expand, read, work_units, write
from lexome.formats.registry import FORMATS, get_format
from lexome.formats.streams import is_archive, printable_name, uncompressed_name
from lexome.infer.annotate import Counts, annotated, findable, rates, reading, tokens_run
from lexome.infer.annotator import Annotator
from lexome.infer.model_folder import identity_of
from lexome.infer.selection import Wanted
from lexome.pipeline import Advance, Engine, Job, Part, Stage, StageResult, run

SETTINGS = "settings.json"


def work_of(out: Path) -> Path:
    """Where marks, settings and rejects are: hidden, so that reading the folder passes over them."""
    return out / ".lexome"


def inputs_by_name(
    paths: Sequence[Path], out: Path, format: str | None, *, rejects: Path | None = None, tally: Tally | None = None
) -> dict[str, tuple[Path, ...]]:
    """The files of each job by its name: their path below the folder that was given, without endings.

    What lies in `out` is not read, and it is a UsageError to name it; nor is `rejects`, which an earlier run left. Two
    inputs of one name are told apart by their folder. Files of other kinds are counted in `tally`.
    """
    written = {out.resolve(), *(() if rejects is None else (rejects.resolve(),))}
    for path in paths:
        if path.resolve() == out.resolve() or (path.is_file() and _is_in(path, {out.resolve()})):
            raise UsageError(f"{path} is both input and output. Write to another folder.")
    tally = tally or Tally()
    # Before they are grouped: an output among them would part files that belong together.
    inputs = [
        file for file in expand(paths, get_format(format) if format else None, tally) if not _is_in(file, written)
    ]
    jobs: dict[str, tuple[Path, ...]] = {}
    for files in work_units(inputs, format, tally):
        name = _told_apart(_name(files[0], paths), files[0], jobs)
        if name in jobs:
            raise UsageError(f"{files[0]} and {jobs[name][0]} would have outputs of the same name. Rename one.")
        jobs[name] = files
    if not jobs:
        raise FormatError(f"{paths[0]}: all that can be read there lies in the output, {out}. Write to another folder.")
    return jobs


def agree(out: Path, said: Mapping[str, Any], *, redo: bool) -> None:
    """Note the settings in a new folder; refuse one that was made with others, or with `redo` empty it."""
    path = work_of(out) / SETTINGS
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out}: this is a file; expected the name of a folder to write to.")
    asked = json.loads(json.dumps(said))
    try:
        before = json.loads(path.read_bytes())
    except FileNotFoundError:
        before = None
    except ValueError as error:
        raise FormatError(f"{path}: cannot be read ({error}). Remove the folder {out} and run again.") from None
    if before == asked:
        return
    if before is not None:
        if not redo:
            raise UsageError(
                f"{out} holds files that were annotated otherwise: {_difference(before, asked)}. "
                "Name another folder, or add --redo to annotate everything again."
            )
        _emptied(out)
    with atomic_write(path) as stream:
        stream.write(json.dumps(asked, indent=1, ensure_ascii=False).encode() + b"\n")


def sweep(out: Path, rejects: Path | None) -> None:
    """Remove halves of the settings and the rejects that a killed run left; the runner does the rest."""
    for path in (work_of(out) / SETTINGS, rejects):
        if path is not None and path.parent.is_dir():
            for half in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
                half.unlink(missing_ok=True)


def _is_in(file: Path, written: Set[Path]) -> bool:
    """Whether a file is one of these places, or lies below one."""
    place = file.resolve()
    return place in written or not written.isdisjoint(place.parents)


def _name(file: Path, given: Sequence[Path]) -> str:
    above = [folder for folder in given if folder.is_dir() and file.is_relative_to(folder)]
    inner = file.relative_to(above[0]) if above else Path(file.name)
    place = PurePosixPath(printable_name(inner.as_posix()))
    return str(place.with_name(_stem(place.name)))


def _told_apart(name: str, file: Path, taken: Container[str]) -> str:
    """The name, with that of the file's folder where it is taken, and with the file's ending where that is too."""
    if name in taken:
        name = str(PurePosixPath(name).with_name(f"{printable_name(file.parent.name)}-{PurePosixPath(name).name}"))
    if name in taken:
        # Such as a.xml and a.json in one folder.
        name = f"{name}-{PurePosixPath(uncompressed_name(file.name)).suffix.removeprefix('.')}"
    return name


def _stem(name: str) -> str:
    """A file's name without the endings of compression, archive and format."""
    plain = uncompressed_name(name)
    if is_archive(name):
        plain = plain.removesuffix(".tar").removesuffix(".tgz").removesuffix(".zip")
    endings = [ending for format in FORMATS for ending in format.extensions if plain.lower().endswith(ending)]
    cut = plain[: -len(max(endings, key=len))] if endings else PurePosixPath(plain).stem
    # A name that is nothing but an ending, or a hidden one, which no reader would find again.
    return cut.lstrip(".") or plain.lstrip(".") or "file"


def _difference(before: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    changed = [key for key in asked if before.get(key) != asked[key]]
    return "; ".join(f"{key} was {_told(before.get(key))} and is {_told(asked[key])}" for key in changed)


def _told(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return ", ".join(f"{model['name']} ({model['sha256'][:8]})" for model in value)
    return "not set" if value is None else json.dumps(value, ensure_ascii=False)


def _emptied(out: Path) -> None:
    """Remove what earlier runs wrote, as their marks tell it, and last the marks and settings themselves."""
    marks = work_of(out) / "marks"
    for mark in sorted(marks.rglob("*.json")):
        with suppress(ValueError, LookupError, TypeError):
            output = json.loads(mark.read_bytes())["outputs"][0]["name"]
            (out / mark.parent.relative_to(marks) / output).unlink(missing_ok=True)
    shutil.rmtree(work_of(out))


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
        found = read(job.inputs, settings.from_, tally=tally, options_if_supported=reading(lines=settings.lines))
        docs = annotated(annotator, _watched(found, tally, advance), settings.wanted, tally)
        write(out, counts.watched(docs), settings.format, tally=tally)
        tally.raise_failures(str(job.inputs[0]))
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
    ending = get_format(settings.format).extensions[0]
    return Job(name, paths, (out / f"{name}{ending}", work_of(out) / "rejects" / f"{name}.jsonl"), settings)


def _counted(outcome: StageResult, seconds: float) -> Bulk:
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
    with atomic_write(into) as stream:
        for path in held:
            with path.open("rb") as part:
                shutil.copyfileobj(part, stream)
