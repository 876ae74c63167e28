r"""Relations: with gold entities, end to end from raw text, calibration, and what they add to annotation's time.

    python benchmarks/relations.py [--model models/relations] [--data DATASETS] [--documents N] [--out FILE]

MODEL is an exported model of the kind `document-relation`, run by onnxruntime on one thread, as users run it. Without
--data, the datasets are looked for in ../shared/data/benchmarks. --documents tries the script on a few.

| part       | what is measured                                                                                      |
| ---------- | ----------------------------------------------------------------------------------------------------- |
| `gold`     | F1 with the mentions and ids of the dataset, on documents that the recipe left out or for development |
| `raw_text` | F1 of related concepts, all else predicted: the default model, its links, the relations               |
| `ece`      | expected calibration error of the relations in `gold`, on the splits below; dev is what was fitted on |
| `speed`    | seconds per abstract of the default model alone and with relations, medians of alternating rounds     |

In `raw_text` ids are compared, not mentions, as in BioCreative; a relation between mentions counts for their ids. Pairs
are concepts without the type of the relation. Percentages.
"""

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from facts import ROOT, facts
from lexome.corpus.sentences import with_sentences
from lexome.datasets import find
from lexome.document import Document
from lexome.export.calibration import expected_calibration_error
from lexome.infer.annotator import Annotator, Model, default_model
from lexome.infer.concepts import ConceptOptions
from lexome.infer.predictor import identity_of
from lexome.tasks import DocumentRelations
from lexome.tasks.evaluation.annotations import relation_metrics
from lexome.tasks.evaluation.comparison import DocumentPair
from real_data import DATASETS

# Dataset, its split, and the schema that it is scored by.
SPLITS = (
    ("DrugProt", "dev", "DrugProt"),
    ("BC5CDR-CID", "dev", "CID"),
    ("BC5CDR-CID", "test", "CID"),
    ("BioRED-RE", "dev", "BioRED"),
    ("BioRED-RE", "test", "BioRED"),
)
# DrugProt has no ids, which end-to-end scores of concepts need.
WITH_IDS = ("BC5CDR-CID", "BioRED-RE")
SPEED_SET = ("BioRED-RE", "dev")


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--model", type=Path, default=ROOT / "models" / "relations")
    options.add_argument("--data", type=Path, default=DATASETS)
    options.add_argument("--documents", type=int)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--out", type=Path, default=ROOT / "results" / "relations.json")
    given = options.parse_args()
    model = Model.open(given.model, threads=1)
    entities = Annotator.open(default_model(), threads=1, concepts=ConceptOptions())
    both = Annotator([*entities.models, model], entities.concepts)
    result: dict[str, Any] = {
        "facts": facts("numpy", "onnxruntime"),
        "model": {"name": model.name, "precision": model.settings.precision, "files": identity_of(given.model)},
        "gold": {},
        "raw_text": {},
    }
    for name, split, schema in SPLITS:
        docs = find(name, data=given.data).splits(partial=True)[split][: given.documents]
        key = f"{name} {split}"
        result["gold"][key] = score_gold(model, docs, schema)
        if name in WITH_IDS:
            result["raw_text"][key] = score_raw(both, docs, labels_of(model, schema))
        print(key, json.dumps({part: result[part].get(key) for part in ("gold", "raw_text")}), flush=True)
    docs = find(SPEED_SET[0], data=given.data).split(SPEED_SET[1])[: given.documents]
    result["speed"] = measure(entities, both, [bare(doc) for doc in docs], rounds=given.rounds)
    given.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["speed"]))


def task_of(model: Model) -> DocumentRelations:
    assert isinstance(model.task, DocumentRelations)
    return model.task


def labels_of(model: Model, schema: str) -> tuple[str, ...]:
    return tuple(label for name, label in task_of(model).relations if name == schema)


def bare(doc: Document) -> Document:
    """The text of a document alone."""
    return replace(doc, spans=(), relations=(), attributes=())


def score_gold(model: Model, docs: Sequence[Document], schema: str) -> dict[str, Any]:
    """F1 and calibration error with gold mentions; relations of other schemas are not scored."""
    task = task_of(model)
    own = next((source for source, schemas in task.annotated.items() if schemas == (schema,)), "")
    scorer = task.for_source(own)
    gold = [with_sentences(doc) if task.uses_sentences else doc for doc in docs]
    predicted = model.annotate([replace(doc, relations=()) for doc in gold])
    scores = {name: round(100 * value, 2) for name, value in scorer.score(gold, predicted).items()}
    pairs = zip(gold, predicted, strict=True)
    matched = [one for pair in pairs for one in scorer.match_relations(*pair) if one[0] == schema]
    probability = np.array([score for _, _, score, _ in matched], np.float64)
    right = np.array([correct for _, _, _, correct in matched], np.float64)
    return {
        "documents": len(docs),
        "predicted": len(matched),
        **scores,
        "ece": round(expected_calibration_error(probability, right), 4),
    }


def score_raw(annotator: Annotator, docs: Sequence[Document], labels: Sequence[str]) -> dict[str, float]:
    """F1 of related concepts from raw text, by what is compared."""
    predicted = list(annotator.annotate(map(bare, docs)))
    pairs = [DocumentPair(gold, found) for gold, found in zip(docs, predicted, strict=True)]
    results = {result.name: round(100 * result.value, 2) for result in relation_metrics(pairs, only=labels)}
    return {name: value for name, value in results.items() if name.startswith("concepts")} or results


def measure(
    entities: Annotator, both: Annotator, docs: Sequence[Document], *, rounds: int
) -> dict[str, float | int | dict[str, float]]:
    """Seconds per abstract of either, and their ratio."""
    seconds: dict[str, list[float]] = {"entities": [], "entities and relations": []}
    for _ in range(rounds):
        for name, annotator in zip(seconds, (entities, both), strict=True):
            began = time.perf_counter()
            for _ in annotator.annotate(docs):
                pass
            seconds[name].append(time.perf_counter() - began)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    return {
        "documents": len(docs),
        "seconds_per_abstract": {name: round(value / len(docs), 4) for name, value in medians.items()},
        "ratio": round(medians["entities and relations"] / medians["entities"], 2),
    }


if __name__ == "__main__":
    main()
