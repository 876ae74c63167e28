"""Bulk annotation: each input file is a job of the pipeline, its documents go to one file of the output folder.

OUT/.lexome has the completion marks, the settings shared by all files, and the rejects of each file, which are merged
at the end. A killed run resumes when restarted, with byte-identical results.
"""

import glob
import json
import shutil
import time
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from lexome.document import Document
from lexome.errors import FormatError, UsageError
from lexome.files import atomic_write, exclusive_use, fingerprint, refuse_other_settings, usable_cores, write_json
from lexome.formats import FORMATS, Paths, Tally, as_paths, expand, get_format, read, work_units, write
from lexome.formats.streams import is_archive, output_name, uncompressed_name
from lexome.formats.tally import require_rejects
from lexome.infer.annotation import AnnotationCounts, annotate, predictable_types
from lexome.infer.annotator import Annotator
from lexome.infer.concepts import ConceptOptions, naming_options
from lexome.infer.predictor import identity_of
from lexome.infer.selection import EVERYTHING, SelectionRequest
from lexome.infer.sessions import Device, open_remote
from lexome.pipeline import Advance, Engine, Job, Part, Stage, StageResult, run

SETTINGS = "settings.json"

# Incremented when the same models and options would give other files than before.
VERSION = 3

LOCAL = Engine()

# Tokens that a process sends to a device at once: the device runs those of several processes together.
REMOTE_BATCH_TOKENS = 1 << 15


@dataclass(frozen=True, slots=True)
class BulkSettings:
    """Models and options; all but `strict` and `threads` determine the output.

    `fingerprint` is the hash of their identity; it is filled in by `annotate_files`.
    """

    models: tuple[Path, ...]
    format: str
    request: SelectionRequest = EVERYTHING
    from_: str | None = None
    lines: bool = False
    strict: bool = False
    threads: int | None = None
    read_options: Mapping[str, Any] = field(default_factory=dict)
    write_options: Mapping[str, Any] = field(default_factory=dict)
    concepts: ConceptOptions = field(default_factory=ConceptOptions)
    fingerprint: str = ""
    device: Device | None = None

    def identity(self) -> dict[str, Any]:
        """Everything that the output depends on, by the names of the options."""
        # Its own attribute: the distribution has several names.
        import onnxruntime

        types, relation_types = self.request.types, self.request.relation_types
        return {
            "version": VERSION,
            "onnxruntime": onnxruntime.__version__,
            "model": [identity_of(folder) for folder in self.models],
            "to": self.format,
            "types": None if types is None else sorted(types),
            "min-score": self.request.min_score,
            "from": self.from_,
            "lines": self.lines,
            "overlaps": self.request.overlaps,
            "no-rule": sorted(self.request.without_rules),
            # With the hashes of dictionaries: if one has changed, everything is annotated again.
            "concepts": self.concepts.identity(),
            **({"relation-types": sorted(relation_types)} if relation_types is not None else {}),
            **({"precision": self.device.precision} if self.device is not None else {}),
            **({"set": {**self.read_options, **self.write_options}} if self.read_options or self.write_options else {}),
        }


@dataclass(slots=True)
class BulkResult:
    """Counts over all finished files, and over those that this run finished."""

    files: int = 0
    counts: AnnotationCounts = field(default_factory=AnnotationCounts)
    new_files: int = 0
    new_counts: AnnotationCounts = field(default_factory=AnnotationCounts)
    seconds: float = 0.0
    rejected: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    rejects: Path | None = None
    failures: dict[str, str] = field(default_factory=dict)
    waiting: tuple[str, ...] = ()
    orphans: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """All counts for JSON; throughput is that of this run."""
        return {
            "files": self.files,
            **self.counts.as_dict(),
            "rejected": dict(self.rejected.most_common()),
            "notes": dict(self.notes.most_common()),
            "failures": self.failures,
            "waiting": list(self.waiting),
            "orphans": list(self.orphans),
            "files_now": self.new_files,
            "documents_now": self.new_counts.documents,
            **self.new_counts.throughput(self.seconds),
        }


