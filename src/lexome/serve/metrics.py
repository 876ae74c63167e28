"""Metrics of the service for Prometheus. A label is a route, never text from a client."""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from lexome.serve.queue import Queue

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
