"""MEDLINE tagged text, as PubMed and citation managers save it (.nbib, .txt).

A line is a tag in four columns, "- " and a value; lines that begin with blanks continue the value before. Line
breaks inside a value and their indentation become one space; nothing else changes. Languages are PubMed's
three-letter codes: "eng", not "en".
"""

import re
from collections.abc import Iterator
from functools import lru_cache, partial

from lexome.document import Document, Passage, lay_out, shorten
from lexome.errors import BadDocument
from lexome.formats.citation import fold, iso_date, more_precise, notice, orcid, parse_free_date, pmcid, registry_number
from lexome.formats.streams import MAX_RECORD_BYTES, Source, decode, empty_file
from lexome.formats.tally import Tally
from lexome.metadata import Author, Journal, MeshHeading, MeshQualifier, Metadata, Notice, Substance

_TAG = re.compile(r"([A-Z][A-Z0-9]{1,3}) {0,2}$")
_DAY = re.compile(r"(\d{4})/?(\d\d)/?(\d\d)(?!\d)")
_NAMED_ID = re.compile(r"(.*\S)\s*\[([a-z]+)\]", re.DOTALL)
_SUBSTANCE = re.compile(r"(EC \S+|\S+) \((.*)\)", re.DOTALL)
_SUFFIX = re.compile(r"(.*\S) (Jr|Sr|[2-9](?:nd|rd|th)|I{2,3}|IV)\.?", re.DOTALL)
_PMID_LINE = re.compile(rb"PMID- *(\d+)")

# Marks a record that is too large; no line contains a line break.
_TOO_LARGE = b"\n\n"

_ONCE = frozenset(("PMID", "PMC", "TI", "BTI", "AB", "TT", "VTI", "CI", "DP", "JT", "TA", "JID", "VI", "IP", "PG"))
_LISTS = frozenset(("LA", "PT", "MH", "OT", "IS"))
_NOTICES = {
    "CIN": "CommentIn", "CON": "CommentOn", "CRF": "CorrectedandRepublishedFrom", "CRI": "CorrectedandRepublishedIn",
    "DDIN": "AssociatedPublication", "DRIN": "AssociatedPublication", "ECF": "ExpressionOfConcernFor",
    "ECI": "ExpressionOfConcernIn", "EFR": "ErratumFor", "EIN": "ErratumIn", "ORI": "OriginalReportIn",
    "PRIN": "PartialRetractionIn", "PROF": "PartialRetractionOf", "RIN": "RetractionIn", "ROF": "RetractionOf",
    "RPF": "RepublishedFrom", "RPI": "RepublishedIn", "RRF": "RetractedandRepublishedFrom",
    "RRI": "RetractedandRepublishedIn", "SPIN": "SummaryForPatientsIn", "UIN": "UpdateIn", "UOF": "UpdateOf",
}  # fmt: skip
_TAGS = _ONCE.union(
    _LISTS, _NOTICES, ("FAU", "FED", "AU", "ED", "AD", "AUID", "CN", "RN", "NM", "LID", "AID", "OID", "MID", "ISBN"),
    ("DEP", "LR", "OAB", "OABL"),
)  # fmt: skip


def read(source: Source, *, tally: Tally, encoding: str = "utf-8") -> Iterator[Document]:
    """One document per citation: title and abstract, then title and abstracts in other languages.

    The labels of a structured abstract are part of its text, unlike in PubMed XML.
    """
    empty = True
    for line, lines in _blocks(source):
        empty = False
        raw = b"\n".join(lines)
        pmid = _PMID_LINE.match(raw)
        yield from tally.accept(
            partial(_document, raw, encoding, tally),
            where=f"{source.name}, line {line}",
            id=pmid[1].decode() if pmid is not None else None,
            raw=raw,
        )
    if empty:
        raise empty_file(source)


def _blocks(source: Source) -> Iterator[tuple[int, list[bytes]]]:
    """The first line number and the lines of each record, which ends at a blank line or before another PMID."""
    record: list[bytes] = []
    first_line, size = 1, 0
    has_pmid = ended = False
    for number, line in source.lines():
        if not line.strip():
            ended = True
            continue
        is_pmid = line.startswith(b"PMID-")
        # A blank line before a continuation line is part of the value.
        if record and ((ended and line[:1] not in b" \t") or (has_pmid and is_pmid)):
            yield first_line, record
            record, has_pmid = [], False
        if not record:
            first_line, size = number, 0
        has_pmid, ended = has_pmid or is_pmid, False
        if size <= MAX_RECORD_BYTES:
            size += len(line) + 1
            record.append(line if size <= MAX_RECORD_BYTES else _TOO_LARGE)
    if record:
        yield first_line, record


