"""Waiting without a clock: tests wait on events, and time only bounds how long a test that fails may hang.

Nothing here measures speed: a busy machine must never decide whether a test passes. Speed is measured in benchmarks/.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Whether this is `make nightly`: large sizes instead of small ones.
NIGHTLY = os.environ.get("LEXOME_HYPOTHESIS") == "nightly"

# Many times longer than anything that works takes on a busy machine.
PATIENCE_S = 180.0


def wait_until(condition: Callable[[], object]) -> None:
    """Wait for something in another thread or process that signals no event."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.005)


@contextmanager
def linear_work(limit_s: float = 60.0) -> Iterator[None]:
    """Fails if the block took over a minute of this process's CPU time, which other processes do not add to.

    For inputs on which linear work takes a second at most and quadratic work takes many minutes.
    """
    start = time.process_time()
    yield
    assert time.process_time() - start < limit_s, "the work is not linear in the size of its input"
