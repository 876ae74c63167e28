"""The interface of all tasks: encode documents into model inputs, decode logits into documents, score predictions.

Long texts are split into overlapping windows of a model's length, and logits of tokens become those of units (words or
tokens), which carry the labels.

T tokens of an example or a document, U units of it, G groups of labels, K labels of a group, C outputs of the head
"""

import re
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from inspect import signature
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from lexome.document import MAX_OFFSET, Document, Passage, Range, Relation, Span, numbered_ids, shorten
from lexome.errors import BadDocument, CheckpointError, UsageError, did_you_mean
from lexome.frozen import fast_dataclass
from lexome.tasks.metrics.bootstrap import resample

if TYPE_CHECKING:
    from lexome.tasks.document_relation import PairScores

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.int64]

# The file in a fine-tuned model's folder that holds Task.settings().
TASK = "task.json"
# A target that the loss ignores, as in torch's cross_entropy.
IGNORE_INDEX = -100
# The character offset of special tokens, which are not in the text.
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
class PairOutputs:
    """The head's outputs for mention pairs: a vector and a number per side for each relation, then for each novelty.

    width                numbers in a vector
    schema_of_relation   the schema of each relation, (R,)
    schema_of_novelty    the schema of each novelty, (V,)
    """

    width: int
    schema_of_relation: Ints
    schema_of_novelty: Ints


@dataclass(frozen=True, slots=True)
class NearMiss:
    """Text that resembles a mention of a type, its mean probability, and why it was not predicted."""

    place: Range
    type: str
    score: float
    reason: str


@fast_dataclass
class PredictedMention:
    """A decoded mention, with its mean probability."""

    start: int
    end: int
    type: str
    score: float


@fast_dataclass
class CalibrationExample:
    """The score of a prediction and whether it is correct, which calibration is fitted to.

    type      the mention's or relation's type
    pool      the types that are calibrated together if one is rare; "" for none
    document  the number of its document
    """

    type: str
    pool: str
    score: float
    correct: bool
    document: int


