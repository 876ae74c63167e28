"""What BioC's infons say about an article, as Metadata, and back as far as they reach."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from lexome.formats.citation import parse_free_date
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
_LICENCE_URL = re.compile(r"https?://creativecommons\.org/[\w./-]*[\w/]")

_READ = frozenset(
    (
        "pmid", "pmcid", "pmc", "doi", "journal", "year", "volume", "issue", "fpage", "lpage", "elocation-id",
        "license", "licence", "authors", "kwd", "keywords",
    )
)  # fmt: skip


def is_about_the_article(key: str) -> bool:
    """True for the infons of a first passage that are read as metadata."""
    lower = key.lower()
    return lower in _READ or lower.startswith(_ARTICLE_ID) or _AUTHOR.fullmatch(lower) is not None


def note_infons(infons: Iterable[str], where: str, tally: Tally) -> None:
    """Count infons that nothing is made of."""
    for key in infons:
        # name_0, name_1, ... are one kind of infon, and one line of the report.
        tally.note(f"{where} infon {_NUMBERED.sub('_N', key)!r} ignored")


def metadata(infons: Mapping[str, Any], record: Mapping[str, Any]) -> Metadata:
    """The metadata in the infons of a document and its first passage, and in the fields that PubTator3 adds."""
    said = {key.lower(): string(infons, key) for key in infons if is_about_the_article(key) and infons[key] is not None}
    ids, other_ids = _ids(said)
    journal_line = said.get("journal") or ""
    year = said.get("year") or ""
    date = string(record, "date") or ""
    licence = said.get("license") or said.get("licence")
    url = _LICENCE_URL.search(licence or "")
    day = _DAY.match(date)
    return Metadata(
        pmid=string(record, "pmid") or ids.get("pmid"),
        pmcid=_pmcid(string(record, "pmcid") or ids.get("pmcid")),
        doi=ids.get("doi") or (doi[1] if (doi := _DOI.search(journal_line)) is not None else None),
        other_ids=other_ids,
        journal=_journal(said, string(record, "journal")),
        published=day[0] if day is not None else _published(journal_line, year),
        authors=_authors(said, strings(record, "authors")),
        keywords=_keywords(said.get("kwd") or said.get("keywords") or ""),
        licence=licence,
        licence_url=url[0] if url is not None else None,
    )


def meta_infons(meta: Metadata) -> dict[str, str]:
    """The infons that say the most of this metadata in BioC's usual words."""
    journal = meta.journal or Journal()
    said = {
        "article-id_pmid": meta.pmid,
        "article-id_pmc": meta.pmcid,
        "article-id_doi": meta.doi,
        "journal": journal.abbreviation or journal.title,
        "year": (meta.published or "")[:4],
        "volume": journal.volume,
        "issue": journal.issue,
        "authors": ", ".join(filter(None, map(_name, meta.authors))),
        "kwd": "; ".join(meta.keywords),
        "license": meta.licence,
    }
    return {key: value for key, value in said.items() if value}


def _ids(said: Mapping[str, str | None]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The ids that have a field of their own, by its name, and the others with what they are."""
    ids: dict[str, str] = {}
    other: list[str] = []
    for key, value in said.items():
        word = key.removeprefix(_ARTICLE_ID)
        if not value:
            continue
        if word in _ID_WORDS:
            ids.setdefault(_ID_WORDS[word], value)
        elif key.startswith(_ARTICLE_ID):
            other.append(f"{word}:{value}")
    return ids, tuple(other)


def _pmcid(value: str | None) -> str | None:
    return f"PMC{value}" if value is not None and value.isdecimal() else value


def _journal(said: Mapping[str, str | None], name: str | None) -> Journal | None:
    """The journal; PubTator gives "J. Cell Biol.; 1992 Apr; 117(2) 427-35", whose beginning is its name."""
    abbreviation = name or (said.get("journal") or "").partition(";")[0].strip() or None
    pages = "-".join(filter(None, (said.get("fpage"), said.get("lpage")))) or said.get("elocation-id") or None
    journal = Journal(None, abbreviation, (), None, said.get("volume") or None, said.get("issue") or None, pages)
    return journal if journal != Journal() else None


def _published(journal_line: str, year: str) -> str | None:
    """The date in the journal's line where it agrees with the year, else the year."""
    date = parse_free_date(journal_line.partition(";")[2])
    if date is not None and (not year or date.startswith(year)):
        return date
    return year if _YEAR.fullmatch(year) else None


def _authors(said: Mapping[str, str | None], listed: tuple[str, ...]) -> tuple[Author, ...]:
    """The authors: as fields of surname and given names, as a list, or as names apart by commas."""
    fields = sorted((int(found[1]), value or "") for key, value in said.items() if (found := _AUTHOR.fullmatch(key)))
    if fields:
        return tuple(_from_fields(value) for _, value in fields)
    names = listed or tuple((said.get("authors") or "").split(","))
    return tuple(_from_name(name.strip()) for name in names if name.strip())


def _from_fields(value: str) -> Author:
    fields = dict(part.partition(":")[::2] for part in value.split(";"))
    return Author(family=fields.get("surname") or value or None, given=fields.get("given-names") or None)


def _from_name(name: str) -> Author:
    family, _, initials = name.rpartition(" ")
    return Author(family, initials=initials) if family and _INITIALS.fullmatch(initials) else Author(family=name)


def _name(author: Author) -> str:
    if author.collective:
        return author.collective
    return " ".join(filter(None, (author.family, author.initials or author.given)))


def _keywords(text: str) -> tuple[str, ...]:
    """The keywords, apart by semicolons; PMC puts spaces between them, which cannot be told from those inside."""
    return tuple(word.strip() for word in text.split(";") if word.strip())
