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
from lexome.formats.citation import BLANKS, fold, iso_date, more_precise, orcid, parse_free_date, pmcid, registry_number
from lexome.formats.streams import Source
from lexome.formats.tally import Tally
from lexome.formats.xml import Record, records
from lexome.metadata import Author, Journal, MeshHeading, MeshQualifier, Metadata, Notice, Substance

Element = etree._Element

# Element handlers: what each element of a citation adds to the draft of the document
#
# Tables map tags to functions of the element and the draft; elements in no table are counted as ignored. Lists
# (authors, headings) are walked flat with `iter`: an iterator per small element would cost more than the rest.

_MATHML = "{http://www.w3.org/1998/Math/MathML}"


class Draft:
    """The fields of one citation, as they are read."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.pmid = ""
        self.version: int | None = None
        self.ids: dict[str, str] = {}
        self.other_ids: list[str] = []
        self.title = ""
        self.book_title = ""
        self.vernacular_title = ""
        self.abstract: list[Section] = []
        self.other_abstracts: list[tuple[str | None, list[Section]]] = []
        self.copyright: str | None = None
        self.languages: list[str] = []
        self.journal: dict[str, str] = {}
        self.issns: list[str] = []
        self.journal_info: Mapping[str, str] | None = None
        self.issue_date: str | None = None
        self.online_date: str | None = None
        self.revised: str | None = None
        self.article_types: list[str] = []
        self.authors: list[Author] = []
        self.mesh: list[MeshHeading] = []
        self.substances: list[Substance] = []
        self.keywords: list[str] = []
        self.notices: list[Notice] = []

    def require_pmid(self) -> str:
        """The citation's id; BadDocument if it is missing."""
        if not self.pmid:
            raise BadDocument("no_pmid", "the citation has no PMID; expected <PMID> with a number.")
        return self.pmid

    def add_id(self, kind: str, value: str) -> None:
        """Keep an id: the first DOI and PMC id under their names, any other as "kind:id", each once."""
        if kind == "pubmed" or not value:
            return
        if kind == "pmc":
            value = pmcid(value)
        if kind in ("doi", "pmc") and self.ids.setdefault(kind, value) == value:
            return
        other = f"{kind.lower()}:{value}"
        if other not in self.other_ids:
            self.other_ids.append(other)

    def add_journal(self, fields: Mapping[str, str]) -> None:
        """Add journal fields by PubMed's names; the first value of a field counts."""
        for tag, name in _JOURNAL_FIELDS:
            if name not in self.journal and (value := fields.get(tag)):
                self.journal[name] = value
        for tag in ("ISSN", "ISSNLinking"):
            if (value := fields.get(tag)) and value not in self.issns:
                self.issns.append(value)


# Label, NLM category and text of a section of an abstract.
Section = tuple[str | None, str | None, str]
Add = Callable[[Element, Draft], None]
Table = Mapping[str, Add]


def each(elements: Iterable[Element], table: Table, draft: Draft) -> None:
    """Add each of these elements to the draft."""
    for element in elements:
        tag = str(element.tag)
        if (add := table.get(tag)) is not None:
            add(element, draft)
        else:
            draft.notes.append(_IGNORED.get(tag, "unknown element ignored"))


def _inside(table: Table) -> Add:
    """A handler that adds the children of an element."""
    return lambda element, draft: each(element, table, draft)


def text_of(element: Element) -> str:
    """The text of an element without markup, folded."""
    if len(element):
        for formula in element.iter(_MATHML + "math"):
            _tighten(formula)
        return fold("".join(element.itertext()))
    text = element.text
    return fold(text) if text is not None else ""


def _tighten(formula: Element) -> None:
    """Remove the white space between the elements of a formula, and its annotations."""
    for note in list(formula.iter(_MATHML + "annotation", _MATHML + "annotation-xml")):
        note.clear(keep_tail=True)
    for part in formula.iter():
        if len(part) and part.text is not None and not part.text.strip(BLANKS):
            part.text = None
        if part is not formula and part.tail is not None and not part.tail.strip(BLANKS):
            part.tail = None


def _pmid(element: Element, draft: Draft) -> None:
    draft.pmid = text_of(element)
    version = element.get("Version", "")
    draft.version = int(version) if version.isdecimal() and len(version) < 10 else None


def _store_text(name: str) -> Add:
    """A handler that stores the text of an element in a field of the draft."""
    return lambda element, draft: setattr(draft, name, text_of(element))


