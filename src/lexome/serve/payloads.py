"""Request bodies to documents and documents to response bodies, in Lexome's own JSON or any format of one file."""

import asyncio
import io
import json
import math
import re
import tempfile
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, cast
from zipfile import ZIP_DEFLATED, ZipFile

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import SchemaValidator
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from lexome.document import Document, shorten
from lexome.errors import UsageError
from lexome.formats import BY_NAME, Tally, detect, detect_by_content, get_format, option_parameters
from lexome.formats.jsonl import first_problem, to_json
from lexome.formats.mention_table import Table
from lexome.formats.streams import HEAD_BYTES, Source, is_archive, is_json_array, prepare_text
from lexome.infer.annotator import TEXT_ID
from lexome.infer.concepts import Concepts, naming_options
from lexome.serve.limits import CLIENT_CLOSED, Limits, RequestError
from lexome.serve.queue import text_length

JSON = "json"
# A token of CoNLL takes up to this many bytes of the limit per character of its text.
_RECORD_BYTES_PER_CHARACTER = 32

# Requests

# A few bytes of these formats may contain gigabytes, or nothing but a path to open.
COMPRESSED_FORMATS = ("parquet", "spacy")
_COMPRESSED_BYTES = (b"\x1f\x8b", b"PK\x03\x04", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"BZh")
# Read in a process of their own, under limits of memory and time; zip files, but for PDF, with these members.
OFFICE_FORMATS = {"pdf": b"%PDF-", "docx": b"word/document.xml", "xlsx": b"xl/workbook.xml"}
# Content types that curl and others send by default.
_FORM = "application/x-www-form-urlencoded"
_DEFAULT_TYPES = ("", _FORM, "application/octet-stream")
# A body may have millions of errors, and pydantic's description of each takes a kilobyte.
MAX_ERRORS = 1000
# Notes on reading a body: a file has as many as it has unknown columns, and proxies limit headers to some kB.
MAX_NOTES, MAX_NOTE, MAX_HEADER_NOTES = 50, 200, 10

BodyModel = TypeVar("BodyModel", bound=BaseModel)
MakeDocument = Callable[[str], Document]


class Given(BaseModel):
    """A text, or documents in Lexome's own form: one of the two."""

    model_config = ConfigDict(
        strict=True, extra="forbid", json_schema_extra={"oneOf": [{"required": ["text"]}, {"required": ["documents"]}]}
    )

    text: str | None = Field(None, description="A bare text.")
    id: str | None = Field(None, description="Id of the document made from `text`.")
    documents: list[Document] | None = Field(None, description="Documents as in JSON lines.")


class Saved(Given):
    """A response of ours that was saved and is sent again: what it has besides documents is not read."""

    concepts: Any = None
    notes: Any = None


def require_single_values(request: Request) -> None:
    """UsageError for a query parameter that is given twice, of which only the last would have an effect."""
    query = request.query_params
    for name in query:
        if (count := len(query.getlist(name))) > 1:
            message = (
                f"the query parameter {name[:60]!r} is given {count} times; expected once, with several values "
                "separated by commas."
            )
            raise UsageError(message, code="repeated-parameter", value=name)


