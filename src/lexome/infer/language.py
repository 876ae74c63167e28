"""Whether a text looks English: the models are trained on English."""

import re

from lexome.document import Document

# The most frequent short words, which no English abstract lacks and hardly any other language shares.
_ENGLISH_WORDS = """
the of and to with for was were is are that by from at which this as have been not be or we these an it on
"""
# German, French, Spanish, Italian, Portuguese, Dutch and Polish.
_OTHER_WORDS = """
der die das und mit von den dem des eine einer ist wurde wurden bei nicht auf für im zur
le la les et du une dans est sont par pour avec sur chez ont été que qui
el los las del con una por para se fue fueron como entre su sus
il lo gli della dei nel sono per che di da stato
os as do dos um uma com foi foram na no em não ao
het een van en zijn voor met werd bij niet op
w z jest się nie oraz przez u
"""
_ENGLISH, _OTHERS = (
    frozenset(_ENGLISH_WORDS.split()),
    frozenset(_OTHER_WORDS.split()) - frozenset(_ENGLISH_WORDS.split()),
)
_WORD = re.compile(r"[^\W\d_]+")
_LATIN = re.compile(r"[A-Za-zÀ-ɏͰ-Ͽ]")  # with Greek letters, which names of genes and isoforms have
MAX_CHARACTERS = 4000
MIN_WORDS = 20


def looks_foreign(doc: Document) -> bool:
    """Whether a document is most likely not English: by its script, or by its short words.

    Lists of names and very short texts have neither; they do not.
    """
    text = " ".join(passage.text for passage in doc.passages)[:MAX_CHARACTERS] if doc.passages else ""
    words = _WORD.findall(text)
    letters = sum(map(len, words))
    if letters >= MIN_WORDS and len(_LATIN.findall(text)) < letters / 2:
        return True
    if len(words) < MIN_WORDS:
        return False
    lowered = [word.lower() for word in words]
    english = sum(word in _ENGLISH for word in lowered)
    other = sum(word in _OTHERS for word in lowered)
    return other > 0.1 * len(words) and other > 2 * english
