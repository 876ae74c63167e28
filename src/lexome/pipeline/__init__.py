"""Bulk processing of many files as jobs, each of which runs once, even if the run is killed and restarted.

Jobs run in this process, in a pool of worker processes, where a crash costs one job at most, or on Ray.
"""

import logging
import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from lexome.errors import INTERRUPTS, MissingExtraError, PartialError, WorkerError
from lexome.files import usable_cores
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
    run_job,
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

# Called with a job's name, its bytes and its documents so far.
OnProgress = Callable[[str, int, int], None]

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
    """Run the unfinished jobs of a stage, or of one part of it, and return the state of all its jobs.

    Outputs are written as drafts, renamed, and marked last. A job with a valid mark is not run again, so a killed run
    can be restarted, with byte-identical results. With `verify`, a mark is valid only if the contents of inputs and
    outputs are those that its job read and wrote.
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
        reports = readers.map(lambda job: load_report(stage, job, verify=verify), jobs)
        return {job.name: report for job, report in zip(jobs, reports, strict=True) if report is not None}


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


# Where jobs run

READY = "ready"
RETRIES = 1
# Consecutive workers that die before they are ready: the interpreter cannot be started, no job is at fault.
DEAD_STARTS = 3
TICK_S = 0.5
REPORT_S = 0.1
END_S = 5.0


def run_inline(stage: Stage, jobs: Sequence[Job], *, on_progress: OnProgress) -> Iterator[JobResult]:
    """Run the jobs sequentially in this process."""
    for job in jobs:
        yield run_job(stage, job, _throttle(lambda so_far, job=job: on_progress(job.name, *so_far)))  # type: ignore[misc]


def run_pool(stage: Stage, jobs: Sequence[Job], *, workers: int, on_progress: OnProgress) -> Iterator[JobResult]:
    """Results as they arrive from a pool of processes, which is shut down with this iterator."""
    pool = _Pool(stage, jobs, size=workers, on_progress=on_progress)
    finished = False
    try:
        yield from pool.results()
        finished = True
    finally:
        pool.close(kill=not finished)


@dataclass(slots=True)
class _Worker:
    process: SpawnProcess
    pipe: "Connection[object, object]"
    ready: bool = False
    job: Job | None = None


class _Pool:
    def __init__(self, stage: Stage, jobs: Sequence[Job], *, size: int, on_progress: OnProgress) -> None:
        self._stage = stage
        self._queue = deque(jobs)
        self._size = size
        self._on_progress = on_progress
        self._workers: list[_Worker] = []
        self._deaths: Counter[str] = Counter()
        self._dead_starts = 0

    def results(self) -> Iterator[JobResult]:
        while busy := sum(worker.job is not None for worker in self._workers) + len(self._queue):
            while len(self._workers) < min(self._size, busy):
                self._start()
            self._hand_out()
            handles = [handle for worker in self._workers for handle in (worker.pipe, worker.process.sentinel)]
            awake = set(wait(handles, timeout=TICK_S))
            for worker in list(self._workers):
                if awake & {worker.pipe, worker.process.sentinel}:
                    yield from self._listen(worker)

    def close(self, *, kill: bool) -> None:
        """Shut the workers down; `kill` does not wait for running jobs, whose drafts are discarded."""
        for worker in self._workers:
            if kill:
                worker.process.kill()
            with suppress(OSError):
                worker.pipe.send(None)
        for worker in self._workers:
            worker.process.join(END_S)
            worker.process.kill()
            worker.process.join()
            worker.pipe.close()
            worker.process.close()

    def _start(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=_worker_main, args=(theirs, self._stage), name=f"lexome {self._stage.name}")
        with _block_interrupts():
            process.start()
            self._workers.append(_Worker(process, ours))
        theirs.close()

    def _hand_out(self) -> None:
        for worker in self._workers:
            if worker.ready and worker.job is None and self._queue:
                worker.job = self._queue.popleft()
                # A worker that has just died is detected by its sentinel.
                with suppress(BrokenPipeError, ConnectionResetError):
                    worker.pipe.send(worker.job)

    def _listen(self, worker: _Worker) -> Iterator[JobResult]:
        # Checked before its messages are read, so that the last ones of a dead worker are not lost.
        dead = worker.process.exitcode is not None
        try:
            while worker.pipe.poll():
                message = worker.pipe.recv()
                if isinstance(message, JobResult):
                    worker.job = None
                    yield message
                elif isinstance(message, tuple) and worker.job is not None:
                    self._on_progress(worker.job.name, *message)
                else:
                    worker.ready, self._dead_starts = True, 0
        except (EOFError, OSError):
            dead = True
        if dead:
            yield from self._replace(worker)

    def _replace(self, worker: _Worker) -> Iterator[JobResult]:
        """Remove a dead worker; its job is retried once, last, when no large jobs run beside it."""
        worker.process.join(END_S)
        worker.process.kill()
        worker.process.join()
        how = _describe_exit(worker.process.exitcode)
        worker.pipe.close()
        worker.process.close()
        self._workers.remove(worker)
        if not worker.ready:
            self._dead_starts += 1
            if self._dead_starts >= DEAD_STARTS:
                raise WorkerError(
                    f"{self._stage.name}: {DEAD_STARTS} consecutive worker processes {how} at start-up. "
                    "In a script, put calls under `if __name__ == '__main__':`. "
                    "If memory is short, use fewer workers.",
                    code="workers-not-starting",
                    value=how,
                )
        if (job := worker.job) is not None:
            self._deaths[job.name] += 1
            self._on_progress(job.name, 0, 0)
            if self._deaths[job.name] <= RETRIES:
                self._queue.append(job)
            else:
                yield JobResult(job.name, failure=f"its worker process {how}, {self._deaths[job.name]} times")


def _describe_exit(exitcode: int | None) -> str:
    if exitcode is None or exitcode >= 0:
        return f"ended with exit code {exitcode}"
    name = signal.Signals(-exitcode).name if -exitcode in set(signal.Signals) else f"signal {-exitcode}"
    return f"was killed by {name}" + (", probably by the out-of-memory killer" if name == "SIGKILL" else "")


@contextmanager
def _block_interrupts() -> Iterator[None]:
    """Block interrupting signals, so that a started process is registered before the run can be interrupted.

    The child inherits the mask and unblocks the signals itself.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _worker_main(pipe: "Connection[object, object]", stage: Stage) -> None:
    """Run jobs received through the pipe until None arrives or the parent exits."""
    # Ctrl-C and the end of a terminal reach the whole process group; only the parent reacts.
    for number in INTERRUPTS - {signal.SIGTERM}:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTS)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    pipe.send(READY)
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        if not isinstance(job, Job):
            return
        pipe.send(run_job(stage, job, _throttle(pipe.send)))


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        # No cleanup: the next run removes the drafts.
        os._exit(1)


