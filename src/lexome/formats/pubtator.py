"""PubTator text: a title and an abstract a document, its mentions, and relations between concepts.

    9000001|t|Aspirin and ulcers
    9000001|a|Aspirin may cause ulcers.
    9000001	0	7	Aspirin	Chemical	MESH:D001241
    9000001	CID	MESH:D001241	MESH:D014456

Offsets count the title, one character, then the abstract. Mentions become T1, T2, ... in the file's
order and relations R1, R2, ...; the individual mentions that BC5CDR adds to a composite one become
its attribute IndividualMentions. `lexome.formats.concept_ids` says how ids are read and written. The
two sides of a relation have as roles the types of the mentions of their concepts, where these
are two different types, and otherwise Arg1 and Arg2.

Where blocks that follow one another have the same id, as the passages of NLM-Chem's articles do, the
second becomes 9000001-2 and so on, and is marked as a part of 9000001. A block after these whose own id
is 9000001-2 becomes 9000001-2-2 in the same way. Only the last such row of blocks is remembered, so
that memory does not grow with the file.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import BinaryIO, Literal

from lexome.document import NO_METADATA, Attribute, Document, Passage, Relation, Span, shorten
from lexome.errors import BadDocument, FormatError
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
from lexome.formats.streams import MAX_RECORD_BYTES, Source, decode
from lexome.formats.tally import Tally, note_losses, repair_spans
from lexome.metadata import Metadata

INDIVIDUAL_MENTIONS = "IndividualMentions"

# No article has a gap like this; filling it would only fill the disk.
_WIDEST_GAP = 1_000_000

# Everything but scores, questions and labels: a block has some of each, and what it has not is noted here.
_NOTED_APART = frozenset(
    {
        "relations",
        "attributes",
        "metadata",
        "concepts",
        "novelty of relations",
        "places of passages",
        "kinds and sections of passages",
        "sentences and tokens",
    }
)

_ID = re.compile(r"[^|\t\r\n]+")
_LINE_BREAK = re.compile(r"[\r\n]")
_COLUMN = re.compile(r"[^\t\r\n]*")


def written(doc: Document, name: str, tally: Tally) -> bytes:
    """The block of a document under this name, blank line included; BadDocument where it cannot be one."""
    if not _ID.fullmatch(name) or name != name.strip() or name.startswith("\ufeff"):
        raise BadDocument(
            "bad_id",
            f"the id is {name!r}; expected one that is not empty, has no | and no tab, and neither begins nor ends "
            "with a space. Give the document another id.",
        )
    title, abstract = _texts(doc, tally)
    lines = [f"{name}|t|{title}", f"{name}|a|{abstract}"]
    lines += (f"{name}\t{line}" for line in _mentions(doc, f"{title} {abstract}", tally))
    lines += (f"{name}\t{line}" for line in _relation_lines(doc, tally))
    _note_the_rest(doc, name, tally)
    try:
        return ("\n".join(lines) + "\n\n").encode()
    except UnicodeEncodeError as error:
        raise BadDocument(
            "not_unicode", f"{error.object[error.start]!r} is half a surrogate pair; expected whole characters"
        ) from None


def _texts(doc: Document, tally: Tally) -> tuple[str, str]:
    """Title and abstract, in which every character that a passage holds is where it was."""
    passages = [passage for passage in doc.passages if passage.text]
    first = passages[:1]
    if first and first[0].offset and first[0].kind != "title":
        first = []  # the text begins behind an empty title
    title = _joined(first, 0)
    abstract = _joined(passages[len(first) :], len(title) + 1)
    expected = tuple(
        Passage(offset, text, kind)
        for offset, text, kind in ((0, title, "title"), (len(title) + 1, abstract, "abstract"))
        if text
    )
    if expected != doc.passages:
        tally.note("passages: kinds, gaps, sections, sentences and the like not written")
    whole = f"{title} {abstract}"
    if _LINE_BREAK.search(whole):
        tally.note("line breaks in the text written as spaces")
        whole = _LINE_BREAK.sub(" ", whole)
    whole = _without_tabs(doc, whole, tally)
    return whole[: len(title)], whole[len(title) + 1 :]


def _joined(passages: Sequence[Passage], begin: int) -> str:
    """The passages with spaces between them, from the document's character `begin` on."""
    pieces: list[str] = []
    for passage in passages:
        gap = passage.offset - begin
        if gap < 0:
            raise BadDocument(
                "no_gap",
                f"a passage begins at {passage.offset}, straight after the title; expected one character between them, "
                "which PubTator's offsets count. Write another format, such as bioc-xml.",
            )
        if gap > _WIDEST_GAP:
            raise BadDocument(
                "wide_gap",
                f"{gap:,} characters lie before the passage at {passage.offset}; expected {_WIDEST_GAP:,} at most",
            )
        pieces += (" " * gap, passage.text)
        begin = passage.end
    return "".join(pieces)


