"""PubMed XML: what each element becomes, and what becomes of files that are not as they should be."""

import gzip
import io
import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from errors import raises
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree
from mutations import damaged

import lexome
from lexome import Document, LexomeError, Passage, Tally
from lexome.errors import FormatError
from lexome.formats import medline, pubmed_xml
from lexome.formats.streams import open_stream
from lexome.metadata import Author, Journal, MeshHeading, MeshQualifier, Metadata, Notice, Substance

MATHML = 'xmlns:mml="http://www.w3.org/1998/Math/MathML"'

CITATION = """<PubmedArticle>
<MedlineCitation Status="MEDLINE" Owner="NLM">
 <PMID Version="2">101</PMID>
 <DateCompleted><Year>2020</Year></DateCompleted>
 <DateRevised><Year>2021</Year><Month>03</Month><Day>09</Day></DateRevised>
 <Article PubModel="Print">
  <Journal>
   <ISSN IssnType="Electronic">3333-4444</ISSN>
   <JournalIssue CitedMedium="Internet"><Volume>12</Volume><Issue>3</Issue>
    <PubDate><Year>2020</Year><Month>Mar</Month></PubDate></JournalIssue>
   <Title>Journal of zorblins</Title><ISOAbbreviation>J Zorb</ISOAbbreviation>
  </Journal>
  <ArticleTitle>[Zorblins bind <i>naïvely</i> to H<sub>2</sub>O].</ArticleTitle>
  <Pagination><MedlinePgn>10-9</MedlinePgn></Pagination>
  <ELocationID EIdType="pii" ValidYN="Y">e17</ELocationID>
  <ELocationID EIdType="doi" ValidYN="N">10.5555/wrong</ELocationID>
  <Abstract>
   <AbstractText Label="AIM" NlmCategory="OBJECTIVE">To see
     whether   they bind.</AbstractText>
   <AbstractText Label="METHODS" NlmCategory="METHODS">We looked.</AbstractText>
   <AbstractText>They do.</AbstractText>
   <CopyrightInformation>(c) 2020 Zorb House.</CopyrightInformation>
  </Abstract>
  <AuthorList CompleteYN="Y">
   <Author ValidYN="Y"><LastName>Doe</LastName><ForeName>Jane A</ForeName><Initials>JA</Initials>
    <Identifier Source="ORCID">https://orcid.org/0000-0001-2345-678X</Identifier>
    <AffiliationInfo><Affiliation>Zorb House.</Affiliation></AffiliationInfo>
    <AffiliationInfo><Affiliation>Second House.</Affiliation></AffiliationInfo></Author>
   <Author ValidYN="N"><LastName>Wrong</LastName></Author>
   <Author ValidYN="Y"><CollectiveName>Zorblin Study Group</CollectiveName></Author>
  </AuthorList>
  <Language>spa</Language>
  <PublicationTypeList><PublicationType UI="D016428">Journal Article</PublicationType>
   <PublicationType UI="D016441">Retracted Publication</PublicationType></PublicationTypeList>
  <VernacularTitle>Los zorblins se unen.</VernacularTitle>
  <ArticleDate DateType="Electronic"><Year>2020</Year><Month>03</Month><Day>17</Day></ArticleDate>
 </Article>
 <MedlineJournalInfo><MedlineTA>J Zorb (Nowhere)</MedlineTA><NlmUniqueID>0000001</NlmUniqueID>
  <ISSNLinking>1111-2222</ISSNLinking></MedlineJournalInfo>
 <ChemicalList>
  <Chemical><RegistryNumber>0</RegistryNumber><NameOfSubstance UI="D1">Zorblin Receptors</NameOfSubstance></Chemical>
  <Chemical><RegistryNumber>EC 9.9</RegistryNumber><NameOfSubstance UI="D2">Zorb Kinase</NameOfSubstance></Chemical>
 </ChemicalList>
 <CommentsCorrectionsList>
  <CommentsCorrections RefType="RetractionIn"><RefSource>J Zorb. 2021</RefSource><PMID Version="1">102</PMID>
  </CommentsCorrections>
  <CommentsCorrections RefType="Cites"><RefSource>Other.</RefSource></CommentsCorrections>
 </CommentsCorrectionsList>
 <MeshHeadingList>
  <MeshHeading><DescriptorName UI="D000001" MajorTopicYN="Y">Zorblins</DescriptorName></MeshHeading>
  <MeshHeading><DescriptorName UI="D000002" MajorTopicYN="N">Mice</DescriptorName>
   <QualifierName UI="Q000001" MajorTopicYN="N">genetics</QualifierName>
   <QualifierName UI="Q000002" MajorTopicYN="Y">methods</QualifierName></MeshHeading>
 </MeshHeadingList>
 <OtherAbstract Type="Publisher" Language="spa"><AbstractText>Se unen &amp; ya.</AbstractText></OtherAbstract>
 <KeywordList Owner="NOTNLM"><Keyword MajorTopicYN="N">wobble</Keyword><Keyword>zorb</Keyword></KeywordList>
</MedlineCitation>
<PubmedData><History/><ArticleIdList><ArticleId IdType="pubmed">101</ArticleId>
 <ArticleId IdType="doi">10.5555/zorb.1</ArticleId><ArticleId IdType="pmc">PMC77</ArticleId>
 <ArticleId IdType="pii">e17</ArticleId></ArticleIdList></PubmedData>
</PubmedArticle>
"""

