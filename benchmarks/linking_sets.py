"""The data sets that linking is trained and measured on, without each other's test articles."""

from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from lexome.concepts.index import TermIndex, default_index
from lexome.concepts.ranking import KnownGenes, TrainingMentions, match_genes
from lexome.concepts.terms import Term, TermTable
from lexome.datasets import find
from lexome.document import Document
from real_data import DATA, DATASETS

ROOT = Path(__file__).resolve().parents[1]
MEASURED = ("NCBI-disease-pubtator", "BC5CDR", "BioRED", "NLM-Gene", "linnaeus-pubtator", "GNormPlus")
# The sets whose genes have ids. Their training mentions are used together: one alone knows few mouse and rat genes.
GENES = ("BioRED", "NLM-Gene", "GNormPlus")


@cache
def split(name: str, part: str, folder: Path = DATASETS) -> tuple[Document, ...]:
    """The documents of a split; training and dev splits without articles that are in the test split of any set."""
    docs = find(name, data=folder).split(part)
    return tuple(docs) if part == "test" else tuple(doc for doc in docs if doc.id not in articles_of_tests(folder))


@cache
def articles_of_tests(folder: Path = DATASETS) -> frozenset[str]:
    """The PMIDs of all test splits."""
    return frozenset(doc.id for name in MEASURED for doc in find(name, data=folder).split("test"))


def medic_index(path: Path) -> TermIndex:
    """An index of MEDIC (Comparative Toxicogenomics Database, July 2012), which may not be shipped.

    Its concepts have the id that MEDIC gives first; the others are cross-references.
    """
    import lzma

    from lexome.concepts.index_writer import write_index

    table = TermTable()
    with lzma.open(DATA / "terms" / "medic_06Jul2012.txt.xz", "rt", encoding="utf-8-sig") as lines:
        for line in lines:
            ids, _, names = line.rstrip("\n").partition("||")
            first, *others = (_curie(id_) for id_ in ids.split("|"))
            preferred, *synonyms = names.split("|")
            table.add(Term(first, "Disease", preferred, tuple(synonyms), xrefs=tuple(others)))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_index(path, table, [{"name": "MEDIC"}], near=("Disease",))
    return TermIndex.open(path)


def _curie(id_: str) -> str:
    return f"mesh:{id_}" if id_[0] in "CD" else f"omim:{id_}"


class Equivalents:
    """Ids that mean the same: MEDIC merges records of MeSH and OMIM, and gold ids are of either.

    With `genes`, also ids of mouse and rat genes: the dictionary has MGI's and RGD's, gold ids are NCBI's.
    """

    def __init__(self, index: TermIndex | None, genes: KnownGenes | None = None) -> None:
        self._first = dict(genes.same) if genes is not None else {}
        for concept in index.concepts("Disease") if index is not None else ():
            for other in concept.xrefs:
                self._first.setdefault(other, concept.id)
        self._matched = frozenset(genes.same.values() if genes is not None else ())

    def of(self, concepts: Iterable[str]) -> set[str]:
        """The ids, each replaced by the first of its record."""
        return {self._first.get(concept, concept) for concept in concepts}

    def judges(self, gold: Iterable[str], concept: str, human: Callable[[str], bool]) -> bool:
        """Whether the gold ids tell if a concept is right: not for a mouse or rat gene whose NCBI id is not known."""
        if not concept.startswith(("MGI:", "RGD:")) or concept in self._first:
            return True
        return any(one in self._matched or human(one) for one in gold)


@cache
def gene_mentions() -> TrainingMentions:
    """The gene mentions of all training splits."""
    return TrainingMentions(doc for name in GENES for doc in split(name, "train"))


@cache
def known_genes() -> KnownGenes:
    """Which genes of the shipped index the annotated ones are, after all training splits."""
    return match_genes(gene_mentions(), [default_index()])
