"""Normalized forms of names, by which dictionaries are searched, and the forms in which a mention is looked up.

From strict to loose, two names agree

- exactly: the same characters, except for spaces;
- in case: "brca1" and "BRCA1";
- folded: also in punctuation, dashes, accents, Greek letters and possessives: "TNF-α" and "tnf alpha";
- loosely: also in plurals, British spelling, separators inside codes, and, for names of several words, in word order
  and function words: "IL-2" and "IL2", "cancer of the breast" and "breast cancers".

Each level includes the ones above it. `name_key` is the same for names that agree at any level, so an index needs one
entry per name, and `compare_names` says at which level.

`mention_forms` are what the linker looks up for a mention: itself, its long form, without modifiers, with synonymous
words, in parts.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from enum import IntEnum
from functools import lru_cache

from lexome.frozen import fast_dataclass

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
    """A form that is equal for all names that agree, however loosely; empty if the name has no letter or digit.

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
    """How closely two tidied names agree; None if they differ."""
    if first == second:
        return Agreement.EXACT
    if first.casefold() == second.casefold():
        return Agreement.CASE
    if name_key(first) != name_key(second):
        return None
    return Agreement.FOLDED if fold_name(first) == fold_name(second) else Agreement.LOOSE


# Words that stand for each other in names of diseases and chemicals, and nouns for adjectives of diseases
#
# The groups of diseases are those that MeSH's and the Disease Ontology's synonyms show to be interchangeable (two names
# of a concept differ in just these words, for three concepts or more), without the pairs that mean different things
# elsewhere, and words of clinical prose for them.

_DISEASE_GROUPS = """
neoplasm tumor cancer carcinoma malignancy adenocarcinoma
disease disorder syndrome abnormality illness condition
defect abnormality anomaly malformation
impairment dysfunction insufficiency failure disease damage injury disorder
deficit disorder impairment
disturbance disorder
toxicity injury disease
complication disease disorder
kidney renal
stomach gastric
lung pulmonary
injury trauma damage lesion
childhood pediatric juvenile infantile
skin cutaneous dermal
ovary ovarian
heart cardiac myocardial
muscle muscular myopathic
liver hepatic
brain cerebral intracranial
colon colonic colorectal
bowel intestine intestinal
prostate prostatic
pancreas pancreatic
esophagus esophageal oesophageal
testis testicular
cervix cervical
breast mammary
bladder vesical
eye ocular visual
vision visual
nerve neural neuronal
bone osseous skeletal
tooth teeth dental
mouth oral
larynx laryngeal
thyroid thyroidal
adrenal adrenocortical
uterus uterine endometrial
endometrium endometrial
vessel vascular
vein venous
artery arterial
coronary cardiac
spleen splenic
retina retinal
cornea corneal
cerebellum cerebellar
allergy hypersensitivity allergic
calculus stone calculi lithiasis
infarct infarction
hemorrhage bleeding hematoma
thrombosis thrombus
palsy paralysis
seizure convulsion epilepsy
spasm vasospasm
hypertrophy enlargement
enlargement hypertrophy megaly
swelling edema
rigidity stiffness
regurgitation incompetence insufficiency
myeloid myelogenous granulocytic myelocytic
lymphoblastic lymphocytic lymphatic
epidermoid squamous
schwannoma neurilemmoma
eczema dermatitis
familial hereditary inherited genetic congenital
associated related
aciduria acidemia
dysplasia hypoplasia
infection disease
bacterial infection
addiction dependence abuse
withdrawal abstinence
anxiety anxious
cognitive cognition
memory amnestic
motor movement
loss deficiency
deficient deficiency
retardation disability delay
mental intellectual
1 i
2 ii
3 iii
4 iv
5 v
6 vi
iia 2a
iib 2b
iic 2c
iid 2d
"""
_CHEMICAL_GROUPS = """
agent drug
antagonist blocker
inhibitor blocker
antidepressant antidepressive
ester esters
"""
# Adjectives, by their ends, and the ends of the nouns: "ischemic" and "ischemia", "thrombotic" and "thrombosis".
_NOUN_ENDS = (
    ("otic", ("osis", "otics")),
    ("itic", ("itis",)),
    ("etic", ("esis", "es", "esia")),
    ("ptic", ("psy", "psia", "psis")),
    ("ctic", ("xis", "xia", "sis")),
    ("exic", ("exia",)),
    ("tic", ("sia", "sis", "tism")),
    ("ic", ("ia", "y", "is", "ism", "e", "")),
    ("ian", ("ism", "")),
    ("oid", ("osis", "")),
    ("ese", ("esity",)),
    ("tensive", ("tension",)),
    ("essive", ("ession",)),
    ("ive", ("ion",)),
    ("ous", ("a", "y", "osis", "us")),
    ("al", ("um", "us", "a", "")),
    ("ed", ("ion", "")),
    ("ness", ("",)),
    ("iness", ("y",)),
)
_MIN_STEM = 4
_MIN_SALT = 6
_FUNCTION = re.compile(
    r"^(?:decreased?|impaired|reduced|abnormal|poor|declining|worsening|worse|deteriorating|loss of|decline in|"
    r"deterioration (?:of|in)|impairment of|reduction in|decrease in)\s+(\w+)(?: function(?:s|ing)?)?$"
)


