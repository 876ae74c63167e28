"""docs/reference/python-api.md: signatures and docstrings of what the reference documents, readable in the repository.

The names come from the `:::` directives of the reference pages; the source is parsed, not imported.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tables_of.results import ROOT

PAGES = ("python.md", "datasets.md", "metrics.md")
_DIRECTIVE = re.compile(r"^::: (\S+)\n((?:[ \t]+.*\n|\n(?=[ \t]))*)", re.MULTILINE)
# "labels   relation types", aligned by hand in docstrings.
_ALIGNED = re.compile(r"([\w*][\w*, ]*?)\s{2,}(\S.*)")

Definition = ast.FunctionDef | ast.ClassDef


def api() -> str:
    """The documented names of all pages, a section each."""
    sections: list[str] = []
    for page in PAGES:
        text = (ROOT / "docs" / "reference" / page).read_text(encoding="utf-8") + "\n"
        for path, options in _DIRECTIVE.findall(text):
            members = re.search(r"members: *\[([^\]]*)\]", options)
            names = [name.strip() for name in members[1].split(",")] if members else None
            sections += _sections(path, names)
    return "\n".join(dict.fromkeys(sections))


def _sections(path: str, names: list[str] | None) -> Iterator[str]:
    """A section for a function or class; for a module, one for each of its members, by default of all public ones."""
    file = _file_of(path)
    if file is None:
        module, _, name = path.rpartition(".")
        yield _section(module, name, _definition(module, name))
        return
    defined = [node for node in _body(file) if isinstance(node, Definition) and not node.name.startswith("_")]
    for name in names if names is not None else [node.name for node in defined]:
        yield _section(path, name, _definition(path, name))


def _file_of(path: str) -> Path | None:
    """The file of a module; None for the name of something else."""
    place = ROOT / "src" / Path(*path.split("."))
    return next((file for file in (place / "__init__.py", place.with_suffix(".py")) if file.is_file()), None)


@cache
def _body(file: Path) -> list[ast.stmt]:
    return ast.parse(file.read_text(encoding="utf-8")).body


def _definition(module: str, name: str) -> Definition | ast.Assign | ast.AnnAssign:
    """A function, class or constant of a module, or where the module has it from."""
    file = _file_of(module)
    assert file is not None, module
    for node in _body(file):
        if isinstance(node, Definition) and node.name == name:
            return node
        if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == name for target in node.targets):
            return node
        if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == name:
            return node
        if isinstance(node, ast.ImportFrom) and node.module and any(alias.name == name for alias in node.names):
            return _definition(node.module, name)
    raise LookupError(f"{module} has no {name}; it is named in docs/reference")


def _section(module: str, name: str, node: Definition | ast.Assign | ast.AnnAssign) -> str:
    lines = [f"### `{module}.{name}`", ""]
    if not isinstance(node, Definition):
        kind = f": {ast.unparse(node.annotation)}" if isinstance(node, ast.AnnAssign) else ""
        return "\n".join([*lines, f"`{name}{kind}`, a constant of the module.", ""])
    if isinstance(node, ast.FunctionDef):
        lines += [f"`{_signature(node)}`", ""]
    lines += _docstring(node)
    if isinstance(node, ast.ClassDef):
        for own in node.body:
            if isinstance(own, ast.AnnAssign) and isinstance(own.target, ast.Name) and _is_public(own.target.id):
                value = f" = {ast.unparse(own.value)}" if own.value is not None else ""
                lines.append(f"- `{own.target.id}: {ast.unparse(own.annotation)}{value}`")
        for own in node.body:
            if isinstance(own, ast.FunctionDef) and _is_public(own.name) and not _is_overload(own):
                first = (ast.get_docstring(own) or "").split("\n\n")[0].replace("\n", " ")
                is_property = any(getattr(one, "id", "").endswith("property") for one in own.decorator_list)
                lines.append(f"- `{own.name if is_property else _signature(own)}`: {first}")
        lines.append("")
    return "\n".join(lines)


def _is_public(name: str) -> bool:
    return not name.startswith("_") or name == "__call__"


def _is_overload(node: ast.FunctionDef) -> bool:
    return any(getattr(one, "id", "") == "overload" for one in node.decorator_list)


def _signature(node: ast.FunctionDef) -> str:
    """The signature without self, and with the types that the source has."""
    arguments = ast.parse(f"def f({ast.unparse(node.args)}): ...").body[0]
    assert isinstance(arguments, ast.FunctionDef)
    if arguments.args.args and arguments.args.args[0].arg in ("self", "cls"):
        del arguments.args.args[0]
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    return f"{node.name}({ast.unparse(arguments.args)}){returns}".replace("'", '"')


def _docstring(node: Definition) -> list[str]:
    """The docstring, its hand-aligned lists as Markdown's, without doctests."""
    lines: list[str] = []
    for paragraph in (ast.get_docstring(node) or "").split("\n\n"):
        if paragraph.lstrip().startswith(">>>"):
            continue
        for line in paragraph.split("\n"):
            aligned = _ALIGNED.fullmatch(line)
            lines.append(f"- `{aligned[1]}`: {aligned[2]}" if aligned else line.strip())
        lines.append("")
    return lines


TABLES = {"api": api}
