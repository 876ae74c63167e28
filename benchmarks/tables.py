"""Copies numbers from results/*.json into the tables of README and docs, between their marks.

python benchmarks/tables.py            write the tables
python benchmarks/tables.py --check    exit with 1 if one is out of date
"""

import ast
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TABLE = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def rows(*lines: tuple[object, ...]) -> str:
    """A Markdown table whose first line is its head."""
    head, *body = [f"| {' | '.join(map(str, line))} |" for line in lines]
    return "\n".join([head, "|" + " --- |" * len(lines[0]), *body])


def measured(facts: dict[str, Any]) -> str:
    """Where and when, for the line below a table."""
    packages = "".join(f", {name} {version}" for name, version in facts["packages"].items())
    return f"\n\n{facts['date']}, {facts['cpu']}, {facts['cores']} cores, Python {facts['python']}{packages}"


def read_speed() -> str:
    result = stored("read_speed")
    lines = [
        (name, f"{part['lexome_mb_per_s']} MB/s", f"{part['pubmed_parser_mb_per_s']} MB/s", f"{part['ratio']}×")
        for name, part in (
            ("PubMed XML, records repeated", result["pubmed"]),
            ("PubMed XML, each record once, caches empty", result["pubmed_cold"]),
            ("PMC JATS; peer: article and paragraphs", result["jats"]),
            ("PMC JATS; peer: captions and tables too", result["jats_all"]),
        )
    ]
    return rows(("reading", "Lexome", "pubmed_parser", "ratio"), *lines) + measured(result["facts"])


def memory() -> str:
    part = stored("read_speed")["memory"]
    size, documents, peak = part["file_megabytes"], part["documents"], part["peak_megabytes"]
    return rows(
        ("PubMed XML file", "documents", "peak memory of the process"), (f"{size:,} MB", f"{documents:,}", f"{peak} MB")
    )


def install_size() -> str:
    result = stored("install_size")
    largest = ", ".join(f"{name} {size}" for name, size in list(result["largest"].items())[:3])
    return rows(
        ("light package with all it needs", "of which", "`lexome --help`"),
        (f"{result['megabytes']} MB", f"{largest} MB", f"{result['help_s']} s"),
    ) + measured(result["facts"])


def jats_recall() -> str:
    result = stored("jats_recall")
    files = {**result["files"], "all files": result["total"]}
    lines = [
        (name, *(part[key] for key in ("paragraphs", "pubmed_parser", "pubmed_parser_all", "lexome")))
        for name, part in files.items()
    ]
    head = ("file", "paragraphs", "pubmed_parser: article, paragraphs", "and its captions, tables", "Lexome")
    return rows(head, *lines) + measured(result["facts"])


def source_map() -> str:
    """Every module with the first line of its docstring, which is its duty."""
    package = ROOT / "src" / "lexome"
    lines = ["```", "src/lexome/"]
    for path in sorted(package.rglob("*.py"), key=lambda path: (path.parent, path.name)):
        depth = len(path.relative_to(package).parts)
        name = f"{path.parent.name}/" if path.name == "__init__.py" and depth > 1 else path.name
        indent = "  " * (depth - 1 if name.endswith("/") else depth)
        lines.append(f"{indent + name:<26} {duty(path)}")
    return "\n".join([*lines, "```"])


def duty(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    return docstring.split("\n")[0].rstrip(".")


TABLES: dict[str, Callable[[], str]] = {
    "install_size": install_size,
    "jats_recall": jats_recall,
    "map": source_map,
    "memory": memory,
    "read_speed": read_speed,
}


def stored(name: str) -> Any:
    return json.loads((ROOT / "results" / f"{name}.json").read_text())


def filled(page: str) -> str:
    """The page with each table made anew."""
    return TABLE.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}\n{found[3]}", page)


def main() -> int:
    stale = []
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        page = path.read_text()
        if filled(page) != page:
            stale.append(path.relative_to(ROOT))
            if "--check" not in sys.argv:
                path.write_text(filled(page))
    for path in stale:
        print(f"{path}: {'out of date; run make tables' if '--check' in sys.argv else 'written'}")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
