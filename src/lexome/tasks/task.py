"""The interface of all tasks: encode documents into model inputs, decode logits into documents, score predictions.

T tokens of an example, G groups of labels, K labels of a group, C outputs of the head
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from lexome.document import Document, Range, Relation, Span, shorten
from lexome.errors import BadDocument, UsageError
from lexome.tasks.metrics.bootstrap import resample

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]

# The file in a fine-tuned model's folder that holds Task.settings().
TASK = "task.json"
# A target that the loss ignores, as in torch's cross_entropy.
IGNORE_INDEX = -100
# The character offset of special tokens, which stand nowhere in the text.
NO_OFFSET = -1

Head = Literal["token", "sequence", "span"]
Loss = Literal["choice", "binary", "value", "span", "pairs"]

Scores = dict[str, float]
"""Metrics by name; the first one selects models."""

Types = Collection[str]
"""Names of mention types."""


class Tokenizer(Protocol):
    """Splits a text into token ids with character offsets, without special tokens."""

    def encode(self, text: str) -> list[tuple[int, int, int]]:
        """Id, start and end of each token."""


@dataclass(frozen=True, slots=True)
class Frame:
    """How a model's inputs are built: special tokens around one text or two, and the maximum length."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]
    max_tokens: int
    segments: bool = True


@dataclass(frozen=True, slots=True)
class Example:
    """One model input: a window of a document.

    ids       token ids, special tokens included
    segments  token type ids: 0, or 1 for a second text
    starts    start of each token in the document's characters; NO_OFFSET for special tokens and questions
    ends      likewise, exclusive
    targets   None if not asked for. Token head: (T, groups) ints; sequence head: (groups,) ints or (C,) floats; span
              head: (2,) ints, first and last token; pairs: a row of ints for each pair of mentions. Labels are indices
              within their group; IGNORE_INDEX (NaN for a float) where the source does not annotate
    key       identifies the example for `decode`: the window's bounds, a question's id or the names of a pair
    """

    ids: Ints
    segments: Ints
    starts: Ints
    ends: Ints
    targets: NDArray[Any] | None = None
    key: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Transitions:
    """Transition scores of a CRF: from tag to tag (G, K, K), of the first and of the last tag (G, K)."""

    between: Floats
    first: Floats
    last: Floats


@dataclass(frozen=True, slots=True)
class NearMiss:
    """Text that resembles a mention of a type, its mean probability, and why it was not predicted."""

    place: Range
    type: str
    score: float
    reason: str


KINDS: "dict[str, type[Task]]" = {}
"""Every task class by its kind, in the order of their definition; `lexome.tasks` imports all of them."""


