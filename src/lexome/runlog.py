"""Progress of long work, on standard error."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")

# Often enough to look alive, seldom enough to cost nothing.
REFRESH_S = 0.1


@contextmanager
def progress(
    what: str, *, total: int, position: Callable[[], int], shown: bool = True
) -> Iterator[Callable[[Iterable[Item]], Iterator[Item]]]:
    """A function that passes items through while a bar shows bytes read, items, rate and time left.

    The bar appears only where standard error is a terminal.
    """
    if not (shown and sys.stderr.isatty()):
        yield iter
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[count]:,} documents, {task.fields[rate]:,.0f}/s"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
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
