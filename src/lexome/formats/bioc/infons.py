"""Article metadata in BioC infons: reading it, and writing as much as they can represent."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from lexome.formats.citation import parse_free_date, pmcid
from lexome.formats.json_file import string, strings
from lexome.formats.tally import Tally
from lexome.metadata import Author, Journal, Metadata

_ARTICLE_ID = "article-id_"
_ID_WORDS = {"pmid": "pmid", "pmc": "pmcid", "pmcid": "pmcid", "doi": "doi"}
_AUTHOR = re.compile(r"name_([0-9]{1,5})")
_NUMBERED = re.compile(r"_[0-9]+$")
_INITIALS = re.compile(r"[^\W\d_a-z][^\W\d_a-z-]*")
_YEAR = re.compile(r"[0-9]{4}")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DOI = re.compile(r"\bdoi:\s*(10\.[^\s;]*[^\s;.])")
_LICENSE_URL = re.compile(r"https?://creativecommons\.org/[\w./-]*[\w/]")

_READ = frozenset(
    (
        "pmid", "pmcid", "pmc", "doi", "journal", "year", "volume", "issue", "fpage", "lpage", "elocation-id",
        "license", "licence", "authors", "kwd", "keywords",
    )
)  # fmt: skip


def is_metadata_infon(key: str) -> bool:
    """True for infons of the first passage that are read as metadata."""
    lower = key.lower()
    return lower in _READ or lower.startswith(_ARTICLE_ID) or _AUTHOR.fullmatch(lower) is not None


def note_infons(infons: Iterable[str], where: str, tally: Tally) -> None:
    """Count ignored infons."""
    for key in infons:
        # name_0, name_1, ... are one kind of infon and one line in the summary.
        tally.note(f"{where} infon {_NUMBERED.sub('_N', key)!r} ignored")


def metadata(infons: Mapping[str, Any], record: Mapping[str, Any]) -> Metadata:
    """The metadata in the infons of a document and its first passage, and in the fields that PubTator3 adds."""
    values = {key.lower(): string(infons, key) for key in infons if is_metadata_infon(key) and infons[key] is not None}
    ids, other_ids = _ids(values)
    journal_line = values.get("journal") or ""
    year = values.get("year") or ""
    license_ = values.get("license") or values.get("licence")
    url = _LICENSE_URL.search(license_ or "")
    day = _DAY.match(string(record, "date") or "")
    # The date in the journal infon if it agrees with the year, else the year.
    date = parse_free_date(journal_line.partition(";")[2])
    if date is None or not date.startswith(year):
        date = year if _YEAR.fullmatch(year) else None
    return Metadata(
        pmid=string(record, "pmid") or ids.get("pmid"),
        pmcid=pmcid(id_) if (id_ := string(record, "pmcid") or ids.get("pmcid")) is not None else None,
        doi=ids.get("doi") or (doi[1] if (doi := _DOI.search(journal_line)) is not None else None),
        other_ids=other_ids,
        journal=_journal(values, string(record, "journal")),
        published=day[0] if day is not None else date,
        authors=_authors(values, strings(record, "authors")),
        # PMC separates keywords by spaces, which cannot be split.
        keywords=tuple(filter(None, map(str.strip, (values.get("kwd") or values.get("keywords") or "").split(";")))),
        license=license_,
        license_url=url[0] if url is not None else None,
    )


def meta_infons(meta: Metadata) -> dict[str, str]:
    """The metadata as conventional BioC infons, as far as they can represent it."""
    journal = meta.journal or Journal()
    names = [
        author.collective or " ".join(filter(None, (author.family, author.initials or author.given)))
        for author in meta.authors
    ]
    values = {
        "article-id_pmid": meta.pmid,
        "article-id_pmc": meta.pmcid,
        "article-id_doi": meta.doi,
        "journal": journal.abbreviation or journal.title,
        "year": (meta.published or "")[:4],
        "volume": journal.volume,
        "issue": journal.issue,
        "authors": ", ".join(filter(None, names)),
        "kwd": "; ".join(meta.keywords),
        "license": meta.license,
    }
    return {key: value for key, value in values.items() if value}


def _ids(values: Mapping[str, str | None]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The ids with a Metadata field, by its name, and the others as "kind:id"."""
    ids: dict[str, str] = {}
    other: list[str] = []
    for key, value in values.items():
        word = key.removeprefix(_ARTICLE_ID)
        if not value:
            continue
        if word in _ID_WORDS:
            ids.setdefault(_ID_WORDS[word], value)
        elif key.startswith(_ARTICLE_ID):
            other.append(f"{word}:{value}")
    return ids, tuple(other)


def _journal(values: Mapping[str, str | None], name: str | None) -> Journal | None:
    """The journal; PubTator writes "J. Cell Biol.; 1992 Apr; 117(2) 427-35", which begins with the name."""
    abbreviation = name or (values.get("journal") or "").partition(";")[0].strip() or None
    pages = "-".join(filter(None, (values.get("fpage"), values.get("lpage")))) or values.get("elocation-id") or None
    journal = Journal(None, abbreviation, (), None, values.get("volume") or None, values.get("issue") or None, pages)
    return journal if journal != Journal() else None


def _authors(values: Mapping[str, str | None], listed: tuple[str, ...]) -> tuple[Author, ...]:
    """The authors: name_N infons with surname and given names, a list, or a comma-separated string."""
    fields = sorted((int(match[1]), value or "") for key, value in values.items() if (match := _AUTHOR.fullmatch(key)))
    authors: list[Author] = []
    for _, value in fields:
        parts = dict(part.partition(":")[::2] for part in value.split(";"))
        authors.append(Author(family=parts.get("surname") or value or None, given=parts.get("given-names") or None))
    if authors:
        return tuple(authors)
    for name in filter(None, map(str.strip, listed or (values.get("authors") or "").split(","))):
        family, _, initials = name.rpartition(" ")
        has_initials = family and _INITIALS.fullmatch(initials)
        authors.append(Author(family, initials=initials) if has_initials else Author(family=name))
    return tuple(authors)
