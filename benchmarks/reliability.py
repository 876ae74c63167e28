"""Readers under attack: damaged archives and files of every format, and small files that ask for much.

    python benchmarks/reliability.py [ATTACKS]

Each attack of tests/attacks.py is read in a process with 2 GiB of memory and 60 s of processor time, some hundred in
one process; what a process was doing when a limit ended it counts as a fault. Bombs have a process each. An attack is
`read`, `refused` with a reason, `lost` (documents are missing without a word) or a `fault` (a traceback, a limit).
Writes the part "readers" of results/reliability.json; other scripts write theirs.
"""

import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from facts import facts

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
RESULT = ROOT / "results" / "reliability.json"
ATTACKS = 6000
BATCH = 500
BOMB_BYTES = 64 << 20
MEMORY_BYTES = 2 << 30
CPU_SECONDS = 60


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else ATTACKS
    start = time.monotonic()
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    faults: list[str] = []
    for number in range(0, count, BATCH):
        for kind in ("archives", "tar headers", "files"):
            for group, outcome, reason in in_process(kind, seed=number):
                counts[group][outcome] += 1
                if outcome in ("lost", "fault"):
                    faults.append(f"{group}: {reason}")
    bombs = {}
    for name in bomb_names():
        ((_, outcome, reason),) = in_process("bomb", seed=0, name=name)
        bombs[name] = f"{outcome}: {reason}" if reason else outcome
        counts["small files that ask for much"][outcome] += 1
        if outcome in ("lost", "fault"):
            faults.append(f"{name}: {reason}")
    result: dict[str, Any] = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    result["readers"] = {
        "facts": facts("lxml", "numpy"),
        "limits": {"memory_bytes": MEMORY_BYTES, "cpu_seconds": CPU_SECONDS, "bomb_bytes": BOMB_BYTES},
        "attacks": sum(sum(outcomes.values()) for outcomes in counts.values()),
        "outcomes": {group: dict(sorted(outcomes.items())) for group, outcomes in sorted(counts.items())},
        "bombs": bombs,
        "faults": faults,
        "seconds": round(time.monotonic() - start),
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["readers"]["outcomes"], indent=1), *faults, sep="\n")


def bomb_names() -> list[str]:
    """The names of the bombs."""
    from attacks import bombs

    return sorted(bombs(3))


def in_process(kind: str, *, seed: int, name: str = "") -> list[tuple[str, str, str]]:
    """Group, outcome and reason of each attack of a batch; the last one is a fault if a limit ended the process."""
    command = [sys.executable, __file__, "--batch", kind, str(seed), name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    outcomes = [tuple(json.loads(line)) for line in done.stdout.splitlines() if line.startswith("[")]
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [""]
        outcomes.append((kind, "fault", f"{name or kind} ended with {done.returncode}: {lines[-1][:200]}"))
    return outcomes  # type: ignore[return-value]  # three strings


def batch(kind: str, seed: int, name: str) -> None:
    """Run one batch under the limits, with a line of JSON for each attack."""
    from attacks import archive_attacks, bombs, file_attacks, header_attacks, outcome

    rng = random.Random(f"{kind} {seed}")
    if kind == "bomb":
        attacks = [(kind, bombs(BOMB_BYTES)[name])]
    elif kind == "files":
        attacks = file_attacks(rng, BATCH)
    else:
        make = archive_attacks if kind == "archives" else header_attacks
        attacks = [(kind if kind != "archives" else attack.name[2:], attack) for attack in make(rng, BATCH)]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    used = int(time.process_time())
    resource.setrlimit(resource.RLIMIT_CPU, (used + CPU_SECONDS, used + CPU_SECONDS))
    with tempfile.TemporaryDirectory() as folder:
        for group, attack in attacks:
            # Rejected documents of a bomb would fill the disk: the first one ends it.
            found = outcome(attack, Path(folder), rejects=kind != "bomb")
            print(json.dumps([group, *found]), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--batch"]:
        batch(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    else:
        main()
