"""PubTator text: a title and an abstract per document, its mentions, and relations between concepts.

    9000001|t|Aspirin and ulcers
    9000001|a|Aspirin may cause ulcers.
    9000001	0	7	Aspirin	Chemical	MESH:D001241
    9000001	CID	MESH:D001241	MESH:D014456

Offsets count the title, one separator, then the abstract. Mentions become T1, T2, ... in file order and relations
R1, R2, ...; the individual mentions that BC5CDR adds to a composite mention become its attribute IndividualMentions.
`lexome.formats.concept_ids` converts ids. The roles of a relation's arguments are the types of their concepts'
mentions if these are two different types, otherwise Arg1 and Arg2.

If consecutive blocks have the same id, as the passages of NLM-Chem's articles do, the second becomes 9000001-2 and
so on, with part_of 9000001. A following block whose own id is 9000001-2 becomes 9000001-2-2. Only the last such
sequence is remembered, so that memory does not grow with the file.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import BinaryIO

from lexome.document import NO_METADATA, Attribute, Document, Passage, Relation, Span, encode_utf8, lay_out, shorten
from lexome.errors import BadDocument
from lexome.formats.concept_ids import (
    NOVELTY,
    NOVELTY_VALUES,
    arguments_from_sides,
    parse_sides,
    read_ids,
    relation_fields,
    types_by_concept,
    write_ids,
)
from lexome.formats.streams import Source, decode, too_large
from lexome.formats.tally import PASSAGE_DETAILS, Offsets, Tally, note_losses, settle
from lexome.metadata import Metadata

INDIVIDUAL_MENTIONS = "IndividualMentions"

# What a line adds to the size besides its bytes: a mention takes more memory than its line.
_LINE_BYTES = 64

# No article has a wider gap between passages; filling it would only fill the disk.
_MAX_GAP = 1_000_000

# Supported in part; losses are noted where they occur.
_NOTED_ELSEWHERE = PASSAGE_DETAILS | {"relations", "attributes", "metadata", "concepts", "relation novelty"}
_ID = re.compile(r"[^|\t\r\n]+")
_LINE_BREAK = re.compile(r"[\r\n]")
_COLUMN = re.compile(r"[^\t\r\n]*")
_TEXT = re.compile(r"([^|\t]+)\|([a-z])\|(.*)", re.DOTALL)
_TITLE = re.compile(rb"[^|\t]+\|t\|")
_KINDS = {"t": "title", "a": "abstract"}


def read(source: Source, *, tally: Tally, offsets: Offsets = "keep", encoding: str = "utf-8") -> Iterator[Document]:
    """One document per block of lines; blocks are separated by blank lines.

    Spaces at the end of a title line are removed if the offsets of the mentions do not count them.
    """
    for block in _blocks(source):
        doc = tally.attempt(
            partial(_document, block, offsets, encoding, tally),
            where=f"{source.name}, line {block.line}",
            id=block.name(block.id.decode(errors="replace")),
            raw=b"\n".join(block.lines),
        )
        if doc is not None:
            if block.number > 1:
                tally.note("repeated id numbered")
            yield doc


@dataclass(frozen=True, slots=True)
class _Block:
    """The lines of one document, its first line number, and its number among blocks of the same id."""

    id: bytes
    number: int
    line: int
    lines: list[bytes]

    def name(self, id_: str) -> str:
        """The document's id, from its id in the file."""
        return id_ if self.number == 1 else f"{id_}-{self.number}"


@dataclass(slots=True)
class _BlockContent:
    texts: list[tuple[str, str]]
    mentions: list[tuple[int, int, list[str]]]
    relations: list[list[str]]


def _blocks(source: Source) -> Iterator[_Block]:
    """The blocks of the file; consecutive ones of the same id are numbered."""
    last, number = b"", 0
    generated = (b"", 0)  # the last id that was numbered, and how far
    for line, lines in _groups(source):
        id_ = lines[0].partition(b"|")[0].partition(b"\t")[0]
        if id_ == last:
            number += 1
            generated = (id_, number)
        else:
            number = 2 if _was_generated(id_, *generated) else 1
        last = id_
        yield _Block(id_, number, line, lines)


def _was_generated(id_: bytes, base: bytes, maximum: int) -> bool:
    """Whether a block of the id `base`, numbered up to `maximum`, already has this id."""
    start, _, number = id_.rpartition(b"-")
    if start != base or not number.isdigit() or number[:1] == b"0" or len(number) >= 12:
        return False
    return 2 <= int(number) <= maximum


