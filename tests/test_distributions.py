"""What is released: the contents of the wheel, and both distributions installed in an environment of their own."""

import json
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
import yaml
from hatchling.builders.wheel import WheelBuilder
from typer.testing import CliRunner

import lexome
from lexome.cli import app, doctor

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    [path] = WheelBuilder(str(ROOT)).build(directory=str(tmp_path_factory.mktemp("wheel")))
    return zipfile.ZipFile(path)


def test_the_wheel_has_every_file_of_the_package_and_the_studies(wheel: zipfile.ZipFile) -> None:
    listed = subprocess.run(["git", "ls-files", "src/lexome", "studies"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("the package is not in a git repository here")
    expected = {inside(path) for path in listed.stdout.splitlines() if (ROOT / path).exists()}
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert expected - names == set()
    # And nothing that is not in the repository, such as a model that lies around.
    assert {name for name in names - expected if "__pycache__" not in name} <= untracked()


def untracked() -> set[str]:
    """Files of the package that are new in the working tree."""
    command = ["git", "ls-files", "--others", "--exclude-standard", "src/lexome", "studies"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    return set(map(inside, listed))


def inside(path: str) -> str:
    """Where a file of the repository is in the wheel."""
    return re.sub("^studies/", "lexome/studies/", path.removeprefix("src/"))


def test_the_wheel_says_what_it_is(wheel: zipfile.ZipFile) -> None:
    [folder] = {name.partition("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    facts = Parser().parsestr(wheel.read(f"{folder}/METADATA").decode())
    assert (facts["Name"], facts["Version"]) == ("lexome", lexome.__version__)
    assert facts["Requires-Python"] == ">=3.11"
    assert facts["License-Expression"] == "Apache-2.0"
    assert set(facts.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])
    assert "lexome = lexome.cli:main" in wheel.read(f"{folder}/entry_points.txt").decode()
    assert "lexome/py.typed" in wheel.namelist()
    assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())


def test_the_light_package_has_a_size_that_pip_users_accept(wheel: zipfile.ZipFile) -> None:
    assert sum(one.compress_size for one in wheel.infolist()) < 100 << 20


def test_versions_of_tools_are_those_of_the_constraints() -> None:
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [repo["rev"] for repo in hooks if "ruff" in repo["repo"]] == [f"v{pins['ruff']}"]


def test_the_workflow_calls_make_test_on_every_python_that_is_named() -> None:
    job = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]["test"]
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.12", "3.13", "3.14"]
    assert "make test" in [step.get("run") for step in job["steps"]]


# lexome doctor


def test_doctor_finds_a_model_that_annotates() -> None:
    result = CliRunner().invoke(app, ["doctor", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["model"]["found"] >= 2
    assert found["lexome"] == lexome.__version__
    assert found["problems"] == []
    assert found["usable_cores"] >= 1
    assert {"ready", "missing", "purpose"} == set(found["extras"]["serve"])


def test_doctor_knows_what_every_extra_is_for() -> None:
    assert set(doctor.PURPOSES) == set(PROJECT["optional-dependencies"])


def test_doctor_names_the_package_that_is_missing_and_for_what(monkeypatch: pytest.MonkeyPatch) -> None:
    version = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "uvicorn" else version(name))
    extra = doctor.diagnose().extras["serve"]
    assert (extra.ready, extra.missing) == (False, ("uvicorn",))
    lines = CliRunner().invoke(app, ["doctor"]).stdout
    assert "missing uvicorn" in lines
    assert "lexome[serve]" in lines


def test_doctor_says_that_the_default_model_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lexome.infer.annotator.DEFAULT_MODEL", "nowhere")
    result = CliRunner().invoke(app, ["doctor", "--json"])
    assert result.exit_code == 1
    [problem] = json.loads(result.stdout)["problems"]
    assert "nowhere" in problem


# Installed

IN_AN_ENVIRONMENT = """
import lexome, sys
doc = lexome.load(threads=1)("Olaparib in BRCA1 breast cancer.")
assert len(doc.spans) >= 2, doc
assert lexome.__file__.startswith(sys.prefix), lexome.__file__
assert "torch" not in sys.modules
"""


@pytest.mark.nightly
def test_both_distributions_install_and_run_in_a_clean_environment(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path / "dist"), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    for kind in ("*.whl", "*.tar.gz"):
        [path] = (tmp_path / "dist").glob(kind)
        folder = tmp_path / kind.strip("*.")
        venv.create(folder, with_pip=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--constraint", "constraints.txt"]
        subprocess.run([*pip, f"{path}[serve]"], check=True, cwd=ROOT)
        program = [str(folder / "bin" / "python"), "-c", IN_AN_ENVIRONMENT]
        subprocess.run(program, check=True, cwd=tmp_path, env=clean)
        report = [folder / "bin" / "lexome", "doctor", "--json"]
        said = subprocess.run(report, check=True, capture_output=True, cwd=tmp_path, env=clean)
        found = json.loads(said.stdout)
        assert found["extras"]["serve"]["ready"]
        assert found["extras"]["train"]["missing"]
