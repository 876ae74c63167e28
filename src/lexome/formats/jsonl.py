"""JSON Lines, or a JSON array: Lexome's own lossless form, and plain records with a text field."""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, BinaryIO

from lexome.document import Document, lay_out
from lexome.errors import BadDocument, DocumentError
from lexome.formats.citation import plain_pmid
from lexome.formats.json_file import accept, elements, mapping, note_unknown, parse, record_id, string, strings
from lexome.formats.streams import Source, decode, is_json_array
from lexome.formats.tally import Tally
from lexome.metadata import Metadata

if TYPE_CHECKING:
    from pydantic import ValidationError

# The fields of plain records that are read, by what they become.
_IDS = ("id", "pmid", "pmcid", "_id", "doi", "guid", "pairID", "index")
_KINDS = {
    "title": "title", "text": "paragraph", "abstract": "abstract", "sentence": "sentence", "body": "paragraph",
    "sentence1": "sentence", "sentence2": "sentence",
}  # fmt: skip
_LABELS = ("label", "labels", "gold_label")
_LICENSES = ("license", "licence", "lic")
_WHOLE = frozenset((*_IDS, "year"))
RECORD_TEXTS = frozenset(_KINDS)
RECORD_FIELDS = RECORD_TEXTS.union(_IDS, _LABELS, _LICENSES, ("source", "year"))

_FIELD_BY_LOWER_CASE = {field.lower(): field for field in RECORD_FIELDS}

_DATE = re.compile(r"\d{4}(?:-\d\d(?:-\d\d)?)?")
_OWN_FIELDS = frozenset(field.name for field in fields(Document))


def read(source: Source, *, tally: Tally, encoding: str = "utf-8") -> Iterator[Document]:
    """One document per line: Lexome's own form, or an object with a text (and id, title, abstract, label).

    Also one per element of a JSON array; one element is in memory at a time.
    """
    if is_json_array(source.head()):
        for number, element in enumerate(elements(source, encoding), 1):
            make = partial(_of_element, element, f"{source.stem}-{number}", tally)
            where = f"{source.name}, record {number}"
            yield from accept(tally, make, element, where=where, id=partial(_record_id, element))
        return
    for number, raw in source.lines(tally):
        if not raw.strip():
            continue
        yield from tally.accept(
            partial(_document, raw, f"{source.stem}-{number}", encoding, tally),
            where=f"{source.name}, line {number}",
            id=partial(line_id, raw, encoding),
            raw=raw,
        )


def write(docs: Iterable[Document], stream: BinaryIO, *, tally: Tally) -> None:
    """One JSON object per line, with the same keys on every line."""
    for raw in tally.convert(docs, partial(to_json, all_keys=True)):
        stream.write(raw + b"\n")


def to_json(doc: Document, *, all_keys: bool = False) -> bytes:
    """The document as JSON; from_json restores it exactly.

    Keys that have their default value are left out, unless `all_keys` is set, as in files and responses.
    """
    from pydantic_core import PydanticSerializationError

    try:
        raw: bytes = adapter_of(Document).dump_json(doc, exclude_defaults=not all_keys)
    except PydanticSerializationError as error:
        raise BadDocument("not_unicode", f"{error}; expected valid Unicode") from None
    return raw


def from_json(raw: bytes | str) -> Document:
    """The document from Lexome's own JSON; BadDocument names the invalid field."""
    from pydantic import ValidationError

    try:
        doc: Document = adapter_of(Document).validate_json(raw, strict=True, extra="forbid")
    except ValidationError as error:
        kind, field, problem = first_problem(error, "the line")
        raise BadDocument(
            "malformed_json" if kind == "json_invalid" else "bad_field",
            f"{field}: {problem}; expected a Lexome document. If it has another format, name it with --from.",
            value=field,
        ) from None
    return doc


