"""Size on disk of the light package, of its model and its index of names, and the time of `lexome --help`.

    python benchmarks/install_size.py            installs into a fresh virtual environment
    python benchmarks/install_size.py --extras   what pip would download for each extra; nothing is installed

Writes results/install_size.json and results/extras_size.json.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.request
from pathlib import Path
from urllib.parse import unquote, urlsplit

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


def extras() -> None:
    """The megabytes that pip downloads for the light install and for each extra, with the largest packages."""
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    rows = {"": downloads(str(ROOT))} | {extra: downloads(f"{ROOT}[{extra}]") for extra in sorted(named)}
    light = rows[""].keys()
    result = {
        "facts": facts(),
        "light_megabytes": total(rows[""]),
        "extras": {
            extra: {
                "megabytes": total({name: size for name, size in row.items() if name not in light}),
                "largest": dict(sorted(row.items() - rows[""].items(), key=lambda item: (-item[1], item[0]))[:3]),
                "gpu_megabytes": total({name: size for name, size in row.items() if is_for_gpus(name)}),
            }
            for extra, row in rows.items()
            if extra
        },
    }
    (ROOT / "results" / "extras_size.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def downloads(requirement: str) -> dict[str, float]:
    """The size of each package that pip would download for Linux, in megabytes."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed", "--report", "-"]
    report = json.loads(subprocess.run([*command, requirement], check=True, capture_output=True, text=True).stdout)
    sizes = {}
    for item in report["install"]:
        url, name = item["download_info"]["url"], item["metadata"]["name"]
        if name == "lexome":
            continue
        if url.startswith("file:"):  # of a mirror on this machine
            length = Path(unquote(urlsplit(url).path)).stat().st_size
        else:
            with urllib.request.urlopen(urllib.request.Request(url, method="HEAD")) as answer:
                length = int(answer.headers["content-length"])
        sizes[name] = round(length / 1e6, 1)
    return sizes


def is_for_gpus(name: str) -> bool:
    """Whether torch needs a package for NVIDIA's GPUs only; its own package is smaller without them too."""
    return name.startswith(("nvidia-", "cuda-")) or name == "triton"


def total(sizes: dict[str, float]) -> int:
    return round(sum(sizes.values()))


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
    extras() if "--extras" in sys.argv else main()