Scale = Callable[[float, str], float]
"""A score on another scale: that of a type of mention or relation, or of a form of question."""

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
    pair_outputs what the outputs mean if the loss is "pairs"; only such tasks have it
    notes        counts of what could not be encoded as annotated
    types        mention types that it predicts; empty for tasks that predict no mentions
    extra        those of `types` that annotation reports only on request
    nested       whether mentions of different types may overlap
    relates      whether it predicts relations, of the types in `document_labels`
    annotated    the types that a source annotates, for sources that do not annotate all
    asked        the types that are trained on and scored
    transitions  what a CRF head has learned, if there is one
    table_keys   the keys of tables, by the setting that is a list of such tables
    """

    kind: ClassVar[str]
    head: Head
    loss: Loss
    labels: tuple[str, ...]
    groups: tuple[int, ...]
    pair_outputs: PairOutputs
    notes: Counter[str]
    types: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    nested: bool = False
    relates: ClassVar[bool] = False
    table_keys: ClassVar[Mapping[str, Collection[str]]] = {}
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
        """The predictions in a document as comparable items: two models agree on the items they share."""

    def settings(self) -> dict[str, Any]:
        """Kind and constructor arguments in JSON's types, from which tasks.task_of restores the task."""
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
        """The pairs of these types that it relates; any two if it has none."""
        return ()

    @property
    def forms(self) -> tuple[str, ...]:
        """The forms of questions that it answers; empty for tasks that answer none."""
        return ()

    def require_input(self, doc: Document) -> None:
        """BadDocument if the task cannot be applied to the document."""
        return

    def answers_any(self, docs: Iterable[Document]) -> bool:
        """Whether one of the documents has something to predict: for readers, a question of their form."""
        return True

    def answering_also(self, forms: Collection[str]) -> "Task":
        """The task that also answers questions of another form with its outputs, if `forms` lacks one."""
        return self

    @property
    def calibrated_types(self) -> tuple[tuple[str, str], ...]:
        """The types whose scores are calibrated, each with its pool, "" for none."""
        return tuple(("", type_) for type_ in self.types)

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

    def columns_of(self, types: Types) -> tuple[int, ...]:
        """The outputs that decoding these types needs."""
        return tuple(range(len(self.labels)))

    def predict_mentions(
        self, doc: Document, examples: Sequence[Example], logits: Sequence[Floats], *, types: Types
    ) -> list[PredictedMention]:
        """The mentions that `decode` gives a document, in reading order; none for tasks without mentions."""
        return []

    def rescale_scores(self, doc: Document, scale: Scale, *, types: Types | None = None) -> Document:
        """The document with the scores of this task's predictions on another scale; with `types`, only of these."""
        relation_types = self.document_labels if self.relates else ()
        chosen = {type_ for type_ in (*self.types, *relation_types) if types is None or type_ in types}
        if not chosen:
            return doc
        spans = tuple(
            replace(span, score=scale(span.score, span.type))
            if span.score is not None and self.types and span.type in chosen
            else span
            for span in doc.spans
        )
        relations = tuple(
            replace(relation, score=scale(relation.score, relation.type))
            if relation.score is not None and self.relates and relation.type in chosen
            else relation
            for relation in doc.relations
        )
        return replace(doc, spans=spans, relations=relations)

    def abstain(
        self,
        predicted: Document,
        doc: Document,
        examples: Sequence[Example],
        logits: Sequence[Floats],
        *,
        least: Mapping[str, float],
        scales: Mapping[str, Callable[[float], float]],
    ) -> Document:
        """`predicted` without answers to questions that the text seems not to answer.

        `least` is the minimum probability by form of question, and `scales` calibrate the probability that a text has
        an answer at all; without a scale, the best answer's score counts.
        """
        return predicted

    def explain(self, doc: Document, examples: Sequence[Example], logits: Sequence[Floats]) -> "list[PairScores]":
        """The probabilities of all pairs of entities, related or not; none for tasks that do not relate pairs."""
        return []

    def calibration_examples(
        self, source: str, gold: Sequence[Document], predicted: Sequence[Document]
    ) -> Iterator[CalibrationExample]:
        """The predictions of calibrated types in documents of a source that annotates them, correct or not."""
        return iter(())

    def near_misses(
        self, doc: Document, examples: Sequence[Example], logits: Sequence[Floats], spans: Sequence[Span]
    ) -> Iterator[NearMiss]:
        """Text that resembles a mention but is none of the predicted `spans`."""
        return iter(())

    def oversize(self, doc: Document, limit: int) -> str | None:
        """A reason why a document needs more than `limit` windows although its text is short, or None."""
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
    """Raise unless the two numbers are equal."""
    if count != other:
        message = f"there are {count} {what} and {other} {others}; expected equal numbers."
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
        message = (
            f"document {shorten(doc.id)!r}: logits contain NaN or infinity. The model's weights are damaged, or its "
            "training diverged: export or train it again."
        )
        raise CheckpointError(message, code="not-finite", value=doc.id)


def replace_relations(doc: Document, relations: Iterable[Relation], types: Types) -> Document:
    """The document with these relations, numbered in order, in place of all its relations of some types.

    Relations that refer to removed ones, even indirectly, and attributes of removed relations are removed too.
    """
    other = [relation for relation in doc.relations if relation.type not in types]
    kept, _ = drop_dangling(other, {relation.id for relation in doc.relations} - {relation.id for relation in other})
    used = {span.id for span in doc.spans} | {relation.id for relation in kept}
    ids = (name for name in numbered_ids("R") if name not in used)
    added = tuple(replace(relation, id=name) for relation, name in zip(relations, ids, strict=False))
    attributes = tuple(attribute for attribute in doc.attributes if attribute.target in used)
    return replace(doc, relations=(*kept, *added), attributes=attributes)


def relation_keys(doc: Document, types: Types) -> set[Hashable]:
    """What identifies the document's relations of these types: their types and arguments."""
    return {
        (relation.type, *((side.role, side.target, side.concept) for side in relation.arguments))
        for relation in doc.relations
        if relation.type in types
    }


