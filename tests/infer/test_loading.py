"""lexome.load: the model that comes with Lexome, any folder, or a clear word about what is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dictionary_models import dictionary_model

import lexome
from lexome.errors import CheckpointError, LexomeError
from lexome.infer import annotator


def test_a_folder_is_opened_by_name_or_path(tmp_path: Path) -> None:
    folder = dictionary_model(tmp_path / "words")
    for given in (folder, str(folder)):
        assert [span.text for span in lexome.load(given, threads=1)("brca1 or w1").spans] == ["brca1"]


def test_without_a_folder_the_model_that_comes_with_lexome_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dictionary_model(tmp_path / annotator.DEFAULT)
    monkeypatch.setattr(annotator.resources, "files", lambda package: tmp_path)
    assert lexome.load(threads=1)("brca1").spans


def test_where_that_is_missing_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(annotator.resources, "files", lambda package: tmp_path)
    with pytest.raises(CheckpointError, match="Install Lexome again, or name a folder"):
        lexome.load()


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_a_folder_without_a_model_is_said_to_be_none(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(LexomeError, match=r"no such folder|no model\.json"):
        lexome.load(tmp_path / name)


def test_a_wrong_number_of_threads_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LexomeError, match="0 threads; expected at least 1"):
        lexome.load(dictionary_model(tmp_path / "words"), threads=0)


def test_nothing_is_gathered_about_the_machine(tmp_path: Path) -> None:
    # onnxruntime keeps an id of the machine and what it will send of it in a folder of the user's.
    own = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    home = {**own, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    program = "import lexome; print(len(lexome.load(threads=1)('Aspirin.').spans))"
    done = subprocess.run([sys.executable, "-c", program], env=home, capture_output=True, text=True, check=True)
    assert (done.stdout, list(tmp_path.iterdir())) == ("1\n", [])
