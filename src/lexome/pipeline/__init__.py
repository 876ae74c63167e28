"""Bulk processing of many files: each is a job that runs once, whatever is killed in between."""

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

from lexome.errors import PartialError
from lexome.files import usable_cores
from lexome.pipeline.engines import OnProgress, ray_session, run_cluster, run_inline, run_pool
from lexome.pipeline.stage import (
    Advance,
    Engine,
    Job,
    JobResult,
    Part,
    Stage,
    StageResult,
    Step,
    Work,
    check,
    input_bytes,
    load_report,
    remove_drafts,
)
from lexome.progress import jobs_progress

__all__ = [
    "Advance",
    "Engine",
    "Job",
    "Part",
    "Stage",
    "StageResult",
    "Step",
    "Work",
    "engine_session",
    "require_complete",
    "run",
]

# Marks are many small files, slow to read one by one on a shared file system.
READERS = 16
LOCAL = Engine()
NAMED_FAILURES = 5


def run(
    stage: Stage,
    *,
    engine: Engine = LOCAL,
    part: Part | None = None,
    verify: bool = False,
    progress_shown: bool = True,
) -> StageResult:
    """Run the unfinished jobs of a stage, or of one part of it; the state of all its jobs.

    Outputs are written as drafts, renamed, and marked last. A job with a valid mark is not run again, so that a
    killed run can be restarted and results with the same bytes. With `verify`, a mark is valid only if inputs and
    outputs have the bytes that its job read and wrote.
    """
    check(stage)
    ours = [job for index, job in enumerate(stage.jobs) if part is None or part.has(index)]
    reports = _load_reports(stage, ours, verify=verify)
    todo = [job for job in ours if job.name not in reports]
    failures: dict[str, str] = {}
    if todo:
        remove_drafts(stage, todo)
        try:
            with closing(_run_jobs(stage, todo, engine=engine, shown=progress_shown)) as results:
                for finished in results:
                    if finished.report is not None:
                        reports[finished.name] = finished.report
                    else:
                        failures[finished.name] = finished.failure or "unknown reason"
        finally:
            remove_drafts(stage, todo)
    # Marks of other parts are read last: those may have finished meanwhile.
    mine = {job.name for job in ours}
    others = [job for job in stage.jobs if job.name not in mine]
    reports |= _load_reports(stage, others, verify=False)
    names = [job.name for job in stage.jobs]
    return StageResult(
        reports={name: reports[name] for name in names if name in reports},
        failures={name: failures[name] for name in names if name in failures},
        waiting=tuple(job.name for job in others if job.name not in reports),
        fresh=frozenset(job.name for job in todo if job.name in reports),
    )


@contextmanager
def engine_session(engine: Engine) -> Iterator[None]:
    """Keep the engine running over several stages: a Ray cluster takes seconds to start."""
    if engine.kind != "ray":
        yield
        return
    with ray_session(engine):
        yield


def require_complete(result: StageResult) -> dict[str, dict[str, Any]]:
    """The reports of a finished stage; PartialError names the jobs that are not."""
    if result.failures:
        total = len(result.failures)
        lines = [f"  {name}: {why}" for name, why in list(result.failures.items())[:NAMED_FAILURES]]
        more = [f"  and {total - NAMED_FAILURES:,} more"] if total > NAMED_FAILURES else []
        raise PartialError(
            "\n".join([f"{total:,} of {_total(result):,} jobs failed; the others finished.", *lines, *more])
            + "\nFix or remove their inputs and rerun: finished jobs are not repeated.",
            code="failed-jobs",
            value=total,
        )
    if result.waiting:
        raise PartialError(
            f"{len(result.waiting):,} of {_total(result):,} jobs are unfinished, first {result.waiting[0]}: "
            "they belong to other parts. Rerun when those have finished.",
            code="unfinished-jobs",
            value=len(result.waiting),
        )
    return result.reports


def _total(result: StageResult) -> int:
    return len(result.reports) + len(result.failures) + len(result.waiting)


def _load_reports(stage: Stage, jobs: Sequence[Job], *, verify: bool) -> dict[str, dict[str, Any]]:
    with ThreadPoolExecutor(READERS) as readers:
        found = readers.map(lambda job: load_report(stage, job, verify=verify), jobs)
        return {job.name: report for job, report in zip(jobs, found, strict=True) if report is not None}


def _run_jobs(stage: Stage, todo: Sequence[Job], *, engine: Engine, shown: bool) -> Generator[JobResult, None, None]:
    """Results as they arrive, with a progress bar."""
    sizes = {job.name: input_bytes(job) for job in todo}
    # Largest first, so that the last to finish is a small one.
    ordered = sorted(todo, key=lambda job: -sizes[job.name])
    with jobs_progress(stage.name, total=sum(sizes.values()), jobs=len(todo), shown=shown) as show:
        running: dict[str, tuple[int, int]] = {}
        bytes_done, documents, ended = 0, 0, 0

        def update() -> None:
            in_bytes, in_documents = (sum(counts) for counts in zip((0, 0), *running.values(), strict=True))
            show(bytes_done + in_bytes, ended, documents + in_documents)

        def on_progress(name: str, so_far: int, read: int) -> None:
            running[name] = (min(so_far, sizes[name]), read)
            update()

        with closing(_iter_results(stage, ordered, engine=engine, on_progress=on_progress)) as results:
            for finished in results:
                running.pop(finished.name, None)
                bytes_done, ended = bytes_done + sizes[finished.name], ended + 1
                documents += (finished.report or {}).get("documents", 0)
                update()
                yield finished


def _iter_results(
    stage: Stage, jobs: Sequence[Job], *, engine: Engine, on_progress: OnProgress
) -> Generator[JobResult, None, None]:
    bare = replace(stage, jobs=())  # sent to each worker
    if engine.kind == "ray":
        yield from run_cluster(bare, jobs, engine=engine)
    elif engine.workers == 0:
        yield from run_inline(bare, jobs, on_progress=on_progress)
    else:
        yield from run_pool(bare, jobs, workers=engine.workers or usable_cores(), on_progress=on_progress)
