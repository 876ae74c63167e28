"""Search over HTTP: indexes given at start, within limits, and what is not there is said."""

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from services import Serving, patient_limits

from lexome.document import Document, Span, lay_out
from lexome.formats import write
from lexome.infer.annotator import Annotator
from lexome.search import storage
from lexome.search.build import index
from lexome.search.engine import Hit, Index

TEXT = "BRCA1 is lost. Olaparib cancer trials began."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("search")
    doc = Document("d1", lay_out([("title", "A title"), ("abstract", TEXT)]))
    at = doc.text.index("BRCA1")
    spans = (Span("T1", "Gene", ((at, at + 5),), "BRCA1", ("NCBIGene:672",)),)
    write(root / "docs.jsonl", [Document("d1", doc.passages, spans), Document("d2", lay_out([("abstract", "Else.")]))])
    index([root / "docs.jsonl"], root / "papers", progress_shown=False)
    return root / "papers"


@pytest.fixture(scope="module")
def papers(serving: Serving, everything: Annotator, folder: Path) -> Iterator[httpx.Client]:
    with serving(everything, indexes={"papers": Index.open(folder)}) as client:
        yield client


def test_passages_are_found_by_words_and_by_concepts(papers: httpx.Client) -> None:
    found = papers.post("/search", json={"query": "olaparib"}).json()
    assert [hit["document"] for hit in found["hits"]] == ["d1"]
    assert set(found["hits"][0]) == set(Hit.__slots__)
    found = papers.post("/search", json={"concepts": ["ncbigene:672"], "index": "papers"}).json()
    assert found["hits"][0]["mentions"][0]["text"] == "BRCA1"
    named = papers.post("/search", json={"concepts": ["BRCA1"]}).json()
    assert (named["total"], named["concepts"]) == (found["total"], {"BRCA1": "NCBIGene:672"})
    assert papers.post("/search", json={"query": '") OR 1=1; --'}).json()["hits"] == []


def test_a_question_is_read_by_the_loaded_reader_or_has_evidence_only(papers: httpx.Client) -> None:
    answered = papers.post("/search/ask", json={"question": "Where is BRCA1?"}).json()
    assert (answered["answers"][0]["text"], answered["answers"][0]["document"]) == ("Olaparib cancer", "d1")
    unread = papers.post("/search/ask", json={"question": "Is BRCA1 lost?"}).json()
    assert (unread["reader"], unread["answers"]) == (None, [])
    assert unread["evidence"][0]["text"] == "BRCA1 is lost."
    assert unread["note"] == "no reader for yes/no questions: these sentences are evidence, not an answer."
    unsure = papers.post("/search/ask", json={"question": "Where is BRCA1?", "min_score": 0.9999}).json()
    assert "does not know (best candidate" in unsure["note"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/search", {}, 422),
        ("/search", {"query": "x", "limit": 101}, 422),
        ("/search", {"query": "x", "limit": 0}, 422),
        ("/search", {"query": "x", "concepts": ["a:b"] * 21}, 422),
        ("/search", {"query": "x", "concepts": ["zorblin"]}, 422),
        ("/search", {"query": "x", "years": "soon"}, 422),
        ("/search", {"query": "x", "method": "vectors"}, 422),
        ("/search", {"query": "x", "method": "magic"}, 422),
        ("/search", {"query": "x", "unknown": 1}, 422),
        ("/search", {"query": "x" * 100_000}, 413),
        ("/search", {"query": "x", "index": "other"}, 404),
        ("/search/ask", {"question": ""}, 422),
        ("/search/ask", {"question": "Welche Gene sind das und was ist der Grund?"}, 422),
    ],
)
def test_what_cannot_be_searched_is_refused(
    papers: httpx.Client, path: str, body: dict[str, object], status: int
) -> None:
    response = papers.post(path, json=body)
    assert response.status_code == status
    assert response.json()["error"]


def test_the_description_has_the_results_own_fields(papers: httpx.Client) -> None:
    schemas = papers.get("/openapi.json").json()["components"]["schemas"]
    assert set(schemas["Hit"]["properties"]) == set(Hit.__slots__)
    assert papers.get("/model").json()["indexes"] == [{"name": "papers", "documents": 2, "vectors": False}]


def test_searches_beyond_the_limit_are_told_to_come_back(serving: Serving, annotator: Annotator, folder: Path) -> None:
    limits = patient_limits(searches=0)
    with serving(annotator, limits, indexes={"papers": Index.open(folder)}) as client:
        response = client.post("/search", json={"query": "x"})
    assert (response.status_code, response.headers["retry-after"]) == (429, "1")


def test_an_index_that_breaks_while_it_is_served_is_unavailable_and_its_path_is_not_told(
    serving: Serving, annotator: Annotator, folder: Path, tmp_path: Path
) -> None:
    broken = Path(shutil.copytree(folder, tmp_path / "broken"))
    with serving(annotator, indexes={"papers": Index.open(broken)}) as client:
        with sqlite3.connect(broken / storage.DATABASE) as connection:
            connection.execute("DROP TABLE postings")
        response = client.post("/search", json={"query": "olaparib"})
        assert (response.status_code, str(broken) in response.text) == (503, False)
        assert client.get("/health").status_code == 200


def test_without_an_index_there_is_no_search(client: httpx.Client) -> None:
    assert client.post("/search", json={"query": "x"}).status_code == 404
    assert client.post("/search/ask", json={"question": "x"}).status_code == 404
