"""F1 of the default model with each of its rules and without, and calibration of what it returns.

    python benchmarks/annotator_rules.py [--test] [--fit]

On development sets: the model without rules, minimum scores and with all types of a place, as the first edition
returned them; with everything; and with each rule switched off. A mention is correct if offsets and type match.
Calibration is cross-fitted over documents: curves are fitted on four fifths of them, and the error is measured on what
the whole pipeline returns for the last fifth. The sentences of tests/infer/hard_sentences.txt are scored as well.
`--fit` writes the curves of all documents, the rules and the minimum scores into model.json, which an export of new
weights lacks. `--test` scores the test splits, with rules and without.
Writes results/annotator_rules.json.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from facts import facts
from lexome.datasets import find
from lexome.document import Document, Passage
from lexome.export.calibration import FOLDS, expected_calibration_error, platt
from lexome.export.device import open_model
from lexome.files import write_checksums
from lexome.infer.annotator import Model, default_model
from lexome.infer.predictor import write_settings
from lexome.infer.rules import RULES
from lexome.infer.selection import Selection, made_by_rule
from lexome.infer.variant_rules import is_notation
from lexome.tasks.task import Example, Floats
from real_data import DATASETS

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "infer"))

import hard_sentences  # noqa: E402

RESULT = ROOT / "results" / "annotator_rules.json"
TYPES = ("Gene", "Disease", "Chemical", "Species", "CellLine", "Variant")
ALL_SIX = {type_: type_ for type_ in TYPES}
TMVAR = (
    "Variant",
    "DNAMutation",
    "ProteinMutation",
    "SNP",
    "OtherMutation",
    "DNAAllele",
    "ProteinAllele",
    "AcidChange",
)
# Default minimum scores, chosen on the development sets from 0.2 to 0.5 in steps of 0.05.
MIN_SCORES = {"Gene": 0.4, "Disease": 0.4, "Chemical": 0.3, "Species": 0.4, "CellLine": 0.4, "Variant": 0.5}
# Datasets and their types as the model's. BioID and tmVar3 have no development split: of BioID every ninth document is
# used, of tmVar3 those abstracts that are not in BioRED; neither was trained on.
DEV: dict[str, dict[str, str]] = {
    "BC5CDR": {"Disease": "Disease", "Chemical": "Chemical"},
    "NCBI-disease-pubtator": {"Disease": "Disease"},
    "BioRED-NER": ALL_SIX,
    "NLM-Gene": {"Gene": "Gene", "FamilyName": "Gene"},
    "GNormPlus": {"Gene": "Gene", "FamilyName": "Gene"},
    "SPECIES-pubtator": {"Species": "Species"},
    "tmVar3": {**dict.fromkeys(TMVAR, "Variant"), "CellLine": "CellLine"},
    "BioID": {"CellLine": "CellLine"},
}
TEST = ("BC5CDR", "NCBI-disease-pubtator", "BioRED-NER", "NLM-Gene", "GNormPlus", "SPECIES-pubtator")
# What calibration is fitted and measured on: the development sets whose guidelines the types follow.
CALIBRATION = ("BC5CDR", "NCBI-disease-pubtator", "BioRED-NER", "NLM-Gene", "SPECIES-pubtator", "tmVar3", "BioID")
BY_GUIDELINE = {"Variant": ("BioRED-NER",), "CellLine": ("BioRED-NER", "tmVar3", "BioID")}
FIT_ROUNDS = 2

Encoded = tuple[Document, list[Example], list[Floats]]


def main() -> None:
    given = arguments()
    model = Model.open(default_model(), threads=1)
    if given.fit:
        curves = fit_curves(model, range(FOLDS))
        calibration_curves = {**(model.settings.calibration or {}), **curves}
        settings = replace(model.settings, calibration=calibration_curves, rules=RULES, min_scores=MIN_SCORES)
        write_settings(default_model(), settings)
        write_checksums(default_model())
        model = Model.open(default_model(), threads=1)
    result: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    result |= {"facts": facts("onnxruntime", "numpy"), "model": model.name, "min_scores": model.settings.min_scores}
    result["development"] = {name: scores(model, options) for name, options in variants(model).items()}
    result["documents"] = {name: len(encoded(name, "dev")) for name in DEV}
    result["added"] = precision_of_rules(model)
    result["calibration"] = calibration(model)
    result["repeated"] = repeated_sentences(model)
    result["hard_sentences"] = scores_of_hard_sentences(model)
    result["float_weights"] = float_weights(model)
    if given.test:
        both = variants(model)
        result["test"] = {name: scores(model, both[name], split="test") for name in ("none", "all")}
        # A run without --test keeps the scores of an earlier one.
        result["test_revision"] = result["facts"]["revision"]
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(
        json.dumps(
            {name: result[name] for name in ("development", "added", "calibration", "repeated", "hard_sentences")},
            indent=1,
        )
    )


def arguments() -> argparse.Namespace:
    """Command-line arguments."""
    options = argparse.ArgumentParser()
    options.add_argument("--test", action="store_true", help="score the test splits as well")
    options.add_argument("--fit", action="store_true", help="write new curves into model.json")
    return options.parse_args()


def variants(model: Model) -> dict[str, Selection]:
    """The selections that are compared."""
    floors = model.settings.min_scores or {}
    everything = frozenset(("all",))
    return {
        "none": Selection(TYPES, {}, "keep", everything),
        "only one type per place": Selection(TYPES, {}, None, everything),
        "only minimum scores": Selection(TYPES, floors, "keep", everything),
        "all": Selection(TYPES, floors),
        "all, all types of a place": Selection(TYPES, floors, "keep"),
        "all, no minimum scores": Selection(TYPES, {}),
        **{f"without {rule}": Selection(TYPES, floors, None, frozenset((rule,))) for rule in RULES},
    }


@cache
def encoded(name: str, split: str) -> list[Encoded]:
    """The documents of a dataset with their windows and logits; the model runs once on each."""
    model = Model.open(default_model(), threads=1)
    rows = []
    for doc in documents(name, split):
        bare = replace(doc, spans=(), relations=(), attributes=())
        examples = model.encode(bare)
        rows.append((doc, examples, model.run(examples)))
    return rows


def documents(name: str, split: str) -> list[Document]:
    """The documents of a split; of sets without a development split, those described above."""
    dataset = find(name, data=DATASETS).splits(partial=True)
    if split == "test" or name not in ("BioID", "tmVar3"):
        return dataset[split]
    docs = [doc for part in dataset.values() for doc in part]
    if name == "BioID":
        return docs[::9]
    sets = (find(other, data=DATASETS).splits(partial=True) for other in ("BioRED", "BioRED-NER"))
    known = {doc.id for splits in sets for part in splits.values() for doc in part}
    return [doc for doc in docs if doc.id not in known]


def scores(model: Model, selection: Selection, split: str = "dev") -> dict[str, dict[str, float]]:
    """F1 in percent by dataset and type."""
    return {
        name: f1(annotated(model, selection, encoded(name, split)), DEV[name])
        for name in (TEST if split == "test" else DEV)
    }


def annotated(model: Model, selection: Selection, rows: Sequence[Encoded]) -> Iterator[tuple[Document, Document]]:
    """Gold and predicted documents."""
    for doc, examples, logits in rows:
        bare = replace(doc, spans=(), relations=(), attributes=())
        yield doc, model.predict(bare, examples, logits, selection)


def f1(pairs: Iterator[tuple[Document, Document]], names: Mapping[str, str]) -> dict[str, float]:
    """F1 in percent of each of the model's types; `names` maps the dataset's."""
    counts = {type_: [0, 0] for type_ in names.values()}
    for gold, doc in pairs:
        for type_, count in counts.items():
            wanted, given = gold_places(gold, names, type_), places(doc, type_)
            count[0] += len(wanted & given)
            count[1] += len(wanted) + len(given)
    return {type_: round(200 * right / max(1, total), 2) for type_, (right, total) in counts.items()}


def gold_places(gold: Document, names: Mapping[str, str], type_: str) -> set[tuple[int, int]]:
    """The offsets of the gold mentions of one of the model's types."""
    return {(span.start, span.end) for span in gold.spans if names.get(span.type) == type_}


