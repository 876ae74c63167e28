"""Routes over the indexes that the service was started with: search passages, and ask them a question."""

from collections.abc import Callable
from typing import TypeVar

from fastapi import APIRouter, Request
from fastapi.encoders import jsonable_encoder
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response

from lexome.search.ask import AskResult, ask
from lexome.search.engine import Filters, Index, Method, SearchResult, parse_years
from lexome.serve import schemas
from lexome.serve.limits import RequestError
from lexome.serve.payloads import parse_json, read_body
from lexome.serve.routes import Form, service_of
from lexome.serve.schemas import error_responses
from lexome.serve.service import Service

router = APIRouter(tags=["search"])


_ERRORS = (400, 404, 408, 413, 415, 422, 429, 503)
MAX_HITS, MAX_FILTERS = 100, 20


class Filtered(BaseModel):
    """Which index is searched, and what its passages have to have."""

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

BODIES: tuple[type[BaseModel], ...] = (Searched, AskedOfIndex)


@router.post(
    "/search",
    response_model=SearchResult,
    responses=error_responses(*_ERRORS),
    openapi_extra=schemas.body(Searched),
)
async def search(request: Request) -> Response:
    """Search the passages of an index by words, by concepts, or both."""

    def work(service: Service, index: Index, body: Searched) -> SearchResult:
        one = body.filters()
        return index.search(
            body.query,
            concepts=one.concepts,
            types=one.types,
            years=one.years,
            journals=one.journals,
            limit=body.limit,
            method=body.method,
            timeout_s=service.limits.answer_s,
        )

    return await _respond(request, Searched, work)


@router.post(
    "/search/ask",
    response_model=AskResult,
    responses=error_responses(*_ERRORS),
    openapi_extra=schemas.body(AskedOfIndex),
)
async def ask_index(request: Request) -> Response:
    """Answer a question from an index. Without a question-answering model there is evidence, and no answer."""

    def work(service: Service, index: Index, body: AskedOfIndex) -> AskResult:
        return ask(
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

    return await _respond(request, AskedOfIndex, work)


async def _respond(
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
    index = _index(service, body.index)
    if body.method in ("vectors", "both") and not index.has_vectors:
        raise RequestError(422, "the index has no vectors. Search it by bm25.")
    computed = service.search(lambda: jsonable_encoder(work(service, index, body).as_dict()))
    return JSONResponse(await service.in_time(request, computed))


def _index(service: Service, name: str | None) -> Index:
    if name is None:
        return next(iter(service.indexes.values()))
    if name not in service.indexes:
        names = ", ".join(service.indexes)
        raise RequestError(404, f"no index {name[:60]!r}; expected one of {names}.")
    return service.indexes[name]
