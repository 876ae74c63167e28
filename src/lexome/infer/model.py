"""One fine-tuned model at work on documents: rows, numbers, and what the task makes of them."""

from collections.abc import Collection, Iterator, Sequence
from copy import copy
from dataclasses import replace
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lexome.corpus.sentences import with_sentences
from lexome.document import Document
from lexome.errors import CheckpointError
from lexome.infer.model_folder import Settings
from lexome.infer.predictor import Predictor, is_hugging_face, open_hugging_face
from lexome.tasks import Ner, Relations, Task, task_of
from lexome.tasks.ner import InsideProbabilities
from lexome.tasks.task import Example, Floats, Frame

Curve = tuple[float, float]
"""A slope and an offset, on the scale of log-odds."""

# Nearer to 0 or 1 than this a score says no more.
EDGE = 1e-6


def calibrated(score: float, curve: Curve | None) -> float:
    """The score as the curve says it; without a curve, as it is.

    >>> round(calibrated(0.9, (0.5, 0.0)), 3)
    0.75
    """
    if curve is None:
        return score
    kept = min(max(score, EDGE), 1 - EDGE)
    slope, offset = curve
    odds = slope * log(kept / (1 - kept)) + offset
    # Either form overflows on one side.
    return 1 / (1 + exp(-odds)) if odds >= 0 else exp(odds) / (1 + exp(odds))


# What a tag that the model does not know is taken for: far below every logit.
NEVER = -1e4


class Model:
    """A model folder and its task: what it finds in documents.

    kind    ner, relation, classes, inference, similarity or questions
    types   mentions that it can find; none unless it is a ner model
    extra   those of its types that it finds only where they are asked for by name
    labels  what else it tells apart: types of relations, or classes
    """

    def __init__(self, predictor: Predictor, task: Task, *, columns: Sequence[int | None] | None = None) -> None:
        settings = predictor.settings
        self.predictor, self.settings, self.task = predictor, settings, task
        self.kind = str(task.settings()["kind"])
        self.types, self.extra = (task.types, task.extra) if isinstance(task, Ner) else ((), ())
        self.labels = () if isinstance(task, Ner) else task.labels
        self.frame = Frame(
            settings.before, settings.between, settings.after, settings.max_tokens, segments=settings.segments
        )
        self._columns = columns
        self._by_sentences = "sentence" in (getattr(task, "scope", None), getattr(task, "context", None))

    @classmethod
    def open(cls, folder: Path, *, threads: int | None = None) -> "Model":
        """The model in a folder that `lexome export` made, or a token classifier of Hugging Face as ONNX."""
        if is_hugging_face(folder):
            predictor, columns = open_hugging_face(folder, threads=threads)
            return cls(predictor, _task(folder, predictor.settings), columns=columns)
        predictor = Predictor.open(folder, threads=threads)
        return cls(predictor, _task(folder, predictor.settings))

    def of_one_thread(self) -> "Model":
        """The same model as several threads may run it at once, each for itself; what it runs is counted here too."""
        return self._by(self.predictor.of_one_thread())

    def aside(self) -> "Model":
        """The same model for work that is not counted here."""
        return self._by(self.predictor.aside())

    def _by(self, predictor: Predictor) -> "Model":
        made = copy(self)
        made.predictor = predictor
        return made

    @property
    def name(self) -> str:
        """What it is called: as its folder says, or else as its folder is called."""
        return self.settings.source.get("name") or self.predictor.folder.resolve().name

    @property
    def needs(self) -> tuple[str, ...]:
        """Types of mentions that documents must have before it can say anything."""
        pairs = self.task.pairs if isinstance(self.task, Relations) else ()
        return tuple(dict.fromkeys(type_ for pair in pairs for type_ in pair))

    def about(self) -> dict[str, Any]:
        """Its facts, as JSON has them."""
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

    def annotated(
        self, docs: Sequence[Document], *, types: Collection[str] | None = None, batch_tokens: int = 0
    ) -> Iterator[Document]:
        """The documents with what the model says; of mentions, with those of `types` or else of all its types."""
        rows = [self.rows(doc) for doc in docs]
        numbers = iter(self.run([row for own in rows for row in own], batch_tokens=batch_tokens))
        for doc, own in zip(docs, rows, strict=True):
            yield self.decoded(doc, own, [next(numbers) for _ in own], types=types)

    def rows(self, doc: Document) -> list[Example]:
        """What the model has to be run on for a document; nothing of it is cut off."""
        return self.task.encode(self._readable(doc), self.predictor.tokens, self.frame, with_targets=False)

    def run(self, rows: Sequence[Example], *, batch_tokens: int = 0) -> list[Floats]:
        """The model's numbers for each row: each alone, or with others up to so many tokens, padding counted."""
        kinds = [row.segments for row in rows] if self.frame.segments else None
        found = self.predictor.logits([row.ids for row in rows], segments=kinds, batch_tokens=batch_tokens)
        return [self._ordered(numbers) for numbers in found]

    def decoded(
        self,
        doc: Document,
        rows: Sequence[Example],
        numbers: Sequence[Floats],
        *,
        types: Collection[str] | None = None,
    ) -> Document:
        """The document with what the task makes of the numbers of all its rows; mentions have calibrated scores.

        With `types`, a ner model says only where these are: mentions of all others stay as they were.
        """
        read = self._readable(doc)
        if isinstance(self.task, Ner):
            found = self.task.decode(read, rows, numbers, types=types)
        else:
            found = self.task.decode(read, rows, numbers)
        if self._by_sentences:
            found = replace(found, passages=doc.passages)
        return self._calibrated(found, self.types if types is None else types)

    def inside(self, doc: Document, rows: Sequence[Example], numbers: Sequence[Floats]) -> InsideProbabilities:
        """Of a ner model, how probable each word of the document is to be inside a mention."""
        assert isinstance(self.task, Ner)
        return self.task.inside_probabilities(self._readable(doc), rows, numbers)

    def _readable(self, doc: Document) -> Document:
        """The document with sentences, where the task reads by them."""
        return with_sentences(doc) if self._by_sentences else doc

    def _ordered(self, numbers: NDArray[np.float32]) -> Floats:
        """The numbers in the order of the task's labels."""
        if self._columns is None:
            return numbers
        filled = np.concatenate((numbers, np.full((*numbers.shape[:-1], 1), NEVER, numbers.dtype)), -1)
        return filled[..., [-1 if column is None else column for column in self._columns]]

    def _calibrated(self, doc: Document, types: Collection[str]) -> Document:
        curves = self.settings.calibration
        if not curves:
            return doc
        spans = tuple(
            replace(span, score=calibrated(span.score, curves.get(span.type)))
            if span.score is not None and span.type in self.types and span.type in types
            else span
            for span in doc.spans
        )
        return replace(doc, spans=spans)


def _task(folder: Path, settings: Settings) -> Task:
    if settings.task is None:
        raise CheckpointError(
            f"{folder}: a model of kind {settings.kind!r} that says no task; expected a fine-tuned one. Fine-tune "
            "a checkpoint with `lexome finetune`, then export that."
        )
    task = task_of(settings.task)
    if task.head != settings.kind:
        raise CheckpointError(f"{folder}: its task needs a {task.head} head, its model has a {settings.kind} head.")
    return task
