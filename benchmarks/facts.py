"""Environment of a measurement: machine, versions, date and code revision."""

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def facts(*packages: str) -> dict[str, object]:
    """Environment facts to store with a result, including the version of each named package (None if not installed).

    >>> sorted(facts("lxml"))
    ['cores', 'cpu', 'date', 'memory_gib', 'packages', 'python', 'revision', 'system']
    """
    return {
        "cpu": cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": memory_gib(),
        "system": system(),
        "python": platform.python_version(),
        "packages": {name: package_version(name) for name in packages},
        "revision": revision(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def system() -> str:
    """The operating system, its release without the suffix of who built it, and the processor's architecture."""
    release = re.match(r"[\d.]*", platform.release())
    version = release[0] if release else ""
    return "-".join((platform.system(), version, platform.machine(), "with", "".join(platform.libc_ver())))


def cpu_model() -> str:
    """The CPU model name from the kernel."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return platform.processor() or platform.machine()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def memory_gib() -> float | None:
    """The machine's memory, or None if unknown."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, OSError, ValueError):
        return None


def package_version(name: str) -> str | None:
    """The installed version of a distribution."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def revision() -> str | None:
    """The git revision, with "+changes" if the working tree is modified."""
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return None
    return head + ("+changes" if changed else "")


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()