class _CitationDraft:
    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.first: dict[str, str] = {}
        self.lists: dict[str, list[str]] = {}
        self.other_abstracts: list[tuple[str, str | None]] = []
        self.authors: list[dict[str, str]] = []
        self.affiliations: list[list[str]] = []
        self.early_affiliations: list[str] = []
        self.doi: str | None = None
        self.other_ids: list[str] = []
        self.substances: list[Substance] = []
        self.notices: list[Notice] = []
        self.online_date: str | None = None
        self.revised: str | None = None

    def add(self, tag: str, value: str) -> None:
        """Add the value of a known tag."""
        if tag in _ONCE:
            value = pmcid(value) if tag == "PMC" else value
            if self.first.setdefault(tag, value) != value:
                self.tally.note(f"second {tag} ignored")
            return
        if tag in _LISTS:
            self.lists.setdefault(tag, []).append(value)
            return
        match tag:
            case "FAU" | "FED":  # FED and ED are editors of a book, whom PubMed XML lists as authors
                family, _, given = value.partition(", ")
                self.begin_author(family=family, given=given)
            case "AU" | "ED":
                self.add_short_name(value)
            case "AD":
                # Until 2014 citations had one affiliation, the first author's, before the names.
                (self.affiliations[-1] if self.affiliations else self.early_affiliations).append(value)
            case "AUID" if self.authors and (orcid_ := orcid(value)) is not None:
                self.authors[-1]["orcid"] = orcid_
            case "AUID":
                self.tally.note("author's Identifier ignored")
            case "CN":
                self.begin_author(collective=value)
            case "RN" | "NM":
                self.substances.append(_substance(value))
            case "LID" | "AID":
                named = _NAMED_ID.fullmatch(value)
                if named is None:
                    self.add_id("other", value)
                elif named[2] not in ("pubmed", "pmc"):
                    self.add_id(named[2], named[1])
            case "OID":
                owner, colon, id_ = value.partition(": ")
                self.add_id(owner.lower() if colon else "other", id_ or value)
            case "MID" | "ISBN":
                self.add_id(tag.lower(), value)
            case "DEP":
                self.online_date = self.day(value)
            case "LR":
                self.revised = self.day(value)
            case "OAB":
                self.other_abstracts.append((value, None))
            case "OABL" if self.other_abstracts:
                self.other_abstracts[-1] = (self.other_abstracts[-1][0], value)
            case _ if tag in _NOTICES:
                self.notices.append(notice(_NOTICES[tag], value))

    def add_id(self, kind: str, value: str) -> None:
        """Keep an id: the first DOI under its name, any other as "kind:id", each once."""
        if kind == "doi" and self.doi in (None, value):
            self.doi = value
        elif (other := f"{kind}:{value}") not in self.other_ids:
            self.other_ids.append(other)

    def begin_author(self, **names: str) -> None:
        """Start another author, to whom the names and affiliations that follow belong."""
        self.authors.append(names)
        self.affiliations.append([])

    def add_short_name(self, value: str) -> None:
        """Family name and initials, of the author whose full name came before or of one without full name."""
        suffix = _SUFFIX.fullmatch(value)
        if suffix is not None:
            self.tally.note("author's Suffix ignored")
            value = suffix[1]
        current = self.authors[-1] if self.authors else {}
        if "family" in current and "initials" not in current:
            current["initials"] = value.removeprefix(current["family"]).strip()
            if suffix is not None:
                current["given"] = current["given"].removesuffix(f" {suffix[2]}")
            return
        family, _, initials = value.rpartition(" ")
        self.begin_author(family=family or initials, given="", initials=initials if family else "")

    def day(self, value: str) -> str | None:
        """The ISO date of 2021/03/09 or 20210309."""
        match = _DAY.match(value)
        date = iso_date(*match.groups()) if match is not None else None
        if date is None:
            self.tally.note("unparsable date ignored")
        return date

    def texts(self, tag: str) -> tuple[str, ...]:
        """All values of a tag, in order."""
        return tuple(self.lists.get(tag, ()))