def _throttle(send: Callable[[tuple[int, int]], object]) -> Advance:
    """An Advance that forwards running totals at most every REPORT_S seconds."""
    done, read, sent_at = 0, 0, 0.0

    def advance(count: int, documents: int = 0) -> None:
        nonlocal done, read, sent_at
        done, read = done + count, read + documents
        if (now := time.monotonic()) - sent_at > REPORT_S:
            sent_at = now
            send((done, read))

    return advance


# Ray: the same jobs on a cluster whose nodes share a file system


# Retries of a job whose worker or node died, on another node if there is one.
CLUSTER_RETRIES = 3
CLUSTER_TICK_S = 0.5
# Enough queued jobs that no core idles and that an autoscaler sees demand.
IN_FLIGHT_PER_CORE = 2


def run_cluster(stage: Stage, jobs: Sequence[Job], *, engine: Engine) -> Iterator[JobResult]:
    """Results as they arrive; each job is a remote function on one core.

    Inputs, outputs and marks must have the same paths on every node, where lexome must be installed.
    """
    ray = _ray()
    with ray_session(engine):
        remote = ray.remote(num_cpus=1, max_retries=CLUSTER_RETRIES)(_perform)
        shared = ray.put(stage)
        waiting = list(reversed(jobs))
        running: dict[Any, Job] = {}
        try:
            while waiting or running:
                while waiting and len(running) < _max_in_flight(ray, engine):
                    job = waiting.pop()
                    running[remote.remote(shared, job)] = job
                ready, _ = ray.wait(list(running), timeout=CLUSTER_TICK_S)
                for reference in ready:
                    yield _job_result(ray, reference, running.pop(reference))
        finally:
            for reference in running:
                ray.cancel(reference, force=True)


def _perform(stage: Stage, job: Job) -> JobResult:
    # Progress inside a job is not sent over the network: with thousands of jobs, finished ones are enough.
    return run_job(stage, job, lambda count, documents=0: None)


def _job_result(ray: Any, reference: Any, job: Job) -> JobResult:
    try:
        finished: JobResult = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        # Errors of the work itself are reported as failures; this is one of unpickling the job on the node.
        last = str(error).strip().splitlines()[-1]
        return JobResult(
            job.name, failure=f"could not start on its node: {last}. Is the same version of lexome installed there?"
        )
    except ray.exceptions.RayError as error:
        first = str(error).strip().partition("\n")[0]
        return JobResult(job.name, failure=f"lost its worker or node {CLUSTER_RETRIES + 1} times, last error: {first}")
    return finished


def _max_in_flight(ray: Any, engine: Engine) -> int:
    if engine.workers is not None:
        return engine.workers
    return max(1, int(ray.cluster_resources().get("CPU", 1))) * IN_FLIGHT_PER_CORE


def _ray() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ray
            import ray.exceptions
    except ImportError:
        raise MissingExtraError("ray", extra="cluster", purpose="the ray engine") from None
    return ray


@contextmanager
def ray_session(engine: Engine) -> Iterator[None]:
    """Connect to Ray: the caller's connection, else the cluster at the address, else a local one."""
    ray = _ray()
    if ray.is_initialized():
        yield
        return
    if engine.address:
        where: dict[str, Any] = {"address": engine.address}
    else:
        where = {"address": "local", "num_cpus": engine.workers or usable_cores(), "include_dashboard": False}
        # Ray's daemons read this from the environment: send no usage statistics.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with warnings.catch_warnings():
        # Ray's own deprecation warnings: nothing the user can act on.
        warnings.simplefilter("ignore")
        ray.init(logging_level=logging.ERROR, log_to_driver=False, **where)
    try:
        yield
    finally:
        ray.shutdown()
