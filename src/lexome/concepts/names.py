"""Normalized forms of names, by which dictionaries are searched.

From strict to loose, two names agree

- exactly: the same characters, except for spaces;
- in case: "brca1" and "BRCA1";
- folded: also in punctuation, dashes, accents, Greek letters and possessives: "TNF-α" and "tnf alpha";
- loosely: also in plurals, British spelling, separators inside codes, and, for names of several words, in word order
  and function words: "IL-2" and "IL2", "cancer of the breast" and "breast cancers".

Each level includes the ones above it. `name_key` is the same for names that agree at any level, so an index needs one
entry per name, and `compare_names` says at which level.
"""

import re
import unicodedata
from enum import IntEnum
from functools import lru_cache

# Part of the index format: an index whose keys were made by other rules finds nothing.
KEY_RULES = 1


class Agreement(IntEnum):
    """How closely two names agree; smaller is closer."""

    EXACT = 0
    CASE = 1
    FOLDED = 2
    LOOSE = 3


_GREEK = {
    letter: unicodedata.name(letter).rpartition("LETTER ")[2].removeprefix("FINAL ").lower()
    for letter in "αβγδεζηθικλμνξοπρςστυφχψω"
} | {"ϕ": "phi", "ϵ": "epsilon", "ϑ": "theta", "ς": "sigma", "λ": "lambda"}
_LETTERS = {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i", "ß": "ss"}
# Charges and stereochemistry: "Na+" is not "Na", "(+)-x" is not "x".
_KEPT = "+"
_SEPARATORS = {ord(mark): " " for mark in map(chr, range(128)) if not (mark.isalnum() or mark in _KEPT)}
_POSSESSIVE = re.compile(r"(?<=[a-z])['’ʼ´`]s(?![a-z0-9])")
_PRIMES = str.maketrans(dict.fromkeys("’‘ʼ´`′", "'"))
_SPACES = re.compile(r"\s+")
_RUNS = re.compile(r"[^\W\d_]+|\d+|\++")
_FUNCTION_WORDS = {"a", "an", "and", "by", "due", "for", "from", "in", "of", "on", "or", "the", "to", "with"}
_LONG_WORD = 4

# British spelling, in words long enough not to be codes.
_SPELLINGS = (
    (re.compile("(?<=.)ae(?=[a-z])|^ae(?=[dmst])|^oe(?=[a-z])|oe(?=a|b|li)"), "e"),
    (re.compile("our$"), "or"),
    (re.compile("sulph"), "sulf"),
    (re.compile("isation$"), "ization"),
)


def tidy_name(name: str) -> str:
    """The name in Unicode's composed form, with single spaces between words and none around them."""
    if name.isascii():
        return " ".join(name.split())
    return _SPACES.sub(" ", unicodedata.normalize("NFC", name)).strip()


@lru_cache(maxsize=1 << 15)
def fold_name(name: str) -> str:
    """The name in lower case and ASCII where it has an equivalent, words separated by single spaces.

    >>> fold_name("Sjögren’s syndrome"), fold_name("TNF-α"), fold_name("Ca2+")
    ('sjogren syndrome', 'tnf alpha', 'ca2+')

    Letters of other alphabets are kept. A name without letters and digits folds to the empty string.
    """
    text = name.lower() if name.isascii() else _to_ascii(name)
    if "'" in text:
        text = _POSSESSIVE.sub("", text)
    return " ".join(text.translate(_SEPARATORS).split())


def _to_ascii(name: str) -> str:
    text = unicodedata.normalize("NFKD", name.translate(_PRIMES)).casefold()
    text = unicodedata.normalize("NFKD", text)
    return "".join(map(_ascii_of, text)).translate(_PRIMES).lower()


@lru_cache(maxsize=1 << 12)
def _ascii_of(character: str) -> str:
    """ASCII for one character: the name of a Greek letter, a plain letter, a space for marks, or the letter itself."""
    if character.isascii():
        return character
    if character in _GREEK:
        return _GREEK[character]
    if character in _LETTERS:
        return _LETTERS[character]
    category = unicodedata.category(character)
    if category in ("Mn", "Cf"):  # accents, soft hyphens, zero-width spaces
        return ""
    if category == "Nd":
        return str(unicodedata.digit(character))
    return character if category[0] == "L" or category == "Mc" else " "


@lru_cache(maxsize=1 << 15)
def name_key(name: str) -> str:
    """The form that is equal for all names that agree, however loosely; empty where the name has no letter or digit.

    >>> name_key("IL-2"), name_key("IL2"), name_key("Cancers of the breast"), name_key("breast cancer")
    ('il2', 'il2', 'breast cancer', 'breast cancer')
    """
    runs = [_base_form(run) if len(run) >= _LONG_WORD else run for run in _RUNS.findall(fold_name(name))]
    if sum(len(run) >= _LONG_WORD and run[0].isalpha() for run in runs) < 2:
        # A code: the order of its parts counts, what is between them does not.
        return "".join(runs)
    return " ".join(sorted(run for run in runs if run not in _FUNCTION_WORDS))


@lru_cache(maxsize=1 << 15)
def _base_form(word: str) -> str:
    """The word in the singular and in American spelling; a number unchanged."""
    if not word[0].isalpha():
        return word
    if word.endswith("ies") and len(word) > 5:
        word = word[:-3] + "y"
    elif word.endswith(("sses", "xes", "ches", "shes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for pattern, replacement in _SPELLINGS:
        word = pattern.sub(replacement, word)
    return word


def is_plural(name: str) -> bool:
    """Whether the last word looks like an English plural: "statins", "NSAIDs"; not "virus" or "Fas"."""
    word = name.rpartition(" ")[2]
    return len(word) > _LONG_WORD and word.endswith("s") and not word.endswith(("ss", "us", "is", "os"))


def compare_names(first: str, second: str) -> Agreement | None:
    """How closely two tidied names agree; None where they differ."""
    if first == second:
        return Agreement.EXACT
    if first.casefold() == second.casefold():
        return Agreement.CASE
    if name_key(first) != name_key(second):
        return None
    return Agreement.FOLDED if fold_name(first) == fold_name(second) else Agreement.LOOSE