def _without_tabs(doc: Document, whole: str, tally: Tally) -> str:
    """The text with spaces for the tabs inside mentions, since tabs end columns."""
    if "\t" not in whole:
        return whole
    inside: set[int] = set()
    for start, end in (part for span in doc.spans for part in span.parts):
        while (tab := whole.find("\t", start, end)) >= 0:
            inside.add(tab)
            start = tab + 1
    if not inside:
        return whole
    tally.note("tabs in mentions written as spaces")
    return "".join(" " if place in inside else character for place, character in enumerate(whole))


def _mentions(doc: Document, whole: str, tally: Tally) -> Iterator[str]:
    individual = _individual_mentions(doc)
    for span in doc.spans:
        if not _COLUMN.fullmatch(span.type):
            raise BadDocument("bad_type", f"span {span.id!r} has the type {span.type!r}; expected no tab or line break")
        if len(span.parts) > 1:
            tally.note("discontinuous mention written as its parts")
        ids = write_ids(span.concepts, span.type)
        if ids is None or not _COLUMN.fullmatch(ids):
            tally.note("concepts that PubTator cannot hold not written")
            ids = None
        columns = (span.type, ids or "-", *individual.get(span.id, ()))
        for start, end in span.parts:
            yield "\t".join((str(start), str(end), whole[start:end], *columns))


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
    for relation in doc.relations:
        fields = relation_fields(relation, concepts, types)
        columns = (relation.type, *(fields or ()), *([NOVELTY[relation.novel]] if relation.novel is not None else ()))
        # A relation whose type is a number would be read as a mention.
        if fields is None or relation.type.isdecimal() or not all(map(_COLUMN.fullmatch, columns)):
            tally.note("relation that PubTator cannot hold not written")
            continue
        if any(argument.target is not None for argument in relation.arguments):
            tally.note("relation between mentions written as one between their concepts")
        elif arguments_from_sides(parse_sides(*fields, types)) != relation.arguments:
            tally.note("roles of a relation not written")
        yield "\t".join(columns)


def _note_the_rest(doc: Document, name: str, tally: Tally) -> None:
    """Count what the document has and a block does not, once a document for each kind."""
    meta = replace(doc.meta, part_of=None) if name != doc.id else doc.meta
    items: tuple[Sequence[Span | Relation | Attribute], ...] = (doc.spans, doc.relations, doc.attributes)
    numbered = all(
        item.id == f"{letter}{number}"
        for letter, some in zip("TRA", items, strict=True)
        for number, item in enumerate(some, 1)
    )
    missing = {
        "ids of mentions, relations and attributes": not numbered,
        "attributes": len(doc.attributes) > len(_individual_mentions(doc)),
        "metadata": meta != NO_METADATA,
    }
    note_losses(doc, tally, supported=_NOTED_APART, lost=tuple(name for name, lost in missing.items() if lost))


_TEXT = re.compile(r"([^|\t]+)\|([a-z])\|(.*)", re.DOTALL)
_TITLE = re.compile(rb"[^|\t]+\|t\|")
_KINDS = {"t": "title", "a": "abstract"}


