"""JATS: the front of an article as metadata, titles, abstracts and notes."""

from pathlib import Path

import pytest
from memory_files import source_of

import lexome
from lexome import Document, Metadata, Tally
from lexome.formats import pmc
from lexome.metadata import Author, Journal, Notice

XLINK = 'xmlns:xlink="http://www.w3.org/1999/xlink"'


def read(meta: str, *, journal: str = "", tally: Tally | None = None, attributes: str = "") -> Document:
    """The document of an article with this article-meta."""
    front = f"<front><journal-meta>{journal}</journal-meta><article-meta>{meta}</article-meta></front>"
    text = f"<article {XLINK} {attributes}>{front}<body><p>Text.</p></body></article>"
    source = source_of("a.nxml", text)
    (doc,) = pmc.read(source, tally=tally or Tally())
    return doc


def facts(meta: str, **more: str) -> Metadata:
    return read(meta, **more).meta  # type: ignore[arg-type]


def told(meta: str) -> list[tuple[str, str, tuple[str, ...], str | None, str | None]]:
    """The passages that come before the body."""
    doc = read(meta, attributes='xml:lang="en"')
    return [(p.kind, p.text, p.section, p.category, p.language) for p in doc.passages[:-1]]


@pytest.mark.parametrize(
    ("ids", "id_"),
    [
        ((("pmid", "1"), ("pmc", "22"), ("doi", "10.1/x")), "PMC22"),
        ((("pmcid", "PMC22"), ("pmid", "1")), "PMC22"),
        ((("pmid", "1"), ("doi", "10.1/x")), "1"),
        ((("doi", "10.1/x"),), "10.1/x"),
        ((("publisher-id", "abc"),), "a-1"),
    ],
)
def test_a_document_is_named_by_the_best_id_there_is(ids: tuple[tuple[str, str], ...], id_: str) -> None:
    meta = "".join(f'<article-id pub-id-type="{kind}">{value}</article-id>' for kind, value in ids)
    assert read(meta).id == id_


def test_ids_have_their_fields_and_others_are_kept_with_their_type() -> None:
    meta = "".join(
        f'<article-id pub-id-type="{kind}">{value}</article-id>'
        for kind, value in (
            ("pmc", "22"), ("pmcid", "PMC22"), ("pmc-ver", "PMC22.3"), ("pmid", "1"), ("doi", "10.1/x"), ("pii", "S1"),
        )
    )  # fmt: skip
    found = facts(meta)
    assert (found.pmcid, found.pmid, found.doi, found.version) == ("PMC22", "1", "10.1/x", 3)
    assert found.other_ids == ("pii:S1",)


def test_the_journal_and_where_in_it() -> None:
    journal = (
        '<journal-id journal-id-type="nlm-ta">J Zorb</journal-id><journal-id journal-id-type="iso-abbrev">J. Zorb.'
        '</journal-id><journal-id journal-id-type="nlm-journal-id">987</journal-id><journal-title-group><journal-title>'
        "Journal of Zorblins</journal-title></journal-title-group><issn>1234-5678</issn><issn>8765-4321</issn>"
    )
    meta = "<volume>7</volume><issue>3</issue><fpage>10</fpage><lpage>12</lpage>"
    assert facts(meta, journal=journal).journal == Journal(
        "Journal of Zorblins", "J. Zorb.", ("1234-5678", "8765-4321"), "987", "7", "3", "10-12"
    )
    assert facts("<elocation-id>e5</elocation-id>").journal == Journal(pages="e5")
    assert facts("").journal is None


@pytest.mark.parametrize(
    ("dates", "published"),
    [
        ((("collection", "2021", "7", ""), ("epub", "2021", "9", "3"), ("pmc-release", "2020", "1", "")), "2021-09-03"),
        ((("ppub", "1999", "Mar", ""), ("epub", "2009", "1", "2")), "1999-03"),
        ((("ppub", "2010", "", ""), ("epub", "2010", "1", "2")), "2010-01-02"),
        ((("collection", "2021", "", ""), ("pmc-release", "2020", "1", "1")), "2021"),
        ((("pmc-release", "2020", "1", "1"),), "2020-01-01"),
        ((("epub", "20x1", "", ""),), None),
    ],
)  # fmt: skip
def test_the_date_is_the_earliest_of_publication(dates: tuple[tuple[str, ...], ...], published: str | None) -> None:
    meta = "".join(
        f'<pub-date pub-type="{kind}"><day>{day}</day><month>{month}</month><year>{year}</year></pub-date>'
        for kind, year, month, day in dates
    )
    assert facts(meta).published == published


def test_a_date_may_be_an_attribute() -> None:
    assert facts('<pub-date date-type="pub" iso-8601-date="2021-03-09"/>').published == "2021-03-09"


