"""Reading throughput and memory: PubMed XML and JATS compared with pubmed_parser, in the same run, on one core.

    python benchmarks/read_speed.py [FOLDER]

FOLDER contains pubmed_xml/ and jats/ with real files; the default is ../shared/data/formats. PubMed records are
repeated to a gzip file of 40 MB of content for throughput, as PubMed ships its files and as pubmed_parser needs them,
and to a plain file of 1 GB for memory. Rounds alternate between the two readers, and the ratio is the median over
rounds, since machines are noisy. Repeated records hit Lexome's caches of headings and journals; "cold" is the other
bound, each record once with empty caches. Writes results/read_speed.json.
"""

import gzip
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pubmed_parser

import lexome
from facts import facts
from jats_recall import peer, peer_all
from lexome.formats import pubmed_xml
from real_data import DATA

ROOT = Path(__file__).resolve().parents[1]
SPEED_BYTES = 40_000_000
MEMORY_BYTES = 1_000_000_000
ROUNDS = 9
SHORTEST_S = 0.5
RECORD = re.compile(rb"<PubmedArticle>.*?</PubmedArticle>", re.DOTALL)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DATA / "formats"
    jats = sorted(path for path in (folder / "jats").iterdir() if path.suffix in (".xml", ".nxml"))
    with tempfile.TemporaryDirectory() as scratch:
        small = repeated(folder / "pubmed_xml", Path(scratch) / "small.xml.gz", SPEED_BYTES)
        once = repeated(folder / "pubmed_xml", Path(scratch) / "once.xml.gz", 1000)
        result = {
            "facts": facts("lxml", "pubmed-parser"),
            "pubmed": compare([small], SPEED_BYTES, read_medline),
            "pubmed_cold": compare([once], len(gzip.decompress(once.read_bytes())), read_medline, ours=read_cold),
            "jats": compare(jats, size_of(jats), peer),
            "jats_all": compare(jats, size_of(jats), peer_all),
            "memory": memory(repeated(folder / "pubmed_xml", Path(scratch) / "large.xml", MEMORY_BYTES)),
        }
    path = ROOT / "results" / "read_speed.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def repeated(folder: Path, out: Path, size: int) -> Path:
    """A PubMed XML file of at least this size, made by repeating the folder's records."""
    records = [record for path in sorted(folder.glob("*.xml")) for record in RECORD.findall(path.read_bytes())]
    block = b"\n".join(records)
    with gzip.open(out, "wb") if out.suffix == ".gz" else out.open("wb") as file:
        file.write(b'<?xml version="1.0" encoding="utf-8"?>\n<PubmedArticleSet>\n')
        while file.tell() < size:
            file.write(block + b"\n")
        file.write(b"</PubmedArticleSet>\n")
    return out


def read_lexome(path: Path) -> int:
    return sum(1 for _ in lexome.read(path))


def read_cold(path: Path) -> int:
    """Each distinct record once, after clearing the caches of headings, substances and journals."""
    for function in vars(pubmed_xml).values():
        if hasattr(function, "cache_clear"):
            function.cache_clear()
    return read_lexome(path)


def read_medline(path: Path) -> int:
    return sum(1 for _ in pubmed_parser.parse_medline_xml(str(path), year_info_only=False, nlm_category=True))


def size_of(paths: list[Path]) -> int:
    return sum(path.stat().st_size for path in paths)


def compare(
    paths: list[Path], size: int, theirs: Callable[[Path], object], *, ours: Callable[[Path], object] = read_lexome
) -> dict[str, object]:
    """MB of content per second of CPU time for both readers, and the median of their ratio."""
    megabytes = size / 1e6
    rounds = [(seconds(ours, paths), seconds(theirs, paths)) for _ in range(ROUNDS)]
    return {
        "files": len(paths),
        "megabytes": round(megabytes, 1),
        "lexome_mb_per_s": round(megabytes / statistics.median(ours_s for ours_s, _ in rounds), 2),
        "pubmed_parser_mb_per_s": round(megabytes / statistics.median(theirs_s for _, theirs_s in rounds), 2),
        "ratio": round(statistics.median(theirs_s / ours_s for ours_s, theirs_s in rounds), 2),
        "ratios": [round(theirs_s / ours_s, 2) for ours_s, theirs_s in rounds],
    }


def seconds(read: Callable[[Path], object], paths: list[Path]) -> float:
    """CPU time of reading all files, repeated until it is long enough to measure."""
    started, passes = time.process_time(), 0
    while time.process_time() - started < SHORTEST_S:
        passes += 1
        for path in paths:
            read(path)
    return (time.process_time() - started) / passes


# Run in a separate process that imports nothing but Lexome.
COUNT = """
import json, re, sys
import lexome

documents = sum(1 for _ in lexome.read(sys.argv[1]))
# Not getrusage: the kernel keeps its peak over fork and exec, and this process's parent is large.
peak = 1024 * int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1])
print(json.dumps({"documents": documents, "peak_megabytes": round(peak / 1e6, 1)}))
"""


def memory(path: Path) -> dict[str, object]:
    """Peak memory of a process that reads the file, and how many documents it saw."""
    command = [sys.executable, "-c", COUNT, str(path)]
    seen = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
    return {"file_megabytes": round(path.stat().st_size / 1e6), **seen}


if __name__ == "__main__":
    main()
