"""The service as an ASGI application: routes, static page, and errors as JSON."""

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from importlib import resources

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp

from lexome import __version__
from lexome.errors import BadDocument, FormatError, LexomeError, MissingExtraError, UsageError
from lexome.files import usable_cores
from lexome.infer.annotator import Annotator
from lexome.search.engine import Index
from lexome.serve import compat, routes, search_routes
from lexome.serve.limits import Limits, RequestError
from lexome.serve.middleware import OPEN_PATHS, REQUEST_ID, AccessControl, Gate
from lexome.serve.schemas import Plain, describe_bodies
from lexome.serve.service import Library, Service

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
    for router in (_page_routes(), routes.router, search_routes.router, compat.router, routes.operator_router):
        app.include_router(router)
    for kind in (LexomeError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _error_response)
    describe_bodies(
        app, [*routes.BODIES, *search_routes.BODIES, Plain], secured=token is not None, open_paths=OPEN_PATHS
    )
    metrics = service.metrics
    guarded: ASGIApp = AccessControl(app, limits=limits, metrics=metrics, token=token, origins=origins, hosts=hosts)
    if origins:
        # Around access control: a preflight has no token, and the page has to be able to read errors.
        guarded = CORSMiddleware(
            guarded,
            allow_origins=origins,
            allow_methods=("GET", "POST"),
            allow_headers=("authorization", "content-type"),
            expose_headers=("retry-after", "lexome-unknown", "x-request-id"),
        )
    return Gate(guarded, limits=limits, metrics=metrics, reload=service.reload_soon)


async def _error_response(request: Request, error: Exception) -> Response:
    """An error as JSON, with the status of the kind of error."""
    number = request.scope.get(REQUEST_ID, "-")
    status, message, headers = 500, f"internal error; see the log of the service for request {number}.", None
    if isinstance(error, RequestError):
        status, message = error.status, str(error)
        headers = None if error.retry_after_s is None else {"retry-after": str(error.retry_after_s)}
    elif isinstance(error, FormatError | BadDocument | UsageError | MissingExtraError):
        status, message = 422, str(error)
    elif isinstance(error, RequestValidationError):
        first = error.errors()[0]
        field = ".".join(str(step) for step in first["loc"])
        status, message = 422, f"{field}: {first['msg']}. /openapi.json describes this path."
    elif isinstance(error, HTTPException):
        status, message = error.status_code, f"{error.detail}. /openapi.json describes all paths."
        headers = dict(error.headers or {}) or None
    else:
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
