"""Several runs at a time on one device, each in a process of its own."""

import multiprocessing
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import torch

from lexome.errors import LexomeError, WorkerError
from lexome.infer.predictor import usable_cores
from lexome.recipe.finetune import FinetuneRecipe
from lexome.train.finetune.ground import RUNS, Ground, ground_of
from lexome.train.finetune.record import Facts
from lexome.train.finetune.run import carry_out
from lexome.train.finetune.runs import Run, settled

Ended = tuple[Run, Facts | None, str | None]
"""A run with what it came to, or with why it came to nothing."""

# In a worker: what its runs stand on, made when it starts.
_ground: list[Ground] = []


def in_processes(recipe: FinetuneRecipe, runs: Sequence[Run], *, tokenizer: Path, test: bool) -> Iterator[Ended]:
    """Carry runs out, as many at a time as the recipe has jobs; each is given when it ends.

    Every process reads the documents once. Cores are shared out evenly.
    """
    count = min(recipe.jobs, len(runs))
    threads = max(1, usable_cores() // count)
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(count, context, initializer=_begin, initargs=(recipe, tokenizer, threads))
    try:
        waiting = [pool.submit(_work, recipe, run, test) for run in runs]
        for ended in as_completed(waiting):
            yield ended.result()
    except (KeyboardInterrupt, GeneratorExit):
        # What is running would go on for minutes.
        end_processes(pool)
        raise
    except BrokenProcessPool:
        raise WorkerError(
            "a process of fine-tuning ended without a word; most often memory was short. Lower jobs, and run again: "
            "finished runs are kept."
        ) from None
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def end_processes(pool: ProcessPoolExecutor) -> None:
    """Stop the processes of a pool; the library has no way of its own before Python 3.14."""
    for process in list((pool._processes or {}).values()):
        process.terminate()


def _begin(recipe: FinetuneRecipe, tokenizer: Path, threads: int) -> None:
    # Ctrl-C reaches every process of the terminal; the first one decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(threads)
    _ground.append(ground_of(recipe, tokenizer))


def _work(recipe: FinetuneRecipe, run: Run, test: bool) -> Ended:
    try:
        folder = recipe.out / RUNS / run.name
        return run, carry_out(settled(recipe, run), run, _ground[0], folder, test=test), None
    except torch.OutOfMemoryError:
        return run, None, "the GPU's memory was short. Lower jobs, batch.pass_tokens or data.max_tokens."
    except LexomeError as error:
        return run, None, str(error)
