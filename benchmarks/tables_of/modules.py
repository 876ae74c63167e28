"""Map of the source tree: each module with the first line of its docstring."""

import ast
from pathlib import Path

from tables_of.results import ROOT


def source_map() -> str:
    """Every module with the first line of its docstring."""
    package = ROOT / "src" / "lexome"
    lines = ["```", "src/lexome/"]
    for path in sorted(package.rglob("*.py"), key=lambda path: (path.parent, path.name)):
        depth = len(path.relative_to(package).parts)
        name = f"{path.parent.name}/" if path.name == "__init__.py" and depth > 1 else path.name
        indent = "  " * (depth - 1 if name.endswith("/") else depth)
        lines.append(f"{indent + name:<26} {duty(path)}")
    return "\n".join([*lines, "```"])


def duty(path: Path) -> str:
    """First line of a module's docstring, without the final period."""
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    return docstring.split("\n")[0].rstrip(".")


TABLES = {"map": source_map}
