"""What a document's licence allows: one short name for the many ways in which it is written."""

import re

from lexome.metadata import Metadata

UNSTATED = "unstated"
OTHER = "other"

# PMC's own grouping of what may be used commercially: everything without NC.
COMMERCIAL = frozenset(("CC0", "CC BY", "CC BY-SA", "CC BY-ND", "public domain"))

_URL = re.compile(r"creativecommons\.org/(?:licen[sc]es/(by[a-z-]*)|(publicdomain/(?:zero|mark)))", re.IGNORECASE)
# A mark that is none of Creative Commons' own ("by-n") leaves the licence unknown instead of permissive.
_NAMED = re.compile(
    r"\b(?:cc|creative commons)[\s_-]*(0|zero|mark|by(?:[\s_-]?(?:nc|nd|sa))*)(?![a-z]|[_-][a-z])", re.IGNORECASE
)
_WORDS = (
    ("non-commercial", "nc"),
    ("noncommercial", "nc"),
    ("no derivative", "nd"),
    ("noderiv", "nd"),
    ("share alike", "sa"),
    ("sharealike", "sa"),
    ("share-alike", "sa"),
)
_PUBLIC = re.compile(r"\bpublic domain\b", re.IGNORECASE)


def licence_name(meta: Metadata) -> str:
    """CC0, CC BY, CC BY-NC and so on, "public domain", "other" for what is stated but none of these, or "unstated".

    The URL is believed before the words, and "commercial use" in words only together with Creative Commons.
    """
    stated = " ".join(filter(None, (meta.licence_url, meta.licence)))
    if not stated:
        return UNSTATED
    found = _URL.search(stated)
    if found is not None:
        if found[2]:
            return "CC0" if "zero" in found[2].lower() else "public domain"
        return _creative_commons(found[1])
    if (named := _NAMED.search(stated)) is not None:
        return _creative_commons(named[1])
    if re.search(r"creative commons", stated, re.IGNORECASE) and re.search(r"attribution", stated, re.IGNORECASE):
        lower = stated.lower()
        return _creative_commons("by-" + "-".join(mark for words, mark in _WORDS if words in lower))
    return "public domain" if _PUBLIC.search(stated) else OTHER


def allowed(name: str, wanted: str) -> bool:
    """Whether a licence name passes a source's filter: any, stated or commercial."""
    if wanted == "commercial":
        return name in COMMERCIAL
    return wanted == "any" or name != UNSTATED


def _creative_commons(marks: str) -> str:
    """The name for marks such as "by-nc-nd", always in the same order."""
    lower = marks.lower()
    if lower in ("0", "zero"):
        return "CC0"
    if lower == "mark":
        return "public domain"
    seen = set(re.findall("nc|nd|sa", lower))
    return "CC BY" + "".join(f"-{mark.upper()}" for mark in ("nc", "nd", "sa") if mark in seen)
