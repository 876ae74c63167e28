"""Bounds: each answers with its status and a reason, and a request within them is answered as before."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from patience import PATIENCE_S, wait_until
from services import BlockingModel, Serving, awaited, patient_limits

from lexome.document import Document
from lexome.infer.annotator import Annotator
from lexome.serve import routes
from lexome.serve.limits import Limits
from lexome.serve.middleware import Gate
from lexome.serve.queue import Queue
from lexome.serve.service import Metrics

SHORT = {"text": "BRCA1 w1"}
# Some thousand windows of a BlockingModel.
LONG = {"text": "BRCA1 w1 w2 w3 " * 8000}


def reason(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text
    assert list(answer.json()) == ["error"]
    return str(answer.json()["error"])


@pytest.fixture(scope="module")
def small(serving: Serving, annotator: Annotator) -> Iterator[httpx.Client]:
    """A client of a service with small bounds."""
    limits = patient_limits(body_bytes=2000, documents=3, characters=100, relations=2, stop_s=5)
    with serving(annotator, limits) as client:
        yield client


def test_a_large_body_is_refused_before_it_is_sent(small: httpx.Client) -> None:
    assert "2,000" in reason(small.post("/annotate", json={"text": "w" * 3000}), 413)


def test_a_large_body_of_unsaid_length_is_refused(small: httpx.Client) -> None:
    answer = small.post("/annotate", content=(b"w" * 100 for _ in range(100)), headers={"content-type": "text/plain"})
    assert "more than 2,000 bytes" in reason(answer, 413)


@pytest.mark.parametrize("path", ["/annotate", "/plain"])
def test_a_long_document_is_refused(small: httpx.Client, path: str) -> None:
    assert "101 characters" in reason(small.post(path, json={"text": "w" * 101}), 413)
    assert small.post(path, json={"text": "w" * 100}).status_code == 200


def test_a_document_that_begins_far_out_is_as_long_as_its_text_would_be(small: httpx.Client) -> None:
    doc = {"id": "1", "passages": [{"offset": 60_000_000, "text": "w"}]}
    assert "60,000,001 characters" in reason(small.post("/annotate", json={"documents": [doc]}), 413)


@pytest.mark.parametrize(("form", "body"), [("jsonl", b'{"text": "w1"}\n' * 4), ("pubtator", b"1|t|w1\n1|a|\n\n" * 4)])
def test_too_many_documents_are_refused(small: httpx.Client, form: str, body: bytes) -> None:
    assert "more than 3 documents" in reason(small.post("/annotate", params={"from": form}, content=body), 413)


def test_too_many_relations_are_refused(small: httpx.Client) -> None:
    span = {"id": "T1", "type": "Gene", "parts": [[0, 1]], "text": "w"}
    chain = [
        {"id": f"R{n}", "type": "r", "arguments": [{"role": "a", "target": f"R{n - 1}" if n else "T1"}]}
        for n in range(3)
    ]
    doc = {"id": "1", "passages": [{"offset": 0, "text": "w"}], "spans": [span], "relations": chain}
    assert "3 relations" in reason(small.post("/annotate", json={"documents": [doc]}), 413)


def test_too_many_pairs_are_refused(serving: Serving, everything: Annotator) -> None:
    with serving(everything, patient_limits(pairs=50, stop_s=5)) as client:
        assert client.post("/annotate", json={"text": "BRCA1 melanoma " * 7}).status_code == 200
        assert "more than 50 pairs" in reason(client.post("/annotate", json={"text": "BRCA1 melanoma " * 8}), 413)


def test_too_many_questions_to_one_text_are_refused(full_client: httpx.Client) -> None:
    questions = [{"id": str(number), "text": "which?"} for number in range(1001)]
    doc = {"id": "1", "passages": [{"offset": 0, "text": "olaparib " * 120}], "questions": questions}
    assert "1,001 questions" in reason(full_client.post("/annotate", json={"documents": [doc]}), 413)
    snippets = [{"offset": 0, "text": "", "kind": "snippet"}] * 2001
    doc = {"id": "1", "passages": snippets, "questions": questions[:1]}
    assert "2,001 windows" in reason(full_client.post("/annotate", json={"documents": [doc]}), 413)


@pytest.mark.parametrize("path", ["/ask", "/annotate"])
def test_a_long_question_is_refused(full_client: httpx.Client, path: str) -> None:
    asked = {"id": "q", "text": "w" * 10_001}
    doc = {"id": "1", "passages": [{"offset": 0, "text": "olaparib"}]}
    body = {"question": asked["text"]} if path == "/ask" else {}
    doc |= {"questions": [asked]} if path == "/annotate" else {}
    answer = full_client.post(path, json={"documents": [doc], **body})
    assert "10,001 characters" in reason(answer, 413)


def test_bodies_of_all_clients_have_a_bound_together(serving: Serving, annotator: Annotator) -> None:
    model = BlockingModel(annotator.models[0])
    limits = patient_limits(held_bytes=150_000, stop_s=5)
    with serving(Annotator([model]), limits, threads=2) as client, ThreadPoolExecutor(1) as pool:
        large = {"text": "w" + " " * 100_000}
        long = pool.submit(client.post, "/annotate", json=LONG)
        assert model.started.wait(PATIENCE_S)
        assert "150,000 bytes" in reason(client.post("/annotate", json=large), 429)
        assert client.post("/annotate", json=SHORT).status_code == 200
        model.release.set()
        assert long.result().status_code == 200
        assert client.post("/annotate", json=large).status_code == 200


def test_answers_that_are_not_taken_count_as_held() -> None:
    size = 8 << 20
    held: list[int] = []

    async def large(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"x" * size})

    gate = Gate(large, limits=Limits(), metrics=Metrics(Queue(Limits(), threads=1)))

    async def send(message: Any) -> None:
        held.append(gate.held_bytes)

    scope = {"type": "http", "path": "/x", "method": "GET", "headers": []}
    awaited(gate(scope, asyncio.Event().wait, send))  # type: ignore[arg-type]
    assert (held, gate.held_bytes) == ([0, size, size], 0)


def test_many_mentions_are_not_written_in_the_loop_that_all_wait_for(
    serving: Serving, annotator: Annotator, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, writing, may_end = routes.document_response, threading.Event(), threading.Event()

    def write_slowly(docs: Sequence[Document], to: str, *rest: Any, **options: Any) -> Any:
        writing.set()
        assert may_end.wait(PATIENCE_S)
        return write(docs, to, *rest, **options)

    monkeypatch.setattr(routes, "document_response", write_slowly)
    text = "ab " * 200
    spans = [{"id": f"S{n}", "type": "X", "parts": [[n, n + 1]], "text": text[n]} for n in range(0, 600, 3)]
    body = {"documents": [{"id": "1", "passages": [{"offset": 0, "text": text}], "spans": spans}]}
    with serving(annotator, threads=1) as client, ThreadPoolExecutor(1) as pool:
        try:
            page = pool.submit(client.post, "/annotate?to=bioc-xml", json=body)
            assert writing.wait(PATIENCE_S)
            # Others are answered while it is being written.
            assert client.get("/health").status_code == 200
            assert not page.done()
        finally:
            may_end.set()
        assert page.result().status_code == 200


def test_a_full_queue_says_when_to_come_again(serving: Serving, annotator: Annotator) -> None:
    model = BlockingModel(annotator.models[0])
    with serving(Annotator([model]), patient_limits(queue=1, stop_s=5)) as client, ThreadPoolExecutor(1) as pool:
        long = pool.submit(client.post, "/annotate", json=LONG)
        assert model.started.wait(PATIENCE_S)
        answer = client.post("/annotate", json=SHORT)
        assert "1 documents" in reason(answer, 429)
        assert 1 <= int(answer.headers["retry-after"]) <= 120
        model.release.set()
        assert long.result().status_code == 200
        assert client.post("/annotate", json=SHORT).status_code == 200


def test_a_queue_is_full_by_characters_too(serving: Serving, annotator: Annotator) -> None:
    limits = patient_limits(queue_characters=100_000, stop_s=5)
    model = BlockingModel(annotator.models[0])
    with serving(Annotator([model]), limits) as client, ThreadPoolExecutor(1) as pool:
        long = pool.submit(client.post, "/annotate", json=LONG)
        assert model.started.wait(PATIENCE_S)
        assert "120,000 characters" in reason(client.post("/annotate", json=SHORT), 429)
        model.release.set()
        assert long.result().status_code == 200


def test_an_answer_that_takes_too_long_is_given_up(serving: Serving, annotator: Annotator) -> None:
    model = BlockingModel(annotator.models[0])
    with serving(Annotator([model]), Limits(answer_s=0.5, stop_s=5), threads=1) as client:
        # The model waits, so that there is no answer in any time.
        answer = client.post("/annotate", json=LONG)
        assert "0.5 s" in reason(answer, 503)
        assert "retry-after" in answer.headers
        model.release.set()
        wait_until(lambda: client.post("/annotate", json=SHORT).status_code == 200)
        assert metric(client, "lexome_queue_documents") == 0
    assert long_runs(model) <= 2, "windows of the request that was given up were run"


def test_work_of_a_client_that_has_gone_is_given_up(serving: Serving, annotator: Annotator) -> None:
    model = BlockingModel(annotator.models[0])
    body = json.dumps(LONG).encode()
    with serving(Annotator([model]), threads=1) as client:
        with socket.create_connection(("127.0.0.1", client.base_url.port or 0), timeout=PATIENCE_S) as wire:
            wire.sendall(b"POST /annotate HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            assert model.started.wait(PATIENCE_S)
        wait_until(lambda: metric(client, "lexome_queue_documents") == 0)
        model.release.set()
        assert client.post("/annotate", json=SHORT).status_code == 200
    assert long_runs(model) <= 2, "windows of the client that has gone were run"


def long_runs(model: BlockingModel) -> int:
    """How many windows of LONG were run; SHORT has a shorter one."""
    return sum(max(run) > 10 for run in model.runs)


def test_too_many_requests_at_once_are_refused(serving: Serving, annotator: Annotator) -> None:
    model = BlockingModel(annotator.models[0])
    with serving(Annotator([model]), patient_limits(requests=1, stop_s=5)) as client, ThreadPoolExecutor(1) as pool:
        long = pool.submit(client.post, "/annotate", json=LONG)
        assert model.started.wait(PATIENCE_S)
        answer = client.get("/model")
        assert "1 requests are open" in reason(answer, 429)
        assert answer.headers["retry-after"] == "1"
        assert client.get("/health").status_code == 200
        model.release.set()
        assert long.result().status_code == 200


def test_a_huge_document_does_not_hold_up_small_ones(serving: Serving, annotator: Annotator) -> None:
    model = BlockingModel(annotator.models[0])
    with serving(Annotator([model]), threads=2) as client, ThreadPoolExecutor(2) as pool:
        long = [pool.submit(client.post, "/annotate", json=LONG) for _ in range(2)]
        assert model.started.wait(PATIENCE_S)
        for _ in range(5):
            assert client.post("/annotate", json=SHORT).status_code == 200
        assert not all(one.done() for one in long)
        model.release.set()
        assert all(one.result().status_code == 200 for one in long)


def metric(client: httpx.Client, name: str) -> float:
    lines = client.get("/metrics").text.splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith(f"{name} ")))
