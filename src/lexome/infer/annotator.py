"""A fine-tuned model at work on documents, without torch: the same encoding and decoding that its scores come from."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from lexome.document import Document, Passage
from lexome.errors import CheckpointError
from lexome.infer.predictor import Predictor
from lexome.tasks import Task, task_of
from lexome.tasks.task import Frame

# What a document made of a bare text is called.
TEXT_ID = "text"


class Annotator:
    """A model folder as a step: documents in, documents with what the model says out.

    >>> annotator = Annotator.open(Path("diseases-onnx"))                  # doctest: +SKIP
    >>> doc = annotator("Cystic fibrosis is a recessive disease.")         # doctest: +SKIP
    >>> [doc.text_of(span) for span in doc.spans]                          # doctest: +SKIP
    ['Cystic fibrosis', 'recessive disease']
    """

    def __init__(self, predictor: Predictor, task: Task) -> None:
        self.predictor, self.task = predictor, task
        settings = predictor.settings
        self.frame = Frame(
            settings.before, settings.between, settings.after, settings.max_tokens, segments=settings.segments
        )

    @classmethod
    def open(cls, folder: Path, *, threads: int | None = None) -> "Annotator":
        """The model in a folder that `lexome export` made of a fine-tuned checkpoint."""
        predictor = Predictor.open(folder, threads=threads)
        settings = predictor.settings
        if settings.task is None:
            raise CheckpointError(
                f"{folder}: a model of kind {settings.kind!r} that says no task; expected a fine-tuned one. Fine-tune "
                "a checkpoint with `lexome finetune`, then export that."
            )
        task = task_of(settings.task)
        if task.head != settings.kind:
            raise CheckpointError(f"{folder}: its task needs a {task.head} head, its model has a {settings.kind} head.")
        return cls(predictor, task)

    def __call__(self, given: str | Document) -> Document:
        """One document, or a text made into one, with what the model says of it."""
        if isinstance(given, str):
            given = Document(TEXT_ID, (Passage(0, given),) if given else ())
        return next(iter(self.annotate([given])))

    def annotate(
        self, docs: Iterable[Document], *, batch: int = 1, min_score: float | None = None, together: int = 64
    ) -> Iterator[Document]:
        """The documents with what the model says, in order; spans and relations below `min_score` are left out.

        `together` documents are worked on at a time, in batches of `batch` rows of like length.
        """
        docs = iter(docs)
        while taken := list(islice(docs, together)):
            for doc in self._annotated(taken, batch):
                yield doc if min_score is None else at_least(doc, min_score)

    def _annotated(self, docs: list[Document], batch: int) -> Iterator[Document]:
        rows = [self.task.rows(doc, self.predictor.tokens, self.frame, known=False) for doc in docs]
        flat = [row for own in rows for row in own]
        kinds = [row.segments.tolist() for row in flat] if self.frame.segments else None
        numbers = iter(self.predictor.logits([row.ids.tolist() for row in flat], segments=kinds, batch=batch))
        for doc, own in zip(docs, rows, strict=True):
            yield self.task.decode(doc, own, [next(numbers) for _ in own])


def at_least(doc: Document, score: float) -> Document:
    """The document without spans and relations whose score is lower, and without what leans on these."""
    spans = tuple(span for span in doc.spans if span.score is None or span.score >= score)
    kept = {span.id for span in spans}
    relations = doc.relations
    while True:
        known = kept | {relation.id for relation in relations}
        left = tuple(
            relation
            for relation in relations
            if (relation.score is None or relation.score >= score)
            and all(argument.target is None or argument.target in known for argument in relation.arguments)
        )
        if len(left) == len(relations):
            break
        relations = left
    attributes = tuple(attribute for attribute in doc.attributes if attribute.target in known)
    return replace(doc, spans=spans, relations=relations, attributes=attributes)
