"""F1 of the model that comes with Lexome, or of another exported one, on sets that it was not trained on.

    python benchmarks/default_scores.py [FOLDER] [--split test] [--data SETS] [--only SET ...]

Documents go through `Annotator.annotate` as a user's would. On each of the seven entity sets the model is scored by the
type that it has for that set (NCBI_Disease), which a model of that set alone is compared with, and by its general type
(Disease), which other sets have taught as well. Sets with several types are scored by the general ones. A mention is
right where characters and type are those of the set. Writes results/default_scores.json.
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

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "src" / "lexome" / "default_model"
SETS = ROOT.parent / "shared" / "data" / "benchmarks"
RESULT = ROOT / "results" / "default_scores.json"
# The seven sets, what they call their mentions, the model's own type for the set, and its general one. JNLPBA marks
# proteins, DNA and RNA together, for which there is no general type.
SEVEN = {
    "NCBI-disease": ("Disease", "NCBI_Disease", "Disease"),
    "BC5CDR-disease": ("Disease", "BC5CDR_Disease", "Disease"),
    "BC5CDR-chem": ("Chemical", "BC5CDR_Chemical", "Chemical"),
    "BC2GM": ("Gene", "BC2GM_Gene", "Gene"),
    "JNLPBA": ("Entity", "JNLPBA_Gene", None),
    "linnaeus": ("Species", "LINNAEUS_Species", "Species"),
    "s800": ("Species", "S800_Species", "Species"),
}
# Sets that are scored by general types alone, and what they call them.
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
    """What is asked for on the command line."""
    options = argparse.ArgumentParser()
    options.add_argument("folder", type=Path, nargs="?", default=MODEL)
    options.add_argument("--split", default="test")
    options.add_argument("--data", type=Path, default=SETS)
    options.add_argument("--only", nargs="*")
    options.add_argument("--limit", type=int, help="at most so many documents of a set")
    options.add_argument("--out", type=Path, default=RESULT)
    return options.parse_args()


def documents(name: str, given: argparse.Namespace) -> list[Document]:
    """The documents of a set's split, spread over all of it where there is a limit."""
    docs = find(name, data=given.data).splits(partial=True)[given.split]
    if given.limit is None or given.limit >= len(docs):
        return docs
    return [docs[number * len(docs) // given.limit] for number in range(given.limit)]


def seven(annotator: Annotator, name: str, docs: Sequence[Document]) -> dict[str, Any]:
    """F1 by the type that the model has for the set, and by its general one."""
    theirs, own, general = SEVEN[name]
    types = [type_ for type_ in (own, general) if type_ is not None]
    found = list(annotator.annotate(map(bare, docs), types=types))
    row: dict[str, Any] = {"documents": len(docs)}
    for kind, type_ in (("own", own), ("general", general)):
        row[kind] = None if type_ is None else f1(docs, found, {theirs: type_})
    return row


def other(annotator: Annotator, names: dict[str, str], docs: Sequence[Document]) -> dict[str, Any]:
    """F1 of all types together, and of each."""
    types = list(dict.fromkeys(names.values()))
    found = list(annotator.annotate(map(bare, docs), types=types))
    row: dict[str, Any] = {"documents": len(docs), "f1": f1(docs, found, names)}
    if len(types) > 1:
        for type_ in types:
            row[type_] = f1(docs, found, {theirs: ours for theirs, ours in names.items() if ours == type_})
    return row


def bare(doc: Document) -> Document:
    """The text alone."""
    return replace(doc, spans=(), relations=(), attributes=())


def f1(gold: Sequence[Document], found: Sequence[Document], names: dict[str, str]) -> float:
    """F1 in percent of mentions whose types in the set are named so in the model."""
    wanted = [{(start, end, names[type_]) for start, end, type_ in places(doc, names)} for doc in gold]
    given = [set(places(doc, set(names.values()))) for doc in found]
    right = sum(len(one & other) for one, other in zip(wanted, given, strict=True))
    total = sum(map(len, wanted)) + sum(map(len, given))
    return round(200 * right / max(1, total), 2)


def places(doc: Document, types: Any) -> list[tuple[int, int, str]]:
    """Where mentions of some types stand."""
    return [(span.start, span.end, span.type) for span in doc.spans if span.type in types]


if __name__ == "__main__":
    main()