def _groups(source: Source) -> Iterator[tuple[int, list[bytes]]]:
    """Lines between blank ones with the first one's number; a title begins a group even without a blank before it."""
    lines: list[bytes] = []
    size = first_line = 0
    for number, line in source.lines():
        blank = not line.strip()
        if lines and (blank or _TITLE.match(line)):
            yield first_line, lines
            lines, size = [], 0
        if blank:
            continue
        first_line = first_line if lines else number
        lines.append(line)
        size += len(line) + _LINE_BYTES
        if size > source.record_bytes:
            what, advice = f"the block at line {first_line}", "Check that blank lines separate the documents."
            raise too_large(source.name, what, advice, limit=source.record_bytes, value=first_line)
    if lines:
        yield first_line, lines


def _document(block: _Block, offsets: Offsets, encoding: str, tally: Tally) -> Document:
    id_ = decode(block.id, encoding)
    content = _content(block, id_, encoding, offsets, tally)
    texts = _trim_titles(content, tally)
    for tag, _ in texts:
        if tag not in _KINDS:
            tally.note(f"text marked |{tag}| read as a paragraph")
    passages = tuple(
        passage for passage in lay_out((_KINDS.get(tag, "paragraph"), text) for tag, text in texts) if passage.text
    )
    spans, attributes = _spans(content, offsets, tally)
    relations = _relations(content, spans, tally)
    meta = Metadata(part_of=id_) if block.number > 1 else NO_METADATA
    make = partial(Document, block.name(id_), passages, meta=meta)
    return settle(make, passages, spans, relations, attributes, offsets=offsets, tally=tally)


def _content(block: _Block, id_: str, encoding: str, offsets: Offsets, tally: Tally) -> _BlockContent:
    content = _BlockContent([], [], [])
    for number, raw in enumerate(block.lines, block.line):
        line = decode(raw, encoding)
        text = _TEXT.fullmatch(line)
        if text is not None:
            name = text[1]
            content.texts.append((text[2], text[3]))
        else:
            if offsets == "keep" and _is_bad_annotation(line, id_):
                tally.note("line of an annotation dropped: it is malformed")
                continue
            name = _columns(line, number, content)
        if name != id_:
            raise BadDocument(
                "mixed_ids",
                f"line {number} has the id {shorten(name)!r} in the block of {shorten(id_)!r}; expected one document "
                "per block. Put a blank line between them.",
                value=name,
            )
    if not content.texts:
        raise BadDocument("no_text", f"the block has no line {id_}|t|...; expected a title and an abstract")
    return content


def _is_bad_annotation(line: str, id_: str) -> bool:
    """Whether a line is an annotation, by its id and number of columns, that has no type or no offsets."""
    columns = line.split("\t")
    if columns[0] != id_ or len(columns) < 4:
        return False
    numbers = _is_number(columns[1]), _is_number(columns[2])
    return (all(numbers) and (len(columns) < 5 or int(columns[1]) >= int(columns[2]))) or (
        len(columns) >= 5 and numbers[0] and not numbers[1]
    )


def _columns(line: str, number: int, content: _BlockContent) -> str:
    """Add a line of columns to the content; returns its id."""
    columns = line.split("\t")
    if len(columns) >= 5 and _is_number(columns[1]) and _is_number(columns[2]):
        start, end = int(columns[1]), int(columns[2])
        rest = line.split("\t", 3)[3]
        mention, after = rest[: end - start], rest[end - start :]
        # A mention may contain tabs; its length then says where it ends.
        tabbed = "\t" in mention and after.startswith("\t") and any(mention in text for _, text in content.texts)
        content.mentions.append((start, end, [mention, *after[1:].split("\t")] if tabbed else columns[3:]))
    elif len(columns) >= 4 and not _is_number(columns[1]):
        content.relations.append(columns[1:])
    else:
        raise BadDocument(
            "malformed_line",
            f"line {number} is {shorten(line)!r}; expected id|t|text, or tab-separated id, start, end, mention, type "
            "and ids, or id, relation and two ids",
            value=number,
        )
    return columns[0]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 12


def _trim_titles(content: _BlockContent, tally: Tally) -> list[tuple[str, str]]:
    """The texts, all but the last without trailing spaces if more mentions match then."""
    texts = content.texts
    trimmed = [(tag, text.rstrip(" ")) for tag, text in texts[:-1]] + texts[-1:]
    if trimmed == texts or _mismatches(texts, content) <= _mismatches(trimmed, content):
        return texts
    tally.note("trailing spaces of a title removed: offsets do not count them")
    return trimmed


