"""HTML page of documents with highlighted mentions, for reading, checking and printing.

The page is self-contained: no scripts, fonts or images, and its content security policy forbids them. Types of mentions
and relations are shown and hidden, and the mentions of a relation under the pointer outlined, with CSS only. Document
content is always escaped.
"""

import base64
import hashlib
import io
import re
import shutil
import tempfile
import zlib
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from html import escape
from importlib.resources import files
from itertools import pairwise
from typing import Any, BinaryIO
from urllib.parse import quote

from lexome.document import Argument, Document, Passage, Question, Range, Span
from lexome.formats.concept_ids import concept_url
from lexome.formats.mention_table import PreferredName
from lexome.formats.streams import BLOCK_BYTES
from lexome.formats.tally import Tally
from lexome.metadata import Metadata

# The type of answers that are spans of the text.
ANSWER = "Answer"
# Most documents in the table of contents.
MAX_INDEXED = 500
# Distinct underline lanes; deeper marks share the last.
LANES = 6
# Limits on overlapping marks and on the enclosing marks named in a tooltip: thousands on the same words would make
# the page unusable.
MAX_LANES = 64
MAX_AROUND = 8
# Relations of a page whose mentions are outlined under the pointer, and these mentions: a relation takes two rules of
# the style sheet, and each mention of it two selectors there.
MAX_LINKED = 500
MAX_LINKS = 20_000
# Minimum scores of relations to choose from, in tenths.
MINIMUM_SCORES = (5, 6, 7, 8, 9)
OUTLINE = (
    "{outline:2px solid var(--line);outline-offset:2px;background:color-mix(in oklab,var(--tint),var(--line) 30%)}"
)


@dataclass(frozen=True, slots=True)
class Color:
    """The color of a type in OKLCH: lightness on light and dark pages, chroma, and hue in degrees."""

    light: float
    dark: float
    chroma: float
    hue: int


# Distinguishable with red-green color blindness: simulated for protanopia and deuteranopia, the nearest two of the
# first seven are at least 0.08 apart in OKLab, in both themes.
COLORS = {
    "gene": Color(0.55, 0.75, 0.16, 257),
    "protein": Color(0.41, 0.66, 0.17, 296),
    "disease": Color(0.41, 0.68, 0.17, 38),
    "chemical": Color(0.49, 0.77, 0.12, 160),
    "species": Color(0.61, 0.90, 0.14, 348),
    "variant": Color(0.60, 0.89, 0.13, 103),
    "cellline": Color(0.38, 0.66, 0.025, 255),
    "dna": Color(0.55, 0.80, 0.09, 210),
    "rna": Color(0.52, 0.78, 0.12, 130),
    "celltype": Color(0.45, 0.72, 0.08, 190),
    "anatomy": Color(0.50, 0.76, 0.10, 65),
    "answer": Color(0.50, 0.80, 0.20, 10),
}

