"""`lexome serve` as a process: it says where it is, answers, and stops when told to, once all is answered."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
from patience import PATIENCE_S, wait_until

LONG = {"text": "BRCA1 w1 w2 w3 " * 16_000}


@contextmanager
def served(*options: object, token: str = "") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running `lexome serve` and its address."""
    patient = ("--timeout", "600", "--read-timeout", "600")
    command = [sys.executable, "-m", "lexome", "serve", "--port", "0", *patient, *map(str, options)]
    environment = {**os.environ, "LEXOME_TOKEN": token}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if found := re.search(r"http://[\d.]+:\d+", line):
                yield process, found[0]
                break
        else:
            raise AssertionError("".join(lines))
    finally:
        process.kill()
        process.communicate()


def test_it_requires_the_token_and_finishes_open_requests(ner_folder: Path) -> None:
    options = ("--model", ner_folder, "--documents", "samples/pubmed.xml", "--stop-timeout", 600)
    with served(*options, token="sesame") as (process, address):
        client = httpx.Client(base_url=address, headers={"authorization": "Bearer sesame"}, timeout=PATIENCE_S)
        with client, ThreadPoolExecutor(1) as pool:
            assert client.get("/ready").json() == {"status": "ready"}
            assert client.get("/model").json()["documents"] > 0
            assert httpx.get(f"{address}/model").status_code == 401
            long = pool.submit(client.post, "/annotate", json=LONG)
            wait_until(lambda: "lexome_queue_documents 1" in client.get("/metrics").text)
            process.send_signal(signal.SIGTERM)
            assert long.result().status_code == 200
        assert process.wait(PATIENCE_S) == 0
        assert process.stdout is not None
        assert process.stdout.read() == ""


def test_slow_requests_do_not_delay_the_shutdown(ner_folder: Path) -> None:
    stopping = served("--model", ner_folder, "--stop-timeout", 1, "--threads", 1)
    with stopping as (process, address), ThreadPoolExecutor(1) as pool:
        assert httpx.get(f"{address}/model", headers={"host": "elsewhere.example"}).status_code == 403
        docs = [{"id": str(number), "passages": [{"offset": 0, **LONG}]} for number in range(30)]
        long = pool.submit(httpx.post, f"{address}/annotate", json={"documents": docs}, timeout=PATIENCE_S)
        wait_until(lambda: "lexome_queue_documents 30" in httpx.get(f"{address}/metrics").text)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
        # Given up, and not finished first.
        assert (long.result().status_code, list(long.result().json())) == (503, ["error"])
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def run(*options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lexome", "serve", *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)


def test_a_port_in_use_is_reported_and_what_is_wrong_with_dictionaries(ner_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("name,id\nBRCA1,LAB 1\nTP53,LAB:2\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("--model", ner_folder, "--port", port, "--terms", tmp_path / "mine.csv", "--only-terms")
    assert done.returncode == 2
    assert "noted    1 mine.csv: row whose id has a space\n" in done.stderr
    assert "mine.csv: no mention has the type of its terms, Term" in done.stderr
    assert str(port) in done.stderr
    assert "Traceback" not in done.stderr


def test_an_empty_token_file_is_refused(ner_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n")
    done = run("--model", ner_folder, "--token-file", tmp_path / "token")
    assert done.returncode == 2
    assert str(tmp_path / "token") in done.stderr


def test_all_the_world_is_refused_without_a_token(ner_folder: Path) -> None:
    done = run("--model", ner_folder, "--host", "0.0.0.0")
    assert done.returncode == 2
    assert "--insecure" in done.stderr


def test_all_the_world_is_served_if_told_so_with_a_warning(ner_folder: Path) -> None:
    with served("--model", ner_folder, "--host", "0.0.0.0", "--insecure") as (process, address):
        assert process.stderr is not None
        assert process.stderr.readline().startswith("WARNING")
        assert httpx.get(f"{address}/readyz", timeout=PATIENCE_S).status_code == 200


def test_requests_are_logged_and_a_hangup_reloads(ner_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(ner_folder, folder)
    with served("--model", folder) as (process, address):
        assert process.stderr is not None
        headers = {"x-request-id": "abc-1"}
        httpx.post(f"{address}/annotate", json={"text": "BRCA1"}, headers=headers, timeout=PATIENCE_S)
        line = json.loads(process.stderr.readline())
        assert (line["id"], line["path"], line["status"]) == ("abc-1", "/annotate", 200)
        process.send_signal(signal.SIGHUP)
        assert process.stderr.readline().startswith("reloaded")
        shutil.rmtree(folder)
        process.send_signal(signal.SIGHUP)
        assert process.stderr.readline().startswith("reload failed")
        answer = httpx.post(f"{address}/annotate", json={"text": "BRCA1"}, timeout=PATIENCE_S)
        assert answer.status_code == 200
