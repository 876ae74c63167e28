"""Cost of learning each type of vocabulary on 50 MB of text; writes results/vocab_learning.json.

python benchmarks/vocab_learning.py DATA    DATA is the folder of real data
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import lexome
from facts import ROOT, facts
from lexome.corpus.vocab.learn import learn_vocab
from lexome.corpus.vocab.report import vocab_report
from lexome.recipe.corpus_stages import VocabRecipe

TEXT = ("corpus/abstracts/abstracts-01.jsonl.xz", "corpus/pmc_fulltext/pmc_fulltext-00.jsonl.xz")
MEGABYTES = 50
SETTINGS = {
    "wordpiece-cased-32k": {"kind": "wordpiece", "size": 32_768},
    "byte-bpe-50k": {"kind": "byte-bpe", "size": 50_265},
    "bpe-30k": {"kind": "sentencepiece-bpe", "size": 30_000},
    "unigram-30k": {"kind": "sentencepiece-unigram", "size": 30_000},
}


def some_text(data: Path) -> Iterator[lexome.Document]:
    left = MEGABYTES * 1_000_000
    for doc in lexome.read([data / name for name in TEXT]):
        yield doc
        left -= len(doc.text.encode())
        if left < 0:
            return


def learn_here(name: str, folder: str) -> None:
    """Learn one vocabulary in this process, and print its cost."""
    recipe = VocabRecipe.model_validate(
        {"stage": "learn-vocab", "inputs": [f"{folder}/text.parquet"], "out": f"{folder}/{name}", **SETTINGS[name]}
    )
    started = time.perf_counter()
    learned = learn_vocab(recipe)
    used = resource.getrusage(resource.RUSAGE_SELF)
    cost = {
        "pieces": learned.pieces,
        "text_megabytes": round(learned.text_bytes / 1e6, 1),
        "seconds": round(time.perf_counter() - started, 1),
        "processor_seconds": round(used.ru_utime + used.ru_stime, 1),
        "peak_megabytes": used.ru_maxrss // 1024,
        "sha256": learned.sha256,
    }
    print(json.dumps(cost))


def main(data: Path) -> None:
    result: dict[str, object] = {"facts": facts("tokenizers", "sentencepiece", "pyarrow"), "text": TEXT}
    with tempfile.TemporaryDirectory() as folder:
        lexome.write(Path(folder) / "text.parquet", some_text(data))
        kinds = {}
        for name in SETTINGS:
            command = [sys.executable, __file__, "--learn", name, folder]
            kinds[name] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            print(name, kinds[name], flush=True)
        sets = {name: data / "benchmarks" / f"BC5CDR-{name}" / "train.tsv.xz" for name in ("chem", "disease")}
        report = vocab_report({name: Path(folder) / name for name in SETTINGS}, ner=sets)
    for row in report.vocabularies:
        rates = {name: round(broken.pieces / broken.words, 3) for name, broken in row.entities.items()}
        kinds[row.name] |= {"break_up": rates, "unknown_symbols": row.symbols_unknown}
    result["kinds"] = kinds
    (ROOT / "results" / "vocab_learning.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "--learn":
        learn_here(*sys.argv[2:])
    else:
        main(Path(sys.argv[1]))
