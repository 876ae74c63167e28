"""Rules of the house that no linter checks."""

import importlib
import json
import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import pytest

from lexome.formats.registry import FORMATS

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


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


def test_code_blocks_are_of_kinds_that_are_run() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    kinds = {kind for page in pages for kind in re.findall(r"^```(\S*)$", page.read_text(), re.MULTILINE)}
    assert kinds <= {"", "python", "text", "console"}


def test_the_version_of_torch_is_pinned() -> None:
    assert "torch==2.13.0\n" in (ROOT / "constraints.txt").read_text()


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
