"""Lexome's own routes: annotate, classify, ask, and what the models are."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, cast

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response

from lexome.document import Document, Question
from lexome.errors import UsageError
from lexome.infer.annotator import Model
from lexome.serve import schemas
from lexome.serve.limits import RequestError
from lexome.serve.metrics import MEDIA_TYPE
from lexome.serve.payloads import (
    JSON,
    Given,
    answer,
    body_of,
    bounded,
    documents_in,
    given_documents,
    media_type,
    parsed,
    readable,
    writable,
)
from lexome.serve.queue import text_length
from lexome.serve.schemas import problems
from lexome.serve.service import Service

operator_router = APIRouter(tags=["state"])


class State(BaseModel):
    """One word."""

    status: str


def service_of(request: Request) -> Service:
    """The service that a request is for."""
    return cast(Service, request.app.state.service)


@operator_router.get("/health", response_model=State)
async def health() -> Response:
    """Whether the service lives."""
    return JSONResponse({"status": "alive"})


@operator_router.get("/ready", response_model=State, responses=problems(503))
async def ready(request: Request) -> Response:
    """Whether it takes work: its models are loaded, and it is not stopping."""
    if not service_of(request).ready:
        raise RequestError(503, "the service is starting or stopping. Try again.", retry_after_s=1)
    return JSONResponse({"status": "ready"})


@operator_router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(request: Request) -> Response:
    """Counts and times for Prometheus."""
    service = service_of(request)
    return Response(service.metrics.text(service.queue), media_type=MEDIA_TYPE)


router = APIRouter(tags=["annotation"])

_ERRORS = (400, 408, 413, 415, 422, 429, 503)
_QUESTION = "question"
_ANNOTATE_QUERY = ("from", "name", "to", "types", "min_score")
Form = Literal["factoid", "list", "yesno"]


class Asked(Given):
    """A question to a text or to documents."""

    question: str = Field(min_length=1)
    type: Form | None = Field(None, description="Which of the models answers; all that are loaded, where not said.")


BODIES: tuple[type[BaseModel], ...] = (Given, Asked)


@router.get("/model", response_model=schemas.About)
async def model(request: Request) -> Response:
    """The models loaded, the formats that are read and written, and the bounds of a request."""
    return JSONResponse(service_of(request).about())


@router.post(
    "/annotate",
    response_model=schemas.Annotated,
    responses={
        200: {"content": {media_type(form): {} for form in writable() if form != JSON}},
        **problems(*_ERRORS),
    },
    openapi_extra=schemas.body(Given, files=True),
)
async def annotate(
    request: Request,
    from_: Annotated[
        str | None, Query(alias="from", description="The format of the body.", json_schema_extra={"enum": readable()})
    ] = None,
    name: Annotated[str | None, Query(description="The body's file name, to tell its format by.")] = None,
    to: Annotated[str, Query(description="The format of the answer.", json_schema_extra={"enum": writable()})] = JSON,
    types: Annotated[str | None, Query(description="Types of mentions to find, with commas between.")] = None,
    min_score: Annotated[float | None, Query(ge=0, le=1, description="Less certain mentions are left out.")] = None,
) -> Response:
    """Texts or documents in, documents with mentions, relations, classes and answers out.

    The body is JSON with `text` or `documents`; or a file of any format, named with `from`, or told by `name` and its
    first bytes. Mentions of the types asked for take the place of those that documents have. Where `types` is there
    and empty, no model is run: the documents are only written in another format.
    """
    service = service_of(request)
    # min-score, passed over, would leave nothing out and say nothing.
    if unknown := sorted(set(request.query_params) - set(_ANNOTATE_QUERY)):
        raise UsageError(f"the query has {unknown[0][:60]!r}; expected some of {', '.join(_ANNOTATE_QUERY)}.")
    if to not in writable():
        raise UsageError(f"to={to[:60]!r} is no format of an answer; expected one of {', '.join(writable())}.")
    body = await body_of(request, service.limits)
    kind = request.headers.get("content-type", "")

    def read() -> list[Document]:
        make = service.annotator.document
        return documents_in(body, service.limits, form=from_, name=name, content_type=kind, make=make)

    async def work() -> Response:
        docs = await service.apart(len(body) if _is_json(from_, name) else len(body) << 4, read)
        names = None if types is None else [one.strip() for one in types.split(",") if one.strip()]
        models = [] if names == [] else service.models()
        found = await service.annotated(docs, models, types=names, min_score=min_score)
        # What a body brings along, such as mentions without end, is written again.
        size = max(len(body), sum(map(text_length, found)))
        return await service.apart(size if to == JSON else size << 4, lambda: answer(found, to))

    return await service.in_time(request, work())


@router.post(
    "/classify",
    response_model=schemas.Classes,
    responses=problems(404, *_ERRORS),
    openapi_extra=schemas.body(Given),
)
async def classify(request: Request) -> Response:
    """The classes of a text or of documents, where a model that tells classes is loaded."""
    service = service_of(request)
    models = _loaded(service, "classes", "tells classes")
    body = await body_of(request, service.limits)

    async def work() -> Response:
        docs = await service.apart(len(body), lambda: _documents(body, Given, service))
        found = await service.annotated(docs, models)
        return JSONResponse({"documents": [{"id": doc.id, "labels": list(doc.labels)} for doc in found]})

    return await service.in_time(request, work())


@router.post(
    "/ask",
    response_model=schemas.Answers,
    responses=problems(404, *_ERRORS),
    openapi_extra=schemas.body(Asked),
)
async def ask(request: Request) -> Response:
    """Answers to a question in a text or in documents, where a model that answers questions is loaded."""
    service = service_of(request)
    models = _loaded(service, "questions", "answers questions")
    body = await body_of(request, service.limits)

    async def work() -> Response:
        docs = await service.apart(len(body), lambda: _asking(body, service))
        found = await service.annotated(docs, models)
        return JSONResponse({"answers": [answer for doc in found for answer in _answers(doc)]})

    return await service.in_time(request, work())


def _is_json(form: str | None, name: str | None) -> bool:
    return name is None and form in (None, JSON)


def _loaded(service: Service, kind: str, does: str) -> Sequence[Model]:
    models = service.models(kind)
    if not models:
        names = ", ".join(model.name for model in service.models())
        raise RequestError(
            404, f"no model that {does} is loaded; loaded is {names}. Start the service with one: --model."
        )
    return models


def _documents(body: bytes, kind: type[Given], service: Service) -> list[Document]:
    return bounded(given_documents(parsed(body, kind), service.annotator.document), service.limits)


def _asking(body: bytes, service: Service) -> list[Document]:
    """The documents with the question in place of any that they have."""
    asked = parsed(body, Asked)
    question = Question(_QUESTION, asked.question, asked.type)
    docs = given_documents(asked, service.annotator.document)
    return bounded((replace(doc, questions=(question,)) for doc in docs), service.limits)


def _answers(doc: Document) -> list[dict[str, Any]]:
    return [
        {
            "document": doc.id,
            "text": answer.text,
            "start": answer.start,
            "end": None if answer.start is None else answer.start + len(answer.text),
            "score": answer.score,
        }
        for question in doc.questions
        for answer in question.answers
    ]
