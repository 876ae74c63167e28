"""The command line: commands parse arguments and print results. Each imports the function that does the work."""

import signal
import sys

from lexome.cli.annotate import annotate, embed, fill
from lexome.cli.app import app
from lexome.cli.convert import convert, convert_model
from lexome.cli.corpus import build, check, learn_vocab, shard, vocab_report
from lexome.cli.datasets import convert_bioasq, datasets
from lexome.cli.evaluate import evaluate
from lexome.cli.serve import serve
from lexome.cli.study import report, reproduce
from lexome.cli.train import distill, export, finetune, pretrain
from lexome.errors import LexomeError

__all__ = [
    "annotate",
    "app",
    "build",
    "check",
    "convert",
    "convert_bioasq",
    "convert_model",
    "datasets",
    "distill",
    "embed",
    "evaluate",
    "export",
    "fill",
    "finetune",
    "learn_vocab",
    "main",
    "pretrain",
    "report",
    "reproduce",
    "serve",
    "shard",
    "vocab_report",
]


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
