"""Ids of concepts over HTTP: by default, with names and pages, in the shapes of BERN2 and PubTator, and limited."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from services import Serving, library, patient_limits

from lexome.infer.annotator import Annotator
from lexome.infer.concepts import ConceptOptions

TEXT = "BRCA1 in breast cancer (BC) and olaparib."
EVIL = "<img src=x onerror=alert(1)>"
TERMS = f"""id\tname\tsynonyms\ttype
NCBIGene:672\tBRCA1\t\tGene
mesh:D001943\t{EVIL}\tbreast cancer\tDisease
LAB:"><b>\tolaparib\t\tChemical
"""


@pytest.fixture(scope="module")
def linking(ner_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Annotator:
    terms = tmp_path_factory.mktemp("terms") / "terms.tsv"
    terms.write_text(TERMS)
    return Annotator.open(ner_folder, threads=1, concepts=ConceptOptions(terms=(str(terms),), only_terms=True))


@pytest.fixture(scope="module")
def linked(serving: Serving, linking: Annotator) -> Iterator[httpx.Client]:
    with serving(linking, library=library()) as client:
        yield client


def ids(answer: httpx.Response) -> list[list[str]]:
    assert answer.status_code == 200, answer.text
    return [span["concepts"] for span in answer.json()["documents"][0]["spans"]]


def test_mentions_have_ids_and_these_names_and_pages(linked: httpx.Client) -> None:
    answer = linked.post("/annotate", json={"text": TEXT})
    assert ids(answer) == [["NCBIGene:672"], ["mesh:D001943"], ['LAB:"><b>']]
    assert answer.json()["concepts"] == {
        "NCBIGene:672": {"name": "BRCA1", "url": "https://www.ncbi.nlm.nih.gov/gene/672"},
        "mesh:D001943": {"name": EVIL, "url": "https://meshb.nlm.nih.gov/record/ui?ui=D001943"},
        'LAB:"><b>': {"name": "olaparib", "url": None},
    }
    about = linked.get("/model").json()
    assert (about["linked_types"], about["dictionaries"]) == (["Chemical", "Disease", "Gene"], ["terms.tsv"])


def test_a_request_may_do_without_ids_and_ask_for_abbreviations(linked: httpx.Client) -> None:
    assert ids(linked.post("/annotate?link=false", json={"text": TEXT})) == [[], [], []]
    doc = linked.post("/annotate?abbreviations=true&types=Gene", json={"text": TEXT}).json()["documents"][0]
    assert [(span["text"], span["type"]) for span in doc["spans"]][1:] == [
        ("BC", "ShortForm"),
        ("breast cancer", "LongForm"),
    ]
    assert [relation["type"] for relation in doc["relations"]] == ["Abbreviation"]
    assert linked.post("/annotate?link=perhaps", json={"text": TEXT}).status_code == 422


def test_converting_links_nothing(linked: httpx.Client) -> None:
    doc = {"id": "1", "passages": [{"offset": 0, "text": "BRCA1"}]}
    span = {"id": "T1", "type": "Gene", "parts": [[0, 5]], "text": "BRCA1"}
    assert ids(linked.post("/annotate?types=", json={"documents": [{**doc, "spans": [span]}]})) == [[]]


def test_bern2_and_pubtator_have_ids(linked: httpx.Client) -> None:
    annotations = linked.post("/plain", json={"text": TEXT}).json()["annotations"]
    assert [one["id"] for one in annotations][:2] == [["NCBIGene:672"], ["mesh:D001943"]]
    page = linked.post("/annotate?to=pubtator", json={"text": TEXT}).text
    assert "\tBRCA1\tGene\t672\n" in page
    assert "\tDisease\tMESH:D001943\n" in page


def test_names_and_ids_are_escaped_on_a_page(linked: httpx.Client) -> None:
    page = linked.post("/annotate?to=html", json={"text": TEXT}).text
    assert "<img" not in page
    assert "&lt;img src=x" in page
    assert 'href="LAB' not in page
    assert "https://meshb.nlm.nih.gov/record/ui?ui=D001943" in page


def test_more_mentions_than_can_be_linked_in_time_are_refused(serving: Serving, linking: Annotator) -> None:
    with serving(linking, patient_limits(stop_s=5, mentions=2)) as client:
        refused = client.post("/annotate", json={"text": TEXT})
        assert refused.status_code == 413
        assert "link=false" in refused.json()["error"]
        assert ids(client.post("/annotate?link=false", json={"text": TEXT})) == [[], [], []]
        assert ids(client.post("/annotate", json={"text": "BRCA1 " * 20})) == [["NCBIGene:672"]] * 20
