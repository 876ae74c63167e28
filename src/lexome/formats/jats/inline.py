"""The text of a JATS element: inline markup removed, white space folded, one form of each formula.

docs/explanation/jats.md gives the reasons.
"""

import re
from collections.abc import Callable

from lxml import etree

from lexome.formats.tally import Tally

Element = etree._Element

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