def _mismatches(texts: list[tuple[str, str]], content: _BlockContent) -> int:
    full_text = "\n".join(text for _, text in texts)
    return sum(full_text[start:end] != columns[0] for start, end, columns in content.mentions)


def _spans(content: _BlockContent, offsets: Offsets, tally: Tally) -> tuple[tuple[Span, ...], tuple[Attribute, ...]]:
    spans: list[Span] = []
    attributes: list[Attribute] = []
    for number, (start, end, (mention, type_, *more)) in enumerate(content.mentions, 1):
        # An empty range cannot be a span; repair still searches for its mention.
        parts = ((start, max(end, start + 1) if offsets == "repair" else end),)
        concepts = read_ids(more[0], type_, tally) if more else ()
        spans.append(Span(f"T{number}", type_, parts, mention, concepts))
        if len(more) > 1 and more[1]:
            attributes.append(Attribute(f"A{len(attributes) + 1}", f"T{number}", INDIVIDUAL_MENTIONS, more[1]))
        if len(more) > 2:
            tally.note("column after the individual mentions ignored")
    return tuple(spans), tuple(attributes)


def _relations(content: _BlockContent, spans: tuple[Span, ...], tally: Tally) -> tuple[Relation, ...]:
    if not content.relations:
        return ()
    types = types_by_concept(spans)
    relations: list[Relation] = []
    for number, (type_, first, second, *more) in enumerate(content.relations, 1):
        sides = parse_sides(first, second, types)
        if not all(concepts for _, concepts in sides):
            tally.note("relation without an id on one side ignored")
            continue
        novel = NOVELTY_VALUES.get(more[0].strip().lower()) if more else None
        if len(more) > 1 or (more and novel is None):
            tally.note("column of a relation ignored")
        relations.append(Relation(f"R{number}", type_, arguments_from_sides(sides), novel))
    return tuple(relations)


def write(docs: Iterable[Document], stream: BinaryIO, *, tally: Tally) -> None:
    """Each document as a block: its first passage as title, the rest as abstract.

    Mentions keep their offsets: gaps between passages are filled with spaces, and line breaks become spaces. A
    discontinuous mention is written as its parts. What a block cannot represent is noted; a document that it cannot
    represent at all is rejected.
    """
    previous = ("", 0)
    for doc in docs:
        base, number = doc.meta.part_of, previous[1] + 1
        continued = base is not None and base == previous[0] and doc.id == f"{base}-{number}"
        previous = (previous[0], number) if continued else (doc.id, 1)
        raw = tally.attempt(partial(_block_of, doc, previous[0], tally), where=f"document {doc.id!r}", id=doc.id)
        if raw is not None:
            stream.write(raw)
            tally.written += 1


def _block_of(doc: Document, name: str, tally: Tally) -> bytes:
    """The block of a document under this name, with the blank line after it."""
    if not _ID.fullmatch(name) or name != name.strip() or name.startswith("\ufeff"):
        raise BadDocument(
            "bad_id",
            f"the id is {name!r}; expected a non-empty id without | and tabs that does not begin or end with a space. "
            "Give the document another id.",
            value=name,
        )
    title, abstract = _texts(doc, tally)
    lines = [f"{name}|t|{title}", f"{name}|a|{abstract}"]
    lines += (f"{name}\t{line}" for line in _mention_lines(doc, f"{title} {abstract}", tally))
    lines += (f"{name}\t{line}" for line in _relation_lines(doc, tally))
    _note_losses(doc, name, tally)
    return encode_utf8("\n".join(lines) + "\n\n")


def _texts(doc: Document, tally: Tally) -> tuple[str, str]:
    """Title and abstract, with every character of the passages at its offset."""
    passages = [passage for passage in doc.passages if passage.text]
    first = passages[:1]
    if first and first[0].offset and first[0].kind != "title":
        first = []  # the title is empty
    title = _join_passages(first, 0)
    abstract = _join_passages(passages[len(first) :], len(title) + 1)
    expected = tuple(
        Passage(offset, text, kind)
        for offset, text, kind in ((0, title, "title"), (len(title) + 1, abstract, "abstract"))
        if text
    )
    if expected != doc.passages:
        tally.note("passage kinds, gaps, sections and sentences not written")
    full_text = f"{title} {abstract}"
    if _LINE_BREAK.search(full_text):
        tally.note("line breaks in the text written as spaces")
        full_text = _LINE_BREAK.sub(" ", full_text)
    full_text = _without_tabs(doc, full_text, tally)
    return full_text[: len(title)], full_text[len(title) + 1 :]


