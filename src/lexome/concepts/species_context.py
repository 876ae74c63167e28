"""Which species a place of a document speaks of: from its species mentions, cell lines and words like "patients"."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from lexome.document import Document

HUMAN, MOUSE, RAT = "NCBITaxon:9606", "NCBITaxon:10090", "NCBITaxon:10116"

# Words that tell the species where no mention was annotated, or none was linked.
_CUES = {
    HUMAN: "human humans patient patients man men woman women child children participants volunteers people infants",
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
# Cell lines that tell their species, which not every dictionary of them has.
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
# A word with its hyphens: a cue is one, or what it begins with before a hyphen.
_WORD = re.compile(r"(?<![\w-])\w[\w-]*")
# Popular names that a taxonomy gives to a genus, a strain or nothing at all.
_POPULAR = {
    HUMAN: "human humans patient patients man men woman women child children participant participants volunteer "
    "volunteers people person persons infant infants boy boys girl girls inpatient inpatients outpatient outpatients",
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
}
POPULAR_SPECIES = {name: taxon for taxon, names in _POPULAR.items() for name in names.split()}
POPULAR_TAXA = frozenset(_POPULAR)
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
# A human gene is meant where nothing tells otherwise.
_PRIOR = {HUMAN: 0.6, MOUSE: 0.15, RAT: 0.05}
_SENTENCE_END = re.compile(r"[.?!]\s+(?=[A-Z])")
_NEAR = 25


def _find_cues(text: str) -> Iterator[tuple[int, tuple[str, float]]]:
    """The places of words that tell the species, with its taxon and how much it counts."""
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


class SpeciesContext:
    """The species of a document, and how likely each is at a place."""

    def __init__(self, doc: Document, mentions: Iterable[tuple[int, str, float]] = ()) -> None:
        """`mentions` are places with a taxon and a weight: a species mention counts 1, a cell line less."""
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
        """The taxa in the sentence of a mention, 1 directly before it, less for those farther away or behind it."""
        low, high = self._sentence(start)
        near: dict[str, float] = {}
        for place, taxon, weight in self._places:
            if low <= place < high:
                distance = start - place if place < start else 2 * max(0, place - end)
                value = weight if place < start and distance <= _NEAR else 0.5 * weight
                near[taxon] = max(value, near.get(taxon, 0.0))
        return near

    def _sentence(self, place: int) -> tuple[int, int]:
        low = 0
        for end in self._ends:
            if place < end:
                return low, end
            low = end
        return low, place + 1
