"""Annotates documents with exported models, without torch: the same encoding and decoding as in training."""

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from importlib import resources
from itertools import chain, islice
from math import exp, isnan, log
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from lexome.corpus.sentences import with_sentences
from lexome.document import Document
from lexome.errors import CheckpointError, UsageError
from lexome.infer.concepts import ConceptOptions, Concepts
from lexome.infer.predictor import CHANGED, SETTINGS, ModelSettings, Predictor, is_hugging_face, open_hugging_face
from lexome.infer.relation_explanation import NEAR, RelationExplanation, explain_pair
from lexome.infer.selection import (
    ALL_RULES,
    MinScore,
    Overlaps,
    Refined,
    Refinement,
    Selection,
    SelectionRequest,
    refine_document,
    select,
)
from lexome.tasks import Task, task_of
from lexome.tasks.task import Example, Floats, Frame, PredictedMention

if TYPE_CHECKING:
    from lexome.concepts.linker import Explanation

Curve = tuple[float, float]
"""Slope and intercept of Platt scaling, on the log-odds."""

# Scores are clipped to this distance from 0 and 1 before calibration.
EDGE = 1e-6
# Logit of a tag that the model does not have: far below every real one.
NEVER = -1e4


def calibrated(score: float, curve: Curve | None) -> float:
    """The calibrated score; without a curve, the score itself.

    >>> round(calibrated(0.9, (0.5, 0.0)), 3)
    0.75
    """
    if curve is None:
        return score
    clipped = min(max(score, EDGE), 1 - EDGE)
    slope, intercept = curve
    odds = slope * log(clipped / (1 - clipped)) + intercept
    # Either form overflows on one side.
    return 1 / (1 + exp(-odds)) if odds >= 0 else exp(odds) / (1 + exp(odds))


def answerable_key(form: str) -> str:
    """The key in `calibration` of the probability that texts answer a question of a form at all."""
    return f"{form} answerable"


