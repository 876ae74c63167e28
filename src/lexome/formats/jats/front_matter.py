"""The metadata of a JATS article: ids, journal, dates, authors with affiliations, licence, related articles."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from lexome.formats.citation import iso_date, orcid, pmcid
from lexome.formats.jats.inline import Element, Inline, fold, skip_note
from lexome.formats.tally import Tally
from lexome.metadata import Author, Journal, Metadata, Notice

_HREF = "{http://www.w3.org/1999/xlink}href"
_LICENCE_REF = "{http://www.niso.org/schemas/ali/1.0/}license_ref"

# PubMed's kinds of notices for JATS's related-article types.
_NOTICES = {
    "retraction-forward": "RetractionIn", "retracted-article": "RetractionOf",
    "partial-retraction": "PartialRetractionOf", "correction-forward": "ErratumIn", "corrected-article": "ErratumFor",
    "concern": "ExpressionOfConcernIn", "expression-of-concern": "ExpressionOfConcernIn",
    "object-of-concern": "ExpressionOfConcernFor", "commentary": "CommentIn", "commentary-article": "CommentOn",
    "updated-article": "UpdateOf", "update": "UpdateIn", "republication": "RepublishedIn",
    "republished-article": "RepublishedFrom", "preprint": "PreprintOf",
}  # fmt: skip
_NAMES = frozenset(("name", "string-name", "name-alternatives", "collab", "collab-alternatives"))
_NO_JOURNAL = Journal()
_PMC_IDS = frozenset(("pmc", "pmcid"))
_KEYWORDS = ("kwd", "compound-kwd", "unstructured-kwd-group")
# Dates of first publication; the date of a collection is its year or issue.
_PUBLISHED = frozenset(("epub", "ppub", "epub-ppub", "pub", "fpub"))
_NOT_PUBLISHED = frozenset(("pmc-release", "nihms-submitted", "epreprint", "preprint", "retracted", "corrected"))
_SKIPPED = frozenset(
    (
        *("history", "pub-history", "counts", "custom-meta-group", "custom-meta-wrap", "self-uri", "product"),
        *("conference", "article-version", "article-version-alternatives", "supplement", "related-object", "isbn"),
        *("volume-id", "volume-series", "issue-id", "issue-title", "issue-title-group", "issue-sponsor", "issue-part"),
    )
)
_READ = frozenset(
    (
        *("article-id", "article-categories", "title-group", "contrib-group", "aff", "aff-alternatives", "pub-date"),
        *("author-notes", "volume", "issue", "fpage", "lpage", "page-range", "elocation-id", "permissions", "abstract"),
        *("trans-abstract", "kwd-group", "funding-group", "supplementary-material", "related-article", "notes"),
        *("copyright-statement", "copyright-year", "license", "copyright-holder", "pub-date-not-available"),
    )
)

# The children of an article-meta or front-stub, by tag.
Parts = Mapping[object, list[Element]]


def parts_of(meta: Element) -> Parts:
    """The children of a front by tag, collected once because searching by name is slow."""
    parts: defaultdict[object, list[Element]] = defaultdict(list)
    for child in meta:
        parts[child.tag].append(child)
    return parts


def metadata(article: Element, parts: Parts, inline: Inline, tally: Tally) -> Metadata:
    """The metadata in the parts of an article's front."""
    for tag, children in parts.items():
        if tag not in _READ:
            known = tag in _SKIPPED
            tally.note(skip_note(children[0]) if known else "unknown front-matter element skipped", len(children))
    ids, others = _ids(parts)
    version = ids.get("pmc-ver", "").partition(".")[2].rpartition(".")[2]
    # Before version 2 of the DTD, permissions had no wrapper element.
    rights = parts_of(parts["permissions"][0]) if "permissions" in parts else parts
    type_ = article.get("article-type") or article.get("response-type")
    keyword_groups = (group for group in parts.get("kwd-group", ()) if not is_abbreviations(group))
    keywords = (word for group in keyword_groups for word in group.iter(*_KEYWORDS))
    return Metadata(
        pmid=ids.get("pmid"),
        pmcid=ids.get("pmc"),
        doi=ids.get("doi"),
        other_ids=others,
        # The number after the dot in PMC123.2.
        version=int(version) if version.isascii() and version.isdecimal() and len(version) < 6 else None,
        article_types=(type_,) if type_ else (),
        journal=_journal(article.find("front/journal-meta"), parts, inline),
        published=_published(parts),
        authors=tuple(_authors(parts, inline, tally)),
        keywords=_unique(map(inline.line, keywords)),
        subjects=_unique(map(inline.line, _each(parts, "article-categories", "subject"))),
        notices=tuple(_notice(related, inline) for related in parts.get("related-article", ())),
        licence=" ".join(filter(None, _licence_texts(rights, inline))) or None,
        licence_url=_licence_url(rights),
        copyright=_copyright(rights, inline),
    )


