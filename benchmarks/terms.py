"""The index of names: size, time to open, look-ups per second, a million names, and what the default index knows.

    python benchmarks/terms.py [DATA]

DATA contains benchmarks/, terms/ and corpus/; the default is ../shared/data. Times are of the processor, on one core.
Look-ups are of the distinct gold mentions of development parts (where a set has none, of its training part), each
once, so that no cache answers. Coverage, by set and type, in percent of the mentions that have an id:

    id        the index has one of the gold ids, as id or cross-reference
    exact     equal names, but for case, have it; folded and loose: names that agree so
    first     it is the first that is found
    near      no name agrees, and it is among the 20 most similar names

Writes results/terms.json.
"""

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import lexome
from facts import facts
from find_terms import million_names
from lexome.concepts.build_terms import build_terms
from lexome.concepts.index import TermIndex, default_terms
from lexome.concepts.names import Agreement
from lexome.document import Span
from lexome.recipe.corpus_stages import TermsRecipe
from real_data import DATA

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "results" / "terms.json"
SETS = {
    "BC5CDR": "BC5CDR-pubtator/CDR_DevelopmentSet.PubTator.txt.xz",
    "NCBI-disease": "NCBI-disease-pubtator/NCBIdevelopset_corpus.txt.xz",
    "BioRED": "BioRED/Dev.PubTator.xz",
    "NLM-Gene": "AIONER-pubtator/NLMgene_Train.PubTator.xz",
    "linnaeus": "AIONER-pubtator/Linnaeus_Train.PubTator.xz",
    "BioID": "AIONER-pubtator/BioID_Train_revision.PubTator.xz",
}
TYPES = {
    **dict.fromkeys(("SpecificDisease", "DiseaseClass", "Modifier", "CompositeMention"), "Disease"),
    **dict.fromkeys(("Disease", "DiseaseOrPhenotypicFeature"), "Disease"),
    **dict.fromkeys(("Chemical", "ChemicalEntity"), "Chemical"),
    **dict.fromkeys(("Gene", "GeneOrGeneProduct"), "Gene"),
    **dict.fromkeys(("Species", "OrganismTaxon"), "Species"),
    "CellLine": "CellLine",
}
TIMES = 20


def main() -> None:
    data = Path(sys.argv[1]) if len(sys.argv) > 1 else DATA
    mentions = {name: gold_mentions(data / "benchmarks" / path) for name, path in SETS.items()}
    result = {
        "facts": facts("numpy"),
        "default": {**opening(), **look_ups([mention for found in mentions.values() for mention in found])},
        "million_names": json.loads(
            subprocess.run([sys.executable, __file__, str(data), "million"], check=True, stdout=subprocess.PIPE).stdout
        ),
        "coverage": {name: coverage(spans) for name, spans in mentions.items()},
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def gold_mentions(path: Path) -> list[tuple[Span, str]]:
    """Mentions with ids, and the index's type of each."""
    with tempfile.TemporaryDirectory() as scratch:
        docs = lexome.read(path, tally=lexome.Tally(Path(scratch) / "rejects.jsonl"))
        spans = [span for doc in docs for span in doc.spans if span.type in TYPES]
    return [
        (span, TYPES[span.type]) for span in spans if any(not concept.startswith("local:") for concept in span.concepts)
    ]


def opening() -> dict[str, float]:
    """The size of the default index and the time to open it, checksum included, when the file is in the page cache."""
    path = default_terms()
    seconds = []
    for _ in range(TIMES):
        start = time.process_time()
        index = TermIndex.open(path)
        seconds.append(time.process_time() - start)
    header = index.header
    return {
        "megabytes": round(path.stat().st_size / 1e6, 2),
        "concepts": header["concepts"],
        "names": header["names"],
        "open_ms": round(1000 * statistics.median(seconds), 1),
    }


def look_ups(mentions: list[tuple[Span, str]]) -> dict[str, float]:
    """Look-ups per second of distinct mentions, in an index opened for them."""
    index = TermIndex.open(default_terms())
    names = sorted({(span.text, type) for span, type in mentions})
    start = time.process_time()
    missing = [(name, type) for name, type in names if not index.find(name, type)]
    seconds = time.process_time() - start
    searched = [pair for pair in missing if pair[1] in ("Chemical", "Disease")]
    start = time.process_time()
    for name, type in searched:
        index.near(name, type)
    near = time.process_time() - start
    return {
        "distinct_mentions": len(names),
        "finds_per_second": round(len(names) / seconds),
        "searched_for_similar": len(searched),
        "similar_ms": round(1000 * near / len(searched), 2),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def million(data: Path) -> dict[str, float]:
    """Time and memory to build an index of a million names, with and without similar names."""
    names = million_names(data)
    result: dict[str, float] = {"names": len(names)}
    with tempfile.TemporaryDirectory() as scratch:
        table = Path(scratch) / "names.tsv"
        table.write_text("".join(f"{number}\t{name}\n" for number, name in enumerate(names)), encoding="utf-8")
        del names
        for key, near in (("build_s", ()), ("build_with_similar_s", ("Term",))):
            keys = {"name": "names", "paths": [table], "format": "tsv", "type": "Term", "prefix": "X"}
            out = Path(scratch) / f"{key}.lexterms"
            recipe = TermsRecipe(stage="build-terms", out=out, data=scratch, near=near, dictionaries=[keys])
            start = time.process_time()
            built = build_terms(recipe, progress_shown=False)
            result[key] = round(time.process_time() - start, 1)
            result[f"{key.removesuffix('_s')}_mb"] = round(built.bytes / 1e6, 1)
    result["peak_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return result


def coverage(mentions: list[tuple[Span, str]]) -> dict[str, dict[str, float]]:
    """For each type, how many mentions the default index can link."""
    index = TermIndex.open(default_terms())
    numbers: dict[str, int] = {}
    for concept in index.concepts():
        numbers[concept.id] = concept.number
        for xref in concept.xrefs:
            numbers.setdefault(xref, concept.number)
    counts: dict[str, Counter[str]] = {}
    for span, type in mentions:
        count = counts.setdefault(type, Counter())
        count["mentions"] += 1
        gold = {numbers[concept] for concept in span.concepts if concept in numbers}
        count["id"] += bool(gold)
        found = index.find(span.text, type)
        right = [match.agreement for match in found if match.concept in gold]
        if right:
            level = "exact" if right[0] in (Agreement.EXACT, Agreement.CASE) else str(right[0].name).lower()
            count[level] += 1
            count["first"] += found[0].concept in gold
        elif not found and gold:
            count["near"] += any(match.concept in gold for match in index.near(span.text, type))
    return {
        type: {
            "mentions": count["mentions"],
            **{
                key: round(100 * count[key] / count["mentions"], 1)
                for key in ("id", "exact", "folded", "loose", "first", "near")
            },
        }
        for type, count in sorted(counts.items())
    }


if __name__ == "__main__":
    if sys.argv[2:] == ["million"]:
        print(json.dumps(million(Path(sys.argv[1]))))
    else:
        main()
