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
import zlib
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from html import escape
from importlib.resources import files
from itertools import pairwise
from typing import Any, BinaryIO
from urllib.parse import quote

from lexome.document import Answer, Argument, Document, Passage, Question, Range, Span
from lexome.formats.streams import BLOCK_BYTES
from lexome.formats.tally import Tally
from lexome.metadata import Author, Metadata


@dataclass(frozen=True, slots=True)
class Colour:
    """A type's colour: lightness of its line on light and dark pages, chroma, and hue in degrees."""

    light: float
    dark: float
    chroma: float
    hue: int


# Chosen so that any two differ for readers who cannot tell red from green: simulated for protanopia and
# deuteranopia, the nearest two of the first seven are 0.08 apart in OKLab or more, in both themes.
COLOURS = {
    "gene": Colour(0.55, 0.75, 0.16, 257),
    "protein": Colour(0.41, 0.66, 0.17, 296),
    "disease": Colour(0.41, 0.68, 0.17, 38),
    "chemical": Colour(0.49, 0.77, 0.12, 160),
    "species": Colour(0.61, 0.90, 0.14, 348),
    "variant": Colour(0.60, 0.89, 0.13, 103),
    "cellline": Colour(0.38, 0.66, 0.025, 255),
    "dna": Colour(0.55, 0.80, 0.09, 210),
    "rna": Colour(0.52, 0.78, 0.12, 130),
    "celltype": Colour(0.45, 0.72, 0.08, 190),
    "anatomy": Colour(0.50, 0.76, 0.10, 65),
    "answer": Colour(0.50, 0.80, 0.20, 10),
}

# Other names of these types, small letters and digits only.
_ALSO = {
    "gene": "genes ggp genename geneorgeneproduct geneproduct geneorprotein geneprotein geney genen hgnc familyname",
    "protein": "proteins proteinname prot peptide enzyme",
    "disease": (
        "diseases diseaseorphenotypicfeature diseaseclass specificdisease compositemention modifier disorder phenotype "
        "symptom cancer problem finding dis"
    ),
    "chemical": "chemicals chemicalentity simplechemical drug drugs drugn brand compound substance medication chem",
    "species": "organism organisms organismtaxon taxon speciesname livb",
    "variant": (
        "variants mutation mutations sequencevariant snp dnamutation proteinmutation dnaacidchange "
        "proteinaminoacidchange dnaallele proteinallele copynumbervariant"
    ),
    "cellline": "celllines",
    "dna": "domainmotif",
    "rna": "mrna mirna transcript",
    "celltype": "cell cells celltypes",
    "anatomy": "tissue organ bodypart anatomicalstructure multitissuestructure",
}
_FAMILIES = {name: family for family in COLOURS for name in (family, *_ALSO.get(family, "").split())}

_LETTERS = re.compile(r"[^a-z0-9]")


def colour_of(type: str) -> Colour:
    """The colour of a type: fixed for the common ones under their many names, from the name's hash for others."""
    family = _FAMILIES.get(_LETTERS.sub("", type.casefold()))
    if family is not None:
        return COLOURS[family]
    return Colour(0.50, 0.76, 0.12, zlib.crc32(type.encode(errors="surrogatepass")) % 360)


def style_of(types: list[str]) -> str:
    """The style sheet of a page whose types are numbered in this order. No name of theirs is in it."""
    rules = []
    for number, type_ in enumerate(types):
        colour = colour_of(type_)
        rules.append(
            f".t{number}{{--l:{colour.light};--d:{colour.dark};--c:{colour.chroma};--h:{colour.hue}}}"
            f"body:has(#t{number}:not(:checked)) mark.t{number}{{display:contents}}"
            f"body:has(#t{number}:not(:checked)) mark.t{number}::after{{content:none!important}}"
        )
    return files("lexome.formats").joinpath("page.css").read_text("utf-8") + "\n".join(rules)


# Lanes that have a place of their own under the text; deeper ones are drawn in the last.
LANES = 6

# Marks that are kept apart, and those that what is said of a mark names around it. Thousands on the
# same words would make a page that no one can open.
MAX_LANES = 64
MAX_AROUND = 8

