"""The blocks of a JATS article as passages in reading order.

A paragraph's own text is one passage; a list, figure or formula inside it follows as separate passages.
docs/explanation/jats.md has the table of elements.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from lxml import etree

from lexome.formats.jats.inline import (
    FONTS,
    Element,
    Inline,
    all_text,
    drop_namespace,
    fold,
    math_text,
    only_references,
    skip_note,
    stray_texts,
    tex_text,
)
from lexome.formats.tally import Tally

# Ordered, narrower patterns first.
_HEADINGS = (
    ("SUPPL", r"supplement|supporting (?:information|data|material)|additional (?:file|data|material)|web extra"),
    ("AUTH_CONT", r"(?:author|contributor)(?:'?s'?)? ?(?:contribution|information|role)|contributors?$"),
    ("COMP_INT", r"(?:competing|conflicts?|conflicting|declarations? of|duality of).* interest|disclosures?\b|coi\b"),
    ("ACK_FUND", r"acknowledge?ment|funding|financial (?:support|disclosure)|grant support|role of the funding"),
    ("ABBR", r"abbreviation|glossary|nomenclature|list of symbols"),
    ("REF", r"references?$|bibliography|literature cited|further reading"),
    ("APPENDIX", r"appendi(?:x|ces)"),
    ("REVIEW_INFO", r"(?:peer )?review(?:er)? (?:information|history|comments)|pre-publication history"),
    ("CASE", r"case (?:report|presentation|description|history|stud)|the case$|cases?$"),
    ("INTRO", r"introduction|background|intro$"),
    (
        "METHODS",
        r"(?:.*\b(?:and|&|statistical|experimental|online|study|star.) ?)?methods?\b|methodology|materials?\b|"
        r"experimental (?:procedure|section|design)|(?:study|statistical) (?:design|analys)|patients and",
    ),
    ("RESULTS", r"results?\b|findings"),
    ("DISCUSS", r"(?:general )?discussion|comment$"),
    ("CONCL", r"(?:summary and )?conclusions?\b|concluding remarks|summary$"),
)
_SEC_TYPES = {
    sec_type: role
    for role, sec_types in {
        "INTRO": "intro background",
        "METHODS": "methods materials subjects materials|methods methods|subjects",
        "RESULTS": "results results|discussion",
        "DISCUSS": "discussion discussion|conclusions",
        "CONCL": "conclusions conclusion",
        "CASE": "cases",
        "SUPPL": "supplementary-material",
        "ACK_FUND": "acknowledgement ack funding financial-disclosure supported-by",
        "AUTH_CONT": "author-contributions con",
        "COMP_INT": "coi-statement conflict conflict-interest",
        "ABBR": "abbr abbreviations glossary",
        "APPENDIX": "appendix",
    }.items()
    for sec_type in sec_types.split()
}
_ROLE = re.compile("|".join(f"(?P<{role}>{pattern})" for role, pattern in _HEADINGS))
_NUMBER = re.compile(r"^(?:(?:\d+|[ivx]+|[a-z])[.):]?[\d.]*\s+)?(?:the |our )?")


@lru_cache(maxsize=4096)
def role_of(type_: str | None, heading: str) -> str | None:
    """METHODS, RESULTS, ... from the heading, else from the sec-type (fn-type, notes-type), else None.

    The heading has priority: PLOS types its discussions as conclusions.
    """
    plain = _NUMBER.sub("", heading.lower().replace("’", "'").strip(" .:"), count=1)
    if (match := _ROLE.match(plain)) is not None:
        return match.lastgroup
    return _SEC_TYPES.get(type_.strip().lower()) if type_ is not None else None


LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"

# The role of the content of these elements, whatever their heading.
_ROLES: dict[object, str] = {
    "ack": "ACK_FUND", "app": "APPENDIX", "app-group": "APPENDIX", "fig": "FIG", "fig-group": "FIG", "glossary": "ABBR",
    "ref-list": "REF", "supplementary-material": "SUPPL", "table-wrap": "TABLE", "table-wrap-group": "TABLE",
}  # fmt: skip
_ROWS = frozenset(("tr", "row"))
_ROW_GROUPS = frozenset(("thead", "tbody", "tfoot", "tgroup"))
_NO_ROWS = frozenset(("col", "colgroup", "colspec", "spanspec"))


@dataclass(frozen=True, slots=True)
class BlockPlace:
    """The position of a block in the article: the fields of its passages other than text."""

    section: tuple[str, ...] = ()
    category: str | None = None
    language: str | None = None
    kind: str = "paragraph"


# Kind, text, section, category, language: the arguments of document.lay_out.
Draft = tuple[str, str, tuple[str, ...], str | None, str | None]


class Blocks:
    """Walks the blocks of one article and collects its passages in `drafts`."""

    def __init__(self, inline: Inline, tally: Tally, *, language: str | None, references: bool) -> None:
        self.drafts: list[Draft] = []
        self.inline = inline
        self.tally = tally
        self._language = language
        self._references = references
        self._used: set[Element] = set()  # labels and titles that were already read
        self._floating: list[Element] = []  # notes and figures inside them, not yet read

    def block(self, element: Element, place: BlockPlace) -> None:
        """Add the passages of one block."""
        _HANDLERS.get(element.tag, Blocks.unknown)(self, element, place)

    def _blocks(self, elements: list[Element], place: BlockPlace) -> None:
        for element in elements:
            self.block(element, place)

    def children(self, element: Element, place: BlockPlace) -> None:
        """Add the passages of all children, and text outside any paragraph."""
        if (text := element.text) and not text.isspace():
            self.stray(text, place)
        for child in element:
            (_HANDLERS.get(child.tag) or Blocks.unknown)(self, child, place)
            if (tail := child.tail) and not tail.isspace():
                self.stray(tail, place)

    def flow(self, element: Element, place: BlockPlace) -> None:
        """Add the element's own text as a passage, then the blocks inside it."""
        text, blocks = self.inline.own(element)
        self._add(text, place)
        self._blocks(blocks, place)

    def titled(self, element: Element, place: BlockPlace) -> None:
        """Add a heading of label and title, then the content with the title in its section path."""
        self.children(element, self._heading(element, place))

    def captioned(self, element: Element, place: BlockPlace) -> None:
        """Add label, caption and content of a figure, table or supplement; the label precedes the caption."""
        category = _ROLES.get(element.tag) or place.category
        self.labelled(element, BlockPlace(place.section, category, place.language, "caption"))

    def labelled(self, element: Element, place: BlockPlace) -> None:
        """Add the content, with its label before the first passage."""
        self._prefixed(element, place, self._take_text(_first(element, "label")))

    def listing(self, element: Element, place: BlockPlace) -> None:
        """Add a list: each paragraph of an item is a passage."""
        self.titled(element, replace(place, kind="list") if place.kind == "paragraph" else place)

    def definition(self, element: Element, place: BlockPlace) -> None:
        """Add a term and its definition, separated by a tab."""
        terms = [self._take_text(child) for child in element if child.tag in ("label", "term")]
        self._prefixed(element, place, "\t".join(filter(None, terms)), gap="\t")

    def speech(self, element: Element, place: BlockPlace) -> None:
        """Add a speech, preceded by the speaker's name."""
        self._prefixed(element, place, self._take_text(_first(element, "speaker")))

    def footnote(self, element: Element, place: BlockPlace) -> None:
        """Add a note, preceded by its mark."""
        category = place.category or role_of(element.get("fn-type"), "")
        self.labelled(element, replace(place, category=category, kind="footnote"))

    def table_foot(self, element: Element, place: BlockPlace) -> None:
        """Add the notes under a table."""
        self.titled(element, replace(place, kind="footnote"))

    def formula(self, element: Element, place: BlockPlace) -> None:
        """Add a displayed formula in its best form, preceded by its number."""
        number = self._take_text(_first(element, "label"))
        text, blocks = self.inline.own(element)
        self._add(_join(number, text), place, kind="formula")
        self._flush_floating(place)
        self._blocks(blocks, place)

    def bare_math(self, element: Element, place: BlockPlace) -> None:
        """Add a formula between paragraphs that has no wrapper."""
        self._add(tex_text(element) if element.tag == "tex-math" else math_text(element), place, kind="formula")

    def verse(self, element: Element, place: BlockPlace) -> None:
        """Add a poem, with its line breaks."""
        place = self._heading(element, place)
        lines = [self._take_text(line) for line in element.iterchildren("verse-line")]
        self._add("\n".join(filter(None, lines)), place)
        self._flush_floating(place)
        self.children(element, place)

    def preformatted(self, element: Element, place: BlockPlace) -> None:
        """Add code or preformatted text with its white space."""
        blocks: list[Element] = []
        self._add(self.inline.raw(element, blocks).strip("\r\n"), place, kind="code")
        self._blocks(blocks, place)

    def table(self, element: Element, place: BlockPlace) -> None:
        """Add the cells of a table, tab-separated with one line per row, then the floating blocks in them."""
        rows: list[str] = []
        after: list[Element] = []
        etree.strip_tags(element, *FONTS)  # leaves most cells without children, which is faster
        self._rows(element, rows, after)
        self._add("\n".join(rows), place, kind="table")
        self._blocks(after, place)

    def alternatives(self, element: Element, place: BlockPlace) -> None:
        """Add the best of several forms of the same content."""
        for text in stray_texts(element):
            self.stray(text, place)
        self._blocks(self.inline.best_form(element), place)

    def references(self, element: Element, place: BlockPlace) -> None:
        """Add a reference list if references are wanted, else only its other content."""
        if self._references or not only_references(element):
            self.titled(element, place)
        else:
            self.tally.note("reference skipped", sum(1 for _ in element.iterchildren("ref")))

    def reference(self, element: Element, place: BlockPlace) -> None:
        """Add a reference if references are wanted."""
        if self._references:
            self.labelled(element, replace(place, kind="reference"))
        else:
            self.tally.note("reference skipped")

    def citation(self, element: Element, place: BlockPlace) -> None:
        """Add a citation, with spaces between its fields."""
        self._add(self.inline.spaced(element), place)

    def label(self, element: Element, place: BlockPlace) -> None:
        """Add a title, label, term or speaker that was not read with its parent."""
        if element not in self._used:
            is_heading = element.tag in ("title", "subtitle") and place.kind != "caption"
            self._add(self._take_text(element), place, kind="heading" if is_heading else None)
            self._flush_floating(place)

    def abstract(self, element: Element, place: BlockPlace) -> None:
        """Add an abstract; one of a special type without title gets the type as section."""
        place = replace(place, category="ABSTRACT", kind="abstract")
        type_ = element.get("abstract-type")
        if type_ and _first(element, "title") is None:
            place = replace(place, section=(*place.section, type_))
        self.titled(element, place)

    def contributors(self, element: Element, place: BlockPlace) -> None:
        """Add biographies, comments and notes on authors; their names are metadata."""
        seen: set[Element] = set()
        for text in element.iter("bio", "author-comment", "fn"):
            if not any(outer in seen for outer in text.iterancestors()):
                seen.add(text)
                self.block(text, place)

    def abbreviations(self, element: Element, place: BlockPlace) -> None:
        """Add abbreviations that are listed as keywords, with a tab between short and long form."""
        place = self._heading(element, place)
        for word in element.iter("kwd", "compound-kwd"):
            parts = word.findall("compound-kwd-part")
            self._add("\t".join(map(self.inline.line, parts or [word])), place)

    def skip(self, element: Element, place: BlockPlace) -> None:
        """Note something that is not read."""
        if all_text(element).strip():
            self.tally.note(skip_note(element))

    def unknown(self, element: Element, place: BlockPlace) -> None:
        """Add the content of an unexpected element; a namespaced one is read under its local name."""
        if drop_namespace(element):
            self.block(element, place)
            return
        self.tally.note("element outside any paragraph, its text kept")
        if len(element) and not stray_texts(element):
            self.children(element, place)
        else:
            self.flow(element, place)

    def language_of(self, element: Element, default: str | None = None) -> str | None:
        """The language of an element if it is not the article's, else None."""
        language = element.get(LANGUAGE) or default
        return None if language == self._language else language

    def _add(self, text: str, place: BlockPlace, *, kind: str | None = None) -> None:
        if text and not text.isspace():
            self.drafts.append((kind or place.kind, text, place.section, place.category, place.language))

    def stray(self, text: str, place: BlockPlace) -> None:
        """Add text where only elements are allowed."""
        self.tally.note("text outside any paragraph, kept as one")
        self._add(fold(text), place)

    def _take_text(self, element: Element | None) -> str:
        """The text of a label or title, the first time it is asked for; then empty."""
        if element is None or element in self._used:
            return ""
        self._used.add(element)
        if not len(element):
            return fold(element.text or "")
        text, floats = self.inline.flat(element)
        self._floating += floats
        return text

    def _flush_floating(self, place: BlockPlace) -> None:
        """Add the floating blocks of labels and titles."""
        while self._floating:
            self.block(self._floating.pop(0), place)

    def _heading(self, element: Element, place: BlockPlace) -> BlockPlace:
        """Add the heading of an element; returns the place of its content."""
        label = title = None
        for child in element:
            if child.tag == "label":
                label = child
            elif child.tag == "caption":
                title = _first(child, "title")
            elif child.tag == "title":
                title = child
                break
            elif child.tag not in ("object-id", "sec-meta"):
                break
        number, name = self._take_text(label), self._take_text(title)
        role = _ROLES.get(element.tag) or place.category
        if role is None:
            role = role_of(element.get("sec-type") or element.get("notes-type"), name or number)
        place = BlockPlace(place.section, role, self.language_of(element, place.language), place.kind)
        self._add(_join(number, name), place, kind="heading")
        if name or number:
            place = BlockPlace((*place.section, name or number), role, place.language, place.kind)
        self._flush_floating(place)
        return place

    def _prefixed(self, element: Element, place: BlockPlace, prefix: str, *, gap: str = " ") -> None:
        """Add the content of an element, preceded by its label, term or speaker."""
        begin = len(self.drafts)
        floating, self._floating = self._floating, []
        self.children(element, place)
        if prefix and begin < len(self.drafts) and self.drafts[begin][0] == place.kind:
            first = self.drafts[begin]
            self.drafts[begin] = (first[0], prefix + gap + first[1], *first[2:])
        elif prefix:
            # The content has another kind (a table in a list item), or is empty.
            self.drafts.insert(begin, (place.kind, prefix, place.section, place.category, place.language))
        self._blocks(floating, place)

    def _rows(self, element: Element, rows: list[str], after: list[Element]) -> None:
        if (text := element.text) and not text.isspace():
            rows.append(fold(text))
        for child in element:
            if child.tag in _ROWS:
                cells = [fold(text)] if (text := child.text) and not text.isspace() else []
                for cell in child:
                    if len(cell):
                        text, floats = self.inline.flat(cell)
                        after += floats
                        cells.append(text)
                    else:
                        cells.append(fold(text) if (text := cell.text) else "")
                    if (tail := cell.tail) and not tail.isspace():
                        cells.append(fold(tail))
                if any(cells):
                    rows.append("\t".join(cells))
            elif child.tag in _ROW_GROUPS:
                self._rows(child, rows, after)
            elif child.tag not in _NO_ROWS:
                after.append(child)
            if (tail := child.tail) and not tail.isspace():
                rows.append(fold(tail))