def _join_passages(passages: Sequence[Passage], begin: int) -> str:
    """The passages with spaces between them, from the offset `begin` on."""
    pieces: list[str] = []
    for passage in passages:
        gap = passage.offset - begin
        if gap < 0:
            raise BadDocument(
                "no_gap",
                f"a passage begins at {passage.offset}, directly after the title; PubTator's offsets count a "
                "character between them. Write another format, such as bioc-xml.",
                value=passage.offset,
            )
        if gap > _MAX_GAP:
            message = f"there are {gap:,} characters before the passage at {passage.offset}; the limit is {_MAX_GAP:,}"
            raise BadDocument("wide_gap", message, value=passage.offset)
        pieces += (" " * gap, passage.text)
        begin = passage.end
    return "".join(pieces)


def _without_tabs(doc: Document, full_text: str, tally: Tally) -> str:
    """The text with spaces for tabs inside mentions, because tabs separate columns."""
    if "\t" not in full_text:
        return full_text
    inside: set[int] = set()
    for start, end in (part for span in doc.spans for part in span.parts):
        while (tab := full_text.find("\t", start, end)) >= 0:
            inside.add(tab)
            start = tab + 1
    if not inside:
        return full_text
    tally.note("tabs in mentions written as spaces")
    return "".join(" " if at in inside else character for at, character in enumerate(full_text))


def _mention_lines(doc: Document, full_text: str, tally: Tally) -> Iterator[str]:
    individual = _individual_mentions(doc)
    for span in doc.spans:
        if not _COLUMN.fullmatch(span.type):
            raise BadDocument("bad_type", f"the type {span.type!r} has a tab or line break.", value=span.type)
        if len(span.parts) > 1:
            tally.note("discontinuous mention written as its parts")
        ids = write_ids(span.concepts, span.type)
        if ids is None or not _COLUMN.fullmatch(ids):
            tally.note("concepts that PubTator cannot represent not written")
            ids = None
        columns = (span.type, ids or "-", *individual.get(span.id, ()))
        for start, end in span.parts:
            yield "\t".join((str(start), str(end), full_text[start:end], *columns))


def _individual_mentions(doc: Document) -> dict[str, tuple[str]]:
    return {
        attribute.target: (attribute.value,)
        for attribute in doc.attributes
        if attribute.name == INDIVIDUAL_MENTIONS and attribute.value and _COLUMN.fullmatch(attribute.value)
    }


def _relation_lines(doc: Document, tally: Tally) -> Iterator[str]:
    if not doc.relations:
        return
    types = types_by_concept(doc.spans)
    concepts = {span.id: span.concepts for span in doc.spans}
    written: set[tuple[str, ...]] = set()
    for relation in doc.relations:
        fields = relation_fields(relation, concepts, types)
        columns = (relation.type, *(fields or ()), *([NOVELTY[relation.novel]] if relation.novel is not None else ()))
        # A relation whose type is a number would be read as a mention.
        if fields is None or relation.type.isdecimal() or not all(map(_COLUMN.fullmatch, columns)):
            tally.note("relation that PubTator cannot represent not written")
            continue
        if any(argument.target is not None for argument in relation.arguments):
            tally.note("relation between mentions written as one between their concepts")
            # Mentions of the same concepts in several sentences.
            if columns in written:
                continue
        elif arguments_from_sides(parse_sides(*fields, types)) != relation.arguments:
            tally.note("roles of a relation not written")
        written.add(columns)
        yield "\t".join(columns)


def _note_losses(doc: Document, name: str, tally: Tally) -> None:
    """Note what the document has and a block cannot represent, once per document."""
    meta = replace(doc.meta, part_of=None) if name != doc.id else doc.meta
    items: tuple[Sequence[Span | Relation | Attribute], ...] = (doc.spans, doc.relations, doc.attributes)
    has_standard_ids = all(
        item.id == f"{letter}{number}"
        for letter, group in zip("TRA", items, strict=True)
        for number, item in enumerate(group, 1)
    )
    missing = {
        "ids of mentions, relations and attributes": not has_standard_ids,
        "attributes": len(doc.attributes) > len(_individual_mentions(doc)),
        "metadata": meta != NO_METADATA,
    }
    note_losses(doc, tally, supported=_NOTED_ELSEWHERE, lost=tuple(name for name, lost in missing.items() if lost))