# Characters that would be invisible, or turn the text around them: controls other than tab and line
# ends, the embedding, override and isolate marks, non-characters, halves of surrogate pairs.
_STRANGE = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufffe\uffff"
_IN_TEXT = re.compile(f"[{_STRANGE}]")
_IN_NAMES = re.compile(f"[{_STRANGE}\r\ud800-\udfff]")


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """A mention to be shown: its type's number and name, what to say of it, and its anchor.

    `number` joins the parts of a discontinuous mention; it is None for one of a single part.
    """

    parts: tuple[Range, ...]
    type_number: int
    type: str
    about: str
    anchor: str
    number: int | None = None


Part = tuple[Mark, Range]


def shown(text: str) -> str:
    """Text for a heading, a cell or an attribute: escaped, and nothing in it invisible or turning."""
    return escape(_IN_NAMES.sub(lambda match: f"‹{_code(match.group())}›", text))


def exact(text: str) -> str:
    """Passage text: escaped, every character kept, strange ones marked by an element around them."""
    plain = escape(text, quote=False).replace("\r", "&#13;")
    return _IN_TEXT.sub(_marked, plain)


def _marked(match: re.Match[str]) -> str:
    character = match.group()
    kept = "␀" if character == "\x00" else character
    return f'<span class="ctl" data-c="{_code(character)}">{kept}</span>'


def _code(character: str) -> str:
    return f"U+{ord(character):04X}"


def parts_by_passage(passages: tuple[Passage, ...], marks: list[Mark]) -> list[list[Part]]:
    """For each passage the parts of marks that stand in it."""
    found: list[list[Part]] = [[] for _ in passages]
    offsets = [passage.offset for passage in passages]
    for mark in marks:
        for part in mark.parts:
            found[bisect_right(offsets, part[0]) - 1].append((mark, part))
    return found


def lanes_of(parts: list[Part]) -> dict[Mark, int]:
    """The lane of each mark that has a part here: 0 next to the text, short marks before long ones."""
    ranges: dict[Mark, list[Range]] = {}
    for mark, part in parts:
        ranges.setdefault(mark, []).append(part)
    lanes: list[list[Range]] = []
    chosen: dict[Mark, int] = {}
    for mark in sorted(ranges, key=lambda mark: sum(end - start for start, end in ranges[mark])):
        free = (index for index, taken in enumerate(lanes) if _is_free(taken, ranges[mark]))
        lane = next(free, min(len(lanes), MAX_LANES))
        if lane == len(lanes):
            lanes.append([])
        for part in ranges[mark]:
            insort(lanes[lane], part)
        chosen[mark] = lane
    return chosen


def _is_free(taken: list[Range], parts: list[Range]) -> bool:
    for start, end in parts:
        index = bisect_left(taken, (start, start))
        if index < len(taken) and taken[index][0] < end:
            return False
        if index and taken[index - 1][1] > start:
            return False
    return True


@dataclass(slots=True)
class _Element:
    """A mark's element while the text is laid out: `end` is known when it closes."""

    mark: Mark
    part: Range
    lane: int
    start: int
    around: list[Mark]
    end: int = -1


def marked_text(passage: Passage, parts: list[Part], lanes: dict[Mark, int]) -> str:
    """The passage's text as HTML with the parts of marks that stand in it."""
    if not parts:
        return exact(passage.text)
    opening: dict[int, list[Part]] = {}
    cuts = {passage.offset, passage.end}
    for mark, part in parts:
        opening.setdefault(part[0], []).append((mark, part))
        cuts.update(part)
    laid_out = list(_laid_out(passage, lanes, opening, sorted(cuts)))
    return "".join(_opened(piece) if isinstance(piece, _Element) else piece for piece in laid_out)


def _laid_out(
    passage: Passage, lanes: dict[Mark, int], opening: dict[int, list[Part]], cuts: list[int]
) -> Iterator[_Element | str]:
    """Opening elements, texts and closing tags in order.

    Elements nest by lane, the highest outermost. One that crosses another is closed where the other
    begins or ends, and opened again inside or outside it.
    """
    stack: list[_Element] = []
    for at, after in pairwise([*cuts, passage.end]):
        begun = opening.get(at, [])
        touched = [lanes[mark] for mark, _ in begun] + [element.lane for element in stack if element.part[1] == at]
        reopened = begun
        while stack and touched and stack[-1].lane <= max(touched):
            closed = stack.pop()
            closed.end = at
            yield "</mark>"
            if closed.part[1] > at:
                reopened = [*reopened, (closed.mark, closed.part)]
        for mark, part in sorted(reopened, key=lambda entry: -lanes[entry[0]]):
            element = _Element(mark, part, lanes[mark], at, [outer.mark for outer in stack[-MAX_AROUND:]])
            stack.append(element)
            yield element
        yield exact(passage.text[at - passage.offset : after - passage.offset])


