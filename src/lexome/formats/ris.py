"""RIS, the export of citation managers: two-letter tags, a title and an abstract per reference."""

import re
from collections.abc import Iterator
from functools import partial

from lexome.document import Document, lay_out, shorten
from lexome.errors import BadDocument
from lexome.formats.citation import fold, parse_free_date, pmcid
from lexome.formats.streams import MAX_RECORD_BYTES, Source, decode, too_large
from lexome.formats.tally import Tally
from lexome.metadata import Author, Journal, Metadata

_FIELD = re.compile(r"([A-Z][A-Z0-9])  -(?: (.*))?", re.DOTALL)
_TYPE = re.compile(rb"TY  -")
_END = re.compile(rb"ER  -")
_DATE = re.compile(r"(\d{4})(?:/(\d\d)?)?(?:/(\d\d)?)?")
_PUBMED = re.compile(r"pubmed(?:\.ncbi\.nlm\.nih\.gov|/)[/=]*(\d{1,9})")
_TITLES, _ABSTRACTS = ("TI", "T1", "CT", "BT"), ("AB", "N2")
_AUTHORS = ("AU", "A1", "A2", "A3")
_JOURNALS, _SHORT_JOURNALS = ("JF", "T2", "JO"), ("JA", "J2", "J1")
_DATES = ("PY", "Y1", "DA")
_USED = frozenset(
    (
        *_TITLES, *_ABSTRACTS, *_AUTHORS, *_JOURNALS, *_SHORT_JOURNALS, *_DATES,
        "TY", "KW", "DO", "AN", "ID", "UR", "SN", "VL", "IS", "SP", "EP", "LA", "C2", "DB",
    )
)  # fmt: skip


def read(source: Source, *, tally: Tally, encoding: str = "utf-8") -> Iterator[Document]:
    """One document per reference: title and abstract.

    The id is the PMID, if the reference is PubMed's, else the DOI, else the reference's id, else file and line.
    """
    for line, lines in _references(source):
        raw = b"\n".join(lines)
        make = partial(_document, raw, f"{source.stem}-{line}", encoding, tally)
        yield from tally.accept(
            make, where=f"{source.name}, line {line}", id=partial(_known_id, raw, encoding), raw=raw
        )


def _references(source: Source) -> Iterator[tuple[int, list[bytes]]]:
    """The first line number and the lines of each reference, from TY to ER."""
    lines: list[bytes] = []
    first = size = 0
    for number, line in source.lines():
        if lines and _TYPE.match(line):
            yield first, lines
            lines = []
        if not lines:
            if not line.strip():
                continue
            first, size = number, 0
        if _END.match(line):
            if lines:
                yield first, lines
            lines = []
            continue
        lines.append(line)
        size += len(line) + 64
        if size > MAX_RECORD_BYTES:
            raise too_large(source.name, f"the reference at line {first}", "Check its ER line.", value=first)
    if lines:
        yield first, lines


def _fields(raw: bytes, encoding: str) -> dict[str, list[str]]:
    """The values of each tag."""
    fields: dict[str, list[str]] = {}
    tag = ""
    for number, line in enumerate(decode(raw, encoding).split("\n"), 1):
        match = _FIELD.fullmatch(line.rstrip())
        if match is not None:
            tag = match[1]
            fields.setdefault(tag, []).append((match[2] or "").strip())
        elif tag:
            fields[tag][-1] = fold(f"{fields[tag][-1]}\n{line}")
        else:
            raise BadDocument(
                "malformed_line",
                f"line {number} of the reference is {shorten(line)!r}; expected a tag such as 'TI  - '.",
                value=number,
            )
    return fields


def _known_id(raw: bytes, encoding: str) -> str | None:
    fields = _fields(raw, encoding)
    return _id(fields, _metadata(fields)) or None


def _id(fields: dict[str, list[str]], meta: Metadata) -> str:
    return meta.pmid or meta.doi or _first(fields, "ID", "AN")


def _document(raw: bytes, name: str, encoding: str, tally: Tally) -> Document:
    fields = _fields(raw, encoding)
    if "TY" not in fields:
        raise BadDocument("no_type", "the reference does not begin with a line TY  - ", value=name)
    for unused in fields.keys() - _USED:
        tally.note(f"tag {unused} ignored")
    title, abstract = _first(fields, *_TITLES), _first(fields, *_ABSTRACTS)
    if not title and not abstract:
        raise BadDocument("no_text", "the reference has neither title (TI) nor abstract (AB).", value=name)
    meta = _metadata(fields)
    return Document(
        _id(fields, meta) or name,
        lay_out([(kind, text) for kind, text in (("title", title), ("abstract", abstract)) if text]),
        meta=meta,
    )


def _first(fields: dict[str, list[str]], *tags: str) -> str:
    return next((value for tag in tags for value in fields.get(tag, ()) if value), "")


def _metadata(fields: dict[str, list[str]]) -> Metadata:
    title, short = _first(fields, *_JOURNALS), _first(fields, *_SHORT_JOURNALS)
    pages = "-".join(filter(None, (_first(fields, "SP"), _first(fields, "EP"))))
    journal = Journal(
        title or None,
        short or None,
        tuple(filter(None, fields.get("SN", ()))),
        None,
        _first(fields, "VL") or None,
        _first(fields, "IS") or None,
        pages or None,
    )
    accession = _first(fields, "AN")
    is_pubmed = "pubmed" in _first(fields, "DB").lower() or "medline" in _first(fields, "DB").lower()
    linked = next((match[1] for url in fields.get("UR", ()) if (match := _PUBMED.search(url))), None)
    deposited = _first(fields, "C2")
    return Metadata(
        pmid=accession if is_pubmed and accession.isdecimal() else linked,
        pmcid=pmcid(deposited) if re.fullmatch(r"(PMC)?\d+", deposited) else None,
        doi=_first(fields, "DO").removeprefix("https://doi.org/") or None,
        languages=tuple(filter(None, fields.get("LA", ()))),
        journal=journal if journal != Journal() else None,
        published=_date(_first(fields, *_DATES)),
        authors=tuple(map(_author, filter(None, (name for tag in _AUTHORS for name in fields.get(tag, ()))))),
        keywords=tuple(filter(None, fields.get("KW", ()))),
    )


def _author(name: str) -> Author:
    family, _, given = name.partition(",")
    return Author(family.strip(), given.strip(" ,") or None)


def _date(text: str) -> str | None:
    """The ISO date of 2021/03/09/, 2021//, or of a free form."""
    match = _DATE.match(text)
    return "-".join(filter(None, match.groups())) if match is not None else parse_free_date(text)
