r"""Search: speed and memory of the index over abstracts, and recall by words, by vectors and by both.

    python benchmarks/search.py speed --abstracts FOLDER ... --bioasq FOLDER results/search.json
    python benchmarks/search.py recall --abstracts FOLDER ... --bioasq FOLDER results/search.json [NAME=FOLDER ...]

The abstracts are JSON lines with title and text. `speed` indexes up to 100,000 of them on one core and asks titles,
BioASQ's questions, and frequent words. `recall` has two sets: titles, each to find its abstract (indexed without it)
among 10,000; and BioASQ's questions, each to find the documents that experts found. A document of BioASQ is its
snippets, as the abstracts are not in the files: that is easier. NAME=FOLDER is an exported encoder.
"""

import argparse
import json
import lzma
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from facts import facts
from lexome.search import Index, index

DOCUMENTS, CANDIDATES, TITLES, TIMED = 100_000, 10_000, 1000, 1000
FIRST = 10
Record = dict[str, Any]
Queries = Sequence[tuple[str, set[str]]]


def main() -> None:
    options = argparse.ArgumentParser()
    ways = options.add_subparsers(dest="way", required=True)
    speed_options, recall_options = ways.add_parser("speed"), ways.add_parser("recall")
    for way in (speed_options, recall_options):
        way.add_argument("--abstracts", type=Path, nargs="+", required=True)
        way.add_argument("--bioasq", type=Path, required=True)
        way.add_argument("out", type=Path)
    recall_options.add_argument("encoders", nargs="*", metavar="NAME=FOLDER")
    recall_options.add_argument("--sets", nargs="+", default=["titles", "bioasq"])
    timed = ways.add_parser("timed")  # in a process of its own, whose memory is measured
    timed.add_argument("index", type=Path)
    timed.add_argument("queries", type=Path)
    given = options.parse_args()
    if given.way == "timed":
        print(json.dumps(time_queries(given.index, json.loads(given.queries.read_text()))))
        return
    results = json.loads(given.out.read_text()) if given.out.exists() else {}
    results |= facts("numpy", "usearch", "onnxruntime")
    with tempfile.TemporaryDirectory() as scratch:
        if given.way == "speed":
            results["speed"] = speed(given.abstracts, given.bioasq, Path(scratch))
            given.out.write_text(json.dumps(results, indent=1) + "\n")
            return
        for row in recall(given, Path(scratch)):
            print(json.dumps(row), flush=True)
            same = ("set", "ranking", "encoder")
            kept = [old for old in results.get("recall", []) if any(old[key] != row[key] for key in same)]
            results["recall"] = [*kept, row]
            given.out.write_text(json.dumps(results, indent=1) + "\n")


def abstracts(folders: Sequence[Path], most: int) -> list[Record]:
    """Abstracts with a title, in an order of chance that is always the same."""
    records = []
    for path in sorted(path for folder in folders for path in folder.glob("*.jsonl.xz")):
        with lzma.open(path, "rt", encoding="utf-8") as lines:
            records += [record for line in lines if len((record := json.loads(line))["title"]) > 20]
    random.Random(0).shuffle(records)
    return [{key: record[key] for key in ("id", "title", "text")} for record in records[:most]]


def questions(folder: Path) -> tuple[dict[str, list[str]], list[tuple[str, set[str]]]]:
    """Snippets by document, and each question with its documents; a question of two editions counts once."""
    documents: dict[str, list[str]] = {}
    asked: dict[str, set[str]] = {}
    for path in sorted((folder / "golden").glob("*.json.xz")):
        for question in json.loads(lzma.decompress(path.read_bytes()))["questions"]:
            for snippet in question.get("snippets", ()):
                document = snippet["document"].rsplit("/", 1)[-1]
                documents.setdefault(document, []).append(snippet["text"])
                asked.setdefault(question["body"], set()).add(document)
    return documents, list(asked.items())


