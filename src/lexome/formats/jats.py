"""The blocks of a JATS article as passages in reading order.

A paragraph's own text is one passage; a list, figure or formula inside it follows as separate passages. Within a text,
inline markup is removed, white space is folded, and each formula has one form. docs/explanation/jats.md has the table
of elements and the reasons.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from lxml import etree

from lexome.formats.tally import Tally

Element = etree._Element

# The text of an element


_MATHML = "{http://www.w3.org/1998/Math/MathML}"
MATH = _MATHML + "math"

_BLANK_RUN = re.compile(r"[ \t\r\n]+")
_TEX_BODY = re.compile(r"\\begin\{document\}(.*)\\end\{document\}", re.DOTALL)


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Elements that form passages of their own, wherever they are nested.
BLOCKS = _names(
    "address answer answer-set app app-group array attrib block-alternatives body boxed-text caption chem-struct-wrap "
    "code def def-head def-item def-list disp-formula disp-formula-group disp-quote explanation fig fig-group fn "
    "fn-group floats-wrap glossary graphic label list list-item media notes option p preformat question "
    "question-preamble question-wrap question-wrap-group ref ref-list sec sig sig-block speaker speech statement "
    "subtitle supplementary-material table table-wrap table-wrap-foot table-wrap-group term term-head textual-form "
    "title verse-group verse-line bio ack sec-meta abstract trans-abstract author-notes"
)
# Blocks that are moved even out of a table cell: a figure or note in a cell follows its table.
FLOATS = _names("boxed-text fig fig-group fn graphic media supplementary-material table-wrap")
# No blocks: for short elements and the fields of a citation.
_NONE: frozenset[str] = frozenset()
# Not running text: image descriptions, ids, index entries, permissions of a part.
SKIPPED = _names(
    "alt-text long-desc object-id institution-id contrib-id index-term index-term-range-end private-char "
    "inline-graphic permissions contrib-group custom-meta-group custom-meta-wrap processing-meta colgroup col"
)
_CITATIONS = _names("element-citation nlm-citation citation mixed-citation")
_SPACES = frozenset(("break", "hr"))
# Elements with the same content in several forms, of which one is read.
_FORMS = frozenset(("alternatives", "block-alternatives", "citation-alternatives", "inline-formula", "disp-formula"))
_SPECIAL = BLOCKS | SKIPPED | _CITATIONS | _SPACES | _FORMS | {"math", MATH, "tex-math"}

_BEST_FORMS = ("math", "tex-math", "table", "array", "textual-form", "mixed-citation", "element-citation")
# A placeholder for spaces to keep in a formula: a Unicode non-character that XML allows.
_KEPT_SPACE = "\ufdd0"
# Inline markup whose text is kept as it is.
FONTS = _names(
    "italic bold sup sub sc underline overline strike monospace roman sans-serif named-content styled-content "
    "ext-link uri xref abbrev fixed-case"
)
_WITHIN_FIELDS = FONTS | {"inline-formula"}


def fold(text: str) -> str:
    """The text with each run of XML white space replaced by one space and its ends stripped; NBSP is text."""
    if "\n" in text or "\t" in text or "\r" in text:
        text = text.replace("\n", " ").replace("\t", " ").replace("\r", " ")
    while "  " in text:
        text = text.replace("  ", " ")
    return text.strip(" ")


def all_text(element: Element) -> str:
    """All characters inside the element, unchanged."""
    return etree.tostring(element, method="text", encoding="unicode", with_tail=False)


def _is_plain(element: Element) -> bool:
    """True if no element inside needs special treatment."""
    for child in element:
        if child.tag in _SPECIAL:
            return False
        if len(child) and not _is_plain(child):
            return False
    return True


def drop_namespace(element: Element) -> bool:
    """Remove the namespace of an element and its content, except MathML; False if it has none."""
    if not isinstance(element.tag, str) or not element.tag.startswith("{") or element.tag.startswith(_MATHML):
        return False
    for inner in element.iter("{*}*"):
        tag = str(inner.tag)
        if tag.startswith("{") and not tag.startswith(_MATHML):
            inner.tag = tag.rpartition("}")[2]
    return True


def only_references(element: Element) -> bool:
    """True for a reference list with nothing but references in it."""
    return all(child.tag in ("ref", "title", "label") for child in element) and not stray_texts(element)


def stray_texts(element: Element) -> list[str]:
    """The texts in an element between its children, except white space."""
    texts = (element.text, *(child.tail for child in element))
    return [text for text in texts if text and not text.isspace()]


def skip_note(element: Element) -> str:
    """The note for an element that is not read."""
    return f"<{element.tag!s}> skipped"


class Inline:
    """Reads the inline text of an article's elements, and notes what it skips."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def own(self, element: Element) -> tuple[str, list[Element]]:
        """The element's own text, folded, and the blocks inside it."""
        blocks: list[Element] = []
        return fold(self.raw(element, blocks)), blocks

    def flat(self, element: Element) -> tuple[str, list[Element]]:
        """The text including blocks, with spaces around them, and the floating blocks."""
        floats: list[Element] = []
        return fold(self.raw(element, floats, separate=FLOATS)), floats

    def line(self, element: Element | None) -> str:
        """The text of a short element, such as a label or keyword; empty for None."""
        if element is None:
            return ""
        return fold(self.raw(element, [], separate=_NONE) if len(element) else element.text or "")

    def raw(self, element: Element, blocks: list[Element], *, separate: frozenset[str] = BLOCKS) -> str:
        """The text with its white space; elements inside with a tag in `separate` are added to `blocks`."""
        if not len(element):
            return element.text or ""
        if _is_plain(element):
            return all_text(element)
        pieces: list[str] = []
        self._gather(element, pieces, blocks, separate)
        return "".join(pieces)

    def spaced(self, element: Element, gap: str = " ") -> str:
        """The text of an element of fields, such as a citation, with a gap between adjacent fields."""
        pieces = [element.text or ""]
        skipped = set(self._other_forms(element)) if element.tag in _FORMS else ()
        for child in element:
            if child.tag in SKIPPED or child in skipped:
                self._skip(child)
            elif child.tag in _WITHIN_FIELDS:
                pieces.append(self.raw(child, [], separate=_NONE))
            elif not len(child):
                pieces.append(fold(child.text or ""))
            elif child.tag == "person-group":
                pieces.append(self.spaced(child, ", "))
            else:
                pieces.append(self.spaced(child))
            tail = child.tail
            if tail and (child.tag in _WITHIN_FIELDS or not tail.isspace()):
                pieces.append(tail)
            elif child.tag not in _WITHIN_FIELDS:
                pieces.append(gap if pieces[-1] and child.getnext() is not None else " ")
        return fold("".join(pieces))

    def best_form(self, element: Element) -> list[Element]:
        """The children to read of an element with the same content in several forms."""
        others = set(self._other_forms(element))
        for child in others:
            self._skip(child)
        return [child for child in element if child not in others]

    def _gather(self, element: Element, pieces: list[str], blocks: list[Element], separate: frozenset[str]) -> None:
        if text := element.text:
            pieces.append(text)
        skipped = set(self._other_forms(element)) if element.tag in _FORMS else ()
        for child in element:
            tag = child.tag
            if tag not in _SPECIAL and child not in skipped:
                if len(child):
                    self._gather(child, pieces, blocks, separate)
                elif text := child.text:
                    pieces.append(text)
            elif tag in _SPACES:
                pieces.append(" ")
            elif tag in SKIPPED or child in skipped:
                self._skip(child)
            elif tag in separate:
                pieces.append(" ")
                blocks.append(child)
            elif tag in (MATH, "math"):
                pieces.append(math_text(child))
            elif tag == "tex-math":
                pieces.append(tex_text(child))
            elif tag in _CITATIONS:
                pieces.append(self.spaced(child))
            else:
                around = " " if tag in BLOCKS else ""
                pieces.append(around)
                self._gather(child, pieces, blocks, separate)
                pieces.append(around)
            if tail := child.tail:
                pieces.append(tail)

    def _other_forms(self, element: Element) -> list[Element]:
        """The children that are alternatives to the best form."""
        if element.tag in ("inline-formula", "disp-formula"):
            tex = list(element.iterchildren("tex-math"))
            return tex if tex and next(element.iterchildren(MATH, "math"), None) is not None else []
        best = next(element.iterchildren(MATH), None)
        if best is None or not len(best):
            first = (child for tag in _BEST_FORMS for child in element.iterchildren(tag))
            read = (child for child in element if child.tag not in SKIPPED)
            best = next((child for child in (*first, *read) if all_text(child).strip()), None)
        return [child for child in element if child is not best]

    def _skip(self, element: Element) -> None:
        if all_text(element).strip():
            known = element.tag in SKIPPED
            self._tally.note(skip_note(element) if known else "alternative form of a formula or table skipped")