async def read_body(request: Request, limits: Limits) -> bytes:
    """The request body; RequestError if it is too large or too slow."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise RequestError(415, f"the body is compressed ({encoding[:40]!r}). Send it without compression.")
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length[:20]) > limits.body_bytes:
        raise _too_large(f"{int(length[:20]):,} bytes", limits)
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
        message = f"timeout: {size:,} bytes of the body arrived in {limits.read_s:g} s. Send it faster, or in parts."
        raise RequestError(408, message) from None
    except ClientDisconnect:
        raise RequestError(CLIENT_CLOSED, "the client has disconnected.") from None
    return b"".join(parts)


def _too_large(size: str, limits: Limits) -> RequestError:
    remedy = "Send fewer documents per request; `lexome annotate` has no such limit."
    return RequestError(413, f"the body has {size}; expected at most {limits.body_bytes:,} bytes. {remedy}")


def parse_documents(
    body: bytes,
    limits: Limits,
    *,
    format: str | None,
    name: str | None,
    content_type: str,
    make: MakeDocument,
    tally: Tally,
) -> list[Document]:
    """The documents of a body in `format`, or in that of a file called `name`, or else in a detected one.

    `tally` counts what reading drops or changes, and decides whether bad documents of a file are skipped.
    """
    content_type = content_type.partition(";")[0].strip().lower()
    if content_type == "multipart/form-data" or (content_type == _FORM and body.startswith(b"text=")):
        # Its field names would be annotated as text.
        raise RequestError(
            415,
            "the body is a form; expected the text or file itself, or JSON. Send a file as the body, as by curl "
            '--data-binary @FILE, and a text as {"text": "..."}.',
        )
    # A response of ours that was saved and is sent again.
    saved = body.startswith(b'{"documents":[')
    is_json = (content_type == "application/json" and not is_json_array(body)) or (
        content_type in _DEFAULT_TYPES and body.lstrip()[:1] == b"{"
    )
    if format == JSON or (format is None and (saved or (name is None and is_json))):
        return check_limits(documents_of(parse_json(body, Saved if saved else Given), make), limits)
    office = office_format(body)
    if (office is None and body.startswith(_COMPRESSED_BYTES)) or (name is not None and is_archive(name)):
        raise RequestError(
            415,
            "the body is compressed, or an archive; expected a single file. Unpack it; `lexome annotate` reads "
            "archives.",
        )
    stream = cast(
        io.BufferedReader, io.BufferedReader(_BodyStream(body, time.monotonic() + limits.answer_s), HEAD_BYTES)
    )
    # A document that is much larger than its characters may be is refused while it is read.
    source = Source(
        name or "the body",
        stream,
        record_bytes=_RECORD_BYTES_PER_CHARACTER * limits.characters,
        cpu_seconds=math.ceil(limits.answer_s),
    )
    if format is not None:
        chosen = get_format(format)
    elif name:
        chosen = detect(source)
    elif office is not None:
        chosen = get_format(office)
    else:
        chosen = get_format("text") if content_type == "text/plain" else detect_by_content(source)
    if chosen.name in COMPRESSED_FORMATS or chosen.grouped:
        reason = "may decompress to any size" if chosen.name in COMPRESSED_FORMATS else "consists of several files"
        message = f"the format {chosen.name!r} {reason} and is not accepted. Send jsonl, bioc-xml or another."
        raise RequestError(415, message)
    docs = check_limits(chosen.read_function()(prepare_text(source, chosen, tally, ()), tally=tally), limits)
    if tally.reasons and not docs:
        count = tally.rejected.total()
        prefix = "" if count == 1 else f"none of {count:,} documents can be read; the first: "
        raise RequestError(422, prefix + tally.reasons[0])
    # A text without a name has the id that it has in JSON.
    return docs if name else [replace(doc, id=TEXT_ID) if doc.id == source.stem else doc for doc in docs]


def office_format(body: bytes) -> str | None:
    """The name of the office format of a body, by its bytes; None for others."""
    if body.startswith(OFFICE_FORMATS["pdf"]):
        return "pdf"
    if not body.startswith(b"PK\x03\x04"):
        return None
    # A document may contain others: the first member with such a name is its own. Names are not compressed.
    places = {name: body.find(mark) for name, mark in OFFICE_FORMATS.items() if name != "pdf"}
    return min((name for name, place in places.items() if place >= 0), key=places.__getitem__, default=None)


def takes_process(body: bytes, *, format: str | None, name: str | None) -> bool:
    """Whether a body may be read in a process of its own: by its bytes, or because the request says so.

    A PDF or a zip file may begin with other bytes.
    """
    named = {format, *(name or "").lower().split(".")}
    return office_format(body) is not None or not named.isdisjoint(OFFICE_FORMATS)


class _BodyStream(io.RawIOBase):
    """The bytes of a body, until its time is up: a client that got no response in time keeps no thread busy."""

    def __init__(self, body: bytes, deadline: float) -> None:
        self._body, self._deadline = io.BytesIO(body), deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        if time.monotonic() > self._deadline:
            raise RequestError(503, "the body was not read in time. Send less text per request.", retry_after_s=5)
        return self._body.readinto(buffer)  # type: ignore[arg-type]  # io's own protocol


def input_formats() -> list[str]:
    """The formats that a request body may have."""
    accepted = (one.name for one in BY_NAME.values() if one.reads and not one.grouped)
    return [
        JSON,
        *(name for name in accepted if name not in COMPRESSED_FORMATS and _is_installed(_READ_WITH.get(name))),
    ]


def parse_json(body: bytes, model: type[BodyModel]) -> BodyModel:
    """The body as a pydantic model; RequestError names the first invalid field."""
    try:
        fields, _, _ = _validator(model).validate_json(body)
        return model.model_construct(**fields)
    except ValidationError as error:
        if error.error_count() > MAX_ERRORS:
            raise RequestError(422, f"the body has {error.error_count():,} unknown fields. Remove them.") from None
        kind, field, problem = first_problem(error, "the body")
        status = 400 if kind == "json_invalid" else 422
        hint = (
            " For plain records of id and text, send JSON Lines or an array, with from=jsonl."
            if field.startswith("documents.")
            else ""
        )
        raise RequestError(status, f"{field[:200]}: {problem}. /openapi.json describes this path.{hint}") from None


@cache
def _validator(model: type[BaseModel]) -> SchemaValidator:
    """pydantic's validator of a model's fields, but stopped by the first invalid item of a list."""

    def fail_fast(schema: Any) -> Any:
        if isinstance(schema, list):
            return [fail_fast(part) for part in schema]
        if not isinstance(schema, dict):
            return schema
        copied = {name: fail_fast(part) for name, part in schema.items()}
        return {**copied, "fail_fast": True} if copied.get("type") in ("list", "tuple") else copied

    schema = fail_fast(model.__pydantic_core_schema__)
    # Only the fields: for a class that has a validator already, pydantic would use that one.
    return SchemaValidator(schema["schema"], schema["config"])


def documents_of(body: Given, make: MakeDocument) -> list[Document]:
    """The documents of a body in Lexome's own form."""
    if (body.text is None) == (body.documents is None):
        count = "neither" if body.text is None else "both"
        raise RequestError(422, f'the body has {count} of "text" and "documents"; expected one of them.')
    if body.documents is not None:
        return body.documents
    doc = make(body.text or "")
    return [replace(doc, id=body.id) if body.id else doc]


