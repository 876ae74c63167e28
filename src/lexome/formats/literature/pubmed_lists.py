"""What of a PubMed record is read from its bytes, so that the parser has less to do.

Most elements of a citation are in a few lists: authors, MeSH headings, substances, references, the dates
of its history. Headings and substances come again and again, so each is looked up by its bytes; authors
are matched all at once; what has no place in a document is passed over. Only the plain form that NLM
writes is taken so. Whatever looks different stays in the record for the parser.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

from lexome.formats.literature.citation import iso_date, orcid, registry_number
from lexome.formats.literature.pubmed_fields import Draft
from lexome.metadata import Author, MeshHeading, MeshQualifier, Substance

Item = TypeVar("Item")

_TEXT = r"(?! )([^<>\x00-\x1f]+)(?<! )"
_ATTRIBUTES = r'((?: [A-Za-z]+="[^"<>&]*")*)'
_ATTRIBUTE = re.compile(r'([A-Za-z]+)="([^"]*)"')
_DATE = re.compile(r"\s*<Year>(\d{4})</Year>\s*<Month>(\d\d)</Month>\s*<Day>(\d\d)</Day>\s*", re.ASCII)
_TYPE = re.compile(rf'<PublicationType(?: UI="[^"<>&]*")?>{_TEXT}</PublicationType>')
_FIELD = re.compile(rf"<(\w+)>{_TEXT}</\1>")
_QUALIFIER = rf"<QualifierName{_ATTRIBUTES}>{_TEXT}</QualifierName>\s*"
_QUALIFIERS = re.compile(_QUALIFIER)
_HEADING = re.compile(
    rf"\s*<MeshHeading>\s*<DescriptorName{_ATTRIBUTES}>{_TEXT}</DescriptorName>\s*(?P<rest>(?:{_QUALIFIER})*)"
)
_SUBSTANCE = re.compile(
    rf"\s*<Chemical>\s*<RegistryNumber>{_TEXT}</RegistryNumber>\s*"
    rf"<NameOfSubstance{_ATTRIBUTES}>{_TEXT}</NameOfSubstance>\s*"
)
_AFFILIATION = rf"<AffiliationInfo>\s*<Affiliation>{_TEXT}</Affiliation>\s*</AffiliationInfo>\s*"
_AFFILIATIONS = re.compile(_AFFILIATION)
_AUTHOR = re.compile(
    rf'<Author ValidYN="Y">\s*<LastName>{_TEXT}</LastName>\s*(?:<ForeName>{_TEXT}</ForeName>\s*)?'
    rf'(?:<Initials>{_TEXT}</Initials>\s*)?(?:<Identifier Source="ORCID">{_TEXT}</Identifier>\s*)?'
    rf"((?:{_AFFILIATION.replace('([', '(?:[')})*)</Author>"
)


def lift(raw: bytes, draft: Draft) -> bytes:
    """The record without its plain lists; what was in them goes to the draft."""
    # Inside a comment or CDATA a tag is no tag; both are rare, so such a record goes to the parser whole.
    if (b"!" in raw and b"<!" in raw) or (b"?" in raw and b"<?" in raw):
        return raw
    kept: list[bytes] = []
    at = 0
    for opening, closing, take in _LISTS:
        begin = raw.find(opening, at)
        end = raw.find(closing, begin) if begin >= 0 else -1
        if end >= 0 and take(raw[begin + len(opening) : end], draft):
            kept.append(raw[at:begin])
            at = end + len(closing)
    kept.append(raw[at:])
    return b"".join(kept)


def _pass_over(tag: str) -> Callable[[bytes, Draft], bool]:
    def take(raw: bytes, draft: Draft) -> bool:
        draft.notes.append(f"{tag} ignored")
        return True

    return take


def _authors(raw: bytes, draft: Draft) -> bool:
    text = _decoded(raw)
    if text is None:
        return False
    # The stretches between authors, then the five groups of each, in turn.
    parts = _AUTHOR.split(text)
    if "".join(parts[::6]).strip():
        return False
    for at in range(1, len(parts), 6):
        family, given, initials, known, places = parts[at : at + 5]
        known = orcid(known) if known else None
        draft.authors.append(
            Author(family, given, initials, None, known, tuple(_AFFILIATIONS.findall(places)) if places else ())
        )
    return True


def _revised(raw: bytes, draft: Draft) -> bool:
    draft.revised = _date(raw)
    return draft.revised is not None


def _types(raw: bytes, draft: Draft) -> bool:
    names = _type_names(raw)
    draft.article_types += names or ()
    return names is not None


def _journal(raw: bytes, draft: Draft) -> bool:
    draft.journal_info = _journal_fields(raw)
    return draft.journal_info is not None


def _headings(raw: bytes, draft: Draft) -> bool:
    return _looked_up(raw, b"</MeshHeading>", _heading, draft.mesh)


def _substances(raw: bytes, draft: Draft) -> bool:
    return _looked_up(raw, b"</Chemical>", _substance, draft.substances)


def _looked_up(raw: bytes, item_end: bytes, read: Callable[[bytes], Item | None], known: list[Item]) -> bool:
    """Add the items of a list to those known; False, and none is added, where one is not plain."""
    *lumps, rest = raw.split(item_end)
    items = [item for lump in lumps if (item := read(lump)) is not None]
    if len(items) < len(lumps) or rest.strip():
        return False
    known += items
    return True


@lru_cache(1 << 15)
def _heading(raw: bytes) -> MeshHeading | None:
    """The heading in these bytes, or None where they are not plain."""
    text = _decoded(raw)
    found = _HEADING.fullmatch(text) if text is not None else None
    if found is None:
        return None
    qualifiers = [MeshQualifier(*_named(*parts)) for parts in _QUALIFIERS.findall(found["rest"])]
    return MeshHeading(*_named(found[1], found[2]), tuple(qualifiers))


@lru_cache(1 << 14)
def _substance(raw: bytes) -> Substance | None:
    """The substance in these bytes, or None where they are not plain."""
    text = _decoded(raw)
    found = _SUBSTANCE.fullmatch(text) if text is not None else None
    if found is None:
        return None
    name, id_, _ = _named(found[2], found[3])
    return Substance(name, id_, registry_number(found[1]))


@lru_cache(1 << 13)
def _date(raw: bytes) -> str | None:
    found = _DATE.fullmatch(raw.decode(errors="replace"))
    return iso_date(*found.groups()) if found is not None else None


@lru_cache(1 << 13)
def _type_names(raw: bytes) -> tuple[str, ...] | None:
    text = _decoded(raw)
    parts = _TYPE.split(text) if text is not None else ["?"]
    return tuple(parts[1::2]) if not "".join(parts[::2]).strip() else None


@lru_cache(1 << 14)
def _journal_fields(raw: bytes) -> dict[str, str] | None:
    text = _decoded(raw)
    parts = _FIELD.split(text) if text is not None else ["?"]
    return dict(zip(parts[1::3], parts[2::3], strict=True)) if not "".join(parts[::3]).strip() else None


def _decoded(raw: bytes) -> str | None:
    """The text of some bytes with &amp; put in, or None where there is any other entity or no UTF-8."""
    if b"&" in raw:
        if raw.count(b"&") > raw.count(b"&amp;"):
            return None
        raw = raw.replace(b"&amp;", b"&")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def _named(attributes: str, text: str) -> tuple[str, str | None, bool]:
    """A name, its id as a CURIE, and whether it is a main topic."""
    known = dict(_ATTRIBUTE.findall(attributes))
    id_ = known.get("UI")
    return text, f"mesh:{id_}" if id_ else None, known.get("MajorTopicYN") == "Y"


# In the order of the schema; one that stands elsewhere is left to the parser.
_LISTS: tuple[tuple[bytes, bytes, Callable[[bytes, Draft], bool]], ...] = (
    (b"<DateCreated>", b"</DateCreated>", _pass_over("DateCreated")),
    (b"<DateCompleted>", b"</DateCompleted>", _pass_over("DateCompleted")),
    (b"<DateRevised>", b"</DateRevised>", _revised),
    (b'<AuthorList CompleteYN="Y">', b"</AuthorList>", _authors),
    (b"<PublicationTypeList>", b"</PublicationTypeList>", _types),
    (b"<MedlineJournalInfo>", b"</MedlineJournalInfo>", _journal),
    (b"<ChemicalList>", b"</ChemicalList>", _substances),
    (b"<MeshHeadingList>", b"</MeshHeadingList>", _headings),
    (b"<History>", b"</History>", _pass_over("History")),
    (b"<ReferenceList>", b"</ReferenceList>", _pass_over("ReferenceList")),
)
