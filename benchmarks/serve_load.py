"""The service under load: many concurrent clients, compared with the same model and texts without HTTP.

    python benchmarks/serve_load.py MODEL [--clients 64] [--seconds 60] [--cores 2] [--data FOLDER]

Each client sends abstracts of the folder one after another over one connection. Before and after,
the same texts go through the annotator on the same cores: in one process that uses all of them, and in one process per
core as in bulk annotation. The service is compared with the faster of the two. Clients run in a process of their own,
on other cores if there are any; if not, as the result records, they take time from the service. The first responses are
compared with the output of the annotator itself. Finally, a sentence is timed during requests of 400,000 characters.
Writes results/serve_load.json.
"""

import argparse
import asyncio
import json
import lzma
import os
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from facts import facts
from lexome.document import Document
from lexome.infer.annotator import Annotator, load
from real_data import ABSTRACTS

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "results" / "serve_load.json"
TEXTS = 1000
COMPARED = 100
BOOKS, BOOK = 3, 400_000


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("model", type=Path)
    options.add_argument("--clients", type=int, default=64)
    options.add_argument("--seconds", type=float, default=60.0)
    options.add_argument("--cores", type=int, default=2)
    options.add_argument("--data", type=Path, default=ABSTRACTS, help="folder with the abstracts")
    options.add_argument("--out", type=Path, default=RESULT)
    given = options.parse_args()
    everything = sorted(os.sched_getaffinity(0))
    cores, others = everything[: given.cores], everything[given.cores :]
    texts = abstracts(given.data, TEXTS)
    os.sched_setaffinity(0, cores)
    before = offline(given.model, texts, len(cores), given.seconds / 6)
    with service(given.model, cores) as port:
        os.sched_setaffinity(0, others or cores)
        load_ = asyncio.run(loaded(port, texts, given.clients, given.seconds))
        beside = asyncio.run(beside_books(port, texts, given.seconds / 3))
        os.sched_setaffinity(0, cores)
    after = offline(given.model, texts, len(cores), given.seconds / 6)
    answers = load_.pop("answers")
    rates = {name: round((before[name] + after[name]) / 2, 2) for name in before}
    result = {
        "facts": facts("fastapi", "uvicorn", "onnxruntime", "numpy"),
        "model": load(given.model, threads=1).about()["models"],
        "server_cores": len(cores),
        "client_cores": len(others),
        "offline_docs_per_s": rates,
        "offline_before_and_after": [before, after],
        **load_,
        "part_of_offline": round(load_["docs_per_s"] / max(rates.values()), 3),
        "short_beside_books": beside,
        "answers_compared": compared(given.model, answers),
    }
    given.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def abstracts(folder: Path, count: int) -> list[str]:
    """Titles and texts of the first abstracts."""
    path = sorted(folder.glob("*.jsonl.xz"))[0]
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in islice(lines, count)]
    return [f"{record['title']} {record['text']}" for record in records]


def offline(model: Path, texts: Sequence[str], cores: int, seconds: float) -> dict[str, float]:
    """Documents per second without HTTP: one process for all cores, and one process per core."""
    with ProcessPoolExecutor(1) as pool:
        one = pool.submit(rate, model, texts, cores, seconds).result()
    with ProcessPoolExecutor(cores) as pool:
        parts = [pool.submit(rate, model, texts[number::cores], 1, seconds) for number in range(cores)]
        several = sum(part.result() for part in parts)
    return {"one process": round(one, 2), "a process a core": round(several, 2)}


def rate(model: Path, texts: Sequence[str], threads: int, seconds: float) -> float:
    """Documents per second of an annotator with a number of threads."""
    annotator = load(model, threads=threads)
    list(annotator.annotate(map(annotator.document, texts[:8])))
    done, began = 0, time.perf_counter()
    for _ in annotator.annotate(map(annotator.document, cycle(texts)), together=16):
        done += 1
        if done % 16 == 0 and time.perf_counter() - began > seconds:
            break
    return done / (time.perf_counter() - began)