class Task(ABC):
    """A problem: the same object encodes for training and decodes for evaluation and serving.

    kind         the name of the task's class in settings
    head         the kind of head that it needs
    loss         "choice": one label of each group is right; "binary": each label is true or false; "value": one number;
                 "span": a first and a last token; "pairs": one relation or none for each pair of mentions
    labels       names of the head's outputs, group after group
    groups       the number of outputs in each group; usually all outputs are one group
    notes        counts of what could not be encoded as annotated
    types        mention types that it predicts; empty for tasks that predict no mentions
    extra        those of `types` that annotation reports only on request
    nested       whether mentions of different types may overlap
    annotated    the types that a source annotates, for sources that do not annotate all
    asked        the types that are trained on and scored
    transitions  what a CRF head has learned, if there is one
    """

    kind: ClassVar[str]
    head: Head
    loss: Loss
    labels: tuple[str, ...]
    groups: tuple[int, ...]
    notes: Counter[str]
    types: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    nested: bool = False
    annotated: Mapping[str, tuple[str, ...]] = {}
    asked: frozenset[str] = frozenset()
    transitions: Transitions | None = None

    def __init_subclass__(cls) -> None:
        KINDS[cls.kind] = cls

    @abstractmethod
    def encode(self, doc: Document, tokenizer: Tokenizer, frame: Frame, *, with_targets: bool) -> list[Example]:
        """The examples of a document, without truncation; targets come from its annotations."""

    @abstractmethod
    def decode(
        self, doc: Document, examples: Sequence[Example], logits: Sequence[Floats], *, types: Types | None = None
    ) -> Document:
        """The document with predictions in place of its annotations, from (T, C) or (C,) logits of each example.

        `types` limits the mentions or relations that are predicted; tasks without either ignore it.
        """

    @abstractmethod
    def score(self, gold: Sequence[Document], predicted: Sequence[Document]) -> Scores:
        """Metrics of predicted documents against gold ones in the same order."""

    @abstractmethod
    def predictions(self, doc: Document) -> set[Hashable]:
        """What the task predicts of a document, as comparable items: two models agree on the items they share."""

    def settings(self) -> dict[str, Any]:
        """Kind and constructor arguments in JSON's types, from which tasks.task_of makes the task again."""
        names = signature(type(self)).parameters
        return {"kind": self.kind, **{name: _as_json(getattr(self, name)) for name in names}}

    @classmethod
    def infer_settings(cls, docs: Iterable[Document]) -> dict[str, Any]:
        """Settings that the annotations of training documents imply, such as their labels."""
        return {"kind": cls.kind}

    @property
    def document_labels(self) -> tuple[str, ...]:
        """The labels that predictions carry, other than mention types."""
        return self.labels

    @property
    def closed_labels(self) -> tuple[str, ...]:
        """The labels that documents may have, if any other one is an error; else none."""
        return ()

    @property
    def input_types(self) -> tuple[str, ...]:
        """Mention types that documents must be annotated with before the task can predict."""
        return ()

    @property
    def input_pairs(self) -> tuple[tuple[str, str], ...]:
        """The pairs of these types that it relates; any two where it has none."""
        return ()

    @property
    def uses_sentences(self) -> bool:
        """Whether documents are read sentence by sentence."""
        return False

    @property
    def needs_sentences(self) -> bool:
        """Whether training documents without sentences are split into them, as annotated ones are."""
        return False

    def source_types(self, source: str) -> tuple[str, ...]:
        """The mention types that a source is expected to annotate; empty for tasks without mentions."""
        return self.annotated.get(source, self.types or self.input_types)

    def for_source(self, name: str) -> Self:
        """The task for one source of documents: types that the source does not annotate are neither learned nor scored.

        It shares `notes` and `settings` with this one.
        """
        return self

    def require_crf(self) -> None:
        """Raise unless a CRF head can be trained for this task."""
        message = f"head.crf is for mentions, and this task labels a {self.head}. Leave it out."
        raise UsageError(message, code="crf-unsupported", value=self.kind)

    def with_transitions(self, transitions: Transitions) -> Self:
        """The task with a CRF's transition scores, which decoding adds to the logits."""
        self.require_crf()
        raise NotImplementedError

    def near_misses(
        self, doc: Document, examples: Sequence[Example], logits: Sequence[Floats], spans: Sequence[Span]
    ) -> Iterator[NearMiss]:
        """Text that resembles a mention but is none of the predicted `spans`."""
        return iter(())

    def oversize(self, doc: Document, limit: int) -> str | None:
        """Why encoding a document takes more than `limit` windows although its text is short, or None."""
        return None

    def resampled_scores(
        self, gold: Sequence[Document], predicted: Sequence[Document], *, samples: int, seed: int = 0
    ) -> Iterator[Scores]:
        """Scores of bootstrap samples of the documents; samples with nothing to score are skipped."""
        for places in resample(len(gold), samples=samples, seed=seed):
            scores = self.score([gold[place] for place in places], [predicted[place] for place in places])
            if not (scores.get("f1") == 0 and scores.get("accuracy") == 1):
                yield scores


