"""MEDLINE text: what each tag becomes, and what becomes of records that are not as they should be."""

import gzip
import io
from contextlib import suppress
from pathlib import Path

import pytest
from errors import raises
from hypothesis import given
from hypothesis import strategies as st
from mutations import damaged

import lexome
from lexome import Document, LexomeError, Passage, Tally
from lexome.errors import BadDocument, FormatError
from lexome.formats import detect, medline
from lexome.formats.streams import open_stream
from lexome.metadata import Author, Journal, MeshHeading, MeshQualifier, Notice, Substance

CITATION = """PMID- 101
OWN - NLM
LR  - 20210309
IS  - 1111-2222 (Print)
IS  - 3333-4444 (Electronic)
IS  - 1111-2222 (Linking)
VI  - 12
IP  - 3
DP  - 2020 Mar
TI  - [Zorblins bind
      naïvely].
PG  - 10-9
LID - 10.5555/zorb.1 [doi]
LID - e17 [pii]
AB  - BACKGROUND: Zorblins are \n      small. METHODS: We looked  twice.
OAB - Los zorblins
      son pequeños.
OABL- spa
OAB - Publisher: none.
CI  - (c) 2020 Zorb House.
FAU - Doe, Jane A
AU  - Doe JA
AUID- ORCID: http://orcid.org/0000-0001-2345-678X
AD  - Zorb House,
      Nowhere.
AD  - Second House.
FAU - van der Roe, Richard Jr
AU  - van der Roe R Jr
CN  - Zorblin Study Group
AD  - Third House.
LA  - eng
LA  - spa
PT  - Journal Article
PT  - Retracted Publication
DEP - 20200317
TT  - Los zorblins se unen.
PL  - Nowhere
TA  - J Zorb
JT  - Journal of zorblins
JID - 0000001
RN  - 0 (Zorblin Receptors)
RN  - EC 9.9.9.9 (Zorb (beta) Kinase)
MH  - *Zorblins
MH  - Mice/adverse
      effects/*methods
OTO - NOTNLM
OT  - *wobble
OT  - zorb
PMC - PMC77
MID - NIHMS5
OID - NLM: PMC77x
AID - e17 [pii]
AID - 10.5555/zorb.1 [doi]
RIN - J Zorb. 2021 Jan;13(1):1. PMID: 102
EIN - J Zorb. 2020 Apr;12(4):2
"""


def read(text: str | bytes, tally: Tally | None = None, **options: str) -> list[Document]:
    raw = text.encode() if isinstance(text, str) else text
    with tally or Tally() as tally:
        return list(medline.read(open_stream(io.BytesIO(raw), "a.nbib", tally), tally=tally, **options))


def read_one(text: str | bytes, tally: Tally | None = None, **options: str) -> Document:
    (doc,) = read(text, tally, **options)
    return doc


def test_title_and_abstract_come_first_then_other_languages() -> None:
    assert read_one(CITATION).passages == (
        Passage(0, "[Zorblins bind naïvely].", "title"),
        Passage(25, "BACKGROUND: Zorblins are small. METHODS: We looked  twice.", "abstract"),
        Passage(84, "Los zorblins se unen.", "title", language="spa"),
        Passage(106, "Los zorblins son pequeños.", "abstract", language="spa"),
        Passage(133, "Publisher: none.", "abstract"),
    )


def test_the_title_is_the_main_one() -> None:
    assert read_one(CITATION).title == "[Zorblins bind naïvely]."


def test_a_bare_pmc_number_gets_its_letters() -> None:
    assert read_one("PMID- 1\nPMC - 77\n").meta.pmcid == "PMC77"


def test_a_citation_without_a_journal_has_none() -> None:
    assert read_one("PMID- 1\nTI  - Zorb\n").meta.journal is None


def test_ids_and_dates() -> None:
    doc = read_one(CITATION)
    meta = doc.meta
    assert (doc.id, meta.pmid, meta.pmcid, meta.doi) == ("101", "101", "PMC77", "10.5555/zorb.1")
    assert meta.other_ids == ("pii:e17", "mid:NIHMS5", "nlm:PMC77x")
    assert (meta.published, meta.revised) == ("2020-03-17", "2021-03-09")
    assert meta.copyright == "(c) 2020 Zorb House."


def test_journal() -> None:
    assert read_one(CITATION).meta.journal == Journal(
        "Journal of zorblins", "J Zorb", ("1111-2222", "3333-4444"), "0000001", "12", "3", "10-9"
    )


