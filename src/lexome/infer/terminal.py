"""Renders a document for a terminal: mentions in brackets with type, ids and score, optionally in color.

Color only repeats what the brackets say. Control characters of a text are shown as symbols, never sent.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING
from unicodedata import combining, east_asian_width

from lexome.document import Document, Passage, Range, Relation, Span, printable
from lexome.formats.html import color_of

if TYPE_CHECKING:
    from lexome.concepts.linker import Explanation
    from lexome.infer.relation_explanation import RelationEvidence, RelationExplanation

BOLD, DIM, RESET = "\x1b[1m", "\x1b[2m", "\x1b[0m"
# Hues of the terminal's colors in OKLCH, and their codes; dark blue is hard to read, so blue is the bright one.
_HUES = {29: 31, 110: 33, 142: 32, 195: 36, 264: 94, 325: 35}
# Minimum lightness for the bright code, and the chroma below which the terminal's own color is used.
_BRIGHT, _GRAY = 0.79, 0.05

NO_BREAK_SPACE = "\u00a0"

# Most ids of one mention, and most candidates for them, that are shown.
MAX_IDS = 5
SHOWN_CANDIDATES = 5
# Minimum probability and number of other labels of a pair to show, and the characters to show of a long sentence.
SHOWN_PROBABILITY = 0.01
SHOWN_LABELS = 4
SHOWN_SENTENCE = 160
SHOWN_AROUND = 50

Piece = tuple[str, str]
"""A text, and the mention type that colors it, or nothing."""


def render(doc: Document, *, width: int = 100, color: bool = False, show_id: bool = True) -> str:
    """The document as wrapped lines: each passage, then relations, labels and answers.

    >>> from lexome.document import Document, Passage, Span
    >>> span = Span("T1", "Gene", ((13, 18),), "BRCA1", ("NCBIGene:672",), 0.98)
    >>> print(render(Document("text", (Passage(0, "Mutations in BRCA1."),), (span,)), show_id=False))
    Mutations in [BRCA1|Gene NCBIGene:672 0.98].
    """

    def paint(text: str, type_: str) -> str:
        return f"{color_code(type_)}{text}{RESET}" if color and type_ else text

    lines = [f"{BOLD}{printable(doc.id)}{RESET}" if color else printable(doc.id)] if show_id else []
    for passage in doc.passages:
        nested, crossing = _nest(passage, doc.spans)
        words = ([(paint(text, type_), _columns(text)) for text, type_ in word] for word in _words(passage, nested))
        lines += _wrap(words, width)
        lines += (paint(f"  also [{printable(span.text)}|{printable(_label(span))}]", span.type) for span in crossing)
    lines += _relation_lines(doc)
    if doc.labels:
        scores = doc.label_scores or (None,) * len(doc.labels)
        labels = (f"{label}{_score(score)}" for label, score in zip(doc.labels, scores, strict=True))
        lines.append("  labels: " + printable(", ".join(labels)))
    for question in doc.questions:
        lines.append(f"  question: {printable(question.text)}")
        lines += (f"  answer: {printable(answer.text)}{_score(answer.score)}" for answer in question.answers)
    return "\n".join(lines)


def _relation_lines(doc: Document) -> Iterator[str]:
    """A line for each relation, with the text of its mentions; a concept is named by its first mention.

    Relations that would print the same line are merged into one, with the highest score and their number.
    """
    firsts = {concept: mentions[0] for concept, mentions in doc.concepts.items()} if doc.relations else {}
    types = {name: span.type for name, span in [*((span.id, span) for span in doc.spans), *firsts.items()]}
    texts = {span.id: span.text for span in doc.spans}
    texts |= {concept: f"{span.text} ({concept})" for concept, span in firsts.items()}
    scores: dict[tuple[str, bool], list[float | None]] = {}
    for relation in doc.relations:
        scores.setdefault((_relation_text(relation, texts, types), bool(relation.novel)), []).append(relation.score)
    for (text, novel), own in scores.items():
        highest = max((score for score in own if score is not None), default=None)
        times = f" ({len(own)} times)" if len(own) > 1 else ""
        yield "  " + printable(text) + _score(highest) + times + (", novel" if novel else "")


def _relation_text(relation: Relation, texts: Mapping[str, str], types: Mapping[str, str]) -> str:
    """A relation as text, such as "aspirin - INHIBITOR - COX1"; roles are named unless they are just the types."""
    names = [(argument.role, argument.target or argument.concept or "") for argument in relation.arguments]
    if len(names) == 2 and all(role in (types.get(name, role), "Arg1", "Arg2") for role, name in names):
        first, second = (texts.get(name, name) for _, name in names)
        return f"{first} - {relation.type} - {second}"
    arguments = ", ".join(f"{role}: {texts.get(name, name)}" for role, name in names)
    return f"{relation.type}({arguments})"


def color_code(type_: str) -> str:
    """The escape code of a type's color, the nearest to that on the HTML page."""
    color = color_of(type_)
    if color.chroma < _GRAY:
        return BOLD
    nearest = min(_HUES, key=lambda hue: abs((hue - color.hue + 180) % 360 - 180))
    code = _HUES[nearest]
    return f"\x1b[1;{code + 60 if color.dark > _BRIGHT and code < 90 else code}m"


def _label(span: Span) -> str:
    """Type, ids and score; only the first few ids of a mention that has many, such as a list of genes."""
    ids = ";".join(span.concepts[:MAX_IDS]) + (";…" if len(span.concepts) > MAX_IDS else "")
    return f"{span.type} {ids}".rstrip() + _score(span.score)


