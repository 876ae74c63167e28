"""Learns the weights of the linker's features from training data, and the curves that make scores probabilities.

    python benchmarks/linking_weights.py [--terms FILE ...] [--only TYPE ...]

For each type, mentions of the training splits are linked twice: with the training mentions of the other folds, and with
dictionaries alone. The weights maximize the likelihood of the gold concept among the candidates (multinomial logistic
regression, with a penalty towards the hand-set start); the curve is fitted to whether the best candidate is right, on
mentions linked by dictionaries alone. Articles of any test split are left out. Writes
src/lexome/concepts/linker_weights.json, which has no text of the data sets.
"""

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lexome.concepts.default import default_terms
from lexome.concepts.index import TermIndex
from lexome.concepts.linker import Linker
from lexome.concepts.ranking import FEATURES, PLACE, Weights
from lexome.concepts.training_mentions import TrainingMentions
from lexome.document import Document
from linking_sets import ROOT, Equivalents, medic_index, split

TARGET = ROOT / "src" / "lexome" / "concepts" / "linker_weights.json"
WORK = Path("/tmp/lexome-linking")
TRAINING = {
    "Disease": ("NCBI-disease-pubtator", "BC5CDR", "BioRED"),
    "Chemical": ("BC5CDR", "BioRED"),
    "Gene": ("BioRED", "NLM-Gene", "GNormPlus"),
    "Species": ("linnaeus-pubtator", "BioRED"),
    "CellLine": ("BioID", "BioRED"),
}
START = {
    "exact": 6.0, "case": 5.8, "folded": 5.5, "loose": 5.0, "similarity": 4.0, "mention words in name": 2.0,
    "name words in mention": 3.0, "long form": 1.0, "mention of an abbreviation": -3.0, "expanded": 0.5,
    "reduced": -1.5, "substituted": -2.5, "words changed": -0.6, "short": -0.5, "preferred": 0.4, "trained": 4.0,
    "trained otherwise": -2.0, "trained concept": 0.4, "rivals": -0.3, "document": 1.5, "taxon": 1.0,
    "taxon nearby": 1.0, "other taxon nearby": -0.5, "symbol case": 0.8, "names": 0.05, "popular": 1.5,
    "main vocabulary": 0.8,
}  # fmt: skip
# Not learned, because the training sets have too few cases of it, or because it would follow their habits: capitals in
# texts that speak of mice and of human cells. The features of species are fixed too: the gold ids of mouse and rat
# genes are NCBI's, the dictionary has MGI's and RGD's, so that only human genes could teach them.
FIXED = ("symbol case", "popular", "taxon", "taxon nearby", "other taxon nearby")
PENALTY, STEPS, RATE = 0.002, 600, 0.05
FOLDS, USED_FOLDS = 4, (0, 2)
MAX_CANDIDATES = 40
MAX_DOCUMENTS = 300
# Where F1 by document was best on the development splits, annotated by the default model.
THRESHOLDS = {"Disease": 0.45, "Chemical": 0.4}
THRESHOLD = 0.3


@dataclass
class Example:
    """A mention: features of its candidates by score, which of them are right, and how often it occurs."""

    features: np.ndarray
    right: np.ndarray
    weight: float


def collect(linker: Linker, docs: Iterable[Document], type: str, same: Equivalents) -> list[Example]:
    """The examples of a type, one for each text in a document, or for each gene mention."""
    examples: list[Example] = []
    for doc in docs:
        context = linker._context(doc)
        seen: dict[object, Example] = {}
        for span in doc.spans:
            if linker.linked_type(span.type) != type or not span.concepts:
                continue
            key = (span.text, span.start if type == "Gene" else 0)
            if key in seen:
                seen[key].weight += 1
                continue
            ranked = linker._rank(span.text, type, span, context)[:MAX_CANDIDATES]
            features = np.zeros((len(ranked), len(FEATURES)))
            for row, one in enumerate(ranked):
                for name, value in (*one.found.features.items(), *one.features.items()):
                    features[row, PLACE[name]] = value
            gold = same.of(span.concepts)
            right = np.array([not gold.isdisjoint(same.of([one.found.concept.id])) for one in ranked], bool)
            seen[key] = Example(features, right, 1.0)
        examples += seen.values()
    return examples


def learn(examples: Sequence[Example], start: np.ndarray, fixed: Sequence[str]) -> np.ndarray:
    """The weights of all but the fixed features: Adam on the likelihood of the right candidates."""
    usable = [one for one in examples if len(one.right) > 1 and one.right.any() and not one.right.all()]
    if not usable:
        return start
    rows = np.concatenate([one.features for one in usable])
    right = np.concatenate([one.right for one in usable]).astype(float)
    sizes = [len(one.right) for one in usable]
    group = np.repeat(np.arange(len(usable)), sizes)
    first = np.r_[0, np.cumsum(sizes)[:-1]]
    weight = np.sqrt([one.weight for one in usable])
    weight /= weight.sum()
    free = np.array([name not in fixed for name in FEATURES], float)
    weights, mean, square = start.copy(), np.zeros_like(start), np.zeros_like(start)
    for step in range(1, STEPS + 1):
        scores = rows @ weights
        odds = np.exp(scores - np.maximum.reduceat(scores, first)[group])
        share = odds / np.add.reduceat(odds, first)[group]
        wanted = odds * right
        wanted /= (np.add.reduceat(wanted, first) + 1e-12)[group]
        gradient = (rows.T @ ((share - wanted) * weight[group]) + PENALTY * (weights - start)) * free
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        weights = weights - RATE * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
    return weights