def _as_json(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_as_json(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _as_json(item) for key, item in value.items()}
    return value


def require_names(names: Sequence[str], what: str) -> None:
    """Raise unless these are distinct names, at least one."""
    if isinstance(names, str) or not names or len(set(names)) < len(names) or not all(names):
        raise UsageError(
            f"{what} are {names!r}; expected a list of distinct names, at least one.", code="invalid-names", value=names
        )


def require_choice(value: str, choices: Sequence[str], what: str) -> None:
    """Raise unless a setting has one of the allowed values."""
    if value not in choices:
        raise UsageError(
            f"{what} is {value!r}; expected one of {', '.join(choices)}.", code="invalid-choice", value=value
        )


def require_overlap(overlap: int) -> None:
    """Raise unless the overlap of windows is a number of tokens."""
    if overlap < 0:
        raise UsageError(f"overlap is {overlap}; expected 0 or more tokens.", code="out-of-range", value=overlap)


def require_same_length(count: int, other: int, what: str, others: str) -> None:
    """Raise unless there are as many of one as of the other."""
    if count != other:
        message = f"there are {count} {what} and {other} {others}; expected as many."
        raise UsageError(message, code="length-mismatch", value=(count, other))


def require_logits(logits: Floats, expected: tuple[int, ...], doc: Document) -> None:
    """Raise unless an example's logits are finite and have this shape."""
    shape = np.shape(logits)
    if shape != expected:
        raise UsageError(
            f"document {shorten(doc.id)!r}: logits have shape {shape}; expected {expected}. The model's labels differ "
            "from the task's, or the logits belong to another example.",
            code="shape-mismatch",
            value=shape,
        )
    if not np.isfinite(logits).all():
        message = f"document {shorten(doc.id)!r}: logits contain NaN or infinity; the model's weights are damaged."
        raise UsageError(message, code="not-finite", value=doc.id)


def relations_of_other_types(doc: Document, types: Types) -> tuple[Relation, ...]:
    """The document's relations, without those of these types and those that refer to one of them, directly or not."""
    kept = tuple(relation for relation in doc.relations if relation.type not in types)
    removed = {relation.id for relation in doc.relations} - {relation.id for relation in kept}
    while removed:
        dangling = {
            relation.id for relation in kept if any(argument.target in removed for argument in relation.arguments)
        }
        kept = tuple(relation for relation in kept if relation.id not in dangling)
        removed = dangling
    return kept


def label_index(label: str, labels: Sequence[str], doc: Document) -> int:
    """The index of a document's label; BadDocument if the task does not have it."""
    if label not in labels:
        raise BadDocument(
            "unknown_label",
            f"document {shorten(doc.id)!r} has the label {label!r}; the task has {', '.join(map(repr, labels))}. "
            "Add it to the labels of the task, or rename it in the documents.",
        )
    return labels.index(label)


def task_of(settings: Mapping[str, Any]) -> Task:
    """The task that these settings describe: its kind, and arguments of its class.

    Missing arguments have their defaults.

    >>> task_of({"kind": "ner", "types": ["Gene"]}).labels
    ('O', 'B-Gene', 'I-Gene')
    """
    arguments = dict(settings)
    kind = arguments.pop("kind", None)
    if kind not in KINDS:
        message = f"the task has kind {kind!r}; expected one of {', '.join(KINDS)}."
        raise UsageError(message, code="unknown-task", value=kind)
    parameters = signature(KINDS[kind]).parameters
    unknown = sorted(arguments.keys() - parameters.keys())
    if unknown:
        message = f"a task of kind {kind!r} has no setting {unknown[0]!r}; expected some of {', '.join(parameters)}."
        raise UsageError(message, code="unknown-key", value=unknown[0])
    missing = [name for name, one in parameters.items() if one.default is one.empty and name not in arguments]
    if missing:
        message = f"a task of kind {kind!r} needs the setting {missing[0]!r}. Add it."
        raise UsageError(message, code="missing-key", value=missing[0])
    return KINDS[kind](**arguments)
