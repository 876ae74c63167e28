"""Words that stand for each other in names of diseases and chemicals, and nouns for adjectives of diseases.

The groups of diseases are those that MeSH's and the Disease Ontology's synonyms show to be interchangeable (two names
of a concept differ in just these words, for three concepts or more), without the pairs that mean different things
elsewhere, and words of clinical prose for them.
"""

import re
from collections.abc import Iterator

from lexome.concepts.names import fold_name, name_key

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


def rewritten(text: str, type: str) -> Iterator[str]:
    """Other ways to say the whole mention: the noun of an adjective, "renal insufficiency" for bad renal function.

    Of a chemical: the acid of a salt, "glutamic acid" for glutamate.
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
