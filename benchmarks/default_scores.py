"""F1 of the default model, or of another exported one, on datasets that it was not trained on.

    python benchmarks/default_scores.py [FOLDER] [--split test] [--data SETS] [--only SET ...]

Documents go through `Annotator.annotate` as they would for a user. On each of the seven entity datasets the model is
scored on the type that it has for that dataset (NCBI_Disease), for comparison with single-dataset models, and on its
general type (Disease), which is trained on other datasets as well. Datasets with several types are scored on the
general ones. A mention is correct if offsets and type match. Writes results/default_scores.json.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from facts import facts
from lexome.datasets import find
from lexome.document import Document
from lexome.infer.annotator import Annotator
from real_data import DATASETS

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "src" / "lexome" / "default_model"
RESULT = ROOT / "results" / "default_scores.json"
# The seven datasets, their own type names, the model's type for the dataset, and its general type. JNLPBA merges
# proteins, DNA and RNA, for which there is no general type.
SEVEN = {
    "NCBI-disease": ("Disease", "NCBI_Disease", "Disease"),
    "BC5CDR-disease": ("Disease", "BC5CDR_Disease", "Disease"),
    "BC5CDR-chem": ("Chemical", "BC5CDR_Chemical", "Chemical"),
    "BC2GM": ("Gene", "BC2GM_Gene", "Gene"),
    "JNLPBA": ("Entity", "JNLPBA_Gene", None),
    "linnaeus": ("Species", "LINNAEUS_Species", "Species"),
    "s800": ("Species", "S800_Species", "Species"),
}
# Datasets that are scored on general types only, with their own type names.
OTHERS = {
    "BioRED-NER": {name: name for name in ("Gene", "Disease", "Chemical", "Species", "CellLine", "Variant")},
    "NLM-Gene": {"Gene": "Gene", "FamilyName": "Gene"},
    "GNormPlus": {"Gene": "Gene", "FamilyName": "Gene"},
    "BC5CDR": {"Disease": "Disease", "Chemical": "Chemical"},
    "NCBI-disease-pubtator": {"Disease": "Disease"},
    "SPECIES-pubtator": {"Species": "Species"},
    "JNLPBA-typed": {"cell_line": "CellLine"},
}


def main() -> None:
    given = arguments()
    annotator = Annotator.open(given.folder)
    result: dict[str, Any] = {
        "facts": facts("onnxruntime", "numpy"),
        "model": annotator.about()["models"][0]["name"],
        "precision": annotator.about()["models"][0]["precision"],
        "split": given.split,
        "seven": {},
        "others": {},
    }
    for name in (*SEVEN, *OTHERS):
        if given.only and name not in given.only:
            continue
        docs = documents(name, given)
        began = time.monotonic()
        if name in SEVEN:
            result["seven"][name] = seven(annotator, name, docs)
        else:
            result["others"][name] = other(annotator, OTHERS[name], docs)
        print(
            name, result["seven" if name in SEVEN else "others"][name], f"{time.monotonic() - began:.0f} s", flush=True
        )
    for kind in ("own", "general"):
        scores = [row[kind] for row in result["seven"].values() if row[kind] is not None]
        result[f"mean_{kind}"] = round(sum(scores) / max(1, len(scores)), 2)
    given.out.write_text(json.dumps(result, indent=1) + "\n")
    print({name: result[name] for name in ("mean_own", "mean_general")})


def arguments() -> argparse.Namespace:
    """Command-line arguments."""
    options = argparse.ArgumentParser()
    options.add_argument("folder", type=Path, nargs="?", default=MODEL)
    options.add_argument("--split", default="test")
    options.add_argument("--data", type=Path, default=DATASETS)
    options.add_argument("--only", nargs="*")
    options.add_argument("--limit", type=int, help="maximum number of documents per dataset")
    options.add_argument("--out", type=Path, default=RESULT)
    return options.parse_args()


def documents(name: str, given: argparse.Namespace) -> list[Document]:
    """The documents of a split, spread evenly over it if there is a limit."""
    docs = find(name, data=given.data).splits(partial=True)[given.split]
    if given.limit is None or given.limit >= len(docs):
        return docs
    return [docs[number * len(docs) // given.limit] for number in range(given.limit)]


def seven(annotator: Annotator, name: str, docs: Sequence[Document]) -> dict[str, Any]:
    """F1 on the model's type for the dataset, and on its general type."""
    theirs, own, general = SEVEN[name]
    types = [type_ for type_ in (own, general) if type_ is not None]
    found = list(annotator.annotate(map(bare, docs), types=types))
    row: dict[str, Any] = {"documents": len(docs)}
    for kind, type_ in (("own", own), ("general", general)):
        row[kind] = None if type_ is None else f1(docs, found, {theirs: type_})
    return row


def other(annotator: Annotator, names: dict[str, str], docs: Sequence[Document]) -> dict[str, Any]:
    """F1 over all types, and of each."""
    types = list(dict.fromkeys(names.values()))
    found = list(annotator.annotate(map(bare, docs), types=types))
    row: dict[str, Any] = {"documents": len(docs), "f1": f1(docs, found, names)}
    if len(types) > 1:
        for type_ in types:
            row[type_] = f1(docs, found, {theirs: ours for theirs, ours in names.items() if ours == type_})
    return row


def bare(doc: Document) -> Document:
    """The document without annotations."""
    return replace(doc, spans=(), relations=(), attributes=())


def f1(gold: Sequence[Document], found: Sequence[Document], names: dict[str, str]) -> float:
    """F1 in percent, with the dataset's types mapped to the model's."""
    wanted = [{(start, end, names[type_]) for start, end, type_ in places(doc, names)} for doc in gold]
    given = [set(places(doc, set(names.values()))) for doc in found]
    right = sum(len(one & other) for one, other in zip(wanted, given, strict=True))
    total = sum(map(len, wanted)) + sum(map(len, given))
    return round(200 * right / max(1, total), 2)


def places(doc: Document, types: Any) -> list[tuple[int, int, str]]:
    """Offsets and types of the mentions of some types."""
    return [(span.start, span.end, span.type) for span in doc.spans if span.type in types]


if __name__ == "__main__":
    main()