def relation_roles(first: str, second: str) -> tuple[str, str]:
    """The roles of two entities in a relation: their types, or Arg1 and Arg2 for one type."""
    return (first, second) if first != second else ("Arg1", "Arg2")


def drop_dangling(relations: Iterable[Relation], removed: set[str]) -> tuple[tuple[Relation, ...], set[str]]:
    """The relations that refer to no removed id, directly or through other relations; and all ids that are removed."""
    kept, removed, missing = tuple(relations), set(removed), removed
    while missing:
        missing = {
            relation.id for relation in kept if any(argument.target in missing for argument in relation.arguments)
        }
        kept = tuple(relation for relation in kept if relation.id not in missing)
        removed |= missing
    return kept, removed


def label_index(label: str, labels: Sequence[str], doc: Document) -> int:
    """The index of a document's label; BadDocument if the task does not have it."""
    if label not in labels:
        raise BadDocument(
            "unknown_label",
            f"document {shorten(doc.id)!r} has the label {label!r}; the task has {', '.join(map(repr, labels))}. "
            "Add it to the labels of the task, or rename it in the documents.",
        )
    return labels.index(label)


# Kinds and settings of tasks, and what other libraries call them.
_FOREIGN_KINDS = {
    "ner": "token-classification named-entity-recognition",
    "classes": "text-classification sequence-classification multi-label-classification classification",
    "inference": "nli textual-entailment",
    "similarity": "sts semantic-similarity",
    "questions": "qa question-answering",
    "relation": "re relation-extraction",
}
_FOREIGN_SETTINGS = {
    "labels": "classes label-list label-names class-names relation-types",
    "labelling": "label-all-tokens labeling labeling-strategy",
    "longest": "max-answer-length max-answer-len",
    "overlap": "stride doc-stride",
    "pool": "pooling aggregation",
    "scheme": "tagging-scheme tag-scheme",
    "several": "multilabel multi-label",
    "types": "entity-types entities",
}


def _suggestion(name: str, foreign: Mapping[str, str], known: Collection[str]) -> str:
    """A hint on the intended name, for one from another library or a misspelled one; empty if none is similar."""
    spelled = name.lower().replace("_", "-")
    here = next((here for here, names in foreign.items() if here in known and spelled in names.split()), None)
    if here is not None:
        return f" Here it is {here!r}."
    return did_you_mean(name, known)


def task_of(settings: Mapping[str, Any]) -> Task:
    """The task that these settings describe: its kind, and arguments of its class.

    Missing arguments have their defaults.

    >>> task_of({"kind": "ner", "types": ["Gene"]}).labels
    ('O', 'B-Gene', 'I-Gene')
    """
    arguments = dict(settings)
    kind = arguments.pop("kind", None)
    if kind not in KINDS:
        hint = _suggestion(kind, _FOREIGN_KINDS, KINDS) if isinstance(kind, str) else ""
        message = f"the task has kind {kind!r}; expected one of {', '.join(KINDS)}.{hint}"
        raise UsageError(message, code="unknown-task", value=kind)
    parameters = signature(KINDS[kind]).parameters
    unknown = sorted(arguments.keys() - parameters.keys())
    if unknown:
        tables = [table for table, keys in KINDS[kind].table_keys.items() if unknown[0] in keys]
        hint = (
            f" It is a key of each of the {tables[0]}, as in [[task.{tables[0]}]]; move it there."
            if tables
            else _suggestion(unknown[0], _FOREIGN_SETTINGS, parameters)
        )
        message = (
            f"a task of kind {kind!r} has no setting {unknown[0]!r}; expected some of {', '.join(parameters)}.{hint}"
        )
        raise UsageError(message, code="unknown-key", value=unknown[0])
    missing = [name for name, one in parameters.items() if one.default is one.empty and name not in arguments]
    if missing:
        message = f"a task of kind {kind!r} needs the setting {missing[0]!r}. Add it."
        raise UsageError(message, code="missing-key", value=missing[0])
    return KINDS[kind](**arguments)


# Long texts as windows

# How suitable a token is to begin a window.
INSIDE, WORD, SENTENCE = 0, 1, 2

