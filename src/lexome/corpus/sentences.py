"""Sentence boundaries by rule, for biomedical text."""

import re
from dataclasses import replace

from lexome.document import Document, Passage, Range


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What parts text without a stop: an empty line, a paragraph separator, the beginning of a list's item.
_ITEM = r"(?= [^\S\n]* (?: [-–•*·▪] | \(?[0-9a-z]{1,3}[.)] ) [^\S\n] )"
_BREAK = re.compile(rf"[^\S\n\u2029]* (?: \u2029 | \n (?: [^\S\n]*\n | {_ITEM} ) ) \s*", re.VERBOSE)

# Where a sentence may end. The pattern begins with one set of characters, which the engine finds quickly; every
# repetition before the white space is bounded, so the search takes time linear in the text, whatever it is.
# A citation may stand between the stop and the space: "cells.12 We", "cells.[3,4] We".
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

# What stands before a stop is looked at no further back than this.
_WINDOW = 40

# So far apart may brackets be that hold a stop, as in a citation: (J. Virol. 65: 6790, 1991).
_REACH = 120

# Shortenings that something always follows: a name, a number, what is compared.
_NEVER_LAST = _words(
    """
    e.g i.e eg ie cf viz vs ca approx resp dr prof mr mrs ms st ste mt fig figs tab eq eqs eqn ref refs sect chap suppl
    no nos nr vol vols pp eds incl excl esp subsp ssp var cv f.sp jan feb apr jun jul aug sept oct nov dec dept univ
    am proc natl acad sci biol chem physiol mol biochem biophys exp clin pharmacol immunol virol
    """
)

# Shortenings that may also be a sentence's last word: they end one only before a word that begins sentences.
_MAYBE_LAST = _words("al etc inc ltd co corp jr sr sp spp ph.d")

# Written with a stop after each letter, such as i.v. and U.S., they may be the last word too; initials are alike.
_LETTERS = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]")

# A capital alone after one of these is somebody's initial; after another word it is part of a name: NF-kappa B.
_BEFORE_INITIALS = _words("by of and & with from to in for against dr prof")

# Words that begin sentences far more often than they carry a capital within one.
_OPENERS = _words(
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

# Small letters that begin sentences: p53, mRNA, c-myc, beta 2-microglobulin, α-synuclein, in vitro, and "ii. The" of
# a list.
_SMALL = re.compile(
    r"[a-z]{1,5}-?\d|[a-z]{1,5}[A-Z]|[a-z]-\w|[^\x00-\x7f]|in (?:vitro|vivo|situ)\b"
    r"|(?:alpha|beta|gamma|delta|epsilon|kappa|lambda|sigma|omega)\b|(?:[ivx]{1,4}|[a-h])[.)] [A-Z]"
)

# The number of a list's item, which is no sentence.
_ITEM_NUMBER = re.compile(r"\d+|[ivx]{1,4}|[a-zA-Z]")


def split_sentences(text: str) -> list[Range]:
    """Ranges of the sentences, in order and apart, that hold every character but white space.

    >>> text = "E. coli grew (Fig. 2). p53 did not."
    >>> [text[start:end] for start, end in split_sentences(text)]
    ['E. coli grew (Fig. 2).', 'p53 did not.']
    """
    ranges: list[Range] = []
    start = len(text) - len(text.lstrip())
    for found in _CANDIDATE.finditer(text):
        end, after = found.end("close"), found.end()
        if end < 0:
            end = found.start()
        elif (after - end > 1 or text[end] != " ") and (broken := _BREAK.match(text, end)):
            after = broken.end()
        elif not _ends(text, found, start):
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
    """The document with the sentences of every passage; those of the source are kept."""
    if all(passage.sentences for passage in doc.passages):
        return doc
    return replace(doc, passages=tuple(map(_filled, doc.passages)))


def _filled(passage: Passage) -> Passage:
    if passage.sentences:
        return passage
    at = passage.offset
    ranges = tuple((at + start, at + end) for start, end in split_sentences(passage.text))
    return replace(passage, sentences=ranges) if ranges else passage


def _ends(text: str, found: re.Match[str], start: int) -> bool:
    """Whether the sentence that begins at `start` ends at this stop."""
    first = found["next"]
    at = found.start("next")
    if not (first.isalnum() or found["open"]):
        return False
    small = first.islower()
    if small and not _SMALL.match(text, at):
        return False
    stop = found.start()
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
        return _opens(text, at)
    if _LETTERS.fullmatch(last):
        return not small and (_opens(text, at) or (len(last) == 1 and _is_letter_of_name(words)))
    return not (start + len(last) >= stop and _ITEM_NUMBER.fullmatch(last))


def _in_brackets(text: str, start: int, stop: int) -> bool:
    """Whether a bracket that was opened not long before the stop is closed not long after it."""
    low = max(start, stop - _REACH)
    opened = text.rfind("(", low, stop)
    if opened < 0 or text.find(")", opened, stop) >= 0:
        return False
    closed = text.find(")", stop, stop + _REACH)
    return closed >= 0 and text.find("(", stop, closed) < 0 and text[closed - 1] not in ".?!"


def _is_letter_of_name(words: list[str]) -> bool:
    """Whether the letter that ends these words belongs to the word before it, or to a number: kappa B, 24 h."""
    if len(words) < 2 or len(words[-1]) > 1 or not words[-2][-1].isalnum():
        return False
    before = words[-2]
    if words[-1].islower():
        return True
    inner = before.islower() or "-" in before or any(map(str.isdigit, before))
    return inner and before not in _BEFORE_INITIALS


def _opens(text: str, at: int) -> bool:
    """Whether the word here is one that begins sentences."""
    word = text[at : at + _WINDOW].split(None, 1)[0].rstrip(",;:.")
    return word[:1].isupper() and word.lower() in _OPENERS