def _parse(groups: str) -> dict[str, tuple[str, ...]]:
    synonyms: dict[str, dict[str, None]] = {}
    for line in groups.strip().splitlines():
        words = line.split()
        for word in words:
            synonyms.setdefault(word, {}).update(dict.fromkeys(other for other in words if other != word))
    return {word: tuple(others) for word, others in synonyms.items()}


WORD_SYNONYMS = {"Disease": _parse(_DISEASE_GROUPS), "Chemical": _parse(_CHEMICAL_GROUPS)}


def synonyms_of(word: str, type: str) -> tuple[str, ...]:
    """The words that stand for one in names of a type; plurals and British spellings count as the word itself."""
    table = WORD_SYNONYMS.get(type)
    if table is None:
        return ()
    return table.get(word) or table.get(name_key(word), ())


def rephrase(text: str, type: str) -> Iterator[str]:
    """Paraphrases of a whole mention: the noun of an adjective, "renal insufficiency" for "impaired renal function".

    For a chemical, the acid of a salt: "glutamic acid" for glutamate.
    """
    if type == "Chemical" and len(text) > _MIN_SALT and text.endswith("ate"):
        yield f"{text[:-3]}ic acid"
    if type != "Disease":
        return
    folded = fold_name(text)
    match = _FUNCTION.match(folded)
    if match is not None:
        for noun in ("insufficiency", "dysfunction", "disorder", "disease"):
            yield f"{match[1]} {noun}"
    first, _, last = folded.rpartition(" ")
    for end, nouns in _NOUN_ENDS:
        if last.endswith(end) and len(last) - len(end) >= _MIN_STEM - (len(end) > 3):
            for noun in nouns:
                yield f"{first} {last[: len(last) - len(end)]}{noun}".strip()


# The forms of a mention

MENTION, LONG, EXPANDED, REDUCED, SUBSTITUTED, PART = (
    "mention",
    "long form",
    "expanded",
    "reduced",
    "substituted",
    "part",
)


@fast_dataclass
class MentionForm:
    """A text to look up, and how it was made from the mention; `words` is how many words were dropped or replaced."""

    text: str
    kind: str
    words: int = 0