def test_authors_have_the_affiliations_they_point_to() -> None:
    meta = (
        '<contrib-group><contrib contrib-type="author"><contrib-id contrib-id-type="orcid">'
        "https://orcid.org/0000-0002-1825-009x</contrib-id><name><surname>Ab</surname><given-names initials='C'>Cy"
        '</given-names><suffix>Jr</suffix></name><xref ref-type="aff" rid="a1 a2">1,2</xref></contrib>'
        '<contrib contrib-type="author"><collab>The Zorblin Group<contrib-group><contrib><name><surname>Xy</surname>'
        '</name></contrib></contrib-group></collab><xref ref-type="aff" rid="a2"/></contrib>'
        '<contrib contrib-type="editor"><name><surname>Ed</surname></name></contrib></contrib-group>'
        '<aff id="a1"><label>1</label>Dept of X, <country>Oz</country></aff>'
        '<aff id="a2"><sup>2</sup><institution>Inst</institution><country>Oz</country></aff>'
    )
    tally = Tally()
    assert read(meta, tally=tally).meta.authors == (
        Author("Ab Jr", "Cy", "C", orcid="0000-0002-1825-009X", affiliations=("Dept of X, Oz", "Inst, Oz")),
        Author(collective="The Zorblin Group", affiliations=("Inst, Oz",)),
    )
    assert tally.notes["contributor other than an author skipped"] == 1


def test_affiliations_beside_authors_who_point_nowhere_are_everybodys() -> None:
    people = "<contrib><name><surname>A</surname></name></contrib><contrib><name><surname>B</surname></name></contrib>"
    shared = (Author("A", affiliations=("Inst",)), Author("B", affiliations=("Inst",)))
    assert facts(f"<contrib-group>{people}<aff>Inst</aff></contrib-group>").authors == shared
    assert facts(f'<contrib-group>{people}</contrib-group><aff id="x">Inst</aff>').authors == shared


def test_keywords_subjects_and_types() -> None:
    meta = (
        "<article-categories><subj-group><subject>Biology</subject><subj-group><subject>Yeast</subject></subj-group>"
        "</subj-group><subj-group><subject>Biology</subject></subj-group></article-categories>"
        "<kwd-group><title>Keywords</title><kwd>zorblin</kwd><kwd><italic>E. coli</italic> K12</kwd></kwd-group>"
    )
    found = facts(meta, attributes='article-type="review-article" xml:lang="en"')
    assert found.keywords == ("zorblin", "E. coli K12")
    assert found.subjects == ("Biology", "Yeast")
    assert (found.article_types, found.languages) == (("review-article",), ("en",))


def test_abbreviations_listed_as_keywords_are_text() -> None:
    meta = (
        '<kwd-group kwd-group-type="abbreviations"><title>Abbreviations</title><compound-kwd><compound-kwd-part>ZBL'
        "</compound-kwd-part><compound-kwd-part>zorblin</compound-kwd-part></compound-kwd></kwd-group>"
    )
    assert facts(meta).keywords == ()
    assert told(meta)[-1] == ("list", "ZBL\tzorblin", ("Abbreviations",), "ABBR", None)


@pytest.mark.parametrize(
    ("permissions", "license", "url"),
    [
        ('<license xlink:href="http://l/by"><license-p>CC BY.</license-p></license>', "CC BY.", "http://l/by"),
        (
            '<license><ali:license_ref xmlns:ali="http://www.niso.org/schemas/ali/1.0/">http://l/nc</ali:license_ref>'
            "<license-p>NC.</license-p></license>",
            "NC.",
            "http://l/nc",
        ),
        (
            '<license><license-p>See <ext-link xlink:href="mailto:a@b">a@b</ext-link>, <ext-link xlink:href="http://x">x'
            '</ext-link>, <ext-link xlink:href="http://creativecommons.org/by">by</ext-link>.</license-p></license>',
            "See a@b, x, by.",
            "http://creativecommons.org/by",
        ),
        ('<license license-type="open-access"/>', "open-access", None),
        ("<license><p>Old style.</p></license>", "Old style.", None),
        ("", None, None),
    ],
)
def test_the_license_and_its_address(permissions: str, license: str | None, url: str | None) -> None:
    found = facts(f"<permissions>{permissions}</permissions>")
    assert (found.license, found.license_url) == (license, url)


def test_the_copyright() -> None:
    year, holder = "<copyright-year>2020</copyright-year>", "<copyright-holder>Her</copyright-holder>"
    assert facts(f"<permissions>{year}{holder}</permissions>").copyright == "2020 Her"
    stated = f"<permissions><copyright-statement>© Her 2020</copyright-statement>{year}</permissions>"
    assert facts(stated).copyright == "© Her 2020"
    assert facts("<copyright-statement>© Old</copyright-statement>").copyright == "© Old"


