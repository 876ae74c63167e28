"""Linking as a step of annotation: names of the user's dictionaries, definitions of abbreviations, and concept ids.

    concepts = ConceptOptions(terms=("antibodies.tsv",), find=True).open()
    doc = concepts.apply(doc, selection)

It follows the models that find mentions and precedes those that relate them, wherever documents are annotated: in
Python, on the command line, in bulk and in the service. Without dictionaries and linking there is no such step.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lexome.concepts.abbreviations import annotate_abbreviations
from lexome.concepts.index import TermIndex, default_index, default_terms, preferred_name
from lexome.concepts.linker import Explanation, Linker
from lexome.concepts.matcher import CaseRule
from lexome.concepts.user_terms import TermFinder, disagreements, dropped_terms, open_terms, split_type
from lexome.document import Document
from lexome.errors import FormatError, UsageError
from lexome.files import file_sha256
from lexome.formats import get_format, option_parameters

# Incremented when the same dictionaries would give other ids than before.
VERSION = 4


@dataclass(frozen=True, slots=True)
class ConceptOptions:
    """How mentions are linked and names are found, after the models.

    link           give mentions the ids of their concepts
    terms          dictionaries of the user, each FILE or TYPE=FILE, searched before the package's index
    only_terms     link with these dictionaries only
    find           find their names in text, as mentions of their types
    case           whether these names have to match in case
    abbreviations  add short forms, long forms and the relation between them
    min_score      the minimum probability of a concept; by default the linker's own, by type
    """

    link: bool = True
    terms: tuple[str, ...] = ()
    only_terms: bool = False
    find: bool = False
    case: CaseRule = "auto"
    abbreviations: bool = False
    min_score: float | None = None

    def __post_init__(self) -> None:
        needs_terms = {"--find": self.find, "--only-terms": self.only_terms, "--case": self.case != "auto"}
        wrong = next((name for name, is_set in needs_terms.items() if is_set and not self.terms), None)
        if wrong is not None:
            message = f"{wrong} needs a dictionary. Name one with --terms FILE, in Python with terms=."
            raise UsageError(message, code="missing-terms", value=wrong)
        if self.terms and not (self.link or self.find):
            message = (
                "--terms with --no-link has no effect unless --find is given. Remove one of the two, or add --find."
            )
            raise UsageError(message, code="conflicting-options", value="--terms")
        if self.terms and self.case != "auto" and not self.find:
            message = "--case is for finding the names of --terms in text. Add --find, or remove --case."
            raise UsageError(message, code="conflicting-options", value="--case")
        if self.min_score is not None and not self.link:
            message = "--min-link-score is for ids, and --no-link leaves them out. Remove one of the two."
            raise UsageError(message, code="conflicting-options", value="--min-link-score")
        if self.min_score is not None and not 0 <= self.min_score <= 1:
            message = f"the minimum probability of an id is {self.min_score}; expected 0 to 1."
            raise UsageError(message, code="out-of-range", value=self.min_score)

    def open(self) -> "Concepts | None":
        """The step, or None if there is nothing to do."""
        return Concepts(self) if self.link or self.find or self.abbreviations else None

    def identity(self) -> dict[str, Any]:
        """Everything that the result depends on, with the hashes of all dictionaries."""
        terms = [split_type(option) for option in self.terms]
        files: list[dict[str, str | None]] = [{"type": type, "sha256": _sha256(path)} for type, path in terms]
        if self.link and not self.only_terms:
            files.append({"type": None, "sha256": _sha256(default_terms())})
        options: dict[str, Any] = {
            "link": self.link,
            "find": self.find,
            "case": self.case,
            "abbreviations": self.abbreviations,
        }
        options |= {} if self.min_score is None else {"min_score": self.min_score}
        return {"version": VERSION, "terms": files, **options}

    def absolute(self) -> "ConceptOptions":
        """These options with absolute paths, for processes with another current folder."""
        terms = (split_type(option) for option in self.terms)
        paths = tuple(f"{type}={path.absolute()}" if type else str(path.absolute()) for type, path in terms)
        return replace(self, terms=paths)


class Concepts:
    """Opened dictionaries and the linker; `apply` completes an annotated document.

    types    mention types that it finds by name
    dropped  terms of the user's tables and OBO files that cannot be indexed or that an earlier dictionary contradicts,
             counted by file and reason
    """

    def __init__(self, options: ConceptOptions) -> None:
        self.options = options
        self.linker: Linker | None = None
        self.finder: TermFinder | None = None
        indexes: list[TermIndex] = []
        self.dropped: Counter[str] = Counter()
        if options.terms:
            split = [split_type(option) for option in options.terms]
            indexes = [open_terms(path, type=type) for type, path in split]
            for index in indexes:
                self.dropped.update(dropped_terms(index))
            self.dropped.update(disagreements(indexes))
            if options.find:
                self.finder = TermFinder(indexes, case=options.case)
        if options.link and not options.only_terms:
            indexes = [*indexes, default_index()]
        self._own = indexes[: len(options.terms)]
        self._indexes = indexes
        if options.link:
            self.linker = Linker(indexes, threshold=options.min_score)
        self.types = self.finder.types if self.finder is not None else ()

    def unused(self, types: Collection[str]) -> Counter[str]:
        """Notes on the user's dictionaries of types that no mention has, with their numbers of terms.

        Unless names are searched in the text, too, no result has a term of theirs.
        """
        if self.options.find:
            return Counter()
        linked = {type if self.linker is None else self.linker.linked_type(type) for type in types}
        return Counter(
            {
                f"{Path(index.name).name}: no mention has the type of its terms, {', '.join(index.types)}: add --find, "
                f"or name their type, as in --terms Gene={Path(index.name).name}": len(index)
                for index in self._own
                if linked.isdisjoint(index.types)
            }
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by its options; another process opens the dictionaries again."""
        return type(self), (self.options.absolute(),)

    def only(self, *, link: bool, abbreviations: bool) -> "Concepts":
        """This step for one request, with or without linking and abbreviations."""
        if link and abbreviations == self.options.abbreviations:
            return self
        concepts = copy(self)
        concepts.options = replace(self.options, abbreviations=abbreviations)
        concepts.linker = self.linker if link else None
        return concepts

    def apply(self, doc: Document, types: Collection[str]) -> Document:
        """The document with names found, ids for mentions of `types` that have none, and abbreviations."""
        if self.finder is not None:
            doc = self.finder.find(doc, types=[type for type in self.finder.types if type in types], over=types)
        if self.linker is not None:
            doc = self.linker.link(doc, types=types)
        if self.options.abbreviations:
            doc = next(annotate_abbreviations([doc]))
        return doc

    def explain(self, doc: Document) -> dict[str, Explanation]:
        """Why the mentions of a document have their ids, by span id; empty without linking."""
        return self.linker.explain_all(doc) if self.linker is not None else {}

    def preferred_name(self, concept: str) -> str | None:
        """The preferred name of a concept id, if a dictionary has it."""
        for index in self._indexes:
            if index is default_index():
                name = preferred_name(concept)
            else:
                known = index.concept_of(concept)
                name = None if known is None else known.preferred
            if name is not None:
                return name
        return None

    def about(self) -> dict[str, Any]:
        """Description for JSON: the types that are linked and found, and the dictionaries."""
        linker = self.linker
        names = [entry["name"] for index in linker.indexes for entry in index.dictionaries] if linker else []
        return {"linked_types": sorted(linker.types) if linker else [], "dictionaries": names}


