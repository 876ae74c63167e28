"""Bulk work over many files: each is a job, done once, whatever is killed on the way."""

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

from lexome.errors import PartialError
from lexome.files import usable_cores
from lexome.pipeline.local import Heard, run_here, run_pool
from lexome.pipeline.marks import size_of, stored, sweep
from lexome.pipeline.stage import Advance, Engine, Finished, Job, Outcome, Part, Stage, Step, Work, check
from lexome.progress import jobs_progress

__all__ = [
    "Advance",
    "Engine",
    "Job",
    "Outcome",
    "Part",
    "Stage",
    "Step",
    "Work",
    "connected",
    "run",
    "whole",
]

# Marks are many small files, and on a shared file system each takes its time: a few are asked for at once.
READERS = 16
LOCAL = Engine()
NAMED_FAILURES = 5


def run(stage: Stage, *, engine: Engine = LOCAL, part: Part | None = None, progress_shown: bool = True) -> Outcome:
    """What became of every job of the stage, after those of ours that were not done were run.

    Outputs are written as drafts, renamed, and marked as done last. A job whose mark fits is not run again, so a
    run that was killed anywhere can be started again and ends with the same bytes.
    """
    check(stage)
    ours = [job for index, job in enumerate(stage.jobs) if part is None or part.has(index)]
    reports = _stored(stage, ours)
    todo = [job for job in ours if job.name not in reports]
    failures: dict[str, str] = {}
    if todo:
        sweep(stage, todo)
        try:
            with closing(_run(stage, todo, engine=engine, shown=progress_shown)) as ends:
                for end in ends:
                    if end.report is not None:
                        reports[end.name] = end.report
                    else:
                        failures[end.name] = end.failure or "no reason was given"
        finally:
            sweep(stage, todo)
    # Others' marks come last: their parts may have ended meanwhile.
    mine = {job.name for job in ours}
    others = [job for job in stage.jobs if job.name not in mine]
    reports |= _stored(stage, others)
    names = [job.name for job in stage.jobs]
    return Outcome(
        reports={name: reports[name] for name in names if name in reports},
        failures={name: failures[name] for name in names if name in failures},
        waiting=tuple(job.name for job in others if job.name not in reports),
        fresh=frozenset(job.name for job in todo if job.name in reports),
    )


@contextmanager
def connected(engine: Engine) -> Iterator[None]:
    """Keep what the engine needs alive over several stages: a Ray cluster takes seconds to start."""
    if engine.kind != "ray":
        yield
        return
    from lexome.pipeline import cluster

    with cluster.connected(engine):
        yield


def whole(outcome: Outcome) -> dict[str, dict[str, Any]]:
    """The reports of a stage whose every job is done; PartialError names those that are not."""
    if outcome.failures:
        total = len(outcome.failures)
        lines = [f"  {name}: {why}" for name, why in list(outcome.failures.items())[:NAMED_FAILURES]]
        more = [f"  and {total - NAMED_FAILURES:,} more"] if total > NAMED_FAILURES else []
        raise PartialError(
            "\n".join([f"{total:,} of {_count(outcome):,} jobs failed; the others are done.", *lines, *more])
            + "\nMend or remove their inputs and run again: what is done is not done twice."
        )
    if outcome.waiting:
        raise PartialError(
            f"{len(outcome.waiting):,} of {_count(outcome):,} jobs are not done yet, first {outcome.waiting[0]}: "
            "they belong to other parts. Run again when those have ended."
        )
    return outcome.reports


def _count(outcome: Outcome) -> int:
    return len(outcome.reports) + len(outcome.failures) + len(outcome.waiting)


def _stored(stage: Stage, jobs: Sequence[Job]) -> dict[str, dict[str, Any]]:
    with ThreadPoolExecutor(READERS) as readers:
        found = readers.map(lambda job: stored(stage, job), jobs)
        return {job.name: report for job, report in zip(jobs, found, strict=True) if report is not None}


def _run(stage: Stage, todo: Sequence[Job], *, engine: Engine, shown: bool) -> Generator[Finished, None, None]:
    """The jobs' ends as they come, while a bar shows them."""
    sizes = {job.name: size_of(job) for job in todo}
    # Large ones first, so that the last to end is a small one.
    ordered = sorted(todo, key=lambda job: -sizes[job.name])
    with jobs_progress(stage.name, total=sum(sizes.values()), jobs=len(todo), shown=shown) as show:
        running: dict[str, tuple[int, int]] = {}
        bytes_done, documents, ended = 0, 0, 0

        def told() -> None:
            in_bytes, in_documents = (sum(held) for held in zip((0, 0), *running.values(), strict=True))
            show(bytes_done + in_bytes, ended, documents + in_documents)

        def heard(name: str, so_far: int, read: int) -> None:
            running[name] = (min(so_far, sizes[name]), read)
            told()

        with closing(_ends(stage, ordered, engine=engine, heard=heard)) as ends:
            for end in ends:
                running.pop(end.name, None)
                bytes_done, ended = bytes_done + sizes[end.name], ended + 1
                documents += (end.report or {}).get("documents", 0)
                told()
                yield end


def _ends(stage: Stage, jobs: Sequence[Job], *, engine: Engine, heard: Heard) -> Generator[Finished, None, None]:
    bare = replace(stage, jobs=())  # what travels to each worker
    if engine.kind == "ray":
        from lexome.pipeline.cluster import run_cluster

        yield from run_cluster(bare, jobs, engine=engine)
    elif engine.workers == 0:
        yield from run_here(bare, jobs, heard=heard)
    else:
        yield from run_pool(bare, jobs, workers=engine.workers or usable_cores(), heard=heard)