# What may stand before or after a name without being a part of it, by type.
_BEFORE = {
    "Disease": "inherited hereditary familial primary severe isolated human sporadic bilateral unilateral idiopathic "
    "congenital acute chronic recurrent mild early late onset advanced postoperative progressive classical "
    "classic non symptomatic typical atypical juvenile adult infantile childhood pediatric metastatic "
    "invasive malignant benign transient persistent generalized localized experimental spontaneous "
    "unexplained overt clinical new",
    "Gene": "human mouse murine rat bovine yeast recombinant wild type wildtype mutant endogenous total "
    "phosphorylated phospho soluble serum plasma anti native full length h m r hu the lncrna circrna",
    "Chemical": "free total plasma serum intravenous oral exogenous endogenous synthetic radiolabeled labeled "
    "unlabeled racemic aqueous low high dose sodium potassium calcium disodium",
    "Species": "adult young male female pregnant healthy wild transgenic infected pathogenic virulent avirulent human "
    "laboratory live attenuated recombinant",
    "CellLine": "human mouse murine rat hamster monkey canine cultured parental transfected wild type wildtype the",
}
_AFTER = {
    "Disease": "patients patient families family phenotype phenotypes symptoms symptom episodes episode attacks attack "
    "cases case lesions lesion events event",
    "Gene": "gene genes protein proteins mrna mrnas cdna transcript transcripts allele alleles locus product products "
    "peptide kinase antigen promoter molecule polypeptide homolog homologue ortholog isoform "
    "isoforms subunit inflammasome",
    "Chemical": "hcl hydrochloride sodium potassium salt acid ion ions treatment sulfate sulphate acetate mesylate "
    "maleate citrate phosphate bromide chloride tablets derivatives derivative compounds compound calcium fumarate "
    "tartrate succinate",
    "Species": "patients strain strains species isolate isolates virus viruses mice rats cells spp sp volunteers "
    "subjects",
    "CellLine": "cell cells line lines cancer carcinoma leukemia lymphoma melanoma human",
}
_BEFORE_WORDS = {type: frozenset(words.split()) for type, words in _BEFORE.items()}
_AFTER_WORDS = {type: frozenset(words.split()) for type, words in _AFTER.items()}
_INDUCED = re.compile(r"^(?:\S+[ -])?\S*-?(?:induced|related|associated|dependent|mediated)[ -]+(?=\S)", re.IGNORECASE)
_HYPHEN = re.compile(r"[\s_-]+")
# Greek letters that were lost, and written as Latin ones.
_GREEK_OF_LATIN = {"a": "alpha", "b": "beta", "g": "gamma", "d": "delta", "k": "kappa"}
_LETTER_FOR_GREEK = re.compile(r"(?:(?<=^)|(?<=-))([abgdk])(?=-|$)")
# Subunits whose symbols end in a Latin letter: "IL-2Ralpha" is IL2RA, "CD8beta" CD8B.
_GREEK_END = re.compile(r"(\S*[A-Za-z\d])[\s-]?(alpha|beta|gamma|delta|epsilon|[αβγδε])")
# Isoforms and species that authors write into a symbol: "SERCA2b", "hDaxx", "miR-124-3p".
_ISOFORM = re.compile(r"^([^\s]*[^\W\d]+-?\d+)-?[A-Za-z]\d?$")
_SPECIES_LETTER = re.compile(r"^(?:[Rr]h|[hmr])(?=[A-Z][A-Za-z0-9-]{2})")
_KNOCK_OUT = re.compile(r"(?<=[\w])-?(?:KO|KD|null|\(?-/-\)?|\(?\+/-\)?)$")
_DELETED = re.compile(r"^(?:[Δ∆]|[Dd]elta-?)(?=[a-z]{3}[A-Z])")
_OXIDATION_STATE = re.compile(r"(?<=[a-z])\((?:I{1,3}|IV|VI?)\)$")
# Cells that express a protein: "CD4+", "CD34(+)".
_POSITIVE = re.compile(r"(?<=\w)(?:\+|\(\+\))$")
_MICRO_RNA = re.compile(
    r"^(?:hsa-|mmu-|rno-)?(?:miR|mir|MIR|miRNA|microRNA|let)(?:-| )?(\d+[a-z]?)((?:-[1-9])?)(?:-?[35]p|\*)?$"
)
# "breast and/or ovarian cancer", "brain, breast, and prostate cancer".
_CONJUNCTION = re.compile(r"\s*(?:,\s*(?:and/or|and|or)\s+|\s+(?:and/or|and|or|&)\s+|\s+as well as\s+|,\s+)\s*")
# Drugs that are given together: "sofosbuvir/velpatasvir", "atovaquone-proguanil".
_COMBINATION = re.compile(r"[^\W\d_]{6,}(?:[-/][^\W\d_]{6,}){1,3}")
# What tells the members of a family apart: "Mcm4/6", "CYP11B2/B1", "IL-1alpha/beta", "synapsins I and II", "IL-17A/F".
# A later member repeats what is of the same kind at the end of the first.
_GREEK_NAMES = "|".join(sorted({*_GREEK.values(), *_GREEK}, key=len, reverse=True))
_DESIGNATORS = tuple(
    (re.compile(pattern), re.compile(rf"(?:{pattern})$"))
    for pattern in (
        r"\d+[A-Za-z]?",
        r"\d+[A-Z]\d+",
        r"[A-Z]\d+[A-Za-z]?",
        r"[A-Z]{2}\d+[A-Za-z]?",
        rf"(?:{_GREEK_NAMES})(?:\d|I{{1,3}})?",
        r"(?<![A-Z])[IVX]+",
        r"(?<![A-Z])[A-Z]",
        r"(?<![A-Za-z])[a-z]|(?<=\d)[a-z]",
    )
)
_LISTED = re.compile(r"\s*(?:(?<!^[A-Z])/|,\s*(?:and|or)\s|,|\s(?:and|or|&)\s)\s*-?")
_RANGE = re.compile(r"(.*[^\W\d]-?)(?:(\d)\s?[-–]\s?(\d)|(?<![A-Z])([A-Z])\s?[-–]\s?([A-Z]))")
_BETWEEN_GENES = re.compile(r"(?<=[^\W_][^\W_])/(?=[^\W_]{2})")
_SHARED_END = re.compile(r"([^\s-]+)-,? (?:and|or|and/or) ([^\s-]+)-(\S.*)")
_MAX_SUBSTITUTIONS = 24
# Symbols of one letter, which an index has no names of.
_ELEMENTS = {
    "C": "carbon",
    "F": "fluorine",
    "H": "hydrogen",
    "I": "iodine",
    "K": "potassium",
    "N": "nitrogen",
    "O": "oxygen",
    "P": "phosphorus",
    "S": "sulfur",
}
# An abbreviation inside a name: "interleukin (IL)-6", "glucose-6-phosphate dehydrogenase (G6PD) deficiency".
_ABBREVIATION = re.compile(r"(?<=\w)\s+\([A-Z][A-Za-z0-9-]*\)")
_MIN_WITHOUT_ABBREVIATION = 5


