"""Filters: language, license, retraction, length, and kinds of passages; each drop is counted by its reason."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from lexome.document import Document, Passage
from lexome.formats.tally import Tally, drop_dependents
from lexome.metadata import Metadata

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
    """The two-letter language code of a text given as lower-case words, or None where no known language fits.

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


UNSTATED = "unstated"
OTHER = "other"

# PMC's own grouping for commercial use: everything without NC.
COMMERCIAL = frozenset(("CC0", "CC BY", "CC BY-SA", "CC BY-ND", "public domain"))

_URL = re.compile(r"creativecommons\.org/(?:licen[sc]es/(by[a-z-]*)|(publicdomain/(?:zero|mark)))", re.IGNORECASE)
# An unknown element ("by-n") leaves the license unknown instead of permissive.
_NAMED = re.compile(
    r"\b(?:cc|creative commons)[\s_-]*(0|zero|mark|by(?:[\s_-]?(?:nc|nd|sa))*)(?![a-z]|[_-][a-z])", re.IGNORECASE
)
_WORDS = {
    "nc": re.compile("non-?commercial"),
    "nd": re.compile("no derivative|noderiv"),
    "sa": re.compile("share[ -]?alike"),
}
_PUBLIC = re.compile(r"\bpublic domain\b", re.IGNORECASE)


def license_name(meta: Metadata) -> str:
    """CC0, CC BY, CC BY-NC and so on, "public domain", "other" for any other stated license, or "unstated".

    The URL takes precedence over the text; "commercial use" in the text counts only with Creative Commons.
    """
    stated = " ".join(filter(None, (meta.licence_url, meta.licence)))
    if not stated:
        return UNSTATED
    found = _URL.search(stated)
    if found is not None:
        if found[2]:
            return "CC0" if "zero" in found[2].lower() else "public domain"
        return _creative_commons(found[1])
    if (named := _NAMED.search(stated)) is not None:
        return _creative_commons(named[1])
    if re.search(r"creative commons", stated, re.IGNORECASE) and re.search(r"attribution", stated, re.IGNORECASE):
        lower = stated.lower()
        return _creative_commons("by-" + "-".join(mark for mark, words in _WORDS.items() if words.search(lower)))
    return "public domain" if _PUBLIC.search(stated) else OTHER


def license_allowed(name: str, wanted: str) -> bool:
    """Whether a license passes a source's filter: any, stated or commercial."""
    if wanted == "commercial":
        return name in COMMERCIAL
    return wanted == "any" or name != UNSTATED


def _creative_commons(marks: str) -> str:
    """The canonical name for elements such as "by-nc-nd"."""
    lower = marks.lower()
    if lower in ("0", "zero"):
        return "CC0"
    if lower == "mark":
        return "public domain"
    seen = set(re.findall("nc|nd|sa", lower))
    return "CC BY" + "".join(f"-{mark.upper()}" for mark in ("nc", "nd", "sa") if mark in seen)


def metadata_reason(doc: Document, *, licences: str, retracted: str) -> str | None:
    """Why what a document says about itself forbids to use it, or None.

    Retracted first, so that a retracted article is never counted as a matter of licences.
    """
    if doc.meta.retracted and retracted == "drop":
        return "retracted"
    return None if license_allowed(license_name(doc.meta), licences) else "licence"


def text_reason(words: Sequence[str], count: int, *, languages: Sequence[str], min_words: int) -> str | None:
    """Why a document's text is not worth keeping, or None; `count` is its size in words between spaces."""
    if count == 0:
        return "empty"
    if count < min_words:
        return "too_short"
    return None if not languages or language_of(words) in languages else "language"


def running_text(doc: Document, *, leave_out: Sequence[str], languages: Sequence[str], tally: Tally) -> Document:
    """The document without passages of these kinds, without empty ones and without those said to be in other languages.

    Spans in what is left out go with it, and the relations between them.
    """
    kept = tuple(passage for passage in doc.passages if _left_out(passage, leave_out, languages, tally) is None)
    if len(kept) == len(doc.passages):
        return doc
    if not (doc.spans or doc.questions):
        return replace(doc, passages=kept)
    starts = {passage.offset for passage in kept}
    gone = {
        span.id
        for span in doc.spans
        if any((passage := doc.passage_at(start)) is None or passage.offset not in starts for start, _ in span.parts)
    }
    relations, attributes = drop_dependents(gone, doc.relations, doc.attributes, tally=tally)
    spans = tuple(span for span in doc.spans if span.id not in gone)
    return replace(doc, passages=kept, spans=spans, relations=relations, attributes=attributes, questions=())


def _left_out(passage: Passage, kinds: Sequence[str], languages: Sequence[str], tally: Tally) -> str | None:
    """The note for a passage that is left out."""
    if passage.kind in kinds:
        note = f"{passage.kind} left out"
    elif languages and passage.language and language_code(passage.language) not in languages:
        note = "passage in another language left out"
    elif not passage.text or passage.text.isspace():
        note = "empty passage left out"
    else:
        return None
    tally.note(note)
    return note