def places(doc: Document, type_: str) -> set[tuple[int, int]]:
    """The offsets of the mentions of a type."""
    return {(span.start, span.end) for span in doc.spans if span.type == type_}


def precision_of_rules(model: Model) -> dict[str, dict[str, Any]]:
    """By rule and type, how many mentions it added on the development sets, and how many of them are correct."""
    counts: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for name, names in DEV.items():
        for gold, doc in annotated(model, Selection(TYPES, model.settings.min_scores or {}), encoded(name, "dev")):
            for span, rule in made_by_rule(doc):
                if span.type in names.values():
                    count = counts[rule][span.type]
                    count[0] += 1
                    count[1] += (span.start, span.end) in gold_places(gold, names, span.type)
    return {
        rule: {type_: {"added": added, "correct": right} for type_, (added, right) in sorted(by_type.items())}
        for rule, by_type in sorted(counts.items())
    }


# --- calibration


def scored(model: Model, selection: Selection, folds: Sequence[int]) -> dict[str, list[tuple[float, bool, bool]]]:
    """By type, score, correctness and whether the score is the model's, of the mentions of documents in some folds."""
    rows: dict[str, list[tuple[float, bool, bool]]] = {type_: [] for type_ in TYPES}
    for name in CALIBRATION:
        part = [row for number, row in enumerate(encoded(name, "dev")) if number % FOLDS in folds]
        types = [t for t in dict.fromkeys(DEV[name].values()) if name in BY_GUIDELINE.get(t, CALIBRATION)]
        for gold, doc in annotated(model, selection, part):
            made = {span.id for span, _ in made_by_rule(doc)}
            for type_ in types:
                right = gold_places(gold, DEV[name], type_)
                rows[type_] += [
                    (
                        span.score or 0.0,
                        (span.start, span.end) in right,
                        span.id not in made and not (type_ == "Variant" and is_notation(span.text)),
                    )
                    for span in doc.spans
                    if span.type == type_
                ]
    return rows


