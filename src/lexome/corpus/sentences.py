"""Rule-based sentence splitting for biomedical text."""

import re
from dataclasses import replace

from lexome.document import Document, Range


def _word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Boundaries without a period: an empty line, a paragraph separator, the start of a list item.
_ITEM = r"(?= [^\S\n]* (?: [-–•*·▪] | \(?[0-9a-z]{1,3}[.)] ) [^\S\n] )"
_BREAK = re.compile(rf"[^\S\n\u2029]* (?: \u2029 | \n (?: [^\S\n]*\n | {_ITEM} ) ) \s*", re.VERBOSE)

# Candidate boundaries. The pattern starts with one character class, which the regex engine finds fast; every repetition
# before the white space is bounded, so the search is linear in the text.
# A citation may come between the period and the space: "cells.12 We", "cells.[3,4] We".
_CANDIDATE = re.compile(
    rf"""[.!?…。！？\n\u2029]
    (?: (?<![\n\u2029])
        (?P<close> (?: [\])}}"'”’»]{{1,4}}
                     | (?<=[a-z)\]%"”].) (?: \d{{1,3}} (?:[-–,]\d{{1,3}}){{0,4}} | [\[(][\d,–-]{{1,20}}[\])] ) )? )
        \s+ (?= (?P<open> (?: [\[({{"'“‘«¿¡*†‡§]{{1,3}} | (?:--?|[–—•*·▪])\s )? ) (?P<next> \S))
      | (?<=\n) (?: [^\S\n]*\n | {_ITEM} ) \s*
      | (?<=\u2029) \s*
    )""",
    re.VERBOSE,
)

# The number of characters before a period that are examined.
_WINDOW = 40

# Longest distance to brackets around a period, as in a citation: (J. Virol. 65: 6790, 1991).
_REACH = 120

# Abbreviations that never end a sentence: a name or number always follows.
_NEVER_LAST = _word_set(
    """
    e.g i.e eg ie cf viz vs ca approx resp dr prof mr mrs ms st ste mt fig figs tab eq eqs eqn ref refs sect chap suppl
    no nos nr vol vols pp eds incl excl esp subsp ssp var cv f.sp jan feb apr jun jul aug sept oct nov dec dept univ
    am proc natl acad sci biol chem physiol mol biochem biophys exp clin pharmacol immunol virol
    """
)

# Abbreviations that may end a sentence: only before a word that usually starts one.
_MAYBE_LAST = _word_set("al etc inc ltd co corp jr sr sp spp ph.d")

# Dotted abbreviations such as i.v. and U.S., which may end a sentence; initials look the same.
_LETTERS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]")

# A single capital after one of these is an initial; after another word it is part of a name: NF-kappa B.
_BEFORE_INITIALS = _word_set("by of and & with from to in for against dr prof")

# Words that are capitalized mostly at the start of sentences.
_OPENERS = _word_set(
    """
    a an the this these those that it its they their there then thus we our here he she his her you in on at of for
    from by with without to as if when while whereas although though because since after before during until unless
    both each all most many some several few no none not only other another such one two three four five six seven
    eight nine ten either neither however therefore moreover furthermore additionally finally further hence indeed
    consequently conversely similarly interestingly importantly notably recently currently first second third
    together taken overall using based what which who how why where is are was were do does did can could may
    results conclusion conclusions methods background objective objectives aim aims purpose introduction discussion
    findings interpretation design setting patients participants measurements materials treatment analysis data
    """
)

# Lower-case starts of sentences: p53, mRNA, c-myc, beta 2-microglobulin, α-synuclein, in vitro, and list items
# such as "ii. The".
_SMALL = re.compile(
    r"[a-z]{1,5}-?\d|[a-z]{1,5}[A-Z]|[a-z]-\w|[^\x00-\x7f]|in (?:vitro|vivo|situ)\b"
    r"|(?:alpha|beta|gamma|delta|epsilon|kappa|lambda|sigma|omega)\b|(?:[ivx]{1,4}|[a-h])[.)] [A-Z]"
)

