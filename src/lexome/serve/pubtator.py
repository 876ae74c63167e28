"""Answers in the shapes of PubTator's export, for programs that were written for it."""

import json
from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from lexome.document import Document
from lexome.formats.annotation.bioc_writing import record_of
from lexome.metadata import Author, Metadata
from lexome.serve.answers import content

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
