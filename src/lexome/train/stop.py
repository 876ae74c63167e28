"""A run that is asked to stop: Ctrl-C and SIGTERM wait for the step that is being made."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM)
# torchrun hands on what the terminal has sent to all: signals that come together are one wish.
TOGETHER_S = 3.0
SAID = b"stopping when this step is done and saved; ask again to stop at once\n"


class Stopped(KeyboardInterrupt):
    """The run was asked to stop, and its state is saved; the message says where."""


class Stop:
    """Whether the run was asked to stop."""

    def __init__(self, *, told: bool = False) -> None:
        self.told = told
        self.asked_s: float | None = None

    @property
    def asked(self) -> bool:
        """True from the first signal on."""
        return self.asked_s is not None

    def hear(self, number: int, frame: object) -> None:
        """Take a signal down. Who asks again some seconds later does not want to wait: KeyboardInterrupt."""
        now = time.monotonic()
        if self.asked_s is not None and now - self.asked_s > TOGETHER_S:
            raise KeyboardInterrupt
        if self.asked_s is None:
            self.asked_s = now
            if self.told:
                # Not print: the signal may have come in the middle of one, which cannot be entered twice.
                os.write(2, SAID)


@contextmanager
def listening(*, told: bool = False) -> Iterator[Stop]:
    """Signals to stop are taken down and not raised. Only the main thread hears them; elsewhere nothing changes.

    Where it is to be `told`, the first one is answered on standard error, for a step may be long.
    """
    stop = Stop(told=told)
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop.hear) for number in SIGNALS}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
