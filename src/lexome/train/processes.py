"""Work shared out over processes on one device: cores divided evenly, an interrupt ends all of them."""

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

import torch

from lexome.errors import WorkerError
from lexome.infer.predictor import usable_cores

Given = TypeVar("Given")
Result = TypeVar("Result")
Begin = tuple[Callable[..., None], tuple[Any, ...]]
"""What each process does first: a function that a module has, and what it is given."""


def in_processes(
    work: Callable[[Given], Result], given: Sequence[Given], *, jobs: int, what: str, begin: Begin | None = None
) -> Iterator[Result]:
    """What a function that a module has comes to for each of these, as they end, up to `jobs` at a time."""
    count = min(jobs, len(given))
    threads = max(1, usable_cores() // count)
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(count, context, initializer=_begin, initargs=(threads, begin))
    try:
        for ended in as_completed([pool.submit(work, one) for one in given]):
            yield ended.result()
    except (KeyboardInterrupt, GeneratorExit):
        # What is running would go on for minutes.
        _end(pool)
        raise
    except BrokenProcessPool:
        raise WorkerError(
            f"a process of {what} ended without a word; most often memory was short. Lower jobs, and run again: "
            "finished runs are kept."
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(threads: int, begin: Begin | None) -> None:
    # Ctrl-C reaches every process of the terminal; the first one decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    if begin is not None:
        function, given = begin
        function(*given)


def _end(pool: ProcessPoolExecutor) -> None:
    """Stop the processes of a pool; the library has no way of its own before Python 3.14."""
    for process in list((pool._processes or {}).values()):
        process.terminate()