def _book_title(element: Element, draft: Draft) -> None:
    draft.book_title = text_of(element)
    draft.add_journal({"Title": draft.book_title})


def _sections(element: Element, draft: Draft) -> list[Section]:
    """The sections of an abstract; its copyright goes to the draft."""
    sections: list[Section] = []
    if element.text is not None and (bare := fold(element.text)):
        sections.append((None, None, bare))
    for part in element:
        text = text_of(part)
        if part.tag == "CopyrightInformation":
            draft.copyright = text or draft.copyright
        elif text:
            sections.append((part.get("Label"), part.get("NlmCategory"), text))
    return sections


def date_of(parts: Mapping[str, str], draft: Draft) -> str | None:
    """The date in the texts of Year, Month and Day, or of MedlineDate."""
    date = iso_date(parts.get("Year"), parts.get("Month"), parts.get("Day"))
    date = date or parse_free_date(parts.get("MedlineDate", ""))
    if date is None:
        draft.notes.append("unparsable date ignored")
    return date


def _date_of(element: Element, draft: Draft) -> str | None:
    return date_of({str(part.tag): (part.text or "").strip(BLANKS) for part in element}, draft)


def _store_date(name: str) -> Add:
    """A handler that stores the date of an element in a field of the draft."""
    return lambda element, draft: setattr(draft, name, _date_of(element, draft))


def _journal(element: Element, draft: Draft) -> None:
    fields: dict[str, str] = {}
    for part in element.iter():
        if part.tag == "PubDate":
            draft.issue_date = _date_of(part, draft)
        elif not len(part):
            fields[str(part.tag)] = fold(part.text or "")
    draft.add_journal(fields)


def _pages(element: Element, draft: Draft) -> None:
    pages = {part.tag: text_of(part) for part in element}
    first, last = pages.get("StartPage", ""), pages.get("EndPage", "")
    if text := pages.get("MedlinePgn") or (f"{first}-{last}" if last else first):
        draft.journal["pages"] = text


def _location(element: Element, draft: Draft) -> None:
    if element.get("ValidYN") == "N":
        draft.notes.append("id marked as invalid ignored")
    else:
        draft.add_id(element.get("EIdType", "other"), text_of(element))


def _ids(element: Element, draft: Draft) -> None:
    for part in element.iter("ArticleId"):
        draft.add_id(part.get("IdType", "pubmed"), text_of(part))


def _types(element: Element, draft: Draft) -> None:
    draft.article_types += [text_of(part) for part in element]


def _keywords(element: Element, draft: Draft) -> None:
    draft.keywords += [text_of(part) for part in element.iter("Keyword")]


def _authors(element: Element, draft: Draft) -> None:
    people: list[tuple[Element, dict[str, str], list[str]]] = []
    names: dict[str, str] = {}
    affiliations: list[str] = []
    for part in element.iter():
        tag = part.tag
        if tag in _NAMES:
            names[tag] = text_of(part)
        elif tag == "Affiliation":
            affiliations.append(text_of(part))
        elif tag == "Author":
            names, affiliations = {}, []
            people.append((part, names, affiliations))
        elif tag == "Identifier" and part.get("Source") == "ORCID" and (orcid_ := orcid(text_of(part))):
            names[tag] = orcid_
        elif tag in ("Identifier", "Suffix"):
            draft.notes.append(f"author's {tag} ignored")
    for author, names, affiliations in people:
        if author.get("ValidYN") == "N":
            draft.notes.append("author marked as invalid ignored")
        elif names:
            family, given, initials, collective, orcid_ = map(names.get, _NAME_FIELDS)
            draft.authors.append(Author(family, given, initials, collective, orcid_, tuple(affiliations)))


def _mesh(element: Element, draft: Draft) -> None:
    for heading in element:
        names = [_mesh_name(part) for part in heading.iter("DescriptorName", "QualifierName")]
        if names:
            draft.mesh.append(MeshHeading(*names[0], tuple(MeshQualifier(*name) for name in names[1:])))


def _mesh_name(element: Element) -> tuple[str, str | None, bool]:
    """A MeSH name, its id as a CURIE, and whether it is a main topic."""
    id_ = element.get("UI")
    return text_of(element), f"mesh:{id_}" if id_ else None, element.get("MajorTopicYN") == "Y"