@pytest.mark.parametrize(
    ("kind", "link", "notice"),
    [
        ("retraction-forward", 'ext-link-type="pubmed" xlink:href="99"', Notice("RetractionIn", "99")),
        ("corrected-article", 'ext-link-type="doi" xlink:href="10.1/x"', Notice("ErratumFor", None, "doi:10.1/x")),
        ("companion", 'xlink:href="http://x"', Notice("companion", None, "http://x")),
    ],
)
def test_related_articles_are_notices_in_pubmeds_words(kind: str, link: str, notice: Notice) -> None:
    found = facts(f'<related-article related-article-type="{kind}" {link}/>')
    assert found.notices == (notice,)
    assert found.retracted == (kind == "retraction-forward")


def test_titles_and_abstracts_of_every_kind_in_their_languages() -> None:
    meta = (
        "<title-group><article-title>Zorblins<xref>*</xref></article-title><subtitle>A study</subtitle>"
        '<trans-title-group xml:lang="fr"><trans-title>Les zorblins</trans-title></trans-title-group>'
        "<alt-title>Zorb</alt-title></title-group>"
        '<trans-abstract xml:lang="fr"><p>Ils lient.</p></trans-abstract>'
        "<abstract><title>Abstract</title><sec><title>Aim</title><p>To see.</p></sec></abstract>"
        '<abstract abstract-type="teaser"><p>Look!</p></abstract>'
        '<abstract abstract-type="executive-summary"><title>In short</title><p>Yes.</p></abstract>'
    )
    assert told(meta) == [
        ("title", "Zorblins*", (), "TITLE", None),
        ("title", "A study", (), "TITLE", None),
        ("title", "Les zorblins", (), "TITLE", "fr"),
        ("heading", "Abstract", (), "ABSTRACT", None),
        ("heading", "Aim", ("Abstract",), "ABSTRACT", None),
        ("abstract", "To see.", ("Abstract", "Aim"), "ABSTRACT", None),
        ("abstract", "Look!", ("teaser",), "ABSTRACT", None),
        ("heading", "In short", (), "ABSTRACT", None),
        ("abstract", "Yes.", ("In short",), "ABSTRACT", None),
        ("abstract", "Ils lient.", (), "ABSTRACT", "fr"),
    ]


def test_what_the_front_says_in_sentences_follows_the_abstract() -> None:
    meta = (
        "<contrib-group><contrib><string-name>A</string-name><bio><p>She works.</p></bio></contrib></contrib-group>"
        '<author-notes><corresp>a@b.c</corresp><fn fn-type="conflict"><p>None.</p></fn></author-notes>'
        "<abstract><p>They bind.</p></abstract><funding-group><award-group><award-id>1</award-id></award-group>"
        "<funding-statement>By all.</funding-statement></funding-group><history><date/></history>"
    )
    assert [passage[:2] + passage[3:4] for passage in told(meta)] == [
        ("abstract", "They bind.", "ABSTRACT"),
        ("paragraph", "She works.", None),
        ("footnote", "None.", "COMP_INT"),
        ("paragraph", "By all.", "ACK_FUND"),
    ]
    tally = Tally()
    read(meta, tally=tally)
    assert tally.notes == {"<corresp> skipped": 1, "<award-group> skipped": 1, "<history> skipped": 1}


def test_metadata_of_a_real_article(real_data: Path) -> None:
    (doc,) = lexome.read(real_data / "formats" / "jats" / "titipata_1471-2180-11-174.nxml")
    meta = doc.meta
    assert (doc.id, meta.pmid, meta.doi) == ("PMC3166277", "21810267", "10.1186/1471-2180-11-174")
    assert (meta.published, meta.article_types) == ("2011-08-02", ("research-article",))
    assert meta.journal == Journal("BMC Microbiology", "BMC Microbiol", ("1471-2180",), volume="11", pages="174")
    assert [(author.family, len(author.affiliations)) for author in meta.authors] == [("Dennehy", 2), ("Wang", 1)]
    assert meta.license_url == "http://creativecommons.org/licenses/by/2.0"


def test_authors_and_affiliations_of_the_real_files(real_data: Path) -> None:
    docs = list(lexome.read(real_data / "formats" / "jats", "pmc"))
    authors = [author for doc in docs for author in doc.meta.authors]
    assert (len(docs), len(authors)) == (12, 83)
    assert all(author.affiliations for author in authors)
    assert [doc.id for doc in docs if doc.meta.license is None] == ["PMC2994229"]