class Model:
    """A model folder with its task.

    kind    ner, relation, document-relation, classes, inference, similarity or questions
    types   mention types that it predicts; empty unless it is an NER model
    extra   those of its types that it predicts only on request
    labels  relation types or classes that it predicts
    relation_types  those of them that are relation types
    """

    def __init__(self, predictor: Predictor, task: Task, *, columns: Sequence[int | None] | None = None) -> None:
        settings = predictor.settings
        self.predictor, self.settings, self.task = predictor, settings, task
        self.kind, self.types, self.extra, self.labels = task.kind, task.types, task.extra, task.document_labels
        self.relation_types = self.labels if task.relates else ()
        self.frame = Frame(
            settings.before, settings.between, settings.after, settings.max_tokens, segments=settings.segments
        )
        self._columns = columns

    @classmethod
    def open(cls, folder: str | Path, *, threads: int | None = None) -> "Model":
        """The model in a folder written by `lexome export`, or a Hugging Face token classifier as ONNX."""
        folder = Path(folder)
        if is_hugging_face(folder):
            predictor, columns = open_hugging_face(folder, threads=threads)
            return cls(predictor, _task_of(folder, predictor.settings), columns=columns)
        return cls.of(Predictor.open(folder, threads=threads))

    @classmethod
    def of(cls, predictor: Predictor, *, columns: Sequence[int | None] | None = None) -> "Model":
        """The model that a predictor runs; `columns` has the logits' column for each label, or None."""
        return cls(predictor, _task_of(predictor.folder, predictor.settings), columns=columns)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by its folder, which another process opens again."""
        return partial(Model.open, threads=self.predictor.threads), (self.predictor.folder.absolute(),)

    def with_predictor(self, predictor: Predictor) -> "Model":
        """This model, run by another predictor."""
        # Not by copy(), which would open the folder again, as unpickling does.
        model = object.__new__(type(self))
        vars(model).update(vars(self), predictor=predictor)
        return model

    def with_task(self, task: Task) -> "Model":
        """This model, decoded by another task for the same head."""
        return self if task is self.task else Model(self.predictor, task, columns=self._columns)

    @property
    def name(self) -> str:
        """Its name in model.json, or else that of its folder."""
        return self.settings.source.get("name") or self.predictor.folder.resolve().name

    def about(self) -> dict[str, Any]:
        """Description of the model for JSON."""
        return {
            "name": self.name,
            "task": self.kind,
            "types": [type_ for type_ in self.types if type_ not in self.extra],
            "extra_types": list(self.extra),
            "labels": list(self.labels),
            "precision": self.settings.precision,
            "max_tokens": self.settings.max_tokens,
            "calibrated": self.settings.calibration is not None,
            "source": dict(self.settings.source),
        }

    def encode(self, doc: Document) -> list[Example]:
        """Windows of the document to run the model on; nothing is truncated."""
        return self.task.encode(self._with_sentences(doc), self.predictor.tokenizer, self.frame, with_targets=False)

    def run(self, examples: Sequence[Example], *, batch_tokens: int = 0) -> list[Floats]:
        """Logits of each window, run one at a time or in batches of up to `batch_tokens`, padding included."""
        segments = [example.segments for example in examples] if self.frame.segments else None
        ids = [example.ids for example in examples]
        logits = self.predictor.logits(ids, segments=segments, batch_tokens=batch_tokens)
        if self._columns is None:
            return logits
        known = [label for label, column in enumerate(self._columns) if column is not None]
        columns = [column for column in self._columns if column is not None]
        ordered: list[Floats] = []
        for window in logits:
            labels_TC = np.full((len(window), len(self._columns)), NEVER, window.dtype)
            labels_TC[:, known] = window[:, columns]
            ordered.append(labels_TC)
        return ordered

    def decode(
        self,
        doc: Document,
        examples: Sequence[Example],
        logits: Sequence[Floats],
        *,
        types: Collection[str] | None = None,
    ) -> Document:
        """The document with the prediction from the logits of all its windows; scores are calibrated.

        With `types`, of mentions or of relations, only these are predicted: those of other types stay as they are.
        """
        predicted = self.task.decode(self._with_sentences(doc), examples, logits, types=types)
        if self.task.uses_sentences:
            predicted = replace(predicted, passages=doc.passages)
        curves = self.settings.calibration
        if not curves:
            return predicted
        return self.task.rescale_scores(predicted, lambda score, name: calibrated(score, curves.get(name)), types=types)

    def predict(
        self, doc: Document, examples: Sequence[Example], logits: Sequence[Floats], selection: Selection
    ) -> Document:
        """The document with the selected predictions, after the model's rules."""
        refined = self._refine(doc, examples, logits, selection)
        if refined is not None:
            return refined.doc
        types = selection.types
        if self.relation_types:
            types = tuple(label for label in self.relation_types if label not in selection.unwanted)
        predicted = self.decode(doc, examples, logits, types=types)
        if self.task.forms:
            curves = self.settings.calibration or {}
            scales = {
                form: partial(calibrated, curve=curves[key])
                for form in self.task.forms
                if (key := answerable_key(form)) in curves
            }
            return self.task.abstain(predicted, doc, examples, logits, least=selection.min_scores, scales=scales)
        return selection.apply(self.types, doc, predicted)

    def _refine(
        self, doc: Document, examples: Sequence[Example], logits: Sequence[Floats], selection: Selection
    ) -> Refined | None:
        """The predictions after the model's rules; None if there are no rules to apply."""
        main = [type_ for type_ in self.types if type_ not in self.extra]
        refinement = Refinement.of(main, self.settings.rules, selection)
        if refinement is None:
            return None
        # Types exclude one another, so that all are decoded for a result that does not depend on the selection.
        own, curves = selection.of(self.types), self.settings.calibration or {}
        types = (*refinement.types, *own.types)
        mentions = self.task.predict_mentions(self._with_sentences(doc), examples, logits, types=types)
        predicted = [
            PredictedMention(one.start, one.end, one.type, calibrated(one.score, curves.get(one.type)))
            for one in mentions
        ]
        return refine_document(doc, predicted, own, refinement)

    def annotate(self, docs: Sequence[Document]) -> list[Document]:
        """The documents with all predictions of this model, before any rules."""
        return annotate_together(docs, [self], Selection(self.types, {}, "keep", frozenset((ALL_RULES,))))

    def dropped(self, doc: Document, selection: Selection) -> "list[Candidate]":
        """Mentions that were predicted but not selected, and near misses of selected types."""
        examples = self.encode(doc)
        logits = self.run(examples)
        spans = [span for span in self.decode(doc, examples, logits).spans if span.type in self.types]
        refined = self._refine(doc, examples, logits, selection)
        reasons = {} if refined is None else refined.reasons
        candidates = [
            Candidate(span.start, span.end, span.text, span.type, span.score or 0.0, reason)
            for span in spans
            # Types on request that were not requested are not worth reporting.
            if (span.type in selection.types or span.type not in self.extra)
            and (reason := selection.reason_dropped(span, reasons)) is not None
        ]
        curves = self.settings.calibration or {}
        for miss in self.task.near_misses(self._with_sentences(doc), examples, logits, spans):
            if miss.type in selection.types:
                score = calibrated(miss.score, curves.get(miss.type))
                candidates.append(Candidate(*miss.place, doc.slice(*miss.place), miss.type, score, miss.reason))
        return candidates

    def explain_relations(self, doc: Document, selection: Selection) -> list[RelationExplanation]:
        """The relations of an annotated document that this model predicts, and pairs that are almost related."""
        if self.task.loss != "pairs":
            return []
        split = with_sentences(doc)
        examples = self.encode(doc)
        logits = self.run(examples) if examples else []
        scores = self.task.explain(split if self.task.uses_sentences else doc, examples, logits)
        curves = self.settings.calibration or {}
        explained = [
            explain_pair(split, one, selection, calibrate=lambda label, score: calibrated(score, curves.get(label)))
            for one in scores
        ]
        # Types that were not requested are not worth reporting.
        return [
            one
            for one in explained
            if one.label not in selection.unwanted and (one.label is not None or one.score >= NEAR)
        ]

    def _with_sentences(self, doc: Document) -> Document:
        return with_sentences(doc) if self.task.uses_sentences else doc


