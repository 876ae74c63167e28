"""A document on its way through models, cut where a model is run, so that a queue can mix the work of many clients."""

from collections.abc import Generator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from lexome.document import Document
from lexome.infer.choice import Choice
from lexome.infer.model import Model
from lexome.serve.limits import Limits, Refused
from lexome.tasks import Questions, Relations
from lexome.tasks.qa import contexts_of
from lexome.tasks.task import Floats, Row

if TYPE_CHECKING:
    from lexome.serve.queue import Order

# By about so many characters one window comes after another.
WINDOW = 1000

Steps = Generator[tuple[Model, list[Row]], list[Floats], Document]


def steps(doc: Document, models: Sequence[Model], choice: Choice, limits: Limits) -> Steps:
    """Asks for the numbers of rows, one model after another; returns the document with what is chosen of it all."""
    for model in filter(choice.wants, models):
        _check_pairs(doc, model, limits.pairs)
        _check_questions(doc, model, limits.pairs)
        rows = model.rows(doc)
        numbers = (yield model, rows) if rows else []
        doc = choice.kept(model, doc, model.decoded(doc, rows, numbers, types=choice.types))
    return doc


def _check_pairs(doc: Document, model: Model, most: int) -> None:
    """Refused where a model would have to judge more pairs than can be held: they grow with the square of a text."""
    if not isinstance(model.task, Relations) or not model.task.pairs:
        return
    mentions = sum(span.type in model.needs for span in doc.spans)
    # To count the pairs of so many would itself take too long.
    if mentions > most or sum(1 for _ in islice(model.task.candidates(doc), most + 1)) > most:
        raise Refused(
            413,
            f"document {doc.id[:60]!r} has {mentions:,} mentions in more than {most:,} pairs for {model.name}. "
            "Send it in parts, or with its sentences marked.",
        )


def _check_questions(doc: Document, model: Model, most: int) -> None:
    """Refused where a model would have to read a document for more questions than can be held at once."""
    if not isinstance(model.task, Questions) or not doc.questions:
        return
    windows = len(contexts_of(doc)) + sum(len(passage.text) for passage in doc.passages) // WINDOW
    if len(doc.questions) * windows > most:
        raise Refused(
            413,
            f"document {doc.id[:60]!r} has {len(doc.questions):,} questions to a text of about {windows:,} windows; "
            f"expected {most:,} at most when one is multiplied by the other. Ask fewer at a time.",
        )


class Job:
    """One document under way: the rows that its present model has to run, and the numbers that are there."""

    def __init__(self, order: "Order", number: int, steps: Steps) -> None:
        self.order, self.number, self.steps = order, number, steps
        self.model: Model | None = None
        self.rows: list[Row] = []
        self.numbers: dict[int, Floats] = {}

    def put(self, place: int | None, numbers: Floats) -> bool:
        """Keep the numbers of a row; True where they were the last ones missing."""
        assert place is not None
        self.numbers[place] = numbers
        return len(self.numbers) == len(self.rows)

    def advance(self) -> Document | None:
        """Go on to the next rows to run; or the finished document."""
        found = [self.numbers[place] for place in range(len(self.rows))]
        try:
            self.model, self.rows = self.steps.send(found) if self.model is not None else next(self.steps)
        except StopIteration as done:
            doc: Document = done.value
            return doc
        self.numbers = {}
        return None


Slice = tuple[Job, int | None]
"""A row of a job to run; None stands for the job's beginning."""