def _line(parts: Parts, tag: str, inline: Inline) -> str | None:
    """The text of the first part with this tag."""
    return inline.line(parts[tag][0]) or None if tag in parts else None


def _unique(texts: Iterator[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in texts if text))


def _each(parts: Parts, parent: str, *tags: str) -> Iterator[Element]:
    for element in parts.get(parent, ()):
        yield from element.iter(*tags)


def _ids(parts: Parts) -> tuple[dict[str, str], tuple[str, ...]]:
    """The ids with a Metadata field, and the others as "type:value"."""
    ids: dict[str, str] = {}
    others: list[str] = []
    for element in parts.get("article-id", ()):
        kind, value = element.get("pub-id-type") or "other", fold(element.text or "")
        if not value:
            continue
        if kind in _PMC_IDS:
            kind, value = "pmc", pmcid(value)
        if kind in ("pmid", "pmc", "doi", "pmc-ver") and ids.setdefault(kind, value) == value:
            continue
        others.append(f"{kind}:{value}")
    return ids, tuple(others)


def _journal(journal: Element | None, parts: Parts, inline: Inline) -> Journal | None:
    named: dict[str, str] = {}
    issns: list[str] = []
    names = ("journal-title", "abbrev-journal-title", "journal-id", "issn")
    for element in journal.iter(*names) if journal is not None else ():
        text = inline.line(element)
        if element.tag == "issn":
            issns.append(text)
        elif text:
            named.setdefault(element.get("journal-id-type") or str(element.tag), text)
    first, last = _line(parts, "fpage", inline), _line(parts, "lpage", inline)
    location = _line(parts, "elocation-id", inline) or _line(parts, "page-range", inline)
    result = Journal(
        title=named.get("journal-title"),
        abbreviation=named.get("iso-abbrev") or named.get("nlm-ta") or named.get("abbrev-journal-title"),
        issn=_unique(iter(issns)),
        nlm_id=named.get("nlm-journal-id"),
        volume=_line(parts, "volume", inline),
        issue=_line(parts, "issue", inline),
        pages=f"{first}-{last}" if first and last and first != last else first or location,
    )
    return result if result != _NO_JOURNAL else None


def _published(parts: Parts) -> str | None:
    """The earliest print or electronic publication date; else the collection's, else PMC's."""
    dates: list[tuple[int, str, str]] = []
    for element in parts.get("pub-date", ()):
        kind = element.get("pub-type") or element.get("date-type") or ""
        fields = {child.tag: fold(child.text or "") for child in element}
        iso_parts = (element.get("iso-8601-date") or "")[:10].split("-")
        if "year" in fields:
            date = iso_date(fields["year"], fields.get("month"), fields.get("day"))
        else:
            date = iso_date(*iso_parts) if len(iso_parts) <= 3 else None
        if date is not None:
            rank = 0 if kind in _PUBLISHED else 2 if kind in _NOT_PUBLISHED else 1
            # 2021-03-09 sorts before 2021, because it is more precise.
            dates.append((rank, date + "-99-99"[len(date) - 4 :], date))
    return min(dates)[2] if dates else None


def _authors(parts: Parts, inline: Inline, tally: Tally) -> Iterator[Author]:
    groups = parts.get("contrib-group", ())
    by_id = dict(_affiliations_by_id(parts, inline))
    # If no author refers to an affiliation, those next to the author list belong to all.
    has_references = any(xref.get("ref-type") == "aff" for group in groups for xref in group.iter("xref"))
    common = [] if has_references else [_affiliation(aff, inline) for aff in parts.get("aff", ())]
    for group in groups:
        shared = [_affiliation(aff, inline) for aff in group.iterchildren("aff")] + common
        for contrib in group.iterchildren("contrib"):
            if (contrib.get("contrib-type") or "author").lower() != "author":
                tally.note("contributor other than an author skipped")
                continue
            if (author := _author(contrib, by_id, shared, inline)) is not None:
                yield author