def _task_of(folder: Path, settings: ModelSettings) -> Task:
    if settings.task is None:
        message = f"{folder}: a {settings.kind} model without a task. Fine-tune it with `lexome finetune` first."
        raise CheckpointError(message, code="missing-task", value=settings.kind)
    try:
        task = task_of(settings.task)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        message = f"{folder}: the task in {SETTINGS} has a value of an unexpected type ({error!r}). {CHANGED}"
        raise CheckpointError(message, code="invalid-value", value="task") from None
    if task.head != settings.kind:
        message = f"{folder}: the task needs a {task.head} head, but the model has a {settings.kind} head."
        raise CheckpointError(message, code="head-mismatch", value=settings.kind)
    return task


@dataclass(frozen=True, slots=True)
class Candidate:
    """A mention that was considered and dropped; `score` is on the scale of the mentions' scores.

    >>> Candidate(0, 5, "BRCA1", "Gene", 0.31, "score 0.31 is below 0.5").why
    'score 0.31 is below 0.5'
    """

    start: int
    end: int
    text: str
    type: str
    score: float
    why: str


# Scheduling: one generator for each document, whoever decides what runs next

Steps = Generator[tuple[Model, list[Example]], list[Floats], Document]
"""The work on one document: yields windows for a model to run, receives their logits, returns the result."""


def annotation_steps(
    doc: Document,
    models: Iterable[Model],
    selection: Selection,
    *,
    concepts: Concepts | None = None,
    check: Callable[[Model, Document], None] | None = None,
    check_mentions: Callable[[Document], None] | None = None,
) -> Steps:
    """The steps of one document through the models that the selection needs; `check` may reject it before each.

    With `concepts`, names of dictionaries and concept ids are added once all mentions are predicted, before models that
    relate concepts, unless `check_mentions` rejects the document.
    """
    for model in models:
        if not selection.needs(model.types):
            continue
        if concepts is not None and not model.types:
            doc, concepts = _with_concepts(doc, concepts, selection, check_mentions), None
        if check is not None:
            check(model, doc)
        examples = model.encode(doc)
        logits = (yield model, examples) if examples else []
        doc = model.predict(doc, examples, logits, selection)
    return doc if concepts is None else _with_concepts(doc, concepts, selection, check_mentions)


