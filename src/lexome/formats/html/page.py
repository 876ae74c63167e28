"""One HTML page of documents with their mentions in colour, for reading, checking and printing.

The page needs nothing but itself: no script, no font, no picture from elsewhere, and its content
security policy forbids all of that. Types are hidden and shown with check boxes and style rules
alone. Whatever a document holds is shown as text and never becomes markup.
"""

import base64
import hashlib
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO
from urllib.parse import quote

from lexome.document import Document, Passage, Range, Span
from lexome.formats.files import BLOCK_BYTES
from lexome.formats.html.style import style_of
from lexome.formats.html.tables import (
    Places,
    mentions_table,
    outside,
    questions_list,
    record_list,
    relations_table,
    remarks_on,
    score_text,
)
from lexome.formats.html.text import Mark, Part, lanes_of, marked_text, parts_by_passage, shown
from lexome.formats.tally import Tally
from lexome.metadata import Author, Metadata

# A list of documents at the top helps up to here; beyond, it would be a page of its own.
INDEXED = 500

# The type under which answers that stand in the text are shown and counted.
ANSWER = "Answer"

_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*")


@dataclass(slots=True)
class Page:
    """What the top of the page says, gathered while the documents are written."""

    types: dict[str, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    names: list[str] = field(default_factory=list)
    documents: int = 0
    mentions: int = 0
    relations: int = 0

    def number_of(self, type: str) -> int:
        """The number of a type, a new one for a new type."""
        return self.types.setdefault(type, len(self.types))


def write(docs: Iterable[Document], stream: BinaryIO, *, tally: Tally, title: str = "Annotated documents") -> None:
    """One page with all documents, its legend counting and switching the types of mention.

    The legend stands first and knows all documents, so these wait in a temporary file, not in memory.
    """
    page = Page()
    with tempfile.SpooledTemporaryFile(max_size=8 * BLOCK_BYTES) as body:
        for doc in docs:
            body.write(_article(doc, page, tally).encode())
            tally.written += 1
        stream.write(_top(page, title).encode())
        body.seek(0)
        shutil.copyfileobj(body, stream, BLOCK_BYTES)
    stream.write(b"</main>\n</body>\n</html>\n")


def _top(page: Page, title: str) -> str:
    """The page up to its first document."""
    style = style_of(list(page.types))
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n<meta name="generator" content="Lexome">\n'
        f"<title>{shown(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#documents">Skip to the documents</a>\n'
        f'<header class="top"><h1>{shown(title)}</h1>\n<p class="sum">{_summary(page)}</p>{_index(page)}</header>\n'
        f'{_legend(page)}<main id="documents">\n' + ("" if page.documents else '<p class="none">No documents.</p>\n')
    )


def _summary(page: Page) -> str:
    counts = ((page.documents, "document"), (page.mentions, "mention"), (page.relations, "relation"))
    return " · ".join(f"{count:,} {word}{'' if count == 1 else 's'}" for count, word in counts)


def _index(page: Page) -> str:
    if not 1 < page.documents <= INDEXED:
        return ""
    items = "".join(f'<li><a href="#d{n}"><bdi>{shown(name)}</bdi></a></li>' for n, name in enumerate(page.names, 1))
    return f'<details class="index"><summary>Contents</summary><ol>{items}</ol></details>'


def _legend(page: Page) -> str:
    """The types, each with its count and a box that hides it."""
    if not page.types:
        return ""
    keys = "".join(
        f'<label class="key t{page.types[type_]}"><input type="checkbox" id="t{page.types[type_]}" checked>'
        f"<bdi>{shown(type_) or '(no type)'}</bdi> <b>{count:,}</b></label>"
        for type_, count in page.counts.most_common()
    )
    names = '<label class="key other"><input type="checkbox" id="names">Type names</label>'
    return f'<div class="legend"><div role="group" aria-label="Types of mention">{keys}{names}</div></div>\n'


def _article(doc: Document, page: Page, tally: Tally) -> str:
    """One document, counted into the page."""
    page.documents += 1
    page.mentions += len(doc.spans)
    page.relations += len(doc.relations)
    number = page.documents
    if number <= INDEXED:
        page.names.append(doc.title or doc.id)
    if any(passage.sentences or passage.tokens for passage in doc.passages):
        tally.note("sentence and token ranges not shown")
    if any("\0" in passage.text for passage in doc.passages):
        tally.note("NUL shown as its symbol")
    remarks = remarks_on(doc)
    places = Places(
        {span.id: f"d{number}-m{index}" for index, span in enumerate(doc.spans, 1)},
        {relation.id: f"d{number}-r{index}" for index, relation in enumerate(doc.relations, 1)},
        page.types,
    )
    marks = _marks(doc, places, remarks, page)
    return (
        f'<article class="doc" id="d{number}" aria-labelledby="d{number}-h">\n'
        + _body(doc, marks, f"d{number}-h")
        + questions_list(doc)
        + relations_table(doc, places, remarks)
        + mentions_table(doc, places, remarks)
        + record_list(doc)
        + "</article>\n"
    )


def _marks(doc: Document, places: Places, remarks: dict[str, list[str]], page: Page) -> list[Mark]:
    """Everything to be coloured in a document's text, spans and answers."""
    marks = []
    numbers = iter(range(1, len(doc.spans) + 1))
    for span in doc.spans:
        page.counts[span.type] += 1
        shared = next(numbers) if len(span.parts) > 1 else None
        about = _about(span, remarks.get(span.id, []))
        marks.append(Mark(span.parts, page.number_of(span.type), span.type, about, places.spans[span.id], shared))
    for place, texts in _answers(doc).items():
        page.counts[ANSWER] += 1
        anchor = f"d{page.documents}-a{place[0]}-{place[1]}"
        marks.append(Mark((place,), page.number_of(ANSWER), ANSWER, "\n".join(texts), anchor))
    return marks


