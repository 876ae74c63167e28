"""PMC full text in JATS XML: all paragraphs in reading order, with section and role.

Titles, abstracts, body, back matter and floating figures become passages; the front matter becomes metadata.
Sub-articles and responses are separate documents that follow their article. What is skipped is noted in the tally.
Languages are as in the file: mostly "en", where PubMed has "eng". docs/explanation/jats.md describes how each
element is read and why.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from lexome.document import Document, lay_out
from lexome.errors import BadDocument
from lexome.formats.citation import iso_date, orcid, pmcid
from lexome.formats.jats import (
    LANGUAGE,
    BlockPlace,
    Blocks,
    Element,
    Inline,
    drop_namespace,
    fold,
    skip_note,
    stray_texts,
)
from lexome.formats.streams import Source
from lexome.formats.tally import Tally
from lexome.formats.xml import Record, records
from lexome.metadata import Author, Journal, Metadata, Notice

# Metadata: ids, journal, dates, authors with affiliations, license, related articles


_HREF = "{http://www.w3.org/1999/xlink}href"
_LICENSE_REF = "{http://www.niso.org/schemas/ali/1.0/}license_ref"

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
        published=_publication_date(parts),
        authors=tuple(_authors(parts, inline, tally)),
        keywords=_unique(map(inline.line, keywords)),
        subjects=_unique(map(inline.line, _each(parts, "article-categories", "subject"))),
        notices=tuple(_notice(related, inline) for related in parts.get("related-article", ())),
        license=" ".join(filter(None, _license_texts(rights, inline))) or None,
        license_url=_license_url(rights),
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


def _publication_date(parts: Parts) -> str | None:
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


def _license_texts(rights: Parts, inline: Inline) -> Iterator[str]:
    for license in rights.get("license", ()):
        paragraphs = [child for child in license if child.tag in ("license-p", "p")]
        if paragraphs:
            yield from map(inline.line, paragraphs)
        else:
            yield fold(license.text or "") or license.get("license-type") or ""


def _license_url(rights: Parts) -> str | None:
    """The URL of the license element, else the first in its text, preferably of Creative Commons."""
    hrefs = (href for license in rights.get("license", ()) if (href := license.get(_HREF)))
    stated = (fold(ref.text or "") for ref in _each(rights, "license", _LICENSE_REF, "license_ref"))
    if url := next(hrefs, None) or next(stated, None):
        return url
    links = [link.get(_HREF) or fold(link.text or "") for link in _each(rights, "license", "ext-link", "uri")]
    addresses = [link for link in links if link.startswith("http")]
    return next((link for link in addresses if "creativecommons.org" in link), next(iter(addresses), None))


def _copyright(rights: Parts, inline: Inline) -> str | None:
    year_and_holder = (_line(rights, tag, inline) for tag in ("copyright-year", "copyright-holder"))
    return _line(rights, "copyright-statement", inline) or " ".join(filter(None, year_and_holder)) or None


_OPENING = re.compile(rb"<article[\s>]")
# Articles

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
    names = ("languages", "journal", "published", "license", "license_url", "copyright")
    return replace(
        meta, part_of=parent.id, **{name: getattr(meta, name) or getattr(parent.meta, name) for name in names}
    )
