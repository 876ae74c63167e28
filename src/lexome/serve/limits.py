"""Limits of the service, and the error for requests that exceed them."""

from dataclasses import dataclass

from lexome.errors import LexomeError


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the service.

    body_bytes        size of one request body
    documents         per request
    characters        per document
    relations         that a document comes with; removing one searches all others for references to it
    question          characters of one question
    pairs             of mentions in one document that a model has to classify; also questions times windows
    searches          that are waiting or in progress
    mentions          of one document that are linked to concepts, counting each name once
    queue             documents of all clients that are waiting or in progress
    queue_characters  their total length; one request is always accepted by an empty queue
    held_bytes        bodies and unsent responses of all open requests together
    requests          that may be open at once
    connections       likewise, idle ones included
    answer_s          from the arrival of a request to its response
    read_s            for the head of a request, and again for its body
    send_s            for a client to read what exceeds the system's buffers
    idle_s            between two requests of one connection
    stop_s            for requests in progress when the service stops
    """

    body_bytes: int = 8_000_000
    documents: int = 1000
    characters: int = 500_000
    relations: int = 2000
    question: int = 10_000
    pairs: int = 2000
    searches: int = 64
    mentions: int = 5000
    queue: int = 2000
    queue_characters: int = 4_000_000
    held_bytes: int = 256_000_000
    requests: int = 512
    connections: int = 1024
    answer_s: float = 60.0
    read_s: float = 20.0
    send_s: float = 60.0
    idle_s: float = 15.0
    stop_s: float = 30.0


# Status of a request whose client disconnected: visible in the metrics only.
CLIENT_CLOSED = 499


class RequestError(LexomeError):
    """A request that is answered with an error status, a reason, and when to retry."""

    def __init__(self, status: int, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message, code=f"http-{status}")
        self.status = status
        self.retry_after_s = retry_after_s