# The same article as MEDLINE text has it.
TAGGED = """PMID- 101
DCOM- 2020
LR  - 20210309
IS  - 3333-4444 (Electronic)
IS  - 1111-2222 (Linking)
VI  - 12
IP  - 3
DP  - 2020 Mar
TI  - [Zorblins bind naïvely to H2O].
PG  - 10-9
LID - e17 [pii]
AB  - AIM: To see whether   they bind. METHODS: We looked. They do.
CI  - (c) 2020 Zorb House.
FAU - Doe, Jane A
AU  - Doe JA
AUID- ORCID: 0000-0001-2345-678X
AD  - Zorb House.
AD  - Second House.
CN  - Zorblin Study Group
LA  - spa
PT  - Journal Article
PT  - Retracted Publication
TT  - Los zorblins se unen.
DEP - 20200317
TA  - J Zorb
JT  - Journal of zorblins
JID - 0000001
RN  - 0 (Zorblin Receptors)
RN  - EC 9.9 (Zorb Kinase)
RIN - J Zorb. 2021. PMID: 102
MH  - *Zorblins
MH  - Mice/genetics/*methods
OAB - Se unen & ya.
OABL- spa
OT  - wobble
OT  - zorb
PMC - PMC77
AID - 10.5555/zorb.1 [doi]
"""


def article(pmid: object, inside: str = "") -> str:
    return (
        f'<PubmedArticle><MedlineCitation><PMID Version="1">{pmid}</PMID><Article>{inside}</Article>'
        "</MedlineCitation></PubmedArticle>\n"
    )


def article_set(*records: str) -> str:
    return f"<PubmedArticleSet>\n{''.join(records)}</PubmedArticleSet>\n"


def read(text: str | bytes, tally: Tally | None = None, **options: Any) -> list[Document]:
    raw = text.encode() if isinstance(text, str) else text
    with tally or Tally() as tally:
        return list(pubmed_xml.read(open_stream(io.BytesIO(raw), "a.xml", tally), tally=tally, **options))


def read_one(text: str | bytes, tally: Tally | None = None, **options: Any) -> Document:
    (doc,) = read(text, tally, **options)
    return doc


@pytest.fixture
def tally(tmp_path: Path) -> Tally:
    """A tally with a place for rejects."""
    return Tally(tmp_path / "rejects.jsonl")


def rejects(tally: Tally) -> list[dict[str, Any]]:
    assert tally.rejects_path is not None
    return [json.loads(line) for line in tally.rejects_path.read_text().split("\n") if line]


