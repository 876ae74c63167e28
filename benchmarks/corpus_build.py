"""The shared corpus from files to shards: time, peak memory per process, disk space, and the corpus table.

    python benchmarks/corpus_build.py [PART...]

Runs the same commands as a user: `lexome build recipes/corpus/shared.toml`, `lexome learn-vocab` for the three
families, `lexome shard` for each; then builds from PubMed XML made of real records with new IDs, to measure citations
per second. Parts are "build", the names of the vocabularies and "citations"; parts not named keep their last result.
Writes results/corpus_build.json. The corpus stays in build/, where benchmarks/corpus_speed.py expects it.
"""

import gzip
import json
import re
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from facts import facts
from real_data import DATA

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build"
VOCABS = ("wordpiece-cased-32k", "byte-bpe-50k", "unigram-30k")
CITATION_FILES, COPIES = 4, 40
RECORD = re.compile(rb"<PubmedArticle>.*?</PubmedArticle>", re.DOTALL)
PMID = re.compile(rb"(<PMID[^>]*>)(\d+)(</PMID>)")


def main() -> None:
    path = ROOT / "results" / "corpus_build.json"
    wanted = sys.argv[1:] or ["build", *VOCABS, "citations"]
    result: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"learn_vocab": {}, "shard": {}}
    for name in wanted:
        if name == "build":
            result |= corpus()
        elif name == "citations":
            result["citations"] = citations()
        else:
            result["learn_vocab"][name], result["shard"][name] = vocabulary(name)
        result["facts"] = facts("pyarrow", "tokenizers", "rensa", "numpy")
        path.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def corpus() -> dict[str, Any]:
    """The shared corpus as records."""
    shutil.rmtree(BUILD / "corpus", ignore_errors=True)
    measured = timed("build", "recipes/corpus/shared.toml", "--set", f"out={BUILD / 'corpus'}")
    table = json.loads((BUILD / "corpus" / "corpus.json").read_text())
    for name in ("recipe", "identity"):
        table.pop(name)
    return {"build": measured, "corpus": table, "records_bytes": size_of(BUILD / "corpus" / "records")}


def vocabulary(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A vocabulary of the corpus, and its shards."""
    records = f'inputs=["{BUILD / "corpus" / "records"}"]'
    vocab, out = BUILD / "vocab" / name, BUILD / "shards" / name
    for folder in (vocab, out):
        shutil.rmtree(folder, ignore_errors=True)
    learned = timed("learn-vocab", f"recipes/vocab/{name}.toml", "--set", records, "--set", f"out={vocab}")
    words = ("--set", records, "--set", f"tokenizer={vocab}", "--set", f"out={out}")
    sharded = timed("shard", "recipes/shards/shared.toml", *words)
    totals = json.loads((out / "manifest.json").read_text())["totals"]
    tokens = totals["train"]["tokens"] + totals["held_out"]["tokens"]
    on_disk = size_of(out / "train") + size_of(out / "held_out")
    rates = {"tokens_per_s": round(tokens / sharded["seconds"]), "bytes_per_token": round(on_disk / tokens, 3)}
    return learned, {**sharded, "tokens": tokens, **rates}


def timed(*words: str) -> dict[str, Any]:
    """Wall-clock seconds of a command, and the peak memory of its largest process."""
    started = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "lexome", *words, "--quiet"], cwd=ROOT)
    peaks: dict[int, int] = {}
    watcher = threading.Thread(target=watch, args=(process, peaks))
    watcher.start()
    code = process.wait()
    watcher.join()
    if code:
        sys.exit(f"lexome {' '.join(words)} ended with {code}")
    return {
        "seconds": round(time.monotonic() - started, 1),
        "processes": len(peaks),
        "peak_megabytes": round(max(peaks.values()) / 1e6),
    }


def watch(process: subprocess.Popen[bytes], peaks: dict[int, int]) -> None:
    """Record the peak memory of a process and its children until it ends."""
    while process.poll() is None:
        for pid in family(process.pid):
            try:
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            if (found := re.search(r"VmHWM:\s+(\d+) kB", status)) is not None:
                peaks[pid] = max(peaks.get(pid, 0), 1024 * int(found[1]))
        time.sleep(0.2)


def family(pid: int) -> list[int]:
    """A process and all its descendants."""
    found = [pid]
    for one in found:
        for path in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                found += map(int, path.read_text().split())
            except OSError:
                continue
    return found


def citations() -> dict[str, Any]:
    """Throughput of building records from PubMed XML: real records with new IDs in gzip files."""
    folder = BUILD / "citations"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "in").mkdir(parents=True)
    records = [
        record
        for path in sorted((DATA / "formats" / "pubmed_xml").glob("*.xml"))
        for record in RECORD.findall(path.read_bytes())
    ]
    number = 10_000_000
    content = 0
    for file in range(CITATION_FILES):
        with gzip.open(folder / "in" / f"made26n{file:04}.xml.gz", "wb", compresslevel=6) as stream:
            stream.write(b'<?xml version="1.0" encoding="utf-8"?>\n<PubmedArticleSet>\n')
            for _ in range(COPIES):
                for record in records:
                    number += 1
                    content += len(record)
                    stream.write(PMID.sub(rb"\g<1>%d\g<3>" % number, record, count=1) + b"\n")
            stream.write(b"</PubmedArticleSet>\n")
    recipe = folder / "recipe.toml"
    recipe.write_text(
        f'stage = "build"\nout = "{folder}/out"\nexact_duplicates = "keep"\nnear_duplicates = "keep"\n'
        f'[[sources]]\nname = "pubmed"\npaths = ["{folder}/in"]\n'
    )
    measured = timed("build", str(recipe))
    read = json.loads((folder / "out" / "corpus.json").read_text())["sources"][0]["read"]
    return {
        **measured,
        "citations": read,
        "xml_megabytes": round(content / 1e6, 1),
        "gzip_megabytes": round(size_of(folder / "in") / 1e6, 1),
        "citations_per_s": round(read / measured["seconds"]),
    }


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


if __name__ == "__main__":
    main()
