"""Scores of linking candidates: a linear function of features, with weights for each type.

The features describe the name that agrees, the mention, the document and its species. `benchmarks/linking_weights.py`
learns the weights and fits the curve that turns the score of the best candidate into a probability. `TrainingMentions`
adds evidence from annotated documents.
"""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources

from lexome.concepts.abbreviations import find_abbreviations, long_forms
from lexome.concepts.index import TermIndex
from lexome.concepts.names import Agreement, fold_name, name_key
from lexome.document import Document, Span
from lexome.frozen import fast_dataclass

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
    "popular",  # the species, cell line or gene that a popular name means
    "words of the long form",  # of a gene's short form, the weighted fraction that the gene's names have
    "bracketed",  # the gene also has the name in brackets after the mention, or before the brackets around it
)
# These are equal for all candidates of a mention: they affect the probability of the best one, but not the ranking.
CONSTANT = ("other species", "other species nearby")
PLACE = {name: place for place, name in enumerate(FEATURES)}

# Words that distinguish few concepts.
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
    return _coverage(first, second), _coverage(second, first)


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


def _coverage(words: Iterable[str], others: Iterable[str]) -> float:
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


# The species that each part of a document is about, from its mentions, cell lines and words like "patients"

HUMAN, MOUSE, RAT = "NCBITaxon:9606", "NCBITaxon:10090", "NCBITaxon:10116"