def _opened(element: _Element) -> str:
    """The opening tag of one mark's element; what it says names the marks around it too."""
    mark, part = element.mark, element.part
    classes = f"t{mark.type_number} l{min(element.lane, LANES - 1)}"
    extra = ""
    if element.start == part[0]:
        classes += " s"
    if element.end == part[1]:
        classes += " e"
        if part == mark.parts[-1]:
            classes += " z"
            extra += f' data-t="{shown(mark.type)}"'
    if mark.number is not None:
        classes += " cut"
        extra += f' data-n="{mark.number}"'
    if element.start == mark.parts[0][0]:
        extra += f' id="{mark.anchor}" tabindex="0"'
    said = "\n\n".join(one.about for one in (mark, *reversed(element.around)))
    return f'<mark class="{classes}" title="{shown(said)}"{extra}>'


# Vocabularies that identifiers.org resolves, by our prefix in small letters. Those of the OBO Foundry
# carry their own prefix in capitals.
_RESOLVED = {
    **{name: f"{name}:" for name in ("mesh", "ncbigene", "cellosaurus", "dbsnp", "hgnc", "uniprot", "drugbank")},
    **{name: f"{name}:" for name in ("ensembl", "umls", "pubchem.compound", "interpro", "orphanet")},
    **{name: f"{name.upper()}:" for name in ("chebi", "go", "hp", "mondo", "doid", "cl", "uberon", "so", "efo")},
    "ncbitaxon": "taxonomy:",
    "omim": "mim:",
}
_LOCAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class Places:
    """Where the parts of one document stand on the page: anchors by id, and type numbers by name."""

    spans: dict[str, str]
    relations: dict[str, str]
    types: dict[str, int]


def linked(concept: str) -> str:
    """A concept as HTML: a link to its resolver where its vocabulary is known, else its id."""
    prefix, _, local = concept.partition(":")
    resolved = _RESOLVED.get(prefix.casefold())
    if resolved is None or not _LOCAL.fullmatch(local):
        return f"<bdi>{shown(concept)}</bdi>"
    return outside(f"https://identifiers.org/{resolved}{quote(local)}", concept)


def outside(address: str, text: str) -> str:
    """A link that leaves the page and says nothing of where it was followed."""
    return f'<a rel="noreferrer noopener" href="{shown(address)}">{shown(text)}</a>'


def score_text(score: float | None) -> str:
    """A score as short as it can be said."""
    return "" if score is None else f"{score:.4g}"


def remarks_on(doc: Document) -> dict[str, list[str]]:
    """What the attributes say, by the id of what they are about."""
    remarks: dict[str, list[str]] = {}
    for attribute in doc.attributes:
        value = f": {attribute.value}" if attribute.value is not None else ""
        remarks.setdefault(attribute.target, []).append(attribute.name + value)
    return remarks


def mentions_table(doc: Document, places: Places, remarks: dict[str, list[str]]) -> str:
    """All spans with their place, concepts and scores, folded away: what the colours say, in words."""
    if not doc.spans:
        return ""
    rows = "".join(_mention_row(span, places, remarks) for span in doc.spans)
    head = _head("Mention", "Type", "Characters", "Concepts", "Score", "Remarks", "Id")
    return _folded("Mentions", len(doc.spans), f"<table>{head}{rows}</table>")


def _mention_row(span: Span, places: Places, remarks: dict[str, list[str]]) -> str:
    where = "<br>".join(f'<span class="n">{start}–{end}</span>' for start, end in span.parts)
    return _row(
        f'<a class="rel t{places.types[span.type]}" href="#{places.spans[span.id]}">{shown(span.text)}</a>',
        shown(span.type),
        where,
        "<br>".join(linked(concept) for concept in span.concepts),
        score_text(span.score),
        shown("; ".join(remarks.get(span.id, ()))),
        shown(span.id),
    )


