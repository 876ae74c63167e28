r"""Search: speed and memory of the index over abstracts, and recall by words, by vectors and by both.

    python benchmarks/search.py speed --abstracts FOLDER ... --bioasq FOLDER results/search.json
    python benchmarks/search.py recall --abstracts FOLDER ... --bioasq FOLDER results/search.json [NAME=FOLDER ...]

The abstracts are JSON lines with title and text. `speed` indexes up to 100,000 of them on one core and asks titles,
BioASQ's questions, and frequent words. `recall` has two sets: titles, each to find its abstract (indexed without it)
among 10,000; and BioASQ's questions, each to find the documents that experts found. A document of BioASQ is its
snippets, as the abstracts are not in the files: that is easier.

NAME=FOLDER is an encoder's checkpoint, NAME=FOLDER:cls one whose first token is the vector; torch runs it, in bfloat16
on a GPU and with --bfloat16. Vectors are compared exactly. `both` is the fusion of the search engine. With an encoder,
reciprocal rank fusion and weighted sums of scores are also compared: the setting that is best on every second query,
dev, is scored on the others.
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
from lexome.search import Index, index, storage
from lexome.search.engine import FUSED, FUSION, _fuse
from lexome.search.terms import query_terms

DOCUMENTS, CANDIDATES, TITLES, TIMED = 100_000, 10_000, 1000, 1000
FIRST = 10
Record = dict[str, Any]
Queries = Sequence[tuple[str, set[str]]]
Ranking = Sequence[tuple[int, float]]
"""Ids of passages and their scores, best first."""


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
    recall_options.add_argument("--candidates", type=int, default=CANDIDATES, help="abstracts of the set of titles")
    recall_options.add_argument("--queries", type=int, help="no more than so many of each set, to try the script")
    recall_options.add_argument("--device", default=None, help="of the encoders; by default cuda where there is one")
    recall_options.add_argument("--bfloat16", action="store_true", help="also on a CPU, where it has matrix units")
    timed = ways.add_parser("timed")  # in a process of its own, whose memory is measured
    timed.add_argument("index", type=Path)
    timed.add_argument("queries", type=Path)
    given = options.parse_args()
    if given.way == "timed":
        print(json.dumps(time_queries(given.index, json.loads(given.queries.read_text()))))
        return
    results = json.loads(given.out.read_text()) if given.out.exists() else {}
    with tempfile.TemporaryDirectory() as scratch:
        if given.way == "speed":
            # Recall may be measured on another machine.
            results |= facts("numpy") | {"speed": speed(given.abstracts, given.bioasq, Path(scratch))}
            given.out.write_text(json.dumps(results, indent=1) + "\n")
            return
        for table, row in recall(given, Path(scratch)):
            print(table, json.dumps(row), flush=True)
            same = ("set", "ranking", "encoder")
            kept = [old for old in results.get(table, []) if any(old[key] != row[key] for key in same)]
            results |= {table: [*kept, row], "recall_measured": facts("numpy", "torch") | {"device": hardware(given)}}
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


def recall(given: argparse.Namespace, scratch: Path) -> Iterator[tuple[str, Record]]:
    """Rows for the tables `recall` and `fusion`."""
    sets: dict[str, tuple[Path, Queries]] = {}
    if "bioasq" in given.sets:
        documents, asked = questions(given.bioasq)
        lines = ({"id": name, "text": " ".join(dict.fromkeys(texts))} for name, texts in documents.items())
        sets["bioasq"] = write_lines(scratch / "bioasq.jsonl", lines), asked[: given.queries]
    if "titles" in given.sets:
        records = abstracts(given.abstracts, given.candidates)
        lines = ({"id": str(number), "text": record["text"]} for number, record in enumerate(records))
        titles = [(record["title"], {str(number)}) for number, record in enumerate(records[: given.queries or TITLES])]
        sets["titles"] = write_lines(scratch / "titles.jsonl", lines), titles
    for name, (path, queries) in sets.items():
        index([path], scratch / name, progress_shown=False)
        connection = storage.connect(scratch / name)
        rows = connection.execute("SELECT p.id, d.name, p.text FROM passages p JOIN documents d ON d.id = p.document")
        passages = {id_: (document, text) for id_, document, text in rows}
        connection.close()
        with Index.open(scratch / name) as opened:
            words = [opened._by_words(query_terms(query), None, FUSED)[1] for query, _ in queries]
        found = Found(passages, queries)
        yield "recall", {"set": name, "ranking": "bm25", "encoder": None, **found.scores(words)}
        for one in given.encoders:
            encoder, _, place = one.partition("=")
            folder, _, pooling = place.partition(":")
            vectors, seconds = by_vectors(Path(folder), pooling or "mean", found, given)
            own = {"set": name, "encoder": encoder, "pooling": pooling or "mean"}
            fused = [_fuse(both) for both in zip(words, vectors, strict=True)]
            for ranking, ranked in (("vectors", vectors), ("both", fused)):
                yield "recall", {**own, "ranking": ranking, **found.scores(ranked), "embedding_seconds": seconds}
            for row in fusions(found, words, vectors):
                yield "fusion", own | row


class Found:
    """What rankings find: by query, whether a right document is first, among ten, and the recall of ten."""

    def __init__(self, passages: Mapping[int, tuple[str, str]], queries: Queries) -> None:
        self.passages, self.queries = passages, queries

    def scores(self, rankings: Sequence[Ranking], *, places: Sequence[int] | None = None) -> Record:
        """Percentages over all queries, or over those at some places."""
        chosen = range(len(self.queries)) if places is None else places
        first = among = share = 0.0
        for place in chosen:
            right = self.queries[place][1]
            # Long documents have several passages.
            documents = list(dict.fromkeys(self.passages[id_][0] for id_, _ in rankings[place]))[:FIRST]
            first += documents[:1] != [] and documents[0] in right
            among += bool(right & set(documents))
            share += len(right & set(documents)) / min(FIRST, len(right))
        row = {"queries": len(chosen), "candidates": len({document for document, _ in self.passages.values()})}
        percent = {"first": first, "hit@10": among, "recall@10": share}
        return row | {name: round(100 * count / len(chosen), 1) for name, count in percent.items()}


def hardware(given: argparse.Namespace) -> str:
    """The GPU that encoders run on, or cpu."""
    import torch

    device = given.device or ("cuda" if torch.cuda.is_available() else "cpu")
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


def by_vectors(folder: Path, pooling: str, found: Found, given: argparse.Namespace) -> tuple[list[Ranking], int]:
    """For each query the passages with the nearest vectors, by exact search; and the seconds of embedding."""
    import torch
    from tokenizers import Tokenizer
    from torch.nn.functional import normalize

    from lexome.models.checkpoint import encoder_of, load
    from retrieval import MOST_TOKENS, vectors_of

    chosen = torch.device(given.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    encoder = encoder_of(load(folder, kind="encoder").model).to(chosen).eval()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(MOST_TOKENS)
    tokenizer.no_padding()
    began = time.perf_counter()
    texts = [text for _, text in found.passages.values()]
    key = "first" if pooling == "cls" else pooling
    queries, candidates = (
        normalize(vectors_of(encoder, tokenizer, part, chosen, bfloat16=given.bfloat16 or None)[key], dim=-1)
        for part in ([query for query, _ in found.queries], texts)
    )
    seconds = round(time.perf_counter() - began)
    ids = list(found.passages)
    rankings: list[Ranking] = []
    for query in queries:
        best = (candidates @ query).topk(min(FUSED, len(ids)))
        rankings.append([(ids[place], score) for place, score in zip(best[1].tolist(), best[0].tolist(), strict=True)])
    return rankings, seconds


def fusions(found: Found, words: Sequence[Ranking], vectors: Sequence[Ranking]) -> Iterator[Record]:
    """Of each kind of fusion, the setting that finds most on every second query, and what it finds on the others."""
    dev, test = range(0, len(found.queries), 2), range(1, len(found.queries), 2)
    pairs = list(zip(words, vectors, strict=True))
    weights = [number / 10 for number in range(1, 10)]
    settings = {
        "ranks": [(constant, weight) for constant in (10, FUSION, 200) for weight in weights],
        "scores": [(None, weight) for weight in weights],
    }
    for kind, choices in settings.items():
        on_dev = {}
        for constant, weight in choices:
            ranked = [weighted(*pair, constant=constant, weight=weight) for pair in pairs]
            scores = [found.scores(ranked, places=places) for places in (dev, test)]
            on_dev[constant, weight] = (*(part[name] for part in scores for name in ("recall@10", "first")), scores)
        best = max(on_dev, key=lambda setting: (*on_dev[setting][:2], -abs(setting[1] - 0.5)))
        own, others = on_dev[best][-1]
        yield {"ranking": kind, "constant": best[0], "weight_of_words": best[1], "dev": own, "test": others}
    plain = [_fuse(pair) for pair in pairs]
    own, others = (found.scores(plain, places=places) for places in (dev, test))
    yield {"ranking": "engine", "constant": FUSION, "weight_of_words": 0.5, "dev": own, "test": others}


def weighted(words: Ranking, vectors: Ranking, *, constant: int | None, weight: float) -> Ranking:
    """Sums of 1 / (constant + rank) of both rankings, or without a constant of scores, each from 0 to 1."""
    sums: dict[int, float] = {}
    for ranking, share in ((words, weight), (vectors, 1 - weight)):
        low, high = (ranking[-1][1], ranking[0][1]) if ranking else (0.0, 1.0)
        for rank, (id_, score) in enumerate(ranking, 1):
            own = (score - low) / max(high - low, 1e-9) if constant is None else 1 / (constant + rank)
            sums[id_] = sums.get(id_, 0.0) + share * own
    return sorted(sums.items(), key=lambda item: (-item[1], item[0]))


if __name__ == "__main__":
    main()
