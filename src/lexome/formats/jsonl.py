"""JSON lines: Lexome's own documents, complete and exact, and the plain records that others write."""

import json
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Any, BinaryIO

from lexome.document import Document, place
from lexome.errors import BadDocument, DocumentError
from lexome.formats.files import Source, decode
from lexome.formats.tally import Tally
from lexome.metadata import Metadata

# The fields of foreign records that are read, by what they become.
_IDS = ("id", "pmid", "pmcid", "_id", "doi", "guid", "index")
_TITLES = ("title",)
_TEXTS = ("text", "abstract", "sentence", "body", "sentence1", "sentence2")
_LABELS = ("label", "labels", "gold_label")
_LICENCES = ("licence", "license", "lic")


def read(source: Source, *, tally: Tally, encoding: str = "utf-8") -> Iterator[Document]:
    """A document a line: Lexome's own form, or an object with a text (and id, title, abstract, label)."""
    for number, raw in source.lines():
        if not raw.strip():
            continue
        doc = tally.attempt(
            partial(_document, raw, f"{source.stem}-{number}", encoding, tally),
            where=f"{source.name}, line {number}",
            raw=raw,
        )
        if doc is not None:
            yield doc


def write(docs: Iterable[Document], stream: BinaryIO, *, tally: Tally) -> None:
    """Each document as one JSON object on one line, fields that are empty left out."""
    for doc in docs:
        stream.write(to_json(doc) + b"\n")
        tally.written += 1


def to_json(doc: Document) -> bytes:
    """The document as JSON; from_json gives it back exactly."""
    raw: bytes = _adapter().dump_json(doc, exclude_defaults=True)
    return raw


def from_json(raw: bytes | str) -> Document:
    """The document in Lexome's own JSON; BadDocument says which field is wrong."""
    return validated(_adapter().validate_json, raw)


def validated(validate: Callable[..., Any], value: object) -> Document:
    """What pydantic makes of a value, its complaint turned into a BadDocument."""
    from pydantic import ValidationError

    try:
        doc: Document = validate(value, extra="forbid")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        cause = first.get("ctx", {}).get("error")
        if isinstance(cause, DocumentError):
            raise cause from None
        field = ".".join(str(step) for step in first["loc"]) or "the line"
        raise BadDocument("bad_field", f"{field}: {first['msg']}; expected a Lexome document") from None
    return doc


@cache
def _adapter() -> Any:
    """pydantic's validator of Document, made on first use: it takes a tenth of a second to import."""
    from pydantic import TypeAdapter

    return TypeAdapter(Document)


def _document(raw: bytes, name: str, encoding: str, tally: Tally) -> Document:
    text = decode(raw, encoding)
    # Lexome's own lines begin with the id and hold passages, or are documents without text.
    if '"passages":[{' in text or not any(f'"{field}"' in text for field in (*_TITLES, *_TEXTS)):
        return from_json(text)
    try:
        record = json.loads(text)
    except ValueError as error:
        raise BadDocument("malformed_json", f"{error}; expected one JSON object a line") from None
    return _foreign(record, name, tally)


def _foreign(record: dict[str, Any], name: str, tally: Tally) -> Document:
    """A document from an object of fields whose meaning is known; the others are noted."""
    texts = [
        ("title" if key in _TITLES else "abstract" if key == "abstract" else "paragraph", str(record[key]))
        for key in (*_TITLES, *_TEXTS)
        if isinstance(record.get(key), str) and record[key]
    ]
    if not texts:
        raise BadDocument("no_text", f"no text in the fields {', '.join(record)}; expected one of {', '.join(_TEXTS)}")
    known = {*_IDS, *_TITLES, *_TEXTS, *_LABELS, *_LICENCES}
    for key in record.keys() - known:
        tally.note(f"field {key!r} ignored")
    labels = next((record[key] for key in _LABELS if record.get(key) is not None), ())
    return Document(
        next((str(record[key]) for key in _IDS if record.get(key) is not None), name),
        place(texts),
        labels=tuple(map(str, labels)) if isinstance(labels, list | tuple) else (str(labels),),
        meta=Metadata(
            pmid=_text_of(record, "pmid"),
            pmcid=_text_of(record, "pmcid"),
            doi=_text_of(record, "doi"),
            licence=next((str(record[key]) for key in _LICENCES if record.get(key)), None),
        ),
    )


def _text_of(record: dict[str, Any], key: str) -> str | None:
    return str(record[key]) if record.get(key) is not None else None
