"""Precision and recall of abbreviation definitions on MED1250, and the time they take.

    python benchmarks/abbreviations.py [--data SETS]

A definition is correct if the texts of short form and long form equal the annotators'; spaces do not count. Definitions
whose words are not in the text in this order count as missed. The costs in lexome.concepts.abbreviations were tuned on
the documents of the half "tuning" (an even SHA-256 of the PMID); the other half is "held out". Writes
results/abbreviations.json.
"""

import argparse
import hashlib
import json
import time
from collections import Counter
from pathlib import Path

from facts import facts
from lexome.concepts.abbreviations import abbreviation_spans, find_abbreviations
from lexome.datasets import find
from lexome.datasets.own_layouts import NOT_FOUND
from lexome.document import Document
from lexome.formats.tally import Tally
from real_data import DATASETS

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "results" / "abbreviations.json"
# Sohn et al. 2008, on the same articles.
PUBLISHED = {"Ab3P": {"precision": 96.5, "recall": 83.2}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATASETS)
    options = parser.parse_args()
    tally = Tally()
    docs = find("MED1250", data=options.data).split("train", tally=tally)
    halves = {"tuning": [doc for doc in docs if not _odd(doc)], "held out": [doc for doc in docs if _odd(doc)]}
    unplaced = tally.notes[NOT_FOUND]
    started = time.perf_counter()
    for doc in docs:
        find_abbreviations(doc)
    seconds = time.perf_counter() - started
    characters = sum(len(doc.text) for doc in docs)
    result = {
        "documents": len(docs),
        "definitions": sum(len(doc.relations) for doc in docs) + unplaced,
        "not in the text as annotated": unplaced,
        "scores": {"all": _score(docs, unplaced), **{name: _score(half, 0) for name, half in halves.items()}},
        "published": PUBLISHED,
        "megabytes_per_second": round(characters / seconds / 1e6, 2),
        "facts": facts("lexome"),
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["scores"], indent=1))


def _odd(doc: Document) -> bool:
    return bool(int(hashlib.sha256(doc.id.encode()).hexdigest(), 16) % 2)


def _score(docs: list[Document], unplaced: int) -> dict[str, float]:
    """In percent; `unplaced` definitions were missed. Those of the halves are left out of the halves' scores."""
    correct = predicted = gold = 0
    for doc in docs:
        annotated = Counter(_pair(short.text, long.text) for short, long in abbreviation_spans(doc))
        found = Counter(_pair(one.short_text, one.long_text) for one in find_abbreviations(doc))
        correct += sum((annotated & found).values())
        predicted += sum(found.values())
        gold += sum(annotated.values())
    precision, recall = correct / predicted, correct / (gold + unplaced)
    return {
        "precision": round(100 * precision, 2),
        "recall": round(100 * recall, 2),
        "f1": round(200 * precision * recall / (precision + recall), 2),
        "correct": correct,
        "predicted": predicted,
        "gold": gold + unplaced,
    }


def _pair(short: str, long: str) -> tuple[str, str]:
    return "".join(short.split()), "".join(long.split())


if __name__ == "__main__":
    main()