# Words that indicate the species if no mention of it was annotated or linked.
_CUES = {
    HUMAN: "human humans patient patients man men woman women child children participants volunteers people infants "
    "xenograft xenografts",
    MOUSE: "mouse mice murine",
    RAT: "rat rats",
    "NCBITaxon:7227": "drosophila melanogaster fly flies",
    "NCBITaxon:6239": "elegans nematode nematodes worm worms",
    "NCBITaxon:7955": "zebrafish danio",
    "NCBITaxon:559292": "yeast cerevisiae",
    "NCBITaxon:284812": "pombe",
    "NCBITaxon:3702": "arabidopsis thaliana",
    "NCBITaxon:9031": "chicken chick chickens avian",
    "NCBITaxon:8355": "xenopus laevis",
    "NCBITaxon:9913": "bovine cattle cow cows",
    "NCBITaxon:9823": "pig pigs porcine swine",
    "NCBITaxon:9615": "dog dogs canine",
    "NCBITaxon:9986": "rabbit rabbits",
    "NCBITaxon:562": "coli",
}
# Cell lines that indicate their species, which some dictionaries lack.
_CELL_LINES = {
    HUMAN: "hela mcf7 mcf-7 mcf10a mcf-10a hek293 hek293t hek-293 293t a549 hepg2 hep-g2 huh7 huh-7 jurkat k562 u2os "
    "u-2 hct116 hct-116 ht29 ht-29 sw480 caco-2 caco2 lncap pc3 pc-3 du145 mda-mb-231 t47d t-47d skbr3 hl-60 hl60 "
    "thp-1 thp1 u937 huvec huvecs sh-sy5y imr-90 u87 u251 h1299 rpe1 saos-2",
    MOUSE: "3t3 3t3-l1 raw264 raw c2c12 mef mefs b16 4t1 neuro2a n2a bv2 bv-2 l929 ct26 min6",
    RAT: "pc12 h9c2 ins-1 ins1",
}
CELL_LINE_WEIGHT = 0.8
_TAXON_OF_CUE = {
    word: (taxon, weight)
    for table, weight in ((_CELL_LINES, CELL_LINE_WEIGHT), (_CUES, 1.0))
    for taxon, words in table.items()
    for word in words.split()
}
# Each symbol counts once: "Ctr9" has the capitals of genes of mice and rats, and "Ctr9-/-" is a knockout.
_RODENT_SYMBOL = re.compile(r"[A-Z][a-z]+\d[a-z0-9]*")
_KNOCKED_OUT = re.compile(r"\s*(?:\(?[-−–+]/[-−–]\)?|null\b|KO\b)")
_RODENT_SYMBOL_WEIGHT, _KNOCKOUT_WEIGHT = 0.1, 3.0
# A word with its hyphens; a cue is such a word, or its beginning before a hyphen.
_WORD = re.compile(r"(?<![\w-])\w[\w-]*")
# Popular names that a taxonomy gives to a genus, a strain, another virus or nothing at all.
_POPULAR = {
    HUMAN: "human humans patient patients man men woman women child children participant participants volunteer "
    "volunteers people person persons infant infants boy boys girl girls inpatient inpatients outpatient outpatients "
    "neonate neonates newborn newborns toddler toddlers adolescent adolescents mother mothers veteran veterans",
    MOUSE: "mouse mice murine",
    RAT: "rat rats",
    "NCBITaxon:7227": "drosophila fly flies fruitfly",
    "NCBITaxon:6239": "worm worms elegans",
    "NCBITaxon:4932": "yeast yeasts",
    "NCBITaxon:3702": "arabidopsis",
    "NCBITaxon:8355": "xenopus",
    "NCBITaxon:562": "ecoli",
    "NCBITaxon:9031": "chicken chickens chick chicks",
    "NCBITaxon:9913": "cow cows cattle bovine",
    "NCBITaxon:9823": "pig pigs porcine swine",
    "NCBITaxon:9615": "dog dogs canine",
    "NCBITaxon:9986": "rabbit rabbits",
    "NCBITaxon:9940": "sheep ovine",
    "NCBITaxon:10141": "guineapig guineapigs",
    "NCBITaxon:7955": "zebrafish",
    "NCBITaxon:4530": "o.sativa",
    "NCBITaxon:6182": "s.japonicum",
    "NCBITaxon:1765": "m.bovis",
    "NCBITaxon:10359": "cmv hcmv",
    "NCBITaxon:12814": "rsv",
}
POPULAR_SPECIES = {name: taxon for taxon, names in _POPULAR.items() for name in names.split()}
POPULAR_TAXA = frozenset(_POPULAR)
# The gene that texts usually mean by a short name of several genes, by human symbol. NCBI Gene lists p21 for eight
# genes and PSA for five, and the number of a gene's names says little about how often authors mention it.
_POPULAR_GENES = {
    "ABCB1": "P-gp",
    "ABCG2": "BCRP",
    "ACACA": "ACC",
    "ACP5": "TRAP",
    "ACTB": "beta-actin",
    "AGER": "RAGE",
    "AKT1": "PKB",
    "ALPL": "ALP",
    "CALCA": "CGRP",
    "CDK1": "cdc2",
    "CDKN1A": "p21",
    "CDKN1C": "p57",
    "CDKN2B": "p15",
    "CEACAM5": "CEA",
    "CKM": "CK",
    "CREBBP": "CBP",
    "CRH": "CRF",
    "DVL1": "Dvl",
    "ERRFI1": "Mig6",
    "F2R": "PAR1",
    "F2RL1": "PAR2",
    "FOLH1": "PSMA",
    "FSHB": "FSH",
    "GOT1": "AST",
    "IGHM": "IgM",
    "IL2RA": "CD25",
    "ITGB2": "CD18",
    "KLK3": "PSA",
    "LHB": "LH",
    "LY6A": "Sca1",
    "MAP1LC3B": "LC3",
    "MAP2K1": "MEK",
    "MAP3K14": "NIK",
    "MAP3K7": "TAK1",
    "MAPK1": "ERK",
    "MAPK14": "p38",
    "MAPK6": "ERK3",
    "MB21D1": "cGAS",
    "MME": "NEP",
    "NBN": "NBS1",
    "NCOA1": "SRC1",
    "NCOA2": "SRC2",
    "NFE2L2": "Nrf2",
    "NGFR": "p75",
    "PGR": "PR",
    "PLA2G4A": "cPLA2",
    "PLN": "PLB",
    "PLP1": "PLP",
    "PPP1CA": "PP1",
    "PRKAA1": "AMPK",
    "PRKACA": "PKA",
    "PRKCA": "PKC",
    "PROC": "protein C",
    "PTGS1": "COX1",
    "PTGS2": "COX2",
    "PYCARD": "ASC",
    "RAB11FIP1": "RCP",
    "RAF1": "RAF",
    "RARA": "RAR",
    "RBL2": "p130",
    "RELA": "p65",
    "RPS6": "S6",
    "S100A8": "MRP8",
    "S100A9": "MRP14",
    "SLC16A1": "MCT1",
    "SLC6A2": "NET",
    "SMN1": "SMN",
    "SP7": "OSX",
    "TNFRSF10D": "DcR2",
    "TNFRSF11B": "OPG",
    "TP73": "p73",
    "TYMS": "TS",
}
POPULAR_GENES = {(name_key(name), symbol) for symbol, name in _POPULAR_GENES.items()}


