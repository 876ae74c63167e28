"""JSON lines: Lexome's own documents, complete and exact, and the plain records that others write."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from functools import cache, partial
from typing import Any, BinaryIO

from lexome.document import Document, Passage, lay_out
from lexome.errors import BadDocument, DocumentError
from lexome.formats.json_file import mapping, note_unknown_fields, string, strings
from lexome.formats.streams import Source, decode
from lexome.formats.tally import Tally
from lexome.metadata import Metadata

# The fields of foreign records that are read, by what they become.
_IDS = ("id", "pmid", "pmcid", "_id", "doi", "guid", "pairID", "index")
_KINDS = {
    "title": "title",
    "text": "paragraph",
    "abstract": "abstract",
    "sentence": "sentence",
    "body": "paragraph",
    "sentence1": "sentence",
    "sentence2": "sentence",
}
_LABELS = ("label", "labels", "gold_label")
_LICENCES = ("licence", "license", "lic")
RECORD_TEXTS = frozenset(_KINDS)
RECORD_FIELDS = RECORD_TEXTS.union(_IDS, _LABELS, _LICENCES, ("source", "year"))

_DATE = re.compile(r"\d{4}(?:-\d\d(?:-\d\d)?)?")
_OWN_FIELDS = frozenset(field.name for field in fields(Document))


def read(source: Source, *, tally: Tally, encoding: str = "utf-8") -> Iterator[Document]:
    """A document a line: Lexome's own form, or an object with a text (and id, title, abstract, label)."""
    for number, raw in source.lines(tally):
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
        raw = tally.attempt(partial(to_json, doc), where=f"document {doc.id!r}", id=doc.id)
        if raw is not None:
            stream.write(raw + b"\n")
            tally.written += 1


def to_json(doc: Document) -> bytes:
    """The document as JSON; from_json gives it back exactly."""
    from pydantic_core import PydanticSerializationError

    try:
        raw: bytes = _adapter().dump_json(doc, exclude_defaults=True)
    except PydanticSerializationError as error:
        raise BadDocument("not_unicode", f"{error}; expected whole Unicode characters") from None
    return raw


def from_json(raw: bytes | str) -> Document:
    """The document in Lexome's own JSON; BadDocument says which field is wrong."""
    from pydantic import ValidationError

    try:
        doc: Document = _adapter().validate_json(raw, strict=True, extra="forbid")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        cause = first.get("ctx", {}).get("error")
        if isinstance(cause, DocumentError):
            raise cause from None
        field = ".".join(str(step) for step in first["loc"]) or "the line"
        raise BadDocument(
            "malformed_json" if first["type"] == "json_invalid" else "bad_field",
            f"{field}: {first['msg']}; expected a Lexome document. If it is of another format, name that with --from.",
        ) from None
    return doc


def from_record(record: dict[str, Any], name: str, tally: Tally) -> Document:
    """A document from an object of fields whose meaning is known; the others are noted.

    Its id is the record's own, or `name` where it has none.
    """
    passages = lay_out((kind, text) for key, kind in _KINDS.items() for text in strings(record, key) if text)
    if not passages:
        seen = ", ".join(map(repr, record)) or "no fields"
        raise BadDocument("no_text", f"no text in {seen}; expected one in {', '.join(_KINDS)}")
    note_unknown_fields(record, RECORD_FIELDS, tally)
    year = string(record, "year")
    if year and not _DATE.fullmatch(year):
        tally.note("field 'year' ignored: it is no year")
        year = None
    return Document(
        next((text for key in _IDS if (text := string(record, key))), name),
        _from(passages, string(record, "source")),
        labels=_labels(record, tally),
        meta=Metadata(
            pmid=string(record, "pmid"),
            pmcid=string(record, "pmcid"),
            doi=string(record, "doi"),
            published=year or None,
            licence=next((text for key in _LICENCES if (text := string(record, key))), None),
        ),
    )


@cache
def _adapter() -> Any:
    """pydantic's validator of Document, made on first use: it takes a tenth of a second to import."""
    from pydantic import TypeAdapter

    return TypeAdapter(Document)


def _document(raw: bytes, name: str, encoding: str, tally: Tally) -> Document:
    text = decode(raw, encoding)
    # What to_json writes for a document with text holds these words; in a foreign text the quotes would be escaped.
    if '"passages":[{"offset":' in text:
        return from_json(text)
    try:
        record = mapping(json.loads(text), "the line")
    except (ValueError, RecursionError) as error:
        raise BadDocument("malformed_json", f"{error}; expected one JSON object a line") from None
    if "passages" in record or record.keys() <= _OWN_FIELDS:
        return from_json(text)
    return from_record(record, name, tally)


def _from(passages: tuple[Passage, ...], source: str | None) -> tuple[Passage, ...]:
    return tuple(replace(passage, source=source) for passage in passages) if source else passages


def _labels(record: dict[str, Any], tally: Tally) -> tuple[str, ...]:
    """The first field of labels that is filled; another one is noted."""
    filled = [key for key in _LABELS if record.get(key) not in (None, "", [])]
    for key in filled[1:]:
        tally.note(f"field {key!r} ignored")
    if not filled:
        return ()
    value = record[filled[0]]
    given = value if isinstance(value, list | tuple) else [value]
    # JSON's own words for true and false; a label of text or a number is itself.
    named = [json.dumps(label) if isinstance(label, bool) else label for label in given]
    return strings({filled[0]: named}, filled[0])