# A window begins at most this many tokens early in order to begin at a sentence.
SLACK = 64

# The highest code point that is white space.
LAST_SPACE = 0x3000

# The number of tokens in the hash that selects anchors.
HASHED = 8


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """The tokens of passages: ids, document offsets (none for white space), and rank as the first of a window."""

    ids: Ints
    starts: Ints
    ends: Ints
    begins: Ints

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, start: int, end: int) -> "TokenizedText":
        """The tokens of a range."""
        return TokenizedText(self.ids[start:end], self.starts[start:end], self.ends[start:end], self.begins[start:end])


_EMPTY = TokenizedText(*(np.zeros(0, np.int64) for _ in range(4)))


def tokenize(passages: Iterable[Passage], tokenizer: Tokenizer) -> TokenizedText:
    """The tokens of passages, one after another, with nothing between them."""
    parts = [_tokenize_passage(passage, tokenizer) for passage in passages] or [_EMPTY]
    if len(parts) == 1:
        return parts[0]
    arrays = ((part.ids, part.starts, part.ends, part.begins) for part in parts)
    return TokenizedText(*map(np.concatenate, zip(*arrays, strict=True)))


def _tokenize_passage(passage: Passage, tokenizer: Tokenizer) -> TokenizedText:
    text, offset = passage.text, passage.offset
    tokens = tokenizer.encode(text)
    ids, starts, ends = np.fromiter(chain.from_iterable(tokens), np.int64, 3 * len(tokens)).reshape(-1, 3).T.copy()
    # One entry past the end of the text, for a token without characters.
    space = np.ones(len(text) + 1, np.bool_)
    space[:-1] = whitespace_mask(text)
    for place in np.flatnonzero((starts >= ends) | space[starts] | space[ends - 1]).tolist():
        # Some tokenizers include the space before a word.
        token = text[starts[place] : ends[place]]
        start = starts[place] + len(token) - len(token.lstrip())
        starts[place], ends[place] = (start, start + len(token.strip())) if token.strip() else (NO_OFFSET, NO_OFFSET)
    visible = np.flatnonzero(starts != NO_OFFSET)
    visible_starts = starts[visible]
    begins = np.full(len(ids), INSIDE, np.int64)
    begins[visible[1:][ends[visible[:-1]] < visible_starts[1:]]] = WORD
    begins[visible[:1]] = WORD
    sentences = sorted({0, *(start - offset for start, _ in passage.sentences)})
    first = np.searchsorted(np.maximum.accumulate(visible_starts), sentences)
    begins[visible[first[first < len(visible)]]] = SENTENCE
    starts[visible] += offset
    ends[visible] += offset
    return TokenizedText(ids, starts, ends, begins)


def tokenize_text(text: str, tokenizer: Tokenizer) -> TokenizedText:
    """The tokens of a text that is not part of a document, such as a question."""
    tokens = tokenize((Passage(0, text),), tokenizer)
    no_offsets = np.full(len(tokens), NO_OFFSET, np.int64)
    return TokenizedText(tokens.ids, no_offsets, no_offsets, tokens.begins)


def text_capacity(frame: Frame, *, texts: int = 1) -> int:
    """How many tokens of text fit into an example besides its special tokens."""
    special = len(frame.before) + len(frame.after) + (len(frame.between) if texts == 2 else 0)
    if frame.max_tokens - special < texts:
        raise UsageError(
            f"max_tokens is {frame.max_tokens}, and {special} special tokens leave no room for text. "
            "Set a larger max_tokens.",
            code="out-of-range",
            value=frame.max_tokens,
        )
    return frame.max_tokens - special