def is_popular_name(name: str, symbol: str) -> bool:
    """Whether texts usually mean the gene with this symbol by a name of several genes."""
    return (name_key(name), symbol.upper()) in POPULAR_GENES


# A strain or a parent stands for the species whose genes a dictionary has.
SAME_SPECIES = {
    "NCBITaxon:4932": "NCBITaxon:559292",
    "NCBITaxon:4896": "NCBITaxon:284812",
    "NCBITaxon:83333": "NCBITaxon:562",
    "NCBITaxon:511145": "NCBITaxon:562",
    "NCBITaxon:10095": MOUSE,
    "NCBITaxon:10088": MOUSE,
    "NCBITaxon:10114": RAT,
    "NCBITaxon:9605": HUMAN,
    "NCBITaxon:7215": "NCBITaxon:7227",
}
# Without other evidence, a gene is assumed to be human.
_PRIOR = {HUMAN: 0.6, MOUSE: 0.15, RAT: 0.05}
_SENTENCE_END = re.compile(r"[.?!]\s+(?=[A-Z])")
_NEAR = 25


def _find_cues(text: str) -> Iterator[tuple[int, tuple[str, float]]]:
    """The offsets of words that indicate a species, with its taxon and their weight."""
    lowered = text.lower()
    if len(lowered) != len(text):  # İ has two characters in lower case
        each = ((match.start(), _cue_of(match[0].lower())) for match in _WORD.finditer(text))
        yield from ((start, cue) for start, cue in each if cue is not None)
        return
    cues = {word: cue for word in set(_WORD.findall(lowered)) if (cue := _cue_of(word)) is not None}
    for word, cue in cues.items():
        start = lowered.find(word)
        while start >= 0:
            end = start + len(word)
            around = lowered[max(0, start - 1) : start] + lowered[end : end + 1]
            if not any(character.isalnum() or character in "_-" for character in around):
                yield start, cue
            start = lowered.find(word, end)


def _cue_of(word: str) -> tuple[str, float] | None:
    """The taxon and weight of a word, or of its longest beginning before a hyphen."""
    while (cue := _TAXON_OF_CUE.get(word)) is None and "-" in word:
        word = word.rpartition("-")[0]
    return cue


def _rodent_evidence(doc: Document, genes: Iterable[Span]) -> float:
    """The weight of gene symbols that are spelled like those of mice and rats."""
    weights: dict[str, float] = {}
    for span in genes:
        if span.text[:1].isupper() and span.text[1:] == span.text[1:].lower():
            passage = doc.passage_at(span.start)
            if passage is not None and _KNOCKED_OUT.match(passage.text, span.end - passage.offset):
                weights[span.text] = _KNOCKOUT_WEIGHT
            elif _RODENT_SYMBOL.fullmatch(span.text):
                weights.setdefault(span.text, _RODENT_SYMBOL_WEIGHT)
    return sum(weights.values())