def mention_forms(text: str, type: str, long_form_of: Mapping[str, str]) -> list[MentionForm]:
    """The forms of a mention without substituted words, the most faithful first, without duplicates."""
    forms: dict[str, MentionForm] = {}

    def add(form: str, kind: str, words: int = 0) -> None:
        key = form.strip()
        if key and key not in forms:
            forms[key] = MentionForm(key, kind, words)

    long = long_form_of.get(text)
    if long is not None:
        add(long, LONG)
    add(text, MENTION)
    if type == "Chemical" and text in _ELEMENTS and long is None:
        add(_ELEMENTS[text], EXPANDED)
    if long is None and (expanded := expand_words(text, long_form_of)) != text:
        add(expanded, EXPANDED)
    if "(" in text and " " in text and len(shorter := _ABBREVIATION.sub("", text)) > _MIN_WITHOUT_ABBREVIATION:
        add(shorter, EXPANDED)
    for base in list(forms.values()):
        for form, words in reduced_forms(base.text, type):
            add(form, REDUCED, words)
    return list(forms.values())


def expand_words(text: str, long_form_of: Mapping[str, str]) -> str:
    """The mention with its words that are short forms replaced: "SJS type 2"."""
    if not long_form_of or " " not in text:
        return text
    return " ".join(long_form_of.get(word, word) for word in text.split())


def reduced_forms(text: str, type: str) -> Iterator[tuple[str, int]]:
    """The text without words that are no part of a name, and how many are left out: "drug-induced", "patients"."""
    before, after = _BEFORE_WORDS.get(type, frozenset()), _AFTER_WORDS.get(type, frozenset())
    if type == "Disease" and (shorter := _INDUCED.sub("", text, count=1)) != text:
        yield shorter, 1
        text = shorter
    words = [word for word in _HYPHEN.split(text) if word]
    low, high = 0, len(words)
    while high - low > 1 and fold_name(words[high - 1]) in after:
        high -= 1
        yield " ".join(words[low:high]), low + len(words) - high
    while high - low > 1 and fold_name(words[low]) in before:
        low += 1
        if high < len(words):
            yield " ".join(words[low:]), low
        yield " ".join(words[low:high]), low + len(words) - high
    if type == "Chemical" and (element := _OXIDATION_STATE.sub("", text)) != text:
        yield element, 1  # copper(II)
    if type == "Gene" and (greek := _LETTER_FOR_GREEK.sub(lambda match: _GREEK_OF_LATIN[match[1]], text)) != text:
        yield greek, 1  # b-catenin
    if type == "Gene" and len(words) <= 2:
        yield from _gene_of_symbol(text)


def _gene_of_symbol(symbol: str) -> Iterator[tuple[str, int]]:
    """The symbol without the letter of a species or an isoform, and the symbol of a microRNA's gene."""
    if (match := _MICRO_RNA.match(symbol)) is not None:
        letters = "let" if symbol.lower().startswith("let") else ""
        yield f"MIR{letters}{match[1]}{match[2]}", 1
        if not match[2]:
            yield f"MIR{letters}{match[1]}-1", 2
    elif (match := _ISOFORM.match(symbol)) is not None:
        yield match[1], 1
    elif (match := _GREEK_END.fullmatch(symbol)) is not None:
        yield match[1] + fold_name(match[2])[0].upper(), 1
    for pattern in (_SPECIES_LETTER, _KNOCK_OUT, _POSITIVE, _DELETED):  # hTERT, STAT3KO, CD4+, ΔphoP
        if (shorter := pattern.sub("", symbol)) != symbol:
            yield shorter, 1


