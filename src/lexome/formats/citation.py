"""Shared by PubMed XML, MEDLINE text and Europe PMC: dates, notices, ids and white-space normalization."""

import re
from collections.abc import Sequence

from lexome.metadata import Notice

# XML white space. NBSP, U+0085 and the like are text.
BLANKS = " \t\r\n"

_YEAR = re.compile(r"(?<!\d)(1[5-9]\d\d|20\d\d)(?!\d)")
_NAMES = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_DAYS = {text: f"{number:02}" for number in range(1, 32) for text in (f"{number}", f"{number:02}")}
_MONTHS = {text: two for text, two in _DAYS.items() if two <= "12"} | {
    name: f"{number:02}" for number, name in enumerate(_NAMES, 1)
}
_MONTH = re.compile(r"(?<![a-z])(" + "|".join(_NAMES) + r")[a-z]*(?:\s+(\d\d?)(?!\d))?", re.IGNORECASE)
_ORCID = re.compile(r"(\d{4})-?(\d{4})-?(\d{4})-?(\d{3}[\dXx])\s*/?$")

# Kinds of notices in PubMed's spelling; MEDLINE text and Europe PMC have others.
NOTICE_KINDS = (
    "AssociatedDataset", "AssociatedPublication", "CommentIn", "CommentOn", "CorrectedandRepublishedFrom",
    "CorrectedandRepublishedIn", "ErratumFor", "ErratumIn", "ExpressionOfConcernFor", "ExpressionOfConcernIn",
    "OriginalReportIn", "PartialRetractionIn", "PartialRetractionOf", "PreprintIn", "PreprintOf", "ReprintIn",
    "ReprintOf", "RepublishedFrom", "RepublishedIn", "RetractedandRepublishedFrom", "RetractedandRepublishedIn",
    "RetractionIn", "RetractionOf", "SummaryForPatientsIn", "UpdateIn", "UpdateOf",
)  # fmt: skip
_KINDS = {kind.lower(): kind for kind in NOTICE_KINDS}


# Possessive: white space after the prefix is never tried in two ways.
_PMID = r"(?:PMIDs?\s*+:?\s*+)?[0-9]{1,9}"
_PMIDS = re.compile(rf"\s*+(?:PMIDs?\s*+:?\s*+)?{_PMID}(?:[\s,;|]++{_PMID})*+[\s,;|.]*+", re.IGNORECASE)
# PubMed has an article for nearly every smaller number too, but so have tables and lists.
_MIN_PMID_DIGITS = 5
_LINKED_PMIDS = 20


def find_pmids(text: str) -> list[str]:
    """The PMIDs of a text that consists of nothing else; otherwise none.

    >>> find_pmids("PMID: 29446767, 30102808"), find_pmids("29446767 binds")
    (['29446767', '30102808'], [])
    """
    if _PMIDS.fullmatch(text) is None:
        return []
    numbers = re.findall(r"[0-9]+", text)
    named = "pmid" in text.lower()
    return numbers if named or all(len(number) >= _MIN_PMID_DIGITS for number in numbers) else []


def plain_pmid(text: str) -> str:
    """A PMID without the fraction that pandas and spreadsheets write if another row has none; other text as it is."""
    number = text.removesuffix(".0")
    return number if number.isdecimal() else text


def pmid_advice(pmids: Sequence[str]) -> str:
    """How to get the texts of articles, for input that has only their PMIDs."""
    url = "https://pubmed.ncbi.nlm.nih.gov/"
    page = f"{url}?term={','.join(pmids)}" if 0 < len(pmids) <= _LINKED_PMIDS else f"{url}, search for them"
    return f"Lexome downloads nothing. Open {page}, choose Save and the format PubMed, and use the file that you get."


def fold(text: str) -> str:
    """The text with line breaks and indentation replaced by one space and its ends stripped; nothing else changes."""
    if "\n" in text:
        return " ".join(filter(None, (line.strip(BLANKS) for line in text.split("\n"))))
    return text.strip(BLANKS)


def iso_date(year: str | None, month: str | None = None, day: str | None = None) -> str | None:
    """An ISO date with the precision of its parts: ("2021", "Mar", "9") is 2021-03-09, ("2021", "Spring") 2021."""
    if year is None or len(year) != 4 or not year.isdecimal() or not year.isascii():
        return None
    month = _MONTHS.get(month or "") or _MONTHS.get((month or "")[:3].title())
    if month is None:
        return year
    day = _DAYS.get(day or "")
    return f"{year}-{month}" if day is None else f"{year}-{month}-{day}"


def parse_free_date(text: str) -> str | None:
    """The first date in PubMed's free form: "1998 Dec-1999 Jan" is 1998-12, "2000 Spring" 2000."""
    year = _YEAR.search(text)
    if year is None:
        return None
    month = _MONTH.search(text)
    return iso_date(year[0], month[1], month[2]) if month is not None else year[0]


def more_precise(issue: str | None, online: str | None) -> str | None:
    """The date of publication: the issue's, or the online date if it is a more precise form of the same date."""
    if issue is None or (online is not None and online.startswith(issue)):
        return online
    return issue


def pmcid(text: str) -> str:
    """The PMC id with its prefix, which some sources omit."""
    return f"PMC{text}" if text.isascii() and text.isdecimal() else text


def orcid(text: str) -> str | None:
    """The bare ORCID in a URL or number, or None."""
    match = _ORCID.search(text)
    return "-".join(match.groups()).upper() if match is not None else None


def notice_kind(name: str) -> str:
    """PubMed's spelling of a kind of notice: "Retraction in" is RetractionIn; an unknown one is unchanged."""
    return _KINDS.get(name.replace(" ", "").lower(), name)


def notice(kind: str, citation: str, pmid: str | None = None) -> Notice:
    """A notice whose citation may end in "PMID: 123"."""
    before, label, number = citation.rpartition("PMID:")
    number = number.strip(BLANKS).removesuffix(".")
    if label and number.isascii() and number.isdecimal():
        # PubMed XML has no full stop before it.
        pmid, citation = pmid or number, before.rstrip(BLANKS).removesuffix(".")
    return Notice(kind, pmid, citation or None)


def registry_number(text: str | None) -> str | None:
    """A CAS, EC or UNII number; PubMed writes 0 for none."""
    return None if text in (None, "", "0") else text
