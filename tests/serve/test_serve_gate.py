"""Who may ask, which headers every answer has, and what is counted."""

import re
from collections.abc import Iterator

import httpx
import pytest
from errors import raises
from prometheus_client.parser import text_string_to_metric_families
from services import Serving
from starlette.testclient import TestClient

from lexome.errors import UsageError
from lexome.infer.annotator import Annotator
from lexome.serve.limits import Limits
from lexome.serve.middleware import local_names
from lexome.serve.queue import Queue
from lexome.serve.server import make_app
from lexome.serve.service import Metrics

PAGE = "https://lab.example"
BODY = {"text": "BRCA1"}


@pytest.fixture(scope="module")
def guarded(serving: Serving, annotator: Annotator) -> Iterator[httpx.Client]:
    """A client of a service that asks for a token, and lets one page elsewhere ask."""
    with serving(annotator, token="sesame", origins=[PAGE]) as client:
        yield client


@pytest.mark.parametrize(
    "given", [None, "Bearer wrong", "Bearer sesame2", "Bearer sesam", "Basic sesame", "sesame", "Bearer é"]
)
@pytest.mark.parametrize("path", ["/annotate", "/metrics", "/model", "/openapi.json", "/nowhere"])
def test_without_the_token_nothing_is_told(guarded: httpx.Client, path: str, given: str | None) -> None:
    headers = {} if given is None else {b"authorization": given.encode()}
    answer = guarded.request("POST" if path == "/annotate" else "GET", path, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "Authorization: Bearer" in answer.json()["error"]


@pytest.mark.parametrize("given", ["Bearer sesame", "bearer  sesame"])
def test_with_the_token_all_is_answered(guarded: httpx.Client, given: str) -> None:
    assert guarded.post("/annotate", json=BODY, headers={"authorization": given}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/docs", "/health", "/healthz", "/ready", "/readyz", "/static/page.js"])
def test_the_page_and_the_state_need_no_token(guarded: httpx.Client, path: str) -> None:
    assert guarded.get(path).status_code == 200


def test_the_description_names_the_token(guarded: httpx.Client) -> None:
    held = guarded.get("/openapi.json", headers={"authorization": "Bearer sesame"}).json()
    assert held["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert {"401", "403", "429"} <= set(held["paths"]["/model"]["get"]["responses"])
    assert held["paths"]["/health"]["get"]["security"] == []


def preflight(client: httpx.Client, origin: str) -> httpx.Response:
    return client.options("/annotate", headers={"origin": origin, "access-control-request-method": "POST"})


def test_a_page_that_is_named_may_ask(guarded: httpx.Client) -> None:
    asked = preflight(guarded, PAGE)
    assert asked.is_success
    assert asked.headers["x-content-type-options"] == "nosniff"
    assert asked.headers["access-control-allow-origin"] == PAGE
    answer = guarded.post("/annotate", json=BODY, headers={"authorization": "Bearer sesame", "origin": PAGE})
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert "origin" in answer.headers["vary"].lower()


@pytest.mark.parametrize("origin", ["https://evil.example", "null", f"{PAGE}.evil.example"])
def test_another_page_may_not_ask(guarded: httpx.Client, origin: str) -> None:
    assert "access-control-allow-origin" not in preflight(guarded, origin).headers


def test_no_page_elsewhere_may_ask_by_default(client: httpx.Client) -> None:
    assert "access-control-allow-origin" not in preflight(client, PAGE).headers
    answer = client.post("/annotate", json=BODY, headers={"origin": PAGE})
    assert "access-control-allow-origin" not in answer.headers


def test_a_page_elsewhere_does_not_even_make_work(client: httpx.Client) -> None:
    for headers in ({"origin": PAGE}, {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}):
        answer = client.post("/annotate", json=BODY, headers=headers)
        assert (answer.status_code, list(answer.json())) == (403, ["error"])


def test_the_own_page_and_a_link_from_elsewhere_are_answered(client: httpx.Client) -> None:
    own = str(client.base_url).rstrip("/")
    for headers in ({"origin": own}, {"origin": own, "sec-fetch-site": "same-origin"}):
        assert client.post("/annotate", json=BODY, headers=headers).status_code == 200
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert client.get("/model", headers=link).status_code == 200
    assert client.post("/annotate", json=BODY, headers=link).status_code == 403


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:9", 200),
        ("127.0.0.1", 200),
        ("[::1]:8000", 200),
        ("lab.example", 200),
        ("evil.example", 403),
        ("[", 403),
    ],
)
def test_a_service_for_this_machine_alone_answers_to_its_names(annotator: Annotator, host: str, status: int) -> None:
    app = make_app(annotator, threads=1, origins=[PAGE], hosts=local_names("127.0.0.1"))
    with TestClient(app) as client:
        assert client.get("/model", headers={"host": host}).status_code == status


def test_only_an_address_of_this_machine_has_its_names() -> None:
    assert local_names("127.0.0.2") is not None
    assert [local_names(host) for host in ("0.0.0.0", "::", "lab.example", "192.168.0.1")] == [None] * 4


@pytest.mark.parametrize("origin", ["*", "lab.example", "https://lab.example/", "https://*.example", "null"])
def test_what_is_no_origin_is_said(annotator: Annotator, origin: str) -> None:
    with raises(UsageError, code="invalid-origin", value=origin):
        make_app(annotator, origins=[origin])


@pytest.mark.parametrize("token", ["", "two words", "é", "a\nb"])
def test_a_token_that_no_header_can_hold_is_said(annotator: Annotator, token: str) -> None:
    with raises(UsageError, code="invalid-token"):
        make_app(annotator, token=token)


@pytest.mark.parametrize("path", ["/", "/health", "/model", "/nowhere"])
def test_every_answer_has_security_headers(client: httpx.Client, path: str) -> None:
    headers = client.get(path).headers
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert "unsafe" not in headers["content-security-policy"]
    assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "DENY")
    assert headers["referrer-policy"] == "no-referrer"
    assert "server" not in headers


