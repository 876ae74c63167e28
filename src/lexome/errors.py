"""Every error Lexome raises on purpose, each with the exit code the command line ends on.

A message says what was seen, what was expected and what to do.
"""


class LexomeError(Exception):
    """Anything Lexome refuses to do, with a message meant for the user."""

    exit_code = 1


class UsageError(LexomeError):
    """The call itself is wrong: an unknown format, option or argument."""

    exit_code = 2


class RecipeError(UsageError):
    """A recipe that cannot be read, or says something its stage does not know."""


class MissingExtraError(LexomeError):
    """An optional package is needed and not installed."""

    def __init__(self, package: str, *, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed. Run: pip install 'lexome[{extra}]'"
        )


class ShardError(LexomeError):
    """Token shards that are missing, damaged, or made by another tokenizer."""


class CheckpointError(LexomeError):
    """A model folder that is missing, damaged, or holds what Lexome does not know."""


class DivergedError(LexomeError):
    """A training whose loss is no number any more, or rises instead of falling."""


class DataSetError(LexomeError):
    """A data set that is missing, incomplete, damaged, or cannot give the numbers asked of it."""


class FormatError(LexomeError):
    """A file that cannot be read any further, or not at all."""


class BadDocument(LexomeError):
    """One document that cannot be read or written, while the rest of its file can.

    `reason` is a short name to count by, such as "malformed_xml" or "offset_mismatch".
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class DocumentError(BadDocument, ValueError):
    """A Document, Passage, Span or Relation that breaks the model's own rules."""


class PartialError(LexomeError):
    """Work over many files of which some are not done, while the rest is."""


class WorkerError(LexomeError):
    """Work that does not make what it should, or whose processes cannot be started."""
