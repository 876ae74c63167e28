"""A Document as the lines of a PubTator block, with what such a block cannot hold counted."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from lexome.document import NOTHING_KNOWN, Attribute, Document, Passage, Relation, Span
from lexome.errors import BadDocument
from lexome.formats.annotation.concept_relations import NOVELTY, arguments_of, fields_of, sides_of, types_by_concept
from lexome.formats.annotation.concepts import write_ids
from lexome.formats.losses import note_losses
from lexome.formats.tally import Tally

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
    lines += (f"{name}\t{line}" for line in _relations(doc, tally))
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


def _relations(doc: Document, tally: Tally) -> Iterator[str]:
    if not doc.relations:
        return
    types = types_by_concept(doc.spans)
    concepts = {span.id: span.concepts for span in doc.spans}
    for relation in doc.relations:
        fields = fields_of(relation, concepts, types)
        columns = (relation.type, *(fields or ()), *([NOVELTY[relation.novel]] if relation.novel is not None else ()))
        # A relation whose type is a number would be read as a mention.
        if fields is None or relation.type.isdecimal() or not all(map(_COLUMN.fullmatch, columns)):
            tally.note("relation that PubTator cannot hold not written")
            continue
        if any(argument.target is not None for argument in relation.arguments):
            tally.note("relation between mentions written as one between their concepts")
        elif arguments_of(sides_of(*fields, types)) != relation.arguments:
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
        "metadata": meta != NOTHING_KNOWN,
    }
    note_losses(doc, tally, held=_NOTED_APART, lost=tuple(name for name, lost in missing.items() if lost))
