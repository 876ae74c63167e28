"""serve: the service on a port, with timeouts for slow connections and a limit on their number."""

import asyncio
import json
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from lexome.errors import UsageError
from lexome.serve.limits import Limits
from lexome.serve.middleware import Gate

# A thousand document ids in a query fit; nobody needs longer heads.
HEAD_BYTES = 1 << 16
# Chunks of a body that may have any size, and the mean size that more of them must have.
MANY_CHUNKS, SMALL_CHUNK = 10_000, 64
TOO_MANY_CHUNKS = f"the body has many chunks of less than {SMALL_CHUNK} bytes. Send larger ones."
# Files that are open besides connections.
OTHER_FILES = 128
# Connections that wait to be accepted while the event loop is busy.
BACKLOG = 1024


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A listening socket; UsageError if the address is in use or not of this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol: asyncio sets TCP_NODELAY only then, and each response would be delayed by 40 ms.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            listener.listen(BACKLOG)
        except OSError as error:
            message = f"{host}:{port}: cannot listen ({error.strerror}). Choose another --host or --port."
            raise UsageError(message, code="address-unavailable", value=(host, port)) from None
        yield listener


def serve(app: Gate, listener: socket.socket, *, limits: Limits) -> None:
    """Serve until SIGINT or SIGTERM; requests in progress then have `stop_s` to finish. SIGHUP reloads the models."""
    raise_file_limit(limits.connections)
    if hasattr(signal, "SIGHUP") and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGHUP, lambda number, frame: app.reload())
    # uvicorn raises the signal again after shutdown.
    with suppress(KeyboardInterrupt):
        uvicorn.Server(uvicorn_config(app, limits)).run(sockets=[listener])


def raise_file_limit(connections: int) -> None:
    """Raise the soft limit of open files to so many connections, as far as the hard limit permits."""
    try:
        import resource
    except ModuleNotFoundError:  # not on POSIX
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = connections + OTHER_FILES
    files = files if hard == resource.RLIM_INFINITY else min(files, hard)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))


def uvicorn_config(app: ASGIApp, limits: Limits) -> uvicorn.Config:
    """uvicorn's settings."""
    return uvicorn.Config(
        app,
        http=limited_protocol(limits),
        ws="none",
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=HEAD_BYTES,
        timeout_keep_alive=int(limits.idle_s),
        timeout_graceful_shutdown=int(limits.stop_s),
    )


class ChunkLimit(h11.Connection):
    """h11's connection with a limit on tiny chunks of a body: each takes as long as a large one."""

    chunks = size = 0

    @property
    def exceeded(self) -> bool:
        """Whether there are so many small chunks that other clients would have to wait."""
        return self.chunks > MANY_CHUNKS and self.size < self.chunks * SMALL_CHUNK

    def next_event(self) -> Any:
        """The next event; an error if the limit is exceeded."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.chunks = self.size = 0
        elif isinstance(event, h11.Data):
            self.chunks += 1
            self.size += len(event.data)
            if self.exceeded:
                raise h11.RemoteProtocolError(TOO_MANY_CHUNKS)
        return event


class LimitedProtocol(H11Protocol):
    """uvicorn's connection with the timeouts it lacks: for the head of a request, and for a client that reads."""

    limits: Limits

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conn = ChunkLimit(h11.SERVER, HEAD_BYTES)
        self.head_timer: asyncio.TimerHandle | None = None
        self.send_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Any unread byte starts the timer, not only a full buffer.
        transport.set_write_buffer_limits(high=0)
        if len(self.connections) > self.limits.connections:
            self.refuse(503, f"{self.limits.connections:,} connections are open, which is the limit. Retry.")
            return
        self.watch_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.watch_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.watch_head()

    def watch_head(self) -> None:
        """Time from the first byte of a request to the last of its head."""
        idle = self.timeout_keep_alive_task is not None
        complete = self.cycle is not None and not self.cycle.response_complete
        if complete or idle or self.transport.is_closing():
            self.head_timer = _cancel(self.head_timer)
        elif self.head_timer is None:
            self.head_timer = self.loop.call_later(self.limits.read_s, self.head_timeout)

    def head_timeout(self) -> None:
        """Refuse a request whose head took too long."""
        if not self.transport.is_closing():
            self.refuse(408, f"timeout: the head of the request did not arrive within {self.limits.read_s:g} s.")

    def refuse(self, status: int, reason: str) -> None:
        """Send an error and close."""
        body = json.dumps({"error": reason}).encode()
        head = f"HTTP/1.1 {status} \r\ncontent-type: application/json\r\nconnection: close\r\n"
        self.transport.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        self.transport.close()

    def send_400_response(self, msg: str) -> None:
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            chunks = isinstance(self.conn, ChunkLimit) and self.conn.exceeded
            self.refuse(400, TOO_MANY_CHUNKS if chunks else f"{msg} Expected an HTTP/1.1 request.")
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.send_timer = self.send_timer or self.loop.call_later(self.limits.send_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self.send_timer = _cancel(self.send_timer)

    def connection_lost(self, exc: Exception | None) -> None:
        self.head_timer, self.send_timer = _cancel(self.head_timer), _cancel(self.send_timer)
        super().connection_lost(exc)


def limited_protocol(limits: Limits) -> type[LimitedProtocol]:
    """The protocol with these limits; uvicorn takes a class, not an instance."""
    return type("LimitedProtocol", (LimitedProtocol,), {"limits": limits})


def _cancel(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    if timer is not None:
        timer.cancel()
    return None