def _with_concepts(
    doc: Document, concepts: Concepts, selection: Selection, check: Callable[[Document], None] | None
) -> Document:
    if check is not None:
        check(doc)
    return concepts.apply(doc, selection.types)


GroupSteps = Generator[tuple[Model, list[Example]], list[Floats], list[Document]]
"""The work on several documents: yields the windows of all of them for a model, receives their logits."""


def _group_steps(
    docs: Sequence[Document], models: Sequence[Model], selection: Selection, concepts: Concepts | None
) -> GroupSteps:
    results = list(docs)
    steps = [annotation_steps(doc, models, selection, concepts=concepts) for doc in docs]
    pending: dict[int, tuple[Model, list[Example]]] = {}

    def advance(index: int, logits: list[Floats] | None) -> None:
        try:
            # None starts a generator.
            pending[index] = steps[index].send(logits)  # type: ignore[arg-type]
        except StopIteration as end:
            pending.pop(index, None)
            results[index] = end.value

    for index in range(len(docs)):
        advance(index, None)
    for model in models:
        ready = [(index, examples) for index, (next_model, examples) in pending.items() if next_model is model]
        if ready:
            logits = iter((yield model, [example for _, examples in ready for example in examples]))
            for index, examples in ready:
                advance(index, [next(logits) for _ in examples])
    return results


def annotate_together(
    docs: Sequence[Document],
    models: Sequence[Model],
    selection: Selection,
    *,
    concepts: Concepts | None = None,
    batch_tokens: int = 0,
) -> list[Document]:
    """The documents, each model run on the windows of all of them at once."""
    steps = _group_steps(docs, models, selection, concepts)
    logits: list[Floats] | None = None
    while True:
        try:
            model, windows = steps.send(logits)  # type: ignore[arg-type]  # None starts a generator
        except StopIteration as end:
            return list(end.value)
        logits = model.run(windows, batch_tokens=batch_tokens)


# Id of a document made from a bare text.
TEXT_ID = "text"

# Documents per thread that are submitted before the first result is awaited, so that no thread is idle.
PREFETCH = 2

# Groups of documents that a device is given ahead of the one that is being decoded.
AHEAD = 2

# On one thread, this many documents are encoded, then run, then decoded: running the model evicts the data of encoding
# and decoding from the core's cache (docs/decisions/0010-inference.md).
GROUP = 4


# The order in which models run on a document: relations and answers read the mentions before them.
ORDER = ("ner", "relation", "document-relation", "classes", "inference", "similarity", "questions")


