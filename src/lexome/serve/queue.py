"""One queue for all clients: threads take one window of text at a time, from each request in turn.

So a request of a thousand documents, or of one document with a thousand windows, has one place in the round-robin and
not a thousand, and a short text never waits for all of a long one.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from lexome.document import Document
from lexome.infer.annotator import Model, Steps, annotation_steps
from lexome.infer.concepts import Concepts
from lexome.infer.selection import Selection
from lexome.serve.limits import Limits, RequestError
from lexome.tasks.task import Example, Floats

# Longer documents are encoded and decoded in a separate thread: half a million characters take a second, in which no
# other request would make progress.
LONG_CHARACTERS = 20_000


class DocumentJob:
    """One document in progress: the windows that its current model has to run, and the logits so far."""

    def __init__(self, request: "QueuedRequest", index: int, steps: Steps) -> None:
        self.request, self.index, self.steps = request, index, steps
        self.model: Model | None = None
        self.examples: list[Example] = []
        self.logits: dict[int, Floats] = {}

    def put(self, window: int, logits: Floats) -> bool:
        """Store the logits of a window; True if they were the last ones missing."""
        self.logits[window] = logits
        return len(self.logits) == len(self.examples)

    def advance(self) -> Document | None:
        """Continue to the next windows to run; the document if it is finished."""
        logits = [self.logits[window] for window in range(len(self.examples))]
        try:
            self.model, self.examples = self.steps.send(logits) if self.model is not None else next(self.steps)
        except StopIteration as end:
            doc: Document = end.value
            return doc
        self.logits = {}
        return None


WorkItem = tuple[DocumentJob, int | None]
"""A window of a document to run; None is the start of the document."""


class QueuedRequest:
    """The documents of one request: not started, with windows to run, or finished."""

    def __init__(
        self,
        docs: Sequence[Document],
        models: Sequence[Model],
        selection: Selection,
        limits: Limits,
        concepts: Concepts | None = None,
    ) -> None:
        self.docs, self.models, self.selection, self.limits = docs, models, selection, limits
        self.concepts = concepts
        self.started = 0
        self.ready: deque[WorkItem] = deque()
        self.results: list[Document | None] = [None] * len(docs)
        self.unfinished = len(docs)
        self.characters = sum(map(text_length, docs))
        self.in_round = False
        self.abandoned = False
        self.loop = asyncio.get_running_loop()
        self.done: asyncio.Future[list[Document]] = self.loop.create_future()

    @property
    def has_work(self) -> bool:
        """Whether a thread could take a work item now."""
        return not self.abandoned and (bool(self.ready) or self.started < len(self.docs))

    def take(self) -> WorkItem:
        """A window to run, or else a document to start."""
        if self.ready:
            return self.ready.popleft()
        index = self.started
        self.started += 1
        steps = annotation_steps(
            self.docs[index],
            self.models,
            self.selection,
            concepts=self.concepts,
            check=self._check_size,
            check_mentions=self._check_mentions,
        )
        return DocumentJob(self, index, steps), None

    def _check_size(self, model: Model, doc: Document) -> None:
        if (reason := model.task.oversize(doc, self.limits.pairs)) is not None:
            raise RequestError(413, f"{model.name}: document {doc.id[:60]!r} has {reason}")

    def _check_mentions(self, doc: Document) -> None:
        """Mentions are looked up one by one, some by similarity, which takes a millisecond or two."""
        linked = self.concepts is not None and self.concepts.linker is not None
        mentions = len({(span.text, span.type) for span in doc.spans}) if linked else 0
        if mentions > self.limits.mentions:
            message = f"document {doc.id[:60]!r} has {mentions:,} different mentions to link; expected at most "
            raise RequestError(413, f"{message}{self.limits.mentions:,}. Split it, or send it with link=false.")

    def finish(self, error: Exception | None = None) -> None:
        """Resolve the future, from any thread: all documents are finished, or one failed."""

        def resolve() -> None:
            if self.done.done():
                return
            if error is not None:
                self.done.set_exception(error)
            else:
                self.done.set_result([doc for doc in self.results if doc is not None])

        self.loop.call_soon_threadsafe(resolve)


class Queue:
    """Threads that annotate documents of all requests; `run` adds documents and awaits the result.

    Windows of one model, from any requests, are batched up to `batch_tokens`. On a CPU one at a time is fastest: there
    is no padding (docs/decisions/0010-inference.md), and as many threads as cores keep all of them busy.
    """

    def __init__(self, limits: Limits, *, threads: int, batch_tokens: int = 0) -> None:
        self.limits, self.threads, self.batch_tokens = limits, threads, batch_tokens
        self.documents = self.characters = 0  # waiting or in progress
        self.documents_done = self.characters_done = self.tokens_done = self.windows_done = 0
        self.busy_s = 0.0  # of all threads together
        self._round: deque[QueuedRequest] = deque()
        self._changed = threading.Condition()
        self._open = False
        self._workers: list[threading.Thread] = []
        self._long_documents = ThreadPoolExecutor(1, "lexome-long")

    def start(self) -> None:
        """Start the threads."""
        self._open = True
        for number in range(self.threads):
            worker = threading.Thread(target=self._work, name=f"lexome-work-{number}", daemon=True)
            worker.start()
            self._workers.append(worker)

    def close(self) -> None:
        """Stop the threads after their current work item; waiting ones are not run."""
        with self._changed:
            self._open = False
            self._changed.notify_all()
        while self._workers:
            self._workers.pop().join()
        self._long_documents.shutdown(cancel_futures=True)

    async def run(
        self,
        docs: Sequence[Document],
        models: Sequence[Model],
        selection: Selection,
        *,
        concepts: Concepts | None = None,
    ) -> list[Document]:
        """The annotated documents, in order, with `concepts` also linked; RequestError if the queue is full.

        If the caller stops waiting, remaining work is not done.
        """
        if not docs:
            return []
        request = QueuedRequest(docs, models, selection, self.limits, concepts)
        self._admit(request)
        try:
            return await request.done
        finally:
            with self._changed:
                request.abandoned = True
                self.documents -= len(docs)
                self.characters -= request.characters

    def _admit(self, request: QueuedRequest) -> None:
        with self._changed:
            if not self._open:
                raise RequestError(503, "the service is stopping. Retry later, or use another instance.")
            documents, characters = self.documents + len(request.docs), self.characters + request.characters
            # An empty queue takes any request: those have their own limits.
            if self.documents and (documents > self.limits.queue or characters > self.limits.queue_characters):
                per_s = self.threads * self.characters_done / self.busy_s if self.busy_s else 0.0
                wait = min(max(1, round(self.characters / max(per_s, 1000.0))), 120)
                message = f"{self.documents:,} documents, {self.characters:,} characters are queued. Retry in {wait} s."
                raise RequestError(429, message, retry_after_s=wait)
            self.documents, self.characters = documents, characters
            self._enter(request)

    def _enter(self, request: QueuedRequest, *, first: bool = False) -> None:
        """Put a request that has work at the end of the round, or at its start; the lock is held."""
        if not request.in_round and request.has_work:
            request.in_round = True
            if first:
                self._round.appendleft(request)
            else:
                self._round.append(request)
            self._changed.notify(len(request.ready) + 1)

    def _work(self) -> None:
        spent_s = 0.0
        while True:
            with self._changed:
                self.busy_s += spent_s
                while self._open and not self._round:
                    self._changed.wait()
                if not self._open:
                    return
                items = self._take()
            start = time.perf_counter()
            try:
                if items and items[0][1] is None:
                    self._advance(items[0][0])
                elif items:
                    self._run(items)
            # Whatever an unforeseen text does to a model is reported to its client, and must not end the thread.
            except Exception as error:
                for job, _ in items:
                    job.request.finish(error)
            spent_s = time.perf_counter() - start

    def _take(self) -> list[WorkItem]:
        """A work item of the next request, and windows of those behind it that fit into the same batch."""
        items: list[WorkItem] = []
        tokens = 0
        while self._round:
            request = self._round[0]
            if items and not (request.ready and self._fits_batch(request.ready[0], items[0], tokens)):
                break
            self._round.popleft()
            request.in_round = False
            if not request.has_work:
                continue
            job, window = request.take()
            items.append((job, window))
            self._enter(request)
            if window is None:
                break
            tokens += len(job.examples[window].ids)
        return items

    def _fits_batch(self, item: WorkItem, first: WorkItem, tokens: int) -> bool:
        job, window = item
        if window is None or job.model is not first[0].model:
            return False
        return tokens + len(job.examples[window].ids) <= self.batch_tokens

    def _run(self, items: list[WorkItem]) -> None:
        model = items[0][0].model
        assert model is not None
        windows = [(job, window) for job, window in items if window is not None]
        examples = [job.examples[window] for job, window in windows]
        logits = model.run(examples, batch_tokens=self.batch_tokens)
        with self._changed:
            complete = [job for (job, window), own in zip(windows, logits, strict=True) if job.put(window, own)]
            self.windows_done += len(examples)
            self.tokens_done += sum(len(example.ids) for example in examples)
        for job in complete:
            self._advance(job)

    def _advance(self, job: DocumentJob) -> None:
        if text_length(job.request.docs[job.index]) > LONG_CHARACTERS:
            self._long_documents.submit(self._decode_and_encode, job)
        else:
            self._decode_and_encode(job)

    def _decode_and_encode(self, job: DocumentJob) -> None:
        """From logits to the windows of the next model, or to the finished document."""
        request = job.request
        if request.abandoned:
            return
        starts = job.model is None
        try:
            doc = job.advance()
        except Exception as error:
            request.finish(error)
            return
        with self._changed:
            if doc is None:
                request.ready.extend((job, window) for window in range(len(job.examples)))
                # Encoding is not a turn: it takes a millisecond, a window a hundred. But a batch waits for others.
                self._enter(request, first=starts and not self.batch_tokens)
                return
            request.results[job.index] = doc
            request.unfinished -= 1
            self.documents_done += 1
            self.characters_done += text_length(doc)
        if not request.unfinished:
            request.finish()


def text_length(doc: Document) -> int:
    """Characters of the document's text, gaps between passages included."""
    return doc.passages[-1].end if doc.passages else 0
