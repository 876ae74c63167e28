"""BioC XML: streaming reader and writer."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from lxml import etree

from lexome.document import Document
from lexome.errors import BadDocument
from lexome.formats.bioc import RecordDict, read_document, record_of
from lexome.formats.concept_ids import is_concept_infon
from lexome.formats.streams import Source
from lexome.formats.tally import Offsets, Tally
from lexome.formats.xml import records

_HEADER = ("source", "date", "key", "infon")
_HEADER_TEXT = re.compile(rb"<(source|date|key|infon)\b[^<>]*>([^<>]*)</")
_ID = re.compile(rb"<id>\s*([^<]*?)\s*</id>")

# The characters that XML 1.0 cannot represent, not even as references.
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
_BEGIN = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE collection SYSTEM "BioC.dtd">\n'
    b"<collection><source>Lexome</source><date></date><key>lexome.key</key>\n"
)
_END = b"</collection>\n"
_OUR_HEADER = (b"Lexome", b"lexome.key")

# Elements, and the name of their list in BioC JSON.
_INNER = {"passage": "passages", "sentence": "sentences", "annotation": "annotations", "relation": "relations"}
_LEAVES = {"location": "locations", "node": "nodes"}


def read(source: Source, *, tally: Tally, offsets: Offsets = "keep") -> Iterator[Document]:
    """One document per `<document>`."""
    # The header fields of the collection, which documents cannot represent, are only counted.
    for tag, text in _HEADER_TEXT.findall(source.head().partition(b"<document>")[0]):
        if text.strip() and text not in _OUR_HEADER:
            tally.note(f"<{tag.decode()}> of the collection ignored")
    for record in records(source, ("document",), header=_HEADER):
        try:
            doc = read_document(_to_record(record.parse(), tally), offsets=offsets, tally=tally)
        except BadDocument as error:
            match = _ID.search(record.raw)
            id_ = match[1].decode(errors="replace") if match is not None else None
            tally.reject(error, where=f"{source.name}, line {record.line}", id=id_, raw=record.raw)
        else:
            yield doc


def write(docs: Iterable[Document], stream: BinaryIO, *, tally: Tally) -> None:
    """One collection, with one document per line; `read` restores the documents exactly.

    A document with a character that XML cannot represent is rejected.
    """
    stream.write(_BEGIN)
    for raw in tally.convert(docs, _document_bytes):
        stream.write(raw)
    stream.write(_END)


def can_represent(text: str) -> bool:
    """True if XML can represent every character of the text."""
    return _NOT_XML.search(text) is None


def _to_record(element: etree._Element, tally: Tally) -> dict[str, Any]:
    """An element and its children in the form of BioC JSON."""
    record: dict[str, Any] = {}
    if "id" in element.attrib:
        record["id"] = element.get("id")
    for child in element:
        tag = child.tag
        if tag == "infon":
            infons, key, text = record.setdefault("infons", {}), child.get("key") or "", _content(child, tally)
            if key not in infons:
                infons[key] = text
            elif is_concept_infon(key):
                infons[key] += f";{text}"
            else:
                tally.note(f"second infon {key!r} ignored")
        elif tag in _INNER:
            record.setdefault(_INNER[tag], []).append(_to_record(child, tally))
        elif tag in _LEAVES:
            record.setdefault(_LEAVES[tag], []).append(dict(child.attrib))
        elif tag in ("id", "offset", "text"):
            record[tag] = _content(child, tally)
        else:
            tally.note(f"element {tag!r} ignored")
    return record


def _content(element: etree._Element, tally: Tally) -> str:
    if len(element):
        tally.note(f"markup inside {element.tag!r} ignored")
        return "".join(map(str, element.itertext()))
    return element.text or ""


def _document_bytes(doc: Document) -> bytes:
    record = record_of(doc)
    passages = "".join(piece for passage in record["passages"] for piece in _passage(passage))
    text = (
        f"<document><id>{_escape(record['id'])}</id>{_infons(record)}{passages}"
        f"{''.join(map(_relation, record['relations']))}</document>\n"
    )
    if _NOT_XML.search(text):
        raise _not_xml(record)
    return text.encode()


def _passage(record: RecordDict) -> Iterator[str]:
    yield f"<passage>{_infons(record)}<offset>{record['offset']}</offset>"
    if not record["sentences"]:
        yield f"<text>{_escape(record['text'])}</text>"
    for sentence in record["sentences"]:
        yield f"<sentence><offset>{sentence['offset']}</offset><text>{_escape(sentence['text'])}</text>"
        yield from map(_annotation, sentence["annotations"])
        yield "</sentence>"
    yield from map(_annotation, record["annotations"])
    yield "</passage>"


def _escape(text: str) -> str:
    """The text as element content. A bare carriage return would be read as a line feed."""
    if text.isalnum():  # as most ids and names are
        return text
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("\r", "&#13;") if "\r" in text else text


def _escape_attribute(text: str) -> str:
    """The text as an attribute value, in which bare white space would be read as spaces."""
    if text.isalnum():
        return text
    return _escape(text).replace('"', "&quot;").replace("\t", "&#9;").replace("\n", "&#10;")


def _infons(record: RecordDict) -> str:
    return "".join([f'<infon key="{key}">{_escape(value)}</infon>' for key, value in record["infons"].items()])


def _annotation(record: RecordDict) -> str:
    places = "".join(
        [f'<location offset="{place["offset"]}" length="{place["length"]}"/>' for place in record["locations"]]
    )
    return (
        f'<annotation id="{_escape_attribute(record["id"])}">{_infons(record)}{places}'
        f"<text>{_escape(record['text'])}</text></annotation>"
    )


def _relation(record: RecordDict) -> str:
    nodes = "".join(
        f'<node refid="{_escape_attribute(node["refid"])}" role="{_escape_attribute(node["role"])}"/>'
        for node in record["nodes"]
    )
    return f'<relation id="{_escape_attribute(record["id"])}">{_infons(record)}{nodes}</relation>'


def _not_xml(record: RecordDict) -> BadDocument:
    """The error for a character that XML cannot represent, with its location."""
    for place, text in _strings(record, "the document"):
        match = _NOT_XML.search(text)
        if match is not None:
            return BadDocument(
                "not_xml_text",
                f"{place} has the character U+{ord(match[0]):04X} at {match.start()}, which XML cannot represent. "
                "Remove it, or write bioc-json.",
                value=match[0],
            )
    raise AssertionError("the character is in one of the strings")


def _strings(value: object, place: str) -> Iterator[tuple[str, str]]:
    """Every string of a record, with a description of its location."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, list):
        for number, item in enumerate(value, 1):
            yield from _strings(item, f"{place} {number}")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _strings(item, f"{place}, {key}")