def test_authors_have_their_own_ids_and_affiliations() -> None:
    assert read_one(CITATION).meta.authors == (
        Author("Doe", "Jane A", "JA", None, "0000-0001-2345-678X", ("Zorb House, Nowhere.", "Second House.")),
        Author("van der Roe", "Richard", "R"),
        Author(collective="Zorblin Study Group", affiliations=("Third House.",)),
    )


def test_an_address_before_all_names_is_the_first_authors() -> None:
    doc = read_one("PMID- 1\nAD  - Zorb House.\nAU  - Doe JA\nAU  - Roe R\nAU  - Plato\n")
    assert doc.meta.authors == (
        Author("Doe", None, "JA", affiliations=("Zorb House.",)),
        Author("Roe", None, "R"),
        Author("Plato"),
    )


def test_headings_substances_and_keywords() -> None:
    meta = read_one(CITATION).meta
    assert meta.mesh == (
        MeshHeading("Zorblins", major=True),
        MeshHeading("Mice", qualifiers=(MeshQualifier("adverse effects"), MeshQualifier("methods", major=True))),
    )
    assert meta.substances == (
        Substance("Zorblin Receptors"),
        Substance("Zorb (beta) Kinase", registry_number="EC 9.9.9.9"),
    )
    assert meta.keywords == ("wobble", "zorb")


def test_notices_have_pubmeds_names() -> None:
    meta = read_one(CITATION).meta
    assert meta.notices == (
        Notice("RetractionIn", "102", "J Zorb. 2021 Jan;13(1):1"),
        Notice("ErratumIn", None, "J Zorb. 2020 Apr;12(4):2"),
    )
    assert meta.retracted


@pytest.mark.parametrize(
    ("tag", "kind"),
    [
        ("CON ", "CommentOn"),
        ("CIN ", "CommentIn"),
        ("EFR ", "ErratumFor"),
        ("ROF ", "RetractionOf"),
        ("UOF ", "UpdateOf"),
        ("UIN ", "UpdateIn"),
        ("RPF ", "RepublishedFrom"),
        ("RPI ", "RepublishedIn"),
        ("PRIN", "PartialRetractionIn"),
        ("ECI ", "ExpressionOfConcernIn"),
    ],
)
def test_each_tag_of_a_notice_is_known(tag: str, kind: str) -> None:
    meta = read_one(f"PMID- 1\n{tag}- J Zorb. PMID: 7\n").meta
    assert meta.notices == (Notice(kind, "7", "J Zorb"),)
    assert not meta.retracted


@pytest.mark.parametrize(
    ("written", "date"),
    [("2000 Spring", "2000"), ("1998 Dec-1999 Jan", "1998-12"), ("2006 Mar 1", "2006-03-01"), ("soon", None)],
)
def test_dates_in_words(written: str, date: str | None) -> None:
    tally = Tally()
    assert read_one(f"PMID- 1\nDP  - {written}\n", tally).meta.published == date
    assert tally.notes["unparsable date ignored"] == (date is None)


def test_tags_without_a_field_are_counted() -> None:
    tally = Tally()
    read_one(CITATION + "ZZ  - what\n", tally)
    assert tally.notes == {
        "tag OWN ignored": 1,
        "tag PL ignored": 1,
        "tag OTO ignored": 1,
        "tag ZZ ignored": 1,
        "author's Suffix ignored": 1,
    }


def test_a_book_has_its_title_where_it_has_no_other() -> None:
    doc = read_one("PMID- 1\nBTI - Zorblins at home\nFED - Doe, Jane\nED  - Doe J\nISBN- 978-1\n")
    assert (doc.title, doc.meta.other_ids) == ("Zorblins at home", ("isbn:978-1",))
    assert doc.meta.authors == (Author("Doe", "Jane", "J"),)
    assert doc.meta.journal == Journal("Zorblins at home")


def test_records_are_apart_by_blank_lines_or_by_the_next_pmid() -> None:
    docs = read("\n\nPMID- 1\r\nTI  - A\r\n\r\n\r\nPMID- 2\nTI  - B\nPMID- 3\nTI  - C")
    assert [(doc.id, doc.title) for doc in docs] == [("1", "A"), ("2", "B"), ("3", "C")]


def test_a_blank_line_inside_a_value_does_not_end_the_record() -> None:
    assert read_one("PMID- 1\nAB  - One.\n\n      Two.\nLA  - eng\n").passages[0].text == "One. Two."


def test_line_separators_of_unicode_are_text() -> None:
    assert read_one("PMID- 1\nTI  - a\u2028b\x85c\u00a0\n").title == "a\u2028b\x85c\u00a0"