def _score(score: float | None) -> str:
    return "" if score is None else f" {score:.2f}"


def _nest(passage: Passage, spans: Iterable[Span]) -> tuple[list[Span], list[Span]]:
    """Mentions of the passage that brackets can show, outer ones first, and those that cross others or have parts."""
    inside = [span for span in spans if passage.offset <= span.start and span.end <= passage.end]
    nested: list[Span] = []
    crossing: list[Span] = []
    open_ends: list[int] = []
    for span in sorted(inside, key=lambda span: (span.start, -span.end)):
        while open_ends and open_ends[-1] <= span.start:
            open_ends.pop()
        if len(span.parts) > 1 or (open_ends and span.end > open_ends[-1]):
            crossing.append(span)
        else:
            open_ends.append(span.end)
            nested.append(span)
    return nested, crossing


def _words(passage: Passage, nested: list[Span]) -> Iterator[list[Piece]]:
    """The words of the passage with brackets, each of one or more pieces; spaces inside a mention separate words."""
    word: list[Piece] = []
    for text, type_ in _pieces(passage, nested):
        for number, part in enumerate(re.split(r"[ \t\n\r\f\v]", text)):
            if number and word:
                yield word
                word = []
            if part:
                word.append((printable(part).replace(NO_BREAK_SPACE, " "), type_))
    if word:
        yield word


def _pieces(passage: Passage, nested: list[Span]) -> Iterator[Piece]:
    """The text of the passage with brackets, split wherever the color changes."""
    open_spans: list[Span] = []
    position = passage.offset

    def text_to(end: int) -> Piece:
        text = passage.text[position - passage.offset : end - passage.offset]
        return text, open_spans[-1].type if open_spans else ""

    for span in [*nested, None]:
        start = span.start if span is not None else passage.end
        while open_spans and open_spans[-1].end <= start:
            yield text_to(open_spans[-1].end)
            position = open_spans[-1].end
            inner = open_spans.pop()
            # Type, ids and score stay on one line.
            yield f"|{_label(inner)}]".replace(" ", NO_BREAK_SPACE), inner.type
        yield text_to(start)
        position = start
        if span is not None:
            open_spans.append(span)
            yield "[", span.type


def _wrap(words: Iterable[list[tuple[str, int]]], width: int) -> Iterator[str]:
    line: list[str] = []
    used = 0
    for word in words:
        columns = sum(part_columns for _, part_columns in word)
        if line and used + 1 + columns > width:
            yield " ".join(line)
            line, used = [], 0
        used += columns + (1 if line else 0)
        line.append("".join(text for text, _ in word))
    if line:
        yield " ".join(line)


def _columns(text: str) -> int:
    """Columns in a terminal: two for wide characters, none for combining marks."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def explain_relation(explanation: "RelationExplanation") -> list[str]:
    """Lines on why two entities are related, or not: probabilities of other labels, and mentions as evidence."""
    one = explanation
    best = one.label or next(label for label in one.probabilities if label is not None)
    others = ", ".join(
        f"{label or 'no relation'} {value:.2f}"
        for label, value in list(one.probabilities.items())[: SHOWN_LABELS + 1]
        # That no relation is more likely is the reason for a pair without one.
        if label not in (best, one.label) and value >= SHOWN_PROBABILITY
    )
    status = "not kept" if one.label is not None and one.reason else "related" if one.label else "not related"
    novelty = "" if one.novelty is None or one.label is None else f", novel {one.novelty:.2f}"
    facts = "; ".join(filter(None, (one.reason, others and f"others: {others}")))
    lines = [f"{status} {one.first} - {best} - {one.second} {one.score:.2f}{novelty}" + (f": {facts}" if facts else "")]
    for evidence in one.evidence:
        places = f"{evidence.first[0]}-{evidence.first[1]} and {evidence.second[0]}-{evidence.second[1]}"
        lines.append(f"  {evidence.probability:.2f} {places}: {_excerpts(evidence)!r}")
    return [printable(line) for line in lines]


def _excerpts(evidence: "RelationEvidence") -> str:
    """The sentences of two mentions; long sentences are cut to the text around the mentions."""
    shown: list[str] = []
    for (start, end), sentence in zip(evidence.sentences, evidence.texts(), strict=True):
        inside = [(low - start, high - start) for low, high in (evidence.first, evidence.second) if start <= low < end]
        shown.append(sentence if len(sentence) <= SHOWN_SENTENCE else _around(sentence, inside))
    return " ... ".join(shown)


def _around(sentence: str, mentions: Iterable[Range]) -> str:
    pieces: list[str] = []
    last = 0
    for start, end in sorted(mentions):
        low, high = max(start - SHOWN_AROUND, last), min(end + SHOWN_AROUND, len(sentence))
        pieces += ("…" if low > last else "", sentence[low:high])
        last = max(last, high)
    return "".join(pieces) + ("…" if last < len(sentence) else "")


def explain_ids(explanation: "Explanation") -> list[str]:
    """Lines on why a mention has its ids, or none: the first is about the mention, each other about a candidate."""
    span = explanation.span
    ids = ", ".join(explanation.concepts) or "no id"
    lines = [f"linked {span.start}-{span.end} {span.text!r} {span.type}: {ids}, probability {explanation.score:.2f}"]
    for one in explanation.candidates[:SHOWN_CANDIDATES]:
        name = " of ".join(filter(None, (one.preferred, one.taxon)))
        reasons = "; ".join(one.reasons)
        lines.append(f"  {one.score:.2f} {one.concept} ({name})" + (f": {reasons}" if reasons else ""))
    return [printable(line) for line in lines]
