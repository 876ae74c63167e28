"""PMC full text in JATS XML: every paragraph, in reading order, with its section and role.

Titles, abstracts, body, back matter and floating figures become passages; the front becomes metadata.
Sub-articles and responses are documents of their own that follow their article. What is not read is
noted in the tally. docs/explanation/jats.md says how each element is read and why.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from lxml import etree

from lexome.document import Document
from lexome.errors import BadDocument
from lexome.formats.citation import lay_out
from lexome.formats.files import Source
from lexome.formats.jats_blocks import LANGUAGE, Blocks, Place
from lexome.formats.jats_meta import is_abbreviations, metadata
from lexome.formats.jats_text import Element, Inline
from lexome.formats.tally import Tally
from lexome.formats.xml import Record, records
from lexome.metadata import Metadata

# What may stand beside the articles in an answer of the OAI-PMH service.
_HEADER = ("header", "responseDate", "request", "resumptionToken")
_NAMESPACED = re.compile(rb"xmlns(?:\s*=|:[\w.-]+\s*=\s*.http://docs\.oasis)")
_MATHML = "{http://www.w3.org/1998/Math/MathML}"

_TITLES = frozenset(("article-title", "subtitle", "trans-title", "trans-subtitle"))
_ABSTRACTS = frozenset(("abstract", "trans-abstract"))
_TOLD_IN_FRONT = frozenset(("contrib-group", "author-notes", "supplementary-material", "notes"))
_PARTS = frozenset(("sub-article", "response"))


def read(source: Source, *, tally: Tally, references: bool = False) -> Iterator[Document]:
    """A document an article: title, abstracts, body, back matter, floating figures and tables.

    `references` adds the reference list, a passage a reference. Sub-articles and responses (decision
    letters, translations, replies) follow their article, named after it: PMC123.s1.
    """
    for record in records(source, ("article",), header=_HEADER):
        docs = tally.attempt(
            partial(_documents, record, f"{source.stem}-{record.line}", tally, references),
            where=f"{source.name}, line {record.line}",
            raw=record.raw,
        )
        if docs is not None:
            yield from docs


def _documents(record: Record, name: str, tally: Tally, references: bool) -> list[Document]:
    root = record.parse() if references else _parse_text(record, tally)
    if _NAMESPACED.search(record.raw):
        _drop_namespaces(root)
    try:
        docs = _Article(Inline(tally), tally, references).documents(root, name)
    except RecursionError:
        raise BadDocument(
            "too_deep", f"line {record.line}: elements are nested too deeply to read; expected an article."
        ) from None
    if not any(doc.passages for doc in docs):
        raise BadDocument("no_text", f"line {record.line}: the article has no text; expected a title, abstract or body")
    return docs


def _parse_text(record: Record, tally: Tally) -> Element:
    """The article without its references: half of its elements, which need not be parsed to be left out."""
    short, count = _without_references(record.raw)
    if not count or record.problem is not None:
        return record.parse()
    try:
        root = replace(record, raw=short).parse()
    except BadDocument:
        return record.parse()  # which says the right line
    tally.note("reference left out", count)
    return root


def _without_references(raw: bytes) -> tuple[bytes, int]:
    """The article's bytes with each <ref> cut out, and how many were; nothing is cut unless all is beyond doubt.

    Between the first and the last of them there may be no comment, CDATA or processing instruction, and
    between <ref> and </ref> no other <ref>: then each "<" begins a tag, and the cut is what a parser would skip.
    """
    first, last = raw.find(b"<ref "), raw.rfind(b"</ref>")
    between = raw[first:last]
    # One character is found ten times as fast as two, and these are rare.
    marked = (b"!" in between and b"<!" in between) or (b"?" in between and (b"<?" in between or b"?>" in between))
    if first < 0 or marked or b"-->" in between or b"<![CDATA[" in raw:
        return raw, 0
    kept = []
    at = 0
    while (begin := raw.find(b"<ref ", at)) >= 0:
        end = raw.find(b"</ref>", begin)
        if end < 0 or raw.find(b"<ref", begin + 1, end) >= 0:
            return raw, 0
        kept.append(raw[at:begin])
        at = end + len(b"</ref>")
    kept.append(raw[at:])
    return b"".join(kept), len(kept) - 1


class _Article:
    """What an article and its sub-articles share while they are read."""

    def __init__(self, inline: Inline, tally: Tally, references: bool) -> None:
        self.inline = inline
        self.tally = tally
        self.references = references

    def documents(self, article: Element, name: str, parent: Document | None = None) -> list[Document]:
        """The article's document, then those of its sub-articles and responses."""
        language = article.get(LANGUAGE)
        front, meta = _front(article)
        facts = metadata(article, meta, self.inline, self.tally)
        facts = replace(facts, languages=(language,) if language else ())
        if parent is None:
            id_ = facts.pmcid or facts.pmid or facts.doi or name
        else:
            id_, facts = name, _inherited(facts, parent)
        blocks = Blocks(self.inline, self.tally, language=language, references=self.references)
        self._read_front(front, meta, blocks)
        parts = []
        for child in article:
            if child.tag in _PARTS:
                parts.append(child)
            elif child is not front:
                blocks.block(child, Place())
        doc = Document(id_, lay_out(blocks.drafts), meta=facts)
        docs = [doc]
        for number, part in enumerate(parts, 1):
            docs += self.documents(part, f"{id_}.s{number}", doc)
        return docs

    def _read_front(self, front: Element, meta: Element, blocks: Blocks) -> None:
        """Titles, then abstracts, then whatever else of the front is written in sentences."""
        for group in meta.iterfind("title-group"):
            self._read_titles(group, blocks, None)
        for child in meta:
            if child.tag in _ABSTRACTS:
                blocks.block(child, Place())
        for child in meta:
            if child.tag in _TOLD_IN_FRONT:
                blocks.block(child, Place())
            elif child.tag == "funding-group":
                blocks.block(child, Place(category="ACK_FUND"))
            elif child.tag == "kwd-group" and is_abbreviations(child):
                blocks.abbreviations(child, Place(category="ABBR", kind="list"))
        for notes in (*front.iterfind("journal-meta/notes"), *front.iterfind("notes")):
            if front is not meta:
                blocks.block(notes, Place())

    def _read_titles(self, group: Element, blocks: Blocks, language: str | None) -> None:
        for child in group:
            own = blocks.language_of(child, language)
            if child.tag in _TITLES:
                blocks.flow(child, Place(category="TITLE", language=own, kind="title"))
            elif child.tag == "trans-title-group":
                self._read_titles(child, blocks, own)
            elif child.tag == "fn-group":
                blocks.block(child, Place())
            else:
                blocks.skip(child, Place())


def _front(article: Element) -> tuple[Element, Element]:
    """The front and its metadata element; empty ones where the article has none."""
    front = article.find("front")
    if front is None:
        front = article.find("front-stub")
        if front is not None:
            return front, front
        empty = etree.Element("front-stub")
        return empty, empty
    meta = front.find("article-meta")
    return front, meta if meta is not None else etree.Element("article-meta")


def _inherited(facts: Metadata, parent: Document) -> Metadata:
    """A sub-article's facts, with those of its article where it is silent, as JATS means it."""
    whole = parent.meta
    return replace(
        facts,
        part_of=parent.id,
        languages=facts.languages or whole.languages,
        journal=facts.journal or whole.journal,
        published=facts.published or whole.published,
        licence=facts.licence or whole.licence,
        licence_url=facts.licence_url or whole.licence_url,
        copyright=facts.copyright or whole.copyright,
    )


def _drop_namespaces(root: Element) -> None:
    """Give each element its plain name, whatever namespace the file has put it in; MathML keeps its own."""
    for element in root.iter("{*}*"):
        tag = element.tag
        if isinstance(tag, str) and tag.startswith("{") and not tag.startswith(_MATHML):
            element.tag = tag.rpartition("}")[2]
