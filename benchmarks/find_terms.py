"""A million names: time and memory to build a matcher, and its throughput on abstracts, on one core.

    python benchmarks/find_terms.py [DATA]

DATA contains terms/ and corpus/; the default is ../shared/data. The names are those of PubChem, Cellosaurus, NCBI
Taxonomy and ChEBI there, and, up to a million, pairs of them. The text is abstracts, searched one by one and 16 at a
time. Each matcher is built in a process of its own, whose peak memory is compared with that before. The peer is an
Aho-Corasick automaton (ahocorasick_rs) over the same names in lower case; it is only built, since its matches also
begin and end within words. Writes results/find_terms.json.
"""

import json
import lzma
import random
import resource
import subprocess
import sys
import time
from pathlib import Path

from facts import facts
from lexome.concepts.matcher import NameMatcher
from real_data import DATA

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "results" / "find_terms.json"
NAMES = 1_000_000
TEXT_BYTES = 5_000_000
TABLES = (("PubChem.tsv", 0), ("Cellosaurus.tsv", 0), ("Species_exhaustive.tsv", 0), ("chebi.tsv", 1))
TOGETHER = 16


def main() -> None:
    data = Path(sys.argv[1]) if len(sys.argv) > 1 else DATA
    result: dict[str, object] = {"facts": facts("numpy", "ahocorasick_rs"), "names": NAMES}
    for which in ("lexome", "ahocorasick_rs"):
        command = [sys.executable, __file__, str(data), which]
        result[which] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def measure(data: Path, which: str) -> dict[str, float]:
    """Seconds of the processor and megabytes of memory, in this process."""
    names = million_names(data)
    before = peak_megabytes()
    start = time.process_time()
    if which != "lexome":
        from ahocorasick_rs import AhoCorasick, MatchKind

        AhoCorasick([name.lower() for name in names], matchkind=MatchKind.LeftmostLongest, store_patterns=False)
        return {"build_s": round(time.process_time() - start, 1), "build_mb": round(peak_megabytes() - before)}
    matcher = NameMatcher(names)
    result = {
        "build_s": round(time.process_time() - start, 1),
        "build_mb": round(peak_megabytes() - before),
        "kept_mb": round(matcher.nbytes / 1e6),
    }
    texts = abstracts(data)
    size = sum(len(text.encode()) for text in texts)
    for name, together in (("one_by_one", 1), ("together", TOGETHER)):
        start, found = time.process_time(), 0
        for first in range(0, len(texts), together):
            found += sum(map(len, matcher.find_all(texts[first : first + together])))
        result[f"{name}_mb_per_second"] = round(size / (time.process_time() - start) / 1e6, 2)
        result["found"] = found
    return {**result, "texts": len(texts), "text_bytes": size}


def million_names(data: Path) -> list[str]:
    """Real names, and pairs of them."""
    names: set[str] = set()
    for table, column in TABLES:
        with lzma.open(data / "terms" / f"{table}.xz", "rt", encoding="utf-8") as rows:
            names.update(row.rstrip("\n").split("\t")[column] for row in rows)
    real = sorted(names)
    rng = random.Random(1)
    pairs = (f"{rng.choice(real)} {rng.choice(real).split(' ')[0]}" for _ in range(NAMES - len(real)))
    return [*real, *pairs]


def abstracts(data: Path) -> list[str]:
    texts: list[str] = []
    size = 0
    with lzma.open(data / "corpus" / "abstracts" / "abstracts-00.jsonl.xz", "rt", encoding="utf-8") as rows:
        while size < TEXT_BYTES:
            texts.append(json.loads(next(rows))["text"])
            size += len(texts[-1].encode())
    return texts


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    if len(sys.argv) > 2:
        print(json.dumps(measure(Path(sys.argv[1]), sys.argv[2])))
    else:
        main()