def write_lines(path: Path, records: Iterator[Record]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def speed(folders: Sequence[Path], bioasq: Path, scratch: Path) -> Record:
    records = abstracts(folders, DOCUMENTS)
    # Eight files, as a user's folder has several.
    files = [write_lines(scratch / f"{part}.jsonl", iter(records[part::8])) for part in range(8)]
    began = time.perf_counter()
    result = index(files, scratch / "index", progress_shown=False)
    seconds = time.perf_counter() - began
    began = time.perf_counter()
    index(files, scratch / "index", progress_shown=False)
    again = time.perf_counter() - began
    row: Record = {
        "documents": result.documents,
        "characters": sum(len(record["title"]) + len(record["text"]) for record in records),
        "index_seconds": round(seconds, 1),
        "abstracts_per_second": round(result.documents / seconds),
        "index_peak_mb": peak_mb(),
        "unchanged_seconds": round(again, 2),
        "index_mb": round(sum(path.stat().st_size for path in (scratch / "index").iterdir()) / 1e6),
    }
    sets = {"titles": [record["title"] for record in records[:TIMED]], "words": list(WORDS)}
    sets["questions"] = [question for question, _ in questions(bioasq)[1][:TIMED]]
    (scratch / "queries.json").write_text(json.dumps(sets))
    command = [sys.executable, __file__, "timed", str(scratch / "index"), str(scratch / "queries.json")]
    timed = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    print(json.dumps(row | timed, indent=1))
    return row | timed


# Frequent words, the worst case, and names.
WORDS = ("patients", "cells", "patients treatment study", "BRCA1", "IL-2", "Streptococcus pneumoniae", "COVID-19")


def time_queries(folder: Path, sets: Mapping[str, Sequence[str]]) -> Record:
    began = time.perf_counter()
    opened = Index.open(folder)
    row: Record = {"open_seconds": round(time.perf_counter() - began, 3)}
    for name, queries in sets.items():
        times = []
        for query in queries:
            began = time.perf_counter()
            opened.search(query)
            times.append(1000 * (time.perf_counter() - began))
        times.sort()
        row[f"{name}_median_ms"] = round(statistics.median(times), 1)
        row[f"{name}_p95_ms"] = round(times[int(0.95 * (len(times) - 1))], 1)
    return row | {"search_peak_mb": peak_mb()}


def peak_mb() -> int:
    """The most memory that this process has used; getrusage would count that of its parent."""
    status = Path("/proc/self/status").read_text()
    return round(int(status.partition("VmHWM:")[2].split()[0]) / 1024)


def recall(given: argparse.Namespace, scratch: Path) -> Iterator[Record]:
    sets: dict[str, tuple[Path, Queries]] = {}
    if "bioasq" in given.sets:
        documents, asked = questions(given.bioasq)
        lines = ({"id": name, "text": " ".join(dict.fromkeys(texts))} for name, texts in documents.items())
        sets["bioasq"] = write_lines(scratch / "bioasq.jsonl", lines), asked
    if "titles" in given.sets:
        records = abstracts(given.abstracts, CANDIDATES)
        lines = ({"id": str(number), "text": record["text"]} for number, record in enumerate(records))
        titles = [(record["title"], {str(number)}) for number, record in enumerate(records[:TITLES])]
        sets["titles"] = write_lines(scratch / "titles.jsonl", lines), titles
    for name, (path, queries) in sets.items():
        index([path], scratch / name, progress_shown=False)
        yield {"set": name, "ranking": "bm25", "encoder": None, **evaluate(scratch / name, queries, "bm25")}
    for name, (path, queries) in sets.items():
        for one in given.encoders:
            encoder, _, folder = one.partition("=")
            place = scratch / f"{name}-{encoder}"
            began = time.perf_counter()
            index([path], place, embed=Path(folder), threads=1, progress_shown=False)
            rate = {"index_seconds": round(time.perf_counter() - began)}
            for ranking in ("vectors", "both"):
                scores = evaluate(place, queries, ranking)
                yield {"set": name, "ranking": ranking, "encoder": encoder, **scores, **rate}


def evaluate(folder: Path, queries: Queries, ranking: Any) -> Record:
    """Percent of queries whose first result is right, with a right one among ten, and recall@10."""
    first = among = share = 0.0
    with Index.open(folder) as opened:
        for query, right in queries:
            hits = opened.search(query, method=ranking, limit=FIRST + 20).hits
            # Long documents have several passages.
            found = list(dict.fromkeys(hit.document for hit in hits))[:FIRST]
            first += found[:1] != [] and found[0] in right
            among += bool(right & set(found))
            share += len(right & set(found)) / min(FIRST, len(right))
        row = {"queries": len(queries), "candidates": opened.documents}
    percent = {"first": first, "hit@10": among, "recall@10": share}
    return row | {name: round(100 * count / len(queries), 1) for name, count in percent.items()}


if __name__ == "__main__":
    main()
