"""Readers of datasets with custom layouts: the i2b2 challenges, DrugProt and MED1250.

i2b2: concepts and relations of 2010, events of 2012, identifiers of 2014. The data is restricted; its formats are

2010  a note is a .txt file; `c="the cough" 12:3 12:4||t="problem"` in its .con file is a concept from token 3 to 4 of
      line 12, with lines counted from 1 and tokens from 0; a line of its .rel file has two of these with
      `||r="TrAP"||` between them
2012  XML with the note in <TEXT> and <EVENT> tags whose offsets count from 1; some files are not well-formed
2014  XML with the note in <TEXT> and a tag for each identifier, its type in TYPE, whose offsets count from 0

DrugProt: columns of three tables, in which offsets are of title + one character + abstract

abstracts   PMID, title, abstract
entities    PMID, id, CHEMICAL or GENE-Y or GENE-N, start, end, text
relations   PMID, type, Arg1:T1, Arg2:T2

MED1250: 1,250 MEDLINE titles and abstracts with the abbreviations that they define. A block has the PMID, the text,
and a line "  short form|long form" for each definition:

    8549581
    Sodium citrate ingestion and muscle performance in acute hypobaric hypoxia.
    ... or hypobaric hypoxia (HH, PB approximately 380 mmHg) ...
      HH|hypobaric hypoxia

A line of text that begins with a space continues the one before. Lines with // are the annotators' comments. The file
has no offsets; a definition is placed where its short form and long form are closest, or, if the long form is not in
the text verbatim, at its words in order. Definitions that are not found are counted.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from lexome.document import Argument, Document, Passage, Range, Relation, Span, lay_out, numbered_ids, shorten
from lexome.errors import BadDocument
from lexome.formats.streams import Source, decode, uncompressed_name
from lexome.formats.tally import Tally, find_nearest
from lexome.formats.xml import Record, records

if TYPE_CHECKING:
    from lxml import etree

_PLACE = r'c="(.*)" (\d+):(\d+) (\d+):(\d+)'
_CONCEPT = re.compile(_PLACE + r'\|\|t="([^"]*)"(?:\|\|a="[^"]*")?')
_RELATION = re.compile(_PLACE.replace(".*", ".*?") + r'\|\|r="([^"]*)"\|\|' + _PLACE.replace(".*", ".*?"))
_LINE = re.compile(r"^.*$", re.MULTILINE)
_TOKEN = re.compile(r"\S+")
_BARE_AMPERSAND = re.compile(rb"&(?!(?:amp|lt|gt|quot|apos|#\d+|#x[0-9a-fA-F]+);)")
_CDATA = re.compile(rb"(<!\[CDATA\[.*?\]\]>)", re.DOTALL)
_PARTS = {".txt": "text", ".con": "concepts", ".rel": "relations"}


def concepts_2010(sources: Iterable[Source], *, tally: Tally) -> Iterator[Document]:
    """A document for each note of 2010 with concepts, and its relations."""
    parts: defaultdict[str, dict[str, bytes]] = defaultdict(dict)
    for source in sources:
        part = _PARTS.get(source.extension)
        if part is not None:
            parts[source.stem][part] = source.read()
        elif source.extension != ".ast":
            tally.note(f"file with unsupported extension skipped: {source.extension or 'none'}")
    for name in sorted(parts):
        own = parts[name]
        if "concepts" not in own:
            tally.note("note without concepts skipped")
            continue
        doc = tally.attempt(partial(_note, name, own, tally), where=name, id=name, raw=own.get("text"))
        if doc is not None:
            yield doc


def events_2012(sources: Iterable[Source], *, tally: Tally) -> Iterator[Document]:
    """A document for each note of 2012, with its events; times and temporal links are skipped and counted."""
    yield from _read_tagged(sources, b"ClinicalNarrativeTemporalAnnotation", "EVENT", "type", (1, 0), tally)


def identifiers_2014(sources: Iterable[Source], *, tally: Tally) -> Iterator[Document]:
    """A document for each note of 2014, with the identifiers of persons in it."""
    yield from _read_tagged(sources, b"deIdi2b2", None, "TYPE", (0,), tally)


def _note(name: str, own: dict[str, bytes], tally: Tally) -> Document:
    if "text" not in own:
        raise BadDocument("no_text", "there are concepts but no text; expected both. Add the .txt file.")
    text = decode(own["text"]).replace("\r\n", "\n").removesuffix("\n")
    lines = _lines(text)
    tokens = [_tokens(text, line) for line in lines]
    spans = _concepts(decode(own["concepts"]), text, tokens, tally)
    relations = _relations(decode(own.get("relations", b"")), text, tokens, spans, tally)
    passage = Passage(0, text, "note", sentences=tuple(lines), tokens=tuple(token for own in tokens for token in own))
    return Document(name, (passage,) if text else (), tuple(spans.values()), tuple(relations))


def _concepts(listed: str, text: str, tokens: list[list[Range]], tally: Tally) -> dict[tuple[int, int, str], Span]:
    """The concepts by range and type, without duplicates."""
    spans: dict[tuple[int, int, str], Span] = {}
    ids = numbered_ids("T")
    for line in filter(str.strip, listed.split("\n")):
        match = _CONCEPT.fullmatch(line.strip())
        if match is None:
            raise BadDocument("bad_line", f'the line is {shorten(line)!r}; expected c="text" 1:0 1:2||t="problem".')
        start, end = _place(match.group(1, 2, 3, 4, 5), text, tokens)
        if (start, end, match[6]) in spans:
            tally.note("duplicate concept skipped")
        else:
            spans[start, end, match[6]] = Span(next(ids), match[6], ((start, end),), text[start:end])
    return spans


def _relations(
    listed: str, text: str, tokens: list[list[Range]], spans: dict[tuple[int, int, str], Span], tally: Tally
) -> Iterator[Relation]:
    by_place = {(start, end): span for (start, end, _), span in spans.items()}
    ids = numbered_ids("R")
    for line in filter(str.strip, listed.split("\n")):
        match = _RELATION.fullmatch(line.strip())
        if match is None:
            raise BadDocument(
                "bad_line", f'the line is {shorten(line)!r}; expected c="" 1:0 1:2||r="TrAP"||c="" 1:4 1:5.'
            )
        sides = [_place(match.group(*groups), text, tokens) for groups in ((1, 2, 3, 4, 5), (7, 8, 9, 10, 11))]
        first, second = (by_place.get(side) for side in sides)
        if first is None or second is None:
            tally.note("relation skipped: its concept is not listed")
            continue
        yield Relation(next(ids), match[6], (Argument("Arg1", first.id), Argument("Arg2", second.id)))


def _place(cells: tuple[str | None, ...], text: str, tokens: list[list[Range]]) -> Range:
    """The range of a concept; BadDocument if the text there differs."""
    expected, first_line, first, last_line, last = cells
    try:
        start = tokens[int(first_line or 0) - 1][int(first or 0)][0]
        end = tokens[int(last_line or 0) - 1][int(last or 0)][1]
    except IndexError:
        start = end = 0
    if _normalize(text[start:end]) != _normalize(expected or "") or start == end:
        raise BadDocument(
            "offset_mismatch",
            f"the concept {shorten(expected or '')!r} is at {first_line}:{first} {last_line}:{last}, where the text "
            f"is {shorten(text[start:end])!r}. Use text and concepts of one release.",
        )
    return start, end


def _lines(text: str) -> list[Range]:
    return [match.span() for match in _LINE.finditer(text)]


def _tokens(text: str, line: Range) -> list[Range]:
    """The tokens of a line; a line that begins with a space has an empty first token, as the corpus counts."""
    start, end = line
    tokens = [match.span() for match in _TOKEN.finditer(text, start, end)]
    return [(start, start), *tokens] if tokens and tokens[0][0] > start else tokens


def _normalize(text: str) -> str:
    return " ".join(text.lower().split())


def _read_tagged(
    sources: Iterable[Source], root: bytes, tag: str | None, attribute: str, bases: tuple[int, ...], tally: Tally
) -> Iterator[Document]:
    for source in sources:
        if source.extension != ".xml":
            tally.note(f"file with unsupported extension skipped: {source.extension or 'none'}")
            continue
        name = PurePosixPath(uncompressed_name(source.location)).stem
        for record in records(source, (root.decode(),)):
            make = partial(_read_tagged_note, name, record, tag, attribute, bases, tally)
            doc = tally.attempt(make, where=f"{source.name}, line {record.line}", id=name, raw=record.raw)
            if doc is not None:
                yield doc


def _read_tagged_note(
    name: str, record: Record, tag: str | None, attribute: str, bases: tuple[int, ...], tally: Tally
) -> Document:
    root = _parse(record, tally)
    text = root.findtext("TEXT") or ""
    tags = root.find("TAGS")
    ids = numbered_ids("T")
    spans: list[Span] = []
    for element in tags if tags is not None else ():
        if tag is not None and element.tag != tag:
            tally.note(f"<{element.tag!s}> skipped")
            continue
        place = _tag_range(element, text, bases, tally)
        if place is not None:
            kind = element.get(attribute) or str(element.tag)
            spans.append(Span(next(ids), kind, (place,), text[slice(*place)]))
    return Document(name, (Passage(0, text, "note", sentences=tuple(_lines(text))),) if text else (), tuple(spans))


def _parse(record: Record, tally: Tally) -> "etree._Element":
    """The parsed record; bare ampersands that make it malformed are escaped."""
    try:
        return record.parse()
    except BadDocument:
        pieces = _CDATA.split(record.raw)
        # Every second piece is a CDATA section, where an & needs no escape.
        pieces[::2] = [_BARE_AMPERSAND.sub(b"&amp;", piece) for piece in pieces[::2]]
        escaped = b"".join(pieces)
        if escaped == record.raw:
            raise
        root = Record(record.tag, escaped, record.line).parse()
        tally.note("XML with a bare & repaired")
        return root


def _tag_range(element: "etree._Element", text: str, bases: tuple[int, ...], tally: Tally) -> Range | None:
    """The range of a tag's text: its offsets, counted from the first base that fits, else the nearest match."""
    expected = element.get("text") or ""
    try:
        start, end = int(element.get("start") or ""), int(element.get("end") or "")
    except ValueError:
        tally.note(f"<{element.tag!s}> without offsets skipped")
        return None
    for base in bases:
        place = (start - base, end - base)
        if 0 <= place[0] < place[1] and expected and _normalize(text[slice(*place)]) == _normalize(expected):
            inner = text[slice(*place)]
            return place[0] + len(inner) - len(inner.lstrip()), place[1] - len(inner) + len(inner.rstrip())
    nearest = find_nearest(text, expected, start) if expected else None
    if nearest is None:
        tally.note("mention skipped: its text is not near its offsets")
        return None
    tally.note("mention moved to its text")
    return nearest, nearest + len(expected)