def fit_curves(model: Model, folds: Sequence[int]) -> dict[str, tuple[float, float]]:
    """A curve for each type from the mentions that the model made and the rules left, in documents of some folds.

    Curves decide which of several types stays, so they are fitted to their own result again.
    """
    curves = dict(model.settings.calibration or {})
    for _ in range(FIT_ROUNDS):
        rows = scored(with_curves(model, curves), Selection(TYPES, {}), folds)
        for type_, mentions in rows.items():
            made = [(score, correct) for score, correct, by_model in mentions if by_model]
            slope, offset = curves.get(type_, (1.0, 0.0))
            clipped = np.clip([score for score, _ in made], 1e-6, 1 - 1e-6)
            raw = 1 / (1 + np.exp(-((np.log(clipped / (1 - clipped)) - offset) / slope)))
            curves[type_] = platt(raw, np.array([correct for _, correct in made], np.float64))
    return {type_: curves[type_] for type_ in TYPES}


def with_curves(model: Model, curves: Mapping[str, tuple[float, float]]) -> Model:
    """The model with other calibration curves."""
    other = model.with_predictor(model.predictor)
    other.settings = replace(model.settings, calibration=dict(curves))
    return other


def calibration(model: Model) -> dict[str, dict[str, float]]:
    """By type, the expected calibration error of what is returned, cross-fitted, and with the curves of model.json."""
    selection = Selection(TYPES, model.settings.min_scores or {})
    fitted: dict[str, list[tuple[float, bool, bool]]] = {type_: [] for type_ in TYPES}
    for fold in range(FOLDS):
        curves = fit_curves(model, [other for other in range(FOLDS) if other != fold])
        part = scored(with_curves(model, curves), selection, [fold])
        for type_ in TYPES:
            fitted[type_] += part[type_]
    shipped = scored(model, selection, range(FOLDS))
    return {
        type_: {
            "mentions": len(fitted[type_]),
            "ece_cross_fitted": round(error(fitted[type_]), 4),
            "ece_shipped_curves": round(error(shipped[type_]), 4),
        }
        for type_ in TYPES
    }


