"""What the service has done, in the text form that Prometheus reads.

Written by hand: six counters do not need a library with a registry of its own, and a label is a route, never what a
client wrote.
"""

from bisect import bisect_left
from collections import Counter

from lexome.serve.queue import Queue

# Seconds; an abstract takes a twentieth to a fifth of one, a queue that is full a minute.
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Requests by path and status, and how long they took. Used from the event loop alone."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.in_flight = 0
        self._times: dict[str, list[int]] = {}
        self._seconds: Counter[str] = Counter()

    def add(self, path: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self.requests[path, status] += 1
        self._times.setdefault(path, [0] * (len(BOUNDS) + 1))[bisect_left(BOUNDS, seconds)] += 1
        self._seconds[path] += seconds  # type: ignore[assignment]  # a Counter may hold any number

    def text(self, queue: Queue) -> str:
        """Everything counted, the queue's numbers among it."""
        lines = _head("lexome_requests_total", "counter", "Requests answered.")
        lines += (
            f'lexome_requests_total{{path="{path}",code="{code}"}} {count}'
            for (path, code), count in sorted(self.requests.items())
        )
        lines += self._histogram("lexome_request_seconds")
        for name, kind, about, held in (
            ("lexome_requests_in_flight", "gauge", "Requests being answered.", self.in_flight),
            ("lexome_queue_documents", "gauge", "Documents waiting or worked on.", queue.documents),
            ("lexome_queue_characters", "gauge", "Their characters.", queue.characters),
            ("lexome_documents_total", "counter", "Documents annotated.", queue.documents_done),
            ("lexome_windows_total", "counter", "Windows that a model was run on.", queue.windows_done),
            ("lexome_tokens_total", "counter", "Tokens that a model was run on.", queue.tokens_done),
            ("lexome_busy_seconds_total", "counter", "Time that threads worked, together.", round(queue.busy_s, 3)),
            ("lexome_threads", "gauge", "Threads that work.", queue.threads),
        ):
            lines += (*_head(name, kind, about), f"{name} {held}")
        return "\n".join(lines) + "\n"

    def _histogram(self, name: str) -> list[str]:
        lines = _head(name, "histogram", "From a request's arrival to its answer.")
        for path, counts in sorted(self._times.items()):
            total = 0
            for bound, count in zip((*map(str, BOUNDS), "+Inf"), counts, strict=True):
                total += count
                lines.append(f'{name}_bucket{{path="{path}",le="{bound}"}} {total}')
            lines.append(f'{name}_sum{{path="{path}"}} {self._seconds[path]:.6f}')
            lines.append(f'{name}_count{{path="{path}"}} {total}')
        return lines


def _head(name: str, kind: str, about: str) -> list[str]:
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
