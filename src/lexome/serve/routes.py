"""Lexome's own routes: annotate, classify, ask, the models, search in indexes, and the state of the service."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Literal, TypeVar, cast

from fastapi import APIRouter, Query, Request
from fastapi.encoders import jsonable_encoder
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response

from lexome.document import Document, Question
from lexome.errors import UsageError
from lexome.formats import Tally
from lexome.formats.mention_table import Table
from lexome.infer.annotation import describe_concerns
from lexome.search.ask import AskResult, form_of, hedge, require_english, without_overlaps
from lexome.search.ask import ask as answer_from_index
from lexome.search.engine import Filters, Index, Method, SearchResult, parse_years
from lexome.serve import schemas
from lexome.serve.limits import RequestError
from lexome.serve.payloads import (
    JSON,
    Given,
    check_limits,
    document_response,
    documents_of,
    input_formats,
    media_type,
    output_formats,
    parse_documents,
    parse_json,
    read_body,
    reading_notes,
    require_single_values,
    takes_process,
)
from lexome.serve.queue import text_length
from lexome.serve.schemas import error_responses
from lexome.serve.service import SMALL_BYTES, RelationQuery, Service

router = APIRouter(tags=["annotation"])
search_router = APIRouter(tags=["search"])
operator_router = APIRouter(tags=["state"])

_ERRORS = (400, 408, 413, 415, 422, 429, 503)
_ANNOTATE_QUERY = (
    "from", "name", "to", "types", "min_score", "relations", "relation_types", "min_relation_score", "table", "link",
    "abbreviations", "strict",
)  # fmt: skip
Form = Literal["factoid", "list", "yesno"]


class Asked(Given):
    """A question to a text or to documents."""

    question: str = Field(min_length=1)
    type: Form | None = Field(None, description="Which models answer; by default all that are loaded.")


def service_of(request: Request) -> Service:
    """The service that a request is for."""
    return cast(Service, request.app.state.service)


@router.get("/model", response_model=schemas.About)
async def model(request: Request) -> Response:
    """The loaded models, input and output formats, and limits of a request."""
    return JSONResponse(service_of(request).about())


@router.post(
    "/annotate",
    response_model=schemas.Annotated,
    responses={
        200: {"content": {media_type(format): {} for format in output_formats() if format != JSON}},
        **error_responses(404, *_ERRORS),
    },
    openapi_extra=schemas.body(Given, files=True),
)
async def annotate(
    request: Request,
    from_: Annotated[
        str | None, Query(alias="from", description="Format of the body.", json_schema_extra={"enum": input_formats()})
    ] = None,
    name: Annotated[str | None, Query(description="File name of the body, to detect its format.")] = None,
    to: Annotated[
        str, Query(description="Format of the response.", json_schema_extra={"enum": output_formats()})
    ] = JSON,
    types: Annotated[str | None, Query(description="Mention types to predict, separated by commas.")] = None,
    min_score: Annotated[
        float | None, Query(ge=0, le=1, description="Minimum score of mentions, relations and answers.")
    ] = None,
    relations: Annotated[
        bool | None, Query(description="Predict relations; by default if the service has a model for them.")
    ] = None,
    relation_types: Annotated[
        str | None, Query(description="Relation types to predict, separated by commas; by default all.")
    ] = None,
    min_relation_score: Annotated[float | None, Query(ge=0, le=1, description="Minimum score of relations.")] = None,
    table: Annotated[
        Table, Query(description="Rows of csv, tsv and xlsx: one for each mention, relation or label.")
    ] = "mentions",
    link: Annotated[bool, Query(description="Give mentions the ids of their concepts.")] = True,
    abbreviations: Annotated[
        bool, Query(description="Mark short forms and long forms where they are defined.")
    ] = False,
    strict: Annotated[
        bool, Query(description="Refuse a file with a bad document, which is otherwise skipped and noted.")
    ] = False,
) -> Response:
    """Annotate texts or documents with mentions, relations, classes and answers.

    The body is JSON with `text` or `documents`; or a file of any format, given as `from`, or detected from `name` and
    the first bytes. Mentions of the selected types replace those of the documents and get the ids of their concepts;
    `concepts` of the response has names and pages of these. If `types` is empty, no model runs, and the documents are
    only converted to another format.
    """
    service = service_of(request)
    # A misspelled min-score would otherwise have no effect, without notice.
    if unknown := sorted(set(request.query_params) - set(_ANNOTATE_QUERY)):
        raise UsageError(f"unknown query parameter {unknown[0][:60]!r}; expected {', '.join(_ANNOTATE_QUERY)}.")
    require_single_values(request)
    if to not in output_formats():
        raise UsageError(f"to={to[:60]!r} is not an output format; expected one of {', '.join(output_formats())}.")
    body = await read_body(request, service.limits)
    content_type = request.headers.get("content-type", "")
    tally = Tally(skip=not strict)

    def parse() -> list[Document]:
        make = service.annotator.document
        return parse_documents(
            body, service.limits, format=from_, name=name, content_type=content_type, make=make, tally=tally
        )

    async def work() -> Response:
        may_be_json = name is None and from_ in (None, JSON)
        size = len(body) if may_be_json else len(body) << 4
        # Even a small office document takes longer than the event loop may.
        size += SMALL_BYTES if takes_process(body, format=from_, name=name) else 0
        docs = await service.offload(size, parse)
        annotated = await service.annotate(
            docs,
            types=_names(types),
            min_score=min_score,
            relations=RelationQuery(relations, _names(relation_types), min_relation_score),
            link=link,
            abbreviations=abbreviations,
        )
        # Whatever a body brings along, such as a great many mentions, is written again.
        size = max(len(body), sum(map(text_length, annotated)))

        def write() -> Response:
            # Where nothing is predicted, it does not matter what the text is like.
            notes = (describe_concerns(docs) if to == JSON and types != "" else []) + reading_notes(tally)
            described = service.describe_concepts(annotated) if to == JSON else {}
            return document_response(
                annotated, to, described, naming=service.annotator.concepts, table=table, notes=notes
            )

        return await service.offload(size if to == JSON else size << 4, write)

    return await service.in_time(request, work())


def _names(listed: str | None) -> list[str] | None:
    """The names in a list separated by commas."""
    return None if listed is None else [name.strip() for name in listed.split(",") if name.strip()]


@router.post(
    "/classify",
    response_model=schemas.Classes,
    responses=error_responses(404, *_ERRORS),
    openapi_extra=schemas.body(Given),
)
async def classify(request: Request) -> Response:
    """Classify a text or documents, if a classifier is loaded."""
    service = service_of(request)
    _require_models(service, "classes", "classifies")
    body = await read_body(request, service.limits)

    def parse() -> list[Document]:
        return check_limits(documents_of(parse_json(body, Given), service.annotator.document), service.limits)

    async def work() -> Response:
        docs = await service.annotate(await service.offload(len(body), parse), "classes")
        classified = [
            {"id": doc.id, "labels": list(doc.labels), "scores": [round(score, 4) for score in doc.label_scores]}
            for doc in docs
        ]
        return JSONResponse({"documents": classified})

    return await service.in_time(request, work())


@router.post(
    "/ask", response_model=schemas.Answers, responses=error_responses(404, *_ERRORS), openapi_extra=schemas.body(Asked)
)
async def ask(request: Request) -> Response:
    """Answer a question from a text or documents, if a question-answering model is loaded.

    Of answers that overlap, the most probable one. A question whose first words ask for yes or no is answered only by a
    model for such questions.
    """
    service = service_of(request)
    _require_models(service, "questions", "answers questions")
    body = await read_body(request, service.limits)
    forms = [form for model in service.models("questions") for form in model.task.forms]

    def parse() -> list[Document]:
        """The documents with the question in place of those they have."""
        asked = parse_json(body, Asked)
        require_english(asked.question)
        if asked.type is not None and asked.type not in forms:
            found = " and ".join(dict.fromkeys(forms))
            message = f"no model that answers {asked.type} questions is loaded, only for {found}. Add one with --model."
            raise RequestError(404, message)
        inferred = "yesno" if form_of(asked.question) == "yesno" else None
        question = Question("question", asked.question, asked.type or inferred)
        docs = documents_of(asked, service.annotator.document)
        return check_limits((replace(doc, questions=(question,)) for doc in docs), service.limits)

    async def work() -> Response:
        docs = await service.annotate(await service.offload(len(body), parse), "questions")
        answers = [
            {
                "document": doc.id,
                "text": answer.text,
                "start": answer.start,
                "end": None if answer.start is None else answer.start + len(answer.text),
                "score": answer.score,
            }
            for doc in docs
            for question in doc.questions
            for answer in without_overlaps(question.answers)
        ]
        readers = [model.name for model in service.models("questions")]
        reader = readers[0] if len(readers) == 1 else "the reader"
        scores = [answer.score or 0.0 for doc in docs for question in doc.questions for answer in question.answers]
        note = hedge(reader, max(scores, default=0.0))
        if any(question.type == "yesno" for doc in docs for question in doc.questions) and "yesno" not in forms:
            note = f"{reader} answers no yes/no questions. Ask for a name, a number or a phrase."
        elif not answers:
            note = f"{reader} does not know: nothing in the text is a probable enough answer."
        return JSONResponse({"answers": answers, "note": note})

    return await service.in_time(request, work())


def _require_models(service: Service, kind: str, ability: str) -> None:
    if not service.models(kind):
        names = ", ".join(model.name for model in service.models())
        raise RequestError(404, f"no model that {ability} is loaded, only {names}. Add one with --model.")


# Routes over the indexes that the service was started with: search passages, and ask them a question

MAX_HITS, MAX_FILTERS = 100, 20


class Filtered(BaseModel):
    """The index to search, and conditions on its passages."""

    model_config = ConfigDict(strict=True, extra="forbid")

    index: str | None = Field(None, description="Name of the index; by default the first.")
    concepts: list[str] = Field([], max_length=MAX_FILTERS, description="CURIEs; a passage has to mention all.")
    types: list[str] = Field([], max_length=MAX_FILTERS, description="Mention types; a passage has to have all.")
    years: str | None = Field(None, max_length=20, description="2019, 2015-2020, 2015- or -2020.")
    journals: list[str] = Field([], max_length=MAX_FILTERS, description="Titles or abbreviations of journals; any.")
    method: Method | None = Field(None, description="Ranking; by default all that the index has.")

    def filters(self) -> Filters:
        """The filters of a search."""
        years = parse_years(self.years) if self.years is not None else (None, None)
        return Filters(tuple(self.concepts), tuple(self.types), years, tuple(self.journals))


class Searched(Filtered):
    """A query of plain words, filters, or both."""

    query: str = Field("", description="Plain words; nothing in it is syntax.")
    limit: int = Field(10, ge=1, le=MAX_HITS, description="Maximum number of results.")

    @property
    def words(self) -> str:
        """What is searched for."""
        return self.query


class AskedOfIndex(Filtered):
    """A question to the documents of an index."""

    question: str = Field(min_length=1)
    form: Form | None = Field(None, description="By default that of the question's first words.")
    limit: int | None = Field(
        None, ge=1, le=MAX_HITS, description="Maximum number of answers; by default 5, and 20 to a list question."
    )
    min_score: float | None = Field(
        None, ge=0, le=1, description="Minimum probability of the best answer; by default the reader's own threshold."
    )

    @property
    def words(self) -> str:
        """What is searched for."""
        return self.question


BodyModel = TypeVar("BodyModel", Searched, AskedOfIndex)

BODIES: tuple[type[BaseModel], ...] = (Given, Asked, Searched, AskedOfIndex)


@search_router.post(
    "/search",
    response_model=SearchResult,
    responses=error_responses(404, *_ERRORS),
    openapi_extra=schemas.body(Searched),
)
async def search(request: Request) -> Response:
    """Search the passages of an index by words, by concepts, or both."""

    def work(service: Service, index: Index, body: Searched) -> SearchResult:
        timeout_s = service.limits.answer_s
        return index.search_filtered(
            body.query, body.filters(), limit=body.limit, method=body.method, timeout_s=timeout_s
        )

    return await _respond_from_index(request, Searched, work)


@search_router.post(
    "/search/ask",
    response_model=AskResult,
    responses=error_responses(404, *_ERRORS),
    openapi_extra=schemas.body(AskedOfIndex),
)
async def ask_index(request: Request) -> Response:
    """Answer a question from an index. Without a question-answering model there is evidence, and no answer."""

    def work(service: Service, index: Index, body: AskedOfIndex) -> AskResult:
        return answer_from_index(
            index,
            body.question,
            readers=service.models("questions"),
            form=body.form,
            filters=body.filters(),
            limit=body.limit,
            min_probability=body.min_score,
            method=body.method,
            timeout_s=service.limits.answer_s,
        )

    return await _respond_from_index(request, AskedOfIndex, work)


async def _respond_from_index(
    request: Request,
    kind: type[BodyModel],
    work: Callable[[Service, Index, BodyModel], SearchResult | AskResult],
) -> Response:
    """The result of a search as JSON, computed in the thread of searches."""
    service = service_of(request)
    if not service.indexes:
        raise RequestError(404, "the service has no index. Start it with `lexome serve --index FOLDER`.")
    body = parse_json(await read_body(request, service.limits), kind)
    limit = service.limits.question
    if len(body.words) > limit:
        raise RequestError(413, f"{len(body.words):,} characters; expected at most {limit:,}. Ask for less.")
    index = _named_index(service, body.index)
    if body.method in ("vectors", "both") and not index.has_vectors:
        raise RequestError(422, "the index has no vectors. Search it by bm25.")
    computed = service.search(lambda: jsonable_encoder(work(service, index, body).as_dict()))
    return JSONResponse(await service.in_time(request, computed))


def _named_index(service: Service, name: str | None) -> Index:
    if name is None:
        return next(iter(service.indexes.values()))
    if name not in service.indexes:
        names = ", ".join(service.indexes)
        raise RequestError(404, f"no index {name[:60]!r}; expected one of {names}.")
    return service.indexes[name]


# The state of the service


class State(BaseModel):
    """State of the service."""

    status: str


@operator_router.get("/health", response_model=State)
@operator_router.get("/healthz", response_model=State)
async def health() -> Response:
    """Whether the service is alive."""
    return JSONResponse({"status": "alive"})


@operator_router.get("/ready", response_model=State, responses=error_responses(503))
@operator_router.get("/readyz", response_model=State, responses=error_responses(503))
async def ready(request: Request) -> Response:
    """Whether it accepts requests: its models are loaded, and it is not stopping."""
    if not service_of(request).ready:
        raise RequestError(503, "the service is starting or stopping. Retry.", retry_after_s=1)
    return JSONResponse({"status": "ready"})


@operator_router.post("/reload", response_model=schemas.About, responses=error_responses(403, 404, 429, 503))
async def reload(request: Request) -> Response:
    """Open the models again and use them from the next request on; requests in progress end on the old ones.

    For the owner of the token: without one, send SIGHUP to the process. The models are tried on a text first; if they
    fail, the old ones stay and the status is 503.
    """
    service = service_of(request)
    if not request.app.state.has_token:
        raise RequestError(403, "/reload needs a service with a token. Send SIGHUP to the process, or set a token.")
    await service.reload()
    return JSONResponse(service.about())


@operator_router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def metrics(request: Request) -> Response:
    """Metrics for Prometheus."""
    body, content_type = service_of(request).metrics.exposition(request.headers.get("accept", ""))
    return Response(body, headers={"content-type": content_type})
