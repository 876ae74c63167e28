"""The command line: commands parse arguments and print results. Each imports the function that does the work."""

import codecs
import json
import os
import signal
import sys

# Importing these registers their commands.
from lexome.cli import annotate, convert, corpus, datasets, doctor, scores, search, serve, train  # noqa: F401
from lexome.cli.options import app, print_error
from lexome.errors import INTERRUPTS, LexomeError
from lexome.files import is_full

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line; errors become a message and an exit code."""
    _prepare_streams()
    interrupts: list[int] = []

    def interrupt(number: int, frame: object) -> None:
        interrupts.append(number)
        raise KeyboardInterrupt

    for number in INTERRUPTS:
        # All handled like Ctrl-C, so that temporary files are removed; nohup lets a command ignore SIGHUP.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    try:
        app(standalone_mode=True)
    except LexomeError as error:
        print_error(f"error: {error}")
        sys.exit(error.exit_code)
    except OSError as error:
        # A full disk, a lost network drive: a traceback would explain nothing.
        reason = error.strerror or str(error) or type(error).__name__
        print_error(f"error: {error.filename}: {reason}." if error.filename else f"error: {reason}.")
        sys.exit(1)
    except Exception:
        # Libraries turn an interruption while they are imported into errors of their own.
        if not interrupts:
            raise
        print_error("interrupted. Run the same command again.")
        sys.exit(130)
    finally:
        _flush_output()


def _prepare_streams() -> None:
    """Make the standard streams accept any text, even if they are closed or not UTF-8."""
    if os.name == "posix":
        # The next file to be opened would get the number of a closed stream, and with it what is printed.
        for number in range(3):
            try:
                os.fstat(number)
            except OSError:
                os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115  # until the process ends
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    codecs.register_error("json-escape", _escape)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="json-escape")


def _escape(error: UnicodeError) -> tuple[str, int]:
    r"""Characters that a stream cannot encode as JSON escapes, such as \u03b1: JSON stays valid, and text readable."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def _flush_output() -> None:
    """Flush standard output, and exit with 1 if it cannot be written: its reader, such as head, may have ended."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        # Python would report it once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if is_full(error):
            print_error("error: standard output: no space left on the device.")
        sys.exit(1)
