"""Reads stored results and formats them as Markdown tables with the measurement environment below."""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def stored(name: str) -> Any:
    """The result of a benchmark, from results/."""
    return json.loads((ROOT / "results" / f"{name}.json").read_text())


def rows(*lines: tuple[object, ...]) -> str:
    """A Markdown table; the first line is the header."""
    head, *body = [f"| {' | '.join(map(str, line))} |" for line in lines]
    return "\n".join([head, "|" + " --- |" * len(lines[0]), *body])


def measured(facts: dict[str, Any]) -> str:
    """Date, hardware and versions, for the line below a table."""
    packages = "".join(f", {name} {version}" for name, version in facts["packages"].items())
    return f"\n\n{facts['date']}, {facts['cpu']}, {facts['cores']} cores, Python {facts['python']}{packages}"
