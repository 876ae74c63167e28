"""The data sets that linking is trained and measured on, without each other's test articles."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from lexome.concepts.index import TermIndex
from lexome.concepts.terms import Term, TermTable
from lexome.datasets import find
from lexome.document import Document

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "data"
SETS = SHARED / "benchmarks"
MEASURED = ("NCBI-disease-pubtator", "BC5CDR", "BioRED", "NLM-Gene", "linnaeus-pubtator", "GNormPlus")


@cache
def split(name: str, part: str, folder: Path = SETS) -> tuple[Document, ...]:
    """The documents of a split; training and dev splits without articles that are in the test split of any set."""
    docs = find(name, data=folder).split(part)
    return tuple(docs) if part == "test" else tuple(doc for doc in docs if doc.id not in articles_of_tests(folder))


@cache
def articles_of_tests(folder: Path = SETS) -> frozenset[str]:
    """The PMIDs of all test splits."""
    return frozenset(doc.id for name in MEASURED for doc in find(name, data=folder).split("test"))


def medic_index(path: Path) -> TermIndex:
    """An index of MEDIC (Comparative Toxicogenomics Database, July 2012), which may not be shipped.

    Its concepts have the id that MEDIC gives first; the others are cross-references.
    """
    import lzma

    from lexome.concepts.index_writer import write_index

    table = TermTable()
    with lzma.open(SHARED / "terms" / "medic_06Jul2012.txt.xz", "rt", encoding="utf-8-sig") as lines:
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
    """Ids that mean the same disease: MEDIC merges records of MeSH and OMIM, and gold ids are of either."""

    def __init__(self, index: TermIndex | None) -> None:
        self._first = {}
        for concept in index.concepts("Disease") if index is not None else ():
            for other in concept.xrefs:
                self._first.setdefault(other, concept.id)

    def of(self, concepts: Iterable[str]) -> set[str]:
        """The ids, each replaced by the first of its record."""
        return {self._first.get(concept, concept) for concept in concepts}
