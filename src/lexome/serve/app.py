"""The service as an ASGI application: routes and what they answer."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from importlib import resources

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.responses import Response

from lexome import __version__
from lexome.errors import BadDocument, FormatError, LexomeError, MissingExtraError, UsageError
from lexome.files import usable_cores
from lexome.infer.annotator import Annotator
from lexome.serve import compat, routes
from lexome.serve.limits import Limits, RequestError
from lexome.serve.middleware import OPEN, Callers, Gate
from lexome.serve.schemas import Plain, with_schemas
from lexome.serve.service import Library, Service

_MEDIA = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "json": "application/json",
}
PAGE = "index.html"


def page_routes() -> APIRouter:
    """`/` and `/static/`, which are for people and so not in the OpenAPI description."""
    router = APIRouter(include_in_schema=False)
    files = {name: _File(name, content) for name, content in _contents().items()}

    @router.get("/")
    async def page(request: Request) -> Response:
        return _found(files, PAGE, request)

    @router.get("/static/{name}")
    async def static(name: str, request: Request) -> Response:
        return _found(files, name, request)

    return router


class _File:
    def __init__(self, name: str, content: bytes) -> None:
        self.content = content
        self.media_type = _MEDIA[name.rpartition(".")[2]]
        self.tag = f'"{sha256(content).hexdigest()[:16]}"'


def _contents() -> dict[str, bytes]:
    folder = resources.files("lexome.serve") / "static"
    if not folder.is_dir():
        return {}
    return {
        path.name: path.read_bytes()
        for path in folder.iterdir()
        if path.is_file() and path.name.rpartition(".")[2] in _MEDIA
    }


def _found(files: dict[str, _File], name: str, request: Request) -> Response:
    file = files.get(name)
    if file is None:
        raise HTTPException(404, "there is no such file")
    # Asked for again each time, and sent again only where it has changed.
    headers = {"etag": file.tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == file.tag:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)


log = logging.getLogger("lexome.serve")

_ABOUT = """Annotate biomedical text: mentions with exact places, relations, classes and answers.

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
) -> Gate:
    """The whole service around an annotator, whose models should run on one thread each.

    `threads` of them work at once, by default one a core. With a `token`, requests must have it; pages of other
    `origins` may ask only if named. With `hosts`, it answers only where it is asked for by one of these names.
    """
    limits = limits or Limits()
    library = library or Library()
    service = Service(
        annotator, library=library, limits=limits, threads=threads or usable_cores(), batch_tokens=batch_tokens
    )

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        service.close()

    app = FastAPI(
        title="Lexome", version=__version__, description=_ABOUT, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    app.state.service = service
    for router in (page_routes(), routes.router, compat.router, routes.operator_router):
        app.include_router(router)
    for kind in (LexomeError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _explain)
    with_schemas(app, [*routes.BODIES, Plain], secured=token is not None, open_to_all=OPEN)
    return Gate(app, limits=limits, metrics=service.metrics, token=token, callers=Callers(origins, hosts))


async def _explain(request: Request, error: Exception) -> Response:
    """An error as JSON, with the status that says whose it is."""
    status, message, headers = _status(error)
    if status == 500:
        log.error("%s %r failed", request.method, request.url.path, exc_info=error)
    return JSONResponse({"error": message}, status, headers)


def _status(error: Exception) -> tuple[int, str, dict[str, str] | None]:
    if isinstance(error, RequestError):
        after = error.retry_after_s
        return error.status, str(error), None if after is None else {"retry-after": str(after)}
    if isinstance(error, FormatError | BadDocument | UsageError | MissingExtraError):
        return 422, str(error), None
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        where = ".".join(str(step) for step in first["loc"])
        return 422, f"{where}: {first['msg']}. Expected what /openapi.json says of this path.", None
    if isinstance(error, HTTPException):
        return error.status_code, f"{error.detail}. /openapi.json has what there is.", dict(error.headers or {}) or None
    return 500, "something failed that should not have; the service's own log says what.", None
