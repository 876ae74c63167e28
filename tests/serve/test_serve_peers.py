"""BERN2's and PubTator's addresses: their shapes, over texts and over documents given at the start."""

import re

import httpx
import pytest

import lexome
from lexome.document import Document, Passage, Span
from lexome.serve.compat import bern2_record

TEXT = "Olaparib in BRCA1 breast cancer."


def test_plain_has_bern2s_shape(client: httpx.Client) -> None:
    answer = client.post("/plain", json={"text": TEXT}).json()
    assert set(answer) == {"annotations", "text", "timestamp"}
    assert answer["text"] == TEXT
    assert re.fullmatch(r"[A-Z]\w\w [A-Z]\w\w \d\d \d\d:\d\d:\d\d \+0000 \d{4}", answer["timestamp"])
    first = answer["annotations"][0]
    assert 0.9 < first.pop("prob") < 1
    assert first == {
        "id": ["CUI-less"],
        "is_neural_normalized": False,
        "mention": "Olaparib",
        "obj": "drug",
        "span": {"begin": 0, "end": 8},
    }
    assert [one["obj"] for one in answer["annotations"]] == ["drug", "gene", "disease"]
    assert all(TEXT[one["span"]["begin"] : one["span"]["end"]] == one["mention"] for one in answer["annotations"])


@pytest.mark.parametrize(
    ("type_", "named"),
    [
        ("Cell line", "cell_line"),
        ("CellType", "cell_type"),
        ("SequenceVariant", "mutation"),
        ("DNA", "DNA"),
        ("X", "X"),
    ],
)
def test_types_have_bern2s_names(type_: str, named: str) -> None:
    doc = Document("1", (Passage(0, "ab"),), (Span("T1", type_, ((0, 1),), "a", ("mesh:D1",)),))
    [found] = bern2_record(doc, now_s=0)["annotations"]
    assert (found["obj"], found["id"], found["prob"]) == (named, ["mesh:D1"], None)


def test_pubmed_gives_documents_of_the_start(client: httpx.Client) -> None:
    first, second = client.get("/pubmed/101, 102").json()
    assert (first["pmid"], second["pmid"]) == ("101", "102")
    assert first["text"] == "BRCA1 in breast cancer\nOlaparib helps."
    assert [one["mention"] for one in first["annotations"]] == ["BRCA1", "breast cancer", "Olaparib"]
    [known] = second["annotations"]
    assert (known["id"], known["prob"]) == (["NCBIGene:672"], None), "an annotated document is given as it is"


def test_an_unknown_document_is_said(client: httpx.Client) -> None:
    answer = client.get("/pubmed/101,999")
    assert answer.status_code == 404
    assert answer.json()["error"].startswith("999: ")


@pytest.mark.parametrize("ids", [",", "%20"])
def test_no_id_is_said(client: httpx.Client, ids: str) -> None:
    assert client.get(f"/pubmed/{ids}").status_code == 422


FORMS = {"pubtator": "pubtator", "biocxml": "bioc-xml", "biocjson": "bioc-json"}


@pytest.mark.parametrize("form", FORMS)
def test_pubtators_export_is_read_by_readers_of_its_formats(client: httpx.Client, form: str, tmp_path: object) -> None:
    answer = client.get(f"/publications/export/{form}?pmids=101,102")
    assert answer.status_code == 200
    path = tmp_path / "export"  # type: ignore[operator]
    path.write_bytes(answer.content)
    first, second = lexome.read(path, FORMS[form])
    assert [span.text for span in first.spans] == ["BRCA1", "breast cancer", "Olaparib"]
    assert second.spans[0].concepts == ("NCBIGene:672",)


def test_bioc_json_has_what_pubtator_3_puts_around_it(client: httpx.Client) -> None:
    answer = client.get("/publications/export/biocjson?pmids=101").json()
    assert list(answer) == ["PubTator3"]
    [doc] = answer["PubTator3"]
    assert doc["_id"] == "101|PMC7"
    assert (doc["pmid"], doc["pmcid"], doc["date"], doc["journal"]) == (101, "PMC7", "2021-03", "J Test")
    assert doc["authors"] == ["Curie M", "The Group"]
    assert doc["passages"][0]["annotations"][0]["infons"]["type"] == "Gene"


def test_pubtators_export_leaves_out_and_names_what_is_unknown(client: httpx.Client) -> None:
    answer = client.get("/publications/export/pubtator?pmids=999,102,é")
    assert answer.status_code == 200
    assert answer.headers["lexome-unknown"] == "999,?"
    none = client.get("/publications/export/pubtator?pmids=999")
    assert none.status_code == 404
    assert "999" in none.json()["error"]


def test_an_unknown_id_cannot_write_headers(client: httpx.Client) -> None:
    answer = client.get("/publications/export/pubtator", params={"pmids": "102,9\r\nset-cookie: a=b"})
    assert answer.status_code == 200
    assert answer.headers["lexome-unknown"] == "9??set-cookie: a=b"
    assert "set-cookie" not in answer.headers


def test_pubtators_export_of_another_form_is_refused(client: httpx.Client) -> None:
    assert client.get("/publications/export/pdf?pmids=101").status_code == 422
    assert client.get("/publications/export/pubtator").status_code == 422
