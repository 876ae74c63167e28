"""Models of responses and errors in /openapi.json. Class names are part of the API: clients are generated from them."""

from collections.abc import Collection
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, ConfigDict, Field

from lexome.document import Document

Responses = dict[int | str, dict[str, Any]]


class Problem(BaseModel):
    """Why a request failed: what was seen, what was expected, what to do."""

    error: str


class ConceptPage(BaseModel):
    """The preferred name of a concept, and the page of the database that owns it."""

    name: str | None
    url: str | None


class Annotated(BaseModel):
    """Annotated documents, the concepts of their mentions by id, and notes on texts that models read badly."""

    documents: list[Document]
    concepts: dict[str, ConceptPage]
    notes: list[str] = Field(
        description="Which texts do not look English, are very short, or are PMIDs only; and what reading the body "
        "skipped, with the first reasons, and dropped or changed, with its count."
    )


class About(BaseModel):
    """The loaded models, formats and limits."""

    types: list[str] = Field(description="Mention types that are predicted by default.")
    extra_types: list[str] = Field(description="Mention types that are predicted only on request.")
    relation_types: list[str] = Field(description="Relation types that are predicted.")
    models: list[dict[str, Any]]
    linked_types: list[str] = Field(description="Mention types that dictionaries have concepts of.")
    dictionaries: list[str] = Field(description="Dictionaries that mentions are linked with.")
    formats: list[str] = Field(description="Values of `to`.")
    reads: list[str] = Field(description="Values of `from`.")
    limits: dict[str, float]
    documents: int = Field(description="Documents in the library.")
    indexes: list[dict[str, Any]] = Field(description="Indexes that can be searched.")


class Place(BaseModel):
    """Character offsets in a text, the end exclusive."""

    begin: int
    end: int


class Bern2Annotation(BaseModel):
    """A mention in BERN2's format."""

    id: list[str]
    is_neural_normalized: bool
    mention: str
    obj: str
    prob: float | None
    span: Place


class Bern2Text(BaseModel):
    """A text in BERN2's format."""

    annotations: list[Bern2Annotation]
    text: str
    timestamp: str


class Bern2Citation(Bern2Text):
    """A citation in BERN2's format."""

    pmid: str


class Classified(BaseModel):
    """A document's id, its labels and their probabilities."""

    id: str
    labels: list[str]
    scores: list[float]


class Classes(BaseModel):
    """Labels of documents."""

    documents: list[Classified]


class Found(BaseModel):
    """An answer, its document, and its offsets there."""

    document: str
    text: str
    start: int | None
    end: int | None
    score: float | None


class Answers(BaseModel):
    """Answers to a question, best first within each document; empty if there are none."""

    answers: list[Found]
    note: str | None = Field(description="How far the answers can be relied on; none for a probable one.")


class Plain(BaseModel):
    """A request in BERN2's format."""

    model_config = ConfigDict(strict=True)

    text: str


_REASONS = {
    400: "The body is malformed.",
    401: "The token is missing or wrong.",
    403: "The request comes from a web page of another origin, or is for another host.",
    404: "There is no such document, or no model for this request.",
    408: "The body did not arrive in time.",
    413: "The request is too large.",
    415: "The format of the body is not accepted.",
    422: "The request is invalid.",
    429: "Too many requests; see Retry-After.",
    503: "Timeout, or the service is stopping.",
}


def error_responses(*codes: int) -> Responses:
    """The errors of a route."""
    return {code: {"model": Problem, "description": _REASONS[code]} for code in codes}


def body(schema: type[BaseModel], *, files: bool = False) -> dict[str, Any]:
    """The request body of a route that reads it itself."""
    content: dict[str, Any] = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema.__name__}"}}}
    if files:
        content["text/plain"] = {"schema": {"type": "string"}}
        content["application/octet-stream"] = {"schema": {"type": "string", "format": "binary"}}
    return {"requestBody": {"required": True, "content": content}}


def describe_bodies(
    app: FastAPI, models: list[type[BaseModel]], *, secured: bool, open_paths: Collection[str] = ()
) -> None:
    """Add bodies that FastAPI does not read, and errors of the middleware, to the application's OpenAPI schema."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            components = schema.setdefault("components", {}).setdefault("schemas", {})
            for model in models:
                model_schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
                for name, definition in model_schema.pop("$defs", {}).items():
                    components.setdefault(name, definition)
                components[model.__name__] = model_schema
            if secured:
                schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
                schema["security"] = [{"token": []}]
            for path, operations in schema["paths"].items():
                for operation in operations.values():
                    _add_middleware_errors(operation, secured=secured, is_open=path in open_paths)
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way to extend it


def _add_middleware_errors(operation: dict[str, Any], *, secured: bool, is_open: bool) -> None:
    if is_open:
        operation["security"] = []
        return
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    for code in (401, 403, 429) if secured else (403, 429):
        operation["responses"].setdefault(str(code), {"description": _REASONS[code], "content": content})
