"""Routes in the shapes of BERN2 and PubTator, so that programs written for them need only another address."""

from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import JSONResponse, Response

from lexome.document import Document
from lexome.serve import schemas
from lexome.serve.bern2 import bern2_shape
from lexome.serve.bodies import body_of, bounded, parsed
from lexome.serve.limits import Refused
from lexome.serve.pubtator import export
from lexome.serve.schemas import problems
from lexome.serve.service import Service
from lexome.serve.state import service_of

router = APIRouter()

# The header that names what PubTator leaves out without a word.
UNKNOWN = "lexome-unknown"
# Something besides commas and white space.
IDS = r"[^,\s]"


@router.post(
    "/plain",
    tags=["BERN2"],
    response_model=schemas.Bern2Text,
    responses=problems(400, 408, 413, 415, 422, 429, 503),
    openapi_extra=schemas.body(schemas.Plain),
)
async def plain(request: Request) -> Response:
    """A text's mentions, as BERN2 gives them."""
    service = service_of(request)
    body = await body_of(request, service.limits)

    async def work() -> Response:
        text = (await service.apart(len(body), lambda: parsed(body, schemas.Plain))).text
        [doc] = await service.annotated(
            bounded([service.annotator.document(text)], service.limits), service.models("ner")
        )
        return await service.apart(len(body) << 2, lambda: JSONResponse(bern2_shape(doc)))

    return await service.in_time(request, work())


@router.get(
    "/pubmed/{ids}",
    tags=["BERN2"],
    response_model=list[schemas.Bern2Citation],
    responses=problems(404, 413, 422, 429, 503),
)
async def pubmed(
    request: Request, ids: Annotated[str, Path(description="PubMed ids, commas between.", pattern=IDS)]
) -> Response:
    """Documents that the service was given at its start, as BERN2 gives them."""
    service = service_of(request)
    names = _names(ids, service)
    unknown = [name for name in names if name not in service.library]
    if unknown:
        raise _unknown(unknown, service)

    async def work() -> Response:
        docs = await _annotated(names, service)
        both = list(zip(docs, names, strict=True))
        size = service.library.size(names)
        return await service.apart(size << 2, lambda: JSONResponse([bern2_shape(doc, pmid=name) for doc, name in both]))

    return await service.in_time(request, work())


@router.get(
    "/publications/export/{form}",
    tags=["PubTator"],
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {}, "application/xml": {}, "application/json": {}}},
        **problems(404, 413, 422, 429, 503),
    },
)
async def publications(
    request: Request,
    form: Literal["pubtator", "biocxml", "biocjson"],
    pmids: Annotated[str, Query(description="PubMed ids, commas between.", pattern=IDS)],
) -> Response:
    """Documents that the service was given at its start, as PubTator exports them; unknown ids are left out.

    The header Lexome-Unknown names them. Where none is known, the answer is 404.
    """
    service = service_of(request)
    names = _names(pmids, service)
    known = [name for name in names if name in service.library]
    unknown = [name for name in names if name not in service.library]
    if not known:
        raise _unknown(unknown, service)

    async def work() -> Response:
        docs = await _annotated(known, service)
        response = await service.apart(service.library.size(known) << 4, lambda: export(docs, form))
        if unknown:
            response.headers[UNKNOWN] = _in_header(",".join(unknown))
        return response

    return await service.in_time(request, work())


def _names(given: str, service: Service) -> list[str]:
    names = list(dict.fromkeys(name for one in given.split(",") if (name := one.strip())))
    if len(names) > service.limits.documents:
        raise Refused(413, f"{len(names):,} ids; expected {service.limits.documents:,} at most. Ask several times.")
    return names


async def _annotated(names: Sequence[str], service: Service) -> list[Document]:
    """Documents of the library; those that say nothing yet with what the models say of them."""
    library = service.library
    docs = await service.apart(library.size(names), lambda: [library[name] for name in names])
    bare = [doc for doc in docs if not doc.spans and not doc.relations]
    found = iter(await service.annotated(bare, service.models("ner", "relation")))
    return [doc if doc.spans or doc.relations else next(found) for doc in docs]


def _in_header(text: str) -> str:
    """The text with a question mark for all that a header cannot hold, line ends first of all."""
    return "".join(letter if " " <= letter <= "~" else "?" for letter in text[:2000]).strip()


def _unknown(names: Sequence[str], service: Service) -> Refused:
    count = service.library.documents
    shown = ", ".join(names[:5])[:200]
    held = f"the service was given {count:,} documents" if count else "the service was given no documents"
    return Refused(404, f"{shown}: not known; {held} at its start. Give it more with --documents.")