@dataclass(frozen=True, slots=True)
class _Block:
    """The lines of one document, their place, and which of the blocks with its id it is."""

    id: bytes
    number: int
    line: int
    lines: list[bytes]

    def name(self, id_: str) -> str:
        """What the document is called whose id in the file is this."""
        return id_ if self.number == 1 else f"{id_}-{self.number}"


@dataclass(slots=True)
class _Content:
    """What the lines of a block say, before it is put together."""

    texts: list[tuple[str, str]]
    mentions: list[tuple[int, int, list[str]]]
    relations: list[list[str]]


def read(
    source: Source, *, tally: Tally, offsets: Literal["strict", "repair"] = "strict", encoding: str = "utf-8"
) -> Iterator[Document]:
    """A document for each block of lines, blocks apart by blank lines.

    Where a title line ends in spaces and the mentions show that these were not counted, they go.
    """
    for block in _blocks(source):
        doc = tally.attempt(
            partial(_document, block, offsets == "repair", encoding, tally),
            where=f"{source.name}, line {block.line}",
            id=block.name(block.id.decode(errors="replace")),
            raw=b"\n".join(block.lines),
        )
        if doc is not None:
            if block.number > 1:
                tally.note("repeated id numbered")
            yield doc


def write(docs: Iterable[Document], stream: BinaryIO, *, tally: Tally) -> None:
    """Each document as a block: its first passage as title, everything after it as abstract.

    Every mention keeps its offsets: where passages are not one character apart spaces are put
    between them, and line breaks become spaces. A discontinuous mention is written as its parts. What
    a block cannot hold is left out and noted; a document that it cannot hold at all is refused.
    """
    previous = ("", 0)
    for doc in docs:
        base, number = doc.meta.part_of, previous[1] + 1
        continued = base is not None and base == previous[0] and doc.id == f"{base}-{number}"
        previous = (previous[0], number) if continued else (doc.id, 1)
        raw = tally.attempt(partial(written, doc, previous[0], tally), where=f"document {doc.id!r}", id=doc.id)
        if raw is not None:
            stream.write(raw)
            tally.written += 1


def _blocks(source: Source) -> Iterator[_Block]:
    """The file's lines by document; those that follow one another under the same id are numbered."""
    last, number = b"", 0
    given = (b"", 0)
    for line, lines in _groups(source):
        id_ = lines[0].partition(b"|")[0].partition(b"\t")[0]
        if id_ == last:
            number += 1
            given = (id_, number)
        else:
            number = 2 if _was_given(id_, *given) else 1
        last = id_
        yield _Block(id_, number, line, lines)


def _was_given(id_: bytes, base: bytes, most: int) -> bool:
    """True where a block of this base, numbered up to `most`, is called so already."""
    start, _, number = id_.rpartition(b"-")
    return start == base and number.isdigit() and number[:1] != b"0" and len(number) < 12 and 2 <= int(number) <= most


def _groups(source: Source) -> Iterator[tuple[int, list[bytes]]]:
    """Lines between blank ones with the first one's number; a title begins a group even without a blank before it."""
    held: list[bytes] = []
    size = begun = 0
    for number, line in source.lines():
        blank = not line.strip()
        if held and (blank or _TITLE.match(line)):
            yield begun, held
            held, size = [], 0
        if blank:
            continue
        begun = begun if held else number
        held.append(line)
        size += len(line)
        if size > MAX_RECORD_BYTES:
            raise FormatError(
                f"{source.name}, line {begun}: a block is larger than {MAX_RECORD_BYTES >> 20} MiB; expected documents "
                "apart by blank lines. Check that the file is PubTator text."
            )
    if held:
        yield begun, held


def _document(block: _Block, repairing: bool, encoding: str, tally: Tally) -> Document:
    id_ = decode(block.id, encoding)
    content = _content(block, id_, encoding)
    texts = _fitting(content, tally)
    passages = tuple(_passages(texts, tally))
    spans, attributes = _spans(content, repairing, tally)
    relations = _relations(content, spans, tally)
    if repairing:
        spans, relations, attributes = repair_spans(passages, spans, relations, attributes, tally=tally)
    meta = Metadata(part_of=id_) if block.number > 1 else NO_METADATA
    return Document(block.name(id_), passages, spans, relations, attributes, meta=meta)


