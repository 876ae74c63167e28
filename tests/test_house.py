"""Rules of the house that no linter checks."""

import ast
import importlib
import json
import re
import subprocess
import sys
import tomllib
import warnings
from collections import Counter
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lexome.files import verify_checksums
from lexome.formats import FORMATS

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_torch_contract_names_every_part_that_must_not_reach_it() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contract = settings["tool"]["importlinter"]["contracts"][1]
    package = ROOT / "src" / "lexome"
    modules = [*package.glob("*.py"), *(found.parent for found in package.glob("*/__init__.py"))]
    parts = {path.stem for path in modules if not path.name.startswith("__")}
    allowed = {"cli", "export", "models", "py", "reproduce", "training"}
    assert {name.removeprefix("lexome.") for name in contract["source_modules"]} == parts - allowed


def test_every_module_says_what_it_is() -> None:
    assert [path.name for path in SOURCES if not path.read_text().lstrip().startswith('"""')] == []


# Code blocks that conftest.py runs, and "shell" for commands that CI cannot run.
KINDS = {"python", "text", "console", "toml", "shell"}
BLOCK = re.compile(r"^(?P<above>[^\n]*)\n```(?P<kind>\S*)\n.*?^```$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"<!-- not run: .+ -->")


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_code_blocks_run_in_ci_or_say_why_not(page: Path) -> None:
    blocks = list(BLOCK.finditer(page.read_text()))
    assert {block["kind"] for block in blocks} <= KINDS
    marked = [block for block in blocks if NOT_RUN.fullmatch(block["above"])]
    assert [block[0] for block in blocks if block["kind"] == "shell" and block not in marked] == []
    assert len(NOT_RUN.findall(page.read_text())) == len(marked), "a mark stands right above its block"


def test_troubleshooting_quotes_messages_that_the_code_has() -> None:
    page = (ROOT / "docs" / "how-to" / "troubleshooting.md").read_text().split("\n## No error")[0]
    trees = [ast.parse(path.read_text()) for path in SOURCES]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    quoted = re.findall(r"^\| `([^`]+)` \|", page, re.MULTILINE)
    assert len(quoted) > 20
    assert [quote for quote in quoted if not any(quote in text for text in texts)] == []


def test_no_two_test_files_have_one_name() -> None:
    """pytest imports them by their name alone, and reports the second as an error of collection."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_the_version_of_torch_is_pinned() -> None:
    assert "torch==2.13.0\n" in (ROOT / "constraints.txt").read_text()


def test_every_dependency_of_every_extra_is_pinned() -> None:
    """Also those of dependencies, if installed here: a release that breaks something must not reach CI."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"].values()
    groups = project["dependency-groups"].values()
    pinned = {line.partition("==")[0] for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    todo = [Requirement(one) for all_ in (project["project"]["dependencies"], *extras, *groups) for one in all_]
    seen: set[tuple[str, frozenset[str]]] = set()
    while todo:
        wanted = todo.pop()
        name = canonicalize_name(wanted.name)
        if (
            (name, frozenset(wanted.extras)) in seen
            or name == "lexome"
            or (wanted.marker and not wanted.marker.evaluate())
        ):
            continue
        seen.add((name, frozenset(wanted.extras)))
        with suppress(metadata.PackageNotFoundError):
            for line in metadata.distribution(name).requires or []:
                further = Requirement(line)
                asked = [{"extra": extra} for extra in wanted.extras or ("",)]
                if further.marker is None or any(further.marker.evaluate(extra) for extra in asked):
                    further.marker = None
                    todo.append(further)
    assert {name for name, _ in seen} - {canonicalize_name(name) for name in pinned} == set()


def test_torch_may_warn_of_its_own_code_and_any_other_warning_is_an_error() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert settings["tool"]["pytest"]["ini_options"]["filterwarnings"][0] == "error"
    # torch.compile imports this one when it is first called.
    importlib.reload(importlib.import_module("torch.utils.mkldnn"))
    with pytest.raises(DeprecationWarning):
        warnings.warn("something else is deprecated", DeprecationWarning, stacklevel=1)


def test_the_light_package_stays_under_its_limit() -> None:
    found = json.loads((ROOT / "results" / "install_size.json").read_text())
    assert found["megabytes"] < 200
    assert found["model_megabytes"] < 30


def test_tables_in_the_docs_are_those_in_results() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "tables.py"), "--check"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, ""), result.stdout + result.stderr


def test_the_reference_says_what_every_key_of_a_recipe_means() -> None:
    lines = (ROOT / "docs" / "reference" / "recipes.md").read_text().splitlines()
    keys = [line for line in lines if line.startswith("| `")]
    assert len(keys) > 200
    assert [line for line in keys if line.endswith("|  |")] == []


def test_the_reference_has_every_format() -> None:
    page = (ROOT / "docs" / "reference" / "formats.md").read_text()
    assert [format.name for format in FORMATS if f"::: lexome.formats.{format.module}\n" not in page] == []


@pytest.mark.parametrize("folder", ["src/lexome/default_model", "models/lexome-12x384"])
def test_shipped_models_are_what_their_checksums_say(folder: str) -> None:
    remedy = f'After a change on purpose: python -c "from lexome.files import *; write_checksums(Path({folder!r}))"'
    assert verify_checksums(ROOT / folder, remedy=remedy)
