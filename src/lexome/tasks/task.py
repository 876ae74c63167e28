"""What every task shares: rows for a model, and the way from documents to rows and from numbers to documents.

T tokens of a row, C outputs of the head
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from lexome.document import Document, Range, Span, shorten
from lexome.errors import BadDocument, UsageError

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]

# The file beside a fine-tuned model that says what its numbers mean: Task.settings.
TASK = "task.json"
# A target where nothing is asked, as torch's losses have it.
IGNORE_INDEX = -100
# Where a token is special, and so stands nowhere in the text.
NO_OFFSET = -1

Head = Literal["token", "sequence", "span"]
Loss = Literal["choice", "binary", "value", "span"]


class Tokenizer(Protocol):
    """What a task needs of a tokenizer: ids with the places of their characters, nothing special around them."""

    def encode(self, text: str) -> list[tuple[int, int, int]]:
        """Each piece's id, and where it begins and ends in the text."""


@dataclass(frozen=True, slots=True)
class Frame:
    """How a model's rows are built: special tokens around one text or two, and the longest row."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    max_tokens: int
    segments: bool = True


@dataclass(frozen=True, slots=True)
class Example:
    """One input of a model, made of one window of a document.

    ids      token ids, special ones included
    segments 0, or 1 for a second text
    starts   of each token, the character of the document it begins at; NOWHERE for special tokens and questions
    ends     likewise, exclusive
    targets  what the model should say, or None where it is not known: for a token head (T, groups) ints, for a sequence
             head (groups,) ints or (C,) floats, for a span head (2,) ints, first and last token. A label's number is
             counted within its group. NOT_ASKED where the source does not say (NaN for a number)
    key      what `decode` has to know of it besides: a question's id, a pair of spans
    """

    ids: Ints
    segments: Ints
    starts: Ints
    ends: Ints
    targets: NDArray[Any] | None = None
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NearMiss:
    """Text that resembles a mention of a type, its mean probability, and why it was not predicted."""

    place: Range
    type: str
    score: float
    reason: str


Scores = dict[str, float]
"""Measures by name, the one that models are chosen by first."""


class Task(ABC):
    """A problem. The same object encodes for training, and decodes for scores and for serving.

    head     what kind of head answers it
    loss     "choice": in each group one label is right; "binary": each label is true or not; "value": one number;
             "span": a first and a last token
    labels   what the head's outputs are called, group after group
    groups   how many outputs each choice is among; one group of all of them is the usual case
    notes    what could not be said to the model as the documents say it, counted while rows were made
    kind     its name in `settings`, such as "ner"
    types    mention types that it predicts; empty for all tasks but NER
    extra    those of `types` that annotation predicts only on request
    """

    kind: str
    types: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()

    head: Head
    loss: Loss
    labels: tuple[str, ...]
    groups: tuple[int, ...]
    notes: Counter[str]

    def for_source(self, name: str) -> "Task":
        """The task as one source of documents knows it: what that source never annotates is not asked of it.

        It shares `notes` and `settings` with this one. Most tasks are the same for every source.
        """
        return self

    @abstractmethod
    def encode(self, doc: Document, tokenizer: Tokenizer, frame: Frame, *, with_targets: bool) -> list[Example]:
        """The document's rows; with `known`, targets are made of what it says. Nothing of it is cut off."""

    @property
    def document_labels(self) -> tuple[str, ...]:
        """Labels or relation types that decoding adds to a document; mention types are in `types`."""
        return self.labels

    @property
    def input_types(self) -> tuple[str, ...]:
        """Mention types that a document must contain before anything can be predicted."""
        return ()

    @property
    def uses_sentences(self) -> bool:
        """Whether documents need sentence boundaries."""
        return False

    def oversize(self, doc: Document, limit: int) -> str | None:
        """Why encoding a document takes more than `limit` windows although its text is short, or None."""
        return None

    def near_misses(
        self, doc: Document, rows: Sequence[Example], logits: Sequence[Floats], spans: Sequence[Span]
    ) -> Iterator["NearMiss"]:
        """Text that resembles a mention but is none of the predicted `spans`."""
        return iter(())

    @abstractmethod
    def decode(
        self, doc: Document, rows: Sequence[Example], logits: Sequence[Floats], *, types: Collection[str] | None = None
    ) -> Document:
        """The document with what the model says in place of what it said; (T, C) or (C,) numbers for each row.

        With `types`, only mentions of these types are predicted.
        """

    @abstractmethod
    def score(self, gold: Sequence[Document], found: Sequence[Document]) -> Scores:
        """How well documents agree with gold ones of the same ids in the same order."""

    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """All that is needed to make it again, in JSON's types, with its `kind`: tasks.task_of reads it."""


def require_names(names: Sequence[str], what: str) -> None:
    """Raise unless these are names, one or more of them, all different."""
    if isinstance(names, str) or not names or len(set(names)) < len(names) or not all(names):
        raise UsageError(f"{what} are {names!r}; expected a list of different names, at least one.")


def require_choice(seen: str, known: Sequence[str], what: str) -> None:
    """Raise unless a setting is one of those known."""
    if seen not in known:
        raise UsageError(f"{what} is {seen!r}; expected one of {', '.join(known)}.")


def require_overlap(overlap: int) -> None:
    """Raise unless this many tokens can be shared."""
    if overlap < 0:
        raise UsageError(f"overlap is {overlap}; expected a number of tokens, 0 or more.")


def require_same_length(count: int, other: int, what: str, others: str) -> None:
    """Raise unless there are as many of the one as of the other."""
    if count != other:
        raise UsageError(f"there are {count} {what} and {other} {others}; expected as many.")


def require_logits(numbers: Floats, expected: tuple[int, ...], doc: Document) -> None:
    """Raise unless a model's numbers for a row are finite and of this shape."""
    seen = np.shape(numbers)
    if seen != expected:
        raise UsageError(
            f"document {shorten(doc.id)!r}: a row has numbers of the shape {seen}; expected {expected}. The model has "
            "other labels than the task, or the numbers are another row's."
        )
    if not np.isfinite(numbers).all():
        raise UsageError(f"document {shorten(doc.id)!r}: a model says what is no number; its weights are damaged.")


def label_index(label: str, labels: Sequence[str], doc: Document) -> int:
    """The number of a label among a task's; BadDocument where it is none of them."""
    if label not in labels:
        raise BadDocument(
            "unknown_label",
            f"document {shorten(doc.id)!r} has the label {label!r}; the task has {', '.join(map(repr, labels))}. "
            "Name all labels in the task's settings, or rename those of the documents.",
        )
    return labels.index(label)
