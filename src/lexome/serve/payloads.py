"""Request bodies to documents: Lexome's own JSON, or any format that can be read from one file."""

import asyncio
import io
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar, cast
from zipfile import ZIP_DEFLATED, ZipFile

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import SchemaValidator
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from lexome.document import Document
from lexome.errors import DocumentError
from lexome.formats import Tally
from lexome.formats.jsonl import to_json
from lexome.formats.registry import BY_NAME, Format, detect, detect_by_content, get_format
from lexome.formats.streams import HEAD_BYTES, Source, is_archive
from lexome.serve.limits import CLIENT_CLOSED, Limits, RequestError
from lexome.serve.queue import text_length

JSON = "json"
# A few bytes of these may hold gigabytes, or nothing but a path to look into.
PACKED = ("parquet", "spacy")
_PACKED_BYTES = (b"\x1f\x8b", b"PK\x03\x04", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"BZh")
# What curl and others say when nobody told them what a body is.
_UNSAID = ("", "application/x-www-form-urlencoded", "application/octet-stream")


# A body may hold millions of errors, and what pydantic says of each takes a kilobyte.
MANY = 1000

Shape = TypeVar("Shape", bound=BaseModel)

Make = Callable[[str], Document]
"""A bare text made into a document."""


class Given(BaseModel):
    """A text, or documents in Lexome's own form: one of the two."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        json_schema_extra={"oneOf": [{"required": ["text"]}, {"required": ["documents"]}]},
    )

    text: str | None = Field(None, description="A bare text.")
    id: str | None = Field(None, description="What the document made of `text` is called.")
    documents: list[Document] | None = Field(None, description="Documents as JSON lines have them.")


async def body_of(request: Request, limits: Limits) -> bytes:
    """All bytes of a request's body; RequestError where there are too many, or they take too long."""
    _check_head(request, limits)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.read_s):
            async for part in request.stream():
                size += len(part)
                if size > limits.body_bytes:
                    raise _too_large(f"more than {limits.body_bytes:,} bytes", limits)
                parts.append(part)
    except TimeoutError:
        raise RequestError(
            408, f"the body did not arrive within {limits.read_s:g} s; {size:,} bytes did. Send it faster, or in parts."
        ) from None
    except ClientDisconnect:
        raise RequestError(CLIENT_CLOSED, "the client has gone.") from None
    return b"".join(parts)


def documents_in(
    body: bytes, limits: Limits, *, form: str | None, name: str | None, content_type: str, make: Make
) -> list[Document]:
    """The documents of a body: of the format `form`, else of a file called `name`, else as the body itself says."""
    if form == JSON or (form is None and (_is_own(body) or (name is None and _is_json(body, content_type)))):
        return bounded(given_documents(parsed(body, Given), make), limits)
    if body.startswith(_PACKED_BYTES) or (name is not None and is_archive(name)):
        raise RequestError(
            415, "the body is packed or an archive; expected a single file. Unpack it, and send what is in it."
        )
    source = _source(body, name)
    format = _format(source, form, content_type)
    if format.name in PACKED or format.grouped:
        why = "may unpack to any size" if format.name in PACKED else "is spread over several files"
        raise RequestError(
            415, f"the format {format.name!r} {why}, so it is not read here. Send jsonl, bioc-xml or another."
        )
    tally = Tally()
    return bounded(format.read_function()(source, tally=tally), limits)


def readable() -> list[str]:
    """The formats that a body may have."""
    kept = (one.name for one in BY_NAME.values() if one.reads and not one.grouped and one.name not in PACKED)
    return [JSON, *kept]


def parsed(body: bytes, kind: type[Shape]) -> Shape:
    """The body as one of pydantic's models; RequestError says which field is wrong."""
    try:
        fields, _, _ = _validator(kind).validate_json(body)
        return kind.model_construct(**fields)
    except ValidationError as error:
        if error.error_count() > MANY:
            raise RequestError(
                422, f"{error.error_count():,} fields of the body are not known. Leave them out."
            ) from None
        first = error.errors(include_url=False)[0]
        cause = first.get("ctx", {}).get("error")
        if isinstance(cause, DocumentError):
            raise cause from None
        field = ".".join(str(step) for step in first["loc"]) or "the body"
        status = 400 if first["type"] == "json_invalid" else 422
        raise RequestError(
            status, f"{field[:200]}: {first['msg']}. Expected what /openapi.json says of this path."
        ) from None


@cache
def _validator(kind: type[BaseModel]) -> SchemaValidator:
    """pydantic's own for the fields of a model, but ended by the first wrong item of a list."""
    schema = _failing_fast(kind.__pydantic_core_schema__)
    # The whole schema would not do: for a class that has a validator, pydantic takes that one.
    return SchemaValidator(schema["schema"], schema["config"])


