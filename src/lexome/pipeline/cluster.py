"""The Ray engine: the same jobs on a cluster whose nodes share a file system."""

import logging
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lexome.errors import MissingExtraError
from lexome.files import usable_cores
from lexome.pipeline.marks import perform
from lexome.pipeline.stage import Engine, Finished, Job, Stage

# Of a job whose worker or node died. Each is tried elsewhere, if there is an elsewhere.
RETRIES = 3
TICK_S = 0.5
# Enough waiting jobs that no core is idle between two, and that an autoscaler sees a need.
IN_FLIGHT_PER_CORE = 2


def run_cluster(stage: Stage, jobs: Sequence[Job], *, engine: Engine) -> Iterator[Finished]:
    """The jobs' ends as they come, each done by a remote function on one core.

    Inputs, outputs and marks must have the same paths on every node, and lexome must be installed there.
    """
    ray = _ray()
    with connected(engine):
        remote = ray.remote(num_cpus=1, max_retries=RETRIES)(_perform)
        shared = ray.put(stage)
        waiting = list(reversed(jobs))
        running: dict[Any, Job] = {}
        try:
            while waiting or running:
                while waiting and len(running) < _bound(ray, engine):
                    job = waiting.pop()
                    running[remote.remote(shared, job)] = job
                ready, _ = ray.wait(list(running), timeout=TICK_S)
                for reference in ready:
                    yield _end(ray, reference, running.pop(reference))
        finally:
            for reference in running:
                ray.cancel(reference, force=True)


def _perform(stage: Stage, job: Job) -> Finished:
    return perform(stage, job, _ignore)


def _ignore(count: int, documents: int = 0) -> None:
    """Bytes inside a job are not sent over the network: with thousands of jobs, whole ones show progress enough."""


def _end(ray: Any, reference: Any, job: Job) -> Finished:
    try:
        finished: Finished = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        # Not of the work, whose errors come back as reports: of reading the job or the work on the node.
        last = str(error).strip().splitlines()[-1]
        return Finished(job.name, failure=f"it could not begin on its node: {last}. Is lexome the same there?")
    except ray.exceptions.RayError as error:
        first = str(error).strip().partition("\n")[0]
        return Finished(job.name, failure=f"its worker or node was lost {RETRIES + 1} times, last with: {first}")
    return finished


def _bound(ray: Any, engine: Engine) -> int:
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
def connected(engine: Engine) -> Iterator[None]:
    """Ray, ready for jobs: as the caller connected it, else the cluster at the address, else one started here."""
    ray = _ray()
    if ray.is_initialized():
        yield
        return
    if engine.address:
        where: dict[str, Any] = {"address": engine.address}
    else:
        where = {"address": "local", "num_cpus": engine.workers or usable_cores(), "include_dashboard": False}
        # Ray's servers take this from the environment: a cluster of a run of ours tells nobody about it.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with warnings.catch_warnings():
        # Ray announces changes of its own to come; nothing its user can act on.
        warnings.simplefilter("ignore")
        ray.init(logging_level=logging.ERROR, log_to_driver=False, **where)
    try:
        yield
    finally:
        ray.shutdown()
