"""What verifying checksums costs: the default model opened with and without them, and bytes per second by algorithm.

    python benchmarks/checksums.py

Writes results/checksums.json.
"""

import hashlib
import json
import statistics
import time
import zlib
from collections.abc import Callable
from pathlib import Path

from facts import facts
from lexome.files import verify_checksums
from lexome.infer.annotator import default_model
from lexome.infer.predictor import Predictor

RESULTS = Path(__file__).resolve().parents[1] / "results"
ROUNDS = 15


def median_s(work: Callable[[], object]) -> float:
    """The median time of some rounds, after one that warms up."""
    work()
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def main() -> None:
    folder = default_model()
    content = (folder / "model.onnx").read_bytes()
    open_s = median_s(lambda: Predictor.open(folder, threads=1))
    verify_s = median_s(lambda: verify_checksums(folder, remedy=""))
    rates = {
        name: round(len(content) / median_s(lambda algorithm=algorithm: algorithm(content)) / 1e9, 2)
        for name, algorithm in (("crc32", zlib.crc32), ("sha256", lambda data: hashlib.sha256(data).digest()))
    }
    result = {
        **facts(),
        "model_bytes": sum(path.stat().st_size for path in folder.iterdir()),
        "open_ms": round(1000 * open_s, 1),
        "verify_ms": round(1000 * verify_s, 1),
        "gigabytes_per_second": rates,
    }
    (RESULTS / "checksums.json").write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
