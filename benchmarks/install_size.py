"""Size on disk of the light package, of its model and its index of names, and the time of `lexome --help`.

    python benchmarks/install_size.py

Installs into a fresh virtual environment. Writes results/install_size.json.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from facts import facts

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        venv = Path(scratch) / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        site = next(venv.glob("lib/python*/site-packages"))
        install = [sys.executable, "-m", "pip", "--quiet", "--python", venv / "bin" / "python", "install"]
        subprocess.run([*install, "--constraint", ROOT / "constraints.txt", ROOT], check=True)
        model, terms = (size(site / "lexome" / name) for name in ("default_model", "default_terms"))
        result = {
            "facts": facts(),
            "megabytes": round((size(site) - model - terms) / 1e6, 1),
            "model_megabytes": round(model / 1e6, 1),
            "terms_megabytes": round(terms / 1e6, 1),
            "largest": {path.name: round(size(path) / 1e6, 1) for path in sorted(site.iterdir(), key=size)[-6:][::-1]},
            "help_s": help_seconds(venv / "bin" / "lexome"),
        }
    (ROOT / "results" / "install_size.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def size(path: Path) -> int:
    return sum(file.stat().st_size for file in [path, *path.rglob("*")] if file.is_file())


def help_seconds(script: Path) -> float:
    """The median over ten runs."""
    times = []
    for _ in range(10):
        started = time.perf_counter()
        subprocess.run([script, "--help"], check=True, capture_output=True)
        times.append(time.perf_counter() - started)
    return round(statistics.median(times), 3)


if __name__ == "__main__":
    main()
