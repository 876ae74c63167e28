"""Accuracy of linking on gold mentions, F1 from raw text with the default model, speed and memory.

    python benchmarks/linking.py [--terms FILE ...] [--part test|dev] [--sections gold raw cost]

Gold mentions: accuracy@1 and @5 over all mentions with a gold concept. Each set is linked with dictionaries alone,
and with the mentions of its training and development splits added, as BioSyn does. "Known" are the mentions with a
gold id that the dictionary or the training mentions have: no linker of these can have more right. Diseases are linked
with the shipped index and with MEDIC; ids that MEDIC merges count as one. Genes take the training mentions of all sets
that have their ids; "same gene" counts a mouse or rat gene as right if it is the gold one by the ids that training
mentions tell. From raw text: the default model annotates,
the linker links, and each document's set of concepts is compared with the gold one, by type, as BioCreative scores
it; also by mention. Nothing was chosen on test splits. Writes results/linking.json.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from facts import facts
from lexome.concepts.index import TermIndex
from lexome.concepts.linker import Linker
from lexome.concepts.ranking import HUMAN, TrainingMentions
from lexome.datasets import find
from lexome.document import Document
from lexome.tasks.evaluation.annotations import linking_accuracy
from lexome.tasks.metrics.spans import compare_sets, sum_agreements
from linking_sets import GENES, ROOT, Equivalents, known_genes, medic_index, split
from real_data import DATASETS

RESULT = ROOT / "results" / "linking.json"
WORK = ROOT / "build" / "linking"
# A set, a type, the splits whose mentions are added, and the goal.
GOLD = (
    ("NCBI-disease-pubtator", "Disease", ("train", "dev"), 88.0),
    ("BC5CDR", "Disease", ("train", "dev"), 90.0),
    ("BC5CDR", "Chemical", ("train", "dev"), 93.0),
    ("BioRED", "Disease", ("train", "dev"), None),
    ("BioRED", "Chemical", ("train", "dev"), None),
    ("BioRED", "Gene", ("train", "dev"), 80.0),
    ("BioRED", "Species", ("train", "dev"), None),
    ("BioRED", "CellLine", ("train", "dev"), None),
    ("BioRED", "Variant", (), None),
    ("NLM-Gene", "Gene", ("train",), 80.0),
    ("linnaeus-pubtator", "Species", ("train",), 95.0),
)
# Sets, their types, and the goal for F1 by document.
RAW = (
    ("NCBI-disease-pubtator", ("Disease",), 80.7),
    ("BC5CDR", ("Chemical", "Disease"), 84.0),
    ("BioRED", ("Gene", "Disease", "Chemical", "Species", "CellLine", "Variant"), None),
)
COST_DOCUMENTS = 100
SECTIONS = ("gold", "raw", "cost", "calibration", "species")
BINS = 10
# Least probabilities of ids, and what is left of them: how many mentions keep one, and how many of these are right.
LEAST = (0.5, 0.7, 0.9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--terms", type=Path, action="append", help="an index in place of the package's; repeatable")
    parser.add_argument("--part", default="test", choices=("test", "dev"))
    parser.add_argument("--sections", nargs="+", default=SECTIONS, choices=SECTIONS, help="others keep their result")
    parser.add_argument("--cost-here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cost_here:
        print(json.dumps(cost(options.terms)))
        return
    shipped = _indexes(options.terms)
    medic = medic_index(WORK / "medic.lexterms")
    same = Equivalents(medic)
    genes = Equivalents(medic, known_genes())
    result: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    result["part"] = options.part
    if "gold" in options.sections:
        result["gold_mentions"] = []
        for name, type, added, goal in GOLD:
            for row in gold_mentions(name, type, added, options.part, shipped, medic, same, genes):
                result["gold_mentions"].append({**row, "goal": goal})
                print(json.dumps(result["gold_mentions"][-1]), flush=True)
    if "raw" in options.sections:
        result["raw_text"] = []
        for name, types, goal in RAW:
            for row in raw_text(name, types, options.part, shipped, medic, same):
                result["raw_text"].append({**row, "goal": goal})
                print(json.dumps(result["raw_text"][-1]), flush=True)
    if "cost" in options.sections:
        terms = [part for path in options.terms or () for part in ("--terms", str(path))]
        command = [sys.executable, __file__, "--cost-here", *terms]
        result["cost"] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        print(json.dumps(result["cost"]), flush=True)
    if "calibration" in options.sections:
        result["calibration"] = [
            calibration(name, type, options.part, shipped, genes) for name, type, _, _ in GOLD if type != "Variant"
        ]
        print(json.dumps(result["calibration"]), flush=True)
    if "species" in options.sections:
        result["species"] = [
            species_of_genes(name, options.part, shipped, genes) for name, type, _, _ in GOLD if type == "Gene"
        ]
        print(json.dumps(result["species"]), flush=True)
    result["facts"] = facts("lexome", "numpy", "onnxruntime")
    if options.part == "test":
        RESULT.write_text(json.dumps(result, indent=1) + "\n")


def _indexes(paths: Sequence[Path] | None) -> list[TermIndex]:
    if paths:
        return [TermIndex.open(path) for path in paths]
    return list(Linker.load().indexes)


def _docs(name: str, part: str) -> tuple[Document, ...]:
    if part == "dev" and name in ("NLM-Gene", "linnaeus-pubtator"):  # they have none: the last fifth of train
        docs = split(name, "train")
        return docs[4 * len(docs) // 5 :]
    return split(name, part)


def _training(name: str, type: str, parts: Sequence[str], part: str) -> list[Document]:
    """The documents whose mentions are added: none that is measured; of genes those of all sets that have ids."""
    measured = {doc.id for doc in _docs(name, part)}
    sets = [(name, one) for one in parts if one != part]
    if type == "Gene":
        sets += [(other, "train") for other in GENES if other != name]
    return [doc for other, one in sets for doc in split(other, one) if doc.id not in measured]


def gold_mentions(
    name: str,
    type: str,
    added: Sequence[str],
    part: str,
    shipped: Sequence[TermIndex],
    medic: TermIndex,
    same: Equivalents,
    genes: Equivalents,
) -> list[dict[str, Any]]:
    """Accuracy with and without training mentions, for each dictionary."""
    docs = _docs(name, part)
    rows = []
    dictionaries = {"shipped": shipped, **({"MEDIC": (medic, *shipped)} if type == "Disease" else {})}
    for dictionary, indexes in dictionaries.items():
        for mentions in (None, TrainingMentions(_training(name, type, added, part))) if added else (None,):
            linker = Linker(indexes, mentions=mentions)

            def candidates(doc: Document, linker: Linker = linker) -> dict[str, list[str]]:
                explained = linker.explain_all(doc)
                return {id_: [one.concept for one in why.candidates] for id_, why in explained.items()}

            accuracy = linking_accuracy(docs, candidates, type=type, at=(1, 5), same=same.of)
            mapped = linking_accuracy(docs, candidates, type=type, at=(1,), same=genes.of) if type == "Gene" else {}
            rows.append(
                {
                    "set": name,
                    "type": type,
                    "dictionary": dictionary,
                    "training_mentions": mentions is not None,
                    "mentions": sum(span.type == type and bool(span.concepts) for doc in docs for span in doc.spans),
                    "known": round(100 * _known(docs, type, indexes, mentions, same), 2),
                    "accuracy_at_1": round(100 * accuracy[1], 2),
                    "accuracy_at_5": round(100 * accuracy[5], 2),
                    **({"same_gene_at_1": round(100 * mapped[1], 2)} if mapped else {}),
                }
            )
    return rows


def calibration(name: str, type: str, part: str, shipped: Sequence[TermIndex], same: Equivalents) -> dict[str, Any]:
    """How far the probability of the best candidate is from how often it is right, with the shipped index alone.

    Mouse and rat genes count as right if they are the annotated ones by the ids that training mentions tell; those of
    which nobody knows the NCBI id are left out, and counted.
    """
    linker = Linker(shipped)
    bins: list[list[tuple[float, bool]]] = [[] for _ in range(BINS)]
    unjudged = 0
    for doc in _docs(name, part):
        explained = linker.explain_all(doc)
        for span in doc.spans:
            if span.type == type and span.concepts and explained[span.id].candidates:
                why = explained[span.id]
                best = why.candidates[0].concept
                right = not same.of(span.concepts).isdisjoint(same.of([best]))
                if not right and not same.judges(span.concepts, best, lambda gene: _has(shipped, gene)):
                    unjudged += 1
                    continue
                bins[min(BINS - 1, int(why.score * BINS))].append((why.score, right))
    total = sum(map(len, bins))
    gaps = (abs(sum(score for score, _ in own) - sum(right for _, right in own)) for own in bins)
    mean = sum(score for own in bins for score, _ in own) / total
    right = sum(right for own in bins for _, right in own) / total
    return {
        "set": name,
        "type": type,
        "mentions": total,
        "not_judged": unjudged,
        "expected_calibration_error": round(sum(gaps) / total, 4),
        "mean_probability": round(mean, 4),
        "right": round(right, 4),
        "at_least": {str(least): _kept([pair for own in bins for pair in own], least) for least in LEAST},
    }


def _kept(pairs: Sequence[tuple[float, bool]], least: float) -> dict[str, float]:
    kept = [right for score, right in pairs if score >= least]
    return {"kept": round(len(kept) / len(pairs), 4), "right": round(sum(kept) / len(kept), 4) if kept else 0.0}


def species_of_genes(name: str, part: str, shipped: Sequence[TermIndex], same: Equivalents) -> dict[str, Any]:
    """How often the best candidate of a mention has the gold gene's species, where the gold gene is a candidate."""
    linker = Linker(shipped)
    mentions = of_species = right = human = 0
    for doc in _docs(name, part):
        explained = linker.explain_all(doc)
        for span in doc.spans:
            if span.type != "Gene" or not span.concepts:
                continue
            gold = same.of(span.concepts)
            candidates = explained[span.id].candidates
            taxa = {one.taxon for one in candidates if not gold.isdisjoint(same.of([one.concept]))}
            if taxa:
                mentions += 1
                of_species += candidates[0].taxon in taxa
                right += not gold.isdisjoint(same.of([candidates[0].concept]))
                human += HUMAN in taxa
    return {
        "set": name,
        "mentions": mentions,
        "human": round(100 * human / mentions, 2),
        "species_right": round(100 * of_species / mentions, 2),
        "gene_right": round(100 * right / mentions, 2),
    }