# DrugProt


TABLES = ("abstracts", "entities", "relations")


def read_drugprot(sources: Iterable[Source], *, tally: Tally) -> Iterator[Document]:
    """A document for each abstract, with its entities and relations."""
    tables: dict[str, defaultdict[str, list[list[str]]]] = {}
    for source in sources:
        name = next((name for name in TABLES if name in source.stem), None)
        if name is None:
            tally.note("file of another name skipped")
            continue
        rows = tables.setdefault(name, defaultdict(list))
        for line in decode(source.read(), "utf-8").splitlines():
            if line.strip():
                pmid, *columns = line.split("\t")
                rows[pmid].append(columns)
    empty: defaultdict[str, list[list[str]]] = defaultdict(list)
    entities, relations = tables.get("entities", empty), tables.get("relations", empty)
    for pmid, texts in tables.get("abstracts", empty).items():
        make = partial(_drugprot_document, pmid, texts, entities.get(pmid, ()), relations.get(pmid, ()))
        yield from tally.accept(make, where=f"abstract {pmid}", id=pmid, raw=None)
    for name in ("entities", "relations"):
        if missing := tables.get(name, empty).keys() - tables.get("abstracts", empty).keys():
            tally.note(f"{name} of an abstract that is not there skipped", len(missing))


def _drugprot_document(
    pmid: str, texts: Sequence[list[str]], entities: Sequence[list[str]], relations: Sequence[list[str]]
) -> Document:
    if len(texts) != 1 or len(texts[0]) != 2:
        message = f"abstract {shorten(pmid)!r} has {len(texts)} rows; expected one, with PMID, title and abstract."
        raise BadDocument("bad_field", message, value=pmid)
    passages = lay_out([("title", texts[0][0]), ("abstract", texts[0][1])])
    spans = []
    for columns in entities:
        if len(columns) != 5 or not (columns[2].isdecimal() and columns[3].isdecimal()):
            expected = "id, type, start, end, text"
            message = f"abstract {shorten(pmid)!r}: an entity has the columns {columns}; expected {expected}."
            raise BadDocument("bad_field", message, value=pmid)
        id, type_, start, end, text = columns
        spans.append(Span(id, type_, ((int(start), int(end)),), text))
    parsed = []
    for number, columns in enumerate(relations, 1):
        sides = [side.partition(":") for side in columns[1:]]
        if len(columns) != 3 or not all(target for _, _, target in sides):
            expected = "type, Arg1:T1, Arg2:T2"
            message = f"abstract {shorten(pmid)!r}: a relation has the columns {columns}; expected {expected}."
            raise BadDocument("bad_field", message, value=pmid)
        arguments = tuple(Argument(role, target) for role, _, target in sides)
        parsed.append(Relation(f"R{number}", columns[0], arguments))
    return Document(pmid, passages, tuple(spans), tuple(parsed))


