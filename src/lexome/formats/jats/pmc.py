"""PMC full text in JATS XML: all paragraphs in reading order, with section and role.

Titles, abstracts, body, back matter and floating figures become passages; the front matter becomes metadata.
Sub-articles and responses are separate documents that follow their article. What is skipped is noted in the tally.
Languages are as in the file: mostly "en", where PubMed has "eng". docs/explanation/jats.md describes how each
element is read and why.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from lexome.document import Document, lay_out
from lexome.errors import BadDocument
from lexome.formats.jats.blocks import LANGUAGE, BlockPlace, Blocks
from lexome.formats.jats.front_matter import Parts, is_abbreviations, metadata, parts_of
from lexome.formats.jats.inline import Element, Inline, drop_namespace, stray_texts
from lexome.formats.streams import Source
from lexome.formats.tally import Tally
from lexome.formats.xml import Record, records
from lexome.metadata import Metadata

_OPENING = re.compile(rb"<article[\s>]")
# Elements next to the articles in a response of the OAI-PMH service.
_HEADER = ("header", "responseDate", "request", "resumptionToken")

_TITLES = frozenset(("article-title", "subtitle", "trans-title", "trans-subtitle"))
# Front matter with running text other than titles, in reading order.
_FRONT_TEXT = (
    "abstract", "trans-abstract", "contrib-group", "author-notes", "funding-group", "supplementary-material", "notes"
)  # fmt: skip
_SEPARATE = frozenset(("sub-article", "response"))


def read(source: Source, *, tally: Tally, references: bool = False) -> Iterator[Document]:
    """One document per article: title, abstracts, body, back matter, floating figures and tables.

    `references` adds the reference list, one passage per reference. Sub-articles and responses (decision letters,
    translations, replies) follow their article, with ids such as PMC123.s1.
    """
    for record in records(source, ("article",), header=_HEADER):
        docs = _read_record(record, source, tally, references)
        if docs is None and (inner := _last_inner_article(record)) is not None:
            docs = _read_record(inner, source, tally, references)
        yield from docs or ()


def _read_record(record: Record, source: Source, tally: Tally, references: bool) -> list[Document] | None:
    return tally.attempt(
        partial(_documents, record, f"{source.stem}-{record.line}", tally, references),
        where=f"{source.name}, line {record.line}",
        raw=record.raw,
    )


def _last_inner_article(record: Record) -> Record | None:
    """The last article inside a malformed record: the ones before it lack their closing tags."""
    start = max((match.start() for match in _OPENING.finditer(record.raw)), default=0)
    if not start or record.problem is not None:
        return None
    return replace(record, raw=record.raw[start:], line=record.line + record.raw.count(b"\n", 0, start))


def _documents(record: Record, name: str, tally: Tally, references: bool) -> list[Document]:
    root = record.parse() if references else _parse_text(record, tally)
    drop_namespace(root)
    try:
        docs = _Article(Inline(tally), tally, references).documents(root, name)
    except RecursionError:
        raise BadDocument("too_deep", f"line {record.line}: elements are nested too deeply.") from None
    if not any(doc.passages for doc in docs):
        raise BadDocument("no_text", f"line {record.line}: the article has no title, abstract or body text")
    return docs


def _parse_text(record: Record, tally: Tally) -> Element:
    """The article without its references, which are removed before parsing."""
    short, count = _without_references(record.raw)
    if not count or record.problem is not None:
        return record.parse()
    try:
        root = replace(record, raw=short).parse()
    except BadDocument:
        return record.parse()  # for the right line number
    tally.note("reference skipped", count)
    return root


def _without_references(raw: bytes) -> tuple[bytes, int]:
    """The article's bytes without <ref> elements, and their number; nothing is removed unless this is safe.

    There may be no comment, CDATA or processing instruction between the first and the last of them, none that began
    before, and no <ref> inside another: then each "<" begins a tag, and the removal is exact.
    """
    # Searched from the end of the body: references before it are parsed and then skipped.
    first, last = raw.find(b"<ref ", max(raw.rfind(b"</body>"), 0)), raw.rfind(b"</ref>")
    head, between = raw[: max(first, 0)], raw[first:last]
    if first < 0 or _has_neighbor(between, b"!", b"<", b"") or _has_neighbor(between, b"?", b"<", b">"):
        return raw, 0
    if _has_neighbor(head, b"!", b"<", b"") and (b"<![" in head or head.rfind(b"<!--") > head.rfind(b"-->")):
        return raw, 0
    kept = [head]
    at = first
    while (begin := raw.find(b"<ref ", at)) >= 0:
        end = raw.find(b"</ref>", begin)
        if end < 0 or raw.find(b"<ref", begin + 1, end) >= 0:
            return raw, 0
        kept.append(raw[at:begin])
        at = end + len(b"</ref>")
    kept.append(raw[at:])
    return b"".join(kept), len(kept) - 2


def _has_neighbor(raw: bytes, mark: bytes, left: bytes, right: bytes) -> bool:
    """Whether a rare character is preceded by `left` or followed by `right`: far faster than searching the pair."""
    if raw.count(mark) > 1000:  # not rare here
        return left + mark in raw or (right != b"" and mark + right in raw)
    at = raw.find(mark)
    while at >= 0:
        if raw[at - 1 : at] == left or (right and raw[at + 1 : at + 2] == right):
            return True
        at = raw.find(mark, at + 1)
    return False


class _Article:
    """Reads an article and its sub-articles."""

    def __init__(self, inline: Inline, tally: Tally, references: bool) -> None:
        self.inline = inline
        self.tally = tally
        self.references = references

    def documents(self, article: Element, name: str, parent: Document | None = None) -> list[Document]:
        """The article's document, then those of its sub-articles and responses."""
        language = article.get(LANGUAGE)
        front = next(article.iterchildren("front", "front-stub"), None)
        front_meta = front.find("article-meta") if front is not None and front.tag == "front" else front
        parts = parts_of(front_meta) if front_meta is not None else {}
        meta = metadata(article, parts, self.inline, self.tally)
        meta = replace(meta, languages=(language,) if language else ())
        if parent is None:
            id_ = meta.pmcid or meta.pmid or meta.doi or name
        else:
            id_, meta = name, _inherit(meta, parent)
        blocks = Blocks(self.inline, self.tally, language=language, references=self.references)
        self._read_front(front, parts, blocks)
        others = []
        for text in stray_texts(article):
            blocks.stray(text, BlockPlace())
        for child in article:
            if child.tag in _SEPARATE:
                others.append(child)
            elif child is not front:
                blocks.block(child, BlockPlace())
        docs = [Document(id_, lay_out(blocks.drafts), meta=meta)]
        for number, other in enumerate(others, 1):
            docs += self.documents(other, f"{id_}.s{number}", docs[0])
        return docs

    def _read_front(self, front: Element | None, parts: Parts, blocks: Blocks) -> None:
        """Add titles, then abstracts, then other running text of the front matter."""
        for group in parts.get("title-group", ()):
            self._read_titles(group, blocks, None)
        for tag in _FRONT_TEXT:
            for element in parts.get(tag, ()):
                blocks.block(element, BlockPlace(category="ACK_FUND" if tag == "funding-group" else None))
        for group in parts.get("kwd-group", ()):
            if is_abbreviations(group):
                blocks.abbreviations(group, BlockPlace(category="ABBR", kind="list"))
        if front is not None and front.tag == "front":
            for notes in (*front.iterfind("journal-meta/notes"), *front.iterfind("notes")):
                blocks.block(notes, BlockPlace())

    def _read_titles(self, group: Element, blocks: Blocks, language: str | None) -> None:
        for child in group:
            child_language = blocks.language_of(child, language)
            if child.tag in _TITLES:
                blocks.flow(child, BlockPlace(category="TITLE", language=child_language, kind="title"))
            elif child.tag == "trans-title-group":
                self._read_titles(child, blocks, child_language)
            elif child.tag == "fn-group":
                blocks.block(child, BlockPlace())
            else:
                blocks.skip(child, BlockPlace())


def _inherit(meta: Metadata, parent: Document) -> Metadata:
    """The metadata of a sub-article, completed from its article, as JATS specifies."""
    names = ("languages", "journal", "published", "licence", "licence_url", "copyright")
    return replace(
        meta, part_of=parent.id, **{name: getattr(meta, name) or getattr(parent.meta, name) for name in names}
    )