@cache
def adapter_of(kind: Any) -> Any:
    """pydantic's validator of a class, created on first use: importing pydantic takes 0.1 s."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def first_problem(error: "ValidationError", whole: str) -> tuple[str, str, str]:
    """The kind, the field (`whole` if it is not in one) and the message of what pydantic found first.

    A DocumentError of the document model is raised as it is.
    """
    first = error.errors(include_url=False)[0]
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, DocumentError):
        raise cause from None
    return first["type"], ".".join(map(str, first["loc"])) or whole, first["msg"]


def record_field(name: str) -> str:
    """The field of records with this name in any case, as in tables; another name as it is."""
    return name if name in RECORD_FIELDS else _FIELD_BY_LOWER_CASE.get(name.lower(), name)


def from_record(record: Mapping[str, Any], name: str, tally: Tally) -> Document:
    """A document from a record of known fields; unknown fields are noted. `name` is the id of a record without one."""
    record = _known_fields(record)
    passages = lay_out((kind, text) for key, kind in _KINDS.items() for text in _texts(record, key) if text)
    if not passages:
        if empty := [key for key in _KINDS if key in record]:
            problem = f"{' and '.join(map(repr, empty))} {'are' if len(empty) > 1 else 'is'} empty; expected text"
        else:
            names = ", ".join(map(repr, record)) or "none"
            problem = f"the record has no text in one of {', '.join(_KINDS)}; its fields are {names}"
        raise BadDocument("no_text", problem)
    note_unknown(record, RECORD_FIELDS, tally)
    year = string(record, "year")
    if year and not _DATE.fullmatch(year):
        tally.note("field 'year' ignored: not a year")
        year = None
    if source := string(record, "source"):
        passages = tuple(replace(passage, source=source) for passage in passages)
    return Document(
        next((text for key in _IDS if (text := string(record, key))), name),
        passages,
        labels=_labels(record, tally),
        meta=Metadata(
            pmid=string(record, "pmid"),
            pmcid=string(record, "pmcid"),
            doi=string(record, "doi"),
            published=year or None,
            license=next((text for key in _LICENSES if (text := string(record, key))), None),
        ),
    )


def _document(raw: bytes, name: str, encoding: str, tally: Tally) -> Document:
    text = decode(raw, encoding)
    # to_json writes this key sequence for every document with text; inside a JSON string its quotes would be escaped.
    if '"passages":[{"offset":' in text:
        return from_json(text)
    try:
        record = mapping(parse(text), "the line")
    except (ValueError, RecursionError) as error:
        raise BadDocument("malformed_json", f"{error}; expected one JSON object per line") from None
    return from_json(text) if _is_own(record) else from_record(record, name, tally)


def line_id(raw: bytes, encoding: str) -> str | None:
    """The id of a record that may be bad, from its JSON."""
    with suppress(ValueError, RecursionError):
        return _record_id(parse(decode(raw, encoding)))
    return None


def _record_id(record: object) -> str | None:
    return record_id(_known_fields(record), _IDS) if isinstance(record, dict) else None


def _of_element(element: object, name: str, tally: Tally) -> Document:
    record = mapping(element, "the element")
    return from_json(json.dumps(record)) if _is_own(record) else from_record(record, name, tally)


def _is_own(record: Mapping[str, Any]) -> bool:
    return "passages" in record or record.keys() <= _OWN_FIELDS


def _known_fields(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record with known names, without missing values, and with whole numbers as ids.

    pandas writes NaN for a missing value, and in a column with one, 12345.0 for 12345.
    """
    known = dict[str, Any]()
    for key, value in record.items():
        if isinstance(value, float) and math.isnan(value):
            continue
        field = record_field(key)
        if field != key and (field in record or field in known):
            field = key
        if field in _WHOLE and isinstance(value, float) and value.is_integer():
            value = int(value)
        known[field] = plain_pmid(value) if field == "pmid" and isinstance(value, str) else value
    return known


def _texts(record: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """The texts in a field; BadDocument for a number, which is most often a label or an id in the wrong column."""
    value = record.get(key)
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, int | float) and not isinstance(item, bool):
            message = f"the field {key!r} is the number {item}; expected a text, in quotes"
            raise BadDocument("bad_field", message, value=key)
    return strings(record, key)


def _labels(record: Mapping[str, Any], tally: Tally) -> tuple[str, ...]:
    """The labels of the first non-empty label field; other label fields, and numbers of classes, are noted."""
    filled = [key for key in _LABELS if record.get(key) not in (None, "", [])]
    for key in filled[1:]:
        tally.note(f"field {key!r} ignored")
    if not filled:
        return ()
    key, value = filled[0], record[filled[0]]
    labels = value if isinstance(value, list | tuple) else [value]
    if any(type(label) is int for label in labels):
        tally.note("label that is a number: its digits are the label")
    # Booleans become "true" and "false".
    return strings({key: [json.dumps(label) if isinstance(label, bool) else label for label in labels]}, key)
