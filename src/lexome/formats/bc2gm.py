"""BioCreative II gene mention: sentences in an .in file, mentions in .eval files beside it.

    P00001606T0076 Comparison with alkaline phosphatases      a sentence and its id
    P00001606T0076|14 33|alkaline phosphatases                a mention of it

Offsets count from 0, leave out spaces (nothing but U+0020) and include the last character. Mentions in
a file whose name has ALT in it are alternatives, which official scoring accepts as well: type ALTGENE.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

from lexome.document import Document, Passage, Span, shorten
from lexome.errors import BadDocument
from lexome.formats.streams import Source, decode
from lexome.formats.tally import Tally, repair_spans

_MENTION = re.compile(r"([^|]*)\|([0-9]{1,9}) ([0-9]{1,9})\|(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of a file, and where it stands."""

    where: str
    raw: bytes


@dataclass(frozen=True, slots=True)
class _Mention:
    """A mention in the file's own counting: spaces left out, the last character included."""

    type: str
    first: int
    last: int
    text: str


def read(
    sources: Iterator[Source],
    *,
    tally: Tally,
    offsets: Literal["strict", "repair"] = "strict",
    encoding: str = "utf-8",
) -> Iterator[Document]:
    """A document for each sentence of the .in files, with the mentions of all .eval files.

    Mentions may come before or after their sentences, so both are held until all files are read.
    """
    sentences: dict[str, tuple[str, _Line]] = {}
    mentions: defaultdict[str, list[tuple[_Line, _Mention]]] = defaultdict(list)
    for source in sources:
        if source.extension not in (".in", ".eval"):
            tally.note("file that is neither .in nor .eval skipped")
            continue
        type = "ALTGENE" if "ALT" in source.stem.upper() else "GENE"
        for number, raw in source.lines():
            if not raw or raw.isspace():
                continue
            line = _Line(f"{source.name}, line {number}", raw)
            if source.extension == ".in":
                tally.attempt(partial(_add_sentence, sentences, line, encoding), where=line.where, raw=raw)
                continue
            found = tally.attempt(partial(_mention, line, type, encoding), where=line.where, raw=raw)
            if found is not None:
                mentions[found[0]].append((line, found[1]))
    for id, (text, line) in sentences.items():
        # Genes before their alternatives, in whatever order the files came.
        own = sorted((mention for _, mention in mentions.pop(id, ())), key=lambda mention: mention.type != "GENE")
        make = partial(_document, id, text, own, tally if offsets == "repair" else None)
        doc = tally.attempt(make, where=line.where, id=id, raw=line.raw)
        if doc is not None:
            yield doc
    for id, lines in mentions.items():
        for line, _ in lines:
            tally.reject(_unknown(id), where=line.where, id=id, raw=line.raw)


def _add_sentence(sentences: dict[str, tuple[str, _Line]], line: _Line, encoding: str) -> None:
    id, _, text = decode(line.raw, encoding).partition(" ")
    if not id or not text.strip(" "):
        seen = shorten(f"{id} {text}".strip())
        raise BadDocument("bad_line", f"{seen!r} was seen; expected an id, a space and a sentence. Mend the line.")
    if id in sentences:
        raise BadDocument("duplicate_id", f"the id {shorten(id)!r} came before; expected a sentence once.")
    sentences[id] = (text, line)


def _mention(line: _Line, type: str, encoding: str) -> tuple[str, _Mention]:
    """The id of a sentence and a mention in it."""
    text = decode(line.raw, encoding)
    match = _MENTION.fullmatch(text)
    if match is None:
        raise BadDocument(
            "bad_line", f"{shorten(text)!r} was seen; expected an id, offsets and a text, as in 'P0A1|14 33|kinase'."
        )
    return match[1], _Mention(type, int(match[2]), int(match[3]), match[4])


def _document(id: str, text: str, mentions: list[_Mention], repairing: Tally | None) -> Document:
    passages = (Passage(0, text, "sentence"),) if text else ()
    places = [place for place, character in enumerate(text) if character != " "] if mentions else []
    spans = tuple(_span(f"T{number}", mention, places, len(text)) for number, mention in enumerate(mentions, 1))
    if repairing is not None:
        spans, _, _ = repair_spans(passages, spans, tally=repairing)
    return Document(id, passages, spans)


def _span(id: str, mention: _Mention, places: list[int], size: int) -> Span:
    """The mention in characters; what is counted past the end of the text stays past it."""
    start, last = (
        places[place] if place < len(places) else size + place - len(places) for place in (mention.first, mention.last)
    )
    return Span(id, mention.type, ((start, last + 1),), mention.text)


def _unknown(id: str) -> BadDocument:
    return BadDocument(
        "unknown_target", f"a mention is in {shorten(id)!r}, which is no sentence of the .in files. Add its .in file."
    )