# The number of a list item, which is not a sentence.
_ITEM_NUMBER = re.compile(r"\d+|[ivx]{1,4}|[a-zA-Z]")


def split_sentences(text: str) -> list[Range]:
    """Ordered, disjoint sentence ranges that cover every character but white space.

    >>> split_sentences("E. coli grew (Fig. 2). p53 did not.")
    [(0, 22), (23, 35)]
    """
    ranges: list[Range] = []
    start = len(text) - len(text.lstrip())
    for candidate in _CANDIDATE.finditer(text):
        end, after = candidate.end("close"), candidate.end()
        if end < 0:
            end = candidate.start()
        elif (after - end > 1 or text[end] != " ") and (broken := _BREAK.match(text, end)):
            after = broken.end()
        elif not _is_boundary(text, candidate, start):
            continue
        while end > start and text[end - 1].isspace():
            end -= 1
        if end > start:
            ranges.append((start, end))
        start = after
    end = len(text.rstrip())
    if end > start:
        ranges.append((start, end))
    return ranges


def with_sentences(doc: Document) -> Document:
    """The document with sentences in every passage; existing ones are kept."""
    if all(passage.sentences for passage in doc.passages):
        return doc
    passages = []
    for passage in doc.passages:
        at = passage.offset
        ranges = passage.sentences or tuple((at + start, at + end) for start, end in split_sentences(passage.text))
        passages.append(replace(passage, sentences=ranges))
    return replace(doc, passages=tuple(passages))


def _is_boundary(text: str, candidate: re.Match[str], start: int) -> bool:
    """Whether the sentence that starts at `start` ends at this candidate."""
    first = candidate["next"]
    at = candidate.start("next")
    if not (first.isalnum() or candidate["open"]):
        return False
    small = first.islower()
    if small and not _SMALL.match(text, at):
        return False
    stop = candidate.start()
    if text[stop] != ".":
        return True
    if _in_brackets(text, start, stop):
        return False
    words = text[max(start, stop - _WINDOW) : stop].split()
    if not words or text[stop - 1].isspace():
        return not small
    last = words[-1].lstrip("([{\"'“‘")
    if last.isupper() and len(last) > 1 and not first.isdigit() and "." not in last:
        return True
    word = last.lower()
    if word in _NEVER_LAST:
        return False
    if word in _MAYBE_LAST:
        return _starts_sentence(text, at)
    if _LETTERS.fullmatch(last):
        return not small and (_starts_sentence(text, at) or (len(last) == 1 and _is_letter_of_name(words)))
    return not (start + len(last) >= stop and _ITEM_NUMBER.fullmatch(last))


def _in_brackets(text: str, start: int, stop: int) -> bool:
    """Whether the period is inside brackets that open and close nearby."""
    low = max(start, stop - _REACH)
    opened = text.rfind("(", low, stop)
    if opened < 0 or text.find(")", opened, stop) >= 0:
        return False
    closed = text.find(")", stop, stop + _REACH)
    return closed >= 0 and text.find("(", stop, closed) < 0 and text[closed - 1] not in ".?!"


def _is_letter_of_name(words: list[str]) -> bool:
    """Whether the final letter belongs to the word before it, or to a number: kappa B, 24 h."""
    if len(words) < 2 or len(words[-1]) > 1 or not words[-2][-1].isalnum():
        return False
    before = words[-2]
    if words[-1].islower():
        return True
    inner = before.islower() or "-" in before or any(map(str.isdigit, before))
    return inner and before not in _BEFORE_INITIALS


def _starts_sentence(text: str, at: int) -> bool:
    """Whether the word here usually starts sentences."""
    word = text[at : at + _WINDOW].split(None, 1)[0].rstrip(",;:.")
    return word[:1].isupper() and word.lower() in _OPENERS
