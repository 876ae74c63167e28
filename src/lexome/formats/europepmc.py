"""Europe PMC JSON: responses of the search service, and files of getpapers, where every value is a list.

Inline markup in titles and abstracts (`<i>`, `<sup>`) is removed; line and paragraph breaks (`<br>`, `<p>`) become
a space. The headings of a structured abstract (`<h4>`) become the sections of its passages. Languages are
three-letter codes, as in PubMed: "eng", not "en".
"""

import html
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from lexome.document import Document, Passage, lay_out
from lexome.errors import BadDocument
from lexome.formats.citation import fold, more_precise, notice_kind, orcid, parse_free_date, pmcid, registry_number
from lexome.formats.json_file import accept, elements, mapping, members, missing_list, note_unknown, string
from lexome.formats.streams import Source
from lexome.formats.tally import Tally
from lexome.metadata import Author, Journal, MeshHeading, MeshQualifier, Metadata, Notice, Substance

_HEADING = re.compile(r"<h[1-6]>([^<]*(?:<(?!/?h[1-6]>)[^<]*)*)</h[1-6]>", re.IGNORECASE)
# Only the tags that Europe PMC uses: "p<a and b>c" has no markup.
_INLINE = re.compile(r"</?(?:i|b|u|em|strong|sub|sup|sc|italic|bold|underline)\s*/?>", re.IGNORECASE)
_BREAK = re.compile(r"</?(?:h[1-6]|p|br|div|title|sec|list|list-item|ul|ol|li)\s*/?>", re.IGNORECASE)
_REFERENCE = re.compile(r"&#?\w{1,32};")
_ISO = re.compile(r"\d{4}-\d\d-\d\d")
_SHORT_NAME = re.compile(r"(.+) ([A-Z]{1,4})")

_RECORD = frozenset(
    (
        "id", "source", "pmid", "pmcid", "doi", "DOI", "title", "abstractText", "language", "license", "pubTypeList",
        "pubType", "versionNumber", "affiliation", "authorList", "authorString", "journalInfo", "journalTitle",
        "journalVolume", "journalIssn", "issue", "pageInfo", "pubYear", "firstPublicationDate",
        "electronicPublicationDate", "dateOfRevision", "keywordList", "meshHeadingList", "chemicalList",
        "commentCorrectionList",
    )
)  # fmt: skip
# The fields of a search response other than its results.
_RESPONSE = frozenset({"version", "hitCount", "nextCursorMark", "nextPageUrl", "request"})


def read(source: Source, *, tally: Tally) -> Iterator[Document]:
    """One document per result: title and abstract, with the section headings of the abstract.

    The id is the PMID, else the PMC id, else Europe PMC's own.
    """
    for number, record in enumerate(_results(source, tally), 1):
        yield from accept(tally, partial(_document, record, tally), record, where=f"{source.name}, result {number}")


def _results(source: Source, tally: Tally) -> Iterator[Any]:
    """The results in a list, in a search response, or in a file that is a single result."""
    if source.head().removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"[":
        yield from elements(source)
        return
    fields: dict[str, Any] = {}
    is_response = False
    for name, value in members(source):
        if name != "resultList":
            fields[name] = value
            continue
        results = value.get("result") if isinstance(value, dict) else None
        if not isinstance(results, list):
            raise missing_list(source, value, "result", "a list of results in 'resultList'")
        is_response = True
        yield from results
    if is_response:
        note_unknown(fields, _RESPONSE, tally)
    elif "id" in fields or "pmid" in fields:
        yield fields
    else:
        raise missing_list(source, fields, "resultList", "Europe PMC")


def _document(value: object, tally: Tally) -> Document:
    record = mapping(value, "a result")
    pmid, pmc = _text(record, "pmid"), _text(record, "pmcid")
    pmc = pmcid(pmc) if pmc else None
    id_ = pmid or pmc or _text(record, "id")
    if not id_:
        raise BadDocument("no_id", "the result has no pmid, pmcid or id. Download it again.")
    note_unknown(record, _RECORD, tally)
    return Document(id_, _passages(record, tally), meta=_metadata(record, pmid, pmc, tally))


