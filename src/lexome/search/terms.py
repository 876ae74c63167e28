"""Texts to search terms: words folded, stemmed and, for compounds such as IL-2, joined as well.

"TNF-α", "TNFα" and "TNFalpha" have the terms tnf and alpha; "IL-2" and "IL2" share the term il2. Terms are plain words:
a query has no syntax, so that nothing in it can fail.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from unicodedata import normalize

from lexome.corpus.languages import COMMON
from lexome.document import Range

# Stems


# Consonant runs and vowel runs; y is a vowel after a consonant.
_C = "[^aeiou](?:[^aeiouy]*)"
_V = "[aeiouy](?:[aeiou]*)"
_HAS_MEASURE = re.compile(f"^(?:{_C})?{_V}{_C}")
_MEASURE_ONE = re.compile(f"^(?:{_C})?{_V}{_C}(?:{_V})?$")
_MEASURE_TWO = re.compile(f"^(?:{_C})?{_V}{_C}{_V}{_C}")
_HAS_VOWEL = re.compile(f"^(?:{_C})?[aeiouy]")
_CVC = re.compile(f"^{_C}[aeiouy][^aeiouwxy]$")
_DOUBLE = re.compile(r"([^aeiouylsz])\1$")

_STEP_2 = {
    "ational": "ate", "tional": "tion", "enci": "ence", "anci": "ance", "izer": "ize", "bli": "ble", "alli": "al",
    "entli": "ent", "eli": "e", "ousli": "ous", "ization": "ize", "ation": "ate", "ator": "ate", "alism": "al",
    "iveness": "ive", "fulness": "ful", "ousness": "ous", "aliti": "al", "iviti": "ive", "biliti": "ble", "logi": "log",
}  # fmt: skip
_STEP_3 = {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": ""}
# And "ion" after s or t.
_STEP_4 = ["al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ou"]
_STEP_4 += ["ism", "ate", "iti", "ous", "ive", "ize"]


def _suffixes(endings: list[str]) -> re.Pattern[str]:
    return re.compile(f"^(.+?)({'|'.join(sorted(endings, key=len, reverse=True))})$")


_SUFFIX_2, _SUFFIX_3, _SUFFIX_4 = _suffixes([*_STEP_2]), _suffixes([*_STEP_3]), _suffixes(_STEP_4)


@lru_cache(maxsize=1 << 18)
def stem(word: str) -> str:
    """The stem of a lower-case word; words of one or two letters, and those with digits or other letters, stay.

    >>> [stem(word) for word in ("inhibits", "inhibited", "inhibition", "brca1")]
    ['inhibit', 'inhibit', 'inhibit', 'brca1']
    """
    if len(word) < 3 or not word.isascii() or not word.isalpha():
        return word
    # An initial y is a consonant.
    first_y = word[0] == "y"
    stemmed = _last_steps(_derivations(_plural_and_past("Y" + word[1:] if first_y else word)))
    return stemmed.lower() if first_y else stemmed


def _plural_and_past(word: str) -> str:
    """Steps 1a to 1c: -s, -ed, -ing, and a final y."""
    if word.endswith(("sses", "ies")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    if word.endswith("eed"):
        if _HAS_MEASURE.match(word[:-3]):
            word = word[:-1]
    else:
        for ending in ("ed", "ing"):
            if word.endswith(ending) and _HAS_VOWEL.match(base := word[: -len(ending)]):
                word = base
                if word.endswith(("at", "bl", "iz")) or _CVC.match(word):
                    word += "e"
                elif _DOUBLE.search(word):
                    word = word[:-1]
                break
    if word.endswith("y") and _HAS_VOWEL.match(word[:-1]):
        word = word[:-1] + "i"
    return word


def _derivations(word: str) -> str:
    """Steps 2 and 3: -ization to -ize, -fulness to -ful, and so on."""
    for pattern, replacements in ((_SUFFIX_2, _STEP_2), (_SUFFIX_3, _STEP_3)):
        if (match := pattern.match(word)) and _HAS_MEASURE.match(match[1]):
            word = match[1] + replacements[match[2]]
    return word


def _last_steps(word: str) -> str:
    """Steps 4 and 5: -ment, -able, -ion and so on of long words, a final e, and a double l."""
    if match := _SUFFIX_4.match(word):
        if _MEASURE_TWO.match(match[1]):
            word = match[1]
    elif word.endswith("ion") and word[:-3].endswith(("s", "t")) and _MEASURE_TWO.match(word[:-3]):
        word = word[:-3]
    if word.endswith("e"):
        base = word[:-1]
        if _MEASURE_TWO.match(base) or (_MEASURE_ONE.match(base) and not _CVC.match(base)):
            word = base
    if word.endswith("ll") and _MEASURE_TWO.match(word):
        word = word[:-1]
    return word


# Longer queries are cut: the terms after these change no ranking, and each costs time.
MAX_QUERY_TERMS = 256

_GREEK_NAMES = """
    alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi rho sigma sigma tau upsilon phi
    chi psi omega