def _affiliations_by_id(parts: Parts, inline: Inline) -> Iterator[tuple[str, str]]:
    """Id and text of each affiliation; of alternative forms, the first."""
    outside = [*parts.get("aff", ()), *_each(parts, "aff-alternatives", "aff")]
    for aff in [*outside, *_each(parts, "contrib-group", "aff")]:
        parent = aff.getparent()
        if parent is not None and parent.tag == "aff-alternatives":
            if aff is not next(parent.iterchildren("aff")):
                continue
            if id_ := parent.get("id"):
                yield id_, _affiliation(aff, inline)
        if id_ := aff.get("id"):
            yield id_, _affiliation(aff, inline)


def _affiliation(aff: Element, inline: Inline) -> str:
    """The affiliation on one line, without the mark that authors refer to."""
    text = inline.spaced(aff, ", ")
    mark = aff[0] if len(aff) else None
    if mark is None or mark.tag not in ("label", "sup") or (aff.text or "").strip():
        return text
    return text.removeprefix(inline.line(mark)).lstrip(", ")


def _author(contrib: Element, by_id: dict[str, str], shared: list[str], inline: Inline) -> Author | None:
    """A person or group with its own affiliations, by reference or inside, else the shared ones."""
    name = collective = orcid_ = None
    affiliations: list[str] = []
    for child in contrib:
        tag = child.tag
        if tag == "xref":
            if child.get("ref-type") == "aff":
                affiliations += (by_id.get(rid, "") for rid in child.get("rid", "").split())
        elif tag == "aff":
            affiliations.append(_affiliation(child, inline))
        elif tag in _NAMES:
            first = next(iter(child), None) if tag in ("name-alternatives", "collab-alternatives") else child
            if tag in ("collab", "collab-alternatives"):
                collective = collective if collective is not None else first
            else:
                name = name if name is not None else first
        elif tag in ("contrib-id", "uri", "ext-link"):
            link = child.text or child.get(_HREF) or ""
            if child.get("contrib-id-type") == "orcid" or "orcid.org" in link:
                orcid_ = orcid_ or orcid(link)
    unique = _unique(iter(affiliations or shared))
    if name is not None:
        parts = {child.tag: child for child in reversed(name)}
        surname, given, suffix = (parts.get(tag) for tag in ("surname", "given-names", "suffix"))
        family = inline.line(name if surname is None and given is None else surname)
        return Author(
            f"{family} {inline.line(suffix)}".strip() or None,
            inline.line(given) or None,
            given.get("initials") if given is not None else None,
            orcid=orcid_,
            affiliations=unique,
        )
    if collective is not None:
        return Author(collective=inline.spaced(collective) or None, affiliations=unique)
    return None


def is_abbreviations(group: Element) -> bool:
    """True for a keyword group that lists abbreviations: text, not keywords."""
    return (group.get("kwd-group-type") or "").lower().startswith("abbr")


def _notice(related: Element, inline: Inline) -> Notice:
    kind = related.get("related-article-type") or "related-article"
    href, scheme = related.get(_HREF), related.get("ext-link-type") or ""
    pmid = next((fold(id_.text or "") for id_ in related.iter("pub-id") if id_.get("pub-id-type") == "pmid"), None)
    if href and scheme in ("pubmed", "pmid"):
        pmid, href = pmid or href, None
    if href and (scheme == "doi" or href.startswith("10.")):
        href = f"doi:{href.removeprefix('doi:')}"
    return Notice(_NOTICES.get(kind, kind), pmid or None, inline.spaced(related) or href or None)


def _licence_texts(rights: Parts, inline: Inline) -> Iterator[str]:
    for licence in rights.get("license", ()):
        paragraphs = [child for child in licence if child.tag in ("license-p", "p")]
        if paragraphs:
            yield from map(inline.line, paragraphs)
        else:
            yield fold(licence.text or "") or licence.get("license-type") or ""


def _licence_url(rights: Parts) -> str | None:
    """The URL of the license element, else the first in its text, preferably of Creative Commons."""
    hrefs = (href for licence in rights.get("license", ()) if (href := licence.get(_HREF)))
    stated = (fold(ref.text or "") for ref in _each(rights, "license", _LICENCE_REF, "license_ref"))
    if url := next(hrefs, None) or next(stated, None):
        return url
    links = [link.get(_HREF) or fold(link.text or "") for link in _each(rights, "license", "ext-link", "uri")]
    addresses = [link for link in links if link.startswith("http")]
    return next((link for link in addresses if "creativecommons.org" in link), next(iter(addresses), None))


def _copyright(rights: Parts, inline: Inline) -> str | None:
    year_and_holder = (_line(rights, tag, inline) for tag in ("copyright-year", "copyright-holder"))
    return _line(rights, "copyright-statement", inline) or " ".join(filter(None, year_and_holder)) or None