def _failing_fast(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_failing_fast(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _failing_fast(held) for name, held in schema.items()}
    return {**made, "fail_fast": True} if made.get("type") in ("list", "tuple") else made


def given_documents(given: Given, make: Make) -> list[Document]:
    """The documents that a body in Lexome's own form holds; RequestError where it does not say one thing."""
    if (given.text is None) == (given.documents is None):
        seen = "neither" if given.text is None else "both"
        raise RequestError(422, f'the body has {seen} of "text" and "documents"; expected one of them.')
    if given.documents is not None:
        return given.documents
    doc = make(given.text or "")
    return [replace(doc, id=given.id) if given.id else doc]


def _is_own(body: bytes) -> bool:
    """Whether it begins as an answer of ours does, which someone saved and sends again."""
    return body.startswith(b'{"documents":[')


def _is_json(body: bytes, content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or (kind in _UNSAID and body.lstrip()[:1] == b"{")


def _source(body: bytes, name: str | None) -> Source:
    stream = cast(io.BufferedReader, io.BufferedReader(cast(io.RawIOBase, io.BytesIO(body)), HEAD_BYTES))
    return Source(name or "the body", stream)


def _format(source: Source, form: str | None, content_type: str) -> Format:
    if form is not None:
        return get_format(form)
    if source.name != "the body":
        return detect(source)
    if content_type.partition(";")[0].strip().lower() == "text/plain":
        return get_format("text")
    return detect_by_content(source)


def bounded(docs: Iterable[Document], limits: Limits) -> list[Document]:
    """The documents; RequestError where there are too many, or one is too long, before more are read."""
    return list(_bounded(docs, limits))


def _bounded(docs: Iterable[Document], limits: Limits) -> Iterator[Document]:
    for number, doc in enumerate(docs, 1):
        if number > limits.documents:
            raise RequestError(413, f"more than {limits.documents:,} documents in one request. Send them in several.")
        if len(doc.relations) > limits.relations:
            raise RequestError(
                413,
                f"document {doc.id[:60]!r} comes with {len(doc.relations):,} relations; expected {limits.relations:,} "
                "at most. Send it without them.",
            )
        asked = max((len(question.text) for question in doc.questions), default=0)
        if asked > limits.question:
            raise RequestError(
                413,
                f"document {doc.id[:60]!r} has a question of {asked:,} characters; expected {limits.question:,} at "
                "most. Ask a shorter one.",
            )
        size = text_length(doc)
        if size > limits.characters:
            raise RequestError(
                413,
                f"document {doc.id[:60]!r} has {size:,} characters; expected {limits.characters:,} at most. Cut it, or "
                "annotate it with `lexome annotate`, which has no such bound.",
            )
        yield doc


def _check_head(request: Request, limits: Limits) -> None:
    packed = request.headers.get("content-encoding", "identity")
    if packed.lower() != "identity":
        raise RequestError(
            415, f"the body is packed ({packed[:40]!r}); expected it as it is. Send it without compression."
        )
    told = request.headers.get("content-length", "0")
    if told.isdecimal() and int(told[:20]) > limits.body_bytes:
        raise _too_large(f"{int(told[:20]):,} bytes", limits)


def _too_large(seen: str, limits: Limits) -> RequestError:
    return RequestError(
        413,
        f"the body has {seen}; expected {limits.body_bytes:,} at most. Send fewer documents at a time, or annotate "
        "files with `lexome annotate`.",
    )


_MEDIA = {
    "bioc-xml": "application/xml",
    "bioc-json": "application/json",
    "squad": "application/json",
    "jsonl": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
    "spacy": "application/octet-stream",
    "html": "text/html; charset=utf-8",
}
_PACKAGES = {"parquet": "pyarrow", "spacy": "spacy"}
# Each takes a tenth of a millisecond, and overlapping mentions make more of them than there are mentions.
MARKS = 50_000
_ZIP = "application/zip"
_TEXT = "text/plain; charset=utf-8"


def writable() -> list[str]:
    """The formats that documents can be asked for in, with what is installed."""
    kept = (one for one in BY_NAME.values() if one.writes and find_spec(_PACKAGES.get(one.name, "lexome")))
    return [JSON, *(one.name for one in kept)]


def media_type(form: str) -> str:
    """What an answer in a format says it is."""
    if form == JSON:
        return "application/json"
    return _ZIP if get_format(form).folder else _MEDIA.get(form, _TEXT)


def answer(docs: Sequence[Document], form: str) -> Response:
    """The documents in a format, as a file unless it is JSON; BadDocument where the format cannot hold one of them."""
    if form == JSON:
        return Response(as_json(docs), media_type="application/json")
    ending = ".zip" if get_format(form).folder else get_format(form).extensions[0]
    # Saved and never shown: an HTML answer holds a stranger's text, and this origin may hold a user's token.
    headers = {"content-disposition": f'attachment; filename="annotations{ending}"'}
    return Response(content(docs, form), media_type=media_type(form), headers=headers)


def content(docs: Sequence[Document], form: str) -> bytes:
    """The bytes of a file of a format; of what is written as a folder, those of a zip file."""
    format = get_format(form)
    if form == "html":
        _check_marks(docs)
    if format.folder:
        return _zipped(format, docs)
    stream = io.BytesIO()
    format.write_function()(docs, stream, tally=Tally())
    return stream.getvalue()


def as_json(docs: Sequence[Document]) -> bytes:
    """Documents in Lexome's own form, as one JSON object."""
    return b'{"documents":[' + b",".join(map(to_json, docs)) + b"]}"


def _check_marks(docs: Sequence[Document]) -> None:
    """RequestError where mentions lie in one another so deep that a page of them would never end."""
    marks = 0
    for doc in docs:
        parts = [part for span in doc.spans for part in span.parts]
        edges = sorted({edge for part in parts for edge in part})
        marks += sum(bisect_left(edges, end) - bisect_left(edges, start) for start, end in parts)
    if marks > MARKS:
        raise RequestError(
            413,
            f"mentions lie over each other in {marks:,} places; expected {MARKS:,} at most for a page. Ask for another "
            "format, or for fewer documents.",
        )


def _zipped(format: Format, docs: Sequence[Document]) -> bytes:
    """What a format writes as a folder, in one file."""
    stream = io.BytesIO()
    with tempfile.TemporaryDirectory(prefix="lexome-") as name, ZipFile(stream, "w", ZIP_DEFLATED) as out:
        folder = Path(name) / "annotations"
        format.write_function()(docs, folder, tally=Tally())
        for path in sorted(folder.rglob("*")):
            out.write(path, path.relative_to(folder))
    return stream.getvalue()
