"""PubMed's lists: read from their bytes where they are plain, and by the parser where they are not, all the same."""

import io
from pathlib import Path

import pytest

from lexome import Document, Tally
from lexome.formats import pubmed_xml
from lexome.formats.streams import open_stream
from lexome.metadata import Author, MeshHeading, MeshQualifier, Substance

RECORD = """<PubmedArticleSet><PubmedArticle><MedlineCitation>
 <PMID Version="1">1</PMID>
 <DateRevised><Year>2021</Year><Month>03</Month><Day>09</Day></DateRevised>
 <Article PubModel="Print">
  <Journal><ISSN IssnType="Print">1111-2222</ISSN>
   <JournalIssue CitedMedium="Print"><Volume>12</Volume>
    <PubDate><Year>2020</Year><Month>Mar</Month></PubDate></JournalIssue>
   <Title>Journal of zorblins</Title></Journal>
  <ArticleTitle>Zorblins</ArticleTitle>
  <AuthorList CompleteYN="Y">
   <Author ValidYN="Y"><LastName>Doe</LastName><ForeName>Jane</ForeName><Initials>J</Initials>
    <Identifier Source="ORCID">0000-0001-2345-678X</Identifier>
    <AffiliationInfo><Affiliation>Zorb House.</Affiliation></AffiliationInfo></Author>
   <Author ValidYN="Y"><LastName>Roe</LastName></Author>
  </AuthorList>
  <PublicationTypeList><PublicationType UI="D1">Review</PublicationType></PublicationTypeList>
 </Article>
 <MedlineJournalInfo><Country>Nowhere</Country><MedlineTA>J Zorb</MedlineTA></MedlineJournalInfo>
 <ChemicalList><Chemical><RegistryNumber>0</RegistryNumber>
  <NameOfSubstance UI="D2">Zorblin</NameOfSubstance></Chemical></ChemicalList>
 <MeshHeadingList><MeshHeading><DescriptorName UI="D3" MajorTopicYN="N">Mice</DescriptorName>
  <QualifierName UI="Q1" MajorTopicYN="Y">genetics</QualifierName></MeshHeading></MeshHeadingList>
</MedlineCitation>
<PubmedData><History><PubMedPubDate><Year>2020</Year></PubMedPubDate></History></PubmedData>
</PubmedArticle></PubmedArticleSet>
"""


def read(text: str, rejects: Path) -> tuple[list[Document], Tally]:
    with Tally(rejects) as tally:
        return list(pubmed_xml.read(open_stream(io.BytesIO(text.encode()), "a.xml", tally), tally=tally)), tally


def both_ways(text: str, tmp_path: Path) -> tuple[list[Document], Tally]:
    """What is read of the text, checked against the reading of a record that the parser is given whole."""
    docs, tally = read(text, tmp_path / "plain.jsonl")
    # With a comment in it, no list is read from its bytes.
    parsed, counted = read(text.replace("<PMID", "<!-- --><PMID"), tmp_path / "parsed.jsonl")
    assert docs == parsed
    assert (tally.notes, tally.rejected) == (counted.notes, counted.rejected)
    return docs, tally


def test_plain_lists(tmp_path: Path) -> None:
    (doc,), tally = both_ways(RECORD, tmp_path)
    assert doc.meta.authors == (
        Author("Doe", "Jane", "J", None, "0000-0001-2345-678X", ("Zorb House.",)),
        Author("Roe"),
    )
    assert doc.meta.mesh == (MeshHeading("Mice", "mesh:D3", False, (MeshQualifier("genetics", "mesh:Q1", True),)),)
    assert doc.meta.substances == (Substance("Zorblin", "mesh:D2"),)
    assert (doc.meta.article_types, doc.meta.published, doc.meta.revised) == (("Review",), "2020-03", "2021-03-09")
    assert doc.meta.journal is not None
    assert (doc.meta.journal.title, doc.meta.journal.abbreviation) == ("Journal of zorblins", "J Zorb")
    assert tally.notes == {"History ignored": 1}


