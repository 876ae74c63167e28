"""The exceptions Lexome raises, each with the exit code of the command line; and the signals that interrupt it.

A message states what was seen, what was expected and what to do. Programs and tests use `code` and `value`.
"""

import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

# Closing the terminal is an interruption, too. Windows has no SIGHUP.
INTERRUPTS = frozenset(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class LexomeError(Exception):
    """Base class.

    code   the kind of problem, such as "unknown-key"
    value  the offending value, such as the key
    """

    exit_code = 1

    def __init__(self, message: str, *, code: str = "error", value: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.value = value


class UsageError(LexomeError):
    """Invalid usage: an unknown format, option or argument."""

    exit_code = 2


class RecipeError(UsageError):
    """A recipe that cannot be parsed, or has keys or values its stage does not accept."""


# Without it, pip on Linux installs torch with CUDA: several gigabytes more (docs/reference/installation.md).
CPU_TORCH = "--extra-index-url https://download.pytorch.org/whl/cpu"


class MissingExtraError(LexomeError):
    """An optional dependency is not installed."""

    def __init__(self, package: str, *, extra: str, purpose: str) -> None:
        hint = f" (without a GPU, add {CPU_TORCH})" if extra in ("train", "transformers") else ""
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed. "
            f"Run: pip install 'lexome[{extra}]'{hint}",
            code="missing-extra",
            value=package,
        )


@contextmanager
def needs(extra: str, *, purpose: str) -> Iterator[None]:
    """Wrap the imports of a stage, so that a missing package is reported with the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "lexome":
            raise
        raise MissingExtraError(error.name, extra=extra, purpose=purpose) from None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A suggestion of the most similar known name, ignoring case, to append to a message; empty if none is similar.

    >>> did_you_mean("desease", ["Gene", "Disease"])
    " Did you mean 'Disease'?"
    """
    from difflib import get_close_matches

    spelled = {one.casefold(): one for one in known}
    similar = get_close_matches(name.casefold(), spelled, n=1)
    return f" Did you mean {spelled[similar[0]]!r}?" if similar else ""


class ShardError(LexomeError):
    """Token shards that are missing, corrupt, or made with another tokenizer."""


class CheckpointError(LexomeError):
    """A model folder that is missing, corrupt, or in an unknown layout."""


class DivergedError(LexomeError):
    """Training diverged: the loss is NaN or infinite, or keeps rising."""


class DataSetError(LexomeError):
    """A dataset that is missing, incomplete, corrupt, or lacks what was requested."""


class FormatError(LexomeError):
    """A file that cannot be read, or only in part."""


class BadDocument(LexomeError):
    """One document that cannot be read or written, while the rest of its file can.

    `reason`, also its `code`, names the kind of problem in counts: "malformed_xml", "offset_mismatch", ...
    """

    def __init__(self, reason: str, message: str, *, value: Any = None) -> None:
        super().__init__(message, code=reason, value=value)
        self.reason = reason


class DocumentError(BadDocument, ValueError):
    """A Document, Passage, Span or Relation that violates the document model."""


class SearchIndexError(LexomeError):
    """A search index that is missing, incomplete, damaged, in use, or was made with another model."""


class PartialError(LexomeError):
    """Some files of a bulk job failed; the others are done."""


class WorkerError(LexomeError):
    """A worker that did not write its outputs, or whose process could not be started."""