def _has(indexes: Sequence[TermIndex], concept: str) -> bool:
    return any(index.concept_of(concept) is not None for index in indexes)


def _known(
    docs: Sequence[Document],
    type: str,
    indexes: Sequence[TermIndex],
    mentions: TrainingMentions | None,
    same: Equivalents,
) -> float:
    """How many mentions have a gold concept that the dictionaries or the training mentions have."""
    known = total = 0
    cache: dict[str, bool] = {}
    for doc in docs:
        for span in doc.spans:
            if span.type == type and span.concepts:
                total += 1
                ids = {*span.concepts, *same.of(span.concepts)}
                for one in ids - cache.keys():
                    counted = mentions is not None and mentions.concepts[one] > 0
                    cache[one] = counted or any(index.concept_of(one) is not None for index in indexes)
                known += any(cache[one] for one in ids)
    return known / total if total else 0.0


def raw_text(
    name: str, types: Sequence[str], part: str, shipped: Sequence[TermIndex], medic: TermIndex, same: Equivalents
) -> list[dict[str, Any]]:
    """F1 by document and by mention of annotation with the default model, then linking, for each linker."""
    docs = _docs(name, part)
    found = annotated(docs, f"{name}-{part}")
    type = "Gene" if "Gene" in types else types[0]
    training = TrainingMentions(_training(name, type, ("train", "dev"), part))
    linkers = {
        ("shipped", False): Linker(shipped),
        ("shipped", True): Linker(shipped, mentions=training),
        ("MEDIC", False): Linker((medic, *shipped)),
        ("MEDIC", True): Linker((medic, *shipped), mentions=training),
    }
    rows = []
    for (dictionary, trained), linker in linkers.items():
        linked = [linker.link(doc) for doc in found]
        by_document = sum_agreements(
            compare_sets(_concepts(gold, types, same), _concepts(own, types, same))
            for gold, own in zip(docs, linked, strict=True)
        )
        by_mention = sum_agreements(
            compare_sets(_mentions(gold, types, same), _mentions(own, types, same))
            for gold, own in zip(docs, linked, strict=True)
        )
        rows.append(
            {
                "set": name,
                "dictionary": dictionary,
                "training_mentions": trained,
                "documents": len(docs),
                **_scores("document", by_document),
                **_scores("mention", by_mention),
            }
        )
    return rows