@contextmanager
def service(model: Path, cores: Sequence[int]) -> Iterator[int]:
    """Context manager: `lexome serve` on some cores; yields its port."""
    command = [sys.executable, "-m", "lexome", "serve", "--model", str(model), "--port", "0"]
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, preexec_fn=lambda: os.sched_setaffinity(0, cores)
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            found = re.search(r":(\d+)/$", line.strip())
            if found:
                yield int(found[1])
                break
    finally:
        process.terminate()
        process.wait()


async def loaded(port: int, texts: Sequence[str], clients: int, seconds: float) -> dict[str, Any]:
    """Responses per second after the first seconds, and the latency of each."""
    times: list[tuple[float, float]] = []
    codes: Counter[str] = Counter()
    answers: dict[int, bytes] = {}
    source = iter(enumerate(cycle(texts)))
    began = time.perf_counter()
    end = began + seconds

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < end:
            number, text = next(source)
            sent = time.perf_counter()
            try:
                code, body = await asked(reader, writer, text)
            except (OSError, asyncio.IncompleteReadError) as error:
                codes[type(error).__name__] += 1
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                continue
            codes[code] += 1
            times.append((sent, time.perf_counter()))
            if number < COMPARED:
                answers[number] = body
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    # From the first response until the last client stopped sending: neither startup nor shutdown counts.
    first = min(done for _, done in times)
    inside = [(sent, done) for sent, done in times if first < done <= end]
    waits = sorted(done - sent for sent, done in times)
    cuts = statistics.quantiles(waits, n=100)
    return {
        "clients": clients,
        "seconds": seconds,
        "requests": sum(codes.values()),
        "errors": sum(count for code, count in codes.items() if code != "200"),
        "codes": dict(codes),
        "docs_per_s": round(len(inside) / (end - first), 2),
        "latency_s": {name: round(cuts[place], 3) for name, place in (("p50", 49), ("p95", 94), ("p99", 98))},
        "answers": {number: (texts[number], body) for number, body in answers.items()},
    }


async def beside_books(port: int, texts: Sequence[str], seconds: float) -> dict[str, Any]:
    """Latency of a sentence on an idle server, and while some clients send documents of the maximum size."""
    book = " ".join(texts)[:BOOK]
    sentence = texts[0][:100]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def timed() -> float:
        sent = time.perf_counter()
        code, _ = await asked(reader, writer, sentence)
        assert code == "200"
        return time.perf_counter() - sent

    async def send_books() -> None:
        books = await asyncio.open_connection("127.0.0.1", port)
        # Each request times out with a 503, and the next one is sent.
        while True:
            await asked(*books, book)

    alone = [await timed() for _ in range(20)]
    senders = [asyncio.create_task(send_books()) for _ in range(BOOKS)]
    await asyncio.sleep(2)
    end = time.perf_counter() + seconds
    beside = []
    while time.perf_counter() < end:
        beside.append(await timed())
    for sender in senders:
        sender.cancel()
    return {
        "books": BOOKS,
        "book_characters": len(book),
        "sentences": len(beside),
        "alone_s": round(statistics.median(alone), 4),
        "median_s": round(statistics.median(beside), 4),
        "largest_s": round(max(beside), 4),
    }


async def asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: str) -> tuple[str, bytes]:
    """Status and body of one request, with minimal client overhead."""
    body = json.dumps({"text": text}).encode()
    head = f"POST /annotate HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
    writer.write(f"{head}content-type: application/json\r\n\r\n".encode() + body)
    answer = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", answer)
    return answer[9:12].decode(), await reader.readexactly(int(length[1]) if length else 0)


def compared(model: Path, answers: dict[int, tuple[str, bytes]]) -> dict[str, int]:
    """The number of responses compared with the annotator's output, and how many differ."""
    annotator: Annotator = load(model, threads=1)
    differ = 0
    for text, body in answers.values():
        [doc] = json.loads(body)["documents"]
        said = [(*part, span["type"]) for span in doc.get("spans", []) for part in span["parts"]]
        differ += said != mentions(annotator(text))
    return {"compared": len(answers), "different": differ}


def mentions(doc: Document) -> list[tuple[int, int, str]]:
    return [(start, end, span.type) for span in doc.spans for start, end in span.parts]


if __name__ == "__main__":
    main()
