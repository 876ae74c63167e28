"""Routes compatible with BERN2 and PubTator: programs written for them need only another base URL."""

import json
import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import JSONResponse, Response

from lexome.document import Document, Span
from lexome.formats.bioc import record_of
from lexome.serve import schemas
from lexome.serve.limits import RequestError
from lexome.serve.payloads import check_limits, parse_json, read_body, require_single_values, write_format
from lexome.serve.routes import service_of
from lexome.serve.schemas import error_responses
from lexome.serve.service import Service

# BERN2's entity types, and the names of ours and those of the corpora, in lower case without separators.
_BERN2_TYPES = {
    "gene": ("gene", "geneorgeneproduct", "protein", "gene/protein"),
    "disease": ("disease", "diseaseorphenotypicfeature"),
    "drug": ("chemical", "chemicalentity", "drug"),
    "species": ("species", "organism", "organismtaxon"),
    "mutation": ("mutation", "variant", "sequencevariant"),
    "cell_line": ("cellline",),
    "cell_type": ("celltype",),
    "DNA": ("dna",),
    "RNA": ("rna",),
}
# BERN2's id of a mention without a concept.
_NO_CONCEPT = "CUI-less"


def bern2_record(doc: Document, *, pmid: str | None = None, now_s: float | None = None) -> dict[str, Any]:
    """The document in BERN2's format: mentions with begin and end in `text`, which is the document's own text."""
    shape: dict[str, Any] = {
        "annotations": [_annotation(span) for span in sorted(doc.spans, key=lambda span: (span.start, span.end))],
        "text": doc.text,
        "timestamp": time.strftime("%a %b %d %H:%M:%S +0000 %Y", time.gmtime(now_s)),
    }
    return shape if pmid is None else {"pmid": pmid, **shape}


def _annotation(span: Span) -> dict[str, Any]:
    plain = "".join(letter for letter in span.type.lower() if letter not in " _-")
    return {
        "id": list(span.concepts) or [_NO_CONCEPT],
        "is_neural_normalized": False,
        "mention": span.text,
        "obj": next((type_ for type_, names in _BERN2_TYPES.items() if plain in names), span.type),
        "prob": span.score,
        "span": {"begin": span.start, "end": span.end},
    }


# Format and content type of each of PubTator's export formats.
EXPORTS = {
    "pubtator": ("pubtator", "text/plain; charset=utf-8"),
    "biocxml": ("bioc-xml", "application/xml"),
    "biocjson": ("bioc-json", "application/json"),
}


def export(docs: Sequence[Document], form: str) -> Response:
    """The documents in one of PubTator's export formats; BioC JSON in the list that PubTator 3 puts around them."""
    format, media_type = EXPORTS[form]
    if form == "biocjson":
        records = {"PubTator3": [_pubtator_record(doc) for doc in docs]}
        raw = json.dumps(records, ensure_ascii=False, separators=(",", ":")).encode()
    else:
        raw = write_format(docs, format)
    return Response(raw, media_type=media_type)


def _pubtator_record(doc: Document) -> dict[str, Any]:
    """BioC's record with the fields that PubTator adds to each document."""
    meta = doc.meta
    pmid = meta.pmid or doc.id
    return {
        "_id": f"{pmid}|{meta.pmcid or None}",
        **record_of(doc),
        "pmid": int(pmid) if pmid.isdecimal() and pmid.isascii() and len(pmid) < 16 else pmid,
        "pmcid": meta.pmcid,
        "meta": {},
        "date": meta.published,
        "journal": None if meta.journal is None else meta.journal.abbreviation or meta.journal.title,
        "authors": [
            author.collective or " ".join(filter(None, (author.family, author.initials or author.given)))
            for author in meta.authors
        ],
    }


router = APIRouter()

# The header that lists unknown ids, which PubTator leaves out without notice.
UNKNOWN = "lexome-unknown"
# At least one character besides commas and white space.
IDS = r"[^,\s]"


