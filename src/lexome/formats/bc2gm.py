"""BioCreative II gene mention: sentences in an .in file, mentions in .eval files.

    P00001606T0076 Comparison with alkaline phosphatases      a sentence and its id
    P00001606T0076|14 33|alkaline phosphatases                a mention in it

Offsets count from 0, exclude spaces (U+0020 only) and include the last character. Mentions in a file with ALT
in its name are alternatives that official scoring also accepts: type ALTGENE.
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
    where: str
    raw: bytes


@dataclass(frozen=True, slots=True)
class _Mention:
    """A mention in the file's offsets: without spaces, last character included."""

    type: str
    first: int
    last: int
    text: str


def read(
    sources: Iterator[Source], *, tally: Tally, offsets: Literal["strict", "repair"] = "strict", encoding: str = "utf-8"
) -> Iterator[Document]:
    """One document per sentence of the .in files, with the mentions of all .eval files.

    Mentions may precede or follow their sentences, so all files are read before the first document.
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
            id_and_mention = tally.attempt(partial(_mention, line, type, encoding), where=line.where, raw=raw)
            if id_and_mention is not None:
                mentions[id_and_mention[0]].append((line, id_and_mention[1]))
    for id, (text, line) in sentences.items():
        # Genes before their alternatives, whatever the order of the files.
        genes = sorted((mention for _, mention in mentions.pop(id, ())), key=lambda mention: mention.type != "GENE")
        make = partial(_document, id, text, genes, tally if offsets == "repair" else None)
        yield from tally.accept(make, where=line.where, id=id, raw=line.raw)
    for id, lines in mentions.items():
        for line, _ in lines:
            unknown = BadDocument(
                "unknown_target",
                f"a mention refers to {shorten(id)!r}, which is not a sentence of the .in files. Add its .in file.",
                value=id,
            )
            tally.reject(unknown, where=line.where, id=id, raw=line.raw)


def _add_sentence(sentences: dict[str, tuple[str, _Line]], line: _Line, encoding: str) -> None:
    id, _, text = decode(line.raw, encoding).partition(" ")
    if not id or not text.strip(" "):
        line_text = shorten(f"{id} {text}".strip())
        raise BadDocument("bad_line", f"the line is {line_text!r}; expected an id, a space and a sentence.")
    if id in sentences:
        raise BadDocument(
            "duplicate_id", f"a second sentence has the id {shorten(id)!r}; expected unique ids.", value=id
        )
    sentences[id] = (text, line)


def _mention(line: _Line, type: str, encoding: str) -> tuple[str, _Mention]:
    """A sentence id and a mention in that sentence."""
    text = decode(line.raw, encoding)
    match = _MENTION.fullmatch(text)
    if match is None:
        raise BadDocument(
            "bad_line", f"the line is {shorten(text)!r}; expected id, offsets and text, such as 'P0A1|14 33|kinase'."
        )
    return match[1], _Mention(type, int(match[2]), int(match[3]), match[4])


def _document(id: str, text: str, mentions: list[_Mention], repair_tally: Tally | None) -> Document:
    passages = (Passage(0, text, "sentence"),) if text else ()
    positions = [at for at, character in enumerate(text) if character != " "] if mentions else []
    spans = tuple(_span(f"T{number}", mention, positions, len(text)) for number, mention in enumerate(mentions, 1))
    if repair_tally is not None:
        spans, _, _ = repair_spans(passages, spans, tally=repair_tally)
    return Document(id, passages, spans)


def _span(id: str, mention: _Mention, positions: list[int], size: int) -> Span:
    """The mention in character offsets; offsets beyond the text stay beyond it."""
    start, last = (
        positions[index] if index < len(positions) else size + index - len(positions)
        for index in (mention.first, mention.last)
    )
    return Span(id, mention.type, ((start, last + 1),), mention.text)
