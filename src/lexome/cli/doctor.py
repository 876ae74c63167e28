"""`lexome doctor`: the installed packages, the machine, and which extras are missing for which purpose."""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import typer

from lexome.cli.options import AsJson, app
from lexome.errors import LexomeError

# What each extra is for; a test compares the names with pyproject.toml.
PURPOSES = {
    "corpus": "build corpora, vocabularies and shards; Parquet; plots",
    "train": "pre-train, fine-tune, distill and export",
    "transformers": "architectures that Hugging Face's transformers computes",
    "tokenizers": "models whose tokenizer is not WordPiece",
    "serve": "the HTTP service and its page",
    "office": "read PDF, Word and Excel files",
    "search": "search by vectors in large indexes",
    "cluster": "many machines, with Ray",
    "spacy": "spaCy documents and pipelines",
}
PROBE = "Olaparib in BRCA1 breast cancer."


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra: the packages that it needs and that are missing, and what it is for."""

    purpose: str
    missing: tuple[str, ...]

    @property
    def ready(self) -> bool:
        """Whether nothing is missing."""
        return not self.missing


@dataclass(slots=True)
class Diagnosis:
    """Versions, machine, default model and extras; `problems` lists what does not work in the light package."""

    lexome: str
    folder: str
    python: str
    platform: str
    cores: int
    usable_cores: int
    memory_gb: float | None
    available_gb: float | None
    gpus: list[str]
    packages: dict[str, str]
    model: dict[str, Any] = field(default_factory=dict)
    extras: dict[str, Extra] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Show versions, machine, models and missing extras.

    Exits with 1 if the default model does not work. Include the output in bug reports.
    """
    facts = diagnose()
    if as_json:
        ready = {name: {**asdict(extra), "ready": extra.ready} for name, extra in facts.extras.items()}
        print(json.dumps({**asdict(facts), "extras": ready}, indent=1))
    else:
        _print_diagnosis(facts)
    if facts.problems:
        raise typer.Exit(1)


def diagnose() -> Diagnosis:
    """The installed packages and models, and whether the default model annotates."""
    import lexome
    from lexome.files import usable_cores

    memory = _memory()
    facts = Diagnosis(
        lexome=lexome.__version__,
        folder=str(Path(lexome.__file__).parent),
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        cores=os.cpu_count() or 1,
        usable_cores=usable_cores(),
        memory_gb=memory.get("MemTotal"),
        available_gb=memory.get("MemAvailable"),
        gpus=_gpus(),
        packages={},
    )
    requirements = _requirements()
    for extra, names in requirements.items():
        facts.packages |= {name: version for name in names if (version := _version(name)) is not None}
        if extra:
            missing = tuple(name for name in names if name not in facts.packages)
            facts.extras[extra] = Extra(PURPOSES.get(extra, ""), missing)
    try:
        facts.model = _try_default_model()
    except (LexomeError, ImportError, OSError) as error:
        facts.problems.append(f"the default model does not annotate: {error}")
    return facts


def _try_default_model() -> dict[str, Any]:
    from lexome.infer.annotator import load

    annotator = load(threads=1)
    [model] = annotator.about()["models"]
    return {"name": model["name"], "precision": model["precision"], "found": len(annotator(PROBE).spans)}


def _requirements() -> dict[str, list[str]]:
    """The packages of the light install, under "", and of each extra, extras of ours that it includes resolved."""
    try:
        lines = metadata.requires("lexome") or []
    except metadata.PackageNotFoundError:  # run from a source tree
        return {}
    direct: dict[str, list[str]] = {"": []}
    for line in lines:
        name = re.split(r"[^A-Za-z0-9._\[\]-]", line, maxsplit=1)[0]
        marker = line.partition(";")[2]
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker)
        # A package for older Pythons is not missing on this one.
        until = re.search(r"python_version\s*<\s*['\"]3\.(\d+)", marker)
        if until is None or sys.version_info[1] < int(until[1]):
            direct.setdefault(extra[1] if extra else "", []).append(name)

    def resolve(extra: str) -> list[str]:
        names: list[str] = []
        for name in direct.get(extra, []):
            included = re.fullmatch(r"lexome\[(.+)\]", name)
            names += resolve(included[1]) if included else [name]
        return list(dict.fromkeys(names))

    return {extra: resolve(extra) for extra in direct}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _memory() -> dict[str, float]:
    """Total and available memory in GB, by the names of /proc/meminfo."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:  # not on Linux
        return {}
    return {name: round(int(kilobytes) / 1e6, 1) for name, kilobytes in re.findall(r"(\w+):\s+(\d+) kB", text)}


def _gpus() -> list[str]:
    """Names and memory of NVIDIA's GPUs, without importing torch, which takes seconds."""
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return result.stdout.strip().splitlines() if result.returncode == 0 else []


def _print_diagnosis(facts: Diagnosis) -> None:
    memory = "unknown" if facts.memory_gb is None else f"{facts.memory_gb} GB, {facts.available_gb} GB available"
    print(f"lexome    {facts.lexome} in {facts.folder}")
    print(f"python    {facts.python}, {facts.platform}")
    print(f"cores     {facts.usable_cores} usable of {facts.cores}")
    print(f"memory    {memory}")
    print(f"gpu       {'; '.join(facts.gpus) or 'none found'}")
    if facts.model:
        model = facts.model
        print(f"model     {model['name']}, {model['precision']}: {model['found']} mentions in {PROBE!r}")
    for name, extra in facts.extras.items():
        state = "ready" if extra.ready else f"missing {', '.join(extra.missing)}"
        print(f"extra     {name}: {state} ({extra.purpose})")
        if extra.missing:
            print(f"          pip install 'lexome[{name}]'")
    print(f"packages  {', '.join(f'{name} {version}' for name, version in sorted(facts.packages.items()))}")
    for problem in facts.problems:
        print(f"problem   {problem}")
