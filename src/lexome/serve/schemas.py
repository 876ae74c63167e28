"""What the service promises in /openapi.json: the shapes of its answers, and the errors of every route."""

from collections.abc import Collection
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, ConfigDict, Field

from lexome.document import Document

Responses = dict[int | str, dict[str, Any]]


class Problem(BaseModel):
    """Why there is no other answer: what was seen, what was expected, what to do."""

    error: str


class Annotated(BaseModel):
    """Documents with what the models say."""

    documents: list[Document]


class About(BaseModel):
    """The models loaded, and what may be asked."""

    types: list[str] = Field(description="Types of mentions that are found unless others are asked for.")
    extra_types: list[str] = Field(
        description="Types of mentions that are found only where they are asked for by name."
    )
    models: list[dict[str, Any]]
    formats: list[str] = Field(description="What `to` may be.")
    reads: list[str] = Field(description="What `from` may be.")
    limits: dict[str, float]
    documents: int = Field(description="How many documents the service was given at its start.")


class Place(BaseModel):
    """Characters of a text, the end exclusive."""

    begin: int
    end: int


class Bern2Annotation(BaseModel):
    """A mention as BERN2 gives it."""

    id: list[str]
    is_neural_normalized: bool
    mention: str
    obj: str
    prob: float | None
    span: Place


class Bern2Text(BaseModel):
    """A text as BERN2 answers it."""

    annotations: list[Bern2Annotation]
    text: str
    timestamp: str


class Bern2Citation(Bern2Text):
    """A citation as BERN2 answers it."""

    pmid: str


class Classified(BaseModel):
    """A document's id and its classes."""

    id: str
    labels: list[str]


class Classes(BaseModel):
    """What classes documents are of."""

    documents: list[Classified]


class Found(BaseModel):
    """An answer, which document it is from, and where it stands in it."""

    document: str
    text: str
    start: int | None
    end: int | None
    score: float | None


class Answers(BaseModel):
    """Answers to a question, of each document best first; none where the texts do not say."""

    answers: list[Found]


class Plain(BaseModel):
    """What BERN2 takes."""

    model_config = ConfigDict(strict=True)

    text: str


_REASONS = {
    400: "The body is not what it says it is.",
    401: "There is no token, or a wrong one.",
    403: "A web page of another origin asks, or by a name that is not the service's.",
    404: "There is no such document, or no model that could answer.",
    408: "The body did not arrive in time.",
    413: "Too much at once.",
    415: "A kind of body that is not read here.",
    422: "Something in the request is wrong.",
    429: "Too much is waiting; Retry-After says when to come again.",
    503: "No answer in time, or the service is stopping.",
}


def problems(*codes: int) -> Responses:
    """The errors that a route may answer with."""
    return {code: {"model": Problem, "description": _REASONS[code]} for code in codes}


def body(schema: type[BaseModel], *, files: bool = False) -> dict[str, Any]:
    """The request body of a route that reads it by itself."""
    content: dict[str, Any] = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema.__name__}"}}}
    if files:
        content["text/plain"] = {"schema": {"type": "string"}}
        content["application/octet-stream"] = {"schema": {"type": "string", "format": "binary"}}
    return {"requestBody": {"required": True, "content": content}}


def with_schemas(
    app: FastAPI, bodies: list[type[BaseModel]], *, secured: bool, open_to_all: Collection[str] = ()
) -> None:
    """Let the application describe bodies that it does not read through FastAPI, and what is refused before a route."""

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            held = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            schemas = held.setdefault("components", {}).setdefault("schemas", {})
            for kind in bodies:
                own = kind.model_json_schema(ref_template="#/components/schemas/{model}")
                for name, schema in own.pop("$defs", {}).items():
                    schemas.setdefault(name, schema)
                schemas[kind.__name__] = own
            if secured:
                held["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
                held["security"] = [{"token": []}]
            for path, operations in held["paths"].items():
                for operation in operations.values():
                    _add_refusals(operation, secured=secured, is_open=path in open_to_all)
            app.openapi_schema = held
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]  # FastAPI's own way to extend it


def _add_refusals(operation: dict[str, Any], *, secured: bool, is_open: bool) -> None:
    """Say what a request is refused with before its route sees it."""
    if is_open:
        operation["security"] = []
        return
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for code in (401, 403, 429) if secured else (403, 429):
        operation["responses"].setdefault(str(code), {"description": _REASONS[code], "content": content})
