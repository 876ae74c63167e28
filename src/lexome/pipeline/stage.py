"""The nouns of bulk work: steps, jobs, stages, engines, parts, outcomes."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal, Protocol, Self

from lexome.document import Document
from lexome.errors import UsageError

Step = Callable[[Iterator[Document]], Iterator[Document]]


class Advance(Protocol):
    """Called with what is done since the last call: bytes of input, and documents where the work counts them."""

    def __call__(self, count: int, documents: int = 0, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Job:
    """One unit of work: files to read, files to make.

    `name` is unique in its stage and path-like, "pubmed/pubmed26n0001". The inputs' name, size and time of change
    are its identity, and their size weighs its progress. `settings` is handed to the work and must be picklable.
    """

    name: str
    inputs: tuple[Path, ...]
    outputs: tuple[Path, ...]
    settings: Any = None


Work = Callable[[Job, tuple[Path, ...], Advance], dict[str, Any]]
"""Writes one draft for each output of the job and returns a report that JSON can hold.

A function at the top level of an installed module, so that another process can find it. A draft has the name and the
ending of its output, in a hidden folder beside it.
"""


@dataclass(frozen=True, slots=True)
class Stage:
    """Jobs of one kind, the work that does them, and the folder of marks that says which are done.

    A mark with another `fingerprint` is stale, and its job is done again: put into it every setting and version that
    the outputs depend on.
    """

    name: str
    work: Work
    jobs: tuple[Job, ...]
    marks: Path
    fingerprint: str

    def mark_of(self, job: Job) -> Path:
        """Where the completion mark of a job is."""
        return self.marks / f"{job.name}.json"


@dataclass(frozen=True, slots=True)
class Engine:
    """Where jobs run: processes of this machine, or a Ray cluster.

    `workers` is how many run at a time, by default the cores this process may use, or those of the cluster; 0, only
    local, runs the jobs in this process, for a debugger. `address` is that of a running cluster; without it Ray starts
    one on this machine and ends it afterwards.
    """

    kind: Literal["local", "ray"] = "local"
    workers: int | None = None
    address: str | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("local", "ray"):
            raise UsageError(f"there is no engine {self.kind!r}; expected local or ray.")
        least = 0 if self.kind == "local" else 1
        if self.workers is not None and self.workers < least:
            raise UsageError(f"{self.workers} workers; expected at least {least} with the {self.kind} engine.")
        if self.address is not None and self.kind != "ray":
            raise UsageError(f"the address {self.address} needs the ray engine; the {self.kind} one takes none.")


@dataclass(frozen=True, slots=True)
class Part:
    """Every `of`-th job, beginning with the `number`-th: for batch systems that start one process a part."""

    number: int
    of: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of:
            raise UsageError(f"there is no part {self.number}/{self.of}; expected one from 1/{self.of} on.")

    @classmethod
    def parse(cls, text: str) -> Self:
        """The part that a text such as "3/300" names."""
        number, slash, of = text.partition("/")
        if not (slash and number.isdecimal() and of.isdecimal() and int(of)):
            raise UsageError(f"{text!r} is no part; expected a number and how many there are, such as 3/300.")
        return cls(int(number), int(of))

    def has(self, index: int) -> bool:
        """True where the job at this place of its stage belongs to this part."""
        return index % self.of == self.number - 1


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a stage's jobs, by name, in the stage's order.

    `reports` has every job that is done, whoever did it and whenever; `failures` says why others are not; `waiting`
    are those of other parts that are not done yet; `fresh` are those of the reports that this run made.
    """

    reports: dict[str, dict[str, Any]]
    failures: dict[str, str]
    waiting: tuple[str, ...]
    fresh: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def done(self) -> bool:
        """True where every job of the stage is done."""
        return not self.failures and not self.waiting


@dataclass(frozen=True, slots=True)
class Finished:
    """One job's end: its report, or the reason that there is none."""

    name: str
    report: dict[str, Any] | None = None
    failure: str | None = None


def check(stage: Stage) -> None:
    """UsageError where two jobs have one name or make one file, or a name cannot be that of a mark."""
    for job in stage.jobs:
        pure = PurePosixPath(job.name)
        if pure.is_absolute() or ".." in pure.parts or str(pure) != job.name or job.name in ("", "."):
            raise UsageError(
                f"{stage.name}: a job is named {job.name!r}; expected a name such as pubmed/pubmed26n0001."
            )
    made = Counter(path for job in stage.jobs for path in job.outputs)
    for what, counts in (("named", Counter(job.name for job in stage.jobs)), ("making", made)):
        if counts and counts.most_common(1)[0][1] > 1:
            which, times = counts.most_common(1)[0]
            raise UsageError(f"{stage.name}: {times} jobs {what} {which}; expected one. Are two inputs of one name?")
    if both := sorted(made.keys() & {path for job in stage.jobs for path in job.inputs}):
        raise UsageError(f"{stage.name}: {both[0]} is both input and output. Write to another folder.")
