"""Light imports: what `import lexome` and the help page may load, proved in a fresh interpreter."""

import subprocess
import sys
from pathlib import Path

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


def test_help_loads_the_commands_and_none_of_their_work() -> None:
    """What keeps `lexome --help` fast; benchmarks/install_size.py measures how fast."""
    packages = ("lexome.corpus", "lexome.datasets", "lexome.export", "lexome.models", "lexome.reproduce")
    work = (*packages, "lexome.tasks", "lexome.training", "lexome.formats.pmc", "lexome.serve.server")
    program = f"import sys\n{HELP.format(['--help'])}\nprint(*sys.modules, sep='\\n')"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = result.stdout.split()
    assert "lexome.cli.annotate" in loaded
    assert [name for name in loaded if name.startswith(work)] == []
    assert set(loaded) & {"numpy", "pydantic", "lxml", "asyncio", "rich.markdown"} == set()


def test_search_does_not_load_the_corpus_builder() -> None:
    """It shares a list of words with it, and importing the builder takes a tenth of a second."""
    program = "import sys, lexome.search.engine\nprint(*sys.modules, sep='\\n')"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert "lexome.corpus.languages" in loaded
    assert [name for name in loaded if name.startswith(("lexome.corpus.ingest", "lexome.corpus.build"))] == []


def test_the_check_sees_what_is_loaded() -> None:
    assert "pyarrow" in loaded_by("import pyarrow")


def test_importing_lexome_loads_no_parser() -> None:
    assert loaded_by("import lexome") & {"lxml", "pydantic", "rich", "typer"} == set()


LIGHT = ("lexome.infer.embed", "lexome.infer.predictor", "lexome.infer.annotator")


@pytest.mark.parametrize("module", LIGHT)
def test_inference_reaches_neither_torch_nor_the_tokenizers_library(module: str) -> None:
    assert loaded_by(f"import {module}") & (set(HEAVY) - {"onnxruntime"}) == set()


FILL_AND_EMBED = """
from pathlib import Path
from lexome.infer.embed import embed, fill
from lexome.infer.predictor import Predictor
predictor = Predictor.open(Path({folder!r}))
assert len(fill(predictor, "w1 [MASK]")[0]) == 5
embed(predictor, [Path({text!r})], Path({out!r}), progress_shown=False)
"""


def test_fill_and_embed_run_without_torch(tmp_path: Path) -> None:
    from tiny_models import hf_model, tokenizer_folder

    from lexome.export.export import export

    hf_model("BertForMaskedLM", "bert").save_pretrained(tmp_path / "checkpoint")
    export(tokenizer_folder(tmp_path / "checkpoint"), tmp_path / "onnx")
    (tmp_path / "a.txt").write_text("w1 w2")
    code = FILL_AND_EMBED.format(
        folder=str(tmp_path / "onnx"), text=str(tmp_path / "a.txt"), out=str(tmp_path / "v.npy")
    )
    loaded = loaded_by(code)
    assert loaded & set(HEAVY) == {"onnxruntime"}
    assert (tmp_path / "v.npy").is_file()
