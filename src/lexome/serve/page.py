"""The page and its files, read once at the start: no path that a request names is ever opened."""

from hashlib import sha256
from importlib import resources

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

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
