"""DDI 2013 XML: sentences, drug mentions and drug-drug interactions.

Each sentence is a passage, one character apart, with the sentence's id as `source`. Each pair is a relation with
the roles e1 and e2: DDI-effect, DDI-mechanism, DDI-advise or DDI-int, DDI-true if the corpus gives no type, and
DDI-false for pairs that do not interact.
"""

import re
from collections.abc import Iterator
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

from lexome.document import Argument, Document, Passage, Relation, Span, shorten
from lexome.errors import BadDocument
from lexome.formats.streams import Source
from lexome.formats.tally import Tally, repair_spans
from lexome.formats.xml import Record, records

if TYPE_CHECKING:
    from lxml import etree

_OFFSETS = re.compile(r"[0-9]{1,9}-[0-9]{1,9}(?:;[0-9]{1,9}-[0-9]{1,9})*;?")
_KNOWN = {
    "document": {"id"},
    "sentence": {"id", "text"},
    "entity": {"id", "charOffset", "type", "text"},
    "pair": {"id", "e1", "e2", "ddi", "type"},
}


_ID = re.compile(rb'<document\b[^>]*?\bid="([^"]+)"')


def read(source: Source, *, tally: Tally, offsets: Literal["strict", "repair"] = "strict") -> Iterator[Document]:
    """One document per `<document>`, with the ids, entities and pairs of the file."""
    for record in records(source, ("document",)):
        yield from tally.accept(
            partial(_document, record, offsets == "repair", tally),
            where=f"{source.name}, line {record.line}",
            id=match[1].decode(errors="replace") if (match := _ID.search(record.raw)) is not None else None,
            raw=record.raw,
        )


def _document(record: Record, repair: bool, tally: Tally) -> Document:
    root = record.parse()
    _note_unknown(root, tally)
    passages: list[Passage] = []
    spans: list[Span] = []
    relations: list[Relation] = []
    offset = 0
    for sentence in root.iterchildren("sentence"):
        passage = Passage(offset, _required(sentence, "text"), "sentence", source=sentence.get("id"))
        passages.append(passage)
        spans += (_entity(entity, passage, tally) for entity in sentence.iterchildren("entity"))
        relations += (_pair(pair) for pair in sentence.iterchildren("pair"))
        offset = passage.end + 1
    if repair:
        repaired = repair_spans(passages, spans, relations, tally=tally)
        return Document(_required(root, "id"), tuple(passages), *repaired)
    return Document(_required(root, "id"), tuple(passages), tuple(spans), tuple(relations))


def _entity(entity: "etree._Element", passage: Passage, tally: Tally) -> Span:
    offsets = _required(entity, "charOffset")
    if _OFFSETS.fullmatch(offsets) is None:
        message = f"charOffset is {shorten(offsets)!r}; expected first and last characters, such as 0-5;16-22."
        raise BadDocument("bad_offset", message, value=offsets)
    ranges = (part.split("-") for part in offsets.rstrip(";").split(";"))
    parts = tuple((passage.offset + int(first), passage.offset + int(last) + 1) for first, last in ranges)
    text = _required(entity, "text")
    sizes = [end - start for start, end in parts]
    if len(parts) > 1 and len(text) == sum(sizes):
        tally.note("space added between the parts of a mention")
        ends = accumulate(sizes)
        text = " ".join(text[end - size : end] for end, size in zip(ends, sizes, strict=True))
    return Span(_required(entity, "id"), _required(entity, "type"), parts, text)


def _pair(pair: "etree._Element") -> Relation:
    interacts = _required(pair, "ddi")
    if interacts not in ("true", "false"):
        raise BadDocument("bad_field", f"a pair has ddi={shorten(interacts)!r}; expected true or false.", value="ddi")
    type = (pair.get("type") or "true") if interacts == "true" else "false"
    arguments = tuple(Argument(role, _required(pair, role)) for role in ("e1", "e2"))
    return Relation(_required(pair, "id"), f"DDI-{type}", arguments)


def _required(element: "etree._Element", name: str) -> str:
    value = element.get(name)
    if value is None:
        raise BadDocument("missing_field", f"a <{element.tag!s}> has no attribute {name!r}.", value=name)
    return str(value)


def _note_unknown(root: "etree._Element", tally: Tally) -> None:
    """Count elements and attributes that a Document cannot represent."""
    for element in root.iter():
        known = _KNOWN.get(str(element.tag))
        if known is None:
            tally.note("unknown element ignored")
        elif not known.issuperset(element.keys()):
            tally.note("unknown attribute ignored")
        if element.text and not element.text.isspace():
            tally.note("text outside sentences ignored")
