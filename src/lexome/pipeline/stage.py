"""The data types of bulk processing: steps, jobs, stages, engines, parts and results."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal, Protocol, Self

from lexome.document import Document
from lexome.errors import UsageError

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
    made = Counter(path for job in stage.jobs for path in job.outputs)
    for what, counts in (("are named", Counter(job.name for job in stage.jobs)), ("write", made)):
        if counts and counts.most_common(1)[0][1] > 1:
            which, times = counts.most_common(1)[0]
            raise UsageError(
                f"{stage.name}: {times} jobs {what} {which}; expected one. Do two inputs have the same name?",
                code="duplicate-job",
                value=which,
            )
    if both := sorted(made.keys() & {path for job in stage.jobs for path in job.inputs}):
        raise UsageError(
            f"{stage.name}: {both[0]} is both input and output. Write to another folder.",
            code="input-is-output",
            value=both[0],
        )
