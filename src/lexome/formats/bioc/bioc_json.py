"""BioC JSON, both ways: collections, single documents, lists, PubTator3's answers, and a document a line."""

import json
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any, BinaryIO, Literal

from lexome.document import Document
from lexome.errors import BadDocument, FormatError
from lexome.formats.bioc.records import read_document, record_of
from lexome.formats.json_file import attempt, mapping
from lexome.formats.streams import MAX_RECORD_BYTES, MAX_WHOLE_BYTES, Source
from lexome.formats.tally import Tally

_BEGIN = b'{"source":"Lexome","date":"","key":"lexome.key","infons":{},"documents":['
_END = b"\n]}\n"
_LONGEST_OPENING = 1 << 12
_OUR_HEADER = {"source": "Lexome", "key": "lexome.key"}


def read(source: Source, *, tally: Tally, offsets: Literal["strict", "repair"] = "strict") -> Iterator[Document]:
    """The documents of a file in any of BioC JSON's forms.

    A document a line, and a collection with a document a line as Lexome writes it, are read line by
    line; any other collection is read whole.
    """
    for where, value in _values(source, tally):
        make = partial(_document, value, offsets == "repair", tally)
        doc = attempt(tally, make, value, where=where)
        if doc is not None:
            yield doc


def write(docs: Iterable[Document], stream: BinaryIO, *, tally: Tally) -> None:
    """One collection of all documents, each on a line of its own; read gives back the same documents."""
    stream.write(_BEGIN)
    begun = False
    for doc in docs:
        raw = tally.attempt(partial(_written, doc), where=f"document {doc.id!r}", id=doc.id)
        if raw is not None:
            stream.write((b",\n" if begun else b"\n") + raw)
            begun = True
            tally.written += 1
    stream.write(_END)


def _written(doc: Document) -> bytes:
    try:
        return json.dumps(record_of(doc), ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        raise BadDocument(
            "not_unicode", f"{error.object[error.start]!r} is half a surrogate pair; expected whole characters"
        ) from None


def _document(value: object, repairing: bool, tally: Tally) -> Document:
    return read_document(mapping(value, "the document"), repairing=repairing, tally=tally)


def _values(source: Source, tally: Tally) -> Iterator[tuple[str, Any]]:
    """Each document as parsed JSON, with its place."""
    first = source.stream.readline(MAX_RECORD_BYTES).removeprefix(b"\xef\xbb\xbf")
    header = _opened(first)
    if header is not None:
        second = source.stream.readline(MAX_RECORD_BYTES)
        if second.lstrip().startswith(b"{") and second.rstrip().endswith((b"}", b"},")):
            _note_header(header, tally)
            yield from _rows(source, second, tally)
            return
        first += second
    try:
        value = json.loads(first)
    except (ValueError, RecursionError):
        yield from _whole(source, first, tally)
        return
    yield from _each(value, source.name, tally)
    yield from _lines(source, ((number + 1, line) for number, line in source.lines()), tally)


def _opened(line: bytes) -> dict[str, Any] | None:
    """What a collection says before its documents, if this line ends where they begin."""
    if len(line) > _LONGEST_OPENING or not line.rstrip().endswith(b"["):
        return None
    try:
        header = json.loads(line.rstrip() + b"]}")
    except (ValueError, RecursionError):
        return None
    return header if isinstance(header, dict) and header.get("documents") == [] else None


def _rows(source: Source, second: bytes, tally: Tally) -> Iterator[tuple[str, Any]]:
    """The documents of a collection that has each on a line, the first of them read already."""
    lines = chain([(2, second.rstrip())], ((number + 2, line) for number, line in source.lines()))
    for number, line in lines:
        if line.startswith(b"]"):
            return
        yield from _lines(source, [(number, line.strip().removesuffix(b","))], tally)
    raise FormatError(
        f"{source.name}: the file ends without the ] that closes its documents; expected a complete file. What came "
        "before was read; fetch the file again."
    )


def _lines(source: Source, lines: Iterable[tuple[int, bytes]], tally: Tally) -> Iterator[tuple[str, Any]]:
    for number, line in lines:
        if line.strip():
            where = f"{source.name}, line {number}"
            value = tally.attempt(partial(_parsed, line), where=where, raw=line)
            if value is not None:
                yield from _each(value, where, tally)


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line.decode())
    except UnicodeDecodeError as error:
        raise BadDocument(
            "wrong_encoding",
            f"byte {error.start} is 0x{line[error.start]:02x}, which is not UTF-8, as JSON is. Convert the file.",
        ) from None
    except RecursionError:
        raise BadDocument("malformed_json", "values lie too deep inside one another; expected a document") from None
    except ValueError as error:
        raise BadDocument("malformed_json", f"{error}; expected one JSON object a line") from None


def _whole(source: Source, begun: bytes, tally: Tally) -> Iterator[tuple[str, Any]]:
    """The documents of a file that is one JSON value over many lines."""
    raw = begun + source.stream.read(MAX_WHOLE_BYTES + 1 - len(begun))
    if len(raw) > MAX_WHOLE_BYTES:
        raise FormatError(
            f"{source.name}: larger than {MAX_WHOLE_BYTES >> 20} MiB, and JSON that is not a document a line is read "
            "whole. Cut it into several files."
        )
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        lines = raw.split(b"\n")
        if len(lines) > 1 and _is_document(lines[1]):
            yield from _lines(source, enumerate(lines, 1), tally)
            return
        seen = str(error) if raw.strip() else "it is empty"
        raise FormatError(
            f"{source.name}: this is not whole JSON: {seen}. Fetch the file again; if it is of another format, name "
            "that with --from (in Python: format=)."
        ) from None
    yield from _each(value, source.name, tally)


def _is_document(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _each(value: Any, where: str, tally: Tally) -> Iterator[tuple[str, Any]]:
    """The documents in a collection, in PubTator3's answer, in a list, or the one that the value is."""
    if isinstance(value, dict):
        _note_header(value, tally)
        value = next((value[key] for key in ("documents", "PubTator3") if key in value), [value])
    documents = value if isinstance(value, list) else [value]
    for number, document in enumerate(documents, 1):
        yield (f"{where}, document {number}" if len(documents) > 1 else where), document


def _note_header(collection: dict[str, Any], tally: Tally) -> None:
    """Count what a collection says of itself, which no document has a place for."""
    if "documents" not in collection:
        return
    for key, value in collection.items():
        if key not in ("documents", "bioctype") and value and _OUR_HEADER.get(key) != value:
            tally.note(f"{key!r} of the collection ignored")
