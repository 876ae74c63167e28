"""Language detection by words: of a text by its most frequent ones, of a question by its first ones."""

import re
from collections import Counter
from collections.abc import Sequence

# Words that are frequent in one of these languages and rare in the others.
_COMMON = {
    "en": "the of and to is was with for that this were are by from which has have been we not it be",
    "fr": "le les des du et est dans une pour que qui sur avec par au aux ont été cette sont ce",
    "de": "der die das und ist von mit den für nicht ein eine dem auf werden wurde bei sich als zu im",
    "es": "el los las del y en una por con para que se es su fue como al lo pero entre más",
    "it": "il gli della di e che per con una sono nel dei delle alla è stato da come nella più",
    "pt": "o os as da do dos e em uma com para que foi não ao na no mais pela à são",
}

COMMON = {code: frozenset(words.split()) for code, words in _COMMON.items()}

# About 30% of the words of running text; next to none in lists of names or numbers.
# Over 5,000 English abstracts the median is 0.23 and the minimum 0.075.
MIN_COMMON_FRACTION = 0.06

# Enough words to decide; full texts are not counted to the end.
MAX_WORDS_CHECKED = 400


def language_of(words: Sequence[str]) -> str | None:
    """The two-letter language code of a text given as lower-case words, or None if no known language fits.

    >>> language_of("the effect of aspirin on the risk of stroke was not significant".split())
    'en'
    """
    seen = Counter(words[:MAX_WORDS_CHECKED])
    counts = {code: sum(seen[word] for word in common) for code, common in COMMON.items()}
    best = max(counts, key=lambda code: counts[code])
    return best if counts[best] >= MIN_COMMON_FRACTION * max(1, seen.total()) else None


def language_code(code: str) -> str:
    """The two-letter form of a language code: "eng", "en-US" and "en" are "en"."""
    short = code.lower().replace("_", "-").partition("-")[0]
    return _THREE.get(short, short)


_CODES = "eng:en fre:fr fra:fr ger:de deu:de spa:es ita:it por:pt chi:zh zho:zh jpn:ja rus:ru"
_THREE = dict(pair.split(":") for pair in _CODES.split())


# Questions

_LANGUAGES = {
    "fr": "French",
    "de": "German",
    "es": "Spanish",
    "it": "Italian",
    "pt": "Portuguese",
    "nl": "Dutch",
    "sv": "Swedish",
    "no": "Norwegian or Danish",
    "pl": "Polish",
    "cs": "Czech",
    "tr": "Turkish",
    "fi": "Finnish",
}
# Words that questions begin with; after a bar, others that are frequent in them.
_QUESTION_WORDS = {
    "fr": "quel quelle quels quelles comment pourquoi combien quand où quoi | qui sont",
    "de": "welche welcher welches welchen wie warum wer wann wozu wo | was gibt es ein",
    "es": "qué cuál cuáles cómo quién dónde cuándo cuánto cuántos | de",
    "it": "quale quali perché chi dove quanto quando | come di",
    "pt": "qual quais como porque quem onde | quando quanto de",
    "nl": "wat welke hoe waarom wanneer | is de het een van en voor bij zijn",
    "sv": "vad vilka vilken vilket varför | är och av det",
    "no": "hva hvad hvilke hvilken hvordan hvorfor | er og av det",
    "pl": "jakie jaki jaka które który czy dlaczego | są jest w na i",
    "cs": "jaké jaký jaká které který proč | je jsou na v",
    "tr": "hangi nasıl neden | nedir ve bir mi",
    "fi": "mitkä mikä mitä miten miksi | on ja",
}
_ENGLISH = "what which who whom whose when where why how is are does do did can list name there a in"


def other_language(question: str) -> str | None:
    """The name of the language of a question that is not in English; None if it is, or if the language is unclear."""
    letters = [character for character in question if character.isalpha()]
    greek_or_latin = sum(character < "\u0400" for character in letters)
    # Names of drugs and genes stay Latin in a question in another script.
    if letters and greek_or_latin * 4 < 3 * len(letters):
        return "a language with another script"
    words = re.findall(r"[^\W\d_]+", question)
    lowered = [word.lower() for word in words]
    english = sum(word in COMMON["en"] or word in _ENGLISH.split() for word in lowered)
    counts = {
        code: sum(word in COMMON.get(code, ()) or word in own.split() for word in lowered)
        for code, own in _QUESTION_WORDS.items()
    }
    best = max(counts, key=lambda code: counts[code])
    if counts[best] >= 2 and counts[best] > english:
        return _LANGUAGES[best]
    # The first word suffices if no word is English. Words with inner capitals are names: HuR, VaD.
    if english or not words or not (words[0][1:].islower() or "¿" in question):
        return None
    first = (code for code, own in _QUESTION_WORDS.items() if lowered[0] in own.partition("|")[0].split())
    return _LANGUAGES.get(next(first, "es" if "¿" in question else ""))
