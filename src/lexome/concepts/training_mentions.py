"""Mentions of annotated documents with their concepts: names as authors write them."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from lexome.concepts.abbreviations import find_abbreviations, long_forms
from lexome.concepts.names import name_key
from lexome.concepts.species_context import SpeciesContext
from lexome.document import Document, Span

Ids = tuple[str, ...]
_GENE_PREFIX = "NCBIGene:"


class TrainingMentions:
    """How often each mention of a type was annotated with which concepts, by name key.

        linker = Linker([index], mentions=TrainingMentions(docs))

    A short form that its document defines counts for its long form, because elsewhere it stands for something else.
    """

    def __init__(self, docs: Iterable[Document] = ()) -> None:
        self._counts: defaultdict[tuple[str, str], Counter[Ids]] = defaultdict(Counter)
        self._concepts: Counter[str] = Counter()
        self._taxa: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for doc in docs:
            self.add(doc)

    def add(self, doc: Document) -> None:
        """Count the mentions of a document that have concepts."""
        forms = long_forms(find_abbreviations(doc))
        species = _species_of(doc)
        for span in doc.spans:
            if span.concepts:
                self._counts[span.type, name_key(forms.get(span.text, span.text))][span.concepts] += 1
                self._concepts.update(span.concepts)
                if species is not None and span.concepts[0].startswith(_GENE_PREFIX):
                    for concept in span.concepts:
                        self._taxa[concept][species] += 1

    def shares(self, text: str, type: str) -> Mapping[Ids, float]:
        """The fraction of the mentions of this name that each tuple of concepts has; empty for an unknown name."""
        counts = self._counts.get((type, name_key(text)))
        if not counts:
            return {}
        total = sum(counts.values())
        return {ids: count / total for ids, count in counts.most_common()}

    def count_of(self, concept: str) -> int:
        """How often a concept was annotated."""
        return self._concepts[concept]

    def taxon_of(self, concept: str) -> str | None:
        """The species that the documents of a gene are most often about; None for other concepts."""
        taxa = self._taxa.get(concept)
        return taxa.most_common(1)[0][0] if taxa else None

    def __len__(self) -> int:
        return len(self._counts)


def _species_of(doc: Document) -> str | None:
    """The species that a document speaks of most, or None."""
    mentions = ((span.start, span.concepts[0], 1.0) for span in doc.spans if _names_species(span))
    taxa = SpeciesContext(doc, mentions).taxa
    return max(taxa, key=lambda taxon: (taxa[taxon], taxon)) if taxa else None


def _names_species(span: Span) -> bool:
    return bool(span.concepts) and span.concepts[0].startswith("NCBITaxon:")