def tex_text(element: Element) -> str:
    """TeX without the document preamble that publishers add."""
    text = all_text(element)
    body = _TEX_BODY.search(text)
    return fold(body[1] if body is not None else text)


def math_text(math: Element) -> str:
    """MathML on one line: (a+b)/2 for a fraction, scripts next to their base.

    Brackets and separators that only the layout shows are written into the tree, which is discarded afterwards.
    """
    prefixed = isinstance(math.tag, str) and math.tag.startswith("{")
    layouts = _LAYOUTS_PREFIXED if prefixed else _LAYOUTS
    # Inner elements first, so that a fraction knows whether its parts contain another.
    for element in reversed(list(math.iter(*layouts))):
        layouts[str(element.tag)](element)
    return _without_blanks(all_text(math)).replace(_KEPT_SPACE, " ")


def _without_blanks(text: str) -> str:
    """The text without white space, which has no meaning between the elements of a formula."""
    return text.replace(" ", "").replace("\n", "").replace("\t", "").replace("\r", "")


def _write_fraction(element: Element) -> None:
    if len(element) != 2:
        return
    above, below = element
    # Brackets, unless a part is a single number or name.
    opening, bar = ("", "/") if _without_blanks(all_text(above)).isalnum() else ("(", ")/")
    closing = "" if _without_blanks(all_text(below)).isalnum() else ")"
    element.text = opening + (element.text or "")
    above.tail = (above.tail or "") + bar + ("(" if closing else "")
    below.tail = (below.tail or "") + closing