def _scores(name: str, agreement: Any) -> dict[str, Any]:
    rounded = {key: round(100 * getattr(agreement, key), 2) for key in ("precision", "recall", "f1")}
    types = {type: round(100 * counts.f1, 2) for type, counts in agreement.types.items()}
    return {f"by_{name}": {**rounded, "types": types}}


def _concepts(doc: Document, types: Sequence[str], same: Equivalents) -> dict[str, set[str]]:
    own = {type: same.of(one for span in doc.spans if span.type == type for one in span.concepts) for type in types}
    return {type: ids for type, ids in own.items() if ids}


def _mentions(doc: Document, types: Sequence[str], same: Equivalents) -> dict[str, set[Any]]:
    own = {
        type: {(span.parts, one) for span in doc.spans if span.type == type for one in same.of(span.concepts)}
        for type in types
    }
    return {type: ids for type, ids in own.items() if ids}


def annotated(docs: Sequence[Document], name: str) -> list[Document]:
    """The documents with the default model's mentions in place of the gold ones."""
    from lexome import load

    bare = [replace(doc, spans=(), relations=(), attributes=()) for doc in docs]
    annotator = load(link=False)
    return [
        replace(doc, spans=tuple(replace(span, concepts=()) for span in doc.spans)) for doc in annotator.annotate(bare)
    ]


