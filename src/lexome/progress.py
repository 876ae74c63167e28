"""Progress bars and log lines on standard error."""

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

Item = TypeVar("Item")

# Seconds between updates: smooth, at no noticeable cost.
REFRESH_S = 0.1
# If standard error is not a terminal: seconds to the first line, and at most between two lines.
FIRST_LINE_S = 10.0
LINE_S = 60.0


class LineTimer:
    """When to print the next line: after 10 seconds, then 20, 40, and every minute."""

    def __init__(self, now: float) -> None:
        self.began = self.printed = now
        self.wait_s = min(FIRST_LINE_S, LINE_S)

    def due(self, now: float) -> bool:
        """Whether it is time; if so, the next interval begins."""
        if now - self.printed < self.wait_s:
            return False
        self.printed, self.wait_s = now, min(2 * self.wait_s, LINE_S)
        return True


class OnJobsProgress(Protocol):
    """Called with the bytes, jobs and, where counted, documents finished so far."""

    def __call__(self, bytes_done: int, jobs_done: int, documents: int = 0, /) -> None: ...


@contextmanager
def progress(
    what: str, *, total: int, position: Callable[[], int], detail: Callable[[], str] = str, shown: bool = True
) -> Iterator[Callable[[Iterable[Item]], Iterator[Item]]]:
    """A function that passes items through and shows progress: a bar on a terminal, occasional lines elsewhere.

    A thread reports bytes, items, rate and `detail`, so that progress is shown even during the first item.
    """
    if not shown:
        yield iter
        return
    count, started = 0, time.monotonic()

    def watched(items: Iterable[Item]) -> Iterator[Item]:
        nonlocal count
        for count, item in enumerate(items, 1):  # noqa: B007  # the thread reads the count
            yield item

    def counts() -> str:
        parts = [f"{count:,} documents", f"{count / max(time.monotonic() - started, REFRESH_S):,.1f}/s", detail()]
        return ", ".join(filter(None, parts))

    if sys.stderr.isatty():
        with _bar("{task.fields[counts]}") as bar:
            task = bar.add_task(what, total=total, counts="")
            with _repeat(lambda: bar.update(task, completed=position(), counts=counts()), every_s=REFRESH_S):
                yield watched
        return
    timer = LineTimer(started)

    def line() -> None:
        if timer.due(time.monotonic()):
            done = f"{position() / 1e6:,.1f} of {total / 1e6:,.1f} MB"
            print(f"{what}: {counts()}, {done}", file=sys.stderr, flush=True)

    with _repeat(line, every_s=REFRESH_S):
        yield watched


@contextmanager
def _repeat(report: Callable[[], None], *, every_s: float) -> Iterator[None]:
    """Call a function repeatedly in a thread while the context is open."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(every_s):
            report()

    thread = threading.Thread(target=repeat, name="lexome-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def jobs_progress(what: str, *, total: int, jobs: int, shown: bool = True) -> Iterator[OnJobsProgress]:
    """A function to report finished bytes, jobs and documents: a bar on a terminal, occasional lines elsewhere."""
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
        timer = LineTimer(started)

        def line(bytes_done: int, jobs_done: int, documents: int = 0) -> None:
            if timer.due(now := time.monotonic()):
                done = (bytes_done, total), (jobs_done, jobs)
                elapsed_s = max(now - started, REFRESH_S)
                so_far = status_line(*done, elapsed_s=elapsed_s, documents=documents)
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
def training_progress(command: str = "pretrain", *, shown: bool = True) -> Iterator[Callable[[float, str], None]]:
    """A function to report the fraction done and a message: a bar on a terminal, elsewhere lines now and then."""
    if not shown:
        yield lambda fraction, message: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        message_column = TextColumn("{task.fields[message]}")
        columns = (TextColumn(command), BarColumn(), TaskProgressColumn(), message_column, TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=1 / REFRESH_S) as bar:
            task = bar.add_task(command, total=1.0, message="")
            yield lambda fraction, message: bar.update(task, completed=fraction, message=message)
    else:
        yield _training_lines(command)


def _training_lines(command: str) -> Callable[[float, str], None]:
    """A function that prints a line when it is due. The time left is estimated from its first call on."""
    timer = LineTimer(time.monotonic())
    first: tuple[float, float] | None = None

    def report(fraction: float, message: str) -> None:
        nonlocal first
        now = time.monotonic()
        if first is None:
            first = fraction, now
        # Evaluation and writing after the last step may take long too, and must not look like a hang.
        if not (timer.due(now) or (fraction >= 1 and now - timer.began >= FIRST_LINE_S)):
            return
        left = ""
        if first[0] < fraction < 1:
            seconds = (1 - fraction) * (now - first[1]) / (fraction - first[0])
            left = f", {seconds / 60:,.0f} min left" if seconds >= 60 else f", {seconds:.0f} s left"
        elif fraction < 1:
            left = ", time left unknown"
        print(f"{command}: {fraction:.1%}, {message}{left}", file=sys.stderr, flush=True)

    return report


@contextmanager
def _bar(counts: str) -> "Iterator[Progress]":
    """A progress bar with bytes and time left; `counts` is the text between them."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    # On a narrow terminal the bar gives way: a line that wraps is left behind with each refresh.
    columns = (
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=None, table_column=Column(max_width=40)),
        DownloadColumn(table_column=Column(no_wrap=True)),
        TextColumn(counts, table_column=Column(no_wrap=True)),
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield bar
