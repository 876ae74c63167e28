"""The work of all clients in one queue: threads take a window of text at a time, from each request in its turn.

A request of a thousand documents, or of one document with a thousand windows, so has one place in the round and not a
thousand, and a short text never waits for all of a long one.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from lexome.document import Document
from lexome.infer.model import Model
from lexome.infer.selection import Choice
from lexome.serve.limits import Limits, Refused
from lexome.tasks import Questions, Relations
from lexome.tasks.qa import question_contexts
from lexome.tasks.task import Example, Floats

# By about so many characters one window comes after another.
WINDOW = 1000

Steps = Generator[tuple[Model, list[Example]], list[Floats], Document]


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
    windows = len(question_contexts(doc)) + sum(len(passage.text) for passage in doc.passages) // WINDOW
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
        self.rows: list[Example] = []
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


# Longer documents are cut into windows, and put together again, in a thread of their own: for half a million characters
# that takes a second, in which no other request would be worked on.
LONG = 20_000


class Order:
    """What one request asked for: documents to begin, rows to run, and documents that are done."""

    def __init__(self, docs: Sequence[Document], models: Sequence[Model], choice: Choice, limits: Limits) -> None:
        self.docs, self.models, self.choice, self.limits = docs, models, choice, limits
        self.begun = 0
        self.ready: deque[Slice] = deque()
        self.found: list[Document | None] = [None] * len(docs)
        self.left = len(docs)
        self.characters = sum(map(length, docs))
        self.waiting = False  # whether it stands in the round
        self.dropped = False
        self.loop = asyncio.get_running_loop()
        self.done: asyncio.Future[list[Document]] = self.loop.create_future()

    @property
    def has_work(self) -> bool:
        """Whether a thread could take something of it now."""
        return not self.dropped and (bool(self.ready) or self.begun < len(self.docs))

    def take(self) -> Slice:
        """A row that can be run, else a document to begin."""
        if self.ready:
            return self.ready.popleft()
        number = self.begun
        self.begun += 1
        return Job(self, number, steps(self.docs[number], self.models, self.choice, self.limits)), None

    def settle(self, error: Exception | None = None) -> None:
        """Tell whoever waits, from any thread, that all is done or that it failed."""
        self.loop.call_soon_threadsafe(self._settle, error)

    def _settle(self, error: Exception | None) -> None:
        if self.done.done():
            return
        if error is not None:
            self.done.set_exception(error)
        else:
            self.done.set_result([doc for doc in self.found if doc is not None])


class Queue:
    """Threads that work on what clients ask for, a slice at a time; `run` gives them documents and awaits the result.

    Rows of one model, of whichever clients, are run together up to `batch_tokens`. On a CPU one at a time is fastest:
    no padding is computed (docs/decisions/0010-inference.md), and as many threads as cores keep all of them at work.
    """

    def __init__(self, limits: Limits, *, threads: int, batch_tokens: int = 0) -> None:
        self.limits, self.threads, self.batch_tokens = limits, threads, batch_tokens
        self.documents = self.characters = 0  # waiting or worked on
        self.documents_done = self.characters_done = self.tokens_done = self.rows_done = 0
        self.busy_s = 0.0  # of all threads together
        self._round: deque[Order] = deque()
        self._change = threading.Condition()
        self._open = False
        self._workers: list[threading.Thread] = []
        self._aside = ThreadPoolExecutor(1, "lexome-long")

    def start(self) -> None:
        """Start the threads."""
        self._open = True
        for number in range(self.threads):
            worker = threading.Thread(target=self._work, name=f"lexome-work-{number}", daemon=True)
            worker.start()
            self._workers.append(worker)

    def close(self) -> None:
        """End the threads once each has finished the slice it is at; what waits is not done."""
        with self._change:
            self._open = False
            self._change.notify_all()
        while self._workers:
            self._workers.pop().join()
        self._aside.shutdown(cancel_futures=True)

    async def run(self, docs: Sequence[Document], models: Sequence[Model], choice: Choice) -> list[Document]:
        """The documents with what is chosen of that which the models say, in order; Refused where too much waits.

        Where the caller stops waiting, what is left of the work is not done.
        """
        if not docs:
            return []
        order = Order(docs, models, choice, self.limits)
        self._admit(order)
        try:
            return await order.done
        finally:
            with self._change:
                order.dropped = True
                self.documents -= len(docs)
                self.characters -= order.characters

    def _admit(self, order: Order) -> None:
        with self._change:
            if not self._open:
                raise Refused(503, "the service is stopping and takes no more work. Ask another one, or try again.")
            documents, characters = self.documents + len(order.docs), self.characters + order.characters
            # What nothing waits before is taken however much it is: its own bounds are those of a request.
            if self.documents and (documents > self.limits.queue or characters > self.limits.queue_characters):
                raise self._full()
            self.documents, self.characters = documents, characters
            self._enter(order)

    def _full(self) -> Refused:
        per_s = self.threads * self.characters_done / self.busy_s if self.busy_s else 0.0
        wait = min(max(1, round(self.characters / max(per_s, 1000.0))), 120)
        return Refused(
            429,
            f"{self.documents:,} documents with {self.characters:,} characters are waiting; no more than "
            f"{self.limits.queue:,} and {self.limits.queue_characters:,} may. Try again in {wait} s.",
            retry_after_s=wait,
        )

    def _enter(self, order: Order, *, first: bool = False) -> None:
        """Put an order that has work at the end of the round, or first of all; the lock is held."""
        if not order.waiting and order.has_work:
            order.waiting = True
            if first:
                self._round.appendleft(order)
            else:
                self._round.append(order)
            self._change.notify(len(order.ready) + 1)

    def _work(self) -> None:
        spent_s = 0.0
        while True:
            with self._change:
                self.busy_s += spent_s
                while self._open and not self._round:
                    self._change.wait()
                if not self._open:
                    return
                taken = self._take()
            began = time.perf_counter()
            if taken:
                self._do(taken)
            spent_s = time.perf_counter() - began

    def _take(self) -> list[Slice]:
        """A slice of the order whose turn it is, and with it rows of those behind as far as they make a batch."""
        taken: list[Slice] = []
        tokens = 0
        while self._round:
            order = self._round[0]
            if taken and not (order.ready and joins(order.ready[0], taken[0], tokens, self.batch_tokens)):
                break
            self._round.popleft()
            order.waiting = False
            if not order.has_work:
                continue
            job, place = order.take()
            taken.append((job, place))
            self._enter(order)
            if place is None:
                break
            tokens += len(job.rows[place].ids)
        return taken

    def _do(self, taken: list[Slice]) -> None:
        try:
            if taken[0][1] is None:
                self._advance(taken[0][0])
            else:
                self._run(taken)
        # Whatever a text nobody foresaw makes of a model: an answer to its client, nothing for the thread to end on.
        except Exception as error:
            for job, _ in taken:
                job.order.settle(error)

    def _run(self, taken: list[Slice]) -> None:
        rows = [job.rows[place] for job, place in taken if place is not None]
        numbers = _model(taken[0]).run(rows, batch_tokens=self.batch_tokens)
        with self._change:
            complete = [job for (job, place), own in zip(taken, numbers, strict=True) if job.put(place, own)]
            self.rows_done += len(rows)
            self.tokens_done += sum(len(row.ids) for row in rows)
        for job in complete:
            self._advance(job)

    def _advance(self, job: Job) -> None:
        if length(job.order.docs[job.number]) > LONG:
            self._aside.submit(self._go_on, job)
        else:
            self._go_on(job)

    def _go_on(self, job: Job) -> None:
        """From numbers to the next model's rows, or to a finished document."""
        order = job.order
        if order.dropped:
            return
        begins = job.model is None
        try:
            doc = job.advance()
        except Exception as error:
            order.settle(error)
            return
        with self._change:
            if doc is None:
                order.ready.extend((job, place) for place in range(len(job.rows)))
                # To begin is no turn: it takes a millisecond, and a window a hundred. But a batch waits for others.
                self._enter(order, first=begins and not self.batch_tokens)
                return
            order.found[job.number] = doc
            order.left -= 1
            self.documents_done += 1
            self.characters_done += length(doc)
        if not order.left:
            order.settle()


def length(doc: Document) -> int:
    """How many characters a document has, gaps between its passages counted: its text is as long."""
    return doc.passages[-1].end if doc.passages else 0


def _model(slice_: Slice) -> Model:
    model = slice_[0].model
    assert model is not None
    return model


def joins(one: Slice, first: Slice, tokens: int, most: int) -> bool:
    """Whether a row may be run together with another one that it follows, and with so many tokens besides."""
    job, place = one
    return place is not None and job.model is first[0].model and tokens + len(job.rows[place].ids) <= most
