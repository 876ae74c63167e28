"""Element handlers: what each element of a PubMed citation adds to the draft of the document.

Tables map tags to functions of the element and the draft; elements in no table are counted as ignored. Lists
(authors, headings) are walked flat with `iter`: an iterator per small element would cost more than the rest.
"""

from collections.abc import Callable, Iterable, Mapping

from lxml import etree

from lexome.errors import BadDocument
from lexome.formats.citation import BLANKS, fold, iso_date, orcid, parse_free_date, pmcid, registry_number
from lexome.metadata import Author, MeshHeading, MeshQualifier, Notice, Substance

Element = etree._Element

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
        names = [_named(part) for part in heading.iter("DescriptorName", "QualifierName")]
        if names:
            draft.mesh.append(MeshHeading(*names[0], tuple(MeshQualifier(*name) for name in names[1:])))


def _named(element: Element) -> tuple[str, str | None, bool]:
    """A MeSH name, its id as a CURIE, and whether it is a main topic."""
    id_ = element.get("UI")
    return text_of(element), f"mesh:{id_}" if id_ else None, element.get("MajorTopicYN") == "Y"


def _substances(element: Element, draft: Draft) -> None:
    for chemical in element:
        parts = {part.tag: part for part in chemical}
        if "NameOfSubstance" in parts:
            name, id_, _ = _named(parts["NameOfSubstance"])
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
        MeshHeading(*_named(part)) for part in element.iter("SupplMeshName")
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
