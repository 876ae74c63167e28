"""Porter's stemmer (Porter, 1980): "inhibits", "inhibited" and "inhibition" become "inhibit".

In search, stems find 2 points more of BioASQ's documents than whole words (docs/decisions/, the record on search).
"""

import re
from functools import lru_cache

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