def _one(record: dict[str, Any], key: str) -> Any:
    """The value of a field, which getpapers wraps in a list."""
    value = record.get(key)
    if not isinstance(value, list):
        return value
    if len(value) > 1:
        raise BadDocument("bad_field", f"{key!r} has {len(value)} values; expected one", value=key)
    return value[0] if value else None


def _text(record: dict[str, Any], key: str) -> str | None:
    value = _one(record, key)
    if isinstance(value, dict):
        # getpapers writes an XML element with attributes so; the service has a value and a type.
        value = value.get("_", value.get("value"))
    text = string({key: value}, key)
    return fold(text) or None if text is not None else None


def _inner(record: dict[str, Any], key: str) -> dict[str, Any]:
    value = _one(record, key)
    return mapping(value, key) if value not in (None, "") else {}


def _list(record: dict[str, Any], outer: str, key: str) -> list[Any]:
    """The items of a list wrapped in an object: {"keywordList": {"keyword": [...]}}."""
    value = _inner(record, outer).get(key)
    return value if isinstance(value, list) else [] if value is None else [value]


def _texts(record: dict[str, Any], outer: str, key: str) -> tuple[str, ...]:
    texts = (_text({key: item}, key) for item in _list(record, outer, key))
    return tuple(text for text in texts if text)


def _objects(record: dict[str, Any], outer: str, key: str) -> list[dict[str, Any]]:
    return [mapping(item, key) for item in _list(record, outer, key)]


def _plain(text: str) -> str:
    """The text without markup and character references."""
    if "<" in text:
        # fold replaces the line break and the blanks around it by one space.
        text = _BREAK.sub("\n", _INLINE.sub("", text))
    return fold(_REFERENCE.sub(lambda match: html.unescape(match[0]), text) if "&" in text else text)


def _passages(record: dict[str, Any], tally: Tally) -> tuple[Passage, ...]:
    passages: list[tuple[str, str, tuple[str, ...], str | None, str | None]] = []
    if title := _plain(_text(record, "title") or ""):
        passages.append(("title", title, (), None, None))
    # The text before the first heading, then headings and texts alternating.
    before, *parts = _HEADING.split(_text(record, "abstractText") or "")
    for label, text in zip(("", *parts[::2]), (before, *parts[1::2]), strict=True):
        label, text = _plain(label), _plain(text)
        if text:
            passages.append(("abstract", text, (label,) if label else (), None, None))
        elif label:
            tally.note("heading without text ignored")
    return lay_out(passages)


def _metadata(record: dict[str, Any], pmid: str | None, pmc: str | None, tally: Tally) -> Metadata:
    id_ = _text(record, "id")
    version = _text(record, "versionNumber") or ""
    types = _texts(record, "pubTypeList", "pubType") or tuple((_text(record, "pubType") or "").split("; "))
    language = _text(record, "language")
    return Metadata(
        pmid=pmid,
        pmcid=pmc,
        doi=_text(record, "DOI") or _text(record, "doi"),
        other_ids=(f"{(_text(record, 'source') or 'europepmc').lower()}:{id_}",)
        if id_ not in (None, pmid, pmc)
        else (),
        version=int(version) if version.isdecimal() and len(version) < 10 else None,
        article_types=tuple(filter(None, types)),
        languages=(language,) if language else (),
        journal=_journal(record),
        published=_publication_date(record, tally),
        revised=_date(record, "dateOfRevision", tally),
        authors=_authors(record, tally),
        mesh=tuple(
            MeshHeading(
                *_mesh_name(heading, "descriptorName"),
                tuple(
                    MeshQualifier(*_mesh_name(part, "qualifierName"))
                    for part in _objects(heading, "meshQualifierList", "meshQualifier")
                ),
            )
            for heading in _objects(record, "meshHeadingList", "meshHeading")
        ),
        substances=tuple(
            Substance(_text(chemical, "name") or "", None, registry_number(_text(chemical, "registryNumber")))
            for chemical in _objects(record, "chemicalList", "chemical")
        ),
        keywords=_texts(record, "keywordList", "keyword"),
        notices=tuple(
            Notice(
                notice_kind(_text(link, "type") or "unknown"),
                _text(link, "id") if _text(link, "source") == "MED" else None,
                _text(link, "reference"),
            )
            for link in _objects(record, "commentCorrectionList", "commentCorrection")
        ),
        license=_text(record, "license"),
    )


