"""Europe PMC JSON: both of its forms, and what becomes of results that are not as they should be."""

import io
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from errors import raises
from hypothesis import given
from hypothesis import strategies as st
from mutations import damaged, mistyped

import lexome
from lexome import Document, LexomeError, Passage, Tally
from lexome.errors import BadDocument, FormatError
from lexome.formats import detect, europepmc, json_file
from lexome.formats.streams import open_stream
from lexome.metadata import Author, Journal, MeshHeading, MeshQualifier, Notice, Substance

# As the search service gives it.
PLAIN: dict[str, Any] = {
    "id": "101",
    "source": "MED",
    "pmid": "101",
    "pmcid": "PMC77",
    "doi": "10.5555/zorb.1",
    "title": "Zorblins bind <i>naïvely</i> &amp; often.",
    "authorString": "Doe JA, Zorblin Study Group.",
    "authorList": {
        "author": [
            {
                "fullName": "Doe JA",
                "firstName": "Jane A",
                "lastName": "Doe",
                "initials": "JA",
                "authorId": {"type": "ORCID", "value": "0000-0001-2345-678X"},
                "authorAffiliationDetailsList": {"authorAffiliation": [{"affiliation": "Zorb House."}]},
            },
            {"collectiveName": "Zorblin Study Group"},
        ]
    },
    "journalInfo": {
        "issue": "3",
        "volume": "12",
        "dateOfPublication": "2020 Mar",
        "printPublicationDate": "2020-03-01",
        "journal": {
            "title": "Journal of zorblins",
            "isoabbreviation": "J Zorb",
            "nlmid": "0000001",
            "issn": "1111-2222",
            "essn": "3333-4444",
        },
    },
    "pageInfo": "10-9",
    "abstractText": "Zorbs.<h4>Background</h4>They are small, p<a and b>c.<h4>Methods </h4>We saw H<sub>2</sub>O.",
    "language": "eng",
    "pubTypeList": {"pubType": ["Journal Article", "Retracted Publication"]},
    "keywordList": {"keyword": ["wobble", "zorb"]},
    "meshHeadingList": {
        "meshHeading": [
            {"majorTopic_YN": "Y", "descriptorName": "Zorblins"},
            {
                "majorTopic_YN": "N",
                "descriptorName": "Mice",
                "meshQualifierList": {
                    "meshQualifier": [{"abbreviation": "MT", "qualifierName": "methods", "majorTopic_YN": "Y"}]
                },
            },
        ]
    },
    "chemicalList": {"chemical": [{"name": "Zorb Kinase", "registryNumber": "EC 9.9.9.9"}, {"name": "Zorbate"}]},
    "commentCorrectionList": {
        "commentCorrection": [
            {"id": "102", "source": "MED", "reference": "J Zorb. 2021", "type": "Retraction in", "orderIn": 1}
        ]
    },
    "license": "cc by",
    "dateOfRevision": "2021-03-09",
    "electronicPublicationDate": "2020-03-17",
    "firstPublicationDate": "2020-03-17",
    "citedByCount": 0,
    "inEPMC": "Y",
}


def boxed(value: Any) -> Any:
    """The result as getpapers writes it: every value in a list, attributes under $."""
    if isinstance(value, dict):
        if "value" in value:
            return {"_": value["value"], "$": {"type": value["type"]}}
        return {
            key: inner if isinstance(inner, list) else [inner]
            for key, inner in ((key, boxed(inner)) for key, inner in value.items())
        }
    return [boxed(item) for item in value] if isinstance(value, list) else str(value)


def read_raw(raw: bytes, tally: Tally | None = None) -> list[Document]:
    with tally or Tally() as tally:
        return list(europepmc.read(open_stream(io.BytesIO(raw), "a.json", tally), tally=tally))


def read(content: Any, tally: Tally | None = None) -> list[Document]:
    return read_raw(json.dumps(content).encode(), tally)


def answer(*results: Any) -> dict[str, Any]:
    return {
        "version": "6.9",
        "hitCount": len(results),
        "request": {"queryString": "zorb"},
        "resultList": {"result": results},
    }


def read_one(tally: Tally | None = None, **changed: Any) -> Document:
    (doc,) = read(answer({**PLAIN, **changed}), tally)
    return doc