# Synonyms of these types, lower-case letters and digits only.
_SYNONYMS = {
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
_FAMILIES = {name: family for family in COLORS for name in (family, *_SYNONYMS.get(family, "").split())}
_LETTERS = re.compile(r"[^a-z0-9]")
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*")

# Invisible characters and those that change text direction: controls other than tab and line breaks; embedding,
# override and isolate marks; non-characters; lone surrogates.
_CONTROL = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufffe\uffff"
_IN_TEXT = re.compile(f"[{_CONTROL}]")
_IN_NAMES = re.compile(f"[{_CONTROL}\r\ud800-\udfff]")


def no_name(concept: str) -> None:
    """No concept has a preferred name."""


@dataclass(slots=True)
class Page:
    """Counts for the top of the page, collected while the documents are written."""

    types: dict[str, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    names: list[str] = field(default_factory=list)
    documents: int = 0
    mentions: int = 0
    relations: Counter[str] = field(default_factory=Counter)
    relation_types: dict[str, int] = field(default_factory=dict)
    links: int = 0
    rules: list[str] = field(default_factory=list)
    preferred_name: PreferredName = no_name

    def number_of(self, type: str) -> int:
        """The number of a type, assigned on first use."""
        return self.types.setdefault(type, len(self.types))

    def relation_number(self, type: str) -> int:
        """The number of a type of relations, assigned on first use."""
        return self.relation_types.setdefault(type, len(self.relation_types))


@dataclass(frozen=True, slots=True)
class Anchors:
    """Anchors of one document's spans and relations by id, type numbers by name, and preferred names of concepts.

    `related` are the spans of relations, whose marks also have their anchor as a class.
    """

    spans: dict[str, str]
    relations: dict[str, str]
    types: dict[str, int]
    preferred_name: PreferredName
    related: frozenset[str] = frozenset()

    def link(self, concept: str) -> str:
        """A concept as HTML, with a link and its preferred name as far as they are known."""
        name = self.preferred_name(concept)
        return concept_link(concept) + (f' <span class="role"><bdi>{to_html(name)}</bdi></span>' if name else "")


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """A highlighted mention.

    `number` connects the parts of a discontinuous mention; it is None for a continuous one.
    """

    parts: tuple[Range, ...]
    type_number: int
    type: str
    tooltip: str
    anchor: str
    number: int | None = None
    related: bool = False


Part = tuple[Mark, Range]


def write(
    docs: Iterable[Document],
    stream: BinaryIO,
    *,
    tally: Tally,
    title: str = "Annotated documents",
    preferred_name: PreferredName | None = None,
) -> None:
    """One page with all documents, and a legend that counts the entity types and toggles them.

    `preferred_name` is a function from a concept id to the name that is shown beside it.
    The legend comes first and needs all counts, so the documents are buffered in a temporary file.
    """
    page = Page(preferred_name=preferred_name or no_name)
    with tempfile.SpooledTemporaryFile(max_size=8 * BLOCK_BYTES) as body:
        for doc in docs:
            body.write(_article(doc, page, tally).encode())
            tally.written += 1
        stream.write(_top(page, title).encode())
        body.seek(0)
        shutil.copyfileobj(body, stream, BLOCK_BYTES)
    stream.write(b"</main>\n</body>\n</html>\n")


# The height of a notebook's frame, in pixels: of all but the text, of a line, and at most; readers can drag it larger.
FRAME_PX, LINE_PX, MAX_FRAME_PX = 330, 34, 640
LINE_CHARACTERS = 90


def notebook_view(doc: Document) -> str:
    """The page of one document in a frame, for the output of a notebook's cell.

    In a frame its style and its anchors stay apart from those of the notebook and of other outputs. The frame is
    sandboxed: nothing in it can run.
    """
    stream = io.BytesIO()
    write([doc], stream, tally=Tally(), title=doc.title or doc.id)
    page = escape(stream.getvalue().decode(), quote=True)
    lines = sum(len(passage.text) // LINE_CHARACTERS + 1 for passage in doc.passages)
    height = min(FRAME_PX + LINE_PX * lines, MAX_FRAME_PX)
    style = f"width:100%;height:{height}px;border:0;resize:vertical;overflow:auto"
    # External links of the page open in a new tab, which a sandbox forbids by default.
    allow = 'sandbox="allow-popups allow-popups-to-escape-sandbox"'
    return f'<iframe title="{to_html(doc.id)}" {allow} style="{style}" srcdoc="{page}"></iframe>'


def _top(page: Page, title: str) -> str:
    """The page up to the first document."""
    style = style_sheet(list(page.types), len(page.relation_types), page.rules)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    counts = ((page.documents, "document"), (page.mentions, "mention"), (page.relations.total(), "relation"))
    summary = " · ".join(f"{count:,} {word}{'' if count == 1 else 's'}" for count, word in counts)
    items = "".join(f'<li><a href="#d{n}"><bdi>{to_html(name)}</bdi></a></li>' for n, name in enumerate(page.names, 1))
    indexed = 1 < page.documents <= MAX_INDEXED
    contents = f'<details class="index"><summary>Contents</summary><ol>{items}</ol></details>' if indexed else ""
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n<meta name="generator" content="Lexome">\n'
        f"<title>{to_html(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#documents">Skip to the documents</a>\n'
        f'<header class="top"><h1>{to_html(title)}</h1>\n<p class="sum">{summary}</p>{contents}</header>\n'
        f'{_legend(page)}<main id="documents">\n' + ("" if page.documents else '<p class="none">No documents.</p>\n')
    )


def style_sheet(types: list[str], relation_types: int = 0, own: Iterable[str] = ()) -> str:
    """The style sheet of a page with these types, which appear in it by number only, and rules of its documents."""
    rules = [f"body:has(#q{number}:not(:checked)) tr.q{number}{{display:none}}" for number in range(relation_types)]
    for tenths in MINIMUM_SCORES if relation_types else ():
        lower = ",".join(f"tr.p{below}" for below in range(tenths))
        rules.append(f'body:has(#least option[value="{tenths}"]:checked) :is({lower}){{display:none}}')
    for number, type_ in enumerate(types):
        color = color_of(type_)
        rules.append(
            f".t{number}{{--l:{color.light};--d:{color.dark};--c:{color.chroma};--h:{color.hue}}}"
            f"body:has(#t{number}:not(:checked)) mark.t{number}{{display:contents}}"
            f"body:has(#t{number}:not(:checked)) mark.t{number}::after{{content:none!important}}"
        )
    return files("lexome.formats").joinpath("page.css").read_text("utf-8") + "\n".join((*rules, *own))


def color_of(type: str) -> Color:
    """The color of a type: fixed for common types and their synonyms, from a hash of the name for others."""
    if (family := _FAMILIES.get(_LETTERS.sub("", type.casefold()))) is not None:
        return COLORS[family]
    return Color(0.50, 0.76, 0.12, zlib.crc32(type.encode(errors="surrogatepass")) % 360)


def _legend(page: Page) -> str:
    """The types, with counts and check boxes to hide them."""
    if not (page.types or page.relations):
        return ""
    keys = "".join(
        f'<label class="key t{page.types[type_]}"><input type="checkbox" id="t{page.types[type_]}" checked>'
        f"<bdi>{to_html(type_) or '(no type)'}</bdi> <b>{count:,}</b></label>"
        for type_, count in page.counts.most_common()
    )
    names = '<label class="key other"><input type="checkbox" id="names">Type names</label>'
    mentions = f'<div role="group" aria-label="Types of mention">{keys}{names}</div>' if keys else ""
    return f'<div class="legend">{mentions}{_relation_legend(page)}</div>\n'


def _relation_legend(page: Page) -> str:
    """The types of relations, with counts and check boxes to hide them, and a minimum score."""
    if not page.relations:
        return ""
    keys = "".join(
        f'<label class="key"><input type="checkbox" id="q{page.relation_types[type_]}" checked>'
        f"<bdi>{to_html(type_) or '(no type)'}</bdi> <b>{count:,}</b></label>"
        for type_, count in page.relations.most_common()
    )
    options = "".join(f'<option value="{tenths}">{tenths / 10:.1f}</option>' for tenths in MINIMUM_SCORES)
    select = f'<select id="least"><option value="0">any</option>{options}</select>'
    least = f'<label class="key other">Minimum score of relations {select}</label>'
    return f'<div role="group" aria-label="Types of relation">{keys}{least}</div>'


def _article(doc: Document, page: Page, tally: Tally) -> str:
    """One document, added to the page's counts."""
    page.documents += 1
    page.mentions += len(doc.spans)
    number = page.documents
    if number <= MAX_INDEXED:
        page.names.append(doc.title or doc.id)
    if any(passage.sentences or passage.tokens for passage in doc.passages):
        tally.note("sentence and token ranges not shown")
    if any("\0" in passage.text for passage in doc.passages):
        tally.note("NUL shown as a symbol")
    attributes = attributes_by_target(doc)
    anchors = Anchors(
        {span.id: f"d{number}-m{index}" for index, span in enumerate(doc.spans, 1)},
        {relation.id: f"d{number}-r{index}" for index, relation in enumerate(doc.relations, 1)},
        page.types,
        page.preferred_name,
        _link_relations(doc, page),
    )
    marks = _marks(doc, anchors, attributes, page)
    return (
        f'<article class="doc" id="d{number}" aria-labelledby="d{number}-h">\n'
        + _body(doc, marks, f"d{number}-h")
        + questions_list(doc)
        + _relations_table(doc, anchors, attributes, page)
        + mentions_table(doc, anchors, attributes)
        + record_list(doc)
        + "</article>\n"
    )


def _link_relations(doc: Document, page: Page) -> frozenset[str]:
    """Rules that outline the mentions of a relation under the pointer, and mark the relations of a mention there.

    A concept is all its mentions. Returns the ids of these spans.
    """
    mentions = (
        {concept: [span.id for span in spans] for concept, spans in doc.concepts.items()} if doc.relations else {}
    )
    numbers = {span.id: number for number, span in enumerate(doc.spans, 1)}
    of_span: dict[str, list[str]] = {}
    document = f"#d{page.documents}"
    for number, relation in enumerate(doc.relations, 1):
        page.relations[relation.type] += 1
        if page.relations.total() > MAX_LINKED:
            continue
        spans = dict.fromkeys(
            span
            for argument in relation.arguments
            for span in (mentions.get(argument.concept, ()) if argument.concept else (argument.target,))
            if span in numbers
        )
        # Two concepts of very many mentions.
        if page.links + len(spans) > MAX_LINKS:
            continue
        page.links += len(spans)
        row = f"{document}-r{number}"
        if spans:
            marks = ",".join(f".d{page.documents}-m{numbers[span]}" for span in spans if span is not None)
            page.rules.append(f"{document}:has({row}:is(:hover,:focus-within)) :is({marks}){OUTLINE}")
        for span in spans:
            of_span.setdefault(str(span), []).append(row)
    for span, rows in of_span.items():
        mark = f".d{page.documents}-m{numbers[span]}"
        page.rules.append(
            f"{document}:has({mark}:is(:hover,:focus)) :is({','.join(rows)}) td{{background:var(--band)}}"
        )
    return frozenset(of_span)


def _marks(doc: Document, anchors: Anchors, attributes: dict[str, list[str]], page: Page) -> list[Mark]:
    """The highlights of a document: spans and answers."""
    marks = []
    numbers = iter(range(1, len(doc.spans) + 1))
    for span in doc.spans:
        page.counts[span.type] += 1
        shared = next(numbers) if len(span.parts) > 1 else None
        named = [f"{concept} {page.preferred_name(concept) or ''}".strip() for concept in span.concepts]
        lines = [f"{span.type}: {span.text}", ", ".join(named), "; ".join(attributes.get(span.id, ()))]
        lines += [f"score {score_text(span.score)}"] if span.score is not None else []
        tooltip = "\n".join(filter(None, lines))
        number, anchor = page.number_of(span.type), anchors.spans[span.id]
        marks.append(Mark(span.parts, number, span.type, tooltip, anchor, shared, span.id in anchors.related))
    for range_, texts in _answers(doc).items():
        page.counts[ANSWER] += 1
        anchor = f"d{page.documents}-a{range_[0]}-{range_[1]}"
        marks.append(Mark((range_,), page.number_of(ANSWER), ANSWER, "\n".join(texts), anchor))
    return marks


def _answers(doc: Document) -> dict[Range, list[str]]:
    """The ranges of answers in the text, and their tooltips; duplicates are merged."""
    answers: dict[Range, list[str]] = {}
    for question in doc.questions:
        for answer in question.answers:
            if answer.start is not None and answer.text:
                range_ = (answer.start, answer.start + len(answer.text))
                tooltip = f"{ANSWER}: {answer.text}\n{question.text}"
                if tooltip not in answers.setdefault(range_, []):
                    answers[range_].append(tooltip)
    return answers


def _body(doc: Document, marks: list[Mark], heading_id: str) -> str:
    """The document's title and passages, with a heading where the section changes."""
    rest = list(zip(doc.passages, parts_by_passage(doc.passages, marks), strict=True))
    if rest and rest[0][0].kind == "title":
        passage, parts = rest.pop(0)
        pieces = [_text(passage, parts, "h2", f' id="{heading_id}"'), _summary_line(doc, doc.id)]
    else:
        heading = f'<h2 id="{heading_id}"><bdi>{to_html(doc.id) or "(no id)"}</bdi></h2>\n'
        pieces = [heading, _summary_line(doc, "")]
    announced: tuple[str | None, ...] = ()
    for passage, parts in rest:
        pieces += _headings(announced, passage.section)
        if passage.kind == "heading":
            pieces.append(_text(passage, parts, f"h{min(3 + len(passage.section), 5)}"))
            # The section of the following passages has this heading, perhaps without its number.
            announced = (*passage.section, None)
        else:
            pieces += (_kind(passage), _text(passage, parts, "p"))
            announced = passage.section
    return "".join(pieces)


def _summary_line(doc: Document, name: str) -> str:
    """Ids, journal, authors, and the document's labels."""
    meta = doc.meta
    journal = (meta.journal.abbreviation or meta.journal.title or "") if meta.journal is not None else ""
    published = ", ".join(filter(None, (journal, meta.published)))
    authors = [author.collective or " ".join(filter(None, (author.family, author.initials))) for author in meta.authors]
    byline = ", ".join(filter(None, authors[:3])) + (" et al." if len(authors) > 3 else "")
    facts = [to_html(name), *_ids(meta), to_html(published), to_html(byline)]
    line = "".join(f"<span>{fact}</span>" for fact in facts if fact)
    scores = [f" {score:.2f}" for score in doc.label_scores] or [""] * len(doc.labels)
    named = zip(doc.labels, scores, strict=True)
    chips = "".join(f'<span class="chip">{to_html(label)}{score}</span>' for label, score in named)
    if meta.retracted:
        chips = f'<span class="chip warn">Retracted</span>{chips}'
    return (f'<p class="ids">{line}</p>\n' if line else "") + (f'<p class="chips">{chips}</p>\n' if chips else "")


def _ids(meta: Metadata) -> Iterator[str]:
    """The ids of the article, as links if they are well-formed."""
    for id_, label, pattern, address in (
        (meta.pmid, "PMID ", "[0-9]+", "https://pubmed.ncbi.nlm.nih.gov/{}/"),
        (meta.pmcid, "", "PMC[0-9]+", "https://pmc.ncbi.nlm.nih.gov/articles/{}/"),
        (meta.doi, "", r"10\.[0-9]{4,9}/[!-~]+", "https://doi.org/{}"),
    ):
        if id_ is not None:
            plain = re.fullmatch(pattern, id_) is not None
            yield external_link(address.format(quote(id_)), label + id_) if plain else to_html(label + id_)


def _headings(announced: tuple[str | None, ...], section: tuple[str, ...]) -> Iterator[str]:
    """A heading for each level of the section that is not yet on the page."""
    known = 0
    while known < min(len(announced), len(section)) and announced[known] in (None, section[known]):
        known += 1
    for level, name in enumerate(section[known:], known):
        yield f"<h{min(3 + level, 5)}><bdi>{to_html(name)}</bdi></h{min(3 + level, 5)}>\n"


def _kind(passage: Passage) -> str:
    """The kind of a passage as a label above it, unless its section already says so."""
    above = {name.casefold() for name in passage.section}
    facts = [
        "" if passage.kind in ("paragraph", "sentence") else passage.kind,
        passage.category or "",
        passage.source or "",
        passage.language if passage.language not in (None, "en", "eng") else "",
    ]
    labels = {fact.casefold(): to_html(fact) for fact in facts if fact and fact.casefold() not in above}.values()
    return f'<span class="kind">{" · ".join(labels)}</span>' if labels else ""


def _text(passage: Passage, parts: list[Part], tag: str, attributes: str = "") -> str:
    """The passage in an element of its own, which confines changes of text direction."""
    lanes = assign_lanes(parts)
    deep = min(max(lanes.values(), default=0), 3)
    if passage.language and _LANGUAGE.fullmatch(passage.language):
        attributes += f' lang="{passage.language}"'
    content = marked_text(passage, parts, lanes)
    return f'<{tag} class="text{f" deep{deep}" if deep else ""}" dir="auto"{attributes}>{content}</{tag}>\n'


def parts_by_passage(passages: tuple[Passage, ...], marks: list[Mark]) -> list[list[Part]]:
    """The parts of marks in each passage."""
    by_passage: list[list[Part]] = [[] for _ in passages]
    offsets = [passage.offset for passage in passages]
    for mark in marks:
        for part in mark.parts:
            by_passage[bisect_right(offsets, part[0]) - 1].append((mark, part))
    return by_passage


def assign_lanes(parts: list[Part]) -> dict[Mark, int]:
    """The lane of each mark: 0 is next to the text, short marks come before long ones."""
    ranges: dict[Mark, list[Range]] = {}
    for mark, part in parts:
        ranges.setdefault(mark, []).append(part)
    lanes: list[list[Range]] = []
    lane_of: dict[Mark, int] = {}
    for mark in sorted(ranges, key=lambda mark: sum(end - start for start, end in ranges[mark])):
        free = (index for index, occupied in enumerate(lanes) if _is_free(occupied, ranges[mark]))
        lane = next(free, min(len(lanes), MAX_LANES))
        if lane == len(lanes):
            lanes.append([])
        for part in ranges[mark]:
            insort(lanes[lane], part)
        lane_of[mark] = lane
    return lane_of


def _is_free(occupied: list[Range], parts: list[Range]) -> bool:
    for start, end in parts:
        index = bisect_left(occupied, (start, start))
        if (index < len(occupied) and occupied[index][0] < end) or (index and occupied[index - 1][1] > start):
            return False
    return True


@dataclass(slots=True)
class _Element:
    """The element of a mark during layout; `end` is set when it is closed."""

    mark: Mark
    part: Range
    lane: int
    start: int
    around: list[Mark]
    end: int = -1


def marked_text(passage: Passage, parts: list[Part], lanes: dict[Mark, int]) -> str:
    """The text of a passage as HTML, with its marks."""
    if not parts:
        return text_to_html(passage.text)
    opening: dict[int, list[Part]] = {}
    cuts = {passage.offset, passage.end}
    for mark, part in parts:
        opening.setdefault(part[0], []).append((mark, part))
        cuts.update(part)
    pieces = list(_layout(passage, lanes, opening, sorted(cuts)))  # a list, because tags depend on where marks end
    return "".join(_opening_tag(piece) if isinstance(piece, _Element) else piece for piece in pieces)


def _layout(
    passage: Passage, lanes: dict[Mark, int], opening: dict[int, list[Part]], cuts: list[int]
) -> Iterator[_Element | str]:
    """Elements to open, texts and closing tags in order.

    Elements nest by lane, the highest outermost. An element that crosses another is closed where the other begins or
    ends, and opened again inside or outside it.
    """
    stack: list[_Element] = []
    for at, after in pairwise([*cuts, passage.end]):
        starting = opening.get(at, [])
        changed = [lanes[mark] for mark, _ in starting] + [element.lane for element in stack if element.part[1] == at]
        to_open = starting
        while stack and changed and stack[-1].lane <= max(changed):
            closed = stack.pop()
            closed.end = at
            yield "</mark>"
            if closed.part[1] > at:
                to_open = [*to_open, (closed.mark, closed.part)]
        for mark, part in sorted(to_open, key=lambda entry: -lanes[entry[0]]):
            element = _Element(mark, part, lanes[mark], at, [outer.mark for outer in stack[-MAX_AROUND:]])
            stack.append(element)
            yield element
        yield text_to_html(passage.text[at - passage.offset : after - passage.offset])


def _opening_tag(element: _Element) -> str:
    """The opening tag of a mark; its tooltip includes the enclosing marks."""
    mark, part = element.mark, element.part
    classes = f"t{mark.type_number} l{min(element.lane, LANES - 1)}" + (f" {mark.anchor}" if mark.related else "")
    extra = ""
    if element.start == part[0]:
        classes += " s"
    if element.end == part[1]:
        classes += " e"
        if part == mark.parts[-1]:
            classes += " z"
            extra += f' data-t="{to_html(mark.type)}"'
    if mark.number is not None:
        classes += " cut"
        extra += f' data-n="{mark.number}"'
    if element.start == mark.parts[0][0]:
        extra += f' id="{mark.anchor}" tabindex="0"'
    tooltip = "\n\n".join(one.tooltip for one in (mark, *reversed(element.around)))
    return f'<mark class="{classes}" title="{to_html(tooltip)}"{extra}>'


def questions_list(doc: Document) -> str:
    """The questions with their answers."""
    return "".join(map(_question, doc.questions))


def _question(question: Question) -> str:
    facts = [question.type or "", "no answer in the text" if question.impossible else "", question.id]
    named = " · ".join(to_html(fact) for fact in facts if fact)
    answers = ""
    for answer in question.answers:
        where = f" <span class=role>at {answer.start}</span>" if answer.start is not None else ""
        synonyms = f" <span class=role>also {to_html(', '.join(answer.synonyms))}</span>" if answer.synonyms else ""
        answers += f"<li><bdi>{to_html(answer.text)}</bdi>{where}{synonyms}</li>"
    ideal = "".join(f"<p>{to_html(text)}</p>" for text in question.ideal)
    concepts = ", ".join(concept_link(concept) for concept in question.concepts)
    documents = ", ".join(f"<bdi>{to_html(name)}</bdi>" for name in question.documents)
    return (
        f'<section class="qa"><span class="kind">Question · {named}</span><p><b>{to_html(question.text)}</b></p>'
        + (f"<ul>{answers}</ul>" if answers else "")
        + ideal
        + (f'<p class="role">Concepts: {concepts}</p>' if concepts else "")
        + (f'<p class="role">Documents: {documents}</p>' if documents else "")
        + "</section>"
    )


Row = tuple[str, tuple[str, ...]]
"""The attributes of a row's tag, and its cells."""

_OPTIONAL_COLUMNS = ("Score", "Novel", "Attributes")


def _relations_table(doc: Document, anchors: Anchors, attributes: dict[str, list[str]], page: Page) -> str:
    """Two entities and their relation, expanded; all arguments of a relation but the first are in the third column."""
    if not doc.relations:
        return ""
    texts = {span.id: span for span in doc.spans}
    firsts = {concept: mentions[0] for concept, mentions in doc.concepts.items()}
    rows = []
    for relation in doc.relations:
        first, *others = [_argument(argument, texts, firsts, anchors) for argument in relation.arguments] or [""]
        tenths = "" if relation.score is None else f" p{min(max(int(relation.score * 10), 0), 9)}"
        rows.append(
            (
                f' id="{anchors.relations[relation.id]}" class="q{page.relation_number(relation.type)}{tenths}"',
                (
                    first,
                    f"<bdi>{to_html(relation.type)}</bdi>",
                    "".join(others),
                    score_text(relation.score),
                    {True: "yes", False: "no", None: ""}[relation.novel],
                    to_html("; ".join(attributes.get(relation.id, ()))),
                    to_html(relation.id),
                ),
            )
        )
    head = ("Entity 1", "Relation", "Entity 2", "Score", "Novel", "Attributes", "Id")
    return _details("Relations", len(rows), _table(head, rows), is_open=True)


def _argument(argument: Argument, spans: dict[str, Span], firsts: dict[str, Span], anchors: Anchors) -> str:
    """A side of a relation: its mention, or its concept and the first mention of that."""
    span = spans.get(argument.target or "") or firsts.get(argument.concept or "")
    named = span is not None and argument.role in (span.type, "Arg1", "Arg2")
    role = "" if named else f' <span class="role"><bdi>{to_html(argument.role)}</bdi></span>'
    if span is not None:
        link = f'href="#{anchors.spans[span.id]}" title="{to_html(span.type)}"'
        what = f'<a class="rel t{anchors.types[span.type]}" {link}>{to_html(span.text)}</a>'
        concept = f' <span class="arg">{anchors.link(argument.concept)}</span>' if argument.concept else ""
        return f'<span class="arg">{what}{role}{concept}</span>'
    if argument.target is None:
        what = f'<span class="rel">{anchors.link(argument.concept or "")}</span>'
    else:
        what = f'<a class="rel" href="#{anchors.relations[argument.target]}">{to_html(argument.target)}</a>'
    return f'<span class="arg">{what}{role}</span>'


def mentions_table(doc: Document, anchors: Anchors, attributes: dict[str, list[str]]) -> str:
    """All spans with offsets, concepts and scores, collapsed: an accessible form of the highlights."""
    if not doc.spans:
        return ""
    rows = [_mention_row(span, anchors, attributes) for span in doc.spans]
    head = ("Mention", "Type", "Characters", "Concepts", "Score", "Attributes", "Id")
    return _details("Mentions", len(doc.spans), _table(head, rows))


def _mention_row(span: Span, anchors: Anchors, attributes: dict[str, list[str]]) -> Row:
    where = "<br>".join(f'<span class="n">{start}–{end}</span>' for start, end in span.parts)
    cells = (
        f'<a class="rel t{anchors.types[span.type]}" href="#{anchors.spans[span.id]}">{to_html(span.text)}</a>',
        to_html(span.type),
        where,
        "<br>".join(anchors.link(concept) for concept in span.concepts),
        score_text(span.score),
        to_html("; ".join(attributes.get(span.id, ()))),
        to_html(span.id),
    )
    return "", cells


def attributes_by_target(doc: Document) -> dict[str, list[str]]:
    """The attributes as text, by the id of their target."""
    attributes: dict[str, list[str]] = {}
    for attribute in doc.attributes:
        value = f": {attribute.value}" if attribute.value is not None else ""
        attributes.setdefault(attribute.target, []).append(attribute.name + value)
    return attributes


def record_list(doc: Document) -> str:
    """The document's metadata, collapsed."""
    listed = "".join(_fields(doc.meta))
    return _details("Metadata", None, f"<dl>{listed}</dl>") if listed else ""


def _fields(record: Any) -> Iterator[str]:
    """Name and value of each field of a dataclass that is not at its default."""
    for column in fields(record):
        value = getattr(record, column.name)
        if value != column.default:
            yield f"<dt>{column.name.replace('_', ' ')}</dt><dd>{_field_value(value)}</dd>"


def _field_value(value: Any) -> str:
    if is_dataclass(value):
        return f"<dl>{''.join(_fields(value))}</dl>"
    if isinstance(value, tuple):
        return "".join(map(_field_value, value)) if is_dataclass(value[0]) else "; ".join(map(_field_value, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"<bdi>{to_html(str(value))}</bdi>"


def _table(names: Sequence[str], rows: Sequence[Row]) -> str:
    """A table without those of its optional columns that are blank in all rows."""
    shown = [
        column
        for column, name in enumerate(names)
        if name not in _OPTIONAL_COLUMNS or any(cells[column] for _, cells in rows)
    ]
    head = "".join(f'<th scope="col">{names[column]}</th>' for column in shown)
    body = "".join(
        f"<tr{tag}>" + "".join(f"<td>{cells[column]}</td>" for column in shown) + "</tr>" for tag, cells in rows
    )
    return f"<table><thead><tr>{head}</tr></thead>{body}</table>"


def _details(name: str, count: int | None, content: str, *, is_open: bool = False) -> str:
    number = f" <b>{count}</b>" if count is not None else ""
    region = f'<div class="wide" tabindex="0" role="region" aria-label="{name}">{content}</div>'
    return f"<details{' open' if is_open else ''}><summary>{name}{number}</summary>{region}</details>\n"


def concept_link(concept: str) -> str:
    """A concept as HTML: a link if its vocabulary is known, else its id."""
    address = concept_url(concept)
    return f"<bdi>{to_html(concept)}</bdi>" if address is None else external_link(address, concept)


def external_link(address: str, text: str) -> str:
    """A link to another site, without referrer."""
    return f'<a rel="noreferrer noopener" href="{to_html(address)}">{to_html(text)}</a>'


def score_text(score: float | None) -> str:
    """A score with four significant digits."""
    return "" if score is None else f"{score:.4g}"


def to_html(text: str) -> str:
    """Text for a heading, table cell or attribute: escaped, with codes for control characters."""
    return escape(_IN_NAMES.sub(lambda match: f"‹{_code(match)}›", text))


def text_to_html(text: str) -> str:
    """Passage text: escaped, with all characters; control characters are wrapped in an element."""

    def wrap(match: re.Match[str]) -> str:
        visible = "␀" if match[0] == "\x00" else match[0]
        return f'<span class="ctl" data-c="{_code(match)}">{visible}</span>'

    return _IN_TEXT.sub(wrap, escape(text, quote=False).replace("\r", "&#13;"))


def _code(match: re.Match[str]) -> str:
    return f"U+{ord(match[0]):04X}"