@pytest.mark.parametrize(
    ("plain", "odd"),
    [
        ("Doe", "\n  Doe\n"),
        ("Doe", " Doe"),
        ("Doe", "Doe\u00a0"),
        ("Doe", "D&lt;oe &amp; &#233;"),
        ("Zorb House.", "Zorb &amp; House."),
        ("Zorb House.", "Zorb <sup>2</sup>House."),
        ("Zorb House.", "Zorb > House."),
        ("Zorb House.", "Zorb\n   House."),
        ("0000-0001-2345-678X", "zorb-1"),
        ("<LastName>Roe</LastName>", "<CollectiveName>Zorb Group</CollectiveName>"),
        ("<LastName>Roe</LastName>", "<LastName>Roe</LastName><Suffix>Jr</Suffix>"),
        ("<LastName>Roe</LastName>", ""),
        ('<Author ValidYN="Y"><LastName>Roe', '<Author ValidYN="N"><LastName>Roe'),
        ("Mice", "Mice &amp; men"),
        ("Mice", "Mi&#99;e"),
        ('UI="D3" MajorTopicYN="N"', 'Type="Geographic" MajorTopicYN="Y" UI="D3"'),
        ('UI="D3" MajorTopicYN="N"', "MajorTopicYN='Y'"),
        ("<QualifierName", "<Zorb/><QualifierName"),
        ('<DescriptorName UI="D3" MajorTopicYN="N">Mice</DescriptorName>', ""),
        ("<RegistryNumber>0</RegistryNumber>", "<RegistryNumber>EC 9.9</RegistryNumber>"),
        ("<RegistryNumber>0</RegistryNumber>", ""),
        ("<Volume>12</Volume>", "<Volume/>"),
        ("<Year>2020</Year><Month>Mar</Month>", "<MedlineDate>1998 Dec-1999 Jan</MedlineDate>"),
        ("<Year>2020</Year><Month>Mar</Month>", "<MedlineDate>soon</MedlineDate>"),
        ("<Month>03</Month>", "<Month>Mar</Month>"),
        ("Review", "Review &amp; <i>more</i>"),
        ("<Country>Nowhere</Country>", "<Country/>"),
        ("<History>", '<History zorb="1">'),
    ],
)
def test_lists_that_are_not_plain_are_read_all_the_same(tmp_path: Path, plain: str, odd: str) -> None:
    assert plain in RECORD
    docs, _ = both_ways(RECORD.replace(plain, odd), tmp_path)
    assert len(docs) == 1


@pytest.mark.parametrize(
    ("plain", "damaged"),
    [
        ("</LastName>", "</Lastname>"),
        ("Doe", "D\x01oe"),
        ("Doe", "D&zorb;oe"),
        ("</DescriptorName>", "</QualifierName>"),
        ('UI="D3"', 'UI="D3'),
        ("</Chemical>", ""),
        ("<Volume>12", "<Volume>1<2"),
        ("</AuthorList>", ""),
    ],
)
def test_a_damaged_list_costs_its_record(tmp_path: Path, plain: str, damaged: str) -> None:
    docs, tally = both_ways(RECORD.replace(plain, damaged), tmp_path)
    assert (docs, tally.rejected) == ([], {"malformed_xml": 1})


def test_damage_in_what_is_passed_over_costs_nothing(tmp_path: Path) -> None:
    docs, tally = read(RECORD.replace("<PubMedPubDate>", "<PubMedPubDate"), tmp_path / "rejects.jsonl")
    assert ([doc.id for doc in docs], tally.rejected) == (["1"], {})


@pytest.mark.parametrize("hidden", ["<!-- {} -->", "<![CDATA[{}]]>", "<?zorb {} ?>"])
def test_tags_that_are_no_tags_are_not_read(tmp_path: Path, hidden: str) -> None:
    fake = '<MeshHeadingList><MeshHeading><DescriptorName UI="D9">Fake</DescriptorName></MeshHeading></MeshHeadingList>'
    text = RECORD.replace("<ArticleTitle>Zorblins", f"<ArticleTitle>Zorblins{hidden.format(fake)}")
    (doc,), _ = read(text, tmp_path / "rejects.jsonl")
    assert [heading.name for heading in doc.meta.mesh] == ["Mice"]