def test_a_structured_abstract_is_a_passage_for_each_section() -> None:
    assert read_one(article_set(CITATION)).passages == (
        Passage(0, "[Zorblins bind naïvely to H2O].", "title"),
        Passage(32, "To see whether   they bind.", "abstract", ("AIM",), "OBJECTIVE"),
        Passage(60, "We looked.", "abstract", ("METHODS",), "METHODS"),
        Passage(71, "They do.", "abstract"),
        Passage(80, "Los zorblins se unen.", "title", language="spa"),
        Passage(102, "Se unen & ya.", "abstract", language="spa"),
    )


def test_a_joined_abstract_is_one_passage_with_its_labels() -> None:
    doc = read_one(article_set(CITATION), abstract="joined")
    assert [(passage.kind, passage.text) for passage in doc.passages[:3]] == [
        ("title", "[Zorblins bind naïvely to H2O]."),
        ("abstract", "AIM: To see whether   they bind. METHODS: We looked. They do."),
        ("title", "Los zorblins se unen."),
    ]


def test_the_title_is_the_main_one() -> None:
    assert read_one(article_set(CITATION)).title == "[Zorblins bind naïvely to H2O]."


@pytest.mark.parametrize("fields", ["", "<Title> </Title><ISOAbbreviation/><ISSN/>"])
def test_a_citation_without_a_journal_has_none(fields: str) -> None:
    article = f"<Article><Journal>{fields}</Journal><ArticleTitle>Zorb</ArticleTitle></Article>"
    citation = f"<MedlineCitation><PMID>1</PMID>{article}</MedlineCitation>"
    assert read_one(article_set(f"<PubmedArticle>{citation}</PubmedArticle>")).meta.journal is None


def test_a_bare_pmc_number_gets_its_letters() -> None:
    ids = (
        '<ArticleIdList><ArticleId IdType="pmc">77</ArticleId><ArticleId IdType="pmc">PMC77</ArticleId></ArticleIdList>'
    )
    record = f"<MedlineCitation><PMID>1</PMID></MedlineCitation><PubmedData>{ids}</PubmedData>"
    meta = read_one(article_set(f"<PubmedArticle>{record}</PubmedArticle>")).meta
    assert (meta.pmcid, meta.other_ids) == ("PMC77", ())


def test_ids_dates_and_version() -> None:
    doc = read_one(article_set(CITATION))
    meta = doc.meta
    assert (doc.id, meta.pmid, meta.version, meta.pmcid, meta.doi) == ("101", "101", 2, "PMC77", "10.5555/zorb.1")
    assert meta.other_ids == ("pii:e17",)
    assert (meta.published, meta.revised, meta.languages) == ("2020-03-17", "2021-03-09", ("spa",))
    assert meta.copyright == "(c) 2020 Zorb House."


def test_journal_and_authors() -> None:
    meta = read_one(article_set(CITATION)).meta
    assert meta.journal == Journal(
        "Journal of zorblins", "J Zorb", ("3333-4444", "1111-2222"), "0000001", "12", "3", "10-9"
    )
    assert meta.authors == (
        Author("Doe", "Jane A", "JA", None, "0000-0001-2345-678X", ("Zorb House.", "Second House.")),
        Author(collective="Zorblin Study Group"),
    )


def test_headings_substances_and_keywords() -> None:
    meta = read_one(article_set(CITATION)).meta
    assert meta.mesh == (
        MeshHeading("Zorblins", "mesh:D000001", major=True),
        MeshHeading(
            "Mice",
            "mesh:D000002",
            qualifiers=(
                MeshQualifier("genetics", "mesh:Q000001"),
                MeshQualifier("methods", "mesh:Q000002", major=True),
            ),
        ),
    )
    assert meta.substances == (
        Substance("Zorblin Receptors", "mesh:D1"),
        Substance("Zorb Kinase", "mesh:D2", "EC 9.9"),
    )
    assert meta.keywords == ("wobble", "zorb")


@pytest.mark.parametrize(
    ("kind", "retracted"), [("RetractionIn", True), ("RetractionOf", False), ("PartialRetractionIn", False)]
)
def test_notices_say_whether_an_article_is_retracted(kind: str, retracted: bool) -> None:
    notice = (
        f'<CommentsCorrectionsList><CommentsCorrections RefType="{kind}"><RefSource>J Zorb. 2021</RefSource>'
        "<PMID>102</PMID></CommentsCorrections></CommentsCorrectionsList>"
    )
    meta = read_one(article_set(article(1).replace("</Article>", "</Article>" + notice))).meta
    assert meta.notices == (Notice(kind, "102", "J Zorb. 2021"),)
    assert meta.retracted is retracted


