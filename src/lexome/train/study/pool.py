"""Tasks of a study several at a time on one device, each chain of them in a process of its own."""

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

import torch

from lexome.errors import WorkerError
from lexome.infer.predictor import usable_cores
from lexome.recipe.study import TaskTable
from lexome.train.finetune.pool import end_processes

Chain = list[TaskTable]
"""Tasks that come after one another, the first one first."""
Given = TypeVar("Given")
Result = TypeVar("Result")


def chains_of(tasks: Sequence[TaskTable]) -> list[Chain]:
    """The tasks in chains that do not wait for each other; those of several tasks first, for they take longest."""
    chains: dict[str, Chain] = {}
    roots: dict[str, str] = {}
    for task in tasks:
        roots[task.name] = task.name if task.after is None else roots[task.after]
        chains.setdefault(roots[task.name], []).append(task)
    return sorted(chains.values(), key=len, reverse=True)


def in_processes(work: Callable[[Given], Result], given: Sequence[Given], *, jobs: int) -> Iterator[Result]:
    """What a function that a module has comes to for each of these, as they end, in so many processes."""
    count = min(jobs, len(given))
    threads = max(1, usable_cores() // count)
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(count, context, initializer=_begin, initargs=(threads,))
    try:
        for ended in as_completed([pool.submit(work, one) for one in given]):
            yield ended.result()
    except (KeyboardInterrupt, GeneratorExit):
        end_processes(pool)
        raise
    except BrokenProcessPool:
        raise WorkerError(
            "a process of the study ended without a word; most often memory was short. Lower jobs, and run again: "
            "finished runs are kept."
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(threads: int) -> None:
    # Ctrl-C reaches every process of the terminal; the first one decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
