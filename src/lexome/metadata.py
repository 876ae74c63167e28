"""Document metadata: ids, journal, dates, authors, MeSH headings, license, notices."""

from lexome.frozen import fast_dataclass


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
    license: str | None = None
    license_url: str | None = None
    copyright: str | None = None
    note: ClinicalNote | None = None

    @property
    def retracted(self) -> bool:
        """Whether PubMed marks this article as retracted (not: as a retraction notice)."""
        return "Retracted Publication" in self.article_types or any(
            notice.kind == "RetractionIn" for notice in self.notices
        )