def test_what_has_no_field_is_counted() -> None:
    tally = Tally()
    read_one(article_set(CITATION.replace("<History/>", "<History/><Zorb/>")), tally)
    assert tally.notes == {
        "DateCompleted ignored": 1,
        "id marked as invalid ignored": 1,
        "author marked as invalid ignored": 1,
        "reference ignored": 1,
        "History ignored": 1,
        "unknown element ignored": 1,
    }


def test_medline_text_of_the_same_article_gives_the_same_document() -> None:
    ours = read_one(article_set(CITATION), abstract="joined")
    (theirs,) = medline.read(open_stream(io.BytesIO(TAGGED.encode()), "a.nbib", Tally()), tally=Tally())
    # MEDLINE text has no MeSH ids and no version.
    mesh = tuple(
        replace(heading, id=None, qualifiers=tuple(replace(part, id=None) for part in heading.qualifiers))
        for heading in ours.meta.mesh
    )
    substances = tuple(replace(substance, id=None) for substance in ours.meta.substances)
    assert theirs.passages == ours.passages
    assert theirs.meta == replace(ours.meta, mesh=mesh, substances=substances, version=None)


@pytest.mark.parametrize(
    ("inside", "date"),
    [
        ("<Year>2021</Year><Month>Mar</Month><Day>9</Day>", "2021-03-09"),
        ("<Year>2021</Year><Month>03</Month>", "2021-03"),
        ("<Year>2021</Year><Season>Spring</Season>", "2021"),
        ("<MedlineDate>1998 Dec-1999 Jan</MedlineDate>", "1998-12"),
        ("<MedlineDate>2000 Spring-Summer</MedlineDate>", "2000"),
        ("<MedlineDate>soon</MedlineDate>", None),
    ],
)
def test_dates(inside: str, date: str | None) -> None:
    tally = Tally()
    journal = f"<Journal><JournalIssue><PubDate>{inside}</PubDate></JournalIssue></Journal>"
    assert read_one(article_set(article(1, journal)), tally).meta.published == date
    assert tally.notes["unparsable date ignored"] == (date is None)


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("<b>Bold <i>and</i></b> x<sup>2</sup>", "Bold and x2"),
        ("one\n     two", "one two"),
        ("one  two\u00a0", "one  two\u00a0"),
        ("5&lt;6 <!-- gone --> &#945; &alpha;", "5<6  α α"),
        ("<![CDATA[a <b> c]]>", "a <b> c"),
        (
            f"if <mml:math {MATHML}><mml:semantics><mml:mrow>\n <mml:mi>x</mml:mi> <mml:mo>=</mml:mo> "
            "<mml:mn>2</mml:mn></mml:mrow><mml:annotation>x=2</mml:annotation></mml:semantics></mml:math> then",
            "if x=2 then",
        ),
    ],
)
def test_markup_is_flattened(markup: str, text: str) -> None:
    assert read_one(article_set(article(1, f"<ArticleTitle>{markup}</ArticleTitle>"))).title == text


def test_text_of_an_abstract_outside_its_parts_is_kept() -> None:
    doc = read_one(article_set(article(1, "<Abstract>Bare.</Abstract>")))
    assert doc.passages == (Passage(0, "Bare.", "abstract"),)


def test_deleted_citations_are_counted_and_given_on_request() -> None:
    text = article_set(article(1), '<DeleteCitation><PMID Version="1">7</PMID>\n<PMID>8</PMID></DeleteCitation>\n')
    tally = Tally()
    assert [doc.id for doc in read(text, tally)] == ["1"]
    assert tally.notes == {"deleted citation": 2}
    assert read(text, deletions=True)[1:] == [
        Document("7", meta=Metadata(pmid="7", version=1, deleted=True)),
        Document("8", meta=Metadata(pmid="8", deleted=True)),
    ]


