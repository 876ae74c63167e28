"""The index that comes with Lexome."""

from functools import cache
from importlib.resources import files
from pathlib import Path

from lexome.concepts.index import TermIndex

DEFAULT_TERMS = "default_terms"


@cache
def default_index() -> TermIndex:
    """The index of genes, diseases, chemicals, species and cell lines that comes with Lexome, opened once a process.

    src/lexome/default_terms/README.md has sources, versions and licenses. A damaged file raises FormatError.
    """
    return TermIndex.open(default_terms())


def default_terms() -> Path:
    """The file of the default index."""
    return Path(str(files("lexome") / DEFAULT_TERMS / "default.lexterms"))


def preferred_name(concept: str) -> str | None:
    """The preferred name of a concept id, if the default index has it."""
    found = default_index().concept_of(concept)
    return None if found is None else preferred_names().get(concept, found.preferred)


@cache
def preferred_names() -> dict[str, str]:
    """Preferred names of common species and cell lines, by id.

    The dictionaries of these two types list names without saying which one is preferred, and the index takes the first
    in the alphabet: "boy" for Homo sapiens, "He La" for HeLa.
    """
    table = (files("lexome") / DEFAULT_TERMS / "preferred-names.tsv").read_text(encoding="utf-8")
    rows = (line.split("\t") for line in table.splitlines()[1:])
    return {concept: name for concept, name in rows}