def substituted_forms(form: MentionForm, type: str) -> Iterator[MentionForm]:
    """The form said otherwise, or with one or two words replaced by synonyms: "renal cancer", "kidney neoplasm"."""
    for text in rephrase(form.text, type):
        yield MentionForm(text, SUBSTITUTED, form.words + 1)
    for text, replaced in _replaced_words(form.text, type):
        yield MentionForm(text, SUBSTITUTED, form.words + replaced)


def _replaced_words(text: str, type: str) -> Iterator[tuple[str, int]]:
    """The text with one or two words replaced, and how many are."""
    words = fold_name(text).split()
    options = [synonyms_of(word, type) for word in words]
    count = 0
    for place, own in enumerate(options):
        for synonym in own:
            replaced = [*words[:place], synonym, *words[place + 1 :]]
            yield " ".join(word for word in replaced if word), 1
            count += 1
    for place, own in enumerate(options):
        for other in range(place + 1, len(words)):
            for first in own[:4]:
                for second in options[other][:4]:
                    if count >= _MAX_SUBSTITUTIONS:
                        return
                    count += 1
                    replaced = [*words[:place], first, *words[place + 1 : other], second, *words[other + 1 :]]
                    yield " ".join(word for word in replaced if word), 2


def composite_parts(text: str, type: str) -> list[str]:
    """The mentions that a coordinated one stands for, if it is one: "breast cancer", "ovarian cancer"; else none."""
    if type == "Gene" and (members := _family_members(_ABBREVIATION.sub("", text))):
        return members
    if type not in ("Disease", "Chemical", "Gene", "Species"):
        return []
    if type == "Chemical" and _COMBINATION.fullmatch(text):
        return re.split("[-/]", text)
    if type == "Gene":
        text = _BETWEEN_GENES.sub(" and ", text)
    elif type == "Disease" and "/" in text and " " in text:
        text = re.sub(r"(?<=[^\W\d]{3})/(?=[^\W\d]{3})", " and ", text)
    pieces = [piece for piece in _CONJUNCTION.split(text) if piece]
    if len(pieces) < 2 or len(pieces) > 6:
        return []
    last = pieces[-1].split()
    if len(last) < 2 or any(len(piece.split()) > 4 for piece in pieces[:-1]):
        return pieces if all(_is_whole(piece, type) for piece in pieces) else []
    head = last[-1]
    if any(piece.split()[-1].lower() == head.lower() for piece in pieces[:-1]):
        return pieces
    # Each part takes what follows the first word of the last: "breast" + "cancer"; whole parts stay as they are.
    return [*(f"{piece} {' '.join(last[1:])}" for piece in pieces[:-1]), pieces[-1]]


def _is_whole(piece: str, type: str) -> bool:
    """Whether a piece of one word or more may be a name, and no number or letter that belongs to another."""
    if type == "Gene":
        return len(piece) > 2 and piece[0].isalpha() and fold_name(piece) not in _GREEK.values()
    return len(piece) > 3


def _family_members(text: str) -> list[str]:
    """The genes that are listed or ranged by their numbers or letters: "Notch1-4", "S100A8/A9"; else none."""
    if (match := _RANGE.fullmatch(text)) is not None:
        base, *bounds = match.groups()
        low, high = (ord(bound) for bound in bounds if bound is not None)
        return [f"{base}{chr(code)}" for code in range(low, high + 1)] if low < high else []
    if (match := _SHARED_END.fullmatch(text)) is not None:
        return [f"{match[1]}-{match[3]}", f"{match[2]}-{match[3]}"]
    first, *others = _LISTED.split(text)
    members = [first]
    for other in others:
        if not other:  # after ", and"
            continue
        ends = (end for whole, end in _DESIGNATORS if whole.fullmatch(other) is not None)
        match = next((match for end in ends if (match := end.search(first)) is not None and match.start()), None)
        if match is None:
            return []
        members.append(first[: match.start()] + other)
    return members if len(members) > 1 else []