# MED1250


# As lexome.concepts.abbreviations names them; the layers of packages forbid importing them here.
SHORT_FORM, LONG_FORM, ABBREVIATION = "ShortForm", "LongForm", "Abbreviation"
_PMID = re.compile(r"\d+\s*")
# The words of a long form that is not contiguous are at most this far apart, in characters.
_REACH = 120
NOT_FOUND = "definition skipped: its words are not in the text"


def read_abbreviations(sources: Iterable[Source], *, tally: Tally) -> Iterator[Document]:
    """A document for each abstract, with spans ShortForm and LongForm and a relation Abbreviation per definition."""
    for source in sources:
        for line, block in _blocks(source):
            where = f"{source.name}, line {line}"
            doc = tally.attempt(partial(_med1250_document, block, tally), where=where, id=block[0].strip(), raw=None)
            if doc is not None:
                yield doc


def _blocks(source: Source) -> Iterator[tuple[int, list[str]]]:
    """The lines of each document, with the number of its first; the file is in Windows-1252."""
    block: list[str] = []
    first = 0
    for number, raw in enumerate(source.read().decode("cp1252", errors="replace").split("\n"), 1):
        line = raw.rstrip("\r")
        if _PMID.fullmatch(line):
            if block and block[0].strip() == line.strip():
                continue  # the same article goes on
            if block:
                yield first, block
            block, first = [line], number
        elif line.strip() and not line.lstrip().startswith("//"):
            if not block:
                message = f"{source.name}, line {number}: text before the first PMID; expected a line with a number."
                raise BadDocument("no_id", message, value=number)
            block.append(line)
    if block:
        yield first, block