def test_a_byte_order_mark_is_no_text() -> None:
    assert read_one("\ufeffPMID- 1\n").id == "1"


@pytest.mark.parametrize(
    ("middle", "reason", "id_"),
    [
        ("TI  - No number\n", "no_pmid", None),
        ("PMID- \n", "no_pmid", None),
        ("PMID- 2\nthis line has no tag\n", "malformed_line", "2"),
        ("      begins in the middle\n", "malformed_line", None),
        ("PMID- 2\nti  - lower\n", "malformed_line", "2"),
    ],
)
def test_a_bad_record_costs_itself_alone(middle: str, reason: str, id_: str | None, tmp_path: Path) -> None:
    tally = Tally(tmp_path / "rejects.jsonl")
    before = "" if middle.startswith(" ") else "PMID- 1\n\n"
    docs = read(before + middle + "\nPMID- 3\n", tally)
    assert [doc.id for doc in docs] == [*(["1"] if before else []), "3"]
    assert tally.rejected == {reason: 1}
    line = 3 if before else 1
    rejected = (tmp_path / "rejects.jsonl").read_text()
    assert f'"where": "a.nbib, line {line}"' in rejected
    assert (f'"id": "{id_}"' if id_ else '"id": null') in rejected


def test_bytes_of_another_encoding_cost_their_record_or_are_named(tmp_path: Path) -> None:
    raw = "PMID- 1\nTI  - naïve\n\nPMID- 2\n".encode("latin-1")
    tally = Tally(tmp_path / "rejects.jsonl")
    assert [doc.id for doc in read(raw, tally)] == ["2"]
    assert tally.rejected == {"wrong_encoding": 1}
    assert read(raw, encoding="latin-1")[0].title == "naïve"


def test_without_a_place_for_rejects_a_bad_record_raises() -> None:
    with raises(BadDocument, code="no_pmid", mentions="a.nbib, line 1"):
        read("TI  - No number\n")


def test_a_record_that_is_too_large_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(medline, "MAX_RECORD_BYTES", 200)
    tally = Tally(tmp_path / "rejects.jsonl")
    docs = read("PMID- 1\nAB  - zorb\n" + "      zorb\n" * 50 + "\nPMID- 2\n", tally)
    assert [doc.id for doc in docs] == ["2"]
    assert tally.rejected == {"too_large": 1}


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_an_empty_file_is_an_error(content: str) -> None:
    with raises(FormatError, code="empty-file"):
        read(content)


@pytest.mark.parametrize(
    ("name", "content", "format"),
    [
        ("a.nbib", "TI  - Zorb\n", "medline"),
        ("a.txt", "\nPMID- 1\nTI  - Zorb\n", "medline"),
        ("a.txt", "\ufeffPMID- 1\nTI  - Zorb\n", "medline"),
        ("a.txt", "DCOM- 20200101\nPMID- 1\n", "medline"),
        ("a.txt.gz", "OWN - NLM\nPMID- 1\n", "medline"),
        ("a.txt", "DNA - what it is, and PMID- what not\n", "text"),
        ("a.txt", "Zorblins bind.\nPMID- 1\n", "text"),
    ],
)
def test_detection(name: str, content: str, format: str) -> None:
    raw = gzip.compress(content.encode()) if name.endswith(".gz") else content.encode()
    assert detect(open_stream(io.BytesIO(raw), name, Tally())).name == format


@given(st.data())
def test_damage_raises_nothing_unexpected(data: st.DataObject) -> None:
    raw = data.draw(damaged((CITATION + "\nPMID- 2\nTI  - B\n").encode()))
    with suppress(LexomeError):
        read(raw)


@pytest.mark.parametrize(
    ("name", "ids"),
    [
        ("biopython_pubmed_result1.txt", ["12230038"]),
        ("biopython_pubmed_result2.txt", ["16403221", "16377612", "14871861", "14630660"]),
        ("biopython_pubmed_result3.txt", ["23039619"]),
    ],
)
def test_real_files_are_read_whole(real_data: Path, name: str, ids: list[str]) -> None:
    path = real_data / "formats" / "medline_txt" / name
    docs = list(lexome.read(path))
    assert [doc.id for doc in docs] == ids
    folded = " ".join(path.read_text().split())
    for doc in docs:
        assert [passage.kind for passage in doc.passages] == ["title", "abstract"]
        assert all(" ".join(passage.text.split()) in folded for passage in doc.passages)
        assert all((doc.meta.journal, doc.meta.authors, doc.meta.mesh, doc.meta.published))
