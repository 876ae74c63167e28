r"""Retrieval by the vectors of `lexome embed`: title to abstract, question to snippet, question to answer.

    python benchmarks/retrieval.py texts RECORDS SETS MEDQUAD TEXTS.jsonl [--held-out 0.1]
    python benchmarks/retrieval.py run TEXTS.jsonl results/retrieval.json NAME=FOLDER ... [--device cuda] [--add]

`texts` gathers the three sets: titles of 10,000 abstracts that `held_out` of the shard recipe keeps from training, the
questions of BioASQ 4b to 7b with their snippets, and MedQuAD's questions with their answers, which pre-training leaves
out. `run` ranks all answers of a set by cosine, for each encoder, with the mean of the tokens and with the first token.
A text longer than 512 tokens is cut there, for every encoder. With --add, rows of other encoders are kept.
"""

import argparse
import json
import lzma
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from facts import facts
from lexome import read
from lexome.corpus.shards import ShardSettings, _is_held_out
from lexome.models.checkpoint import encoder_of, load
from lexome.models.encoder import Packing
from lexome.models.heads import mean_pool

TITLES = 10_000
MOST_TOKENS = 512
PASS_TOKENS = 65_536
Line = dict[str, Any]


def main() -> None:
    options = argparse.ArgumentParser()
    ways = options.add_subparsers(dest="way", required=True)
    texts = ways.add_parser("texts")
    for argument in ("records", "sets", "medquad", "out"):
        texts.add_argument(argument, type=Path)
    texts.add_argument("--held-out", type=float, default=0.1)
    run = ways.add_parser("run")
    run.add_argument("texts", type=Path)
    run.add_argument("out", type=Path)
    run.add_argument("encoders", nargs="+", metavar="NAME=FOLDER")
    run.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    run.add_argument("--add", action="store_true")
    given = options.parse_args()
    if given.way == "texts":
        lines = [*titles(given.records, given.held_out), *bioasq(given.sets), *medquad(given.medquad)]
        given.out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    else:
        evaluate(given.texts, given.out, given.encoders, torch.device(given.device), add=given.add)


def titles(records: Path, held_out: float) -> Iterator[Line]:
    """Titles and their abstracts, of documents that were kept from training."""
    settings = ShardSettings(Path(), None, held_out, 0)
    found = 0
    for path in sorted(records.glob("*.parquet")):
        for doc in read([path]):
            title, rest = doc.passages[0], "\n".join(passage.text for passage in doc.passages[1:])
            if title.kind == "title" and rest and found < TITLES and _is_held_out(doc.id, settings):
                found += 1
                yield {"set": "titles", "query": title.text, "answers": [rest]}


def bioasq(sets: Path) -> Iterator[Line]:
    """Questions and the snippets that experts found for them; a question of two editions counts once."""
    seen = set()
    for path in sorted((sets / "BioASQ" / "golden").glob("*.json.xz")):
        for question in json.loads(lzma.decompress(path.read_bytes()))["questions"]:
            answers = sorted({" ".join(snippet["text"].split()) for snippet in question.get("snippets", ())})
            if answers and question["body"] not in seen:
                seen.add(question["body"])
                yield {"set": "bioasq", "query": question["body"], "answers": answers}


def medquad(folder: Path) -> Iterator[Line]:
    """Questions and their answers: a line that ends in " ?" is a question, what follows is its answer."""
    for path in sorted(folder.glob("*.jsonl.xz")):
        for raw in lzma.decompress(path.read_bytes()).decode().rstrip("\n").split("\n"):
            query, answer = "", []
            for line in [*json.loads(raw)["text"].split("\n"), " ?"]:
                if not line.endswith(" ?"):
                    answer.append(line)
                    continue
                if query and answer:
                    yield {"set": "medquad", "query": query, "answers": ["\n".join(answer)]}
                query, answer = line, []