def annotate_files(
    inputs: Paths,
    out: str | Path,
    settings: BulkSettings,
    *,
    engine: Engine = LOCAL,
    part: Part | None = None,
    rejects: str | Path | None = None,
    redo: bool = False,
    verify: bool = False,
    progress_shown: bool = True,
) -> BulkResult:
    """Annotate every file into the folder `out`; files that an earlier run with these settings finished are skipped.

    A folder written with other models or options is refused, or with `redo` cleared first, as is one that another
    process writes to. With `verify`, finished files are hashed, and annotated again if input or output has changed.
    Bad documents of all files are merged in `rejects`.
    """
    paths, out, rejects = as_paths(inputs), Path(out), None if rejects is None else Path(rejects)
    if rejects is not None:
        require_rejects(rejects)
    if redo and part is not None:
        message = "--redo clears the folder, which other parts write to. Choose another folder for the parts."
        raise UsageError(message, code="conflicting-options", value="--redo")
    if engine.kind == "ray":
        # Workers have another current folder.
        paths, out = [path.absolute() for path in paths], out.absolute()
    settings = replace(
        settings,
        models=tuple(folder.absolute() for folder in settings.models),
        concepts=settings.concepts.absolute(),
    )
    tally = Tally()
    files = inputs_by_name(paths, out, settings.from_, rejects=rejects, tally=tally)
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out}: a file; expected the path of a folder.", code="not-a-folder", value=out)
    with exclusive_use(work_folder(out), part=None if part is None else f"{part.number}-of-{part.of}"):
        if part is None:
            _remove_partial_files(out, rejects)
        identity = settings.identity()
        extension = get_format(settings.format).extensions[0]
        _claim_folder(out, identity, [out / f"{name}{extension}" for name in files], redo=redo)
        engine, threads = share_cores(engine, settings.threads, files=len(files))
        job_settings = replace(settings, threads=threads, fingerprint=fingerprint(identity))
        jobs = tuple(
            Job(name, paths, (out / f"{name}{extension}", work_folder(out) / "rejects" / f"{name}.jsonl"), job_settings)
            for name, paths in files.items()
        )
        stage = Stage("annotating", annotate_file, jobs, work_folder(out) / "marks", fingerprint(identity))
        start = time.monotonic()
        outcome = run(stage, engine=engine, part=part, verify=verify, progress_shown=progress_shown)
        result = _add_up(outcome, time.monotonic() - start)
        result.orphans = _orphans(out, files)
        result.notes.update(tally.notes)
        result.rejects = work_folder(out) / "rejects"
        # The last part that finishes merges the rejects of all.
        if rejects is not None and not outcome.waiting:
            result.rejects = rejects
            merge_rejects([job.outputs[1] for job in jobs if job.name in outcome.reports], rejects)
        return result


