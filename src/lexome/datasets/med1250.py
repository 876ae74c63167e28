"""Reader of MED1250: 1,250 MEDLINE titles and abstracts with the abbreviations that they define.

A block has the PMID, the text, and a line "  short form|long form" for each definition:

    8549581
    Sodium citrate ingestion and muscle performance in acute hypobaric hypoxia.
    ... or hypobaric hypoxia (HH, PB approximately 380 mmHg) ...
      HH|hypobaric hypoxia

A line of text that begins with a space continues the one before. Lines with // are the annotators' comments. The file
has no offsets; a definition is placed where its short form and long form are closest, or, if the long form is not in
the text as it is, at its words in order. Those that are nowhere are counted.
"""

import re
from collections.abc import Iterable, Iterator
from functools import partial

from lexome.document import Argument, Document, Range, Relation, Span, lay_out
from lexome.errors import BadDocument
from lexome.formats.streams import Source
from lexome.formats.tally import Tally

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
            doc = tally.attempt(partial(_document, block, tally), where=where, id=block[0].strip(), raw=None)
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


def _document(block: list[str], tally: Tally) -> Document:
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
    taken: set[Range] = set()
    for number, (short, long) in enumerate(definitions, 1):
        place = _locate(doc.text, short, long, taken)
        if place is None:
            tally.note(NOT_FOUND)
            continue
        taken.add(place[0])
        for prefix, type, parts in (("SF", SHORT_FORM, (place[0],)), ("LF", LONG_FORM, place[1])):
            text = " ".join(doc.slice(*part) for part in parts)
            spans.append(Span(f"{prefix}{number}", type, parts, text))
        roles = (Argument(SHORT_FORM, f"SF{number}"), Argument(LONG_FORM, f"LF{number}"))
        relations.append(Relation(f"AB{number}", ABBREVIATION, roles))
    return Document(doc.id, doc.passages, tuple(spans), tuple(relations))


def _locate(text: str, short: str, long: str, taken: set[Range]) -> tuple[Range, tuple[Range, ...]] | None:
    """Where the short form and its long form are closest; a short form has one definition."""
    shorts = [place for place in _occurrences(text, short) if place not in taken]
    contiguous = [(place,) for place in _occurrences(text, long)]
    best = min(
        ((_distance(place, own[0]), place, own) for place in shorts for own in contiguous if _apart(place, own[0])),
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


def _apart(first: Range, second: Range) -> bool:
    return first[1] <= second[0] or second[1] <= first[0]


def _distance(short: Range, long: Range) -> int:
    return short[0] - long[1] if short[0] >= long[1] else 2 * (long[0] - short[1])


def _words(text: str, long: str, short: Range) -> tuple[Range, ...] | None:
    """The places of the long form's words, in order and near the short form, adjacent ones as one part."""
    parts: list[Range] = []
    place = max(0, short[0] - _REACH)
    for word in re.findall(r"\w+|[^\w\s]", long):
        match = re.compile(rf"(?<!\w){re.escape(word)}").search(text, place, short[1] + _REACH)
        if match is None or not _apart(match.span(), short) or "\n" in text[place : match.start()]:
            return None
        if parts and match.start() - parts[-1][1] <= 1:
            parts[-1] = (parts[-1][0], match.end())
        else:
            parts.append(match.span())
        place = match.end()
    return tuple(parts)
