"""Reading speed and memory: PubMed XML and JATS beside pubmed_parser, in the same run, on one core.

    python benchmarks/read_speed.py [FOLDER]

FOLDER holds pubmed_xml/ and jats/ with real files; the default is ../shared/data/formats. PubMed records
are repeated to a file of 40 MB for speed and of 1 GB for memory. Rounds alternate between the two, and
the ratio is the median over rounds, since machines are noisy. Writes results/read_speed.json.
"""

import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import lexome
from facts import facts

ROOT = Path(__file__).resolve().parents[1]
SPEED_BYTES = 40_000_000
MEMORY_BYTES = 1_000_000_000
ROUNDS = 5
RECORD = re.compile(rb"<PubmedArticle>.*?</PubmedArticle>", re.DOTALL)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT.parent / "shared" / "data" / "formats"
    jats = sorted(path for path in (folder / "jats").iterdir() if path.suffix in (".xml", ".nxml"))
    with tempfile.TemporaryDirectory() as scratch:
        small = repeated(folder / "pubmed_xml", Path(scratch) / "small.xml", SPEED_BYTES)
        result = {
            "facts": facts("lxml", "pubmed-parser"),
            "pubmed": compare([small], read_lexome, read_medline),
            "jats": compare(jats * 3, read_lexome, read_pmc),
            "memory": memory(repeated(folder / "pubmed_xml", Path(scratch) / "large.xml", MEMORY_BYTES)),
        }
    path = ROOT / "results" / "read_speed.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def repeated(folder: Path, out: Path, size: int) -> Path:
    """A PubMed XML file of at least this size, made of the folder's records over and over."""
    records = [record for path in sorted(folder.glob("*.xml")) for record in RECORD.findall(path.read_bytes())]
    block = b"\n".join(records)
    with out.open("wb") as file:
        file.write(b'<?xml version="1.0" encoding="utf-8"?>\n<PubmedArticleSet>\n')
        while file.tell() < size:
            file.write(block + b"\n")
        file.write(b"</PubmedArticleSet>\n")
    return out


def read_lexome(path: Path) -> int:
    return sum(1 for _ in lexome.read(path))


def read_medline(path: Path) -> int:
    import pubmed_parser

    return sum(1 for _ in pubmed_parser.parse_medline_xml(str(path), year_info_only=False, nlm_category=True))


def read_pmc(path: Path) -> int:
    import pubmed_parser

    pubmed_parser.parse_pubmed_xml(str(path))
    return len(list(pubmed_parser.parse_pubmed_paragraph(str(path), all_paragraph=True)))


def compare(paths: list[Path], ours: Callable[[Path], int], theirs: Callable[[Path], int]) -> dict[str, object]:
    """MB a second of processor time, ours and theirs, and the median of their ratio."""
    megabytes = sum(path.stat().st_size for path in paths) / 1e6
    rounds = [(seconds(ours, paths), seconds(theirs, paths)) for _ in range(ROUNDS)]
    return {
        "files": len(paths),
        "megabytes": round(megabytes, 1),
        "lexome_mb_per_s": round(megabytes / statistics.median(ours_s for ours_s, _ in rounds), 2),
        "pubmed_parser_mb_per_s": round(megabytes / statistics.median(theirs_s for _, theirs_s in rounds), 2),
        "ratio": round(statistics.median(theirs_s / ours_s for ours_s, theirs_s in rounds), 2),
        "ratios": [round(theirs_s / ours_s, 2) for ours_s, theirs_s in rounds],
    }


def seconds(read: Callable[[Path], int], paths: list[Path]) -> float:
    started = time.process_time()
    for path in paths:
        read(path)
    return time.process_time() - started


def memory(path: Path) -> dict[str, object]:
    """Peak memory of a process that reads the file, and how many documents it saw."""
    command = [sys.executable, __file__, "--count", str(path)]
    seen = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    return {"file_megabytes": round(path.stat().st_size / 1e6), **seen}


def count(path: str) -> None:
    documents = sum(1 for _ in lexome.read(path))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    print(json.dumps({"documents": documents, "peak_megabytes": round(peak / 1e6, 1)}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--count"]:
        count(sys.argv[2])
    else:
        main()