@router.post(
    "/plain",
    tags=["BERN2"],
    response_model=schemas.Bern2Text,
    responses=error_responses(400, 408, 413, 415, 422, 429, 503),
    openapi_extra=schemas.body(schemas.Plain),
)
async def plain(request: Request) -> Response:
    """Annotate a text, in BERN2's format."""
    service = service_of(request)
    body = await read_body(request, service.limits)

    async def work() -> Response:
        text = (await service.offload(len(body), lambda: parse_json(body, schemas.Plain))).text
        [doc] = await service.annotate(check_limits([service.annotator.document(text)], service.limits), "ner")
        return await service.offload(len(body) << 2, lambda: JSONResponse(bern2_record(doc)))

    return await service.in_time(request, work())


@router.get(
    "/pubmed/{ids}",
    tags=["BERN2"],
    response_model=list[schemas.Bern2Citation],
    responses=error_responses(404, 413, 422, 429, 503),
)
async def pubmed(
    request: Request, ids: Annotated[str, Path(description="PubMed ids, separated by commas.", pattern=IDS)]
) -> Response:
    """Annotated documents of the service's library, in BERN2's format."""
    service = service_of(request)
    names = _parse_ids(ids, service)
    unknown = [name for name in names if name not in service.library]
    if unknown:
        raise _unknown_ids(unknown, service)

    async def work() -> Response:
        docs = await _annotate(names, service)

        def write() -> Response:
            return JSONResponse([bern2_record(doc, pmid=name) for doc, name in zip(docs, names, strict=True)])

        return await service.offload(service.library.size(names) << 2, write)

    return await service.in_time(request, work())


@router.get(
    "/publications/export/{form}",
    tags=["PubTator"],
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {}, "application/xml": {}, "application/json": {}}},
        **error_responses(404, 413, 422, 429, 503),
    },
)
async def publications(
    request: Request,
    form: Literal["pubtator", "biocxml", "biocjson"],
    pmids: Annotated[str, Query(description="PubMed ids, separated by commas.", pattern=IDS)],
) -> Response:
    """Annotated documents of the service's library, as PubTator exports them; unknown ids are left out.

    The header Lexome-Unknown lists them. If all are unknown, the status is 404.
    """
    require_single_values(request)
    service = service_of(request)
    names = _parse_ids(pmids, service)
    known = [name for name in names if name in service.library]
    unknown = [name for name in names if name not in service.library]
    if not known:
        raise _unknown_ids(unknown, service)

    async def work() -> Response:
        docs = await _annotate(known, service)
        response = await service.offload(service.library.size(known) << 4, lambda: export(docs, form))
        if unknown:
            # A question mark for every character that a header cannot contain, such as line ends.
            listed = "".join(letter if " " <= letter <= "~" else "?" for letter in ",".join(unknown)[:2000])
            response.headers[UNKNOWN] = listed.strip()
        return response

    return await service.in_time(request, work())


def _parse_ids(text: str, service: Service) -> list[str]:
    names = list(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
    if len(names) > service.limits.documents:
        message = f"{len(names):,} ids; expected at most {service.limits.documents:,}. Send several requests."
        raise RequestError(413, message)
    return names


async def _annotate(names: Sequence[str], service: Service) -> list[Document]:
    """Documents of the library; those without annotations are annotated."""
    library = service.library
    docs = await service.offload(library.size(names), lambda: [library[name] for name in names])
    bare = [doc for doc in docs if not doc.spans and not doc.relations]
    annotated = iter(await service.annotate(bare, "ner", "relation", "document-relation"))
    return [doc if doc.spans or doc.relations else next(annotated) for doc in docs]


def _unknown_ids(names: Sequence[str], service: Service) -> RequestError:
    shown = ", ".join(names[:5])[:200]
    message = f"{shown}: unknown; the library has {service.library.documents:,} documents. Add more with --documents."
    return RequestError(404, message)
