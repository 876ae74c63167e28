"""Scores of candidates: features of the name that agrees, the mention, the document and the species; weights by type.

The weights were learned by `benchmarks/linking_weights.py`, which also fits the curve that makes the score of the best
candidate a probability.
"""

import json
import math
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources

from lexome.concepts.names import Agreement, fold_name
from lexome.metadata import fast_dataclass

FEATURES = (
    "exact",  # agreement of the matched name with the form, one of four
    "case",
    "folded",
    "loose",
    "similar",  # none of the four; with the similarity of trigrams
    "similarity",
    "misspelling",  # of a similar name: one or two letters differ
    "mention words in name",  # weighted fraction, of similar names
    "name words in mention",
    "long form",  # the form that was looked up is ...
    "mention of an abbreviation",
    "expanded",
    "reduced",
    "substituted",
    "words changed",
    "short",  # a mention of at most four characters
    "preferred",  # the matched name is the concept's preferred one
    "words in preferred",  # else, the weighted fraction of the form's words that the preferred name has
    "trained",  # share of the training mentions of this name that have the concept
    "trained otherwise",  # the name is in the training mentions, with other concepts
    "trained concept",  # logarithm of how often the concept was annotated at all
    "rivals",  # logarithm of the number of concepts with names as close
    "document",  # the concept is a candidate of other mentions of the document
    "taxon",  # logarithm of the share of the gene's species in the document
    "taxon nearby",
    "other taxon nearby",
    "symbol case",  # written as symbols of the species are: "Brca1" of mice
    "names",  # logarithm of the number of names of the concept
    "trained in part",  # as "trained", of a form with words left out or replaced
    "needless form",  # such a form, although a form without changes agrees with another concept
    "plural of the name",  # the mention is a plural and the name is not, or the other way round
    "singular of the name",
    "ortholog",  # the name is that of the human gene with the same symbol
    "other species",  # share of the document's species that no candidate is of, and whether one of these is nearby
    "other species nearby",
    "main vocabulary",  # the id is a descriptor of MeSH
    "popular",  # the species or cell line that a popular name means
)
# The same for all candidates of a mention: they say how likely the best one is right, and nothing of which it is.
CONSTANT = ("other species", "other species nearby")
PLACE = {name: place for place, name in enumerate(FEATURES)}

# Words that say little about which concept a name belongs to.
_COMMON = (
    "a an and by due for from in into of on or the to with type syndrome disease diseases disorder disorders familial "
    "hereditary congenital deficiency acute chronic primary secondary human protein gene acid sodium susceptibility 1 2"
)
_COMMON_WORDS = frozenset(_COMMON.split())
_MIN_STEM, _MAX_ENDING = 5, 3
_LETTERS_PER_ERROR, _MIN_MISSPELLED = 4, 6


@fast_dataclass
class Weights:
    """Weights of the features for one type, the curve of its scores, and the probability below which it abstains."""

    features: tuple[float, ...]
    curve: tuple[float, float, float]
    threshold: float

    def score(self, values: Mapping[str, float]) -> float:
        """The weighted sum of the features."""
        return sum(self.features[PLACE[name]] * value for name, value in values.items())

    def probability(self, score: float, margin: float) -> float:
        """The calibrated probability that the best candidate is right; `margin` is its lead over the next."""
        slope, lead, intercept = self.curve
        odds = slope * score + lead * min(margin, 8.0) + intercept
        return 1 / (1 + math.exp(-max(-30.0, min(30.0, odds))))


@cache
def default_weights() -> Mapping[str, Weights]:
    """The weights that the package has, by type."""
    text = resources.files("lexome.concepts").joinpath("linker_weights.json").read_text(encoding="utf-8")
    return {type: parse_weights(table) for type, table in json.loads(text).items()}


def parse_weights(table: Mapping[str, object]) -> Weights:
    """Weights from a table of JSON: features by name, curve and threshold."""
    features, curve = table["features"], table["curve"]
    assert isinstance(features, dict)
    assert isinstance(curve, list)
    values = tuple(float(features.get(name, 0.0)) for name in FEATURES)
    return Weights(values, (curve[0], curve[1], curve[2]), float(str(table["threshold"])))


def agreement_feature(agreement: Agreement | None) -> str:
    """The name of the feature of a level of agreement."""
    return "similar" if agreement is None else agreement.name.lower()


def word_overlap(form: str, name: str) -> tuple[float, float]:
    """The weighted fractions of the form's words that are in the name, and of the name's words that are in the form.

    Words that agree but for their last letters count half: "ischemic" and "ischemia".
    """
    first, second = fold_name(form).split(), fold_name(name).split()
    return _covered(first, second), _covered(second, first)


def is_misspelling(text: str, name: str) -> bool:
    """Whether the texts differ by one letter, or by two if they have eight: "ibuprophen" and "ibuprofen"."""
    first, second = fold_name(text), fold_name(name)
    shorter = min(len(first), len(second))
    limit = min(2, shorter // _LETTERS_PER_ERROR) if shorter >= _MIN_MISSPELLED else 0
    if first[:1] != second[:1] or abs(len(first) - len(second)) > limit:
        return False
    row = list(range(len(second) + 1))
    for count, letter in enumerate(first, 1):
        above, row[0] = row[0], count
        for place, other in enumerate(second, 1):
            above, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, above + (letter != other))
        if min(row) > limit:
            return False
    return row[-1] <= limit


def _covered(words: Iterable[str], others: Iterable[str]) -> float:
    whole = {_singular(word) for word in others}
    stems = tuple(word[: max(_MIN_STEM, len(word) - _MAX_ENDING)] for word in whole if len(word) > _MIN_STEM)
    total = covered = 0.0
    for word in words:
        weight = 0.3 if word in _COMMON_WORDS else 1.0
        total += weight
        word = _singular(word)
        if word in whole:
            covered += weight
        elif len(word) > _MIN_STEM and word.startswith(stems):
            covered += weight / 2
    return covered / total if total else 0.0


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word[-1] == "s" and word[-2] not in "siu" else word