def evaluate(texts: Path, out: Path, encoders: Sequence[str], device: torch.device, *, add: bool) -> None:
    lines = [json.loads(line) for line in texts.read_text().splitlines()]
    by_set: dict[str, list[Line]] = {}
    for line in lines:
        by_set.setdefault(line["set"], []).append(line)
    results = []
    for given in encoders:
        name, _, folder = given.partition("=")
        began = time.monotonic()
        encoder = encoder_of(load(Path(folder), kind="encoder").model).to(device).eval()
        tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
        tokenizer.enable_truncation(MOST_TOKENS)
        tokenizer.no_padding()
        for name_of_set, asked in by_set.items():
            answers = list(dict.fromkeys(answer for line in asked for answer in line["answers"]))
            places = {answer: place for place, answer in enumerate(answers)}
            both = [vectors_of(encoder, tokenizer, texts_, device) for texts_ in ([q["query"] for q in asked], answers)]
            for pooling in ("mean", "first"):
                queries, candidates = (functional.normalize(part[pooling], dim=-1) for part in both)
                right = [[places[answer] for answer in line["answers"]] for line in asked]
                row: Line = {"encoder": name, "set": name_of_set, "pooling": pooling, "queries": len(asked)}
                row |= {"candidates": len(answers), **ranked(queries, candidates, right)}
                results.append(row)
                print(json.dumps(row), flush=True)
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    hardware = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    if add:
        new = {row["encoder"] for row in results}
        results = [row for row in json.loads(out.read_text())["rows"] if row["encoder"] not in new] + results
    out.write_text(json.dumps({**facts("torch", "tokenizers"), "hardware": hardware, "rows": results}, indent=1) + "\n")


@torch.no_grad()
def vectors_of(
    encoder: Any, tokenizer: Tokenizer, texts: Sequence[str], device: torch.device, *, bfloat16: bool | None = None
) -> dict[str, Tensor]:
    """The mean-pooled and the first-token vector of each text, (texts, D) each; by default in bfloat16 on a GPU."""
    fast = device.type == "cuda" if bfloat16 is None else bfloat16
    rows = [encoding.ids for encoding in tokenizer.encode_batch(list(texts))]
    order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
    found: dict[str, list[Tensor]] = {"mean": [], "first": []}
    at = 0
    while at < len(order):
        chosen: list[int] = []
        size = 0
        while at < len(order) and (not chosen or size + len(rows[order[at]]) <= PASS_TOKENS):
            chosen.append(order[at])
            size += len(rows[order[at]])
            at += 1
        ends = torch.tensor([len(rows[number]) for number in chosen]).cumsum(0)
        packing = Packing.of(ends.tolist(), device)
        ids = torch.tensor([id_ for number in chosen for id_ in rows[number]], device=device)
        with torch.autocast(device.type, torch.bfloat16, enabled=fast):
            hidden = encoder(ids, packing)
        found["mean"].append(mean_pool(hidden.float(), packing))
        found["first"].append(hidden[packing.firsts_S].float())
    undo = torch.tensor(order, device=device).argsort()
    return {pooling: torch.cat(parts)[undo] for pooling, parts in found.items()}


def ranked(queries: Tensor, candidates: Tensor, right: Sequence[Sequence[int]]) -> dict[str, float]:
    """Recall at 1 and 10 and mean reciprocal rank, in percent, of each query's first right candidate."""
    ranks = []
    for at in range(0, len(queries), 1024):
        scores = queries[at : at + 1024] @ candidates.T
        for row, places in zip(scores, right[at : at + 1024], strict=True):
            ranks.append(1 + int((row > row[places].max()).sum()))
    found = torch.tensor(ranks, dtype=torch.float64)
    measures = {"recall@1": (found <= 1), "recall@10": (found <= 10), "mrr": 1 / found}
    return {name: round(100 * float(held.double().mean()), 2) for name, held in measures.items()}


if __name__ == "__main__":
    main()
