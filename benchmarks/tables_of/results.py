"""Results as they are stored, and the form they take on a page: rows of Markdown, and where and when below them."""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def stored(name: str) -> Any:
    """What a benchmark wrote to results/."""
    return json.loads((ROOT / "results" / f"{name}.json").read_text())


def rows(*lines: tuple[object, ...]) -> str:
    """A Markdown table whose first line is its head."""
    head, *body = [f"| {' | '.join(map(str, line))} |" for line in lines]
    return "\n".join([head, "|" + " --- |" * len(lines[0]), *body])


def measured(facts: dict[str, Any]) -> str:
    """Where and when, for the line below a table."""
    packages = "".join(f", {name} {version}" for name, version in facts["packages"].items())
    return f"\n\n{facts['date']}, {facts['cpu']}, {facts['cores']} cores, Python {facts['python']}{packages}"