def test_the_page_is_sent_again_only_where_it_changed(client: httpx.Client) -> None:
    first = client.get("/")
    assert first.headers["content-type"] == "text/html; charset=utf-8"
    assert "<title>" in first.text
    again = client.get("/", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_every_file_that_the_page_asks_for_is_there(client: httpx.Client) -> None:
    wanted = re.findall(r'(?:href|src)="(static/[^"]+)"', client.get("/").text)
    assert len(wanted) > 2
    assert [client.get(f"/{path}").status_code for path in wanted] == [200] * len(wanted)


def test_health_and_readiness(client: httpx.Client) -> None:
    assert client.get("/health").json() == {"status": "alive"}
    assert client.get("/ready").json() == {"status": "ready"}


def samples(text: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """Values by name and label values, as Prometheus reads them."""
    families = text_string_to_metric_families(text)
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_what_is_done_is_counted(serving: Serving, annotator: Annotator) -> None:
    with serving(annotator) as client:
        for _ in range(3):
            client.post("/annotate", json={"text": "BRCA1 w1 w2"})
        client.post("/annotate", json={})
        client.get("/nowhere/1")
        client.get("/nowhere/2")
        client.get("/pubmed/7")
        answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    counted = samples(answer.text)
    assert counted["lexome_requests_total", ("200", "/annotate")] == 3
    assert counted["lexome_requests_total", ("422", "/annotate")] == 1
    assert counted["lexome_requests_total", ("404", "other")] == 2
    assert counted["lexome_requests_total", ("404", "/pubmed/{ids}")] == 1
    assert counted["lexome_request_seconds_bucket", ("+Inf", "/annotate")] == 4
    assert counted["lexome_request_seconds_count", ("/annotate",)] == 4
    assert (counted["lexome_documents_total", ()], counted["lexome_windows_total", ()]) == (3, 3)
    assert counted["lexome_tokens_total", ()] == 15
    assert (counted["lexome_queue_documents", ()], counted["lexome_requests_in_flight", ()]) == (0, 1)


def test_times_are_counted_up_to_their_bound() -> None:
    metrics = Metrics(Queue(Limits(), threads=1))
    for seconds in (0.3, 0.5, 100.0):
        metrics.add("/x", 200, seconds)
    counted = samples(metrics.exposition()[0].decode())
    buckets = [value for (name, _), value in counted.items() if name == "lexome_request_seconds_bucket"]
    assert buckets == [0] * 6 + [2] * 7 + [3]
    assert counted["lexome_request_seconds_sum", ("/x",)] == pytest.approx(100.8)


def test_two_services_in_one_process_count_apart() -> None:
    one, other = (Metrics(Queue(Limits(), threads=1)) for _ in range(2))
    one.add("/x", 200, 0.1)
    assert ("lexome_requests_total", ("200", "/x")) not in samples(other.exposition()[0].decode())


def test_open_metrics_are_given_to_who_accepts_them(client: httpx.Client) -> None:
    answer = client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert answer.text.endswith("# EOF\n")
