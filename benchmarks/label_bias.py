"""The label bias of every available dataset, compared with BioMegatron's table 8.

    python benchmarks/label_bias.py TOKENIZER [--data FOLDER] [--sets NCBI-disease,GAD]

TOKENIZER is a model folder or a tokenizer.json. The bias is the fraction of training targets that are not the most
frequent label: for tokens those in a mention, for pairs and documents those outside the largest class, for questions
the tokens inside their answers. The values of Shin et al. (2020), with two digits, are listed next to ours; how they
were computed is not known. Datasets with folds are counted on their first one. Writes results/label_bias.json.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from facts import facts
from lexome.datasets import DataSet, every, find
from lexome.errors import LexomeError
from lexome.infer.tokenizer import SubwordTokenizer, open_tokenizer
from lexome.tasks.task import Frame
from lexome.training.finetune.examples import label_bias, label_counts

ROOT = Path(__file__).resolve().parents[1]
# The paper's dataset names are shorter: BC5CDR without the type, BioASQ without the year.
PAPER = {"BC5CDR-chem": 0.08, "BC5CDR-disease": 0.08, "ChemProt-pairs": 0.27, "SQuAD-1.1": 0.4, "BioASQ-7b": 0.02}
MAX_TOKENS = 512


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("tokenizer", type=Path)
    options.add_argument("--data", type=Path, help="the folder of all datasets; default: data")
    options.add_argument("--sets", help="comma-separated names; default: all available datasets")
    options.add_argument("--out", type=Path, default=ROOT / "results" / "label_bias.json")
    given = options.parse_args()
    path = given.tokenizer / "tokenizer.json" if given.tokenizer.is_dir() else given.tokenizer
    tokens = open_tokenizer(path)
    chosen = [find(name, data=given.data) for name in given.sets.split(",")] if given.sets else every(data=given.data)
    rows: dict[str, Any] = {}
    for source in chosen:
        if source.available:
            rows[source.card.name] = row = bias_of(source, tokens)
            print(source.card.name, json.dumps(row), flush=True)
    result = {"facts": facts("numpy"), "tokenizer": path.resolve().parent.name, "sets": rows}
    given.out.write_text(json.dumps(result, indent=1) + "\n")


def bias_of(source: DataSet, tokens: SubwordTokenizer) -> dict[str, Any]:
    """The label bias of a training split, the label counts, and the paper's value."""
    fold = source.folds[0] if source.folds else source
    task = source.task
    separators = tuple(tokens.vocabulary[piece] for piece in ("[CLS]", "[SEP]"))
    frame = Frame(separators[:1], separators[1:], separators[1:], MAX_TOKENS)
    try:
        docs = fold.split("train") if "train" in fold.files else fold.split(next(iter(fold.files)))
    except LexomeError as error:
        return {"error": str(error)}
    rows = [row for doc in docs for row in task.encode(doc, tokens, frame, with_targets=True)]
    bias = label_bias(rows, task) if rows else None
    return {
        "bias": None if bias is None else round(bias, 4),
        "paper": PAPER.get(source.card.name),
        "rows": len(rows),
        "labels": label_counts(rows, task) if rows else {},
    }


if __name__ == "__main__":
    main()
