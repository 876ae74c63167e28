"""Documents to answers: JSON, or a file of any format that can be written."""

import io
import tempfile
from bisect import bisect_left
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

from starlette.responses import Response

from lexome.document import Document
from lexome.formats import Tally
from lexome.formats.records.jsonl import to_json
from lexome.formats.registry import BY_NAME, Format, named
from lexome.serve.bodies import JSON
from lexome.serve.limits import Refused

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
    kept = (one for one in BY_NAME.values() if one.writer and find_spec(_PACKAGES.get(one.name, "lexome")))
    return [JSON, *(one.name for one in kept)]


def media_type(form: str) -> str:
    """What an answer in a format says it is."""
    if form == JSON:
        return "application/json"
    return _ZIP if named(form).folder else _MEDIA.get(form, _TEXT)


def answer(docs: Sequence[Document], form: str) -> Response:
    """The documents in a format, as a file unless it is JSON; BadDocument where the format cannot hold one of them."""
    if form == JSON:
        return Response(as_json(docs), media_type="application/json")
    ending = ".zip" if named(form).folder else named(form).endings[0]
    # Saved and never shown: an HTML answer holds a stranger's text, and this origin may hold a user's token.
    headers = {"content-disposition": f'attachment; filename="annotations{ending}"'}
    return Response(content(docs, form), media_type=media_type(form), headers=headers)


def content(docs: Sequence[Document], form: str) -> bytes:
    """The bytes of a file of a format; of what is written as a folder, those of a zip file."""
    format = named(form)
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
    """Refused where mentions lie in one another so deep that a page of them would never end."""
    marks = 0
    for doc in docs:
        parts = [part for span in doc.spans for part in span.parts]
        edges = sorted({edge for part in parts for edge in part})
        marks += sum(bisect_left(edges, end) - bisect_left(edges, start) for start, end in parts)
    if marks > MARKS:
        raise Refused(
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
