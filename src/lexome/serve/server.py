"""serve: the service as an ASGI application on a port, with timeouts for slow connections, whose number is limited."""

import asyncio
import json
import logging
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from hashlib import sha256
from importlib import resources
from typing import Any

import h11
import uvicorn
from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from lexome import __version__
from lexome.errors import BadDocument, FormatError, LexomeError, MissingExtraError, SearchIndexError, UsageError
from lexome.files import usable_cores
from lexome.infer.annotator import Annotator
from lexome.search.engine import Index
from lexome.serve import compat, routes
from lexome.serve.limits import Limits, RequestError
from lexome.serve.middleware import OPEN_PATHS, REQUEST_ID, AccessControl, Gate
from lexome.serve.payloads import with_parameters
from lexome.serve.schemas import Plain, describe_bodies
from lexome.serve.service import Library, Service

# The application: routes, static page, and errors as JSON


log = logging.getLogger("lexome.serve")

_DESCRIPTION = """Annotate biomedical text: mentions with exact offsets, relations, classes and answers.

Every error is JSON, `{"error": "what was seen, what was expected, what to do"}`.
"""


def make_app(
    annotator: Annotator,
    *,
    library: Library | None = None,
    limits: Limits | None = None,
    token: str | None = None,
    origins: Sequence[str] = (),
    hosts: Sequence[str] | None = None,
    threads: int | None = None,
    batch_tokens: int = 0,
    open_models: Callable[[], Annotator] | None = None,
    indexes: Mapping[str, Index] | None = None,
) -> Gate:
    """The service for an annotator, whose models should run on one thread each.

    `threads` of them work at once, by default one per core. With a `token`, requests must have it; web pages of other
    origins may send requests only if listed in `origins`. With `hosts`, only requests for these host names are
    answered. `open_models` opens the models again for a reload. `indexes` can be searched by
    their names.
    """
    limits = limits or Limits()
    service = Service(
        annotator,
        library=library or Library(),
        limits=limits,
        threads=threads or usable_cores(),
        batch_tokens=batch_tokens,
        open_models=open_models,
        indexes=indexes,
    )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        service.close()

    app = FastAPI(
        title="Lexome", version=__version__, description=_DESCRIPTION, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    app.state.service, app.state.has_token = service, token is not None
    for router in (_page_routes(), routes.router, routes.search_router, compat.router, routes.operator_router):
        app.include_router(router)
    for kind in (LexomeError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _error_response)
    describe_bodies(app, [*routes.BODIES, Plain], secured=token is not None, open_paths=OPEN_PATHS)
    metrics = service.metrics
    guarded: ASGIApp = AccessControl(app, limits=limits, metrics=metrics, token=token, origins=origins, hosts=hosts)
    if origins:
        # Around access control: a preflight has no token, and the page has to be able to read errors.
        guarded = CORSMiddleware(
            guarded,
            allow_origins=origins,
            allow_methods=("GET", "POST"),
            allow_headers=("authorization", "content-type"),
            expose_headers=("retry-after", "lexome-notes", "lexome-unknown", "x-request-id"),
        )
    return Gate(guarded, limits=limits, metrics=metrics, reload=service.reload_soon)


# By code; the message of an error of an index has the path of its folder, which is for the log.
_SEARCH_ERRORS = {
    "interrupted": "the search took too long. Ask for fewer words or results.",
    "index-in-use": "the index is being written. Send the request again.",
}


async def _error_response(request: Request, error: Exception) -> Response:
    """An error as JSON, with the status of the kind of error."""
    number = request.scope.get(REQUEST_ID, "-")
    status, message, headers = 500, f"internal error; see the log of the service for request {number}.", None
    if isinstance(error, RequestError):
        status, message = error.status, with_parameters(str(error))
        headers = None if error.retry_after_s is None else {"retry-after": str(error.retry_after_s)}
    elif isinstance(error, FormatError | BadDocument | UsageError | MissingExtraError):
        status, message = 422, with_parameters(str(error))
    elif isinstance(error, SearchIndexError) and error.code in _SEARCH_ERRORS:
        status, message = 503, _SEARCH_ERRORS[error.code]
    elif isinstance(error, RequestValidationError):
        first = error.errors()[0]
        field = ".".join(str(step) for step in first["loc"])
        status, message = 422, f"{field}: {first['msg']}. /openapi.json describes this path."
    elif isinstance(error, HTTPException):
        status, message = error.status_code, f"{error.detail}. /openapi.json describes all paths."
        headers = dict(error.headers or {}) or None
    else:
        if isinstance(error, SearchIndexError):
            status, message = 503, f"the index cannot be read; see the log of the service for request {number}."
        log.error("request %s: %s %r failed", number, request.method, request.url.path, exc_info=error)
    return JSONResponse({"error": message}, status, headers)


# Not guessed by the system's tables: a wrong type with nosniff would break the page.
_MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "json": "application/json",
}


def _page_files(package: str, folder: str) -> dict[str, bytes]:
    """The files for browsers in a package's folder, by name; none if it is not installed."""
    try:
        place = resources.files(package) / folder
    except ModuleNotFoundError:
        return {}
    return {
        path.name: path.read_bytes()
        for path in (place.iterdir() if place.is_dir() else ())
        if path.is_file() and path.name.rpartition(".")[2] in _MEDIA_TYPES
    }


def _page_routes() -> APIRouter:
    """`/`, `/docs` and `/static/`, which are for people and so not in the OpenAPI description."""
    router = APIRouter(include_in_schema=False)
    files = {**_page_files("lexome.serve", "static"), **_page_files("fastapi_swagger", "resources")}
    etags = {name: f'"{sha256(content).hexdigest()[:16]}"' for name, content in files.items()}

    def file_response(name: str, request: Request) -> Response:
        if name not in files:
            raise HTTPException(404, "no such file")
        # Revalidated each time, and sent again only if it has changed.
        headers = {"etag": etags[name], "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == etags[name]:
            return Response(status_code=304, headers=headers)
        return Response(files[name], media_type=_MEDIA_TYPES[name.rpartition(".")[2]], headers=headers)

    @router.get("/")
    async def page(request: Request) -> Response:
        return file_response("index.html", request)

    @router.get("/docs")
    async def docs(request: Request) -> Response:
        if "swagger-ui-bundle.js" not in files:
            raise HTTPException(404, "Swagger UI is not installed: pip install 'lexome[serve]'")
        return file_response("docs.html", request)

    @router.get("/static/{name}")
    async def static(name: str, request: Request) -> Response:
        return file_response(name, request)

    return router


# The server

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
