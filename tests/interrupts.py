"""For commands that a test starts and interrupts."""

import signal


def hear_interrupts() -> None:
    """As preexec_fn: undo what a shell does to what it runs in its background, which is to make it deaf to them."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
