"""Memory of bulk annotation over 100,000 short documents: does it stay constant?

    python benchmarks/bulk_memory.py [DOCUMENTS]

A tiny model with random weights annotates half of the documents in one large file and the rest in ten smaller ones,
with one process and one thread, as `lexome annotate` does into a folder. Documents are the words of
samples/abstracts.jsonl in random order, each with a unique identifier, so that any cache of words keeps growing. The
memory of the command and its worker is sampled five times a second; progress is measured by the size of the output.
Writes results/bulk_memory.json.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch

import lexome
from facts import facts
from lexome.corpus.vocab.tokenizers import bert_tokenizer
from lexome.export.export import export
from lexome.models.checkpoint import Card, build, save
from lexome.models.encoder import EncoderConfig
from lexome.tasks import Ner

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "results" / "bulk_memory.json"
DOCUMENTS = 100_000
SMALL_FILES = 10
WORDS_A_DOCUMENT = 15
EVERY_S = 0.2
PAGE = os.sysconf("SC_PAGE_SIZE")
# Samples before this fraction of the run are startup: the model, the first sequences, the first words.
START = 0.1
Sample = tuple[float, float]
"""The completed fraction of the run, and memory in MB."""


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else DOCUMENTS
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model = tiny_model(folder)
        write_documents(folder / "in", count)
        samples, summary = measured(folder, model)
    result = {
        "facts": facts("onnxruntime", "numpy"),
        "documents": summary["documents"],
        "tokens": summary["tokens"],
        **judged(samples),
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def tiny_model(folder: Path) -> Path:
    """Two layers of hidden size 64, with the words of the samples and single letters as vocabulary."""
    letters = [chr(code) for code in range(33, 127)]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = list(dict.fromkeys([*special, *letters, *(f"##{letter}" for letter in letters), *sample_words()]))
    (folder / "vocabulary").mkdir()
    tokenizer = bert_tokenizer({piece: number for number, piece in enumerate(pieces)}, cased=True)
    tokenizer.save(str(folder / "vocabulary" / "tokenizer.json"))
    task = Ner(["Gene", "Disease"])
    torch.manual_seed(1)
    config = EncoderConfig(vocab=len(pieces), layers=2, hidden_size=64, heads=2, intermediate_size=128, max_tokens=512)
    card = Card(title="A toy", summary="Random weights.", license="apache-2.0", data="None.")
    made = build(config, "token", labels=len(task.labels))
    where = {"architecture": "bert", "tokenizer": folder / "vocabulary", "card": card, "labels": task.labels}
    save(folder / "checkpoint", made, **where)
    (folder / "checkpoint" / "task.json").write_text(json.dumps(dict(task.settings())))
    export(folder / "checkpoint", folder / "model")
    return folder / "model"


def sample_words() -> list[str]:
    return [word for doc in lexome.read(ROOT / "samples" / "abstracts.jsonl") for word in doc.text.split()]


def write_documents(folder: Path, count: int) -> None:
    """One file with half of the documents, and ten with the rest."""
    words = sample_words()
    rng = random.Random(1)

    def documents(number: int, first: int) -> Iterator[lexome.Document]:
        for place in range(first, first + number):
            text = " ".join([*rng.choices(words, k=WORDS_A_DOCUMENT), f"rs{place:07}"])
            yield lexome.Document(str(place), (lexome.Passage(0, text),))

    small = count // 2 // SMALL_FILES
    lexome.write(folder / "large.jsonl", documents(count - small * SMALL_FILES, 0))
    for number in range(SMALL_FILES):
        lexome.write(folder / f"small{number}.jsonl", documents(small, count + number * small))


def measured(folder: Path, model: Path) -> tuple[list[Sample], dict[str, Any]]:
    """Samples over the whole run, and the summary of the command."""
    out = folder / "out"
    command = ["lexome.__main__", "annotate", folder / "in", "--model", model, "--out", out, "--jobs", "1"]
    started = [sys.executable, "-m", *map(str, command), "--threads", "1", "--json", "--quiet"]
    raw: list[tuple[int, float]] = []
    with subprocess.Popen(started, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            written = sum(size(path) for path in out.rglob("*"))
            raw.append((written, sum(memory(pid) for pid in family(process.pid)) / 1e6))
            time.sleep(EVERY_S)
        assert process.stdout is not None
        summary = json.loads(process.stdout.read())
    total = sum(size(path) for path in out.rglob("*"))
    # The last samples are of terminating processes.
    return [(written / total, megabytes) for written, megabytes in raw if 0 < written < total], summary


def size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:  # renamed just now
        return 0


def family(pid: int) -> list[int]:
    """A process and its children."""
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return [pid]
    return [pid, *(other for child in found for other in family(int(child)))]


def memory(pid: int) -> int:
    """Resident bytes of a process, including shared memory."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except OSError:
        return 0


def judged(samples: list[Sample]) -> dict[str, Any]:
    """Memory early and late in the run, and its growth after startup."""
    after = [(share, held) for share, held in samples if share >= START]
    late = [held for share, held in samples if share >= 1 - START]
    tenths = [tenth(samples, number) for number in range(10)]
    return {
        "samples": len(samples),
        "max_mb_until_10_percent": round(max(held for share, held in samples if share < START), 1),
        "max_mb_after_10_percent": round(max(held for _, held in after), 1),
        "median_mb_10_to_20_percent": round(median(held for share, held in after if share < 2 * START), 1),
        "median_mb_last_10_percent": round(median(late), 1),
        "end_mb": round(late[-1], 1),
        "growth_mb_in_second_half": round(tenths[9] - tenths[5], 1),
        "by_tenth_mb": tenths,
    }


def tenth(samples: list[Sample], number: int) -> float:
    """The median over one tenth of the run."""
    return round(median(held for share, held in samples if number <= share * 10 < number + 1), 1)


if __name__ == "__main__":
    main()
