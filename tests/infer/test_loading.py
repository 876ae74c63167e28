"""lexome.load: the model that comes with Lexome, any folder, or a clear word about what is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dictionary_models import dictionary_model
from errors import raises

import lexome
from lexome.errors import CheckpointError, UsageError
from lexome.infer import annotator


def test_a_folder_is_opened_by_name_or_path(tmp_path: Path) -> None:
    folder = dictionary_model(tmp_path / "words")
    for given in (folder, str(folder)):
        assert [span.text for span in lexome.load(given, threads=1)("brca1 or w1").spans] == ["brca1"]


def test_without_a_folder_the_model_that_comes_with_lexome_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dictionary_model(tmp_path / annotator.DEFAULT_MODEL)
    monkeypatch.setattr(annotator.resources, "files", lambda package: tmp_path)
    assert lexome.load(threads=1)("brca1").spans


def test_where_that_is_missing_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(annotator.resources, "files", lambda package: tmp_path)
    with raises(CheckpointError, code="missing-folder", value=tmp_path / "default_model"):
        lexome.load()


def test_a_list_of_models_is_refused() -> None:
    with raises(UsageError, code="not-a-path", value=["default"]):
        lexome.load(["default"])  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "code"), [("nowhere", "missing-folder"), ("empty", "missing-file")])
def test_a_folder_without_a_model_is_said_to_be_none(tmp_path: Path, name: str, code: str) -> None:
    (tmp_path / "empty").mkdir()
    with raises(CheckpointError, code=code, value=tmp_path / name):
        lexome.load(tmp_path / name)


def test_a_wrong_number_of_threads_is_refused(tmp_path: Path) -> None:
    with raises(UsageError, code="invalid-threads", value=0):
        lexome.load(dictionary_model(tmp_path / "words"), threads=0)


def test_nothing_is_gathered_about_the_machine(tmp_path: Path) -> None:
    # onnxruntime keeps an id of the machine and what it will send of it in a folder of the user's.
    own = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    home = {**own, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    program = "import lexome; print(len(lexome.load(threads=1)('Aspirin.').spans))"
    done = subprocess.run([sys.executable, "-c", program], env=home, capture_output=True, text=True, check=True)
    assert (done.stdout, list(tmp_path.iterdir())) == ("1\n", [])