def fit_curve(examples: Sequence[Example], weights: np.ndarray) -> tuple[float, float, float]:
    """The curve of the score and the margin of the best candidate to the probability that it is right."""
    rows, right, weight = [], [], []
    for one in examples:
        if len(one.right):
            scores = one.features @ weights
            order = np.argsort(-scores, kind="stable")
            margin = scores[order[0]] - scores[order[1]] if len(order) > 1 else 8.0
            rows.append((scores[order[0]], min(margin, 8.0), 1.0))
            right.append(one.right[order[0]])
            weight.append(one.weight)
    matrix, target = np.array(rows), np.array(right, float)
    share = np.array(weight) / sum(weight)
    typical = curve = np.array([0.4, 0.4, -3.5])
    for _ in range(30):  # Newton's method, with a penalty that matters for small sets
        odds = np.clip(matrix @ curve, -30, 30)
        chance = 1 / (1 + np.exp(-odds))
        gradient = matrix.T @ ((chance - target) * share) + 1e-3 * (curve - typical)
        hessian = (matrix.T * (chance * (1 - chance) * share)) @ matrix + 1e-3 * np.eye(3)
        curve = curve - np.linalg.solve(hessian, gradient)
    return float(curve[0]), float(curve[1]), float(curve[2])


def accuracy(examples: Sequence[Example], weights: np.ndarray) -> float:
    """How many mentions have a right best candidate."""
    right = sum(one.weight * bool(one.right[np.argmax(one.features @ weights)]) for one in examples if len(one.right))
    return right / sum(one.weight for one in examples)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--terms", type=Path, action="append", help="an index in place of the package's; repeatable")
    parser.add_argument("--only", action="append", help="learn this type alone and keep the others; repeatable")
    options = parser.parse_args()
    medic = medic_index(WORK / "medic.lexterms")
    same = Equivalents(medic)
    paths = options.terms or [default_terms()]
    start = np.array([START.get(name, 0.0) for name in FEATURES])
    tables = json.loads(TARGET.read_text()) if options.only else {}
    tables[""] = {"features": START, "curve": [1.0, 0.3, -5.0], "threshold": THRESHOLD}
    for type, names in TRAINING.items():
        if options.only and type not in options.only:
            continue
        weights = {"": Weights(tuple(start), (1.0, 0.3, -5.0), THRESHOLD)}
        shipped = Linker([TermIndex.open(path) for path in paths], weights=weights)
        # MEDIC has more of the gold ids; weights that hold for both dictionaries are learned from both.
        linkers = [shipped, Linker([medic], weights=weights)] if type == "Disease" else [shipped]
        trained: list[Example] = []
        plain: list[Example] = []
        for name in names:
            docs = split(name, "train")[:MAX_DOCUMENTS]
            for linker in linkers:
                linker.mentions = None
                linker._look_up.cache_clear()
                own = collect(linker, docs, type, same)
                if linker is shipped:
                    plain += own
                trained += own
            for fold in USED_FOLDS:
                linkers[-1].mentions = TrainingMentions(doc for at, doc in enumerate(docs) if at % FOLDS != fold)
                linkers[-1]._look_up.cache_clear()
                trained += collect(linkers[-1], docs[fold::FOLDS], type, same)
            linkers[-1].mentions = None
        # Mouse and rat genes have fewer names in the dictionary than human ones, and symbols in other letters.
        learned = learn(trained, start, (*FIXED, "names", "exact", "case") if type == "Gene" else FIXED)
        # The same: a mouse gene without an NCBI id says nothing about how likely the best candidate is right.
        curve = fit_curve([one for one in plain if type != "Gene" or one.right.any()], learned)
        print(
            f"{type}: {len(trained)} mentions, {accuracy(trained, start):.3f} before, {accuracy(trained, learned):.3f}"
        )
        print(f"  by dictionaries alone {accuracy(plain, start):.3f} before, {accuracy(plain, learned):.3f}, {curve}")
        tables[type] = {
            "features": {name: round(float(learned[PLACE[name]]), 3) for name in FEATURES},
            "curve": [round(value, 4) for value in curve],
            "threshold": THRESHOLDS.get(type, THRESHOLD),
        }
    TARGET.write_text(json.dumps(tables, indent=1) + "\n")


if __name__ == "__main__":
    main()
