"""Relations on one core: all pairs of a document in one pass, compared with one pass for each pair.

    python benchmarks/relation_speed.py CHECKPOINT [--data SETS] [--documents 40]

CHECKPOINT is an encoder, such as models/lexome-12x384. Both models have it with a new head, since the weights of a head
do not change the time: `document-relation` with the schemas of recipes/finetune/relations.toml, and `relation` with
markers around each pair of concepts of BioRED's types. Both are exported to ONNX in fp32 and run on one thread on
BioRED's development documents with gold mentions. A pair is two concepts. Encoding and decoding are included. Rounds
alternate between the two; the rate is the median. Writes results/relation_speed.json.
"""

import argparse
import json
import statistics
import tempfile
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

import torch

from facts import ROOT, facts
from lexome.datasets import find
from lexome.document import Document
from lexome.export.export import export
from lexome.infer.annotator import Model
from lexome.models.checkpoint import Card, load, save
from lexome.models.encoder import Encoder
from lexome.models.heads import EncoderWithHead, SequenceHead, TokenHead
from lexome.tasks import DocumentRelations, Relations, Task, task_of
from lexome.tasks.task import TASK
from real_data import DATASETS

RESULT = ROOT / "results" / "relation_speed.json"
RECIPE = ROOT / "recipes" / "finetune" / "relations.toml"
SOURCE = "BioRED-RE"


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("checkpoint", type=Path)
    options.add_argument("--data", type=Path, default=DATASETS)
    options.add_argument("--documents", type=int, default=40)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--out", type=Path, default=RESULT)
    given = options.parse_args()
    docs = find(SOURCE, data=given.data).split("dev")[: given.documents]
    one_pass = task_of(tomllib.loads(RECIPE.read_text())["task"])
    card = find(SOURCE, data=given.data).settings
    by_pair = task_of({**card, "marking": "markers"})
    assert isinstance(one_pass, DocumentRelations)
    assert isinstance(by_pair, Relations)
    pairs = [sum(1 for _ in by_pair.candidates(doc)) for doc in docs]
    with tempfile.TemporaryDirectory() as scratch:
        models = {
            "one pass": build(given.checkpoint, one_pass, Path(scratch) / "one-pass"),
            "one pass a pair": build(given.checkpoint, by_pair, Path(scratch) / "by-pair"),
        }
        tokens = {
            name: sum(len(row.ids) for doc in docs for row in model.encode(doc)) for name, model in models.items()
        }
        seconds: dict[str, list[float]] = {name: [] for name in models}
        for _ in range(given.rounds):
            for name, model in models.items():
                seconds[name].append(run(model, docs))
    rates = {name: sum(pairs) / statistics.median(times) for name, times in seconds.items()}
    result = {
        "facts": facts("numpy", "onnxruntime"),
        "checkpoint": given.checkpoint.name,
        "documents": len(docs),
        "pairs": sum(pairs),
        "pairs_per_document": round(sum(pairs) / len(docs), 1),
        "tokens": tokens,
        "pairs_per_second": {name: round(rate, 1) for name, rate in rates.items()},
        "documents_per_second": {name: round(rate / (sum(pairs) / len(docs)), 2) for name, rate in rates.items()},
        "ratio": round(rates["one pass"] / rates["one pass a pair"], 1),
    }
    given.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def build(checkpoint: Path, task: Task, folder: Path) -> Model:
    """The checkpoint's encoder with a new head for a task, exported and opened on one thread."""
    torch.manual_seed(0)
    found = load(checkpoint, kind="encoder")
    assert isinstance(found.model, Encoder)
    head = (TokenHead if task.head == "token" else SequenceHead)(found.config, len(task.labels))
    start = folder.with_name(f"{folder.name}-checkpoint")
    description = Card(title=folder.name, summary="An untrained head.", license="apache-2.0", data="")
    model = EncoderWithHead(found.model, head).eval()
    save(start, model, architecture=found.architecture, tokenizer=checkpoint, card=description, labels=task.labels)
    (start / TASK).write_text(json.dumps(task.settings()))
    export(start, folder)
    return Model.open(folder, threads=1)


def run(model: Model, docs: Sequence[Document]) -> float:
    """Seconds to encode, run and decode all documents."""
    began = time.perf_counter()
    for doc in docs:
        examples = model.encode(doc)
        model.decode(doc, examples, model.run(examples))
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