def _content(block: _Block, id_: str, encoding: str) -> _Content:
    content = _Content([], [], [])
    for number, raw in enumerate(block.lines, block.line):
        line = decode(raw, encoding)
        text = _TEXT.fullmatch(line)
        if text is not None:
            name = text[1]
            content.texts.append((text[2], text[3]))
        else:
            name = _columns(line, number, content)
        if name != id_:
            raise BadDocument(
                "mixed_ids",
                f"line {number} is of {shorten(name)!r} in the block of {shorten(id_)!r}; expected one document "
                "a block. Put a blank line between them.",
            )
    if not content.texts:
        raise BadDocument("no_text", f"the block has no line such as {id_}|t|...; expected a title and an abstract")
    return content


def _columns(line: str, number: int, content: _Content) -> str:
    """Add a line of columns to the content; the id it begins with is returned."""
    columns = line.split("\t")
    if len(columns) >= 5 and _is_number(columns[1]) and _is_number(columns[2]):
        start, end = int(columns[1]), int(columns[2])
        rest = line.split("\t", 3)[3]
        mention, after = rest[: end - start], rest[end - start :]
        # A mention may hold tabs of the text: its length then says where it ends.
        tabbed = "\t" in mention and after.startswith("\t") and any(mention in text for _, text in content.texts)
        content.mentions.append((start, end, [mention, *after[1:].split("\t")] if tabbed else columns[3:]))
    elif len(columns) >= 4 and not _is_number(columns[1]):
        content.relations.append(columns[1:])
    else:
        raise BadDocument(
            "malformed_line",
            f"line {number} is {shorten(line)!r}; expected id|t|text, or tabs between id, start, end, mention, type "
            "and ids, or between id, relation and two ids",
        )
    return columns[0]


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 12


def _fitting(content: _Content, tally: Tally) -> list[tuple[str, str]]:
    """The texts, without the spaces that end all but the last where more mentions are then in place."""
    texts = content.texts
    trimmed = [(tag, text.rstrip(" ")) for tag, text in texts[:-1]] + texts[-1:]
    if trimmed == texts or _misplaced(texts, content) <= _misplaced(trimmed, content):
        return texts
    tally.note("spaces at the end of a title are not counted by its mentions, and were cut")
    return trimmed


def _misplaced(texts: list[tuple[str, str]], content: _Content) -> int:
    whole = "\n".join(text for _, text in texts)
    return sum(whole[start:end] != columns[0] for start, end, columns in content.mentions)


def _passages(texts: list[tuple[str, str]], tally: Tally) -> Iterator[Passage]:
    offset = 0
    for tag, text in texts:
        if tag not in _KINDS:
            tally.note(f"text marked |{tag}| read as a paragraph")
        if text:
            yield Passage(offset, text, _KINDS.get(tag, "paragraph"))
        offset += len(text) + 1


def _spans(content: _Content, repairing: bool, tally: Tally) -> tuple[tuple[Span, ...], tuple[Attribute, ...]]:
    spans: list[Span] = []
    attributes: list[Attribute] = []
    for number, (start, end, (mention, type_, *more)) in enumerate(content.mentions, 1):
        # An empty range cannot be a span; repairing looks for its mention all the same.
        parts = ((start, max(end, start + 1) if repairing else end),)
        concepts = read_ids(more[0], type_, tally) if more else ()
        spans.append(Span(f"T{number}", type_, parts, mention, concepts))
        if len(more) > 1 and more[1]:
            attributes.append(Attribute(f"A{len(attributes) + 1}", f"T{number}", INDIVIDUAL_MENTIONS, more[1]))
        if len(more) > 2:
            tally.note("column after the individual mentions ignored")
    return tuple(spans), tuple(attributes)


def _relations(content: _Content, spans: tuple[Span, ...], tally: Tally) -> tuple[Relation, ...]:
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