def test_a_book_article() -> None:
    doc = read_one(
        article_set(
            "<PubmedBookArticle><BookDocument><PMID Version='1'>9</PMID>"
            "<ArticleIdList><ArticleId IdType='bookaccession'>NBK1</ArticleId></ArticleIdList>"
            "<Book><BookTitle>Zorblins at home</BookTitle><PubDate><Year>2019</Year></PubDate><Isbn>978-1</Isbn></Book>"
            "<ArticleTitle>Their food</ArticleTitle><Language>eng</Language>"
            "<AuthorList><Author><LastName>Doe</LastName></Author></AuthorList>"
            "<Abstract><AbstractText>They eat.</AbstractText></Abstract>"
            "</BookDocument><PubmedBookData/></PubmedBookArticle>"
        )
    )
    assert [(passage.kind, passage.text) for passage in doc.passages] == [
        ("title", "Their food"),
        ("abstract", "They eat."),
    ]
    assert (doc.id, doc.meta.published, doc.meta.authors) == ("9", "2019", (Author("Doe"),))
    assert doc.meta.journal is not None
    assert doc.meta.journal.title == "Zorblins at home"
    assert set(doc.meta.other_ids) == {"bookaccession:NBK1", "isbn:978-1"}


def test_files_of_before_2017_are_read() -> None:
    old = "<MedlineCitationSet><MedlineCitation><PMID>1</PMID></MedlineCitation></MedlineCitationSet>"
    assert [doc.id for doc in read(old)] == ["1"]


def test_a_malformed_record_costs_itself_alone(tally: Tally) -> None:
    text = article_set(article(1), article(2, "<ArticleTitle>a < b</ArticleTitle>"), article(3))
    assert [doc.id for doc in read(text, tally)] == ["1", "3"]
    (reject,) = rejects(tally)
    assert (reject["where"], reject["id"], reject["reason"]) == ("a.xml, line 3", "2", "malformed_xml")


def test_a_record_whose_closing_tag_is_missing_costs_itself_alone(tally: Tally) -> None:
    text = article_set(article(1), article(2).replace("</PubmedArticle>", ""), article(3), article(4))
    assert [doc.id for doc in read(text, tally)] == ["1", "3", "4"]
    assert [(reject["id"], reject["where"]) for reject in rejects(tally)] == [("2", "a.xml, line 3")]


def test_a_lost_closing_tag_mixes_no_two_records(tally: Tally) -> None:
    history = "<History><PubMedPubDate><Year>2020</Year></PubMedPubDate></History>"
    ids = "<ArticleIdList><ArticleId IdType='doi'>10.5555/{}</ArticleId></ArticleIdList>"
    ends = [f"<PubmedData>{history}{ids.format(number)}</PubmedData></PubmedArticle>" for number in range(4)]
    ends[1] = ends[1].removesuffix("</PubmedArticle>")
    text = article_set(*(article(number).replace("</PubmedArticle>", end) for number, end in enumerate(ends)))
    assert [(doc.id, doc.meta.doi) for doc in read(text, tally)] == [
        ("0", "10.5555/0"),
        ("2", "10.5555/2"),
        ("3", "10.5555/3"),
    ]
    assert [reject["id"] for reject in rejects(tally)] == ["1"]


def test_stray_text_between_records_is_set_aside(tally: Tally) -> None:
    assert [doc.id for doc in read(article_set(article(1), "stray", article(2)), tally)] == ["1", "2"]
    assert tally.rejected == {"outside_record": 1}


def test_a_record_without_pmid_is_set_aside(tally: Tally) -> None:
    text = article_set(article(""), article(2), "<PubmedArticle/>")
    assert [doc.id for doc in read(text, tally)] == ["2"]
    assert tally.rejected == {"no_pmid": 2}


def test_a_file_that_breaks_off_gives_what_came_before(tally: Tally) -> None:
    text = article_set(article(1), article(2), article(3))
    docs = pubmed_xml.read(open_stream(io.BytesIO(text[:-80].encode()), "a.xml", tally), tally=tally)
    assert [next(docs).id, next(docs).id] == ["1", "2"]
    with raises(FormatError, code="truncated", value=4), tally:
        next(docs)
    assert tally.rejected == {"truncated": 1}


