"""Document metadata: ids, journal, dates, authors, MeSH headings, license, notices."""

from dataclasses import MISSING, dataclass, fields
from functools import update_wrapper
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def fast_dataclass(cls: type[T]) -> type[T]:
    """`@dataclass(frozen=True, slots=True)` with a faster constructor, for the classes of the document model.

    The constructor of a frozen dataclass calls object.__setattr__ for each field, which took a tenth of the time
    of reading a file; this one calls the slot descriptors. Everything else (fields, replace, equality,
    FrozenInstanceError) is the dataclass's own. Records that are not built by the million use plain dataclasses.
    """
    decorated: type[Any] = dataclass(frozen=True, slots=True)(cls)
    names = [field.name for field in fields(decorated)]
    scope: dict[str, Any] = {f"_set_{name}": getattr(decorated, name).__set__ for name in names}
    parameters = []
    for field in fields(decorated):
        parameters.append(field.name)
        if field.default is not MISSING:
            scope[f"_default_{field.name}"] = field.default
            parameters[-1] += f"=_default_{field.name}"
    lines = [f"_set_{name}(self, {name})" for name in names]
    if hasattr(decorated, "__post_init__"):
        lines.append("self.__post_init__()")
    exec(f"def __init__(self, {', '.join(parameters)}):\n " + "\n ".join(lines), scope)
    decorated.__init__ = update_wrapper(scope["__init__"], decorated.__init__)
    del decorated.__init__.__wrapped__
    return decorated


@fast_dataclass
class Journal:
    """The journal of an article, with volume, issue and pages."""

    title: str | None = None
    abbreviation: str | None = None
    issn: tuple[str, ...] = ()
    nlm_id: str | None = None
    volume: str | None = None
    issue: str | None = None
    pages: str | None = None


@fast_dataclass
class Author:
    """A person, or a group where only `collective` is set."""

    family: str | None = None
    given: str | None = None
    initials: str | None = None
    collective: str | None = None
    orcid: str | None = None
    affiliations: tuple[str, ...] = ()


@fast_dataclass
class MeshQualifier:
    """A MeSH subheading, such as metabolism."""

    name: str
    id: str | None = None
    major: bool = False


@fast_dataclass
class MeshHeading:
    """A MeSH descriptor with its qualifiers; `major` marks a main topic of the article."""

    name: str
    id: str | None = None
    major: bool = False
    qualifiers: tuple[MeshQualifier, ...] = ()


@fast_dataclass
class Substance:
    """A chemical or protein assigned by the indexers, with its registry number if it has one."""

    name: str
    id: str | None = None
    registry_number: str | None = None


@fast_dataclass
class Notice:
    """A link to another citation: retraction, erratum, comment, republication.

    `kind` is PubMed's RefType: "RetractionIn", "ErratumFor", ...
    """

    kind: str
    pmid: str | None = None
    citation: str | None = None


@fast_dataclass
class ClinicalNote:
    """Hospital-record fields of a clinical note. The ids are those of the record system."""

    subject: str | None = None
    admission: str | None = None
    category: str | None = None
    description: str | None = None
    caregiver: str | None = None
    chart_date: str | None = None
    chart_time: str | None = None
    store_time: str | None = None
    error: bool = False


@fast_dataclass
class Metadata:
    """Metadata of one document. Dates are ISO with the precision of the source: 2021, 2021-03 or 2021-03-09."""

    pmid: str | None = None
    pmcid: str | None = None
    doi: str | None = None
    other_ids: tuple[str, ...] = ()
    version: int | None = None
    deleted: bool = False
    part_of: str | None = None
    article_types: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()
    journal: Journal | None = None
    published: str | None = None
    revised: str | None = None
    authors: tuple[Author, ...] = ()
    mesh: tuple[MeshHeading, ...] = ()
    substances: tuple[Substance, ...] = ()
    keywords: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    notices: tuple[Notice, ...] = ()
    licence: str | None = None
    licence_url: str | None = None
    copyright: str | None = None
    note: ClinicalNote | None = None

    @property
    def retracted(self) -> bool:
        """Whether PubMed marks this article as retracted (not: as a retraction notice)."""
        return "Retracted Publication" in self.article_types or any(
            notice.kind == "RetractionIn" for notice in self.notices
        )
