"""serve: the service on a port, with connections that are slow or too many cut off, until it is told to stop."""

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from lexome.errors import UsageError
from lexome.serve.limits import Limits

# Longer heads are nobody's; a thousand ids of documents in a query fit.
HEAD_BYTES = 1 << 16
# Pieces of a body that may be as small as they like, and bytes that more of them must have on average.
MANY_PIECES, SMALL_PIECE = 10_000, 64
CRUMBLED = f"the body comes in many pieces of less than {SMALL_PIECE} bytes. Send it in larger ones."
# Files that are open besides connections.
FILES = 128
# Connections that wait to be taken while the service is at something else.
BACKLOG = 1024


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that connections can be made to; UsageError where the address is taken or none of ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol said: asyncio sends without delay only where it is, and each answer would wait 40 ms.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as made:
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((host, port))
            made.listen(BACKLOG)
        except OSError as error:
            raise UsageError(
                f"{host}, port {port}: cannot listen there ({error.strerror}). Name another with --host and --port."
            ) from None
        yield made


def serve(app: ASGIApp, listener: socket.socket, *, limits: Limits) -> None:
    """Answer requests until an interrupt or SIGTERM; what is under way then has `stop_s` to finish."""
    # The signal that ended it comes again once all is answered, and is no interruption then.
    make_room(limits.connections)
    with suppress(KeyboardInterrupt):
        uvicorn.Server(configured(app, limits)).run(sockets=[listener])


def make_room(connections: int) -> None:
    """Let the process have so many connections and some files, where the system's first bound is lower."""
    try:
        import resource
    except ModuleNotFoundError:  # where there is no POSIX
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + FILES if hard == resource.RLIM_INFINITY else min(connections + FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def configured(app: ASGIApp, limits: Limits) -> uvicorn.Config:
    """uvicorn's settings."""
    return uvicorn.Config(
        app,
        http=guarded(limits),
        ws="none",
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=HEAD_BYTES,
        timeout_keep_alive=int(limits.idle_s),
        timeout_graceful_shutdown=int(limits.stop_s),
    )


class Pieces(h11.Connection):
    """h11's connection, with a bound on how small the pieces of a body are: each takes as long as a large one."""

    pieces = size = 0

    @property
    def crumbles(self) -> bool:
        """Whether there are so many pieces, and so small ones, that others would have to wait for them."""
        return self.pieces > MANY_PIECES and self.size < self.pieces * SMALL_PIECE

    def next_event(self) -> Any:
        """What came next; an error where it crumbles."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.pieces = self.size = 0
        elif isinstance(event, h11.Data):
            self.pieces += 1
            self.size += len(event.data)
            if self.crumbles:
                raise h11.RemoteProtocolError(CRUMBLED)
        return event


class Guarded(H11Protocol):
    """uvicorn's connection with bounds of time on what it leaves open: a request's head, and a client's reading."""

    limits: Limits

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.conn = Pieces(h11.SERVER, HEAD_BYTES)
        self.head_timer: asyncio.TimerHandle | None = None
        self.send_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # So that whatever a client does not take is timed, and not only what fills a buffer.
        transport.set_write_buffer_limits(high=0)
        if len(self.connections) > self.limits.connections:
            self.refuse(503, f"{self.limits.connections:,} connections are open, and no more may be. Try again.")
            return
        self.watch_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.watch_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.watch_head()

    def watch_head(self) -> None:
        """A timer from the first byte of a request to the last of its head, however the bytes come."""
        idle = self.timeout_keep_alive_task is not None
        complete = self.cycle is not None and not self.cycle.response_complete
        if complete or idle or self.transport.is_closing():
            self.head_timer = _cancelled(self.head_timer)
        elif self.head_timer is None:
            self.head_timer = self.loop.call_later(self.limits.read_s, self.too_slow)

    def too_slow(self) -> None:
        """Cut off a request whose head took too long."""
        if not self.transport.is_closing():
            self.refuse(408, f"the head of the request did not arrive within {self.limits.read_s:g} s. Send it faster.")

    def refuse(self, status: int, reason: str) -> None:
        """Answer with an error and close."""
        body = json.dumps({"error": reason}).encode()
        head = f"HTTP/1.1 {status} \r\ncontent-type: application/json\r\nconnection: close\r\n"
        self.transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            seen = f"{msg} Expected a request of HTTP/1.1."
            self.refuse(400, CRUMBLED if isinstance(self.conn, Pieces) and self.conn.crumbles else seen)
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.send_timer = self.send_timer or self.loop.call_later(self.limits.send_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.send_timer = _cancelled(self.send_timer)

    def connection_lost(self, exc: Exception | None) -> None:
        self.head_timer, self.send_timer = _cancelled(self.head_timer), _cancelled(self.send_timer)
        super().connection_lost(exc)


def guarded(limits: Limits) -> type[Guarded]:
    """The connection with these limits; uvicorn takes a class, and makes each connection itself."""

    class Limited(Guarded):
        pass

    Limited.limits = limits
    return Limited


def _cancelled(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    if timer is not None:
        timer.cancel()
    return None