def cost(paths: Sequence[Path] | None) -> dict[str, float]:
    """Seconds and megabytes of annotation and of linking, in a process that does nothing else."""
    from lexome import load

    docs = [
        replace(doc, spans=(), relations=()) for doc in find("BioRED", data=DATASETS).split("test")[:COST_DOCUMENTS]
    ]
    before = _resident()
    annotator = load(link=False)
    list(annotator.annotate(docs[:4]))
    loaded = _resident()
    started = time.process_time()
    found = [replace(doc, spans=tuple(replace(s, concepts=()) for s in doc.spans)) for doc in annotator.annotate(docs)]
    annotation = time.process_time() - started
    annotated_peak = _peak()
    started = time.perf_counter()
    indexes = _indexes(paths)
    opening = time.perf_counter() - started
    linker = Linker(indexes)
    with_index = _resident()
    for doc in found[:4]:  # as for the model, what is read once is not counted
        linker.link(doc)
    started = time.process_time()
    for doc in found:
        linker.link(doc)
    linking = time.process_time() - started
    return {
        "documents": len(docs),
        "words": sum(len(doc.text.split()) for doc in docs),
        "annotation_s": round(annotation, 3),
        "linking_s": round(linking, 3),
        "linking_percent_of_annotation": round(100 * linking / annotation, 1),
        "mentions_per_second": round(sum(len(doc.spans) for doc in found) / linking),
        "open_ms": round(1000 * opening, 1),
        "before_mb": round(before, 1),
        "annotator_loaded_mb": round(loaded, 1),
        "annotation_peak_mb": round(annotated_peak, 1),
        "index_opened_mb": round(with_index, 1),
        "after_linking_mb": round(_resident(), 1),
        "peak_mb": round(_peak(), 1),
    }


def _peak() -> float:
    """Megabytes that the process had at most; getrusage also counts the process that started it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def _resident() -> float:
    """Megabytes of memory that the process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    main()