def windows(begins: Sequence[int] | Ints, *, size: int, overlap: int) -> list[Range]:
    """Ranges of at most `size` tokens that cover all tokens, each sharing `overlap` or more with the next.

    A window begins at a sentence if one begins up to `overlap` (at most SLACK) tokens before it has to, else at a word,
    else (in a very long word) anywhere. The overlap is never more than half a window. Without tokens there is one empty
    window.

    >>> windows([2, 0, 1, 1, 2, 1, 1, 1], size=5, overlap=2)
    [(0, 5), (3, 8)]
    """
    count = len(begins)
    overlap = min(overlap, size // 2)
    ranges = [(0, min(size, count))]
    while ranges[-1][1] < count:
        start, end = ranges[-1]
        latest = max(end - overlap, start + 1)
        earliest = max(latest - min(overlap, SLACK), start + 1)
        places = [(quality, place) for quality in (SENTENCE, WORD) for place in range(latest, earliest - 1, -1)]
        begin = next((place for quality, place in places if begins[place] >= quality), latest)
        ranges.append((begin, min(begin + size, count)))
    return ranges


def anchored_windows(tokens: TokenizedText, *, size: int, overlap: int) -> list[Range]:
    """Windows like those of `windows`, except that their places depend only on nearby text.

    A long text is cut at anchors, and each part is read with half an overlap of context on either side; a part longer
    than a window takes several. So inserting or deleting text elsewhere moves no window.
    """
    count = len(tokens)
    if count <= size:
        return [(0, count)]
    overlap = min(overlap, size // 2)
    side = (overlap + 1) // 2
    # Parts are twice the reach long on average; few are too long for one window.
    cuts = [0, *_anchors(tokens, reach=max(1, (size - overlap) // 3)), count]
    ranges: list[Range] = []
    for low, high in pairwise(cuts):
        start, end = max(0, low - side), min(count, high + side)
        if ranges and end <= ranges[-1][1]:
            continue
        if ranges and start == ranges[-1][0]:
            ranges.pop()
        inner = windows(tokens.begins[start:end], size=size, overlap=overlap)
        ranges += [(start + first, start + last) for first, last in inner]
    return ranges


def _anchors(tokens: TokenizedText, *, reach: int) -> list[int]:
    """Tokens where a text may be cut: each is the best begin within `reach` tokens on either side.

    A sentence is better than a word; ties are decided by a hash of the next few tokens, as in any copy of the text.
    """
    ids = np.append(tokens.ids, np.zeros(HASHED - 1, np.int64)).astype(np.uint64)
    hashes = np.zeros(len(tokens), np.uint64)
    for number in range(HASHED):
        # 64-bit integers that overflow on purpose.
        hashes = (hashes ^ ids[number : number + len(tokens)]) * np.uint64(0x9E3779B97F4A7C15)
        hashes ^= hashes >> np.uint64(29)
    worst = np.uint64(0xFFFFFFFFFFFFFFFF)
    keys = (hashes >> np.uint64(2)) + ((SENTENCE - tokens.begins).astype(np.uint64) << np.uint64(62))
    keys[tokens.begins == INSIDE] = worst
    padded = np.concatenate((np.full(reach, worst), keys, np.full(reach, worst)))
    least = np.lib.stride_tricks.sliding_window_view(padded, reach).min(axis=1)
    before, behind = least[: len(tokens)], least[reach + 1 : reach + 1 + len(tokens)]
    # Of equal keys within reach of each other, the first.
    places = np.flatnonzero((keys < before) & (keys <= behind) & (keys < worst))
    return [place for place in places.tolist() if place]


def pair_windows(
    first: TokenizedText, second: TokenizedText, frame: Frame, *, overlap: int
) -> list[tuple[Range, Range]]:
    """Ranges of two texts that share an example, so that all of one meets all of the other.

    If both do not fit, the longer is cut into windows and the shorter is whole in each; a shorter text of more than
    half an example is cut too, and every window of one meets every window of the other.
    """
    capacity = text_capacity(frame, texts=2)
    if len(first) + len(second) <= capacity:
        return [((0, len(first)), (0, len(second)))]
    size = min(len(first), max(capacity // 2, capacity - len(second)))
    return [
        (left, right)
        for left in windows(first.begins, size=size, overlap=overlap)
        for right in windows(second.begins, size=capacity - size, overlap=overlap)
    ]


def assign_windows(ranges: Sequence[Range], count: int) -> Ints:
    """The window in which each token is farthest from an edge, the first one on ties.

    Training targets and decoding both use that window, where the token has the most context.
    """
    owners = np.full(count, NO_OFFSET, np.int64)
    best = np.full(count, -1, np.int64)
    for number, (start, end) in enumerate(ranges):
        places = np.arange(start, end)
        distance = np.minimum(places - start, end - 1 - places)
        better = distance > best[start:end]
        best[start:end][better] = distance[better]
        owners[start:end][better] = number
    return owners


def merge_windows(ranges: Sequence[Range], logits: Sequence[Floats], count: int) -> Floats:
    """Logits (T, C) of a whole text, each token's from its assigned window."""
    if list(ranges) == [(0, count)]:
        return np.asarray(logits[0], np.float64)
    owners = assign_windows(ranges, count)
    if (owners == NO_OFFSET).any():
        missing = int(np.argmin(owners))
        raise UsageError(
            f"token {missing} of {count} is in none of the {len(ranges)} examples; expected all examples of a document "
            "together.",
            code="missing-example",
            value=missing,
        )
    width = logits[0].shape[-1] if logits else 0
    merged = np.zeros((count, width), np.float64)
    for number, ((start, end), window) in enumerate(zip(ranges, logits, strict=True)):
        kept = owners[start:end] == number
        merged[start:end][kept] = window[kept]
    return merged


def single_example(
    tokens: TokenizedText, frame: Frame, *, targets: NDArray[Any] | None = None, key: tuple[str, ...] = ()
) -> Example:
    """An example of one text."""
    ids = np.concatenate((frame.before, tokens.ids, frame.after)).astype(np.int64)
    starts, ends = pad_special(tokens.starts, frame), pad_special(tokens.ends, frame)
    return Example(ids, np.zeros(len(ids), np.int64), starts, ends, targets, key)


def pad_special(values: Ints, frame: Frame, padding: int = NO_OFFSET) -> Ints:
    """Values of a text's tokens, with padding at the special tokens around them."""
    before = len(frame.before)
    padded = np.full((before + len(values) + len(frame.after), *values.shape[1:]), padding, np.int64)
    padded[before : before + len(values)] = values
    return padded


def pair_example(
    first: TokenizedText,
    second: TokenizedText,
    frame: Frame,
    *,
    targets: NDArray[Any] | None = None,
    key: tuple[str, ...] = (),
) -> Example:
    """An example of two texts; the second is segment 1 in models that have segments."""
    ids = np.concatenate((frame.before, first.ids, frame.between, second.ids, frame.after)).astype(np.int64)
    segments = np.zeros(len(ids), np.int64)
    if frame.segments:
        segments[len(frame.before) + len(first) + len(frame.between) :] = 1
    before, between, after = (
        np.full(len(special), NO_OFFSET, np.int64) for special in (frame.before, frame.between, frame.after)
    )
    starts = np.concatenate((before, first.starts, between, second.starts, after))
    ends = np.concatenate((before, first.ends, between, second.ends, after))
    return Example(ids, segments, starts, ends, targets, key)


def fill(
    indices: Sequence[int], lengths: Sequence[int], limit: int, *, sequences: int | None = None
) -> list[list[int]]:
    """Packs sequences in order into batches of at most `limit` tokens and `sequences` sequences; a longer one is alone.

    >>> fill(range(4), [3, 2, 9, 1], 6)
    [[0, 1], [2], [3]]
    """
    parts: list[list[int]] = []
    room = 0
    for index in indices:
        if not parts or lengths[index] > room or len(parts[-1]) == sequences:
            parts.append([])
            room = limit
        parts[-1].append(index)
        room -= lengths[index]
    return parts


def whitespace_mask(text: str) -> NDArray[np.bool_]:
    """Whether each character of a text is white space.

    >>> whitespace_mask("a b").tolist()
    [False, True, False]
    """
    mask: NDArray[np.bool_] = _character_kinds(text) == SPACE
    return mask


# What characters are to words; of those above LAST_SPACE, none is white space.
SPACE, LETTER, MARK, COMBINING, BEYOND = range(5)


# Cached, because a passage's words and the characters between them both need its kinds.
@lru_cache(maxsize=4)
def _character_kinds(text: str) -> NDArray[np.uint8]:
    """The kind of each character of a text."""
    if text.isascii():
        return np.frombuffer(text.encode("ascii").translate(_kinds_of_bytes()), np.uint8)
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    return _kinds_table()[np.minimum(codes, LAST_SPACE + 1)]


@cache
def _kinds_table() -> NDArray[np.uint8]:
    """The kind of each code point up to LAST_SPACE, and one entry for all above."""
    kinds = [
        SPACE
        if chr(code).isspace()
        else COMBINING
        if 0x300 <= code <= 0x36F
        else LETTER
        if chr(code).isalnum() or code == ord("_")
        else MARK
        for code in range(LAST_SPACE + 1)
    ]
    return np.array([*kinds, BEYOND], np.uint8)


@cache
def _kinds_of_bytes() -> bytes:
    """The kind of each byte of a text in ASCII, in the form of `bytes.translate`."""
    return _kinds_table()[:256].tobytes()


_NO_WORDS = np.zeros((0, 2), np.int64)

# Letters and digits with combining accents, or any other single character.
_WORD = re.compile(r"\w[\w\u0300-\u036f]*|[^\w\s]")
_PARAGRAPH_BREAK = re.compile(r"\n\s*\n")


@dataclass(frozen=True, slots=True)
class Units:
    """The units of a document in reading order.

    ranges  the characters of each unit
    of      the unit of each token; NO_OFFSET for white space
    firsts  the first token of each unit
    runs    ranges of units that a mention may not cross: paragraphs or sentences
    """

    ranges: tuple[Range, ...]
    of: Ints
    firsts: Ints
    runs: tuple[Range, ...]

    def covered(self, start: int, end: int) -> Range | None:
        """The range of units that a range of characters touches, or None."""
        first = bisect_right(self.ranges, start, key=lambda unit: unit[1])
        last = first
        while last < len(self.ranges) and self.ranges[last][0] < end:
            last += 1
        return (first, last) if last > first else None


def split_units(doc: Document, starts: Ints, ends: Ints, *, words: bool, sentences: bool = False) -> Units:
    """The units of a document's tokens: words, or with words=False the tokens themselves.

    Words are the source's own tokens where a passage has them, else runs of letters and digits, and single other
    characters. Tokens that share characters are one unit, and so are words that share a token. Characters that the
    tokenizer leaves out, such as an accent or a zero-width mark, belong to the unit they touch, if any.
    """
    of = np.full(len(starts), NO_OFFSET, np.int64)
    visible = np.flatnonzero(starts != NO_OFFSET)
    blocks = _adjoining(doc.passages)
    by_block = [_words(block) for block in blocks] if words else []
    begins, ranges_U2 = _merge_units(
        starts[visible], ends[visible], np.concatenate(by_block) if by_block else _NO_WORDS
    )
    is_first = np.zeros(len(visible), np.int64)
    is_first[begins] = 1
    of[visible] = np.cumsum(is_first) - 1
    # A unit is in the passage of its first token.
    firsts = visible[begins]
    ranges: list[Range] = []
    for block, low, high in _parts(blocks, starts[firsts]):
        ranges += _widen(block, ranges_U2[low:high])
    runs: list[Range] = []
    for passage, low, high in _parts(doc.passages, starts[firsts]):
        runs += _runs(passage, ranges, low, high, sentences=sentences)
    return Units(tuple(ranges), of, firsts, tuple(runs))


def _parts(passages: Sequence[Passage], starts: Ints) -> Iterator[tuple[Passage, int, int]]:
    """Each passage with the range of the ordered offsets that are in it."""
    bounds = np.searchsorted(starts, [*(passage.offset for passage in passages), MAX_OFFSET + 1]).tolist()
    return zip(passages, bounds, bounds[1:], strict=False)


def _adjoining(passages: Sequence[Passage]) -> list[Passage]:
    """The passages, merged where only one character of white space is between them.

    A call of numpy takes longer than its work on the few characters of a title or sentence.
    """
    blocks: list[list[Passage]] = []
    for passage in passages:
        last = blocks[-1][-1] if blocks else None
        if last is None or passage.offset != last.end + 1 or passage.tokens or last.tokens:
            blocks.append([])
        blocks[-1].append(passage)
    return [
        block[0] if len(block) == 1 else Passage(block[0].offset, "\n".join(passage.text for passage in block))
        for block in blocks
    ]


def _words(passage: Passage) -> Ints:
    """Start and end of each word of a passage, (W, 2)."""
    if passage.tokens:
        words = [word for word in passage.tokens if word[1] > word[0]]
        return np.array(words, np.int64).reshape(-1, 2)
    kinds = _character_kinds(passage.text)
    if (kinds >= COMBINING).any():
        edges = [edge for match in _WORD.finditer(passage.text) for edge in match.span()]
        return np.array(edges, np.int64).reshape(-1, 2) + passage.offset
    # The same in a fifth of the time, for text without combining accents.
    letters = kinds == LETTER
    inside = letters[1:] & letters[:-1]
    begins = kinds != SPACE
    ends = begins.copy()
    begins[1:][inside] = ends[:-1][inside] = False
    return np.array((np.flatnonzero(begins), np.flatnonzero(ends) + 1)).T + passage.offset


def _merge_units(starts: Ints, ends: Ints, words: Ints) -> tuple[Ints, Ints]:
    """The first token of each unit, and the units' ranges, (U, 2); none crosses a passage, as no word does."""
    if not len(starts):
        return starts, _NO_WORDS
    lows, highs = starts, ends
    if len(words):
        first = np.searchsorted(words[:, 1], starts, "right")
        last = np.searchsorted(words[:, 0], ends, "left") - 1
        touched = first <= last
        lows = np.where(touched, np.minimum(starts, words[np.minimum(first, len(words) - 1), 0]), starts)
        highs = np.where(touched, np.maximum(ends, words[last, 1]), ends)
    reached = np.maximum.accumulate(highs)
    is_first = np.ones(len(starts), np.bool_)
    is_first[1:] = starts[1:] >= reached[:-1]
    is_last = np.ones(len(starts), np.bool_)
    is_last[:-1] = is_first[1:]
    begins = np.flatnonzero(is_first)
    unit_starts, unit_ends = lows[begins], reached[is_last]
    np.maximum(unit_starts[1:], unit_ends[:-1], out=unit_starts[1:])
    return begins, np.array((unit_starts, unit_ends)).T


def _widen(passage: Passage, ranges_U2: Ints) -> list[Range]:
    """The ranges, widened by visible characters between them: to the unit before, or else to the one behind."""
    text, offset = passage.text, passage.offset
    ranges: list[Range] = list(zip(*ranges_U2.T.tolist(), strict=True))
    visible_before = np.zeros(len(text) + 1, np.int64)
    np.cumsum(_character_kinds(text) != SPACE, out=visible_before[1:])
    first_U, last_U = visible_before[ranges_U2.T - offset]
    if (last_U - first_U).sum() == visible_before[-1]:
        return ranges
    done = 0
    wider: list[Range] = []
    for number, (start, end) in enumerate(ranges):
        start, end = start - offset, end - offset
        while start > done and not text[start - 1].isspace():
            start -= 1
        limit = ranges[number + 1][0] - offset if number + 1 < len(ranges) else len(text)
        while end < limit and not text[end].isspace():
            end += 1
        done = end
        wider.append((start + offset, end + offset))
    return wider


def _runs(passage: Passage, ranges: Sequence[Range], first: int, last: int, *, sentences: bool) -> Iterator[Range]:
    breaks = _PARAGRAPH_BREAK.finditer(passage.text) if "\n" in passage.text else ()
    starts = {passage.offset + blank.end() for blank in breaks}
    if sentences:
        starts.update(start for start, _ in passage.sentences[1:])
    for start in sorted(starts):
        end = bisect_left(ranges, (start,), first, last)
        if end > first:
            yield first, end
        first = end
    yield first, last
