"""The text of a JATS element: inline markup flattened, white space folded, one form of each formula.

Used by the PMC reader; docs/explanation/jats.md says why each choice was made.
"""

import re

from lxml import etree

from lexome.formats.tally import Tally

Element = etree._Element

_MATHML = "{http://www.w3.org/1998/Math/MathML}"
MATH = _MATHML + "math"
BLANKS = " \t\r\n"

_BLANK_RUN = re.compile(r"[ \t\r\n]+")
_TEX_BODY = re.compile(r"\\begin\{document\}(.*)\\end\{document\}", re.DOTALL)


def _names(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Elements that stand in a paragraph of their own, wherever they are nested.
BLOCKS = _names(
    "address answer answer-set app app-group array attrib block-alternatives body boxed-text caption chem-struct-wrap "
    "code def def-head def-item def-list disp-formula disp-formula-group disp-quote explanation fig fig-group fn "
    "fn-group floats-wrap glossary graphic label list list-item media notes option p preformat question "
    "question-preamble question-wrap question-wrap-group ref ref-list sec sig sig-block speaker speech statement "
    "subtitle supplementary-material table table-wrap table-wrap-foot table-wrap-group term term-head textual-form "
    "title verse-group verse-line bio ack sec-meta abstract trans-abstract author-notes"
)
# Those that leave even a table cell: a figure or a note in a cell follows its table.
FLOATS = _names("boxed-text fig fig-group fn graphic media supplementary-material table-wrap")
# Not text to read: descriptions for machines and readers of images, ids, index entries, rights of a part.
LEFT_OUT = _names(
    "alt-text long-desc object-id institution-id contrib-id index-term index-term-range-end private-char "
    "inline-graphic permissions contrib-group custom-meta-group custom-meta-wrap processing-meta colgroup col"
)
_CITATIONS = _names("element-citation nlm-citation citation mixed-citation")
_SPACES = frozenset(("break", "hr"))
# Inside these, not every child is read: they hold the same thing in several forms.
_FORMS = frozenset(("alternatives", "block-alternatives", "citation-alternatives", "inline-formula", "disp-formula"))
_SPECIAL = BLOCKS | LEFT_OUT | _CITATIONS | _SPACES | _FORMS | {"math", MATH, "tex-math"}

_BEST_FORMS = (MATH, "math", "tex-math", "table", "array", "textual-form", "mixed-citation", "element-citation")
_STRUCTURED_NAMES = _names("mfrac msqrt mfenced mtable mtr mlabeledtr mtext annotation annotation-xml")
_STRUCTURED = frozenset(_MATHML + name for name in _STRUCTURED_NAMES)
_FONTS = _names(
    "italic bold sup sub sc underline overline strike monospace roman sans-serif named-content styled-content "
    "ext-link uri xref abbrev fixed-case inline-formula"
)


def fold(text: str) -> str:
    """The text with each run of XML white space made one space and none at its ends; NBSP and its kin stay."""
    if "\n" in text or "\t" in text or "\r" in text:
        text = text.replace("\n", " ").replace("\t", " ").replace("\r", " ")
    while "  " in text:
        text = text.replace("  ", " ")
    return text.strip(" ")


def all_text(element: Element) -> str:
    """Every character inside the element, as it stands."""
    return etree.tostring(element, method="text", encoding="unicode", with_tail=False)


def only_references(element: Element) -> bool:
    """True for a reference list with nothing but references in it."""
    return element.tag == "ref-list" and all(child.tag in ("ref", "title", "label") for child in element)


def left_out(element: Element) -> str:
    """The note for an element that is not read."""
    return f"<{element.tag!s}> left out"


class Inline:
    """Reads the inline text of one article's elements, and notes what it leaves out."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def own(self, element: Element) -> tuple[str, list[Element]]:
        """The element's own text, folded, and the blocks that stand inside it, in order."""
        blocks: list[Element] = []
        return fold(self.raw(element, blocks)), blocks

    def flat(self, element: Element) -> tuple[str, list[Element]]:
        """The text with blocks left in their place, a space around each; only floating ones are handed back."""
        floats: list[Element] = []
        return fold(self.raw(element, floats, apart=FLOATS)), floats

    def line(self, element: Element | None) -> str:
        """The text of something short, such as a label or a keyword; empty where there is none."""
        if element is None:
            return ""
        return self.flat(element)[0] if len(element) else fold(element.text or "")

    def raw(self, element: Element, blocks: list[Element], *, apart: frozenset[str] = BLOCKS) -> str:
        """The text with its white space as it stands; what stands `apart` inside it is added to `blocks`."""
        if not len(element):
            return element.text or ""
        for child in element:
            if child.tag in _SPECIAL or len(child):
                break
        else:
            return all_text(element)
        pieces: list[str] = []
        self._gather(element, pieces, blocks, apart)
        return "".join(pieces)

    def spaced(self, element: Element, gap: str = " ") -> str:
        """The text of a record of fields, such as a citation: a gap where nothing stands between two fields."""
        pieces = [element.text or ""]
        unread = self._other_forms(element) if element.tag in _FORMS else ()
        for child in element:
            if child.tag in LEFT_OUT or child in unread:
                self._leave_out(child)
            elif child.tag in _FONTS:
                pieces.append(self.raw(child, [], apart=FLOATS))
            elif not len(child):
                pieces.append(fold(child.text or ""))
            elif child.tag == "person-group":
                pieces.append(self.spaced(child, ", "))
            else:
                pieces.append(self.spaced(child))
            tail = child.tail
            if tail and (child.tag in _FONTS or not tail.isspace()):
                pieces.append(tail)
            elif child.tag not in _FONTS:
                pieces.append(gap if pieces[-1] and child.getnext() is not None else " ")
        return fold("".join(pieces))

    def chosen(self, element: Element) -> list[Element]:
        """The children to read of an element that holds one thing in several forms."""
        unread = self._other_forms(element)
        for child in unread:
            self._leave_out(child)
        return [child for child in element if child not in unread]

    def _gather(self, element: Element, pieces: list[str], blocks: list[Element], apart: frozenset[str]) -> None:
        if element.text:
            pieces.append(element.text)
        unread = self._other_forms(element) if element.tag in _FORMS else ()
        for child in element:
            tag = child.tag
            if tag not in _SPECIAL and child not in unread:
                if len(child):
                    self._gather(child, pieces, blocks, apart)
                elif child.text:
                    pieces.append(child.text)
            elif tag in LEFT_OUT or child in unread:
                self._leave_out(child)
            elif tag in apart:
                pieces.append(" ")
                blocks.append(child)
            elif (text := self._special_text(child)) is not None:
                pieces.append(text)
            else:
                around = " " if tag in BLOCKS else ""
                pieces.append(around)
                self._gather(child, pieces, blocks, apart)
                pieces.append(around)
            if child.tail:
                pieces.append(child.tail)

    def _special_text(self, element: Element) -> str | None:
        """The text of an element that is not read letter by letter, or None for one that is."""
        tag = element.tag
        if tag in _SPACES:
            return " "
        if tag in (MATH, "math"):
            return math_text(element)
        if tag == "tex-math":
            return tex_text(element)
        if tag in _CITATIONS:
            return self.spaced(element)
        return None

    def _other_forms(self, element: Element) -> set[Element]:
        """The children that say again what another one says better."""
        forms = [child for child in element if child.tag not in LEFT_OUT]
        if element.tag in ("inline-formula", "disp-formula"):
            tags = {child.tag for child in forms}
            return {child for child in forms if child.tag == "tex-math"} if tags & {MATH, "math"} else set()
        ranked = [child for tag in _BEST_FORMS for child in forms if child.tag == tag] + forms
        best = next((child for child in ranked if all_text(child).strip()), None)
        return {child for child in forms if child is not best}

    def _leave_out(self, element: Element) -> None:
        if all_text(element).strip():
            known = element.tag in LEFT_OUT
            self._tally.note(left_out(element) if known else "second form of a formula or table left out")


def tex_text(element: Element) -> str:
    """TeX without the preamble that publishers wrap around it."""
    text = all_text(element)
    body = _TEX_BODY.search(text)
    return fold(body[1] if body is not None else text)


def math_text(math: Element) -> str:
    """MathML on one line: (a+b)/2 for a fraction, scripts beside what they belong to."""
    prefixed = isinstance(math.tag, str) and math.tag.startswith("{")
    names: dict[Element, str] = {}  # of elements that are more than their letters, and "" for what holds one
    for element in math.iter(*(_STRUCTURED if prefixed else _STRUCTURED_NAMES)):
        names[element] = str(element.tag).rpartition("}")[2]
        parent = element.getparent()
        while parent is not None and parent not in names and element is not math:
            names[parent] = ""
            element, parent = parent, parent.getparent()
    return _math_text(math, names)


def _math_text(element: Element, names: dict[Element, str]) -> str:
    name = names.get(element, "")
    if name == "mtext":
        return all_text(element)
    if name.startswith("annotation"):
        return ""
    parts = []
    for child in element:
        if child in names:
            parts.append(_math_text(child, names))
        else:
            parts.append(_unblanked(all_text(child) if len(child) else child.text or ""))
        if (tail := child.tail) and not tail.isspace():
            parts[-1] += _unblanked(tail)
    if name == "mfrac" and len(parts) == 2:
        return f"{_grouped(parts[0])}/{_grouped(parts[1])}"
    if name == "msqrt":
        return "√" + _grouped("".join(parts))
    if name == "mfenced":
        return _fenced(element, parts)
    if name in ("mtable", "mtr", "mlabeledtr"):
        return " ".join(parts)
    return _unblanked(element.text or "") + "".join(parts)


def _unblanked(text: str) -> str:
    """The text without white space: between the elements of a formula it means nothing."""
    if " " not in text and "\n" not in text and "\t" not in text:
        return text
    return _BLANK_RUN.sub("", text)


def _grouped(text: str) -> str:
    """A term in brackets unless it is one number or name."""
    return text if text.isalnum() else f"({text})"


def _fenced(element: Element, parts: list[str]) -> str:
    marks = element.get("separators", ",").split()
    joined = parts[:1]
    for number, part in enumerate(parts[1:]):
        joined += (marks[min(number, len(marks) - 1)] if marks else "", part)
    return element.get("open", "(") + "".join(joined) + element.get("close", ")")