def _answers(doc: Document) -> dict[Range, list[str]]:
    """Where answers stand in the text, and what each says; an answer given twice is one."""
    answers: dict[Range, list[str]] = {}
    for question in doc.questions:
        for answer in question.answers:
            if answer.start is not None and answer.text:
                place = (answer.start, answer.start + len(answer.text))
                said = f"{ANSWER}: {answer.text}\n{question.text}"
                if said not in answers.setdefault(place, []):
                    answers[place].append(said)
    return answers


def _about(span: Span, remarks: list[str]) -> str:
    """What the pointer, or the focus, brings up on a mention."""
    lines = [f"{span.type}: {span.text}", ", ".join(span.concepts), "; ".join(remarks)]
    if span.score is not None:
        lines.append(f"score {score_text(span.score)}")
    return "\n".join(line for line in lines if line)


def _body(doc: Document, marks: list[Mark], heading_id: str) -> str:
    """The document's head and its passages, with headings where the section changes."""
    rest = list(zip(doc.passages, parts_by_passage(doc.passages, marks), strict=True))
    if rest and rest[0][0].kind == "title":
        passage, parts = rest.pop(0)
        pieces = [_text(passage, parts, "h2", f' id="{heading_id}"'), _facts_line(doc, doc.id)]
    else:
        heading = f'<h2 id="{heading_id}"><bdi>{shown(doc.id) or "(no id)"}</bdi></h2>\n'
        pieces = [heading, _facts_line(doc, "")]
    announced: tuple[str | None, ...] = ()
    for passage, parts in rest:
        pieces += _headings(announced, passage.section)
        if passage.kind == "heading":
            pieces.append(_text(passage, parts, f"h{min(3 + len(passage.section), 5)}"))
            # What follows names this heading in its section, perhaps without its number.
            announced = (*passage.section, None)
        else:
            pieces += (_kind(passage), _text(passage, parts, "p"))
            announced = passage.section
    return "".join(pieces)


def _headings(announced: tuple[str | None, ...], section: tuple[str, ...]) -> Iterator[str]:
    """A heading for each level of the section that the reader has not been told of."""
    told = 0
    while told < min(len(announced), len(section)) and announced[told] in (None, section[told]):
        told += 1
    for level, name in enumerate(section[told:], told):
        yield f"<h{min(3 + level, 5)}><bdi>{shown(name)}</bdi></h{min(3 + level, 5)}>\n"


def _kind(passage: Passage) -> str:
    """What a passage is, in small letters above it, where its place does not say so."""
    above = {name.casefold() for name in passage.section}
    facts = [
        "" if passage.kind in ("paragraph", "sentence") else passage.kind,
        passage.category or "",
        passage.source or "",
        passage.language if passage.language not in (None, "en", "eng") else "",
    ]
    told = {fact.casefold(): shown(fact) for fact in facts if fact and fact.casefold() not in above}.values()
    return f'<span class="kind">{" · ".join(told)}</span>' if told else ""


def _text(passage: Passage, parts: list[Part], tag: str, attributes: str = "") -> str:
    """The passage in an element of its own, which ends whatever its characters would turn around."""
    lanes = lanes_of(parts)
    deep = min(max(lanes.values(), default=0), 3)
    language = passage.language or ""
    if _LANGUAGE.fullmatch(language):
        attributes += f' lang="{language}"'
    content = marked_text(passage, parts, lanes)
    return f'<{tag} class="text{f" deep{deep}" if deep else ""}" dir="auto"{attributes}>{content}</{tag}>\n'


def _facts_line(doc: Document, name: str) -> str:
    """Ids, journal, authors, and the document's labels."""
    meta = doc.meta
    facts = [shown(name), *_ids(meta), shown(_published(meta)), shown(_byline(meta.authors))]
    line = "".join(f"<span>{fact}</span>" for fact in facts if fact)
    chips = "".join(f'<span class="chip">{shown(label)}</span>' for label in doc.labels)
    if meta.retracted:
        chips = f'<span class="chip warn">Retracted</span>{chips}'
    return (f'<p class="ids">{line}</p>\n' if line else "") + (f'<p class="chips">{chips}</p>\n' if chips else "")


def _ids(meta: Metadata) -> Iterator[str]:
    """Links to the article where its ids look like ids."""
    if meta.pmid is not None:
        named = f"PMID {meta.pmid}"
        plain = meta.pmid.isascii() and meta.pmid.isdigit()
        yield outside(f"https://pubmed.ncbi.nlm.nih.gov/{meta.pmid}/", named) if plain else shown(named)
    if meta.pmcid is not None:
        plain = re.fullmatch("PMC[0-9]+", meta.pmcid) is not None
        yield (
            outside(f"https://pmc.ncbi.nlm.nih.gov/articles/{meta.pmcid}/", meta.pmcid) if plain else shown(meta.pmcid)
        )
    if meta.doi is not None:
        plain = re.fullmatch(r"10\.[0-9]{4,9}/[!-~]+", meta.doi) is not None
        yield outside(f"https://doi.org/{quote(meta.doi)}", meta.doi) if plain else shown(meta.doi)


def _published(meta: Metadata) -> str:
    journal = meta.journal
    name = (journal.abbreviation or journal.title or "") if journal is not None else ""
    return ", ".join(part for part in (name, meta.published or "") if part)


def _byline(authors: tuple[Author, ...]) -> str:
    names = [author.collective or " ".join(filter(None, (author.family, author.initials))) for author in authors[:3]]
    return ", ".join(filter(None, names)) + (" et al." if len(authors) > 3 else "")
