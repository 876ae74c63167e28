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

from lexome.concepts.index import TermIndex, default_index, default_terms
from lexome.concepts.linker import Linker
from lexome.concepts.ranking import CONSTANT, FEATURES, PLACE, TrainingMentions, Weights
from lexome.document import Document
from linking_sets import ROOT, Equivalents, known_genes, medic_index, split

TARGET = ROOT / "src" / "lexome" / "concepts" / "linker_weights.json"
WORK = ROOT / "build" / "linking"
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
    "reduced": -1.5, "substituted": -2.5, "words changed": -0.6, "short": -0.5, "preferred": 0.4, "trained": 5.0,
    "trained otherwise": -2.0, "trained concept": 0.4, "rivals": -0.3, "document": 1.5, "taxon": 1.0,
    "taxon nearby": 1.0, "other taxon nearby": -0.5, "symbol case": 0.8, "names": 0.2, "popular": 1.5,
    "main vocabulary": 0.8, "trained in part": 1.5, "needless form": -3.0, "plural of the name": -0.5,
    "singular of the name": -0.3, "ortholog": -0.5, "misspelling": 2.0, "bracketed": 2.0,
    "words of the long form": 1.0,
}  # fmt: skip
# Not learned, because the training sets have too few cases of it.
FIXED = ("popular", *CONSTANT)
# By type: likelihood gave training mentions too little weight for old ids of MeSH to win over new ones, and made many
# names speak for a gene of humans or against a chemical; these values were better on the development splits.
FIXED_OF = {"Gene": ("names",), "Chemical": ("names", "trained"), "Disease": ("trained",)}
PENALTY, STEPS, RATE, CURVE_PENALTY = 0.001, 1000, 0.05, 0.003
# A name that agrees more closely is better, however the training mentions are written.
CLOSER, LEAD = (("exact", "case"), ("case", "folded"), ("folded", "loose")), 0.2
FOLDS, USED_FOLDS = 4, (0, 2)
MAX_CANDIDATES = 40
MAX_DOCUMENTS = 1000
# Where F1 by document was best on the development splits, annotated by the default model.
THRESHOLDS = {"Disease": 0.6, "Chemical": 0.6, "Gene": 0.6}
THRESHOLD = 0.3


@dataclass
class Example:
    """A mention: features of its candidates, which of them are right, which can be judged, and how often it occurs."""

    features: np.ndarray
    right: np.ndarray
    judged: np.ndarray
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
            ids = [one.found.concept.id for one in ranked]
            judged = np.array([same.judges(span.concepts, one, _is_human) for one in ids], bool)
            seen[key] = Example(features, right, judged, 1.0)
        examples += seen.values()
    return examples


def _is_human(gene: str) -> bool:
    return default_index().concept_of(gene) is not None


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
        for closer, looser in CLOSER:
            lead = weights[PLACE[looser]] + LEAD - weights[PLACE[closer]]
            if lead > 0:
                weights[PLACE[closer]] += lead / 2
                weights[PLACE[looser]] -= lead / 2
    return weights


def fit_curve(examples: Sequence[Example], weights: np.ndarray) -> tuple[np.ndarray, tuple[float, float, float]]:
    """The curve of the score and the margin of the best candidate to the probability that it is right.

    Features that all candidates of a mention share get their weights here.
    """
    weights = weights.copy()
    constant = [PLACE[name] for name in CONSTANT]
    weights[constant] = 0
    rows, right, weight = [], [], []
    for one in examples:
        if len(one.right):
            scores = one.features @ weights
            order = np.argsort(-scores, kind="stable")
            if not one.judged[order[0]]:
                continue
            margin = scores[order[0]] - scores[order[1]] if len(order) > 1 else 8.0
            rows.append((scores[order[0]], min(margin, 8.0), 1.0, *one.features[0, constant]))
            right.append(one.right[order[0]])
            weight.append(one.weight)
    matrix, target = np.array(rows), np.array(right, float)
    share = np.array(weight) / sum(weight)
    typical = curve = np.array([0.4, 0.4, -3.5, *(0.0 for _ in constant)])
    for _ in range(50):  # Newton's method, with a penalty that matters for small sets
        odds = np.clip(matrix @ curve, -30, 30)
        chance = 1 / (1 + np.exp(-odds))
        gradient = matrix.T @ ((chance - target) * share) + CURVE_PENALTY * (curve - typical)
        hessian = (matrix.T * (chance * (1 - chance) * share)) @ matrix + CURVE_PENALTY * np.eye(len(curve))
        step = np.linalg.solve(hessian, gradient)
        curve = curve - step / max(1.0, float(np.abs(step).max()))
    weights[constant] = curve[3:] / curve[0]
    return weights, (float(curve[0]), float(curve[1]), float(curve[2]))


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
    same = Equivalents(medic, known_genes())
    paths = options.terms or [default_terms()]
    start = np.array([START.get(name, 0.0) for name in FEATURES])
    tables = json.loads(TARGET.read_text()) if options.only else {}
    tables[""] = {"features": START, "curve": [1.0, 0.3, -5.0], "threshold": THRESHOLD}
    for type, names in TRAINING.items():
        if options.only and type not in options.only:
            continue
        weights = {"": Weights(tuple(start), (1.0, 0.3, -5.0), THRESHOLD)}
        shipped = [TermIndex.open(path) for path in paths]
        # MEDIC has more of the gold ids; weights that hold for both dictionaries are learned from both.
        dictionaries = [shipped, [medic]] if type == "Disease" else [shipped]
        docs = {name: split(name, "train")[:MAX_DOCUMENTS] for name in names}
        plain = [one for name in names for one in collect(Linker(shipped, weights=weights), docs[name], type, same)]
        trained = list(plain)
        for indexes in dictionaries[1:]:
            linker = Linker(indexes, weights=weights)
            trained += [one for name in names for one in collect(linker, docs[name], type, same)]
        for fold in USED_FOLDS:
            others = (doc for name in names for at, doc in enumerate(docs[name]) if at % FOLDS != fold)
            linker = Linker(dictionaries[-1], weights=weights, mentions=TrainingMentions(others))
            trained += [one for name in names for one in collect(linker, docs[name][fold::FOLDS], type, same)]
        learned = learn(trained, start, (*FIXED, *FIXED_OF.get(type, ())))
        learned, curve = fit_curve(plain, learned)
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
