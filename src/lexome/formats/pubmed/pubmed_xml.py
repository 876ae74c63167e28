"""PubMed XML: baseline and update files, E-utilities exports, articles and book chapters.

Inline markup (bold, italic, superscript) is removed. The text of a formula (MathML) is in reading order without
the white space between its elements and without annotations, which repeat it in TeX or otherwise. Line breaks
inside text and their indentation become one space, and the ends are stripped; nothing else is changed.
Languages are PubMed's three-letter codes: "eng", not "en".
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Literal, TypeVar

from lxml import etree

from lexome.document import Document, Passage, lay_out
from lexome.errors import BadDocument
from lexome.formats.citation import iso_date, more_precise, orcid, registry_number
from lexome.formats.pubmed.citation_fields import CITATION, RECORD, Draft, Section, date_of, each
from lexome.formats.streams import Source
from lexome.formats.tally import Tally
from lexome.formats.xml import Record, records
from lexome.metadata import Author, Journal, MeshHeading, MeshQualifier, Metadata, Substance

# Fast path: frequent lists are read from the bytes before the rest is parsed as XML
#
# Most elements of a citation are in a few lists: authors, MeSH headings, substances, references, history dates.
# Headings, substances and journals recur, so they are cached by their bytes; authors are matched with one regular
# expression; what a document does not need is skipped unparsed. Only the plain form that NLM writes is read this way;
# anything else stays in the record for the parser.


T = TypeVar("T")
_List = tuple[bytes, bytes, Callable[[bytes, Draft], bool], bool]

_PLAIN = r"(?! )[^<>\x00-\x1f]+(?<! )"
_TEXT = f"({_PLAIN})"
_GAP = r"[ \t\n]*"
_NAMED = rf'(?: UI="([^"<>&]*)"| MajorTopicYN="([YN])"| Type="[A-Za-z]*")*>{_TEXT}'
_DESCRIPTOR = re.compile(f"{_GAP}<MeshHeading>{_GAP}<DescriptorName{_NAMED}")
_QUALIFIER = re.compile(f"{_GAP}<QualifierName{_NAMED}")
_SUBSTANCE = re.compile(
    f"{_GAP}<Chemical>{_GAP}<RegistryNumber>{_TEXT}</RegistryNumber>{_GAP}"
    f'<NameOfSubstance(?: UI="([^"<>&]*)")?>{_TEXT}</NameOfSubstance>{_GAP}'
)
_DATE = re.compile(r"\s*<Year>(\d{4})</Year>\s*<Month>(\d\d)</Month>\s*<Day>(\d\d)</Day>\s*", re.ASCII)
_TYPE = re.compile(rf'<PublicationType(?: UI="[^"<>&]*")?>{_TEXT}</PublicationType>')
_FIELD = re.compile(rf'<(\w+)(?: [A-Za-z]+="[^"<>&]*")?>{_TEXT}</\1>')
# A journal issue without the texts in it.
_ISSUES = {
    f"<JournalIssue{medium}><PubDate></PubDate></JournalIssue>"
    for medium in ("", 'CitedMedium="Print"', 'CitedMedium="Internet"')
}
_ORCID = r"((?:https?://orcid\.org/)?\d{4}-\d{4}-\d{4}-\d{3}[\dX])"
_AFFILIATION = f"<AffiliationInfo>{_GAP}<Affiliation>{_PLAIN}</Affiliation>{_GAP}</AffiliationInfo>{_GAP}"
_AUTHOR = re.compile(
    f'<Author ValidYN="Y">{_GAP}<LastName>{_TEXT}</LastName>{_GAP}(?:<ForeName>{_TEXT}</ForeName>{_GAP})?'
    f'(?:<Initials>{_TEXT}</Initials>{_GAP})?(?:<Identifier Source="ORCID">{_ORCID}</Identifier>{_GAP})?'
    f"((?:{_AFFILIATION})*)</Author>",
    re.ASCII,
)


def lift(raw: bytes, draft: Draft) -> bytes:
    """The record without its plain lists, whose content goes to the draft."""
    # Comments and CDATA can contain tags; both are rare, so such a record goes to the parser unchanged.
    if (b"!" in raw and b"<!" in raw) or (b"?" in raw and b"<?" in raw):
        return raw
    article = raw.find(b"<Article")
    kept: list[bytes] = []
    at = 0
    for opening, closing, take, before_article in _LISTS:
        begin = raw.find(opening, at, article) if before_article else raw.find(opening, at)
        end = raw.find(closing, begin) if begin >= 0 else -1
        if end >= 0 and take(raw[begin + len(opening) : end], draft):
            kept.append(raw[at:begin])
            at = end + len(closing)
    kept.append(raw[at:])
    return b"".join(kept)


def _ignore(tag: str) -> Callable[[bytes, Draft], bool]:
    def take(raw: bytes, draft: Draft) -> bool:
        draft.notes.append(f"{tag} ignored")
        return True

    return take


def _extend(name: str, parse: Callable[[bytes], Iterable[object] | None]) -> Callable[[bytes, Draft], bool]:
    def take(raw: bytes, draft: Draft) -> bool:
        items = parse(raw)
        getattr(draft, name).extend(items or ())
        return items is not None

    return take


def _revised(raw: bytes, draft: Draft) -> bool:
    draft.revised = _date(raw)
    return draft.revised is not None


def _authors(raw: bytes, draft: Draft) -> bool:
    text = _decode(raw)
    if text is None:
        return False
    # The text before each author, its five groups, the text before the next, and so on.
    parts = _AUTHOR.split(text)
    if "".join(parts[::6]).strip():
        return False
    people = zip(parts[1::6], parts[2::6], parts[3::6], parts[4::6], parts[5::6], strict=True)
    draft.authors += [
        Author(
            family,
            given,
            initials,
            None,
            orcid_ and orcid(orcid_),
            tuple([place.partition("<")[0] for place in places.split("<Affiliation>")[1:]]) if places else (),
        )
        for family, given, initials, orcid_, places in people
    ]
    return True


def _issue(raw: bytes, draft: Draft) -> bool:
    left, fields = _fields(raw)
    if left not in _ISSUES:
        return False
    draft.add_journal(fields)
    draft.issue_date = date_of(fields, draft)
    return True


def _journal(raw: bytes, draft: Draft) -> bool:
    left, fields = _fields(raw)
    draft.journal_info = draft.journal_info if left else fields
    return not left


def _parse_items(closing: bytes, parse: Callable[[bytes], T | None], raw: bytes) -> list[T] | None:
    """The parsed items before each closing tag, or None if one of them is not plain."""
    *items, rest = raw.split(closing)
    parsed = [result for item in items if (result := parse(item)) is not None]
    return parsed if len(parsed) == len(items) and not rest.strip() else None


@lru_cache(1 << 15)
def _heading(raw: bytes) -> MeshHeading | None:
    """The heading in these bytes, or None if they are not plain."""
    before, closing, rest = raw.partition(b"</DescriptorName>")
    heading = _descriptor(before) if closing else None
    if heading is None or not rest.strip():
        return heading
    qualifiers = _parse_items(b"</QualifierName>", _qualifier, rest)
    if qualifiers is None:
        return None
    return MeshHeading(heading.name, heading.id, heading.major, tuple(qualifiers))


@lru_cache(1 << 15)
def _descriptor(raw: bytes) -> MeshHeading | None:
    match = _DESCRIPTOR.fullmatch(_decode(raw) or "")
    return MeshHeading(match[3], _curie(match[1]), match[2] == "Y") if match is not None else None


@lru_cache(1 << 10)
def _qualifier(raw: bytes) -> MeshQualifier | None:
    match = _QUALIFIER.fullmatch(_decode(raw) or "")
    return MeshQualifier(match[3], _curie(match[1]), match[2] == "Y") if match is not None else None


@lru_cache(1 << 15)
def _substance(raw: bytes) -> Substance | None:
    match = _SUBSTANCE.fullmatch(_decode(raw) or "")
    return Substance(match[3], _curie(match[2]), registry_number(match[1])) if match is not None else None


def _curie(id_: str | None) -> str | None:
    return f"mesh:{id_}" if id_ else None


@lru_cache(1 << 13)
def _date(raw: bytes) -> str | None:
    match = _DATE.fullmatch(raw.decode(errors="replace"))
    return iso_date(*match.groups()) if match is not None else None


@lru_cache(1 << 13)
def _type_names(raw: bytes) -> tuple[str, ...] | None:
    text = _decode(raw)
    parts = _TYPE.split(text) if text is not None else ["?"]
    return tuple(parts[1::2]) if not "".join(parts[::2]).strip() else None


# The articles of an issue are adjacent in the files, and journals recur.
@lru_cache(1 << 12)
def _fields(raw: bytes) -> tuple[str, Mapping[str, str]]:
    """The rest of the bytes without their elements and blanks, and the texts of the elements by tag."""
    parts = _FIELD.split(_decode(raw) or "?")
    return "".join("".join(parts[::3]).split()), dict(zip(parts[1::3], parts[2::3], strict=True))


def _decode(raw: bytes) -> str | None:
    """The text with &amp; resolved, or None if there is another entity or invalid UTF-8."""
    if b"&" in raw:
        if raw.count(b"&") > raw.count(b"&amp;"):
            return None
        raw = raw.replace(b"&amp;", b"&")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _element(tag: str, take: Callable[[bytes, Draft], bool], attributes: str = "") -> _List:
    return f"<{tag}{attributes}>".encode(), f"</{tag}>".encode(), take, tag.startswith("Date")


# In the order of the schema; an element elsewhere is left to the parser.
_LISTS = (
    _element("DateCreated", _ignore("DateCreated")),
    _element("DateCompleted", _ignore("DateCompleted")),
    _element("DateRevised", _revised),
    _element("Journal", _issue),
    _element("AuthorList", _authors, ' CompleteYN="Y"'),
    _element("PublicationTypeList", _extend("article_types", _type_names)),
    _element("MedlineJournalInfo", _journal),
    _element("ChemicalList", _extend("substances", partial(_parse_items, b"</Chemical>", _substance))),
    _element("MeshHeadingList", _extend("mesh", partial(_parse_items, b"</MeshHeading>", _heading))),
    _element("History", _ignore("History")),
    _element("ReferenceList", _ignore("ReferenceList")),
)

Abstract = Literal["sections", "joined"]

_TAGS = ("PubmedArticle", "PubmedBookArticle", "DeleteCitation")
# Documents

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