def relations_table(doc: Document, places: Places, remarks: dict[str, list[str]]) -> str:
    """The relations, open: each with its arguments in their roles."""
    if not doc.relations:
        return ""
    texts = {span.id: span for span in doc.spans}
    rows = []
    for relation in doc.relations:
        arguments = "".join(_argument(argument, texts, places) for argument in relation.arguments)
        rows.append(
            _row(
                shown(relation.type),
                arguments,
                {True: "yes", False: "no", None: ""}[relation.novel],
                score_text(relation.score),
                shown("; ".join(remarks.get(relation.id, ()))),
                shown(relation.id),
                anchor=places.relations[relation.id],
            )
        )
    head = _head("Relation", "Between", "Novel", "Score", "Remarks", "Id")
    return _folded("Relations", len(rows), f"<table>{head}{''.join(rows)}</table>", is_open=True)


def _argument(argument: Argument, spans: dict[str, Span], places: Places) -> str:
    role = f' <span class="role"><bdi>{shown(argument.role)}</bdi></span>'
    if argument.target is None:
        what = f'<span class="rel">{linked(argument.concept or "")}</span>'
    elif argument.target in spans:
        span = spans[argument.target]
        link = f'href="#{places.spans[span.id]}" title="{shown(span.type)}"'
        what = f'<a class="rel t{places.types[span.type]}" {link}>{shown(span.text)}</a>'
    else:
        what = f'<a class="rel" href="#{places.relations[argument.target]}">{shown(argument.target)}</a>'
    return f'<span class="arg">{what}{role}</span>'


def questions_list(doc: Document) -> str:
    """The questions with their answers."""
    return "".join(_question(question) for question in doc.questions)


def _question(question: Question) -> str:
    facts = [question.type or "", "no answer in the text" if question.impossible else "", question.id]
    named = " · ".join(shown(fact) for fact in facts if fact)
    answers = "".join(f"<li>{_answer(answer)}</li>" for answer in question.answers)
    ideal = "".join(f"<p>{shown(text)}</p>" for text in question.ideal)
    about = ", ".join(linked(concept) for concept in question.concepts)
    documents = ", ".join(f"<bdi>{shown(name)}</bdi>" for name in question.documents)
    return (
        f'<section class="qa"><span class="kind">Question · {named}</span><p><b>{shown(question.text)}</b></p>'
        + (f"<ul>{answers}</ul>" if answers else "")
        + ideal
        + (f'<p class="role">Concepts: {about}</p>' if about else "")
        + (f'<p class="role">Documents: {documents}</p>' if documents else "")
        + "</section>"
    )


def _answer(answer: Answer) -> str:
    where = f" <span class=role>at {answer.start}</span>" if answer.start is not None else ""
    synonyms = f" <span class=role>also {shown(', '.join(answer.synonyms))}</span>" if answer.synonyms else ""
    return f"<bdi>{shown(answer.text)}</bdi>{where}{synonyms}"


def record_list(doc: Document) -> str:
    """Everything else that is known of the document, folded away."""
    listed = "".join(_facts(doc.meta))
    return _folded("Record", None, f"<dl>{listed}</dl>") if listed else ""


def _facts(record: Any) -> Iterator[str]:
    """A name and value for each field of a dataclass that is not at its default."""
    for column in fields(record):
        value = getattr(record, column.name)
        if value != column.default:
            yield f"<dt>{column.name.replace('_', ' ')}</dt><dd>{_fact(value)}</dd>"


def _fact(value: Any) -> str:
    if is_dataclass(value):
        return f"<dl>{''.join(_facts(value))}</dl>"
    if isinstance(value, tuple):
        return "".join(map(_fact, value)) if is_dataclass(value[0]) else "; ".join(map(_fact, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"<bdi>{shown(str(value))}</bdi>"


def _head(*names: str) -> str:
    return "<thead><tr>" + "".join(f'<th scope="col">{name}</th>' for name in names) + "</tr></thead>"


def _row(*cells: str, anchor: str | None = None) -> str:
    id_ = f' id="{anchor}"' if anchor is not None else ""
    return f"<tr{id_}>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def _folded(name: str, count: int | None, content: str, *, is_open: bool = False) -> str:
    number = f" <b>{count}</b>" if count is not None else ""
    region = f'<div class="wide" tabindex="0" role="region" aria-label="{name}">{content}</div>'
    return f"<details{' open' if is_open else ''}><summary>{name}{number}</summary>{region}</details>\n"


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
