"""What an operator needs: request ids, a log without texts, state, the API page, and a reload that drops nobody."""

import json
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from dictionary_models import WORDS, dictionary_model
from patience import PATIENCE_S
from services import BlockingModel, Serving

from lexome.errors import CheckpointError
from lexome.infer.annotator import Annotator

TOKEN = {"authorization": "Bearer sesame"}


@pytest.mark.parametrize("path", ["/health", "/healthz", "/ready", "/readyz"])
def test_state_has_the_paths_of_both_customs(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 200


@pytest.mark.parametrize(
    "path", ["/", "/docs", "/health", "/ready", "/model", "/static/api.js", "/nowhere", "/annotate"]
)
def test_head_has_the_status_and_headers_of_get_and_no_body(client: httpx.Client, path: str) -> None:
    head, got = client.head(path), client.get(path)
    assert (head.status_code, head.content) == (got.status_code, b"")
    for name in ("content-type", "content-length", "etag", "allow"):
        assert head.headers.get(name) == got.headers.get(name)


def test_a_request_keeps_the_id_of_a_proxy_or_gets_one(client: httpx.Client) -> None:
    given = client.get("/model", headers={"x-request-id": "trace-1:2/3"})
    assert given.headers["x-request-id"] == "trace-1:2/3"
    made = [client.get("/model").headers["x-request-id"] for _ in range(2)]
    assert made[0] != made[1]
    for unfit in ("", "a b", 'x"y', "x" * 129):
        answer = client.get("/model", headers={"x-request-id": unfit})
        assert answer.headers["x-request-id"] != unfit
        assert len(answer.headers["x-request-id"]) == 32


def test_errors_have_an_id_too(client: httpx.Client) -> None:
    assert client.get("/nowhere").headers["x-request-id"]
    refused = client.post("/annotate", json={"text": "a"}, headers={"origin": "https://x.example"})
    assert (refused.status_code, bool(refused.headers["x-request-id"])) == (403, True)


def test_the_log_has_a_line_a_request_and_nothing_of_its_text(
    serving: Serving, annotator: Annotator, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="lexome.access"), serving(annotator) as client:
        body, headers = b"secrettext about BRCA1", {"a": "secrethead"}
        answer = client.post("/annotate?name=secretname.txt", content=body, headers=headers)
        client.get("/pubmed/secretid")
        client.get("/secretpath?secretquery=1")
        client.get("/healthz")
    logged = [record.getMessage() for record in caplog.records if record.name == "lexome.access"]
    lines = [json.loads(line) for line in logged]
    assert [(line["method"], line["path"], line["status"]) for line in lines] == [
        ("POST", "/annotate", 200),
        ("GET", "/pubmed/{ids}", 404),
        ("GET", "other", 404),
    ]
    assert lines[0]["id"] == answer.headers["x-request-id"]
    assert (lines[0]["bytes_in"], lines[0]["bytes_out"]) == (len(body), len(answer.content))
    assert "secret" not in "".join(logged)


def test_an_internal_error_names_the_request(
    serving: Serving, annotator: Annotator, caplog: pytest.LogCaptureFixture
) -> None:
    [window] = annotator.models[0].encode(annotator.document("BRCA1"))
    model = BlockingModel(annotator.models[0], fails=len(window.ids))
    model.release.set()
    with serving(Annotator([model])) as client:
        answer = client.post("/annotate", json={"text": "BRCA1"}, headers={"x-request-id": "n-7"})
    assert answer.status_code == 500
    assert "n-7" in answer.json()["error"]
    assert "n-7" in caplog.text


def test_the_api_page_comes_from_the_service_alone(client: httpx.Client) -> None:
    page = client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "//" not in page.text
    for name in ("swagger-ui-bundle.js", "swagger-ui.css", "docs.js"):
        assert f"static/{name}" in page.text
        assert client.get(f"/static/{name}").status_code == 200


@pytest.fixture
def other(tmp_path: Path) -> Annotator:
    """A model that knows one word more."""
    return Annotator.open(dictionary_model(tmp_path / "other", {**WORDS, "cells": ("B-Disease", 6.0)}), threads=1)


def found(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [span["text"] for doc in answer.json()["documents"] for span in doc.get("spans", [])]


def test_requests_in_progress_end_on_the_old_model(serving: Serving, annotator: Annotator, other: Annotator) -> None:
    old = BlockingModel(annotator.models[0])
    started = serving(Annotator([old]), token="sesame", open_models=lambda: other)
    with started as client, ThreadPoolExecutor(1) as pool:
        client.headers.update(TOKEN)
        first = pool.submit(client.post, "/annotate", json={"text": "cells with BRCA1"})
        assert old.started.wait(PATIENCE_S)
        about = client.post("/reload")
        assert about.status_code == 200
        assert about.json()["models"][0]["name"] == other.models[0].name
        assert found(client.post("/annotate", json={"text": "cells with BRCA1"})) == ["cells", "BRCA1"]
        assert not first.done()
        old.release.set()
        assert found(first.result()) == ["BRCA1"]


def missing() -> Annotator:
    raise CheckpointError("no such folder")


def failing(annotator: Annotator) -> Annotator:
    """Opens, and fails at the first text."""
    model = BlockingModel(annotator.models[0])
    model.release.set()
    model.run = lambda examples, *, batch_tokens=0: 1 / 0  # type: ignore[assignment,method-assign,return-value]
    return Annotator([model])


@pytest.mark.parametrize("kind", ["missing", "failing"])
def test_a_new_model_that_fails_is_not_used(serving: Serving, annotator: Annotator, kind: str) -> None:
    open_models = missing if kind == "missing" else lambda: failing(annotator)
    with serving(annotator, token="sesame", open_models=open_models) as client:
        client.headers.update(TOKEN)
        answer = client.post("/reload")
        assert (answer.status_code, list(answer.json())) == (503, ["error"])
        assert found(client.post("/annotate", json={"text": "BRCA1"})) == ["BRCA1"]


@pytest.fixture
def guarded(serving: Serving, annotator: Annotator, other: Annotator) -> Iterator[httpx.Client]:
    with serving(annotator, token="sesame", open_models=lambda: other) as client:
        yield client


def test_a_reload_is_for_the_owner_of_the_token(
    serving: Serving, annotator: Annotator, other: Annotator, guarded: httpx.Client
) -> None:
    assert guarded.post("/reload").status_code == 401
    assert guarded.get("/reload", headers=TOKEN).status_code == 405
    with serving(annotator, open_models=lambda: other) as client:
        assert client.post("/reload").status_code == 403
    with serving(annotator, token="sesame") as client:
        assert client.post("/reload", headers=TOKEN).status_code == 404
