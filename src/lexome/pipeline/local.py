"""The local engine: a pool of processes, one job at a time each; a death costs one job."""

import multiprocessing
import os
import signal
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from lexome.errors import WorkerError
from lexome.pipeline.marks import perform
from lexome.pipeline.stage import Advance, Finished, Job, Stage

# Bytes and documents done so far, of the job with this name.
Heard = Callable[[str, int, int], None]

READY = "ready"
RETRIES = 1
# Workers that die one after another before they are ready: the program cannot be started again, not a job's fault.
DEAD_STARTS = 3
TICK_S = 0.5
REPORT_S = 0.1
END_S = 5.0
INTERRUPTS = {signal.SIGINT, signal.SIGTERM}


def run_here(stage: Stage, jobs: Sequence[Job], *, heard: Heard) -> Iterator[Finished]:
    """The jobs' ends, one after another in this process."""
    for job in jobs:
        yield perform(stage, job, _counting(lambda so_far, job=job: heard(job.name, *so_far)))  # type: ignore[misc]


def run_pool(stage: Stage, jobs: Sequence[Job], *, workers: int, heard: Heard) -> Iterator[Finished]:
    """The jobs' ends as they come, from a pool of processes that ends with this iterator."""
    pool = _Pool(stage, jobs, wanted=workers, heard=heard)
    finished = False
    try:
        yield from pool.ends()
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
    def __init__(self, stage: Stage, jobs: Sequence[Job], *, wanted: int, heard: Heard) -> None:
        self._stage = stage
        self._queue = deque(jobs)
        self._wanted = wanted
        self._heard = heard
        self._workers: list[_Worker] = []
        self._deaths: Counter[str] = Counter()
        self._dead_starts = 0

    def ends(self) -> Iterator[Finished]:
        while busy := sum(worker.job is not None for worker in self._workers) + len(self._queue):
            while len(self._workers) < min(self._wanted, busy):
                self._start()
            self._hand_out()
            handles = [handle for worker in self._workers for handle in (worker.pipe, worker.process.sentinel)]
            awake = set(wait(handles, timeout=TICK_S))
            for worker in list(self._workers):
                if awake & {worker.pipe, worker.process.sentinel}:
                    yield from self._listen(worker)

    def close(self, *, kill: bool) -> None:
        """Ends the workers: at once, for their drafts can be thrown away, or when idle by asking them."""
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
        process = spawn.Process(target=_serve, args=(theirs, self._stage), name=f"lexome {self._stage.name}")
        with _interrupts_held():
            process.start()
            self._workers.append(_Worker(process, ours))
        theirs.close()

    def _hand_out(self) -> None:
        for worker in self._workers:
            if worker.ready and worker.job is None and self._queue:
                worker.job = self._queue.popleft()
                # To a worker that has just died nothing can be sent; its sentinel says so next.
                with suppress(BrokenPipeError, ConnectionResetError):
                    worker.pipe.send(worker.job)

    def _listen(self, worker: _Worker) -> Iterator[Finished]:
        # Asked before its messages are read: what it sent last is heard even if it is dead now.
        dead = worker.process.exitcode is not None
        try:
            while worker.pipe.poll():
                message = worker.pipe.recv()
                if isinstance(message, Finished):
                    worker.job = None
                    yield message
                elif isinstance(message, tuple) and worker.job is not None:
                    self._heard(worker.job.name, *message)
                else:
                    worker.ready, self._dead_starts = True, 0
        except (EOFError, OSError):
            dead = True
        if dead:
            yield from self._replace(worker)

    def _replace(self, worker: _Worker) -> Iterator[Finished]:
        """Takes a dead worker away; its job is tried once more, at the end, when large ones no longer run beside it."""
        worker.process.join(END_S)
        worker.process.kill()
        worker.process.join()
        how = _how_it_ended(worker.process.exitcode)
        worker.pipe.close()
        worker.process.close()
        self._workers.remove(worker)
        if not worker.ready:
            self._dead_starts += 1
            if self._dead_starts >= DEAD_STARTS:
                raise WorkerError(
                    f"{self._stage.name}: {DEAD_STARTS} worker processes one after another {how} before they began. "
                    "Started from a script, it needs `if __name__ == '__main__':` around its calls. "
                    "If memory is short, use fewer workers."
                )
        if (job := worker.job) is not None:
            self._deaths[job.name] += 1
            self._heard(job.name, 0, 0)
            if self._deaths[job.name] <= RETRIES:
                self._queue.append(job)
            else:
                yield Finished(job.name, failure=f"its worker process {how}, {self._deaths[job.name]} times")


def _how_it_ended(exitcode: int | None) -> str:
    if exitcode is None or exitcode >= 0:
        return f"ended with exit code {exitcode}"
    name = signal.Signals(-exitcode).name if -exitcode in set(signal.Signals) else f"signal {-exitcode}"
    return f"was ended by {name}" + (", which is how Linux frees memory" if name == "SIGKILL" else "")


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Nothing is cut short inside: a process started here is known before Ctrl-C or SIGTERM end the run.

    It inherits the deafness, until it says what it does with the two.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: "Connection[object, object]", stage: Stage) -> None:
    """Does the jobs that come through the pipe, until there comes None or the parent is gone."""
    # Ctrl-C reaches the whole group; it is the parent who decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTS)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    pipe.send(READY)
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        if not isinstance(job, Job):
            return
        pipe.send(perform(stage, job, _counting(pipe.send)))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        # No cleaning up: the next run does it.
        os._exit(1)


def _counting(tell: Callable[[tuple[int, int]], object]) -> Advance:
    """An Advance that tells the bytes and documents so far, seldom enough to cost nothing."""
    done, read, told_at = 0, 0, 0.0

    def advance(count: int, documents: int = 0) -> None:
        nonlocal done, read, told_at
        done, read = done + count, read + documents
        if (now := time.monotonic()) - told_at > REPORT_S:
            told_at = now
            tell((done, read))

    return advance