def _substances(element: Element, draft: Draft) -> None:
    for chemical in element:
        parts = {part.tag: part for part in chemical}
        if "NameOfSubstance" in parts:
            name, id_, _ = _mesh_name(parts["NameOfSubstance"])
            number = text_of(parts["RegistryNumber"]) if "RegistryNumber" in parts else None
            draft.substances.append(Substance(name, id_, registry_number(number)))


def _notices(element: Element, draft: Draft) -> None:
    for part in element:
        kind = part.get("RefType") or "unknown"
        if kind == "Cites":
            draft.notes.append("reference ignored")
            continue
        parts = {child.tag: text_of(child) for child in part}
        if "Note" in parts:
            draft.notes.append("note of a notice ignored")
        draft.notices.append(Notice(kind, parts.get("PMID"), parts.get("RefSource")))


_JOURNAL_FIELDS = (
    ("Title", "title"), ("ISOAbbreviation", "abbreviation"), ("MedlineTA", "abbreviation"),
    ("NlmUniqueID", "nlm_id"), ("Volume", "volume"), ("Issue", "issue"),
)  # fmt: skip
_NAME_FIELDS = ("LastName", "ForeName", "Initials", "CollectiveName", "Identifier")
_NAMES = frozenset(_NAME_FIELDS[:-1])

_ARTICLE: Table = {
    "Journal": _journal,
    "ArticleTitle": _store_text("title"),
    "Pagination": _pages,
    "ELocationID": _location,
    "Abstract": lambda element, draft: draft.abstract.extend(_sections(element, draft)),
    "AuthorList": _authors,
    "Language": lambda element, draft: draft.languages.append(text_of(element)),
    "PublicationTypeList": _types,
    "VernacularTitle": _store_text("vernacular_title"),
    "ArticleDate": _store_date("online_date"),
}

CITATION: Table = {
    "PMID": _pmid,
    "DateRevised": _store_date("revised"),
    "Article": _inside(_ARTICLE),
    "MedlineJournalInfo": _journal,
    "ChemicalList": _substances,
    "SupplMeshList": lambda element, draft: draft.mesh.extend(
        MeshHeading(*_mesh_name(part)) for part in element.iter("SupplMeshName")
    ),
    "CommentsCorrectionsList": _notices,
    "MeshHeadingList": _mesh,
    "OtherID": lambda element, draft: draft.add_id(element.get("Source", "other"), text_of(element)),
    "OtherAbstract": lambda element, draft: draft.other_abstracts.append(
        (element.get("Language"), _sections(element, draft))
    ),
    "KeywordList": _keywords,
}

_BOOK: Table = {
    "BookTitle": _book_title,
    "Volume": _journal,
    "PubDate": _store_date("issue_date"),
    "AuthorList": _authors,
    "Isbn": lambda element, draft: draft.add_id("isbn", text_of(element)),
    "ELocationID": _location,
}

_BOOK_DOCUMENT: Table = {
    **_ARTICLE,
    "PMID": _pmid,
    "ArticleIdList": _ids,
    "Book": _inside(_BOOK),
    "PublicationType": _types,
    "ContributionDate": _store_date("online_date"),
    "DateRevised": _store_date("revised"),
    "KeywordList": _keywords,
}

_DATA: Table = {"ArticleIdList": _ids}
RECORD: Table = {
    "MedlineCitation": _inside(CITATION),
    "PubmedData": _inside(_DATA),
    "BookDocument": _inside(_BOOK_DOCUMENT),
    "PubmedBookData": _inside(_DATA),
}

# Elements of the schema without a field in Document.
_IGNORED = {
    tag: f"{tag} ignored"
    for tag in (
        "BeginningDate", "CitationSubset", "CoiStatement", "CollectionTitle", "DataBankList", "DateCompleted",
        "DateCreated", "Edition", "EndingDate", "GeneSymbolList", "GeneralNote", "GrantList", "History",
        "InvestigatorList", "ItemList", "LocationLabel", "Medium", "NumberOfReferences", "ObjectList",
        "PersonalNameSubjectList", "PublicationStatus", "Publisher", "ReferenceList", "ReportNumber", "Sections",
        "SpaceFlightMission", "VolumeTitle",
    )
}  # fmt: skip


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


def _lift_authors(raw: bytes, draft: Draft) -> bool:
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


def _lift_journal(raw: bytes, draft: Draft) -> bool:
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
    _element("AuthorList", _lift_authors, ' CompleteYN="Y"'),
    _element("PublicationTypeList", _extend("article_types", _type_names)),
    _element("MedlineJournalInfo", _lift_journal),
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
