"""DDI 2013 XML: documents of sentences, the drugs in them and which of them interact.

A document's sentences are its passages, a character apart, with the sentence's id as `source`. Each pair
is a relation with the roles e1 and e2: DDI-effect, DDI-mechanism, DDI-advise or DDI-int, DDI-true where
the corpus gives no type, and DDI-false for the pairs that do not interact.
"""

import re
from collections.abc import Iterator
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Literal

from lexome.document import Argument, Document, Passage, Range, Relation, Span, shorten
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


def read(source: Source, *, tally: Tally, offsets: Literal["strict", "repair"] = "strict") -> Iterator[Document]:
    """A document for each `<document>`, its ids, entities and pairs as they are in the file."""
    for record in records(source, ("document",)):
        doc = tally.attempt(
            partial(_document, record, offsets == "repair", tally),
            where=f"{source.name}, line {record.line}",
            raw=record.raw,
        )
        if doc is not None:
            yield doc


def _document(record: Record, repair: bool, tally: Tally) -> Document:
    root = record.parse()
    _note_unknown(root, tally)
    passages: list[Passage] = []
    spans: list[Span] = []
    relations: list[Relation] = []
    at = 0
    for sentence in root.iterchildren("sentence"):
        passage = Passage(at, _wanted(sentence, "text"), "sentence", source=sentence.get("id"))
        passages.append(passage)
        spans += (_entity(entity, passage, tally) for entity in sentence.iterchildren("entity"))
        relations += (_pair(pair) for pair in sentence.iterchildren("pair"))
        at = passage.end + 1
    found, related = tuple(spans), tuple(relations)
    if repair:
        found, related, _ = repair_spans(passages, found, related, tally=tally)
    return Document(_wanted(root, "id"), tuple(passages), found, related)


def _entity(entity: "etree._Element", passage: Passage, tally: Tally) -> Span:
    given = _wanted(entity, "charOffset")
    if _OFFSETS.fullmatch(given) is None:
        raise BadDocument(
            "bad_offset", f"charOffset is {shorten(given)!r}; expected first and last character, as in 0-5;16-22."
        )
    parts = tuple(_range(part, passage.offset) for part in given.rstrip(";").split(";"))
    text = _wanted(entity, "text")
    sizes = [end - start for start, end in parts]
    if len(parts) > 1 and len(text) == sum(sizes):
        tally.note("space added between the parts of a mention")
        ends = accumulate(sizes)
        text = " ".join(text[end - size : end] for end, size in zip(ends, sizes, strict=True))
    return Span(_wanted(entity, "id"), _wanted(entity, "type"), parts, text)


def _range(part: str, offset: int) -> Range:
    first, _, last = part.partition("-")
    return offset + int(first), offset + int(last) + 1


def _pair(pair: "etree._Element") -> Relation:
    interacts = _wanted(pair, "ddi")
    if interacts not in ("true", "false"):
        raise BadDocument("bad_field", f"a pair has ddi={shorten(interacts)!r}; expected true or false.")
    type = (pair.get("type") or "true") if interacts == "true" else "false"
    ends = tuple(Argument(role, _wanted(pair, role)) for role in ("e1", "e2"))
    return Relation(_wanted(pair, "id"), f"DDI-{type}", ends)


def _wanted(element: "etree._Element", name: str) -> str:
    value = element.get(name)
    if value is None:
        raise BadDocument("missing_field", f"a <{element.tag!s}> has no {name}; expected one. Mend the record.")
    return str(value)


def _note_unknown(root: "etree._Element", tally: Tally) -> None:
    """Count elements and attributes that have no place in a Document."""
    for element in root.iter():
        known = _KNOWN.get(str(element.tag))
        if known is None:
            tally.note("element of an unknown kind ignored")
        elif not known.issuperset(element.keys()):
            tally.note("attribute of an unknown kind ignored")
        if element.text and not element.text.isspace():
            tally.note("text outside of sentences ignored")