def error(rows: Sequence[tuple[float, bool, bool]]) -> float:
    """The expected calibration error of scored mentions."""
    return expected_calibration_error(
        np.array([score for score, _, _ in rows]), np.array([correct for _, correct, _ in rows], np.float64)
    )


# --- float weights


def float_weights(model: Model) -> dict[str, Any]:
    """How the model's float weights in torch agree with its int8 graph, before any rules: mentions, and F1 by type."""
    run = open_model(default_model(), "cpu")
    every = tuple(range(len(model.settings.labels)))
    either = both = 0
    pairs: dict[str, dict[str, list[tuple[Document, Document]]]] = {}
    for name in ("BioRED-NER", "NCBI-disease-pubtator"):
        pairs[name] = {"int8": [], "float": []}
        for doc, examples, logits in encoded(name, "dev"):
            bare = replace(doc, spans=(), relations=(), attributes=())
            ids = [np.asarray(example.ids, np.int32) for example in examples]
            exact = [run(row, np.array([len(row)], np.int32), every) for row in ids]
            docs = [model.decode(bare, examples, one, types=TYPES) for one in (logits, exact)]
            first, second = ({(span.start, span.end, span.type) for span in one.spans} for one in docs)
            both, either = both + len(first & second), either + len(first | second)
            for kind, predicted in zip(("int8", "float"), docs, strict=True):
                pairs[name][kind].append((doc, predicted))
    f1_by_kind = {
        name: {kind: f1(iter(rows), DEV[name]) for kind, rows in by_kind.items()} for name, by_kind in pairs.items()
    }
    return {"mentions": either, "agreement": round(both / either, 4), "f1": f1_by_kind}


# --- context


def repeated_sentences(model: Model, *, copies: int = 4, limit: int = 150) -> dict[str, float]:
    """Share of mentions that all copies of a sentence have, of those that any has, with the rules and without.

    The sentences are the titles of BioRED's development split, each repeated in one text.
    """
    both = variants(model)
    shares: dict[str, float] = {}
    sentences = [doc.passages[0].text for doc, _, _ in encoded("BioRED-NER", "dev")][:limit]
    for name in ("none", "all"):
        same = anywhere = 0
        for sentence in sentences:
            doc = one_passage(" ".join([sentence] * copies))
            examples = model.encode(doc)
            found = model.predict(doc, examples, model.run(examples), both[name])
            step = len(sentence) + 1
            seen = [
                {(s.start - i * step, s.end - i * step, s.type) for s in found.spans if s.start // step == i}
                for i in range(copies)
            ]
            same += len(set.intersection(*seen))
            anywhere += len(set.union(*seen))
        shares[name] = round(same / max(1, anywhere), 4)
    return shares


# --- hard sentences


def scores_of_hard_sentences(model: Model) -> dict[str, Any]:
    """Precision, recall and F1 in percent by type, without rules and with them, on the sentences of the tests."""
    rows = hard_sentences.sentences()
    docs = hard_sentences.documents(rows)
    both = variants(model)
    result: dict[str, Any] = {"sentences": len(rows)}
    for name in ("none", "all"):
        annotated = []
        for doc in docs:
            examples = model.encode(doc)
            annotated.append(model.predict(doc, examples, model.run(examples), both[name]))
        result[name] = {
            type_: {"mentions": part.expected}
            | {key: round(100 * getattr(part, key), 1) for key in ("precision", "recall", "f1")}
            for type_, part in hard_sentences.scores(rows, annotated).items()
        }
    return result


def one_passage(text: str) -> Document:
    """A document of one passage."""
    return Document("text", (Passage(0, text),))


if __name__ == "__main__":
    main()