def _write_row(element: Element) -> None:
    if len(element) > 1:
        _write_around(element, "", [_KEPT_SPACE], "")


def _write_around(element: Element, opening: str, marks: list[str], closing: str) -> None:
    """Write separators between the children of an element (repeating the last) and brackets around them."""
    last = len(element) - 1
    element.text = opening + (element.text or "") + (closing if last < 0 else "")
    for number, child in enumerate(element):
        mark = closing if number == last else marks[min(number, len(marks) - 1)] if marks else ""
        child.tail = (child.tail or "") + mark


_LAYOUTS: dict[str, Callable[[Element], None]] = {
    "mfrac": _write_fraction,
    "mfenced": lambda element: _write_around(
        element, element.get("open", "("), element.get("separators", ",").split(), element.get("close", ")")
    ),
    "msqrt": lambda element: _write_around(element, "√(", [], ")"),
    "mtable": _write_row,
    "mtr": _write_row,
    "mlabeledtr": _write_row,
    "mtext": lambda element: setattr(element, "text", _BLANK_RUN.sub(_KEPT_SPACE, element.text or "")),
    # Annotations repeat the formula, in TeX or otherwise.
    "annotation": lambda element: element.clear(keep_tail=True),
    "annotation-xml": lambda element: element.clear(keep_tail=True),
}
_LAYOUTS_PREFIXED = {f"{_MATHML}{name}": write for name, write in _LAYOUTS.items()}


# Blocks

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
        self.labeled(element, BlockPlace(place.section, category, place.language, "caption"))

    def labeled(self, element: Element, place: BlockPlace) -> None:
        """Add the content, with its label before the first passage."""
        self._add_prefixed(element, place, self._take_text(_first(element, "label")))

    def listing(self, element: Element, place: BlockPlace) -> None:
        """Add a list: each paragraph of an item is a passage."""
        self.titled(element, replace(place, kind="list") if place.kind == "paragraph" else place)

    def definition(self, element: Element, place: BlockPlace) -> None:
        """Add a term and its definition, separated by a tab."""
        terms = [self._take_text(child) for child in element if child.tag in ("label", "term")]
        self._add_prefixed(element, place, "\t".join(filter(None, terms)), gap="\t")

    def speech(self, element: Element, place: BlockPlace) -> None:
        """Add a speech, preceded by the speaker's name."""
        self._add_prefixed(element, place, self._take_text(_first(element, "speaker")))

    def footnote(self, element: Element, place: BlockPlace) -> None:
        """Add a note, preceded by its mark."""
        category = place.category or role_of(element.get("fn-type"), "")
        self.labeled(element, replace(place, category=category, kind="footnote"))

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
            self.labeled(element, replace(place, kind="reference"))
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

    def _add_prefixed(self, element: Element, place: BlockPlace, prefix: str, *, gap: str = " ") -> None:
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
        Blocks.labeled: "list-item option",
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
