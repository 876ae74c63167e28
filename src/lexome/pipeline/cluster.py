"""The Ray engine: the same jobs on a cluster whose nodes share a file system."""

import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lexome.errors import MissingExtraError
from lexome.files import usable_cores
from lexome.pipeline.marks import run_job
from lexome.pipeline.stage import Engine, Job, JobResult, Stage

# Retries of a job whose worker or node died, on another node where there is one.
RETRIES = 3
TICK_S = 0.5
# Enough queued jobs that no core idles and that an autoscaler sees demand.
IN_FLIGHT_PER_CORE = 2


def run_cluster(stage: Stage, jobs: Sequence[Job], *, engine: Engine) -> Iterator[JobResult]:
    """Results as they arrive; each job is a remote function on one core.

    Inputs, outputs and marks must have the same paths on every node, where lexome must be installed.
    """
    ray = _ray()
    with engine_session(engine):
        remote = ray.remote(num_cpus=1, max_retries=RETRIES)(_perform)
        shared = ray.put(stage)
        waiting = list(reversed(jobs))
        running: dict[Any, Job] = {}
        try:
            while waiting or running:
                while waiting and len(running) < _max_in_flight(ray, engine):
                    job = waiting.pop()
                    running[remote.remote(shared, job)] = job
                ready, _ = ray.wait(list(running), timeout=TICK_S)
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
        return JobResult(job.name, failure=f"lost its worker or node {RETRIES + 1} times, last error: {first}")
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
def engine_session(engine: Engine) -> Iterator[None]:
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
