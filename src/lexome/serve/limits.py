"""What the service allows, and the answer to what is past it: a status, a reason, and when to come again."""

from dataclasses import dataclass

from lexome.errors import LexomeError


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of the service.

    body_bytes     of one request
    documents      in one request
    characters     of one document
    relations      that a document comes with; what leans on what is gone is looked for again and again
    question       characters of one question
    pairs          of mentions in one document that a model has to judge; of questions and windows likewise
    queue          documents that wait or are worked on, of all clients together
    queue_characters
                   their length together; one request is always taken when nothing else is there
    held_bytes     bodies, and answers that their clients have not taken yet, of all open requests together
    requests       that may be open at once
    connections    likewise, idle ones included
    answer_s       from when a request has arrived to its answer
    read_s         for the head of a request, and again for its body
    send_s         for a client to take what the system's own buffers do not
    idle_s         between two requests of one connection
    stop_s         for what is under way when the service is stopped
    """

    body_bytes: int = 8_000_000
    documents: int = 1000
    characters: int = 500_000
    relations: int = 2000
    question: int = 10_000
    pairs: int = 2000
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


# The status of a request whose client did not wait: nobody sees it but who reads the metrics.
GONE = 499


class Refused(LexomeError):
    """A request that is answered with a reason and a status that says whose fault it is."""

    def __init__(self, status: int, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s
