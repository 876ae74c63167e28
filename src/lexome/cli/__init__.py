"""The command line: commands parse arguments and print results. Each imports the function that does the work."""

import signal
import sys

# Importing these registers their commands.
from lexome.cli import annotate, convert, corpus, datasets, doctor, scores, search, serve, train  # noqa: F401
from lexome.cli.options import app
from lexome.errors import LexomeError

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line; errors become a message and an exit code."""
    # SIGTERM is handled like Ctrl-C, so that temporary files are removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app(standalone_mode=True)
    except LexomeError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        # A full disk, a lost network drive: a traceback would explain nothing.
        print(f"error: {error.filename or 'a file'}: {error.strerror}.", file=sys.stderr)
        sys.exit(1)