def test_title_and_abstract_lose_their_markup_and_keep_their_sections() -> None:
    assert read_one().passages == (
        Passage(0, "Zorblins bind naïvely & often.", "title"),
        Passage(31, "Zorbs.", "abstract"),
        Passage(38, "They are small, p<a and b>c.", "abstract", ("Background",)),
        Passage(67, "We saw H2O.", "abstract", ("Methods",)),
    )


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("T<br/>U", "T U"),
        ("T <BR> U", "T U"),
        ("<p>T</p><p>U</p>", "T U"),
        ("<sec><title>T</title><list><list-item>U</list-item><list-item>V</list-item></list></sec>", "T U V"),
        ("T<sub>2</sub>-<i>U</i>", "T2-U"),
    ],
)
def test_markup_that_breaks_lines_leaves_a_space(markup: str, text: str) -> None:
    doc = read_one(title=markup, abstractText=markup)
    assert [passage.text for passage in doc.passages] == [text, text]


def test_a_heading_may_have_markup_inside() -> None:
    doc = read_one(abstractText="<h4>Aims <i>x</i></h4>See.<h4>Not closed")
    assert [(passage.section, passage.text) for passage in doc.passages[1:]] == [(("Aims x",), "See. Not closed")]


def test_a_heading_without_text_is_counted() -> None:
    tally = Tally()
    doc = read_one(tally, abstractText="<h4>Results</h4><h5>Size</h5>Small.")
    assert [passage.section for passage in doc.passages[1:]] == [("Size",)]
    assert tally.notes["heading without text ignored"] == 1


def test_a_bare_pmc_number_gets_its_letters() -> None:
    assert read_one(pmcid="77").meta.pmcid == "PMC77"


def test_metadata() -> None:
    doc = read_one()
    meta = doc.meta
    assert (doc.id, meta.pmid, meta.pmcid, meta.doi, meta.other_ids) == ("101", "101", "PMC77", "10.5555/zorb.1", ())
    assert (meta.published, meta.revised, meta.languages) == ("2020-03-17", "2021-03-09", ("eng",))
    assert meta.journal == Journal(
        "Journal of zorblins", "J Zorb", ("1111-2222", "3333-4444"), "0000001", "12", "3", "10-9"
    )
    assert meta.authors == (
        Author("Doe", "Jane A", "JA", None, "0000-0001-2345-678X", ("Zorb House.",)),
        Author(collective="Zorblin Study Group"),
    )
    assert meta.mesh == (
        MeshHeading("Zorblins", major=True),
        MeshHeading("Mice", qualifiers=(MeshQualifier("methods", major=True),)),
    )
    assert meta.substances == (Substance("Zorb Kinase", registry_number="EC 9.9.9.9"), Substance("Zorbate"))
    assert meta.keywords == ("wobble", "zorb")
    assert meta.notices == (Notice("RetractionIn", "102", "J Zorb. 2021"),)
    assert meta.retracted
    assert (meta.license, meta.article_types) == ("cc by", ("Journal Article", "Retracted Publication"))


def test_what_getpapers_writes_is_the_same_document() -> None:
    docs = read([boxed(PLAIN), boxed({**PLAIN, "pmid": "102"})])
    assert docs[0] == read_one()
    assert docs[1].id == "102"


def test_a_file_of_one_result_is_one_document() -> None:
    assert read(boxed(PLAIN)) == [read_one()]


def test_a_short_result_is_read_from_its_few_fields() -> None:
    short = {
        "id": "PPR5",
        "source": "PPR",
        "title": "Zorb.",
        "authorString": "Doe JA, van der Roe R, Zorblin Study Group.",
        "journalTitle": "J Zorb",
        "journalVolume": "12",
        "issue": "3",
        "journalIssn": "1111-2222; 3333-4444",
        "pubYear": "2020",
        "pubType": "preprint; review",
    }
    (doc,) = read(answer(short))
    assert (doc.id, doc.meta.other_ids, doc.meta.published) == ("PPR5", ("ppr:PPR5",), "2020")
    assert doc.meta.journal == Journal("J Zorb", issn=("1111-2222", "3333-4444"), volume="12", issue="3")
    assert doc.meta.authors == (
        Author("Doe", initials="JA"),
        Author("van der Roe", initials="R"),
        Author(collective="Zorblin Study Group"),
    )
    assert doc.meta.article_types == ("preprint", "review")


def test_the_id_is_the_pmc_id_where_there_is_no_pmid() -> None:
    doc = read_one(pmid=None, id="PMC77")
    assert (doc.id, doc.meta.pmid, doc.meta.other_ids) == ("PMC77", None, ())


def test_an_address_of_the_result_is_the_first_authors_where_no_author_has_one() -> None:
    authors = {"author": [{"lastName": "Doe"}, {"lastName": "Roe"}]}
    doc = read_one(authorList=authors, affiliation="Zorb House.")
    assert [author.affiliations for author in doc.meta.authors] == [("Zorb House.",), ()]