class SpeciesContext:
    """The species that a document is about, and those mentioned near a given offset."""

    def __init__(
        self, doc: Document, mentions: Iterable[tuple[int, str, float]] = (), genes: Iterable[Span] = ()
    ) -> None:
        """`mentions` are offsets with a taxon and a weight: 1 for a species mention, less for a cell line.

        The spelling of `genes` indicates whether the document is about rodents.
        """
        self._places: list[tuple[int, str, float]] = [
            (place, SAME_SPECIES.get(taxon, taxon), weight) for place, taxon, weight in mentions
        ]
        known = {place for place, _, _ in self._places}
        self._ends: list[int] = []
        for passage in doc.passages:
            for start, (taxon, weight) in _find_cues(passage.text):
                place = passage.offset + start
                if place not in known:
                    self._places.append((place, taxon, weight))
            self._ends += [passage.offset + match.end() for match in _SENTENCE_END.finditer(passage.text)]
            self._ends.append(passage.end + 1)
        self._places.sort()
        self._document: dict[str, float] = defaultdict(float)
        title_end = doc.passages[0].end if doc.passages else 0
        for place, taxon, weight in self._places:
            self._document[taxon] += weight * (2 if place < title_end else 1)
        if (weight := _rodent_evidence(doc, genes)) > 0:
            self._document[RAT if self._document[RAT] > self._document[MOUSE] else MOUSE] += weight
        self._total = sum(self._document.values())

    @property
    def taxa(self) -> Mapping[str, float]:
        """The fraction of the document's species mentions that each taxon has."""
        return {taxon: count / self._total for taxon, count in self._document.items()} if self._total else {}

    def share(self, taxon: str) -> float:
        """How much of the document is about a taxon, with a prior for human, mouse and rat."""
        prior = _PRIOR.get(taxon, 0.01)
        return (self._document.get(taxon, 0.0) + prior) / (self._total + 1)

    def nearby(self, start: int, end: int) -> Mapping[str, float]:
        """Weights of the taxa in the sentence of a mention: in full inside it or directly before it, else half."""
        low, high = self._sentence(start)
        named = any(start <= place < end for place, _, _ in self._places)
        before = max((place for place, _, _ in self._places if start - _NEAR <= place < start), default=None)
        near: dict[str, float] = {}
        for place, taxon, weight in self._places:
            if low <= place < high:
                is_close = start <= place < end if named else place == before
                near[taxon] = max(weight if is_close else 0.5 * weight, near.get(taxon, 0.0))
        return near

    def _sentence(self, place: int) -> tuple[int, int]:
        low = 0
        for end in self._ends:
            if place < end:
                return low, end
            low = end
        return low, place + 1


# Training mentions: the concepts of annotated mentions, by name

Ids = tuple[str, ...]
GENE_PREFIX = "NCBIGene:"
# The vote that a shared name gives for two genes being the same, by agreement.
_VOTES = {Agreement.EXACT: 1.0, Agreement.CASE: 1.0, Agreement.FOLDED: 0.8, Agreement.LOOSE: 0.5, None: 0.0}
_ORTHOLOG_VOTE, _SYMBOL_VOTES = 0.5, 2.0
# The best gene must have this many times the votes of the next one.
_CLEAR = 1.3


class TrainingMentions:
    """How often each mention of a type was annotated with which concepts, by name key.

        linker = Linker([index], mentions=TrainingMentions(docs))

    A short form that its document defines counts for its long form, because elsewhere it stands for something else.
    """

    def __init__(self, docs: Iterable[Document] = ()) -> None:
        self._counts: defaultdict[tuple[str, str], Counter[Ids]] = defaultdict(Counter)
        self.concepts: Counter[str] = Counter()
        self.gene_names: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.gene_taxa: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        for doc in docs:
            self.add(doc)

    def add(self, doc: Document) -> None:
        """Count the mentions of a document that have concepts."""
        forms = long_forms(find_abbreviations(doc))
        species = SpeciesContext(doc, ((s.start, s.concepts[0], 1.0) for s in doc.spans if _names_species(s)))
        for span in doc.spans:
            if not span.concepts:
                continue
            name = forms.get(span.text, span.text)
            self._counts[span.type, name_key(name)][span.concepts] += 1
            self.concepts.update(span.concepts)
            if span.concepts[0].startswith(GENE_PREFIX):
                taxa = species.nearby(span.start, span.end) or species.taxa
                for concept in span.concepts:
                    for form in dict.fromkeys((name, span.text)):
                        self.gene_names[concept][form] += 1
                    for taxon, share in taxa.items():
                        self.gene_taxa[concept][taxon] += share

    def shares(self, text: str, type: str, group: Callable[[str], str] | None = None) -> Mapping[str, float]:
        """The fraction of the mentions of this name that each concept has; empty for an unknown name.

        With `group`, the fraction of each group of concepts, such as the genes of several species with one symbol.
        """
        counts = self._counts.get((type, name_key(text)))
        if not counts:
            return {}
        own: Counter[str] = Counter()
        for ids, count in counts.items():
            own.update(dict.fromkeys(ids if group is None else map(group, ids), count))
        return {one: count / counts.total() for one, count in own.items()}

    def __len__(self) -> int:
        return len(self._counts)