def share_cores(engine: Engine, threads: int | None, *, files: int) -> tuple[Engine, int]:
    """The engine and threads per process, so that processes times threads is the number of cores.

    Throughput is highest with one thread per process. With fewer files than cores, each process has more threads.
    """
    if engine.kind == "ray":
        return engine, threads or 1
    cores = usable_cores()
    max_workers = engine.workers if engine.workers is not None else max(1, cores // (threads or 1))
    workers = min(max_workers, max(1, files))
    return replace(engine, workers=workers), threads or max(1, cores // max(1, workers))


def annotate_file(job: Job, drafts: tuple[Path, ...], advance: Advance) -> dict[str, Any]:
    """Write the annotated documents of a job's files, and their rejects."""
    settings: BulkSettings = job.settings
    out, rejects = drafts
    rejects.touch()
    types = tuple(settings.request.types or ())
    annotator = _open_once(
        settings.models,
        threads=settings.threads,
        concepts=settings.concepts,
        fingerprint=settings.fingerprint,
        device=settings.device,
        types=types,
    )
    selection = annotator.resolve(settings.request)
    counts = AnnotationCounts(predictable=predictable_types(annotator, selection))
    tokens = annotator.tokens_run
    with Tally(None if settings.strict else rejects) as tally:
        options: dict[str, object] = {"per": "line"} if settings.lines else {}
        docs = read(job.inputs, settings.from_, tally=tally, options_if_supported=options, **settings.read_options)
        docs = _track(docs, tally, advance)
        annotated = annotate(annotator, docs, tally, selection)
        writing = {**naming_options(settings.format, annotator.concepts), **settings.write_options}
        write(out, counts.count(annotated, tally), settings.format, tally=tally, **writing)
        tally.raise_failures(str(job.inputs[0]))
    counts.documents, counts.tokens = tally.written, annotator.tokens_run - tokens
    rejected, notes = dict(sorted(tally.rejected.items())), dict(sorted(tally.notes.items()))
    concepts = annotator.concepts
    terms = Counter() if concepts is None else concepts.dropped + concepts.unused(annotator.types)
    dropped = dict(sorted(terms.items()))
    return {**counts.as_dict(), "rejected": rejected, "notes": notes, "dropped_terms": dropped}


@lru_cache(maxsize=1)
def _open_once(
    models: tuple[Path, ...],
    *,
    threads: int | None,
    concepts: ConceptOptions,
    fingerprint: str,
    device: Device | None,
    types: tuple[str, ...],
) -> Annotator:
    """The models and dictionaries, opened once per process for all its jobs, unless their files have changed.

    With a device, the models run in the process that owns it.
    """
    if device is None:
        return Annotator.open(*models, threads=threads, concepts=concepts)
    remote = [open_remote(folder, number, device, types=types) for number, folder in enumerate(models)]
    return Annotator(remote, concepts.open(), batch_tokens=REMOTE_BATCH_TOKENS)


def _track(docs: Iterator[Document], tally: Tally, advance: Advance) -> Iterator[Document]:
    reported = 0
    for doc in docs:
        advance(tally.bytes_read - reported, 1)
        reported = tally.bytes_read
        yield doc


def _add_up(outcome: StageResult, seconds: float) -> BulkResult:
    result = BulkResult(len(outcome.reports), seconds=seconds, failures=outcome.failures, waiting=outcome.waiting)
    dropped: dict[str, int] = {}
    for name, report in outcome.reports.items():
        # Every file reports the same dictionaries.
        dropped |= report.get("dropped_terms", {})
        result.counts.add(report)
        result.rejected.update(report["rejected"])
        result.notes.update(report["notes"])
        if name in outcome.fresh:
            result.new_files += 1
            result.new_counts.add(report)
    result.notes.update(dropped)
    return result


def merge_rejects(parts: Sequence[Path], out: Path) -> None:
    """Merge the rejects in the order of the inputs; remove the file if there are none."""
    nonempty = [path for path in parts if path.exists() and path.stat().st_size]
    if not nonempty:
        out.unlink(missing_ok=True)
        return
    with atomic_write(out) as stream:
        for path in nonempty:
            with path.open("rb") as part:
                shutil.copyfileobj(part, stream)


# The output folder


def work_folder(out: Path) -> Path:
    """Folder of marks, settings and rejects: hidden, so that it is skipped when the output is read."""
    return out / ".lexome"


def _orphans(out: Path, files: Container[str]) -> tuple[str, ...]:
    """Names of finished jobs whose inputs this run was not given: their outputs stay in the folder."""
    marks = work_folder(out) / "marks"
    names = (mark.relative_to(marks).as_posix().removesuffix(".json") for mark in marks.rglob("*.json"))
    return tuple(sorted(name for name in names if name not in files))


def _read_settings(path: Path, out: Path) -> dict[str, Any] | None:
    """The settings that a folder was written with; None for a new one."""
    try:
        previous = json.loads(path.read_bytes())
        if not isinstance(previous, dict):
            raise ValueError(f"expected an object, not {type(previous).__name__}")
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError, OSError) as error:
        message = f"{path}: cannot be read ({error}). Remove the folder {out} and run again."
        raise FormatError(message, code="unreadable-file", value=path) from None
    return previous


def _claim_folder(out: Path, identity: Mapping[str, Any], outputs: Iterable[Path], *, redo: bool) -> None:
    """Write the settings into a new folder; refuse one with other settings, or clear it with `redo`.

    A folder without settings that already has one of the outputs was not written by this command.
    """
    path = work_folder(out) / SETTINGS
    settings = json.loads(json.dumps(identity))
    previous = _read_settings(path, out)
    if previous == settings:
        return
    if previous is None and not redo and (foreign := next((path for path in outputs if path.exists()), None)):
        message = f"{foreign}: exists, and lexome annotate did not write it. Choose another folder, or add --redo."
        raise UsageError(message, code="foreign-output", value=foreign)
    if previous is not None:
        if not redo:
            remedy = "Choose another folder, or add --redo to annotate everything again."
            refuse_other_settings(out, previous, settings, holds="files annotated with other settings", remedy=remedy)
        # The outputs that the marks list, then marks and settings.
        marks = work_folder(out) / "marks"
        for mark in sorted(marks.rglob("*.json")):
            with suppress(ValueError, LookupError, TypeError, RecursionError, OSError):
                # Without folders: a mark that someone has changed removes nothing elsewhere.
                output = Path(json.loads(mark.read_bytes())["outputs"][0]["name"]).name
                (out / mark.parent.relative_to(marks) / output).unlink(missing_ok=True)
        # All but the locks, which this process holds.
        shutil.rmtree(marks, ignore_errors=True)
        shutil.rmtree(work_folder(out) / "rejects", ignore_errors=True)
    write_json(path, settings)


def _remove_partial_files(out: Path, rejects: Path | None) -> None:
    """Remove partly written settings and rejects of a killed run; the pipeline removes its own."""
    for path in (work_folder(out) / SETTINGS, rejects):
        if path is not None and path.parent.is_dir():
            for partial in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
                partial.unlink(missing_ok=True)


# Names of the jobs


def inputs_by_name(
    paths: Sequence[Path], out: Path, format: str | None, *, rejects: Path | None = None, tally: Tally | None = None
) -> dict[str, tuple[Path, ...]]:
    """The files of each job by its name: their path relative to the input folder, without extensions.

    Files in `out` are not read, nor are `rejects` of an earlier run; it is a UsageError to name them. Inputs of the
    same name are distinguished by their folder. Files of other formats are counted in `tally`.
    """
    outputs = {out.resolve(), *(() if rejects is None else (rejects.resolve(),))}
    for path in paths:
        if path.resolve() == out.resolve() or (path.is_file() and _is_in(path, {out.resolve()})):
            raise UsageError(f"{path} is both input and output. Choose another folder.", code="same-file", value=path)
    tally = tally or Tally()
    # Before files are grouped: an output among them would separate files that belong together.
    inputs = [
        file for file in expand(paths, get_format(format) if format else None, tally) if not _is_in(file, outputs)
    ]
    jobs: dict[str, tuple[Path, ...]] = {}
    for files in work_units(inputs, format, tally):
        name = _unique_name(files[0], paths, jobs)
        if name in jobs:
            message = f"{files[0]} and {jobs[name][0]} would have the same output. Rename one."
            raise UsageError(message, code="same-file", value=files[0])
        jobs[name] = files
    if not paths:
        raise UsageError("no inputs; expected files, folders or archives.", code="no-inputs", value=paths)
    if not jobs:
        message = f"{paths[0]}: all readable files there are in the output folder {out}. Choose another."
        raise FormatError(message, code="same-file", value=paths[0])
    return jobs


def _is_in(file: Path, places: Set[Path]) -> bool:
    """Whether a file is one of these paths, or below one."""
    path = file.resolve()
    return path in places or not places.isdisjoint(path.parents)


def _unique_name(file: Path, inputs: Sequence[Path], taken: Container[str]) -> str:
    """A job's name; if it is taken, with the name of the file's folder, then also with the file's extension."""
    folders = [folder for folder in inputs if folder.is_dir() and file.is_relative_to(folder)]
    relative = file.relative_to(folders[0]) if folders else Path(file.name)
    path = PurePosixPath(*map(output_name, relative.parts[:-1]), _stem(relative.name))
    if str(path) in taken:
        path = path.with_name(output_name(f"{file.parent.name}-{path.name}"))
    if str(path) in taken:
        # Such as a.xml and a.json in one folder.
        return f"{path}-{PurePosixPath(uncompressed_name(file.name)).suffix.removeprefix('.')}"
    return str(path)


def _stem(name: str) -> str:
    """A file's name without the extensions of compression, archive and format."""
    plain = uncompressed_name(name)
    if is_archive(name):
        plain = plain.removesuffix(".tar").removesuffix(".tgz").removesuffix(".zip")
    endings = [ending for format in FORMATS for ending in format.extensions if plain.lower().endswith(ending)]
    stem = plain[: -len(max(endings, key=len))] if endings else PurePosixPath(plain).stem
    # A name that is only an extension, or a hidden one, which no reader would find again.
    return output_name(stem.lstrip(".") or plain.lstrip(".") or "file")