def test_a_compressed_file_that_breaks_off_gives_what_came_before(tmp_path: Path, tally: Tally) -> None:
    packed = gzip.compress(
        article_set(*(article(number, f"<ArticleTitle>{number**9}</ArticleTitle>") for number in range(2000))).encode()
    )
    path = tmp_path / "a.xml.gz"
    path.write_bytes(packed[: len(packed) // 2])
    docs = list(lexome.read(path, tally=tally))
    assert [doc.id for doc in docs] == [str(number) for number in range(len(docs))]
    assert 500 < len(docs) < 1500
    assert str(path) in tally.failures[0]
    with raises(FormatError, code="truncated"):
        list(lexome.read(path))


def test_an_entity_bomb_is_never_expanded(tally: Tally) -> None:
    names = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
    bomb = f'<!DOCTYPE PubmedArticleSet [<!ENTITY e0 "zorb">{names}]>'
    text = bomb + article_set(article(1, "<ArticleTitle>&e9;</ArticleTitle>"), article(2))
    assert [doc.id for doc in read(text, tally)] == ["2"]
    assert tally.rejected == {"malformed_xml": 1}


def test_an_external_entity_is_never_opened(tmp_path: Path, tally: Tally) -> None:
    (tmp_path / "secret").write_text("secret")
    prolog = f'<!DOCTYPE PubmedArticleSet [<!ENTITY x SYSTEM "file://{tmp_path}/secret">]>'
    docs = read(prolog + article_set(article(1, "<ArticleTitle>&x;</ArticleTitle>"), article(2)), tally)
    assert [(doc.id, doc.title) for doc in docs] == [("2", None)]


def test_bytes_of_the_wrong_encoding_cost_their_record_alone(tally: Tally) -> None:
    raw = article_set(article(1, "<ArticleTitle>na\u00efve</ArticleTitle>")).encode("latin-1")
    raw = raw.replace(b"</PubmedArticleSet>", article(2, "<ArticleTitle>naïve</ArticleTitle></Article>").encode())
    raw = raw.replace(b"</Article></Article>", b"</Article>") + b"</PubmedArticleSet>"
    assert [(doc.id, doc.title) for doc in read(raw, tally)] == [("2", "naïve")]
    assert tally.rejected == {"malformed_xml": 1}


@pytest.mark.parametrize("encoding", ["iso-8859-1", "utf-16", "utf-8"])
def test_other_encodings_are_read_as_declared(encoding: str) -> None:
    text = f'<?xml version="1.0" encoding="{encoding}"?>\n' + article_set(CITATION)
    assert read(text.encode(encoding)) == read(article_set(CITATION))


@pytest.mark.parametrize(
    ("content", "mentions"),
    [("", None), ("<article>Zorb</article>", "<article>"), ("zorb", None)],
)
def test_a_file_of_another_kind_says_what_it_is(content: str, mentions: str | None) -> None:
    with raises(FormatError, code="no-records", value="PubmedArticle", mentions=mentions):
        read(content)


def test_an_empty_set_has_no_documents() -> None:
    assert read("<PubmedArticleSet></PubmedArticleSet>") == []


# Reads a file in a process of its own and says how many documents, what was rejected, and the peak in MiB. The kernel
# keeps getrusage's peak over fork and exec, so that a large parent would be measured instead; VmHWM begins anew.
MEASURE = """
import json, re, sys
import lexome
tally = lexome.Tally(sys.argv[2])
ids = {doc.id for doc in lexome.read(sys.argv[1], tally=tally)}
peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) >> 10
print(json.dumps([tally.documents, sorted(ids)[:5], dict(tally.rejected), peak]))
"""


needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")


def measured(path: Path) -> tuple[int, list[str], dict[str, int], int]:
    command = [sys.executable, "-c", MEASURE, str(path), str(path.with_name("rejects.jsonl"))]
    documents, ids, rejected, peak = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return documents, ids, rejected, peak


@needs_proc
def test_a_huge_text_is_rejected_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    begin, end = article(1, "<ArticleTitle>|</ArticleTitle>").split("|")
    with path.open("wb") as stream:
        stream.write(b"<PubmedArticleSet>" + begin.encode())
        for _ in range(80):
            stream.write(b"zorblin " * (1 << 17))
        stream.write(f"{end}{article(2)}</PubmedArticleSet>".encode())
    documents, ids, rejected, peak = measured(path)
    path.unlink()
    assert (documents, ids, rejected) == (1, ["2"], {"too_large": 1})
    # The window holds one record up to its limit of 64 MiB, and a copy while it grows.
    assert peak < 300


@needs_proc
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.xml"
    long = article(1, f"<Abstract><AbstractText>{'Zorblins bind. ' * 1000}</AbstractText></Abstract>").encode()
    count = (100 << 20) // len(long)
    with path.open("wb") as stream:
        stream.write(b"<PubmedArticleSet>")
        for _ in range(count // 100):
            stream.write(long * 100)
        stream.write(b"</PubmedArticleSet>")
    documents, _, rejected, peak = measured(path)
    size = path.stat().st_size >> 20
    path.unlink()
    assert (documents, rejected, size > 95) == (count // 100 * 100, {}, True)
    assert peak < 150


@given(st.data())
def test_damage_raises_nothing_unexpected(data: st.DataObject) -> None:
    raw = data.draw(damaged(article_set(article(1, "<ArticleTitle>a</ArticleTitle>"), CITATION).encode()))
    with suppress(LexomeError):
        read(raw)


COUNTS = {
    "biopython_pubmed1.xml": 2,
    "biopython_pubmed2.xml": 2,
    "biopython_pubmed4.xml": 1,
    "biopython_pubmed5.xml": 1,
    "biopython_pubmed6.xml": 1,
    "biopython_pubmed7.xml": 1,
    "pubmedportable_medline_00000000.xml": 100,
    "titipata_pubmed-29768149.xml": 1,
    "xizhou_pubmed_result.xml": 93,
}


def squeezed(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize("name", COUNTS)
def test_every_abstract_of_the_real_files_is_in_its_document(real_data: Path, name: str) -> None:
    path = real_data / "formats" / "pubmed_xml" / name
    docs = list(lexome.read(path))
    assert len(docs) == COUNTS[name]
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    articles = etree.parse(path, parser).getroot().findall("PubmedArticle")
    for doc, root in zip(docs, articles, strict=True):
        assert doc.id == root.findtext("MedlineCitation/PMID")
        texts = [squeezed("".join(part.itertext())) for part in root.iter("ArticleTitle", "AbstractText")]
        kept = [squeezed(passage.text) for passage in doc.passages]
        assert [text for text in texts if text] == [text for text in kept if text in texts]
        assert len(doc.meta.mesh) == len(root.findall(".//MeshHeading")) + len(root.findall(".//SupplMeshName"))
        assert len(doc.meta.substances) == len(root.findall(".//Chemical"))


def test_real_files_name_what_they_hold(real_data: Path) -> None:
    docs = list(lexome.read(real_data / "formats" / "pubmed_xml"))
    assert len(docs) == 202
    assert all(doc.title and doc.meta.published and doc.meta.journal and doc.meta.article_types for doc in docs)


def by_name(doc: Document) -> Document:
    return replace(doc, meta=replace(doc.meta, mesh=tuple(sorted(doc.meta.mesh, key=lambda heading: heading.name))))


@pytest.mark.parametrize("where", ["samples", "real"])
def test_lists_read_from_bytes_are_what_the_parser_reads(
    where: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The short cut through plain lists changes nothing but the order of headings and supplementary ones."""
    samples = Path(__file__).resolve().parents[2] / "samples" / "pubmed.xml"
    path = samples if where == "samples" else request.getfixturevalue("real_data") / "formats" / "pubmed_xml"
    short = list(map(by_name, lexome.read(path, "pubmed", deletions=True)))
    monkeypatch.setattr(pubmed_xml, "lift", lambda raw, draft: raw)
    assert list(map(by_name, lexome.read(path, "pubmed", deletions=True))) == short
