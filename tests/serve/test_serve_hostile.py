"""Broken, slow and hostile requests: a reason for them, and nothing for others to notice."""

import gzip
import io
import select
import socket
import zipfile
from collections.abc import Iterator

import httpx
import pytest
import uvicorn
from patience import PATIENCE_S, wait_until
from services import Serving, patient_limits, running, shorten
from starlette.types import ASGIApp, Receive, Scope, Send

from lexome.infer.annotator import Annotator
from lexome.serve.server import listening

BOMB = (
    b'<!DOCTYPE x [<!ENTITY a "'
    + b"x" * 1000
    + b'">'
    + b"".join(b'<!ENTITY %c "%s">' % (98 + n, b"&%c;" % (97 + n) * 10) for n in range(9))
    + b"]><collection><document><id>1</id><passage><offset>0</offset><text>&j;</text></passage></document></collection>"
)
OUTSIDE = BOMB.partition(b"[")[0] + (
    b'[<!ENTITY j SYSTEM "file:///etc/passwd">]><collection><document><id>1</id><passage><offset>0</offset>'
    b"<text>&j;</text></passage></document></collection>"
)


def packed() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as files:
        files.writestr("a.txt", b"w" * 1_000_000)
    return stream.getvalue()


BROKEN: dict[str, tuple[dict[str, str], bytes, set[int]]] = {
    "no body": ({}, b"", {400}),
    "half of JSON": ({}, b'{"text": "BRCA1', {400}),
    "no UTF-8": ({}, b'{"text": "\xff\xfe"}', {400}),
    "half a surrogate pair": ({}, b'{"text": "\\ud800"}', {400, 422}),
    "deep lists": ({}, b"[" * 200_000, {400}),
    "deep objects": ({}, b'{"a":' * 100_000, {400, 422}),
    "deep documents": ({}, b'{"documents":' + b"[" * 100_000, {400, 422}),
    "many unknown fields": ({}, b'{"text":"a",' + b",".join(b'"%x":1' % n for n in range(300_000)) + b"}", {422}),
    "a list": ({}, b"[1, 2]", {422}),
    "no text": ({}, b"{}", {422}),
    "text and documents": ({}, b'{"text": "a", "documents": []}', {422}),
    "text that is a number": ({}, b'{"text": 1}', {422}),
    "an unknown field": ({}, b'{"text": "a", "path": "/etc/passwd"}', {422}),
    "a mention that is not there": (
        {},
        b'{"documents":[{"id":"1","passages":[{"offset":0,"text":"ab"}],'
        b'"spans":[{"id":"T","type":"Gene","parts":[[0,1]],"text":"b"}]}]}',
        {422},
    ),
    "a huge number": ({}, b'{"documents":[{"id":"1","passages":[{"offset":1e400,"text":"a"}]}]}', {422}),
    "an unknown format": ({"from": "doc"}, b"a", {422}),
    "a Word document that is none": ({"from": "docx"}, b"a", {422}),
    "a Word document by its name only": ({"name": "a.docx"}, b"PK\x03\x04 word/document.xml", {422}),
    "a zip file called a Word document": ({"name": "a.docx"}, packed(), {415}),
    "half a PDF": ({"name": "a.pdf"}, b"%PDF-1.7\n1 0 obj", {422}),
    "a table without columns": ({"from": "csv"}, b"a", {422}),
    "an unknown format of the answer": ({"to": "docx"}, b'{"text": "a"}', {422}),
    "an unknown type": ({"types": "Planet"}, b'{"text": "a"}', {422}),
    "a score that is none": ({"min_score": "nan"}, b'{"text": "a"}', {422}),
    "XML that ends early": ({"from": "bioc-xml"}, b"<collection><document>", {422}),
    "a bomb of entities": ({"from": "bioc-xml"}, BOMB, {422}),
    "an entity from outside": ({"from": "bioc-xml"}, OUTSIDE, {422}),
    "deep XML": ({"from": "bioc-xml"}, b"<collection>" + b"<document>" * 100_000, {422}),
    "a zip file": ({"name": "a.zip"}, packed(), {415}),
    "gzip": ({"from": "text"}, gzip.compress(b"w" * 1_000_000), {415}),
    "Parquet": ({"from": "parquet"}, b"PAR1", {415}),
    "half of brat": ({"from": "brat"}, b"T1\tGene 0 1\tw\n", {415}),
    "a path": ({"from": "text", "name": "/etc/passwd"}, b"", {422, 200}),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_broken_gets_a_reason(client: httpx.Client, case: str) -> None:
    params, body, codes = BROKEN[case]
    answer = client.post("/annotate", params=params, content=body, headers={"content-type": "application/json"})
    assert answer.status_code in codes, answer.text
    assert "root:" not in answer.text
    if answer.status_code != 200:
        assert len(answer.json()["error"]) < 2000


@pytest.mark.parametrize(
    ("body", "place"),
    [(b'{"documents":[%s]}', "documents.0"), (b'{"documents":[{"id":"1","passages":[%s]}]}', "documents.0.passages.0")],
    ids=["documents", "passages"],
)
def test_what_is_wrong_a_million_times_is_said_once(client: httpx.Client, body: bytes, place: str) -> None:
    answer = client.post("/annotate", content=body % (b"1," * 500_000 + b"1"))
    assert answer.status_code == 422
    assert answer.json()["error"].startswith(f"{place}: ")


def test_a_packed_body_is_refused(client: httpx.Client) -> None:
    body = gzip.compress(b'{"text": "BRCA1"}')
    answer = client.post("/annotate", content=body, headers={"content-encoding": "gzip"})
    assert answer.status_code == 415
    assert "gzip" in answer.json()["error"]


@pytest.mark.parametrize("path", ["/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/nowhere"])
def test_no_path_is_opened(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert list(answer.json()) == ["error"]


def test_a_wrong_method_is_said(client: httpx.Client) -> None:
    answer = client.get("/annotate")
    assert answer.status_code == 405
    assert "error" in answer.json()


def test_hostile_text_in_a_page_to_save_stays_text(client: httpx.Client) -> None:
    answer = client.post("/annotate?to=html", json={"text": "<script>alert(1)</script> BRCA1"})
    assert "<script>alert" not in answer.text
    assert answer.headers["content-disposition"].startswith("attachment")


def test_mentions_in_one_another_without_end_are_no_page(client: httpx.Client) -> None:
    text = "ab " * 400
    spans = [
        {"id": f"T{n}", "type": "X", "parts": [[n, 1200 - n]], "text": text[n : 1200 - n]} for n in range(0, 600, 2)
    ]
    doc = {"id": "1", "passages": [{"offset": 0, "text": text}], "spans": spans}
    answer = client.post("/annotate?to=html", json={"documents": [doc]})
    assert answer.status_code == 413
    assert "50,000" in answer.json()["error"]
    assert client.post("/annotate", json={"documents": [doc]}).status_code == 200


def test_what_is_no_http_gets_a_reason(wire: socket.socket) -> None:
    wire.sendall(b"\x16\x03\x01 hello\r\n\r\n")
    answer = everything_of(wire)
    assert answer.startswith(b"HTTP/1.1 400")
    assert b'{"error"' in answer


def test_a_head_without_end_is_refused(wire: socket.socket) -> None:
    wire.sendall(b"GET / HTTP/1.1\r\nx: " + b"y" * 100_000)
    assert everything_of(wire).startswith(b"HTTP/1.1 4")


@pytest.fixture(scope="module")
def hurried(serving: Serving, annotator: Annotator) -> Iterator[httpx.Client]:
    """A client of a service that waits for nobody who sends slowly."""
    with serving(annotator, patient_limits(read_s=1.5, idle_s=1, stop_s=5)) as client:
        yield client


def connection(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)


def connected(client: httpx.Client) -> socket.socket:
    return connection(client.base_url.port or 0)


def everything_of(wire: socket.socket) -> bytes:
    parts = []
    try:
        while part := wire.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def trickle(wire: socket.socket, data: bytes) -> int:
    """Send the data byte by byte until the service answers or it is all sent; how many bytes were sent."""
    for sent, byte in enumerate(data):
        if select.select([wire], [], [], 0.01)[0]:
            return sent
        wire.sendall(bytes([byte]))
    return len(data)


def test_a_head_that_trickles_is_cut_off(hurried: httpx.Client) -> None:
    with connected(hurried) as wire:
        endless = b"GET /health HTTP/1.1\r\nx: " + b"y" * 10_000
        assert trickle(wire, endless) < len(endless)
        answer = everything_of(wire)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"1.5 s" in answer


def test_a_second_head_that_never_comes_whole_is_cut_off(serving: Serving, annotator: Annotator) -> None:
    limits = patient_limits(stop_s=5)
    with serving(annotator, limits) as client, connected(client) as wire:
        wire.sendall(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n")
        answer = b""
        while not answer.endswith(b'{"status":"alive"}'):
            answer += wire.recv(1 << 16)
        shorten(limits, read_s=0.5)
        wire.sendall(b"GET /hea")
        answer += everything_of(wire)
    assert answer.count(b"HTTP/1.1 200") == 1
    assert b"HTTP/1.1 408" in answer


def test_an_idle_connection_is_closed(serving: Serving, annotator: Annotator) -> None:
    with serving(annotator, patient_limits(idle_s=1, stop_s=5)) as client, connected(client) as wire:
        wire.sendall(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n")
        # All that comes until the service closes the connection.
        assert everything_of(wire).endswith(b'{"status":"alive"}')


def test_a_body_that_trickles_is_cut_off(hurried: httpx.Client) -> None:
    with connected(hurried) as wire:
        wire.sendall(b"POST /annotate HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n")
        assert trickle(wire, b" " * 1000) < 1000
        answer = everything_of(wire)
    assert answer.startswith(b"HTTP/1.1 408")


def test_a_client_that_goes_while_it_sends_is_no_failure(client: httpx.Client) -> None:
    def counted(code: int) -> bool:
        return f'lexome_requests_total{{code="{code}",path="/annotate"}}' in client.get("/metrics").text

    with connected(client) as wire:
        wire.sendall(b"POST /annotate HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n{")
    wait_until(lambda: counted(499))
    assert not counted(500)


def test_a_body_in_crumbs_is_cut_off(wire: socket.socket) -> None:
    wire.sendall(b"POST /annotate HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n")
    wire.sendall(b"1\r\n \r\n" * 10_001)
    answer = everything_of(wire)
    assert answer.startswith(b"HTTP/1.1 400")
    assert b"64 bytes" in answer


def test_a_body_in_pieces_is_read(client: httpx.Client) -> None:
    content = (b'{"text": "BRCA1"', *([b" " * 100] * 11_000), b"}")
    assert client.post("/annotate", content=iter(content)).status_code == 200


def test_slow_clients_do_not_hold_up_others(client: httpx.Client) -> None:
    slow = [connected(client) for _ in range(30)]
    try:
        for number, wire in enumerate(slow):
            head = b"POST /annotate HTTP/1.1\r\nhost: a\r\ncontent-length: 99\r\n"
            wire.sendall(head + (b"\r\n{" if number % 2 else b""))
        # The service waits for them for minutes.
        for _ in range(5):
            assert client.post("/annotate", json={"text": "BRCA1"}).status_code == 200
    finally:
        for wire in slow:
            wire.close()


def test_too_many_connections_are_refused(serving: Serving, annotator: Annotator) -> None:
    with serving(annotator, patient_limits(connections=40, stop_s=5)) as client:
        many = [connected(client) for _ in range(45)]
        try:
            answer = everything_of(many[-1])
            assert answer.startswith(b"HTTP/1.1 503")
            assert b"40 connections are open" in answer
        finally:
            for wire in many:
                wire.close()
        wait_until(lambda: client.get("/health").status_code == 200)


def wait_for_close(server: uvicorn.Server) -> None:
    """Wait until the service has answered a request and closed its connection."""
    wait_until(lambda: server.server_state.total_requests > 0 and not server.server_state.connections)


def sending(size: int) -> ASGIApp:
    """An application that answers every request with so many bytes."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError("no lifespan")
        head = [(b"content-length", str(size).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": b"x" * size})

    return app


def test_a_client_that_does_not_read_is_cut_off() -> None:
    size = 64 << 20
    servers: list[uvicorn.Server] = []
    with (
        running(sending(size), patient_limits(send_s=0.5, stop_s=3), servers=servers) as port,
        connection(port) as wire,
    ):
        wire.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        wait_for_close(servers[0])
        assert len(everything_of(wire)) < size
    # A busy machine may take longer than that to read it all.
    with running(sending(size), patient_limits(stop_s=3)) as port, connection(port) as wire:
        wire.sendall(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        assert len(everything_of(wire)) > size


def test_a_client_that_leaves_a_little_unread_is_cut_off_too() -> None:
    """What is left when the connection is idle is less than what fills a buffer, and would lie there for ever."""
    size = 60_000
    servers: list[uvicorn.Server] = []
    limits = patient_limits(send_s=0.5, idle_s=1, stop_s=3)
    with running(sending(size), limits, send_buffer=4096, servers=servers) as port, socket.socket() as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        wire.settimeout(PATIENCE_S)
        wire.connect(("127.0.0.1", port))
        wire.sendall(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        wait_for_close(servers[0])
        assert len(everything_of(wire)) < size


def test_answers_are_sent_without_delay() -> None:
    """asyncio does so only for sockets whose protocol is said."""
    with listening("127.0.0.1", 0) as listener:
        assert listener.proto == socket.IPPROTO_TCP
