"""PubMed XML: baseline and update files, E-utilities exports, articles and book chapters.

Inline markup (bold, italic, superscript) is removed. The text of a formula (MathML) is in reading order without
the white space between its elements and without annotations, which repeat it in TeX or otherwise. Line breaks
inside text and their indentation become one space, and the ends are stripped; nothing else is changed.
Languages are PubMed's three-letter codes: "eng", not "en".
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from lxml import etree

from lexome.document import Document, Passage, lay_out
from lexome.errors import BadDocument
from lexome.formats.citation import more_precise
from lexome.formats.pubmed.byte_lists import lift
from lexome.formats.pubmed.citation_fields import CITATION, RECORD, Draft, Section, each
from lexome.formats.streams import Source
from lexome.formats.tally import Tally
from lexome.formats.xml import Record, records
from lexome.metadata import Journal, Metadata

Abstract = Literal["sections", "joined"]

_TAGS = ("PubmedArticle", "PubmedBookArticle", "DeleteCitation")
# Files from before 2017 have bare citations.
_OLD_SET, _OLD_TAGS = b"<MedlineCitationSet", ("MedlineCitation", "DeleteCitation")
_PMID = re.compile(rb"<PMID[^<>]*>\s*(\d+)\s*</PMID>")


def read(
    source: Source, *, tally: Tally, abstract: Abstract = "sections", deletions: bool = False
) -> Iterator[Document]:
    """One document per citation: title and abstract, then titles and abstracts in other languages.

    A structured abstract has one passage per section; with abstract="joined" it is one passage,
    "LABEL: text LABEL: text", so that offsets agree with PubTator's.
    Citations that an update file deletes are counted; `deletions` yields a document without text for each.
    """
    tags = _OLD_TAGS if _OLD_SET in source.head() else _TAGS
    for record in records(source, tags):
        try:
            docs = _documents(record, tally, abstract, deletions)
        except BadDocument as error:
            docs = ()
            for part in _split_record(record, error):
                make = partial(_documents, part, tally, abstract, deletions)
                id_ = pmid[1].decode() if (pmid := _PMID.search(part.raw)) is not None else None
                docs += tally.attempt(make, where=f"{source.name}, line {part.line}", id=id_, raw=part.raw) or ()
        yield from docs


def _split_record(record: Record, error: BadDocument) -> list[Record]:
    """A bad record, split where others begin inside it because its closing tag is missing."""
    begins = [match.start() for match in re.finditer(rb"<" + record.tag + rb"[\s>]", record.raw)] if record.tag else []
    if len(begins) < 2:
        return [replace(record, problem=error)]
    ends = [*begins[1:], len(record.raw)]
    parts: list[Record] = []
    line = record.line
    for begin, end in zip(begins, ends, strict=True):
        raw = record.raw[begin:end]
        parts.append(Record(record.tag, raw, line, namespaces=record.namespaces))
        line += raw.count(b"\n")
    return parts


def _documents(record: Record, tally: Tally, abstract: Abstract, deletions: bool) -> tuple[Document, ...]:
    """The documents of one record: a citation, or a list of deleted ones."""
    root, draft = _parse(record)
    if root.tag == "DeleteCitation":
        docs: list[Document] = []
        for element in root:
            draft = Draft()
            each((element,), CITATION, draft)
            pmid = draft.require_pmid()
            docs.append(Document(pmid, meta=Metadata(pmid=pmid, version=draft.version, deleted=True)))
        tally.note("deleted citation", len(docs))
        return tuple(docs) if deletions else ()
    each((root,) if root.tag == "MedlineCitation" else root, RECORD, draft)
    doc = Document(draft.require_pmid(), _passages(draft, abstract), meta=_metadata(draft))
    tally.notes.update(draft.notes)
    return (doc,)


def _parse(record: Record) -> tuple[etree._Element, Draft]:
    """The record's element, and a draft with what was read by the fast path."""
    if record.problem is None:
        draft = Draft()
        try:
            short = Record(record.tag, lift(record.raw, draft), record.line, namespaces=record.namespaces)
            return short.parse(), draft
        except BadDocument:
            pass  # parse the unchanged record below, for the right line number
    return record.parse(), Draft()


def _passages(draft: Draft, abstract: Abstract) -> tuple[Passage, ...]:
    """Title and abstract, as in PubTator, then those in other languages."""
    sections = draft.abstract
    if abstract == "joined" and sections:
        sections = [(None, None, " ".join(f"{label}: {text}" if label else text for label, _, text in sections))]
    foreign = next((language for language in draft.languages if language != "eng"), None)
    parts = [("title", draft.title or draft.book_title, (), None, None), *_abstract_parts(sections, None)]
    parts.append(("title", draft.vernacular_title, (), None, foreign))
    for language, sections in draft.other_abstracts:
        parts += _abstract_parts(sections, language)
    return lay_out(part for part in parts if part[1])


def _abstract_parts(sections: list[Section], language: str | None) -> list[tuple[str, str, tuple[str, ...], Any, Any]]:
    return [
        ("abstract", text, (label,) if label else (), category or None, language) for label, category, text in sections
    ]


def _metadata(draft: Draft) -> Metadata:
    if draft.journal_info is not None:
        draft.add_journal(draft.journal_info)
    return Metadata(
        pmid=draft.pmid,
        pmcid=draft.ids.get("pmc"),
        doi=draft.ids.get("doi"),
        other_ids=tuple(draft.other_ids),
        version=draft.version,
        article_types=tuple(draft.article_types),
        languages=tuple(draft.languages),
        journal=Journal(**draft.journal, issn=tuple(draft.issns)) if draft.journal or draft.issns else None,
        published=more_precise(draft.issue_date, draft.online_date),
        revised=draft.revised,
        authors=tuple(draft.authors),
        mesh=tuple(draft.mesh),
        substances=tuple(draft.substances),
        keywords=tuple(draft.keywords),
        notices=tuple(draft.notices),
        copyright=draft.copyright,
    )
