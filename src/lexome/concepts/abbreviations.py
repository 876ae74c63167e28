"""Abbreviations that a document defines: short forms, their long forms, and where both are.

    find_abbreviations(doc)       the definitions, in the order of the text
    annotate_abbreviations(docs)  a Step that adds them to each Document, as BioC has them: spans ShortForm and LongForm
                                  and a relation Abbreviation between them

A definition is "long form (SF)", "SF (long form)", "(SF, long form)", or several of these in one pair of parentheses:
"left and right ventricle (LV and RV, respectively)", where the long form of LV is discontinuous. The letters of the
short form are aligned with the text before the parenthesis from right to left, as Schwartz and Hearst do, but all
alignments are compared: a letter that begins a word costs nothing; one inside a word, a word without a letter and a
digit without a partner cost something. The cheapest alignment gives the long form; if it is too expensive, there is
none.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import count

from lexome.document import Argument, Document, Passage, Range, Relation, Span
from lexome.frozen import fast_dataclass

SHORT_FORM = "ShortForm"
LONG_FORM = "LongForm"
ABBREVIATION = "Abbreviation"

# The longest short form, in characters and words: "MEF cells" and "TNF-alpha", but not "United States".
_MAX_SHORT = 14
_MAX_WORDS = 2
# A long form has at most two words per letter, and five more.
_SPARE_WORDS = 5

# What an alignment costs, and what it may cost by letter. Tuned on half of MED1250 (benchmarks/abbreviations.py).
_INSIDE_NEXT = 0.275  # the letter after the previous one: "IntraVenous"
_INSIDE_SAME = 0.45  # another letter of a word whose first letter is matched
_SUBWORD = 0.1  # after a hyphen, or a digit beside a letter
_SUBWORD_ALONE = 0.55  # the same, and the beginning of the word has no letter
_INSIDE_ALONE = 1.2  # a letter inside a word whose beginning has no letter
_SKIPPED_WORD = 0.72
_SKIPPED_STOP_WORD = 0.14
_SKIPPED_LAST = 0.5  # a word after the last letter, in addition to its cost as a skipped word
_UNMATCHED_DIGIT = 1.2
_PLURAL = 0.1
_COMMA = 0.6
_SUBWORD_FIRST = 0.3
_MAX_COST = 0.42
_MAX_COST_OF_TWO = 0.6
_MAX_COST_WITH_DIGIT = 0.75
_LOWER_CASE = 1.0
_HEAD = 0.3
_ROUNDING = 1e-6
_JOINTS = frozenset(("and", "or", "&", "and/or"))

_STOP = "a an and as at by de du for from in into of on or per the to type via with within without et"
_STOP_WORDS = frozenset(_STOP.split())
# Nouns at the end of a long form that the short form often leaves out: "DMPK gene".
_HEADS = (
    "activity antibody assay cell cells channel channels count dimension disease diseases disorder domain enzyme "
    "factor family gene genes group groups index infection ion ions leukocytes level levels method model nucleus "
    "pathway patients population procedure program project protein proteins questionnaire ratio receptor "
    "receptors region scale score scores sequence signal signals sites status study survey syndrome system "
    "technique test therapy tool treatment trial tumor tumors virus"
)
_HEAD_NOUNS = frozenset(_HEADS.split())
# Text in parentheses that is no short form, although its letters may occur in the text before.
_NO_SHORT_FORM = re.compile(
    r"(?:[ivx]+|n|no|vs|e\.?g|i\.?e|see|fig|figs|table|ref|refs|left|right|p|r|mean|sd|sem|both|all|none|and|or|not|"
    r"[a-d]|total|range|control|controls|mg|kg|ml|cm|mm|min|h|s|d)\.?"
)
_NOT_IN_SHORT_FORM = frozenset("=<>%±")
_EXPANSION = re.compile(
    r"(?:(?:hereafter|hereinafter|henceforth|here|also)?\s*(?:abbreviated|called|termed|designated|denoted|named|"
    r"referred to|known)?\s*(?:as|to)?\s*[:,]?\s+)(?=\S)"
)
_WORD = re.compile(r"\S+")
# What may stand before a name of chemistry and is no part of its letters: positions, stereochemistry, a label.
_LOCANTS = re.compile(r"(?:[\d,.'′+()\[\]-]|(?:[a-z]|di|tri|tert|sec|iso|cis|trans|alpha|beta|gamma|delta)(?=[-,]))+-")
_ROTATED = re.compile(r"(\w+)[- ](alpha|beta|gamma|delta|kappa|[αβγδκ])")
_LETTER = re.compile(r"[^\W\d_]")
_LETTERS = re.compile(r"[^\W_]+")
_JOINT = re.compile(r"[\s,]*(?:and|or|and/or|versus|vs\.?|to|,)\s+")
_NEXT_PARENTHESIS = re.compile(r"\s+(?:and|or|,)\s+(?:[\w-]+\s+){1,3}\([^()]*\)")
_HEAD_WORDS = re.compile(r"\s+([a-z][\w-]{3,})(?:\s+[a-z][\w-]{3,})?")
_TRIM = ".,;:\"'“”‘’"
# The mark first, which `re` can skip to.
_SENTENCE_END = re.compile(r"[.?!;:]\s(?:(?<=[.?!]\s)\s*(?=[A-Z0-9(])|(?<=;\s)|(?<=:\s)(?=[A-Z]))")
_PIECE_END = re.compile(r"\s*(?:[,;]\s+|\s+(?:and|or)\s+|,\s*(?:and|or)\s+|\s*/\s*(?=\S{2}))\s*")
_OPENING, _CLOSING = "([", ")]"
_BRACKET = re.compile(r"[()\[\]]")


@fast_dataclass
class Abbreviation:
    """A definition: ranges and texts of the short form and its long form, and the cost of the alignment per letter."""

    short: Range
    long: tuple[Range, ...]
    short_text: str
    long_text: str
    cost: float


def find_abbreviations(doc: Document) -> list[Abbreviation]:
    """The definitions of abbreviations in a document, in reading order."""
    found = [
        _in_document(one, passage)
        for passage in doc.passages
        if "(" in passage.text or "[" in passage.text
        for one in _find_in_text(passage.text)
    ]
    return sorted(found, key=lambda one: (one.short, one.long))


def annotate_abbreviations(docs: Iterable[Document]) -> Iterator[Document]:
    """Each document with spans ShortForm and LongForm, and a relation Abbreviation, for each definition.

    Definitions that the document has already are not added again.
    """
    for doc in docs:
        known = {(first.parts, second.parts) for first, second in abbreviation_spans(doc)}
        new = [one for one in find_abbreviations(doc) if ((one.short,), one.long) not in known]
        yield _with_definitions(doc, new) if new else doc


def abbreviation_spans(doc: Document) -> list[tuple[Span, Span]]:
    """The short form and the long form of each relation Abbreviation of a document."""
    by_id = {span.id: span for span in doc.spans}
    pairs: list[tuple[Span, Span]] = []
    for relation in doc.relations:
        if relation.type == ABBREVIATION:
            own = {argument.role: by_id.get(argument.target or "") for argument in relation.arguments}
            short, long = own.get(SHORT_FORM), own.get(LONG_FORM)
            if short is not None and long is not None:
                pairs.append((short, long))
    return pairs


def long_forms(abbreviations: Iterable[Abbreviation]) -> dict[str, str]:
    """The long form of each short form, also of its plural or singular; the first definition counts."""
    forms: dict[str, str] = {}
    for one in abbreviations:
        forms.setdefault(one.short_text, one.long_text)
    for short, long in list(forms.items()):
        if short[-1:] == "s" and len(short) > 2 and short[-2].isupper():
            forms.setdefault(short[:-1], long)
        elif short[-1:].isupper():
            forms.setdefault(f"{short}s", long)
    return forms


def _with_definitions(doc: Document, new: list[Abbreviation]) -> Document:
    used = {span.id for span in doc.spans} | {relation.id for relation in doc.relations}
    numbers = (number for number in count(1) if not {f"SF{number}", f"LF{number}", f"AB{number}"} & used)
    spans, relations = list(doc.spans), list(doc.relations)
    for one, number in zip(new, numbers, strict=False):
        short, long = f"SF{number}", f"LF{number}"
        spans.append(Span(short, SHORT_FORM, (one.short,), one.short_text))
        spans.append(Span(long, LONG_FORM, one.long, one.long_text))
        roles = (Argument(SHORT_FORM, short), Argument(LONG_FORM, long))
        relations.append(Relation(f"AB{number}", ABBREVIATION, roles))
    return Document(
        doc.id,
        doc.passages,
        tuple(spans),
        tuple(relations),
        doc.attributes,
        doc.questions,
        doc.labels,
        doc.meta,
        doc.label_scores,
    )


def _in_document(one: Abbreviation, passage: Passage) -> Abbreviation:
    shift = passage.offset
    short = (one.short[0] + shift, one.short[1] + shift)
    long = tuple((start + shift, end + shift) for start, end in one.long)
    return Abbreviation(short, long, one.short_text, one.long_text, one.cost)


# Rules and linking ask for the same passages one after the other.
@lru_cache(maxsize=16)
def _find_in_text(text: str) -> tuple[Abbreviation, ...]:
    return tuple(_define_in_text(text))


def _define_in_text(text: str) -> Iterator[Abbreviation]:
    undefined: tuple[Range, _Words] | None = None
    for opening, closing in _parentheses(text):
        if _LETTER.search(text, opening, closing) is None:  # "(12)", which most parentheses are
            undefined = None
            continue
        before = _words_before(text, opening)
        if not before.words:
            continue
        found = list(_define_in_parentheses(text, (opening + 1, closing), before))
        if undefined is not None and found:
            # "Scanning (SEM) and transmission electron microscopy (TEM)" define SEM as well.
            (start, end), words = undefined
            if _JOINT.fullmatch(text, end + 1, found[0].long[0][0]):
                earlier = _elliptic(text, (start, end), words, found[0])
                found = [earlier, *found] if earlier is not None else found
        yield from found
        inner = _trim(text, opening + 1, closing)
        undefined = (inner, before) if not found and is_short_form(text[slice(*inner)]) else None
        if undefined is not None and (one := _before_head(text, inner, before, closing)) is not None:
            yield one


def _parentheses(text: str) -> list[Range]:
    """The places of matching parentheses and brackets, in the order of the opening ones."""
    pairs: list[Range] = []
    stack: list[int] = []
    for match in _BRACKET.finditer(text):
        place, mark = match.start(), match[0]
        if mark in _OPENING:
            stack.append(place)
        else:
            wanted = _OPENING[_CLOSING.index(mark)]
            while stack and text[stack[-1]] != wanted:
                stack.pop()
            if stack:
                pairs.append((stack.pop(), place))
    return sorted(pairs)


class _Words:
    """The words of a sentence before a parenthesis: their ranges, and the cost of skipping each."""

    def __init__(self, text: str, words: Sequence[Range], costs: Sequence[float] | None = None) -> None:
        self.text, self.words = text, words
        self._costs = costs

    @property
    def costs(self) -> Sequence[float]:
        """Computed on first use: what most parentheses have cannot be aligned."""
        if self._costs is None:
            self._costs = _skip_costs(self.text, self.words)
        return self._costs


def _words_before(text: str, end: int) -> _Words:
    """The last words of the sentence that ends before `end`."""
    start = max(0, end - 400)
    for match in _SENTENCE_END.finditer(text, start, end):
        # "E. coli" and "vs. X" end no sentence.
        if text[match.start()] != "." or match.start() - _word_start(text, match.start()) > 2:
            start = match.end()
    return _Words(text, [match.span() for match in _WORD.finditer(text, start, end)])


def _word_start(text: str, place: int) -> int:
    while place > 0 and not text[place - 1].isspace():
        place -= 1
    return place


def _skip_costs(text: str, ranges: Sequence[Range]) -> list[float]:
    costs: list[float] = []
    depth = 0
    brackets = bool(ranges) and _BRACKET.search(text, ranges[0][0], ranges[-1][1]) is not None
    for start, end in ranges:
        word = text[start:end]
        inside = False
        if brackets:
            inside = depth > 0 or (word[0] in _OPENING and word[-1] in _CLOSING + ",.;-")
            if not word.isalnum():
                depth = max(0, depth + _balance(word))
        if inside or word.lower() in _STOP_WORDS or not (word[0].isalnum() or any(map(str.isalnum, word))):
            costs.append(_SKIPPED_STOP_WORD)
        else:
            costs.append(_SKIPPED_WORD + _COMMA if word[-1] == "," else _SKIPPED_WORD)
    return costs


def _define_in_parentheses(text: str, inner: Range, before: _Words) -> Iterator[Abbreviation]:
    """The definitions in a pair of parentheses, with the text before it or on its own."""
    start, end = _without_introduction(text, *inner)
    pieces = _pieces(text, start, end)
    if not pieces:
        return
    if len(pieces) > 1:
        found = _coordinated_definitions(text, pieces, before)
        if found:
            yield from found
            return
        within = _within(text, pieces)
        if within is not None:
            yield within
            return
    for piece in dict.fromkeys((pieces[0], pieces[-1])):
        if is_short_form(text[slice(*piece)]):
            one = _align(text, piece, before)
            if one is not None:
                yield one
                return
    # Short form first: "TNF (tumour necrosis factor)".
    short = _trim(text, *before.words[-1])
    if is_short_form(text[short[0] : short[1]]) and short[1] - short[0] > 1:
        for stop in dict.fromkeys((pieces[0][1], end)):
            words = _Words(text, [match.span() for match in _WORD.finditer(text, start, stop)])
            if len(words.words) >= 1 and stop - start > short[1] - short[0]:
                one = _align(text, short, words, whole=True)
                if one is not None:
                    yield one
                    return


def _without_introduction(text: str, start: int, end: int) -> Range:
    """The range without "abbreviated as" and the like."""
    match = _EXPANSION.match(text, start, end)
    start, end = (match.end() if match is not None else start), end
    return _trim(text, start, end)


def _trim(text: str, start: int, end: int) -> Range:
    while start < end and (text[start].isspace() or text[start] in _TRIM):
        start += 1
    while end > start and (text[end - 1].isspace() or text[end - 1] in _TRIM):
        if text[end - 1] == "." and text[end - 3 : end - 2] == ".":  # "C.A.H."
            break
        end -= 1
    return start, end


def _pieces(text: str, start: int, end: int) -> list[Range]:
    """The parts of a list, without "respectively"; nested parentheses belong to none."""
    pieces: list[Range] = []
    place = start
    for match in _PIECE_END.finditer(text, start, end):
        if match.start() > place:
            pieces.append((place, match.start()))
        place = match.end()
    if place < end:
        pieces.append((place, end))
    kept = [_trim(text, *piece) for piece in pieces]
    return [(low, high) for low, high in kept if low < high and text[low:high].lower() not in ("respectively", "resp")]


def is_short_form(text: str) -> bool:
    """Whether a text may be a short form: short, with a letter, no number, no ordinary word of parentheses."""
    if not 1 <= len(text) <= _MAX_SHORT or not text[0].isalnum() or not _NOT_IN_SHORT_FORM.isdisjoint(text):
        return False
    words = text.split()
    if len(words) > _MAX_WORDS or not any(map(str.isalpha, text)):
        return False
    if _NO_SHORT_FORM.fullmatch(text):
        return False
    # A lower-case word of some length is a word: "(controls)".
    if len(words) == 2 and not any(map(str.isupper, words[0])) and not (len(words[0]) <= 5 and words[1].isupper()):
        return False
    return len(text) <= 6 or any(character.isupper() or character.isdigit() for character in text)


def _align(text: str, short: Range, before: _Words, *, whole: bool = False) -> Abbreviation | None:
    """The definition of a short form by words that end where they end; `whole`: by all of them."""
    letters = text[short[0] : short[1]]
    aligned = _cheapest(letters, before, whole=whole)
    if aligned is None and (rotated := _ROTATED.fullmatch(letters)) is not None:
        aligned = _cheapest(f"{rotated[2]}{rotated[1]}", before, whole=whole)  # IFN-gamma: gamma interferon
    if aligned is None:
        return None
    cost, start = aligned
    end = _trim(text, start, before.words[-1][1])[1]
    long = text[start:end]
    if long.lower() == letters.lower() or len(long) <= len(letters) or _balance(long) != 0:
        return None
    return Abbreviation(short, ((start, end),), letters, long, round(cost, 4))


def _balance(text: str) -> int:
    return text.count("(") + text.count("[") - text.count(")") - text.count("]")


def _cheapest(short: str, before: _Words, *, whole: bool = False) -> tuple[float, int] | None:
    """The cost a letter of the cheapest alignment, and where its long form starts; None if it is too expensive.

    Letters are placed from the last to the first. `paths` has the places of one letter, each with the least cost of it
    and of all letters after it.
    """
    letters = [character for character in short.lower() if character.isalnum()]
    limit = len(before.words) if whole else min(2 * len(letters), len(letters) + _SPARE_WORDS)
    words = before.words[-limit:] if letters else ()
    if not words:
        return None
    low, high = words[0][0], words[-1][1]
    window = before.text[low:high].lower()
    if len(window) != high - low:  # lower-casing İ changes the length
        return None
    if not _has_in_order(window, letters):
        return None
    layout = _lay_out(window, low, words, before.costs[-limit:])
    # No part of an alignment costs less than nothing: what costs more than a whole one may is not followed. Sums are
    # rounded at the end.
    bound = _bound(short, len(letters))
    most = bound * len(letters) + _ROUNDING
    paths = {len(window): 0.0}
    for number in range(len(letters) - 1, -1, -1):
        letter = letters[number]
        last_s = number == len(letters) - 1 and number > 1 and short[-1] == "s"
        paths = _extend(paths, letter, layout, most=most, last_s=last_s, skip=number > 0 and letter.isdigit())
        if not paths:
            return None
    starts = [
        (round(cost + (_SUBWORD_FIRST if _is_subword(window, place) else 0.0), 6), -place)
        for place, cost in paths.items()
        if layout.kinds[place] != _INSIDE and _is_start(window, place) and (not whole or layout.word_of[place] == 0)
    ]
    if not starts:
        return None
    cost, place = min(starts)
    if cost / len(letters) > bound:
        return None
    return cost / len(letters), low + _with_locants(window, -place)


def _has_in_order(window: str, letters: list[str]) -> bool:
    """Whether a window has the letters in their order, but for those that `_cheapest` can skip: digits and a last s."""
    place = len(window)
    for number in range(len(letters) - 1, -1, -1):
        letter = letters[number]
        if number > 0 and (letter.isdigit() or (letter == "s" and number == len(letters) - 1)):
            continue
        place = window.rfind(letter, 0, place)
        if place < 0:
            return False
    return True


def _with_locants(window: str, place: int) -> int:
    """The start of the word if only locants and the like are before the place: "2,3-diaminonaphthalene", "c-Jun"."""
    start = _word_start(window, place)
    return start if _LOCANTS.fullmatch(window, start, place) else place


def _bound(short: str, letters: int) -> float:
    """The maximum cost per letter: lower for short forms of few letters, and of lower-case ones, which may be words."""
    bound = _MAX_COST if letters > 2 else _MAX_COST_OF_TWO if letters == 2 else 0.0
    if letters == 2 and short[-1].isdigit():
        bound = _MAX_COST_WITH_DIGIT
    return bound if any(map(str.isupper, short)) or any(map(str.isdigit, short)) else bound * _LOWER_CASE


_WORD_START, _SUBWORD_START, _INSIDE = range(3)


@fast_dataclass
class _Layout:
    """A window of text: the word of each character, its kind of place in it, and the costs of all words before one."""

    window: str
    word_of: list[int]
    kinds: list[int]
    skipped: list[float]
    head: bool


def _lay_out(window: str, low: int, words: Sequence[Range], costs: Sequence[float]) -> _Layout:
    word_of, kinds, skipped = [-1] * len(window), [_INSIDE] * len(window), [0.0]
    for number, (start, end) in enumerate(words):
        word_of[start - low : end - low] = [number] * (end - start)
        skipped.append(skipped[-1] + costs[number])
        if window[start - low : end - low].isalpha():  # as most words are
            kinds[start - low] = _WORD_START
            continue
        previous = ""
        for place in range(start - low, end - low):
            character = window[place]
            if character.isalnum():
                if not previous:
                    kinds[place] = _WORD_START
                elif not previous.isalnum() or previous.isdigit() != character.isdigit():
                    kinds[place] = _SUBWORD_START
                previous = character
            elif previous:
                previous = character
    head = window[words[-1][0] - low :].strip(_TRIM) in _HEAD_NOUNS
    return _Layout(window, [*word_of, len(words)], [*kinds, _WORD_START], skipped, head)


def _extend(
    paths: dict[int, float], letter: str, layout: _Layout, *, most: float, last_s: bool, skip: bool
) -> dict[int, float]:
    """The places of a letter before those of the next one, each with its least cost if that is below `most`.

    `skip` allows to leave the letter out.
    """
    extended: dict[int, float] = {}
    for following, cost in paths.items():
        place = layout.window.rfind(letter, 0, following)
        while place >= 0:
            total = cost + _link(place, following, layout)
            if last_s and (place + 1 == len(layout.window) or not layout.window[place + 1].isalnum()):
                total += _PLURAL
            if total < extended.get(place, most):
                extended[place] = total
            place = layout.window.rfind(letter, 0, place)
        if (skip or last_s) and cost + _UNMATCHED_DIGIT < extended.get(following, most):
            extended[following] = cost + _UNMATCHED_DIGIT
    return extended


def _link(place: int, following: int, layout: _Layout) -> float:
    """The cost of matching a letter at `place` before one at `following`."""
    word, next_word, kind = layout.word_of[place], layout.word_of[following], layout.kinds[following]
    if word == next_word:
        if kind == _SUBWORD_START:
            return _SUBWORD
        return _INSIDE_NEXT if following == place + 1 else _INSIDE_SAME
    between = layout.skipped[next_word] - layout.skipped[word + 1]
    if following == len(layout.window):
        if next_word - word == 2 and layout.head:
            return _HEAD
        return between + (_SKIPPED_LAST if between else 0.0)
    return between + (0.0, _SUBWORD_ALONE, _INSIDE_ALONE)[kind]


def _is_subword(window: str, place: int) -> bool:
    """Whether a word starts there after a hyphen; after a slash or a parenthesis it is a word of its own."""
    return place > 0 and not window[place - 1].isspace() and window[place - 1] not in "/([)]"


def _is_start(window: str, place: int) -> bool:
    """Whether a long form may start there: not at an article or preposition."""
    match = _LETTERS.match(window, place)
    return match is not None and match[0] not in _STOP_WORDS


def _coordinated_definitions(text: str, pieces: list[Range], before: _Words) -> list[Abbreviation]:
    """The definitions of a list by the list before it: "left and right ventricle (LV and RV)"; none if one fails."""
    shorts = [_trim(text, *piece) for piece in pieces]
    if not all(is_short_form(text[start:end]) for start, end in shorts):
        return []
    found: list[Abbreviation] = []
    words = before
    for short in reversed(shorts):
        one = _align(text, short, words) if words.words else None
        if one is None and found:
            one = _elliptic(text, short, words, found[0])
        if one is None:
            return []
        found.insert(0, one)
        # The next one ends before the comma or "and" in front of this long form.
        kept = [number for number, (_, end) in enumerate(before.words) if end <= one.long[0][0]]
        while kept and text[slice(*before.words[kept[-1]])].lower() in _JOINTS:
            kept.pop()
        words = _Words(before.text, tuple(before.words[n] for n in kept), tuple(before.costs[n] for n in kept))
    return found


def _elliptic(text: str, short: Range, words: _Words, right: Abbreviation) -> Abbreviation | None:
    """The definition by words that share the end of the long form on their right: "left" + "ventricle"."""
    start, end = right.long[0]
    head = list(_WORD.finditer(text, start, end))[1:]
    return _align_apart(text, short, words, (head[0].start(), end)) if head else None


def _before_head(text: str, short: Range, words: _Words, closing: int) -> Abbreviation | None:
    """The definition by the words before the parenthesis and one or two behind it, or behind the next one.

    In "polychromatic (PCE) and normochromatic (NCE) erythrocytes" the last word belongs to both.
    """
    if short[1] - short[0] < 3:
        return None
    following = _NEXT_PARENTHESIS.match(text, closing + 1)
    for place in (closing + 1, *((following.end(),) if following is not None else ())):
        head = _HEAD_WORDS.match(text, place)
        for end in (head.end(1), head.end()) if head is not None else ():
            one = _align_apart(text, short, words, (head.start(1), end)) if head is not None else None
            if one is not None and one.cost <= _MAX_COST / 2:
                return one
    return None


def _align_apart(text: str, short: Range, words: _Words, tail: Range) -> Abbreviation | None:
    """The definition by the last of the words and the tail, both needed, which is not beside them."""
    if not words.words:
        return None
    low, stop = words.words[0][0], words.words[-1][1]
    # Aligned over a copy in which the two parts stand together.
    copy = f"{text[low:stop]} {text[slice(*tail)]}"
    spans = tuple(match.span() for match in _WORD.finditer(copy))
    costs = (*words.costs, *(_SKIPPED_WORD for _ in range(len(spans) - len(words.costs))))
    letters = text[slice(*short)]
    aligned = _cheapest(letters, _Words(copy, spans, costs))
    if aligned is None or low + aligned[1] >= stop:
        return None
    parts = (_trim(text, low + aligned[1], stop), tail)
    long = " ".join(text[first:last] for first, last in parts)
    if parts[0] > parts[1] or _balance(long) != 0:
        return None
    return Abbreviation(short, parts, letters, long, round(aligned[0], 4))


def _within(text: str, pieces: list[Range]) -> Abbreviation | None:
    """The definition that is all in the parentheses: "(PCR, polymerase chain reaction)", in either order."""
    first, second = (_trim(text, *piece) for piece in (pieces[0], pieces[1]))
    for short, long in ((first, second), (second, first)):
        if is_short_form(text[short[0] : short[1]]) and long[1] - long[0] > 2 * (short[1] - short[0]):
            words = _Words(text, [match.span() for match in _WORD.finditer(text, *long)])
            one = _align(text, short, words, whole=True)
            if one is not None and one.cost <= _MAX_COST / 2:
                return one
    return None