@fast_dataclass
class KnownGenes:
    """The genes of training mentions: the genes of the dictionary that they are equal to, and their species.

    same   the id in the training mentions by the id in the dictionary: MGI:96680 is NCBIGene:16653
    taxa   species by id, of the training mentions and of the dictionary
    """

    same: Mapping[str, str]
    taxa: Mapping[str, str]


def match_genes(mentions: TrainingMentions, indexes: Sequence[TermIndex], type: str = "Gene") -> KnownGenes:
    """Match annotated genes to genes of dictionaries that have other ids, by names and species.

    Dictionaries of mouse and rat genes have MGI's and RGD's ids, annotations those of NCBI. An annotated gene matches
    the gene that most of its names agree with, among genes of the species that its documents are about, or the gene
    with the symbol of the human gene that they agree with. If several annotated genes match the same gene, the one with
    most votes wins, since wrong annotations have few.
    """
    taxa: dict[str, str] = {}
    unknown: dict[str, dict[str, float]] = {}
    sharing: Counter[tuple[str, str]] = Counter()
    for gene, names in sorted(mentions.gene_names.items()):
        known = next((concept for index in indexes if (concept := index.concept_of(gene)) is not None), None)
        if known is not None:
            if known.taxon is not None:
                taxa[gene] = known.taxon
            continue
        # A human gene would be in the dictionary.
        total = sum(mentions.gene_taxa[gene].values())
        shares = {taxon: share / total for taxon, share in mentions.gene_taxa[gene].items() if taxon != HUMAN and share}
        if shares:
            taxa[gene] = max(shares, key=lambda taxon: (shares[taxon], taxon))
            unknown[gene] = {taxon: share for taxon, share in shares.items() if share > max(shares.values()) / 2}
            sharing.update((name, taxa[gene]) for name in set(map(name_key, names)))
    ranked: list[tuple[float, str, str, str]] = []
    for gene, shares in unknown.items():
        # A name of two genes, such as "ERK", counts half for each.
        weights = {
            name: math.sqrt(count) / sharing[name_key(name), taxa[gene]]
            for name, count in mentions.gene_names[gene].items()
        }
        votes, taxon_of = _vote(weights, shares, indexes, type)
        best = sorted(votes.items(), key=lambda item: (-item[1], item[0]))[:2]
        if best and (len(best) == 1 or best[0][1] > _CLEAR * best[1][1]):
            ranked.append((best[0][1], best[0][0], gene, taxon_of[best[0][0]]))
    same: dict[str, str] = {}
    for _, own, gene, taxon in sorted(ranked, key=lambda row: (-row[0], row[1], row[2])):
        if own not in same:
            same[own] = gene
            taxa[gene] = taxon
    return KnownGenes(same, taxa)


def _vote(
    names: Mapping[str, float], shares: Mapping[str, float], indexes: Sequence[TermIndex], type: str
) -> tuple[dict[str, float], dict[str, str]]:
    """The votes of an annotated gene's names for each mouse and rat gene, and the species of these genes.

    `names` maps names to weights and `shares` species to fractions. A symbol counts more than a synonym, which other
    genes may have too.
    """
    votes: defaultdict[str, float] = defaultdict(float)
    taxon_of: dict[str, str] = {}
    for name, weight in names.items():
        found = [(match, index.concept(match.concept)) for index in indexes for match in index.find(name, type)]
        symbols = {concept.preferred for _, concept in found if concept.taxon == HUMAN}
        orthologs = [
            (None, concept)
            for symbol in sorted(symbols)
            for index in indexes
            for match in index.find(symbol, type)
            if (concept := index.concept(match.concept)).preferred.upper() == symbol.upper()
        ]
        best: dict[str, float] = {}
        for match, concept in (*found, *orthologs):
            if concept.taxon in (MOUSE, RAT) and concept.taxon in shares:
                vote = _ORTHOLOG_VOTE if match is None else _VOTES[match.agreement]
                if name_key(name) == name_key(concept.preferred) or is_popular_name(name, concept.preferred):
                    vote *= _SYMBOL_VOTES
                best[concept.id] = max(vote * shares[concept.taxon], best.get(concept.id, 0.0))
                taxon_of[concept.id] = concept.taxon
        for own, vote in best.items():
            votes[own] += weight * vote
    return votes, taxon_of


def _names_species(span: Span) -> bool:
    return bool(span.concepts) and span.concepts[0].startswith("NCBITaxon:")
