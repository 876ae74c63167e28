"""Light imports: what `import lexome` and the help page may load, proved in a fresh interpreter."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "safetensors", "pyarrow", "spacy", "ray", "fastapi", "onnxruntime", "tokenizers")


def loaded_by(code: str) -> set[str]:
    program = f"import sys\n{code}\nprint(*sys.modules, sep='\\n')"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in result.stdout.split()}


HELP = "from typer.testing import CliRunner; from lexome.cli import app; CliRunner().invoke(app, {})"


@pytest.mark.parametrize("code", ["import lexome", HELP.format(["--help"]), HELP.format(["convert", "--help"])])
def test_nothing_heavy_is_loaded(code: str) -> None:
    assert loaded_by(code) & set(HEAVY) == set()


def test_the_check_sees_what_is_loaded() -> None:
    assert "pyarrow" in loaded_by("import pyarrow")


def test_importing_lexome_loads_no_parser() -> None:
    assert loaded_by("import lexome") & {"lxml", "pydantic", "rich", "typer"} == set()