def explanation_record(explanation: Explanation) -> dict[str, Any]:
    """An explanation for JSON: where the mention is, its ids and their probability, and the candidates."""
    span = explanation.span
    return {
        "id": span.id,
        "start": span.start,
        "end": span.end,
        "text": span.text,
        "type": span.type,
        "concepts": list(explanation.concepts),
        "score": round(explanation.score, 4),
        "parts": list(explanation.parts),
        "candidates": [
            {
                "concept": one.concept,
                "name": one.name,
                "preferred": one.preferred,
                "taxon": one.taxon,
                "score": round(one.score, 4),
                "reasons": list(one.reasons),
            }
            for one in explanation.candidates
        ],
    }


def naming_options(format: str, concepts: Concepts | None) -> dict[str, Any]:
    """The writer option for preferred names, for formats that have it."""
    if concepts is None or "preferred_name" not in option_parameters(get_format(format).write_function()):
        return {}
    return {"preferred_name": concepts.preferred_name}


def concept_options(
    *, link: bool = True, terms: str | Path | Sequence[str | Path] = (), find: bool = False
) -> ConceptOptions:
    """Options from Python's arguments, where one dictionary need not be in a list."""
    paths = [terms] if isinstance(terms, str | Path) else terms
    return ConceptOptions(link=link, terms=tuple(map(str, paths)), find=find)


def _sha256(path: Path) -> str:
    try:
        return file_sha256(path)
    except OSError as error:
        message = f"{path}: cannot be opened ({error.strerror}). Check the path of the dictionary."
        raise FormatError(message, code="unreadable-file", value=path) from error