def check_limits(docs: Iterable[Document], limits: Limits) -> list[Document]:
    """The documents; RequestError if there are too many or one is too large, before more are read."""
    accepted: list[Document] = []
    for doc in docs:
        if len(accepted) == limits.documents:
            raise RequestError(413, f"more than {limits.documents:,} documents. Send them in several requests.")
        question = max((len(question.text) for question in doc.questions), default=0)
        for size, what, limit, remedy in (
            (len(doc.relations), "relations", limits.relations, "Send it without them."),
            (question, "characters in a question", limits.question, "Ask a shorter one."),
            (text_length(doc), "characters", limits.characters, "Split it; `lexome annotate` has no such limit."),
        ):
            if size > limit:
                named = "the text" if doc.id == TEXT_ID else f"document {doc.id[:60]!r}"
                message = f"{named} has {size:,} {what}; expected at most {limit:,}. {remedy}"
                raise RequestError(413, message)
        accepted.append(doc)
    return accepted


# Responses

_MEDIA_TYPES = {
    "bioc-xml": "application/xml",
    "bioc-json": "application/json",
    "squad": "application/json",
    "jsonl": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
    "spacy": "application/octet-stream",
    "html": "text/html; charset=utf-8",
    "csv": "text/csv; charset=utf-8",
    "tsv": "text/tab-separated-values; charset=utf-8",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
# The packages that formats need; Excel files are written without one.
_WRITTEN_WITH = {"parquet": "pyarrow", "spacy": "spacy"}
_READ_WITH = {**_WRITTEN_WITH, "xlsx": "openpyxl", "docx": "docx", "pdf": "pypdfium2"}
# Marks of an HTML page take 0.1 ms each, and overlapping mentions have more marks than there are mentions.
MAX_MARKS = 50_000


def output_formats() -> list[str]:
    """The formats of responses that the installed packages can write."""
    return [JSON, *(one.name for one in BY_NAME.values() if one.writes and _is_installed(_WRITTEN_WITH.get(one.name)))]


def _is_installed(package: str | None) -> bool:
    return package is None or find_spec(package) is not None


def media_type(format: str) -> str:
    """The content type of a response in a format."""
    if format == JSON:
        return "application/json"
    return "application/zip" if get_format(format).folder else _MEDIA_TYPES.get(format, "text/plain; charset=utf-8")


def with_parameters(message: str) -> str:
    """A message of a reader for clients, which name the format with the query parameter `from`."""
    return re.sub(r"--from(?: (?=\w)|\b)", "from=", re.sub(r" \(in Python: [^)]*\)", "", message))


def reading_notes(tally: Tally) -> list[str]:
    """What reading a body skipped, with the first reasons, and what it dropped or changed, with the number of times."""
    count = tally.rejected.total()
    skipped = [f"{count:,} document{'s' if count > 1 else ''} skipped"] if count else []
    skipped += [f"skipped: {shorten(with_parameters(reason), MAX_NOTE)}" for reason in tally.reasons]
    return skipped + [f"{times:,} {shorten(note, MAX_NOTE)}" for note, times in tally.notes.most_common(MAX_NOTES)]


def document_response(
    docs: Sequence[Document],
    format: str,
    concepts: Mapping[str, Any] = MappingProxyType({}),
    *,
    naming: Concepts | None = None,
    table: Table = "mentions",
    notes: Sequence[str] = (),
) -> Response:
    """The documents in a format, as a download unless it is JSON; BadDocument if the format cannot represent one.

    JSON has the description of `concepts` and the `notes` beside the documents; other formats have preferred names by
    `naming`, and the notes in a header. `table` is that of formats that are tables.
    """
    if format == JSON:
        return Response(
            b'{"documents":['
            + b",".join(to_json(doc, all_keys=True) for doc in docs)
            + b'],"concepts":'
            + json.dumps(dict(concepts), ensure_ascii=False, separators=(",", ":")).encode()
            + b',"notes":'
            + json.dumps(list(notes), ensure_ascii=False).encode()
            + b"}",
            media_type="application/json",
        )
    extension = ".zip" if get_format(format).folder else get_format(format).extensions[0]
    # A download, never rendered: an HTML response has text of strangers, and this origin may have a user's token.
    headers = {"content-disposition": f'attachment; filename="annotations{extension}"'}
    if notes:
        headers["lexome-notes"] = json.dumps(notes[:MAX_HEADER_NOTES])
    return Response(write_format(docs, format, naming, table=table), media_type=media_type(format), headers=headers)


def write_format(
    docs: Sequence[Document], format: str, naming: Concepts | None = None, *, table: Table = "mentions"
) -> bytes:
    """A file of a format; for a format that is written as a folder, a zip file."""
    chosen = get_format(format)
    if format == "html":
        _check_marks(docs)
    stream = io.BytesIO()
    if not chosen.folder:
        write = chosen.write_function()
        options = {"table": table} if "table" in option_parameters(write) else {}
        write(docs, stream, tally=Tally(), **options, **naming_options(format, naming))
        return stream.getvalue()
    with tempfile.TemporaryDirectory(prefix="lexome-") as name, ZipFile(stream, "w", ZIP_DEFLATED) as archive:
        folder = Path(name) / "annotations"
        chosen.write_function()(docs, folder, tally=Tally())
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder))
    return stream.getvalue()


def _check_marks(docs: Sequence[Document]) -> None:
    """RequestError if mentions are nested so deeply that rendering them would never end."""
    marks = 0
    for doc in docs:
        parts = [part for span in doc.spans for part in span.parts]
        edges = sorted({edge for part in parts for edge in part})
        marks += sum(bisect_left(edges, end) - bisect_left(edges, start) for start, end in parts)
    if marks > MAX_MARKS:
        message = f"mentions overlap in {marks:,} places; HTML may have {MAX_MARKS:,}. Request another format."
        raise RequestError(413, message)
