"""Tables of mentions: one row per mention, or with `counts` one row per concept or name.

The columns of a table of mentions are those of COLUMNS. A document without mentions has no row, which is noted.

Spreadsheets run a cell that begins with =, +, - or @ as a formula, and text of strangers may begin so ("CSV
injection"). Such text is written with an apostrophe before it, which spreadsheets hide, unless `escape` is false.
"""

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from lexome.document import Document, Passage, Span, encode_utf8, shorten
from lexome.formats.tally import PASSAGE_DETAILS, Tally, note_losses

COLUMNS = ("document", "pmid", "passage", "start", "end", "text", "type", "score", "concept", "name")
COUNT_COLUMNS = ("name", "type", "concept", "documents", "mentions")
Cell = str | int | float
PreferredName = Callable[[str], str | None]
"""The preferred name of a concept id, or None."""

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
_SUPPORTED = PASSAGE_DETAILS | {"concepts", "scores"}


def table_rows(
    docs: Iterable[Document], *, counts: bool, preferred_name: PreferredName | None, tally: Tally
) -> Iterator[tuple[Cell, ...]]:
    """The header, then the rows of a table of mentions or of counts."""
    if counts:
        counted = _Counts()
        for doc in _written(docs, tally):
            counted.add(doc)
        yield COUNT_COLUMNS
        yield from counted.rows(preferred_name)
        return
    yield COLUMNS
    for doc in _written(docs, tally):
        for span in doc.spans:
            yield _mention_row(doc, span, preferred_name, tally)


def write_delimited(
    docs: Iterable[Document],
    stream: BinaryIO,
    delimiter: str,
    *,
    tally: Tally,
    counts: bool,
    escape: bool,
    preferred_name: PreferredName | None,
) -> None:
    """The table in UTF-8; cells with the delimiter, a quote or a line break are quoted."""
    line = io.StringIO(newline="")
    # Cells with a carriage return are quoted only where it is part of the line terminator.
    writer = csv.writer(line, delimiter=delimiter, lineterminator="\r\n")
    for row in table_rows(docs, counts=counts, preferred_name=preferred_name, tally=tally):
        writer.writerow([escape_formula(cell, tally) if escape and isinstance(cell, str) else cell for cell in row])
        stream.write(encode_utf8(line.getvalue().removesuffix("\r\n") + "\n"))
        line.seek(0)
        line.truncate()


def escape_formula(cell: str, tally: Tally) -> str:
    """The text, with an apostrophe before it if a spreadsheet would take it for a formula."""
    if not cell.startswith(_FORMULA_STARTS):
        return cell
    tally.note("apostrophe put before text that begins like a formula")
    return f"'{cell}"


def place_name(passage: Passage) -> str:
    """Where a passage is: its headings, or its kind where it has none."""
    return " > ".join(passage.section) or passage.kind


def _written(docs: Iterable[Document], tally: Tally) -> Iterator[Document]:
    """The documents, each counted as written, with notes on what a table does not have."""
    for doc in tally.convert(docs, _require_unicode):
        note_losses(doc, tally, supported=_SUPPORTED)
        if not doc.spans:
            tally.note("document without mentions: no row")
        yield doc


def _require_unicode(doc: Document) -> Document:
    """The document; BadDocument if it has a lone surrogate, which no file in UTF-8 can hold."""
    encode_utf8(doc.id, "the id")
    for span in doc.spans:
        encode_utf8(f"{span.text}{span.type}{''.join(span.concepts)}", f"the mention {shorten(repr(span.id))}")
    return doc


def _mention_row(doc: Document, span: Span, preferred_name: PreferredName | None, tally: Tally) -> tuple[Cell, ...]:
    if len(span.parts) > 1:
        tally.note("discontinuous mention: start and end enclose its parts")
    passage = doc.passage_at(span.start)
    return (
        doc.id,
        doc.meta.pmid or "",
        place_name(passage) if passage is not None else "",
        span.start,
        span.end,
        span.text,
        span.type,
        "" if span.score is None else round(span.score, 4),
        "; ".join(span.concepts),
        _names(span.concepts, preferred_name),
    )


def _names(concepts: Iterable[str], preferred_name: PreferredName | None) -> str:
    if preferred_name is None:
        return ""
    return "; ".join(preferred_name(concept) or "" for concept in concepts).strip("; ")


@dataclass(slots=True)
class _Counts:
    """Documents and mentions of each concept, or of each name that has none, regardless of case."""

    documents: Counter[tuple[str, str]] = field(default_factory=Counter)
    mentions: Counter[tuple[str, str]] = field(default_factory=Counter)
    spellings: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)
    types: dict[tuple[str, str], Counter[str]] = field(default_factory=dict)

    def add(self, doc: Document) -> None:
        present = set()
        for span in doc.spans:
            # A concept is the same whatever type its mentions have; a name without one is not.
            keys = [("", concept) for concept in span.concepts] or [(span.type, span.text.casefold())]
            for key in dict.fromkeys(keys):
                self.mentions[key] += 1
                self.spellings.setdefault(key, Counter())[span.text] += 1
                self.types.setdefault(key, Counter())[span.type] += 1
                present.add(key)
        self.documents.update(present)

    def rows(self, preferred_name: PreferredName | None) -> Iterator[tuple[Cell, ...]]:
        """Rows by number of mentions, then of documents, then by name."""
        ordered = sorted(self.mentions, key=lambda key: (-self.mentions[key], -self.documents[key], key))
        for key in ordered:
            concept = "" if key[0] else key[1]
            preferred = preferred_name(concept) if preferred_name is not None and concept else None
            name = preferred or _most_frequent(self.spellings[key])
            yield name, _most_frequent(self.types[key]), concept, self.documents[key], self.mentions[key]


def _most_frequent(names: Counter[str]) -> str:
    return min(names, key=lambda name: (-names[name], name))