def test_fields_that_are_not_read_are_counted() -> None:
    tally = Tally()
    read_one(tally, grantsList={"grant": [1]}, affiliation="Elsewhere.")
    assert tally.notes == {
        "field 'citedByCount' ignored": 1,
        "field 'inEPMC' ignored": 1,
        "field 'grantsList' ignored": 1,
        "field 'affiliation' ignored": 1,
    }


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ({"title": "Zorb."}, "no_id"),
        ("Zorb.", "bad_field"),
        ({"id": "5", "title": {"en": 1}, "abstractText": [["x"]]}, "bad_field"),
        ({"id": "5", "pmid": ["5", "6"]}, "bad_field"),
        ({"id": "5", "authorList": ["Doe"]}, "bad_field"),
        ({"id": "5", "title": "\ud800"}, "not_unicode"),
    ],
)
@pytest.mark.parametrize("wrap", [lambda *results: list(results), answer])
def test_a_bad_result_costs_itself_alone(bad: Any, reason: str, wrap: Any, tmp_path: Path) -> None:
    tally = Tally(tmp_path / "rejects.jsonl")
    assert [doc.id for doc in read(wrap(PLAIN, bad, {**PLAIN, "pmid": "102"}), tally)] == ["101", "102"]
    assert tally.rejected == {reason: 1}
    assert "a.json, result 2" in (tmp_path / "rejects.jsonl").read_text()


def test_without_a_place_for_rejects_a_bad_result_raises() -> None:
    with raises(BadDocument, code="no_id", mentions="result 1"):
        read([{"title": "Zorb."}])


@pytest.mark.parametrize(
    ("raw", "code", "value"),
    [
        (b"", "malformed-json", "a.json"),
        (b'{"documents": []}', "missing-key", "resultList"),
        (b'{"resultList": {}}', "missing-key", "result"),
        (b'[{"id": "1"} {"id": "2"}]', "malformed-json", "a.json"),
        (b'[{"id": "1"}] x', "malformed-json", "a.json"),
        (b'"zorb"', "malformed-json", "a.json"),
    ],
)
def test_a_file_of_another_kind_is_an_error(raw: bytes, code: str, value: str) -> None:
    with raises(FormatError, code=code, value=value):
        read_raw(raw)


def test_a_list_that_breaks_off_gives_what_came_before() -> None:
    raw = json.dumps([PLAIN, PLAIN]).encode()[:-30]
    tally = Tally()
    docs = europepmc.read(open_stream(io.BytesIO(raw), "a.json", tally), tally=tally)
    assert next(docs).id == "101"
    with raises(FormatError, code="malformed-json"):
        next(docs)


def test_results_do_not_depend_on_where_blocks_end(monkeypatch: pytest.MonkeyPatch) -> None:
    content = [{**PLAIN, "id": str(number), "pmid": None, "pmcid": None} for number in range(3)]
    whole = read(content)
    for size in (1, 7, 500):
        monkeypatch.setattr(json_file, "BLOCK_BYTES", size)
        assert read(content) == whole


def test_an_answer_without_results_has_no_documents() -> None:
    assert read(answer()) == []


@pytest.mark.parametrize("content", [[boxed(PLAIN)], boxed(PLAIN), answer(PLAIN), answer()])
def test_detection(content: Any) -> None:
    raw = json.dumps(content).encode()
    assert detect(open_stream(io.BytesIO(raw), "a.json", Tally())).name == "europepmc"


@given(st.data())
def test_damage_raises_nothing_unexpected(data: st.DataObject) -> None:
    content = data.draw(st.sampled_from([[boxed(PLAIN)], answer(PLAIN)]))
    raw = data.draw(mistyped(content) | damaged(json.dumps(content).encode()))
    with suppress(LexomeError):
        read_raw(raw)


def test_real_results(real_data: Path) -> None:
    path = real_data / "formats" / "eupmc_json" / "contentmine_aardvark_eupmc_results.json"
    tally = Tally()
    docs = list(lexome.read(path, tally=tally))
    raw = json.loads(path.read_text())
    assert (len(docs), sum(doc.meta.pmid is not None for doc in docs)) == (111, 110)
    assert tally.files == {"europepmc": 1}
    for doc, record in zip(docs, raw, strict=True):
        texts = [record["title"][0], *record.get("abstractText", [])]
        assert [passage.text for passage in doc.passages] == [text.strip() for text in texts if text.strip()]
        assert len(doc.meta.authors) == len(record["authorList"][0]["author"])
        assert len(doc.meta.mesh) == len(record.get("meshHeadingList", [{"meshHeading": []}])[0]["meshHeading"])
        assert doc.meta.doi == record.get("DOI", [None])[0]
    assert sum(len(doc.meta.mesh) for doc in docs) > 0
    assert [notice.kind for doc in docs for notice in doc.meta.notices] == ["ErratumIn", "CommentIn", "CommentOn"]
