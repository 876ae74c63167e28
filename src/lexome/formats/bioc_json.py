"""BioC JSON: collections, single documents, lists, PubTator3 responses, and one document per line."""

import json
import re
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any, BinaryIO

from lexome.document import Document, encode_utf8
from lexome.errors import BadDocument
from lexome.formats.bioc import read_document, record_of
from lexome.formats.json_file import accept, malformed_json, mapping, parse, records_in
from lexome.formats.streams import MAX_RECORD_BYTES, MAX_WHOLE_BYTES, Source, too_large, truncated
from lexome.formats.tally import Offsets, Tally

_KEYS = ("documents", "PubTator3")
_COLLECTION = re.compile(rb'"(?:documents|PubTator3)"\s*:\s*\[')
_BEGIN = b'{"source":"Lexome","date":"","key":"lexome.key","infons":{},"documents":['
_MAX_HEADER_BYTES = 1 << 12
_OUR_HEADER = {"source": "Lexome", "key": "lexome.key"}


def read(source: Source, *, tally: Tally, offsets: Offsets = "keep") -> Iterator[Document]:
    """The documents of a file in any form of BioC JSON.

    Files of one document per line, and collections with one document per line as Lexome writes them, are streamed;
    other collections are read into memory.
    """
    for where, value in _values(source, tally):
        yield from accept(tally, partial(_document, value, offsets, tally), value, where=where)


def write(docs: Iterable[Document], stream: BinaryIO, *, tally: Tally) -> None:
    """One collection, with one document per line; `read` restores the documents exactly."""
    stream.write(_BEGIN)
    for number, raw in enumerate(tally.convert(docs, _to_json)):
        stream.write((b",\n" if number else b"\n") + raw)
    stream.write(b"\n]}\n")


def _to_json(doc: Document) -> bytes:
    return encode_utf8(json.dumps(record_of(doc), ensure_ascii=False, separators=(",", ":")))


def _document(value: object, offsets: Offsets, tally: Tally) -> Document:
    return read_document(mapping(value, "the document"), offsets=offsets, tally=tally)


def _values(source: Source, tally: Tally) -> Iterator[tuple[str, Any]]:
    """Each document as parsed JSON, with its location."""
    first = source.stream.readline(MAX_RECORD_BYTES).removeprefix(b"\xef\xbb\xbf")
    header = _collection_header(first)
    if header is not None:
        second = source.stream.readline(MAX_RECORD_BYTES)
        if second.lstrip().startswith(b"{") and second.rstrip().endswith((b"}", b"},")):
            _note_header(header, tally)
            rest = ((number + 2, line) for number, line in source.lines())
            for number, line in chain([(2, second.rstrip())], rest):
                if line.startswith(b"]"):
                    return
                yield from _lines(source, [(number, line.strip().removesuffix(b","))], tally)
            problem = "the file is truncated: the closing ] of its documents is missing"
            raise truncated(source.name, problem, value=source.name)
        first += second
    try:
        value = parse(first)
    except (ValueError, RecursionError):
        yield from _in_memory(source, first, tally)
        return
    yield from _documents_in(value, source.name, tally)
    yield from _lines(source, ((number + 1, line) for number, line in source.lines()), tally)


def _collection_header(line: bytes) -> dict[str, Any] | None:
    """The fields of a collection before its documents, if this line ends where these begin."""
    if len(line) > _MAX_HEADER_BYTES or not line.rstrip().endswith(b"["):
        return None
    try:
        header = json.loads(line.rstrip() + b"]}")
    except (ValueError, RecursionError):
        return None
    return header if isinstance(header, dict) and header.get("documents") == [] else None


def _lines(source: Source, lines: Iterable[tuple[int, bytes]], tally: Tally) -> Iterator[tuple[str, Any]]:
    for number, line in lines:
        if line.strip():
            where = f"{source.name}, line {number}"
            value = tally.attempt(partial(_parse_line, line), where=where, raw=line)
            if value is not None:
                yield from _documents_in(value, where, tally)


def _parse_line(line: bytes) -> Any:
    try:
        return parse(line.decode())
    except UnicodeDecodeError as error:
        message = f"byte {error.start} is 0x{line[error.start]:02x}, which is not UTF-8. Convert the file."
        raise BadDocument("wrong_encoding", message, value=error.start) from None
    except RecursionError:
        raise BadDocument("malformed_json", "values are nested too deeply") from None
    except ValueError as error:
        raise BadDocument("malformed_json", f"{error}; expected one JSON object per line") from None


def _in_memory(source: Source, start: bytes, tally: Tally) -> Iterator[tuple[str, Any]]:
    """The documents of a file that is one JSON value on several lines, or one too large to parse at once."""
    beginning = start.lstrip()[: 1 << 16]
    if beginning.startswith(b"[") or (beginning.startswith(b"{") and _COLLECTION.search(beginning + source.head())):
        yield from _stream(source, start, tally)
        return
    raw = start + source.read_to(MAX_WHOLE_BYTES - len(start))
    if len(raw) > MAX_WHOLE_BYTES:
        advice = "Only files with one document per line are streamed: split the file."
        raise too_large(source.name, "the file", advice, limit=MAX_WHOLE_BYTES, value=source.name)
    try:
        value = parse(raw)
    except (ValueError, RecursionError) as error:
        lines = raw.split(b"\n")
        if len(lines) > 1 and _is_document(lines[1]):
            yield from _lines(source, enumerate(lines, 1), tally)
            return
        raise malformed_json(source, str(error) if raw.strip() else "the file is empty") from None
    yield from _documents_in(value, source.name, tally)


def _stream(source: Source, start: bytes, tally: Tally) -> Iterator[tuple[str, Any]]:
    """The documents of a collection or list, one in memory at a time."""
    header: dict[str, Any] = {"documents": []}
    number = 0
    for key, value in records_in(source, _text_so_far(source, start), _KEYS):
        if key in ("", *_KEYS):
            number += 1
            yield f"{source.name}, document {number}", value
        else:
            header[key] = value
    _note_header(header, tally)


def _text_so_far(source: Source, raw: bytes) -> str:
    """The first bytes of a file, which end with a line or at its end, as text."""
    for _ in range(4):
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            if error.end < len(raw):
                raise malformed_json(source, f"byte {error.start:,} is 0x{raw[error.start]:02x}, not UTF-8") from None
            raw += source.stream.read(1)
    raise malformed_json(source, "its first line is not UTF-8")


def _is_document(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _documents_in(value: Any, where: str, tally: Tally) -> Iterator[tuple[str, Any]]:
    """The documents in a collection, a PubTator3 response or a list; any other value is one document."""
    if isinstance(value, dict):
        _note_header(value, tally)
        value = next((value[key] for key in ("documents", "PubTator3") if key in value), [value])
    documents = value if isinstance(value, list) else [value]
    for number, document in enumerate(documents, 1):
        yield (f"{where}, document {number}" if len(documents) > 1 else where), document


def _note_header(collection: dict[str, Any], tally: Tally) -> None:
    """Count the header fields of a collection, which documents cannot represent."""
    if "documents" not in collection:
        return
    for key, value in collection.items():
        if key not in ("documents", "bioctype") and value and _OUR_HEADER.get(key) != value:
            tally.note(f"{key!r} of the collection ignored")
