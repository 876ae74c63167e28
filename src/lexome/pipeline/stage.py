"""The data types of bulk processing: steps, jobs, stages, engines, parts and results."""

import json
import os
import re
import shutil
import socket
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal, Protocol, Self

from lexome.document import Document
from lexome.errors import FormatError, LexomeError, UsageError, WorkerError
from lexome.files import digest, fingerprint, is_full

Step = Callable[[Iterator[Document]], Iterator[Document]]


class Advance(Protocol):
    """Reports progress since the last call: input bytes and, where the work counts them, documents."""

    def __call__(self, count: int, documents: int = 0, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Job:
    """One unit of work: input files and output files.

    `name` is unique in its stage and path-like, "pubmed/pubmed26n0001". Its identity is the
    name, size and modification time of its inputs. `settings` is passed to the work and must be picklable.
    """

    name: str
    inputs: tuple[Path, ...]
    outputs: tuple[Path, ...]
    settings: Any = None


Work = Callable[[Job, tuple[Path, ...], Advance], dict[str, Any]]
"""Writes a draft of each output of the job and returns a JSON-serializable report.

It must be importable by worker processes: a top-level function of an installed module. A draft has the name of its
output, suffix included, in a hidden folder beside it.
"""


@dataclass(frozen=True, slots=True)
class Stage:
    """Jobs of one kind, the function that runs them, and the folder of completion marks.

    A mark with another `fingerprint` is stale and its job runs again, so the fingerprint must cover every setting
    and version that the outputs depend on.
    """

    name: str
    work: Work
    jobs: tuple[Job, ...]
    marks: Path
    fingerprint: str

    def mark_of(self, job: Job) -> Path:
        """The path of a job's completion mark."""
        return self.marks / f"{job.name}.json"


@dataclass(frozen=True, slots=True)
class Engine:
    """Where jobs run: local processes or a Ray cluster.

    `workers` jobs run at a time, by default one per usable core; 0 (local only) runs them in this process, for
    debugging. `address` is that of a running cluster; without it a local Ray cluster is started and shut down.
    """

    kind: Literal["local", "ray"] = "local"
    workers: int | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("local", "ray"):
            raise UsageError(
                f"unknown engine {self.kind!r}; expected local or ray.", code="unknown-engine", value=self.kind
            )
        least = 0 if self.kind == "local" else 1
        if self.workers is not None and self.workers < least:
            raise UsageError(
                f"workers is {self.workers}; the {self.kind} engine needs at least {least}.",
                code="too-few-workers",
                value=self.workers,
            )
        if self.address is not None and self.kind != "ray":
            raise UsageError(
                f"address {self.address} needs the ray engine; the {self.kind} engine takes none.",
                code="address-without-ray",
                value=self.address,
            )


@dataclass(frozen=True, slots=True)
class Part:
    """Every `of`-th job, starting with the `number`-th: for batch systems that run one process per part."""

    number: int
    of: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of:
            raise UsageError(
                f"no part {self.number}/{self.of}; expected 1/{self.of} to {self.of}/{self.of}.",
                code="bad-part",
                value=f"{self.number}/{self.of}",
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a part such as "3/300"."""
        number, slash, of = text.partition("/")
        if not (slash and number.isdecimal() and of.isdecimal() and int(of)):
            raise UsageError(
                f"{text!r} is not a part; expected NUMBER/TOTAL, such as 3/300.", code="bad-part", value=text
            )
        return cls(int(number), int(of))

    def has(self, index: int) -> bool:
        """Whether the job at this index of its stage belongs to this part."""
        return index % self.of == self.number - 1


@dataclass(frozen=True, slots=True)
class StageResult:
    """The state of a stage's jobs after a run, by job name, in the stage's order.

    reports   of every finished job, whichever run finished it
    failures  the reason for each failed job
    waiting   unfinished jobs of other parts
    fresh     jobs that this run finished
    """

    reports: dict[str, dict[str, Any]]
    failures: dict[str, str]
    waiting: tuple[str, ...]
    fresh: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def done(self) -> bool:
        """Whether every job of the stage is finished."""
        return not self.failures and not self.waiting


@dataclass(frozen=True, slots=True)
class JobResult:
    """The report of one job, or why it failed."""

    name: str
    report: dict[str, Any] | None = None
    failure: str | None = None


def check(stage: Stage) -> None:
    """Raise UsageError for duplicate job names or outputs, names unfit for a mark, or an output that is an input."""
    for job in stage.jobs:
        pure = PurePosixPath(job.name)
        if pure.is_absolute() or ".." in pure.parts or str(pure) != job.name or job.name in ("", "."):
            raise UsageError(
                f"{stage.name}: bad job name {job.name!r}; expected a name such as pubmed/pubmed26n0001.",
                code="bad-job-name",
                value=job.name,
            )
    writers = Counter(path for job in stage.jobs for path in job.outputs)
    for what, counts in (("are named", Counter(job.name for job in stage.jobs)), ("write", writers)):
        if counts and counts.most_common(1)[0][1] > 1:
            which, times = counts.most_common(1)[0]
            raise UsageError(
                f"{stage.name}: {times} jobs {what} {which}; expected one. Do two inputs have the same name?",
                code="duplicate-job",
                value=which,
            )
    if both := sorted(writers.keys() & {path for job in stage.jobs for path in job.inputs}):
        raise UsageError(
            f"{stage.name}: {both[0]} is both input and output. Write to another folder.",
            code="input-is-output",
            value=both[0],
        )


# Running one job: write drafts, rename them, then write the completion mark


# A draft has its own folder: it keeps the output's suffix, by which writers choose format and compression,
# and yet no `*.parquet` matches it. The host part has no hyphen, so that the output's name can be parsed back.
DRAFT = re.compile(r"\.[A-Za-z0-9]+-[0-9]+-(?P<name>.+)\.part", re.DOTALL)
HOST_LETTERS = 40


def run_job(stage: Stage, job: Job, advance: Advance) -> JobResult:
    """Run a job: its outputs are renamed into place, then marked; on failure nothing changes."""
    try:
        return JobResult(job.name, report=_write_outputs(stage, job, advance))
    except LexomeError as error:
        return JobResult(job.name, failure=str(error))
    except (Exception, SystemExit) as error:
        if is_full(error):
            return JobResult(
                job.name, failure=f"no space left on the device for {job.outputs[0]}. Free some space and rerun."
            )
        if isinstance(error, OSError) and error.filename is not None:
            # The message of a file-system error suffices; the line of the program would not help.
            return JobResult(job.name, failure=f"{error.filename2 or error.filename}: {error.strerror}.")
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}, line {last.lineno}, in {last.name}: {last.line}"
        return JobResult(job.name, failure=f"{type(error).__name__}: {error} ({place})")


def load_report(stage: Stage, job: Job, *, verify: bool = False) -> dict[str, Any] | None:
    """The report in a job's completion mark; None if there is no mark, or it is damaged or stale.

    A mark is stale if the size of an input or output, or the modification time of an input, has changed; with
    `verify`, also if the content of one has changed.
    """
    try:
        mark = json.loads(stage.mark_of(job).read_bytes())
        if mark.pop("check") != fingerprint(mark):
            return None
        if mark["fingerprint"] != stage.fingerprint or mark["inputs"] != _input_identities(job.inputs):
            return None
        if mark["outputs"] != _output_sizes(job.outputs):
            return None
        if verify and mark["sha256"] != _digests(job.inputs, job.outputs):
            return None
        report: dict[str, Any] = mark["report"]
    # Damage of any kind: the job runs again.
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, FormatError):
        return None
    return report


def input_bytes(job: Job) -> int:
    """Bytes of a job's inputs. A missing input counts as 0 and fails when its job runs."""
    total = 0
    for path in job.inputs:
        with suppress(OSError):
            total += path.stat().st_size
    return total


def remove_drafts(stage: Stage, jobs: Iterable[Job]) -> None:
    """Remove drafts that killed runs left of these jobs; other jobs may be running elsewhere."""
    names: defaultdict[Path, set[str]] = defaultdict(set)
    for job in jobs:
        for path in (*job.outputs, stage.mark_of(job)):
            names[path.parent].add(path.name)
    for folder, ours in names.items():
        # One listing per folder: one per job would be quadratic.
        with suppress(FileNotFoundError), os.scandir(folder) as entries:
            for entry in entries:
                if (draft := DRAFT.fullmatch(entry.name)) and draft["name"] in ours:
                    _remove(Path(entry.path))


def _write_outputs(stage: Stage, job: Job, advance: Advance) -> dict[str, Any]:
    before = _input_identities(job.inputs)
    mark = stage.mark_of(job)
    places = [_draft_path(path) for path in job.outputs]
    mark_draft = _draft_path(mark)
    drafts = tuple(place / path.name for place, path in zip(places, job.outputs, strict=True))
    try:
        for place in places:
            place.mkdir(parents=True, exist_ok=True)
        report = stage.work(job, drafts, advance)
        if not isinstance(report, dict):
            raise TypeError(f"the work of {stage.name} returned {type(report).__name__}; expected a dict")
        if _input_identities(job.inputs) != before:
            raise FormatError(
                f"{job.name}: an input changed while it was read. Rerun when it is complete.",
                code="input-changed",
                value=job.name,
            )
        content = {
            "fingerprint": stage.fingerprint,
            "inputs": before,
            "outputs": _sync_drafts(drafts),
            "sha256": _digests(job.inputs, drafts),
            "report": report,
        }
        # As it will be loaded: JSON turns the tuples of a report into lists.
        content = json.loads(json.dumps(content, allow_nan=False))
        text = json.dumps({**content, "check": fingerprint(content)}) + "\n"
        mark_draft.parent.mkdir(parents=True, exist_ok=True)
        mark_draft.write_text(text, encoding="ascii")
        _sync_drafts((mark_draft,))
        # A mark of earlier outputs is removed before they are replaced: a kill in between would otherwise leave a
        # mark that is valid for the earlier settings beside outputs of the new ones.
        if mark.exists():
            mark.unlink(missing_ok=True)
            _fsync(mark.parent)
        _rename(drafts, job.outputs)
        for place in places:
            _remove(place)
        # Last, so that a job with a mark leaves no drafts.
        _rename((mark_draft,), (mark,))
    finally:
        for place in (*places, mark_draft):
            _remove(place)
    loaded: dict[str, Any] = json.loads(text)["report"]
    return loaded


def _draft_path(path: Path) -> Path:
    """A hidden path beside the output that is unique to this process."""
    host = re.sub(r"[^A-Za-z0-9]", "", socket.gethostname())[:HOST_LETTERS] or "host"
    return path.parent / f".{host}-{os.getpid()}-{path.name}.part"


def _remove(place: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place, ignore_errors=True)
    else:
        place.unlink(missing_ok=True)


def _input_identities(paths: tuple[Path, ...]) -> list[dict[str, Any]]:
    identities = []
    for path in paths:
        try:
            status = path.stat()
        except OSError as error:
            raise FormatError(
                f"{path}: cannot be read ({error.strerror}); expected an input file.", code="unreadable", value=path
            ) from error
        # The name without its folder: a moved tree stays done.
        identities.append({"name": path.name, "size": status.st_size, "mtime_ns": status.st_mtime_ns})
    return identities


def _output_sizes(paths: tuple[Path, ...]) -> list[dict[str, Any]]:
    return [{"name": path.name, "size": path.stat().st_size} for path in paths]


def _digests(inputs: tuple[Path, ...], outputs: tuple[Path, ...]) -> dict[str, list[str | None]]:
    """SHA-256 of inputs and outputs. Reading them once more costs little compared with the work on them."""
    return {"inputs": [digest(path) for path in inputs], "outputs": [digest(path) for path in outputs]}


def _sync_drafts(drafts: tuple[Path, ...]) -> list[dict[str, Any]]:
    """Sync the drafts to disk; their sizes."""
    for draft in drafts:
        try:
            _fsync(draft)
        except FileNotFoundError:
            raise WorkerError(
                f"{draft.name}: the work did not write it. "
                "If another run is processing the same jobs, let it finish first.",
                code="missing-output",
                value=draft.name,
            ) from None
    return _output_sizes(drafts)


def _rename(drafts: tuple[Path, ...], outputs: tuple[Path, ...]) -> None:
    for draft, output in zip(drafts, outputs, strict=True):
        draft.replace(output)
    # After a power failure no mark may exist without its outputs.
    for folder in {output.parent for output in outputs}:
        _fsync(folder)


def _fsync(path: Path) -> None:
    if path.is_dir() and os.name == "nt":
        return  # Windows cannot open directories
    handle = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
