"""State shared by the routes: annotator, queue, stored documents, metrics, and a timeout for every response."""

import asyncio
import logging
import tempfile
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.requests import Request

from lexome.document import Document
from lexome.errors import FormatError, UsageError
from lexome.formats import Tally, read
from lexome.formats.concept_ids import concept_url
from lexome.formats.html import no_name
from lexome.formats.jsonl import from_json, to_json
from lexome.infer.annotator import Annotator, Model
from lexome.infer.concepts import ConceptOptions, Concepts
from lexome.infer.selection import MinScore
from lexome.search.engine import Index
from lexome.serve.limits import CLIENT_CLOSED, Limits, RequestError
from lexome.serve.payloads import input_formats, output_formats
from lexome.serve.queue import Queue

# Metrics for Prometheus. A label is a route, never text from a client


# Seconds; an abstract takes 0.05 to 0.2, a full queue a minute.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics(Collector):
    """Requests by path and status, their latency, and the state of the queue, in a registry of their own."""

    def __init__(self, queue: Queue) -> None:
        self.in_flight = 0  # changed by the event loop only
        self._queue = queue
        self._registry = CollectorRegistry()
        self._requests = Counter("lexome_requests", "Requests answered.", ("path", "code"), registry=self._registry)
        self._seconds = Histogram(
            "lexome_request_seconds",
            "Time from the arrival of a request to its response.",
            ("path",),
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._registry.register(self)

    def add(self, path: str, status: int, seconds: float) -> None:
        """Count a response."""
        self._requests.labels(path, status).inc()
        self._seconds.labels(path).observe(seconds)

    def collect(self) -> Iterator[Metric]:
        """Counts that the service and its queue keep themselves."""
        queue = self._queue
        yield GaugeMetricFamily("lexome_requests_in_flight", "Requests in progress.", self.in_flight)
        yield GaugeMetricFamily("lexome_queue_documents", "Documents waiting or in progress.", queue.documents)
        yield GaugeMetricFamily("lexome_queue_characters", "Characters of these documents.", queue.characters)
        yield CounterMetricFamily("lexome_documents", "Documents annotated.", queue.documents_done)
        yield CounterMetricFamily("lexome_windows", "Windows that a model ran.", queue.windows_done)
        yield CounterMetricFamily("lexome_tokens", "Tokens that a model ran.", queue.tokens_done)
        yield CounterMetricFamily("lexome_busy_seconds", "Working time of all threads together.", queue.busy_s)
        yield GaugeMetricFamily("lexome_threads", "Worker threads.", queue.threads)

    def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics and their media type, in the format that an Accept header prefers."""
        encode, media_type = choose_encoder(accept)
        return encode(self._registry), media_type


Result = TypeVar("Result")

log = logging.getLogger("lexome.serve")

# The service

# What new models are tried on before they replace the old ones.
PROBE = "Olaparib in BRCA1 breast cancer: a trial in 40 patients."
# Concepts of one response whose names are looked up, at a tenth of a millisecond each.
MAX_DESCRIBED = 5000

# Smaller bodies are parsed, and responses written, in less time than it takes to wake another thread.
SMALL_BYTES = 1 << 16
# Threads for large bodies and responses: so few that such clients wait for each other, not all others.
LARGE_BODY_THREADS = 2


@dataclass(frozen=True, slots=True)
class RelationQuery:
    """The relations that a request asks for: any at all (None: if a model is loaded), types and minimum score."""

    wanted: bool | None = None
    types: Sequence[str] | None = None
    min_score: float | None = None


ANY_RELATIONS = RelationQuery()


class Library:
    """Documents by PubMed id, and by their own id.

    They are in a temporary file, so that memory grows by about a hundred bytes per document, however long it is.
    """

    def __init__(self) -> None:
        self.documents = 0
        self._places: dict[str, tuple[int, int]] = {}
        self._file: IO[bytes] | None = None
        self._lock = threading.Lock()

    @classmethod
    def of(cls, docs: Iterable[Document]) -> "Library":
        """A library of these documents; of two with one id, the first."""
        library = cls()
        library._file = file = tempfile.TemporaryFile(prefix="lexome-")  # noqa: SIM115  # open while it is served
        end = 0
        for doc in docs:
            raw = to_json(doc)
            file.write(raw)
            for name in {doc.id, doc.meta.pmid or doc.id}:
                library._places.setdefault(name, (end, len(raw)))
            end += len(raw)
            library.documents += 1
        return library

    @classmethod
    def open(cls, path: Path, tally: Tally) -> "Library":
        """All documents of a folder or file, in any format."""
        library = cls.of(read(path, tally=tally))
        if not library.documents:
            library.close()
            raise FormatError(f"{path}: contains no documents.", code="no-documents", value=path)
        return library

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def __getitem__(self, name: str) -> Document:
        start, size = self._places[name]
        assert self._file is not None
        with self._lock:
            self._file.seek(start)
            raw = self._file.read(size)
        return from_json(raw)

    def size(self, names: Iterable[str]) -> int:
        """Total size of documents as JSON, in bytes."""
        return sum(self._places[name][1] for name in names)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


class Service:
    """An annotator that serves many clients at once."""

    def __init__(
        self,
        annotator: Annotator,
        *,
        library: Library,
        limits: Limits,
        threads: int,
        batch_tokens: int = 0,
        open_models: Callable[[], Annotator] | None = None,
        indexes: Mapping[str, Index] | None = None,
    ) -> None:
        self.annotator, self.library, self.limits = annotator, library, limits
        self.reloads = self.failed_reloads = 0
        self._open_models = open_models
        self._reloading = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Future[None]] = set()  # the loop itself holds them weakly
        self.indexes = dict(indexes or {})
        self._searching = 0
        # One thread: an index reads from one connection, and a search takes some hundredths of a second.
        self._searches = ThreadPoolExecutor(1, "lexome-search")
        self.queue = Queue(limits, threads=threads, batch_tokens=batch_tokens)
        self.metrics = Metrics(self.queue)
        self.ready = False
        self._large_bodies = ThreadPoolExecutor(LARGE_BODY_THREADS, "lexome-read")

    def start(self) -> None:
        """Start the worker threads, in the event loop of the service."""
        self._loop = asyncio.get_running_loop()
        self.queue.start()
        self.ready = True

    def close(self) -> None:
        """Stop the threads and close files."""
        self.ready = False
        self.queue.close()
        self._large_bodies.shutdown(cancel_futures=True)
        self._searches.shutdown(cancel_futures=True)
        for index in self.indexes.values():
            index.close()
        self.library.close()

    def about(self) -> dict[str, Any]:
        """Description of the models, formats and limits."""
        limits = {name: getattr(self.limits, name) for name in ("body_bytes", "documents", "characters")}
        limits["seconds"] = self.limits.answer_s
        indexes = [
            {"name": name, "documents": index.documents, "vectors": index.has_vectors}
            for name, index in self.indexes.items()
        ]
        formats = {"formats": output_formats(), "reads": input_formats()}
        return {
            **self.annotator.about(),
            **formats,
            "limits": limits,
            "documents": self.library.documents,
            "indexes": indexes,
        }

    def models(self, *kinds: str) -> Sequence[Model]:
        """The models of some kinds; all models without kinds."""
        return [model for model in self.annotator.models if not kinds or model.kind in kinds]

    async def annotate(
        self,
        docs: Sequence[Document],
        *kinds: str,
        types: Sequence[str] | None = None,
        min_score: float | None = None,
        relations: RelationQuery = ANY_RELATIONS,
        link: bool = True,
        abbreviations: bool = False,
    ) -> list[Document]:
        """The documents, annotated by the models of some kinds, or by all; with `types` empty, by none.

        A reload does not change the models of documents in progress. If mentions are predicted, they are also linked,
        and names of dictionaries are found.
        """
        models = self.models(*kinds) if types is None or types else []
        min_scores = self._check_relations(relations, min_score, types)
        if relations.wanted is False:
            models = [model for model in models if not model.task.relates]
        concepts = None
        if models and (not kinds or "ner" in kinds):
            concepts = self._concepts(link=link, abbreviations=abbreviations)
        selection = self.annotator.select(types=types, min_score=min_scores, relation_types=relations.types)
        return await self.queue.run(docs, models, selection, concepts=concepts)

    def _check_relations(
        self, relations: RelationQuery, min_score: float | None, types: Sequence[str] | None
    ) -> MinScore | None:
        """The minimum scores of mentions and relations; an error if the relations asked for cannot be predicted."""
        annotator = self.annotator
        filtered = relations.types is not None or relations.min_score is not None
        if filtered and relations.wanted is False:
            message = "relation_types and min_relation_score cannot be combined with relations=false. Leave one out."
            raise UsageError(message, code="conflicting-options", value="relations")
        if (relations.wanted or filtered) and not annotator.relation_types:
            names = ", ".join(model.name for model in annotator.models)
            message = f"no model that predicts relations is loaded, only {names}. Start the service with --relations."
            raise RequestError(404, message)
        if relations.wanted:
            annotator.require_pairs(types)
        if relations.min_score is None:
            return min_score
        scored = (*annotator.types, *annotator.extra_types)
        mentions = {} if min_score is None else dict.fromkeys(scored, min_score)
        return {**mentions, **dict.fromkeys(annotator.relation_types, relations.min_score)}

    def _concepts(self, *, link: bool, abbreviations: bool) -> Concepts | None:
        """The step that adds names, concept ids and abbreviations in one request."""
        if self.annotator.concepts is not None:
            return self.annotator.concepts.only(link=link, abbreviations=abbreviations)
        return ConceptOptions(link=False, abbreviations=abbreviations).open()

    def describe_concepts(self, docs: Iterable[Document]) -> dict[str, dict[str, str | None]]:
        """The preferred name and the page of each concept of the documents, of the first few thousand."""
        concepts = dict.fromkeys(concept for doc in docs for span in doc.spans for concept in span.concepts)
        name = self.annotator.concepts.preferred_name if self.annotator.concepts is not None else no_name
        described = islice(concepts, MAX_DESCRIBED)
        return {concept: {"name": name(concept), "url": concept_url(concept)} for concept in described}

    async def reload(self) -> None:
        """Open the models again, try them on a text, and use them for requests from now on.

        RequestError if that fails; the old models then stay.
        """
        open_models = self._open_models
        if open_models is None:
            raise RequestError(404, "the models of this service cannot be reloaded: they were not given as folders.")
        if self._reloading.locked():
            raise RequestError(429, "a reload is in progress. Retry when it has ended.", retry_after_s=5)

        def open_and_try() -> Annotator:
            annotator = open_models()
            list(annotator.annotate([annotator.document(PROBE)]))
            return annotator

        async with self._reloading:
            try:
                annotator = await asyncio.to_thread(open_and_try)
            # Whatever is wrong with the new models, the service keeps the old ones.
            except Exception as error:
                self.failed_reloads += 1
                log.error("reload failed, the old models stay: %s", error)
                raise RequestError(503, f"the new models cannot be used, the old ones stay: {error}") from error
        # In the event loop, between two steps of any request: none sees half of it.
        self.annotator = annotator
        self.reloads += 1
        log.warning("reloaded %s", ", ".join(model.name for model in annotator.models))

    def reload_soon(self) -> None:
        """Reload from a signal handler or another thread; failures are logged."""

        async def attempt() -> None:
            with suppress(RequestError):
                await self.reload()

        if self._loop is not None:
            self._loop.call_soon_threadsafe(lambda: self._tasks.add(asyncio.ensure_future(attempt())))

    async def search(self, work: Callable[[], Result]) -> Result:
        """The result of a search, computed in the thread of searches; RequestError if too many are waiting."""
        if self._searching >= self.limits.searches:
            message = f"{self.limits.searches:,} searches are waiting, which is the limit. Retry in 1 s."
            raise RequestError(429, message, retry_after_s=1)
        self._searching += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._searches, work)
        finally:
            self._searching -= 1

    async def offload(self, size: int, work: Callable[[], Result]) -> Result:
        """The result of `work` on so many bytes, computed in another thread if it may take long."""
        if size <= SMALL_BYTES:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._large_bodies, work)

    async def in_time(self, request: Request, work: Awaitable[Result]) -> Result:
        """The result of `work`; RequestError on a timeout or shutdown, canceled if the client disconnects."""
        task = asyncio.ensure_future(work)
        disconnect = asyncio.ensure_future(_disconnect(request))
        try:
            await asyncio.wait({task, disconnect}, timeout=self.limits.answer_s, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
        except asyncio.CancelledError:
            # Only the server cancels a request: when it was told to stop and has waited long enough.
            raise RequestError(503, "the service is stopping. Retry later, or use another instance.") from None
        finally:
            task.cancel()
            disconnect.cancel()
        if disconnect.done():
            raise RequestError(CLIENT_CLOSED, "the client has disconnected.")
        message = f"no response within {self.limits.answer_s:g} s. Send less text per request, or retry later."
        raise RequestError(503, message, retry_after_s=5)


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