def _med1250_document(block: list[str], tally: Tally) -> Document:
    texts: list[str] = []
    definitions: list[tuple[str, str]] = []
    for line in block[1:]:
        if line.startswith("  ") and "|" in line:
            short, _, long = line.partition("|")
            definitions.append((short.strip(), " ".join(long.split())))
        elif line[0] == " " and texts:
            texts[-1] += line
        else:
            texts.append(line)
    if not texts:
        raise BadDocument("no_text", "the block has no text; expected a title and an abstract")
    kinds = ("title", *("abstract" for _ in texts[1:]))
    doc = Document(block[0].strip(), lay_out(zip(kinds, map(str.rstrip, texts), strict=True)))
    spans: list[Span] = []
    relations: list[Relation] = []
    used: set[Range] = set()
    for number, (short, long) in enumerate(definitions, 1):
        place = _locate(doc.text, short, long, used)
        if place is None:
            tally.note(NOT_FOUND)
            continue
        used.add(place[0])
        for prefix, type, parts in (("SF", SHORT_FORM, (place[0],)), ("LF", LONG_FORM, place[1])):
            text = " ".join(doc.slice(*part) for part in parts)
            spans.append(Span(f"{prefix}{number}", type, parts, text))
        roles = (Argument(SHORT_FORM, f"SF{number}"), Argument(LONG_FORM, f"LF{number}"))
        relations.append(Relation(f"AB{number}", ABBREVIATION, roles))
    return Document(doc.id, doc.passages, tuple(spans), tuple(relations))


def _locate(text: str, short: str, long: str, used: set[Range]) -> tuple[Range, tuple[Range, ...]] | None:
    """The places where a short form and its long form are closest; a short form has one definition."""
    shorts = [place for place in _occurrences(text, short) if place not in used]
    contiguous = [(place,) for place in _occurrences(text, long)]
    best = min(
        ((_distance(place, own[0]), place, own) for place in shorts for own in contiguous if _disjoint(place, own[0])),
        default=None,
    )
    if best is not None:
        return best[1], best[2]
    scattered = ((place, _words(text, long, place)) for place in shorts)
    return next(((place, parts) for place, parts in scattered if parts is not None), None)


def _occurrences(text: str, form: str) -> list[Range]:
    pattern = r"[ ]+".join(map(re.escape, form.split()))
    return [match.span() for match in re.finditer(rf"(?<!\w){pattern}(?!\w)", text)] or [
        match.span() for match in re.finditer(pattern, text, re.IGNORECASE)
    ]


def _disjoint(first: Range, second: Range) -> bool:
    return first[1] <= second[0] or second[1] <= first[0]


def _distance(short: Range, long: Range) -> int:
    return short[0] - long[1] if short[0] >= long[1] else 2 * (long[0] - short[1])


def _words(text: str, long: str, short: Range) -> tuple[Range, ...] | None:
    """The places of the long form's words, in order and near the short form, adjacent ones as one part."""
    parts: list[Range] = []
    place = max(0, short[0] - _REACH)
    for word in re.findall(r"\w+|[^\w\s]", long):
        match = re.compile(rf"(?<!\w){re.escape(word)}").search(text, place, short[1] + _REACH)
        if match is None or not _disjoint(match.span(), short) or "\n" in text[place : match.start()]:
            return None
        if parts and match.start() - parts[-1][1] <= 1:
            parts[-1] = (parts[-1][0], match.end())
        else:
            parts.append(match.span())
        place = match.end()
    return tuple(parts)