def _journal(record: dict[str, Any]) -> Journal | None:
    """The journal, from a full result or a short one."""
    issue = _inner(record, "journalInfo")
    about = _inner(issue, "journal")
    numbers = [_text(about, key) for key in ("ISSN", "issn", "ESSN", "essn")]
    numbers += (_text(record, "journalIssn") or "").split("; ")
    journal = Journal(
        _text(about, "title") or _text(record, "journalTitle"),
        _text(about, "ISOAbbreviation") or _text(about, "isoabbreviation") or _text(about, "medlineAbbreviation"),
        tuple(dict.fromkeys(number for number in numbers if number)),
        _text(about, "NLMid") or _text(about, "nlmid"),
        _text(issue, "volume") or _text(record, "journalVolume"),
        _text(issue, "issue") or _text(record, "issue"),
        _text(record, "pageInfo"),
    )
    return journal if journal != Journal() else None


def _publication_date(record: dict[str, Any], tally: Tally) -> str | None:
    """The issue's date; printPublicationDate is ignored, because it turns 2016 into 2016-01-01."""
    issue = _date(_inner(record, "journalInfo"), "dateOfPublication", tally)
    date = more_precise(issue, _date(record, "electronicPublicationDate", tally))
    return date or _date(record, "firstPublicationDate", tally) or _date(record, "pubYear", tally)


def _date(record: dict[str, Any], key: str, tally: Tally) -> str | None:
    text = _text(record, key)
    if text is None:
        return None
    date = text if _ISO.fullmatch(text) else parse_free_date(text)
    if date is None:
        tally.note("unparsable date ignored")
    return date


def _authors(record: dict[str, Any], tally: Tally) -> tuple[Author, ...]:
    people = _objects(record, "authorList", "author")
    if people:
        authors, affiliation = [_author(person, tally) for person in people], _text(record, "affiliation")
        # In older citations, the result's affiliation is the first author's.
        if affiliation is not None and not any(author.affiliations for author in authors):
            authors[0] = replace(authors[0], affiliations=(affiliation,))
        elif affiliation is not None and affiliation not in authors[0].affiliations:
            tally.note("field 'affiliation' ignored")
        return tuple(authors)
    # A short result has one string: "Doe J, Roe RR, Zorblin Study Group."
    names = (_text(record, "authorString") or "").removesuffix(".").split(", ")
    return tuple(map(_author_from_name, filter(None, names)))


def _author(person: dict[str, Any], tally: Tally) -> Author:
    id_ = _text(person, "authorId")
    orcid_ = orcid(id_) if id_ else None
    if id_ and orcid_ is None:
        tally.note("author's Identifier ignored")
    details = _objects(person, "authorAffiliationDetailsList", "authorAffiliation")
    affiliations = [_text(detail, "affiliation") for detail in details] or [_text(person, "affiliation")]
    author = Author(
        _text(person, "lastName"),
        _text(person, "firstName"),
        _text(person, "initials"),
        _text(person, "collectiveName"),
        orcid_,
        tuple(text for text in affiliations if text),
    )
    if author.family or author.collective:
        return author
    return _author_from_name(_text(person, "fullName") or "")


def _author_from_name(name: str) -> Author:
    """A person if the name ends in initials, else a group."""
    match = _SHORT_NAME.fullmatch(name)
    return Author(family=match[1], initials=match[2]) if match is not None else Author(collective=name or None)


def _mesh_name(record: dict[str, Any], key: str) -> tuple[str, None, bool]:
    """A MeSH name without id, and whether it is a main topic."""
    return _text(record, key) or "", None, _text(record, "majorTopic_YN") == "Y"