class Annotator:
    """Models that annotate each document one after another; `annotate` is a step of a pipeline.

    >>> annotator = Annotator.open(Path("diseases-onnx"))                  # doctest: +SKIP
    >>> doc = annotator("Cystic fibrosis is a recessive disease.")         # doctest: +SKIP
    >>> [doc.text_of(span) for span in doc.spans]                          # doctest: +SKIP
    ['Cystic fibrosis', 'recessive disease']
    """

    def __init__(self, models: Sequence[Model], concepts: Concepts | None = None, *, batch_tokens: int = 0) -> None:
        # Set for a device, which needs batches.
        self.batch_tokens = batch_tokens
        # Later kinds read what earlier ones predict.
        ordered = sorted(models, key=lambda model: ORDER.index(model.kind))
        # A reader also answers factoid or list questions, if no reader has that form.
        forms = {form for model in ordered for form in model.task.forms}
        self.models = tuple(model.with_task(model.task.answering_also(forms)) for model in ordered)
        _check_compatible(self.models)
        self.concepts = concepts
        self.threads = max(model.predictor.threads for model in self.models)

    @classmethod
    def open(
        cls, *folders: str | Path, threads: int | None = None, concepts: ConceptOptions | None = None
    ) -> "Annotator":
        """Models in folders written by `lexome export`, or Hugging Face token classifiers as ONNX.

        With `concepts`, mentions are linked, and names of dictionaries found, after the models.
        """
        models = [Model.open(folder, threads=threads) for folder in folders]
        return cls(models, None if concepts is None else concepts.open())

    @property
    def types(self) -> tuple[str, ...]:
        """Mention types that are predicted or found by default."""
        predicted = [type_ for model in self.models for type_ in model.types if type_ not in model.extra]
        return tuple(dict.fromkeys((*predicted, *(self.concepts.types if self.concepts is not None else ()))))

    @property
    def extra_types(self) -> tuple[str, ...]:
        """Mention types that are predicted only on request."""
        return tuple(type_ for model in self.models for type_ in model.extra)

    @property
    def relation_types(self) -> tuple[str, ...]:
        """Types of relations that are predicted."""
        return tuple(dict.fromkeys(type_ for model in self.models for type_ in model.relation_types))

    @property
    def tokens_run(self) -> int:
        """Tokens that all models have run so far, over all windows."""
        return sum(model.predictor.tokens_run for model in self.models)

    def about(self) -> dict[str, Any]:
        """Description of the models for JSON."""
        return {
            "types": list(self.types),
            "extra_types": list(self.extra_types),
            "relation_types": list(self.relation_types),
            "models": [model.about() for model in self.models],
            **(self.concepts.about() if self.concepts is not None else {"linked_types": [], "dictionaries": []}),
        }

    def select(
        self,
        *,
        types: Collection[str] | None = None,
        min_score: MinScore | None = None,
        overlaps: Overlaps | None = None,
        without_rules: Collection[str] = (),
        relation_types: Collection[str] | None = None,
    ) -> Selection:
        """A selection of predictions; UsageError for a type that no model predicts."""
        return self.resolve(SelectionRequest(types, min_score, overlaps, without_rules, relation_types))

    def resolve(self, request: SelectionRequest) -> Selection:
        """The selection of a request for these models; UsageError for a type that no model predicts."""
        floors = {type_: score for model in self.models for type_, score in (model.settings.min_scores or {}).items()}
        return select(request, default=self.types, extra=self.extra_types, relations=self.relation_types, floors=floors)

    def require_pairs(self, types: Collection[str] | None) -> None:
        """UsageError if the relation models relate no pair of these mention types, by default of all.

        Without a model that predicts mentions, the documents have their own, of any types.
        """
        present = set(self.select(types=types).types)
        models = [model for model in self.models if model.task.relates]
        pairs = [pair for model in models for pair in model.task.input_pairs]
        finds_mentions = any(model.types for model in self.models)
        if not (pairs and finds_mentions) or any(set(pair) <= present for pair in pairs):
            return
        related: dict[frozenset[str], str] = {}
        for pair in pairs:
            # Gene and Chemical of one schema are Chemical and Gene of another.
            related.setdefault(frozenset(pair), " and ".join(pair))
        message = (
            f"no relations can be predicted between {', '.join(sorted(present)) or 'no types'}: the models relate "
            f"{', '.join(related.values())}. Select both types of a pair, or omit --relations."
        )
        raise UsageError(message, code="no-pairs", value=tuple(sorted(present)))

    def document(self, text: str | Document) -> Document:
        """A text made into a document; a document as it is."""
        if isinstance(text, Document):
            return text
        if not isinstance(text, str):
            raise UsageError(
                f"{_describe(text)}; expected a text or a document. {_hint(text)}", code="not-a-document", value=text
            )
        predicted = (*self.types, *self.extra_types)
        missing = [type_ for model in self.models for type_ in model.task.input_types if type_ not in predicted]
        if missing:
            message = f"a text, but no loaded model predicts {missing[0]}. Load one that does, or pass documents."
            raise UsageError(message, code="missing-mentions", value=missing[0])
        return Document.from_text(text, id=TEXT_ID)

    @overload
    def __call__(self, text: str | Document) -> Document: ...  # type: ignore[overload-overlap]  # a text is iterable

    @overload
    def __call__(self, text: Iterable[str | Document]) -> list[Document]: ...

    def __call__(self, text: str | Document | Iterable[str | Document]) -> Document | list[Document]:
        """One annotated document, from a text or a document; a list of them, from a list or a column of a table."""
        if isinstance(text, Iterable) and not isinstance(text, str | bytes | Mapping):
            return list(self.annotate(text))
        return next(iter(self.annotate([self.document(text)])))  # type: ignore[arg-type]  # others are refused

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by the folders of its models, which another process opens again."""
        if self.batch_tokens:
            message = "an annotator on a device cannot be pickled. Open the models in each process."
            raise UsageError(message, code="not-picklable", value="device")
        return type(self), (self.models, self.concepts)

    def annotate(
        self,
        docs: Iterable[str | Document],
        *,
        types: Collection[str] | None = None,
        min_score: MinScore | None = None,
        overlaps: Overlaps | None = None,
        without_rules: Collection[str] = (),
        relation_types: Collection[str] | None = None,
        batch_tokens: int = 0,
        together: int = 64,
    ) -> Iterator[Document]:
        """The annotated documents, in order, of texts or documents; the third item has the id text-3 if it is a text.

        Mentions of `types`, by default of all but the extra ones, replace those of the document; mentions of other
        types stay as they are. Mentions and relations below `min_score`, overall or by type, are left out; by default
        below the models' own minimum scores. With `relation_types`, only relations of these types are predicted, and
        replace those of the document. A model with rules applies them, except `without_rules`, and gives each place
        one type unless `overlaps` is "keep". Several documents are in progress at a time, one on each thread or
        a few on one, so a few are read ahead. With `batch_tokens`, `together` documents are read at a time and run in
        batches of up to that many tokens.
        """
        # An unknown type is reported at once, not when the first document is requested.
        selection = self.select(
            types=types,
            min_score=min_score,
            overlaps=overlaps,
            without_rules=without_rules,
            relation_types=relation_types,
        )
        return self.annotate_selected(docs, selection, batch_tokens=batch_tokens, together=together)

    def annotate_selected(
        self, docs: Iterable[str | Document], selection: Selection, *, batch_tokens: int = 0, together: int = 64
    ) -> Iterator[Document]:
        """The documents as `annotate` yields them, for an already resolved selection."""
        if isinstance(docs, str | bytes | Document | Mapping) or _is_table(docs) or not isinstance(docs, Iterable):
            hint = "Call annotator(it)." if isinstance(docs, str | Document) else _hint(docs)
            message = f"annotate was called with {_describe(docs)}; expected an iterable of texts or documents. {hint}"
            raise UsageError(message, code="not-documents", value=docs)
        if together < 1:
            raise UsageError(f"{together} documents together; expected at least 1.", code="too-few", value=together)
        return self._in_order(
            self._documents(docs), selection, batch_tokens=batch_tokens or self.batch_tokens, together=together
        )

    def _documents(self, items: Iterable[object]) -> Iterator[Document]:
        """The items as documents; UsageError at the first that is neither a text nor a document."""
        for number, item in enumerate(items, 1):
            if isinstance(item, Document):
                yield item
            elif isinstance(item, str):
                yield replace(self.document(item), id=f"{TEXT_ID}-{number}")
            else:
                message = f"item {number:,} is {_describe(item)}; expected texts or documents. {_hint(item)}"
                raise UsageError(message, code="not-a-document", value=item)

    def explain(
        self,
        text: str | Document,
        *,
        types: Collection[str] | None = None,
        min_score: MinScore | None = None,
        overlaps: Overlaps | None = None,
        without_rules: Collection[str] = (),
    ) -> list[Candidate]:
        """Mentions that were considered but are not in the result of the same call, in reading order, with reasons."""
        selection = self.select(types=types, min_score=min_score, overlaps=overlaps, without_rules=without_rules)
        return self.explain_selected(self.document(text), selection)

    def explain_selected(self, doc: Document, selection: Selection) -> list[Candidate]:
        """The candidates that `explain` lists, for an already resolved selection."""
        models = [model.with_predictor(model.predictor.uncounted()) for model in self.models if model.types]
        candidates = [candidate for model in models for candidate in model.dropped(doc, selection)]
        return sorted(candidates, key=lambda candidate: (candidate.start, candidate.end, candidate.type))

    def explain_relations(
        self,
        doc: Document,
        *,
        min_score: MinScore | None = None,
        relation_types: Collection[str] | None = None,
    ) -> list[RelationExplanation]:
        """Why an annotated document has its relations: evidence, other labels, and pairs that are almost related."""
        _require_document(doc)
        return self.explain_selected_relations(doc, self.select(min_score=min_score, relation_types=relation_types))

    def explain_selected_relations(self, doc: Document, selection: Selection) -> list[RelationExplanation]:
        """The explanations of `explain_relations`, for an already resolved selection."""
        models = [model.with_predictor(model.predictor.uncounted()) for model in self.models if model.task.relates]
        return [one for model in models for one in model.explain_relations(doc, selection)]

    def explain_concepts(self, doc: Document) -> "dict[str, Explanation]":
        """Why the mentions of an annotated document have their ids, with other candidates, by span id."""
        _require_document(doc)
        return self.concepts.explain(doc) if self.concepts is not None else {}

    def _in_order(
        self, docs: Iterator[Document], selection: Selection, *, batch_tokens: int, together: int
    ) -> Iterator[Document]:
        """Documents in order; an error is raised where its document would be, after those before it."""
        errors: list[Exception] = []

        def until_error() -> Iterator[Document]:
            try:
                yield from docs
            except Exception as error:
                errors.append(error)

        readable = until_error()
        if self.batch_tokens:
            yield from self._ahead(readable, selection, size=together, batch_tokens=batch_tokens)
        elif batch_tokens:
            yield from self._in_groups(readable, selection, size=together, batch_tokens=batch_tokens)
        elif self.threads == 1:
            yield from self._in_groups(readable, selection, size=GROUP)
        elif len(first := list(islice(readable, 2))) == 2:
            yield from self._on_threads(chain(first, readable), selection)
        else:
            # All threads share the work on a single document.
            yield from annotate_together(first, self.models, selection, concepts=self.concepts)
        if errors:
            raise errors[0]

    def _in_groups(
        self, docs: Iterator[Document], selection: Selection, *, size: int, batch_tokens: int = 0
    ) -> Iterator[Document]:
        while group := list(islice(docs, size)):
            try:
                results: Iterable[Document] = annotate_together(
                    group, self.models, selection, concepts=self.concepts, batch_tokens=batch_tokens
                )
            except Exception:
                results = self._one_by_one(group, selection)
            yield from results

    def _one_by_one(self, group: Sequence[Document], selection: Selection) -> Iterator[Document]:
        """The documents of a group in which one fails: those before it are yielded first."""
        return (annotate_together([doc], self.models, selection, concepts=self.concepts)[0] for doc in group)

    def _ahead(
        self, docs: Iterator[Document], selection: Selection, *, size: int, batch_tokens: int
    ) -> Iterator[Document]:
        """The documents in groups: while one is decoded, the device runs the next and has another one waiting."""
        # One thread, so that the device has the groups in order; it only sends and receives.
        with ThreadPoolExecutor(1, "lexome-device") as pool:

            def advance(steps: GroupSteps, logits: list[Floats] | None) -> Future[list[Floats]] | list[Document] | None:
                """The logits of the next model, or the documents after the last one; None if one fails."""
                try:
                    model, windows = steps.send(logits)  # type: ignore[arg-type]  # None starts a generator
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                except Exception:
                    return None
                return pool.submit(model.run, windows, batch_tokens=batch_tokens)

            def finish(group: list[Document], steps: GroupSteps, state: Any) -> Iterable[Document]:
                while isinstance(state, Future):
                    state = None if state.exception() is not None else advance(steps, state.result())
                return self._one_by_one(group, selection) if state is None else state

            waiting: deque[tuple[list[Document], GroupSteps, Any]] = deque()
            while group := list(islice(docs, size)):
                steps = _group_steps(group, self.models, selection, self.concepts)
                waiting.append((group, steps, advance(steps, None)))
                if len(waiting) > AHEAD:
                    yield from finish(*waiting.popleft())
            while waiting:
                yield from finish(*waiting.popleft())

    def _on_threads(self, docs: Iterable[Document], selection: Selection) -> Iterator[Document]:
        waiting: deque[Future[list[Document]]] = deque()
        pool = ThreadPoolExecutor(self.threads, "lexome-annotate")
        try:
            for doc in docs:
                models = self._single_threaded_models
                waiting.append(pool.submit(annotate_together, [doc], models, selection, concepts=self.concepts))
                if len(waiting) >= PREFETCH * self.threads:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

    @cached_property
    def _single_threaded_models(self) -> tuple[Model, ...]:
        """The models for several threads to run at once, opened on first use."""
        return tuple(model.with_predictor(model.predictor.single_threaded()) for model in self.models)


def _check_compatible(models: Sequence[Model]) -> None:
    """UsageError for models that cannot be combined."""
    if not models:
        raise UsageError("no model; expected one or more folders.", code="no-model")
    owners: dict[str, Model] = {}
    for model in models:
        for type_ in model.types:
            if type_ in owners:
                message = f"{owners[type_].name} and {model.name} both predict {type_}. Load one of them."
                raise UsageError(message, code="duplicate-type", value=type_)
            owners[type_] = model
    for model in models:
        missing = [type_ for type_ in model.task.input_types if type_ not in owners]
        if owners and missing:
            remedy = f"Load a model that does, or run {model.name} alone on documents that have such mentions."
            message = f"{model.name} relates mentions of {missing[0]}, but no loaded model predicts them. {remedy}"
            raise UsageError(message, code="missing-mentions", value=missing[0])


def _is_table(item: object) -> bool:
    """Whether this is a DataFrame of pandas or polars, whose items are its column names or its columns."""
    return hasattr(item, "columns") and hasattr(item, "shape")


def _require_document(item: object) -> None:
    if not isinstance(item, Document):
        message = f"{_describe(item)}; expected an annotated document. Annotate the text first: annotator(text)."
        raise UsageError(message, code="not-a-document", value=item)


def _describe(item: object) -> str:
    if isinstance(item, float) and isnan(item):
        return "NaN, a missing value"
    names = {str: "a text", Document: "one document", bytes: "a bytes object", type(None): "None"}
    if isinstance(item, PurePath):
        return f"the path {item}"
    return names.get(type(item), f"a value of type {type(item).__name__}")


def _hint(item: object) -> str:
    if isinstance(item, float) and isnan(item):
        return 'Leave out missing values, as with table["text"].dropna().'
    if isinstance(item, bytes):
        return 'Decode it first: it.decode("utf-8").'
    if isinstance(item, PurePath):
        return "Read it first: lexome.read(it) yields its documents."
    if _is_table(item):
        columns = ", ".join(repr(name) for name in item.columns)  # type: ignore[attr-defined]
        return f'Pass its column of texts, as annotator(table["text"]); it has {columns or "no columns"}.'
    return 'Pass a text to annotator("..."), or documents, as from lexome.read, to annotator.annotate(...).'


DEFAULT_MODEL = "default_model"


def load(*folders: str | Path, threads: int | None = None, concepts: ConceptOptions | None = None) -> Annotator:
    """An annotator with the models in these folders; without any, with Lexome's default model.

    Mentions are linked to concepts unless `concepts` says otherwise.
    """
    opened = map(Path, folders) if folders else [default_model()]
    return Annotator.open(*opened, threads=threads, concepts=ConceptOptions() if concepts is None else concepts)


def default_model() -> Path:
    """The folder of the default model."""
    folder = Path(str(resources.files("lexome") / DEFAULT_MODEL))
    if not (folder / SETTINGS).is_file():
        message = f"{folder}: the default model is missing. Reinstall Lexome, or name an exported model."
        raise CheckpointError(message, code="missing-folder", value=folder)
    return folder
