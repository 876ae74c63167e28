"""Routes in the shapes of BERN2 and PubTator, so that programs written for them need only another address."""

import json
import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import JSONResponse, Response

from lexome.document import Document, Span
from lexome.formats.bioc.records import record_of
from lexome.metadata import Author, Metadata
from lexome.serve import schemas
from lexome.serve.limits import RequestError
from lexome.serve.payloads import body_of, bounded, content, parsed
from lexome.serve.routes import service_of
from lexome.serve.schemas import problems
from lexome.serve.service import Service

# BERN2's names of what it finds, by ours and those of the corpora, in lower case without spaces.
_NAMES = {
    "gene": "gene",
    "geneorgeneproduct": "gene",
    "protein": "gene",
    "gene/protein": "gene",
    "disease": "disease",
    "diseaseorphenotypicfeature": "disease",
    "chemical": "drug",
    "chemicalentity": "drug",
    "drug": "drug",
    "species": "species",
    "organism": "species",
    "organismtaxon": "species",
    "mutation": "mutation",
    "variant": "mutation",
    "sequencevariant": "mutation",
    "cellline": "cell_line",
    "celltype": "cell_type",
    "dna": "DNA",
    "rna": "RNA",
}
# What BERN2 says of a mention that it finds no concept for.
_NO_CONCEPT = "CUI-less"


def bern2_shape(doc: Document, *, pmid: str | None = None, now_s: float | None = None) -> dict[str, Any]:
    """The document as BERN2 answers: mentions with begin and end in `text`, which is the document's own text."""
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
        "obj": _NAMES.get(plain, span.type),
        "prob": span.score,
        "span": {"begin": span.start, "end": span.end},
    }


FORMS = {"pubtator": "pubtator", "biocxml": "bioc-xml", "biocjson": "bioc-json"}
_MEDIA = {"pubtator": "text/plain; charset=utf-8", "biocxml": "application/xml", "biocjson": "application/json"}


def export(docs: Sequence[Document], form: str) -> Response:
    """The documents as PubTator gives them out; BioC JSON in the list that PubTator 3 puts around them."""
    if form == "biocjson":
        shape = {"PubTator3": [_record(doc) for doc in docs]}
        raw = json.dumps(shape, ensure_ascii=False, separators=(",", ":")).encode()
    else:
        raw = content(docs, FORMS[form])
    return Response(raw, media_type=_MEDIA[form])


def _record(doc: Document) -> dict[str, Any]:
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
        "journal": _journal(meta),
        "authors": [_name(author) for author in meta.authors],
    }


def _journal(meta: Metadata) -> str | None:
    return None if meta.journal is None else meta.journal.abbreviation or meta.journal.title


def _name(author: Author) -> str:
    """Family name and initials, or what a group is called."""
    return author.collective or " ".join(filter(None, (author.family, author.initials or author.given)))


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
        raise RequestError(
            413, f"{len(names):,} ids; expected {service.limits.documents:,} at most. Ask several times."
        )
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


def _unknown(names: Sequence[str], service: Service) -> RequestError:
    count = service.library.documents
    shown = ", ".join(names[:5])[:200]
    held = f"the service was given {count:,} documents" if count else "the service was given no documents"
    return RequestError(404, f"{shown}: not known; {held} at its start. Give it more with --documents.")
