"""Mentions of annotated documents with their concepts: names as authors write them."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from lexome.concepts.abbreviations import find_abbreviations, long_forms
from lexome.concepts.index import TermIndex
from lexome.concepts.names import Agreement, name_key
from lexome.concepts.ranking import HUMAN, MOUSE, RAT, SpeciesContext
from lexome.document import Document, Span
from lexome.metadata import fast_dataclass

Ids = tuple[str, ...]
GENE_PREFIX = "NCBIGene:"
# How much a name that agrees says for two genes being the same.
_VOTES = {Agreement.EXACT: 1.0, Agreement.CASE: 1.0, Agreement.FOLDED: 0.8, Agreement.LOOSE: 0.5, None: 0.0}
_ORTHOLOG_VOTE = 0.5
# Votes of the best gene and of the next are of different genes where they differ as much.
_CLEAR = 1.5


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
    """The genes of training mentions: those of the dictionary that they are, and the species of each.

    same   the id in the training mentions by the id in the dictionary: MGI:96680 is NCBIGene:16653
    taxa   species by id, of the training mentions and of the dictionary
    """

    same: Mapping[str, str]
    taxa: Mapping[str, str]


def match_genes(mentions: TrainingMentions, indexes: Sequence[TermIndex], type: str = "Gene") -> KnownGenes:
    """Matches annotated genes to those of dictionaries that have other ids, by names and species.

    Dictionaries of mouse and rat genes have the ids of their owners, annotations those of NCBI. An annotated gene is
    the one of the dictionary that most of its names agree with, among genes of the species that its documents are
    about; or the one with the symbol of the human gene that they agree with.
    """
    taxa: dict[str, str] = {}
    ranked: list[tuple[float, str, str, str]] = []
    for gene, names in sorted(mentions.gene_names.items()):
        known = next((concept for index in indexes if (concept := index.concept_of(gene)) is not None), None)
        if known is not None:
            if known.taxon is not None:
                taxa[gene] = known.taxon
            continue
        # A human gene would be in the dictionary.
        weights = {taxon: share for taxon, share in mentions.gene_taxa[gene].items() if taxon != HUMAN}
        if not weights:
            continue
        taxa[gene] = max(weights, key=lambda taxon: (weights[taxon], taxon))
        votes, taxon_of = _vote(names, weights, indexes, type)
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
    names: Mapping[str, int], weights: Mapping[str, float], indexes: Sequence[TermIndex], type: str
) -> tuple[dict[str, float], dict[str, str]]:
    """How much the names of an annotated gene speak for each mouse and rat gene, and the species of these."""
    votes: defaultdict[str, float] = defaultdict(float)
    taxon_of: dict[str, str] = {}
    for name, count in names.items():
        found = [(match, index.concept(match.concept)) for index in indexes for match in index.find(name, type)]
        symbols = {concept.preferred for _, concept in found if concept.taxon == HUMAN}
        orthologs = [
            (None, concept)
            for symbol in sorted(symbols)
            for index in indexes
            for match in index.find(symbol, type)
            if (concept := index.concept(match.concept)).preferred.upper() == symbol.upper()
        ]
        for match, concept in (*found, *orthologs):
            if concept.taxon in (MOUSE, RAT) and concept.taxon in weights:
                vote = _ORTHOLOG_VOTE if match is None else _VOTES[match.agreement]
                votes[concept.id] += count * vote * weights[concept.taxon]
                taxon_of[concept.id] = concept.taxon
    return votes, taxon_of


def _names_species(span: Span) -> bool:
    return bool(span.concepts) and span.concepts[0].startswith("NCBITaxon:")