def _first(element: Element, tag: str) -> Element | None:
    """The first child with this tag; three times as fast as find."""
    return next(element.iterchildren(tag), None)


def _join(label: str, text: str) -> str:
    return f"{label} {text}" if label and text else label or text


_Handler = Callable[[Blocks, Element, BlockPlace], None]
_HANDLERS: dict[object, _Handler] = {
    tag: handler
    for handler, tags in {
        Blocks.flow: "p attrib address sig sig-block term-head def-head chem-struct funding-statement textual-form "
        "related-article related-object inline-formula email ext-link uri",
        Blocks.children: "body back floats-group floats-wrap caption def note funding-group open-access",
        Blocks.titled: "sec boxed-text ack app app-group glossary notes bio fn-group statement disp-quote "
        "question question-wrap question-wrap-group question-preamble answer answer-set explanation author-comment "
        "author-notes sec-meta",
        Blocks.captioned: "fig fig-group table-wrap table-wrap-group supplementary-material media graphic "
        "chem-struct-wrap disp-formula-group",
        Blocks.labelled: "list-item option",
        Blocks.listing: "list def-list",
        Blocks.definition: "def-item",
        Blocks.footnote: "fn",
        Blocks.table_foot: "table-wrap-foot",
        Blocks.formula: "disp-formula",
        Blocks.bare_math: "tex-math math {http://www.w3.org/1998/Math/MathML}math",
        Blocks.verse: "verse-group",
        Blocks.speech: "speech",
        Blocks.preformatted: "preformat code",
        Blocks.table: "table array",
        Blocks.alternatives: "alternatives block-alternatives citation-alternatives",
        Blocks.references: "ref-list",
        Blocks.reference: "ref",
        Blocks.citation: "mixed-citation element-citation nlm-citation citation",
        Blocks.label: "title subtitle label term speaker verse-line",
        Blocks.contributors: "contrib-group contrib",
        Blocks.abstract: "abstract trans-abstract",
        Blocks.skip: "alt-text long-desc object-id permissions index-term index-term-range-end inline-graphic "
        "custom-meta-group custom-meta-wrap processing-meta kwd-group corresp award-group",
    }.items()
    for tag in tags.split()
}