"""
_GREEK_NAME = {chr(0x3B1 + place): name for place, name in enumerate(_GREEK_NAMES.split())}
_NAMES = "alpha|beta|gamma|delta|epsilon|kappa|lambda|omega|sigma|theta|zeta"

# Inside a word: accents as characters of their own (NFD), soft hyphens, and zero-width characters.
_MARKS, _INVISIBLE = r"\u0300-\u036f", r"\u00ad\u200b-\u200d\u2060\ufeff"
_LETTERS, _INSIDE = r"[^\W_\u0391-\u03c9]", f"[{_MARKS}{_INVISIBLE}]"
_UNSEEN = re.compile(f"[{_INVISIBLE}]")
# A word, or a Greek letter, which is a word of its own.
_WORD = re.compile(rf"{_LETTERS}+(?:{_INSIDE}+{_LETTERS}*)*|[\u0391-\u03c9]{_INSIDE}*")
# Spelled-out Greek letters glued to capitals or digits are words too: TNFalpha, NF-kappaB.
_GLUED = re.compile(rf"(?:{_NAMES})(?=[A-Z0-9])|(?<=[A-Z0-9])(?:{_NAMES})(?![a-z])")
_PART = rf"[^\W_]++(?:{_INSIDE}++[^\W_]*+)*+"
# Begun at the beginning of a word, or a text of n letters would take n² steps.
_COMPOUND = re.compile(rf"(?<![^\W_])(?<!{_INSIDE}){_PART}(?:[-\u2010-\u2013/]{_INSIDE}*{_PART})+")

# Frequent words that say nothing about a text's subject, beside those by which English is recognized.
_MORE_STOP_WORDS = """
    a an as at but can could did do does had he her his how i if in into its may me might more most my no nor on or our
    shall she should so some such than their them then there these they those to us was what when where whether while
    who whom whose why will with would you your about between during each any all also only other
"""
OPERATORS = ("AND", "OR", "NOT")
_WILDCARD = re.compile(r"\w\*(?!\w)")
# As in PubMed: BRCA1[Title], breast neoplasms[MeSH Terms].
_FIELD_TAG = re.compile(r"\w\[[A-Za-z][A-Za-z /]+\]")
STOP_WORDS = COMMON["en"] | frozenset(_MORE_STOP_WORDS.split())

Term = tuple[str, int, int]
"""A term, and start and end of the characters it comes from."""


def terms(text: str) -> Iterator[Term]:
    """The terms of a text in reading order; those of joined compounds come last.

    >>> [term for term, _, _ in terms("IL-2 inhibits NF-κB.")]
    ['il', '2', 'inhibit', 'nf', 'kappa', 'b', 'il2', 'nfkappab']
    """
    for match in _WORD.finditer(text):
        for start, end in _parts(match):
            yield stem(_fold(text[start:end])), start, end
    for match in _COMPOUND.finditer(text):
        yield "".join(map(_fold, _WORD.findall(match[0]))), *match.span()


def query_terms(text: str) -> dict[str, None]:
    """The distinct terms of a query, without stop words unless there is nothing else; at most MAX_QUERY_TERMS.

    A stop word in capitals is a name, as in "hepatitis A" or "the WAS gene", unless the whole query is in capitals.
    AND, OR and NOT are always stop words: those who write them mean operators.
    """
    shouted = text.isupper()
    found: dict[str, None] = {}
    stopped: dict[str, None] = {}
    for term, start, end in terms(text[: MAX_QUERY_TERMS * 64]):
        word = text[start:end]
        is_name = word.isupper() and start > 0 and not shouted and word not in OPERATORS
        (stopped if word.lower() in STOP_WORDS and not is_name else found)[term] = None
    return dict.fromkeys(list(found or stopped)[:MAX_QUERY_TERMS])


def describe_syntax(query: str) -> str | None:
    """A note on what looks like the query syntax of other search engines, and is ignored; None for plain words.

    >>> describe_syntax('"breast cancer" AND PARP*')
    'There is no query syntax; ignored: quotation marks, AND, *. Passages with more of the words come first.'
    """
    words = query.split()
    present = {
        "quotation marks": query.count('"') > 1,
        **{operator: operator in words[1:] for operator in OPERATORS},
        "*": _WILDCARD.search(query) is not None,
        "parentheses": query.lstrip().startswith("("),
        "field tags": _FIELD_TAG.search(query) is not None,
    }
    ignored = [name for name, is_present in present.items() if is_present]
    if not ignored:
        return None
    return f"There is no query syntax; ignored: {', '.join(ignored)}. Passages with more of the words come first."


def matching_ranges(text: str, wanted: dict[str, None]) -> list[Range]:
    """The ranges of a text that have these terms, without overlaps, in reading order."""
    places = sorted((start, -end) for term, start, end in terms(text) if term in wanted)
    ranges: list[Range] = []
    for start, negative_end in places:
        if not ranges or start >= ranges[-1][1]:
            ranges.append((start, -negative_end))
    return ranges


def _parts(match: re.Match[str]) -> list[Range]:
    """The word, cut around a glued Greek letter."""
    glued = _GLUED.search(match.string, *match.span()) if len(match[0]) > 4 else None
    if glued is None:
        return [match.span()]
    cuts = sorted({match.start(), *glued.span(), match.end()})
    return list(pairwise(cuts))


def _fold(word: str) -> str:
    if word.isascii():
        return word.lower()
    word = normalize("NFKC", _UNSEEN.sub("", word)).lower()
    return "".join(_GREEK_NAME.get(letter, letter) for letter in word)