def _document(raw: bytes, encoding: str, tally: Tally) -> Document:
    if raw.endswith(_TOO_LARGE):
        raise BadDocument("too_large", f"the record is larger than {MAX_RECORD_BYTES >> 20} MiB.")
    draft = _CitationDraft(tally)
    for tag, value in _fields(decode(raw, encoding)):
        if tag not in _TAGS:
            tally.note(f"tag {tag} ignored")
        elif value:
            draft.add(tag, value)
    pmid = draft.first.get("PMID")
    if not pmid:
        raise BadDocument("no_pmid", "the citation has no PMID; expected a line such as PMID- 123.")
    return Document(pmid, _passages(draft), meta=_metadata(draft, tally))


def _fields(text: str) -> Iterator[tuple[str, str]]:
    """Each tag with its folded value."""
    tag, lines = "", [""]
    for number, line in enumerate(text.split("\n"), 1):
        if line[:1] in (" ", "\t") and tag:
            lines.append(line)
            continue
        match = _TAG.match(line[:4])
        if match is None or line[4:5] != "-":
            raise BadDocument(
                "malformed_line",
                f"line {number} of the record is {shorten(line)!r}; expected a tag such as 'TI  - ', or six blanks "
                "before a continuation line.",
                value=number,
            )
        if tag:
            yield tag, fold("\n".join(lines))
        tag, lines = match[1], [line[5:]]
    yield tag, fold("\n".join(lines))


@lru_cache(1 << 14)
def _substance(text: str) -> Substance:
    """A substance from "number (name)" or a bare name."""
    match = _SUBSTANCE.fullmatch(text)
    return Substance(match[2], None, registry_number(match[1])) if match is not None else Substance(text)


# Headings such as "Humans" recur in most citations: they share one object.
@lru_cache(1 << 16)
def _heading(text: str) -> MeshHeading:
    """A heading from "Name/qualifier/*qualifier", where * marks a main topic."""
    name, *qualifiers = text.split("/")
    return MeshHeading(
        name.removeprefix("*"),
        None,
        name.startswith("*"),
        tuple(MeshQualifier(part.removeprefix("*"), None, part.startswith("*")) for part in qualifiers),
    )


def _passages(draft: _CitationDraft) -> tuple[Passage, ...]:
    """The passages, in the order of PubMed XML's."""
    first = draft.first.get
    foreign = next((language for language in draft.texts("LA") if language != "eng"), None)
    passages = [
        ("title", first("TI") or first("BTI"), None),
        ("abstract", first("AB"), None),
        ("title", first("TT") or first("VTI"), foreign),
        *(("abstract", text, language) for text, language in draft.other_abstracts),
    ]
    return lay_out((kind, text, (), None, language) for kind, text, language in passages if text)


def _metadata(draft: _CitationDraft, tally: Tally) -> Metadata:
    first = draft.first.get
    issue_date = parse_free_date(first("DP", ""))
    if "DP" in draft.first and issue_date is None:
        tally.note("unparsable date ignored")
    numbers = dict.fromkeys(text.partition(" ")[0] for text in draft.texts("IS"))
    title = first("JT") or first("BTI")
    journal = Journal(title, first("TA"), tuple(numbers), first("JID"), first("VI"), first("IP"), first("PG"))
    return Metadata(
        pmid=first("PMID"),
        pmcid=first("PMC"),
        doi=draft.doi,
        other_ids=tuple(draft.other_ids),
        article_types=draft.texts("PT"),
        languages=draft.texts("LA"),
        journal=journal if journal != Journal() else None,
        published=more_precise(issue_date, draft.online_date),
        revised=draft.revised,
        authors=_authors(draft),
        mesh=tuple(map(_heading, draft.texts("MH"))),
        substances=tuple(draft.substances),
        keywords=tuple(text.removeprefix("*") for text in draft.texts("OT")),
        notices=tuple(draft.notices),
        copyright=first("CI"),
    )


def _authors(draft: _CitationDraft) -> tuple[Author, ...]:
    if draft.early_affiliations and draft.affiliations:
        draft.affiliations[0][:0] = draft.early_affiliations
    keys = ("family", "given", "initials", "collective", "orcid")
    return tuple(
        Author(**{key: names.get(key) or None for key in keys}, affiliations=tuple(affiliations))
        for names, affiliations in zip(draft.authors, draft.affiliations, strict=True)
    )
