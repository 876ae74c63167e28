"""Progress bars and log lines on standard error."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

Item = TypeVar("Item")

# Seconds between updates: smooth, and of no cost.
REFRESH_S = 0.1
# Seconds between lines where standard error is not a terminal.
LINE_S = 60.0


class OnJobsProgress(Protocol):
    """Called with the bytes, jobs and, where counted, documents finished so far."""

    def __call__(self, bytes_done: int, jobs_done: int, documents: int = 0, /) -> None: ...


@contextmanager
def progress(
    what: str, *, total: int, position: Callable[[], int], shown: bool = True
) -> Iterator[Callable[[Iterable[Item]], Iterator[Item]]]:
    """A function that passes items through while a bar shows bytes, items, rate and time left.

    The bar appears only on a terminal.
    """
    if not (shown and sys.stderr.isatty()):
        yield iter
        return
    with _bar("{task.fields[count]:,} documents, {task.fields[rate]:,.0f}/s") as bar:
        task = bar.add_task(what, total=total, count=0, rate=0.0)
        started = time.monotonic()

        def watched(items: Iterable[Item]) -> Iterator[Item]:
            shown_at = started
            for count, item in enumerate(items, 1):
                now = time.monotonic()
                if now - shown_at > REFRESH_S:
                    shown_at = now
                    bar.update(task, completed=position(), count=count, rate=count / (now - started))
                yield item

        yield watched


@contextmanager
def jobs_progress(what: str, *, total: int, jobs: int, shown: bool = True) -> Iterator[OnJobsProgress]:
    """A function to report finished bytes, jobs and documents: a bar on a terminal, elsewhere a line per minute."""
    started = time.monotonic()
    if not shown:
        yield lambda bytes_done, jobs_done, documents=0: None
    elif sys.stderr.isatty():
        with _bar("{task.fields[count]:,} of {task.fields[jobs]:,} jobs, {task.fields[rate]}") as bar:
            task = bar.add_task(what, total=total, count=0, jobs=jobs, rate="")

            def update(bytes_done: int, jobs_done: int, documents: int = 0) -> None:
                rate = _rates(bytes_done, documents, max(time.monotonic() - started, REFRESH_S))
                bar.update(task, completed=bytes_done, count=jobs_done, rate=rate)

            yield update
    else:
        shown_at = started

        def line(bytes_done: int, jobs_done: int, documents: int = 0) -> None:
            nonlocal shown_at
            if (now := time.monotonic()) - shown_at >= LINE_S:
                shown_at = now
                done = (bytes_done, total), (jobs_done, jobs)
                so_far = status_line(*done, elapsed_s=now - started, documents=documents)
                print(f"{what}: {so_far}", file=sys.stderr, flush=True)

        yield line


def status_line(in_bytes: tuple[int, int], in_jobs: tuple[int, int], *, elapsed_s: float, documents: int = 0) -> str:
    """A log line such as "3 of 12 jobs, 500 of 2,000 MB, 8.3 MB/s, 3 min left"."""
    done, total = in_bytes
    rate = done / elapsed_s
    left = f"{(total - done) / rate / 60:,.0f} min left" if done else "time left unknown"
    return (
        f"{in_jobs[0]:,} of {in_jobs[1]:,} jobs, {done / 1e6:,.0f} of {total / 1e6:,.0f} MB, "
        f"{_rates(done, documents, elapsed_s)}, {left}"
    )


def _rates(bytes_done: int, documents: int, elapsed_s: float) -> str:
    """Bytes per second, and documents per second where counted."""
    rate = f"{bytes_done / elapsed_s / 1e6:,.1f} MB/s"
    return f"{rate}, {documents / elapsed_s:,.1f} documents/s" if documents else rate


@contextmanager
def _bar(counts: str) -> "Iterator[Progress]":
    """A progress bar with bytes and time left; `counts` is the text between them."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TextColumn(counts),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield bar
