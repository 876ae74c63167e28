"""Relations over HTTP: asked for or not, filtered, and as a table."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from services import Serving

from lexome.infer.annotator import Annotator

TEXT = {"text": "BRCA1 melanoma good olaparib breast cancer ."}


def ask(client: httpx.Client, **query: Any) -> httpx.Response:
    return client.post("/annotate", json=TEXT, params=query)


def relations(client: httpx.Client, **query: Any) -> list[dict[str, Any]]:
    answer = ask(client, **query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["documents"][0]["relations"]
    return found


def test_relations_are_predicted_unless_they_are_not_wanted(full_client: httpx.Client) -> None:
    assert [one["type"] for one in relations(full_client)] == ["raises", "raises"]
    assert relations(full_client, relations="true") == relations(full_client)
    assert relations(full_client, relations="false") == []
    assert "raises" in full_client.get("/model").json()["relation_types"]


def test_relations_are_filtered_by_type_and_score(full_client: httpx.Client) -> None:
    weak, strong = sorted(one["score"] for one in relations(full_client))
    assert [one["score"] for one in relations(full_client, min_relation_score=(weak + strong) / 2)] == [strong]
    assert len(relations(full_client, relation_types="Raises")) == 2
    assert relations(full_client, relation_types="no") == []
    spans = ask(full_client, min_relation_score=1).json()["documents"][0]["spans"]
    assert len(spans) == 4


def test_a_table_of_relations_has_a_row_for_each(full_client: httpx.Client) -> None:
    table = ask(full_client, to="csv", table="relations").text.splitlines()
    assert len(table) == 3
    assert len(ask(full_client, to="csv").text.splitlines()) == 5
    assert ask(full_client, to="csv", table="words").status_code == 422


@pytest.mark.parametrize(
    "query", [{"relations": "true"}, {"relation_types": "raises"}, {"min_relation_score": 0.5}], ids=str
)
def test_a_service_without_a_relation_model_says_so(client: httpx.Client, query: dict[str, Any]) -> None:
    answer = ask(client, **query)
    assert answer.status_code == 404
    assert "--relations" in answer.json()["error"]


def test_types_that_leave_no_pairs_are_refused(full_client: httpx.Client) -> None:
    answer = ask(full_client, relations="true", types="Disease")
    assert answer.status_code == 422
    assert "Gene and Disease" in answer.json()["error"]
    assert ask(full_client, relation_types="unknown").status_code == 422
    assert "'Dizease'" in ask(full_client, relations="true", types="Gene,Dizease").json()["error"]


@pytest.mark.parametrize("query", [{"relation_types": "raises"}, {"min_relation_score": 0}], ids=str)
def test_a_filter_of_relations_that_are_not_wanted_is_refused(full_client: httpx.Client, query: dict[str, Any]) -> None:
    answer = ask(full_client, relations="false", **query)
    assert (answer.status_code, "relations=false" in answer.json()["error"]) == (422, True)


def test_types_that_are_asked_for_have_any_case(full_client: httpx.Client) -> None:
    found = relations(full_client, relations="true", types="gene,disease")
    assert found
    assert found == relations(full_client, types="Gene,Disease")


def test_a_relation_model_alone_relates_the_mentions_of_documents(serving: Serving, all_folders: list[Path]) -> None:
    with serving(Annotator.open(all_folders[0], threads=1)) as client:
        body = {"documents": ask(client).json()["documents"]}
    with serving(Annotator.open(all_folders[1], threads=1)) as client:
        answer = client.post("/annotate", json=body, params={"relations": "true"})
    assert [one["type"] for one in answer.json()["documents"][0]["relations"]] == ["raises", "raises"]
