"""The metadata of a JATS article: ids, journal, dates, authors with affiliations, licence, related articles."""

from collections.abc import Iterator
from functools import partial

from lexome.formats.citation import iso_date, orcid
from lexome.formats.jats_text import Element, Inline, fold, left_out
from lexome.formats.tally import Tally
from lexome.metadata import Author, Journal, Metadata, Notice

_HREF = "{http://www.w3.org/1999/xlink}href"
_LICENCE_REF = "{http://www.niso.org/schemas/ali/1.0/}license_ref"

# PubMed's words for what JATS calls a related article.
_NOTICES = {
    "retraction-forward": "RetractionIn",
    "retracted-article": "RetractionOf",
    "partial-retraction": "PartialRetractionOf",
    "correction-forward": "ErratumIn",
    "corrected-article": "ErratumFor",
    "concern": "ExpressionOfConcernIn",
    "expression-of-concern": "ExpressionOfConcernIn",
    "object-of-concern": "ExpressionOfConcernFor",
    "commentary": "CommentIn",
    "commentary-article": "CommentOn",
    "updated-article": "UpdateOf",
    "update": "UpdateIn",
    "republication": "RepublishedIn",
    "republished-article": "RepublishedFrom",
    "preprint": "PreprintOf",
}
_PMC_IDS = frozenset(("pmc", "pmcid"))
# The day something could first be read; a collection's date is its year or issue, often another one.
_PUBLISHED = frozenset(("epub", "ppub", "epub-ppub", "pub", "fpub"))
_NOT_PUBLISHED = frozenset(("pmc-release", "nihms-submitted", "epreprint", "preprint", "retracted", "corrected"))
_LEFT_OUT = frozenset(
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


def metadata(article: Element, meta: Element, inline: Inline, tally: Tally) -> Metadata:
    """What an article's front says, `meta` being its article-meta or front-stub."""
    for child in meta:
        if child.tag in _LEFT_OUT:
            tally.note(left_out(child))
        elif child.tag not in _READ:
            tally.note("unknown element of the front left out")
    ids, others = _ids(meta)
    rights = meta.find("permissions")
    rights = rights if rights is not None else meta
    type_ = article.get("article-type") or article.get("response-type")
    return Metadata(
        pmid=ids.get("pmid"),
        pmcid=ids.get("pmc"),
        doi=ids.get("doi"),
        other_ids=others,
        version=_version(ids.get("pmc-ver")),
        article_types=(type_,) if type_ else (),
        journal=_journal(article.find("front/journal-meta"), meta, inline),
        published=_published(meta),
        authors=tuple(_authors(meta, inline, tally)),
        keywords=_unique(inline.line(word) for word in _keywords(meta)),
        subjects=_unique(inline.line(subject) for subject in _each(meta, "article-categories", "subject")),
        notices=tuple(_notice(related, inline) for related in meta.findall("related-article")),
        licence=" ".join(text for text in _licence_texts(rights, inline) if text) or None,
        licence_url=_licence_url(rights),
        copyright=_copyright(rights, inline),
    )


def _unique(texts: Iterator[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in texts if text))


def _each(meta: Element, parent: str, tag: str) -> Iterator[Element]:
    for found in meta.findall(parent):
        yield from found.iter(tag)


def _ids(meta: Element) -> tuple[dict[str, str], tuple[str, ...]]:
    """The ids that have a field of their own, and the others as type:value."""
    ids: dict[str, str] = {}
    others: list[str] = []
    for element in meta.findall("article-id"):
        kind, value = element.get("pub-id-type") or "other", fold(element.text or "")
        if not value:
            continue
        if kind in _PMC_IDS:
            kind, value = "pmc", value if value.upper().startswith("PMC") else f"PMC{value}"
        if kind in ("pmid", "pmc", "doi", "pmc-ver") and kind not in ids:
            ids[kind] = value
        else:
            others.append(f"{kind}:{value}")
    return ids, tuple(others)


def _version(text: str | None) -> int | None:
    """The number after the dot of a PMC version such as PMC123.2."""
    number = (text or "").rpartition(".")[2]
    return int(number) if number.isascii() and number.isdecimal() and len(number) < 6 and text != number else None


def _journal(journal: Element | None, meta: Element, inline: Inline) -> Journal | None:
    named: dict[str, str] = {}
    issns: list[str] = []
    for element in (
        journal.iter("journal-title", "abbrev-journal-title", "journal-id", "issn") if journal is not None else ()
    ):
        text = inline.line(element)
        if element.tag == "issn":
            issns.append(text)
        elif text:
            named.setdefault(element.get("journal-id-type") or str(element.tag), text)
    made = Journal(
        title=named.get("journal-title"),
        abbreviation=named.get("iso-abbrev") or named.get("nlm-ta") or named.get("abbrev-journal-title"),
        issn=_unique(iter(issns)),
        nlm_id=named.get("nlm-journal-id"),
        volume=inline.line(meta.find("volume")) or None,
        issue=inline.line(meta.find("issue")) or None,
        pages=_pages(meta, inline),
    )
    return made if made != Journal() else None


def _pages(meta: Element, inline: Inline) -> str | None:
    first, last = inline.line(meta.find("fpage")), inline.line(meta.find("lpage"))
    if first and last and first != last:
        return f"{first}-{last}"
    return first or inline.line(meta.find("elocation-id")) or inline.line(meta.find("page-range")) or None


def _published(meta: Element) -> str | None:
    """The earliest day of publication, print or electronic; else the collection's, else PMC's own."""
    dates: list[tuple[int, str, str]] = []
    for element in meta.findall("pub-date"):
        kind = element.get("pub-type") or element.get("date-type") or ""
        date = _date(element)
        if date is not None:
            rank = 0 if kind in _PUBLISHED else 2 if kind in _NOT_PUBLISHED else 1
            # Of 2021 and 2021-03-09 the second sorts first: it says the same more exactly.
            dates.append((rank, date + "-99-99"[len(date) - 4 :], date))
    return min(dates)[2] if dates else None


def _date(element: Element) -> str | None:
    given = element.get("iso-8601-date")
    year, month, day = (fold(element.findtext(part) or "") or None for part in ("year", "month", "day"))
    if year is None and given is not None:
        year, month, day = (*given[:10].split("-"), None, None)[:3]
    return iso_date(year, month, day)


def _authors(meta: Element, inline: Inline, tally: Tally) -> Iterator[Author]:
    places = dict(_places(meta, inline))
    # Where nobody points to an affiliation, those beside the authors are everybody's.
    pointing = any(xref.get("ref-type") == "aff" for xref in meta.iter("xref"))
    common = [] if pointing else [_affiliation(aff, inline) for aff in meta.iterchildren("aff")]
    for group in meta.iterchildren("contrib-group"):
        shared = [*map(partial(_affiliation, inline=inline), group.iterchildren("aff")), *common]
        for contrib in group.iterchildren("contrib"):
            if (contrib.get("contrib-type") or "author").lower() != "author":
                tally.note("contributor who is no author left out")
                continue
            affiliations = _unique(iter(_affiliations(contrib, places, inline) or shared))
            if (author := _author(contrib, affiliations, inline)) is not None:
                yield author


def _places(meta: Element, inline: Inline) -> Iterator[tuple[str, str]]:
    """Each affiliation's id and text; of several forms of one, the first counts."""
    for aff in meta.iter("aff"):
        parent = aff.getparent()
        if parent is not None and parent.tag == "aff-alternatives":
            if aff is not next(parent.iterchildren("aff")):
                continue
            if id_ := parent.get("id"):
                yield id_, _affiliation(aff, inline)
        if id_ := aff.get("id"):
            yield id_, _affiliation(aff, inline)


def _affiliations(contrib: Element, places: dict[str, str], inline: Inline) -> list[str]:
    """Those that an author points to or holds."""
    found: list[str] = []
    for child in contrib:
        if child.tag == "xref" and child.get("ref-type") == "aff":
            found += (places.get(rid, "") for rid in child.get("rid", "").split())
        elif child.tag == "aff":
            found.append(_affiliation(child, inline))
    return found


def _affiliation(aff: Element, inline: Inline) -> str:
    """The address on one line, without the mark that authors point to."""
    text = inline.spaced(aff, ", ")
    mark = aff[0] if len(aff) else None
    if mark is None or mark.tag not in ("label", "sup") or (aff.text or "").strip():
        return text
    return text.removeprefix(inline.line(mark)).lstrip(", ")


def _author(contrib: Element, affiliations: tuple[str, ...], inline: Inline) -> Author | None:
    name = collective = orcid_ = None
    for child in contrib:
        tag = child.tag
        if tag in ("name", "string-name") and name is None:
            name = child
        elif tag == "name-alternatives" and name is None:
            name = next(iter(child), None)
        elif tag in ("collab", "collab-alternatives") and collective is None:
            collective = child if tag == "collab" else next(iter(child), None)
        elif tag == "contrib-id" and child.get("contrib-id-type") == "orcid":
            orcid_ = orcid(child.text or "")
        elif tag in ("uri", "ext-link") and "orcid.org" in (link := child.text or child.get(_HREF) or ""):
            orcid_ = orcid(link)
    if name is not None:
        return Author(**_person(name, inline), orcid=orcid_, affiliations=affiliations)
    if collective is not None:
        return Author(collective=inline.spaced(collective) or None, affiliations=affiliations)
    return None


def _person(name: Element, inline: Inline) -> dict[str, str | None]:
    parts = {child.tag: child for child in reversed(name)}
    family, given, suffix = (parts.get(tag) for tag in ("surname", "given-names", "suffix"))
    last = inline.line(family) if family is not None or given is not None else inline.line(name)
    return {
        "family": f"{last} {inline.line(suffix)}".strip() or None,
        "given": inline.line(given) or None,
        "initials": given.get("initials") if given is not None else None,
    }


def _keywords(meta: Element) -> Iterator[Element]:
    for group in meta.findall("kwd-group"):
        if not is_abbreviations(group):
            yield from group.iter("kwd", "compound-kwd", "unstructured-kwd-group")


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


def _licence_texts(rights: Element, inline: Inline) -> Iterator[str]:
    for licence in rights.findall("license"):
        paragraphs = [child for child in licence if child.tag in ("license-p", "p")]
        if paragraphs:
            yield from (inline.line(paragraph) for paragraph in paragraphs)
        else:
            yield fold(licence.text or "") or licence.get("license-type") or ""


def _licence_url(rights: Element) -> str | None:
    """The address on the licence itself, else the first one in its text, Creative Commons before others."""
    for licence in rights.findall("license"):
        if href := licence.get(_HREF):
            return href
    stated = next((fold(ref.text or "") for ref in rights.iter(_LICENCE_REF, "license_ref")), None)
    if stated:
        return stated
    links = [link.get(_HREF) or fold(link.text or "") for link in _each(rights, "license", "ext-link")]
    links += [link.get(_HREF) or fold(link.text or "") for link in _each(rights, "license", "uri")]
    addresses = [link for link in links if link.startswith("http")]
    return next((link for link in addresses if "creativecommons.org" in link), next(iter(addresses), None))


def _copyright(rights: Element, inline: Inline) -> str | None:
    statement = inline.line(rights.find("copyright-statement"))
    if statement:
        return statement
    parts = (inline.line(rights.find(tag)) for tag in ("copyright-year", "copyright-holder"))
    return " ".join(part for part in parts if part) or None
