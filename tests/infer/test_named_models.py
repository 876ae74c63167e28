"""Models by name: the package's own and those in folders; a path stays a path."""

import json
from functools import partial
from pathlib import Path

import pytest
from dictionary_models import dictionary_model
from errors import raises
from typer.testing import CliRunner

from lexome.cli import app
from lexome.errors import UsageError
from lexome.infer.annotator import default_model
from lexome.infer.named_models import find_readers, list_models, resolve_model


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = dictionary_model(tmp_path / "models" / "genes")
    card = '---\nlicense: "cc-by-4.0"\ntags: ["a"]\n---\n\n# A card\n'
    (folder / "README.md").write_text(card)
    score = {"measure": "f1", "value": 0.5, "sources": {"BC5CDR": 0.75}}
    (folder / "certificate.json").write_text(json.dumps({"score": score}))
    (tmp_path / "models" / "no-model").mkdir()
    broken = tmp_path / "models" / "broken"
    broken.mkdir()
    (broken / "model.json").write_text("{")
    return tmp_path / "models"


def test_names_are_resolved_in_the_package_and_in_folders(models: Path) -> None:
    assert resolve_model("default") == default_model()
    assert resolve_model("genes", search_path=[models]) == models / "genes"
    with raises(UsageError, code="unknown-model", value="no-model", mentions="genes"):
        resolve_model("no-model", search_path=[models])
    for function in (partial(resolve_model, "genes"), list_models, find_readers):
        with raises(UsageError, code="missing-folder", value=models / "nowhere"):
            function(search_path=[models / "nowhere"])


def test_the_search_path_may_be_one_folder_as_text(models: Path) -> None:
    assert list_models(search_path=str(models)) == list_models(search_path=[models])


def test_a_path_stays_a_path(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert resolve_model(models / "genes") == models / "genes"
    assert resolve_model("models/missing") == Path("models/missing")
    monkeypatch.chdir(models)
    assert resolve_model("genes") == Path("genes")
    monkeypatch.chdir(models.parent)
    assert resolve_model("genes") == Path("models/genes")


def test_a_folder_with_the_name_of_an_optional_model_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "relations").mkdir()
    monkeypatch.chdir(tmp_path)
    with raises(UsageError, code="missing-model", value="relations", mentions="repository"):
        resolve_model("relations", search_path=[tmp_path])


def test_the_list_says_what_each_folder_says(models: Path) -> None:
    own, broken, genes = list_models(search_path=[models])
    assert (own.name, own.task, own.runnable) == ("default", "ner", True)
    assert not broken.runnable
    assert broken.problem is not None
    assert (genes.license, genes.scores, genes.card) == (
        "cc-by-4.0",
        {"f1 on BC5CDR": 0.75},
        models / "genes" / "README.md",
    )


def test_commands_take_names(models: Path) -> None:
    runner = CliRunner()
    listed = runner.invoke(app, ["models", "--models-path", str(models), "--json"], catch_exceptions=False)
    assert [model["name"] for model in json.loads(listed.stdout)] == ["default", "broken", "genes"]
    printed = runner.invoke(app, ["models", "--models-path", str(models)], catch_exceptions=False)
    assert "cannot run" in printed.stdout
    arguments = ["annotate", "BRCA1 is there.", "--model", "genes", "--models-path", str(models), "--json"]
    annotated = runner.invoke(app, arguments, catch_exceptions=False)
    assert json.loads(annotated.stdout)["spans"][0]["text"] == "BRCA1"
