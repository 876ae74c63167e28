"""MEDLINE tagged text, as PubMed and citation managers save it (.nbib, .txt).

A line is a tag in four columns, "- " and a value; lines that begin with blanks continue the value before. Line
breaks inside a value and their indentation become one space; nothing else changes. Languages are PubMed's
three-letter codes: "eng", not "en".
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial

from lexome.document import Document, Passage, lay_out, shorten
from lexome.errors import BadDocument
from lexome.formats.citation import (
    fold,
    iso_date,
    more_precise_date,
    notice,
    orcid,
    parse_free_date,
    pmcid,
    registry_number,
)
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


def read(source: Source, *, tally: Tally, encoding: str = "utf-8") -> Iterator[Document]:
    """One document per citation: title and abstract, then title and abstracts in other languages.

    The labels of a structured abstract are part of its text, unlike in PubMed XML.
    """
    empty = True
    for line, lines in _blocks(source):
        empty = False
        raw = b"\n".join(lines)
        pmid = _PMID_LINE.match(raw)
        doc = tally.attempt(
            partial(_document, raw, encoding, tally),
            where=f"{source.name}, line {line}",
            id=pmid[1].decode() if pmid is not None else None,
            raw=raw,
        )
        if doc is not None:
            yield doc
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


class _Draft:
    """The fields of one citation, as they are read."""

    def __init__(self) -> None:
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

    def texts(self, tag: str) -> tuple[str, ...]:
        """All values of a tag, in order."""
        return tuple(self.lists.get(tag, ()))


_Add = Callable[[_Draft, str, str, Tally], None]


def _document(raw: bytes, encoding: str, tally: Tally) -> Document:
    if raw.endswith(_TOO_LARGE):
        raise BadDocument("too_large", f"the record is larger than {MAX_RECORD_BYTES >> 20} MiB.")
    draft = _Draft()
    for tag, value in _fields(decode(raw, encoding)):
        add = _TAGS.get(tag)
        if add is None:
            tally.note(f"tag {tag} ignored")
        elif value:
            add(draft, tag, value, tally)
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


def _keep_first(draft: _Draft, tag: str, value: str, tally: Tally) -> None:
    if draft.first.setdefault(tag, value) != value:
        tally.note(f"second {tag} ignored")


def _keep_pmcid(draft: _Draft, tag: str, value: str, tally: Tally) -> None:
    _keep_first(draft, tag, pmcid(value), tally)


def _keep(draft: _Draft, tag: str, value: str, tally: Tally) -> None:
    draft.lists.setdefault(tag, []).append(value)


def _add_other_abstract(draft: _Draft, tag: str, value: str, tally: Tally) -> None:
    draft.other_abstracts.append((value, None))


def _add_other_language(draft: _Draft, tag: str, value: str, tally: Tally) -> None:
    if draft.other_abstracts:
        draft.other_abstracts[-1] = (draft.other_abstracts[-1][0], value)


def _add_full_name(draft: _Draft, tag: str, value: str, tally: Tally) -> None:
    family, _, given = value.partition(", ")
    draft.begin_author(family=family, given=given)


def _add_short_name(draft: _Draft, tag: str, value: str, tally: Tally) -> None:
    """Family name and initials, of the author whose full name came before or of one without full name."""
    suffix = _SUFFIX.fullmatch(value)
    if suffix is not None:
        tally.note("author's Suffix ignored")
        value = suffix[1]
    current = draft.authors[-1] if draft.authors else {}
    if "family" in current and "initials" not in current:
        current["initials"] = value.removeprefix(current["family"]).strip()
        if suffix is not None:
            current["given"] = current["given"].removesuffix(f" {suffix[2]}")
        return
    family, _, initials = value.rpartition(" ")
    draft.begin_author(family=family or initials, given="", initials=initials if family else "")


def _add_collective(draft: _Draft, tag: str, value: str, tally: Tally) -> None:
    draft.begin_author(collective=value)


def _add_author_id(draft: _Draft, tag: str, value: str, tally: Tally) -> None:
    orcid_ = orcid(value)
    if orcid_ is not None and draft.authors:
        draft.authors[-1]["orcid"] = orcid_
    else:
        tally.note("author's Identifier ignored")


def _add_affiliation(draft: _Draft, tag: str, value: str, tally: Tally) -> None:
    # Until 2014 citations had one affiliation, the first author's, before the names.
    (draft.affiliations[-1] if draft.affiliations else draft.early_affiliations).append(value)


def _add_named_id(draft: _Draft, tag: str, value: str, tally: Tally) -> None:
    match = _NAMED_ID.fullmatch(value)
    if match is None:
        draft.add_id("other", value)
    elif match[2] not in ("pubmed", "pmc"):
        draft.add_id(match[2], match[1])


def _add_other_id(draft: _Draft, tag: str, value: str, tally: Tally) -> None:
    owner, colon, id_ = value.partition(": ")
    draft.add_id(owner.lower() if colon else "other", id_ or value)


def _add_id(kind: str) -> _Add:
    return lambda draft, tag, value, tally: draft.add_id(kind, value)


def _add_substance(draft: _Draft, tag: str, value: str, tally: Tally) -> None:
    draft.substances.append(_substance(value))


def _add_notice(kind: str) -> _Add:
    return lambda draft, tag, value, tally: draft.notices.append(notice(kind, value))


def _add_online_date(draft: _Draft, tag: str, value: str, tally: Tally) -> None:
    draft.online_date = _day(value, tally)


def _add_revised(draft: _Draft, tag: str, value: str, tally: Tally) -> None:
    draft.revised = _day(value, tally)


def _day(value: str, tally: Tally) -> str | None:
    match = _DAY.match(value)
    date = iso_date(*match.groups()) if match is not None else None
    if date is None:
        tally.note("unparsable date ignored")
    return date


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


def _passages(draft: _Draft) -> tuple[Passage, ...]:
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


def _metadata(draft: _Draft, tally: Tally) -> Metadata:
    first = draft.first.get
    issue_date = parse_free_date(first("DP", ""))
    if "DP" in draft.first and issue_date is None:
        tally.note("unparsable date ignored")
    return Metadata(
        pmid=first("PMID"),
        pmcid=first("PMC"),
        doi=draft.doi,
        other_ids=tuple(draft.other_ids),
        article_types=draft.texts("PT"),
        languages=draft.texts("LA"),
        journal=_journal(draft),
        published=more_precise_date(issue_date, draft.online_date),
        revised=draft.revised,
        authors=_authors(draft),
        mesh=tuple(map(_heading, draft.texts("MH"))),
        substances=tuple(draft.substances),
        keywords=tuple(text.removeprefix("*") for text in draft.texts("OT")),
        notices=tuple(draft.notices),
        copyright=first("CI"),
    )


def _journal(draft: _Draft) -> Journal | None:
    first = draft.first.get
    numbers = dict.fromkeys(text.partition(" ")[0] for text in draft.texts("IS"))
    journal = Journal(
        first("JT") or first("BTI"), first("TA"), tuple(numbers), first("JID"), first("VI"), first("IP"), first("PG")
    )
    return journal if journal != Journal() else None


def _authors(draft: _Draft) -> tuple[Author, ...]:
    if draft.early_affiliations and draft.affiliations:
        draft.affiliations[0][:0] = draft.early_affiliations
    return tuple(
        Author(
            names.get("family") or None,
            names.get("given") or None,
            names.get("initials") or None,
            names.get("collective"),
            names.get("orcid"),
            tuple(affiliations),
        )
        for names, affiliations in zip(draft.authors, draft.affiliations, strict=True)
    )


_NOTICES = {
    "CIN": "CommentIn",
    "CON": "CommentOn",
    "CRF": "CorrectedandRepublishedFrom",
    "CRI": "CorrectedandRepublishedIn",
    "DDIN": "AssociatedPublication",
    "DRIN": "AssociatedPublication",
    "ECF": "ExpressionOfConcernFor",
    "ECI": "ExpressionOfConcernIn",
    "EFR": "ErratumFor",
    "EIN": "ErratumIn",
    "ORI": "OriginalReportIn",
    "PRIN": "PartialRetractionIn",
    "PROF": "PartialRetractionOf",
    "RIN": "RetractionIn",
    "ROF": "RetractionOf",
    "RPF": "RepublishedFrom",
    "RPI": "RepublishedIn",
    "RRF": "RetractedandRepublishedFrom",
    "RRI": "RetractedandRepublishedIn",
    "SPIN": "SummaryForPatientsIn",
    "UIN": "UpdateIn",
    "UOF": "UpdateOf",
}

_ONCE = ("PMID", "TI", "BTI", "AB", "TT", "VTI", "CI", "DP", "JT", "TA", "JID", "VI", "IP", "PG")

_TAGS: Mapping[str, _Add] = {
    **dict.fromkeys(_ONCE, _keep_first),
    **dict.fromkeys(("LA", "PT", "MH", "OT", "IS"), _keep),
    "PMC": _keep_pmcid,
    "OAB": _add_other_abstract,
    "OABL": _add_other_language,
    "FAU": _add_full_name,
    "AU": _add_short_name,
    # The editors of a book, whom PubMed XML lists as authors.
    "FED": _add_full_name,
    "ED": _add_short_name,
    "CN": _add_collective,
    "AUID": _add_author_id,
    "AD": _add_affiliation,
    "LID": _add_named_id,
    "AID": _add_named_id,
    "OID": _add_other_id,
    "MID": _add_id("mid"),
    "ISBN": _add_id("isbn"),
    "RN": _add_substance,
    "NM": _add_substance,
    "DEP": _add_online_date,
    "LR": _add_revised,
    **{tag: _add_notice(kind) for tag, kind in _NOTICES.items()},
}
