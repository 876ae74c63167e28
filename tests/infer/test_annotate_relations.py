"""annotate --relations: mentions, ids and relations of one command, filtered, and what cannot work is said."""

import json
from pathlib import Path

import pytest
from dictionary_models import dictionary_model, relation_model
from errors import raises
from typer.testing import CliRunner

import lexome
from lexome.cli import app
from lexome.errors import UsageError
from lexome.infer.named_models import resolve_model

TEXT = "olaparib w1 brca1 , tp53 . w2 melanoma , breast cancer ."
TERMS = "id\tname\ttype\nNCBIGene:672\tbrca1\tGene\nNCBIGene:7157\ttp53\tGene\n"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    dictionary_model(folder / "words")
    relation_model(folder / "relations")
    (folder / "genes.tsv").write_text(TERMS)
    return folder


def run(models: Path, *arguments: str, text: str = TEXT) -> str:
    options = ["--models-path", str(models), "--model", "words", "--terms", str(models / "genes.tsv"), "--only-terms"]
    return CliRunner().invoke(app, ["annotate", text, *options, *arguments], catch_exceptions=False).stdout


def test_one_command_finds_mentions_ids_and_relations(models: Path) -> None:
    doc = json.loads(run(models, "--relations", "--json"))
    told = [
        (one["type"], *(side["target"] or side["concept"] for side in one["arguments"])) for one in doc["relations"]
    ]
    # Concepts are related by the ids that their mentions have got before.
    assert told == [
        ("INHIBITOR", "T1", "T2"),
        ("INHIBITOR", "T1", "T3"),
        ("Association", "NCBIGene:672", "NCBIGene:7157"),
        ("Association", "NCBIGene:672", "T4"),
        ("Association", "NCBIGene:672", "T5"),
    ]
    assert all(0 < one["score"] < 1 for one in doc["relations"])


def test_relations_are_printed_as_who_what_whom(models: Path) -> None:
    lines = run(models, "--relations", "--no-color").splitlines()
    assert "  olaparib - INHIBITOR - brca1 0.84" in lines
    assert "  brca1 (NCBIGene:672) - Association - melanoma 0.88" in lines


def test_relations_are_filtered_by_type_and_score(models: Path) -> None:
    def types(*options: str) -> set[str]:
        return {one["type"] for one in json.loads(run(models, "--relations", "--json", *options))["relations"]}

    assert types() == {"INHIBITOR", "Association"}
    assert types("--relation-types", "inhibitor") == {"INHIBITOR"}
    assert types("--min-relation-score", "0.85") == {"Association"}
    assert types("--min-score", "0.85") == {"Association"}
    assert types("--min-relation-score", "0.85", "--min-score", "Association=0.99") == set()
    spans = json.loads(run(models, "--relations", "--json", "--min-relation-score", "1"))["spans"]
    assert len(spans) == 5


def test_a_table_is_one_of_relations(models: Path, tmp_path: Path) -> None:
    assert run(models, "--relations", "--to", "tsv").splitlines()[1].split("\t")[2:9:6] == ["olaparib", "INHIBITOR"]
    mentions = run(models, "--relations", "--to", "tsv", "--set", "table=mentions").splitlines()
    assert len(mentions) == 6
    assert "INHIBITOR" not in "".join(mentions)


def test_filters_without_a_relation_model_say_so(models: Path) -> None:
    for option, value in (("--relation-types", "Bind"), ("--min-relation-score", "0.5")):
        with raises(UsageError, code="no-relation-model"):
            run(models, option, value)
    with raises(UsageError, code="unknown-type", value="INHIBTOR", mentions="INHIBITOR"):
        run(models, "--relations", "--relation-types", "INHIBTOR")


def test_types_that_leave_no_pairs_are_refused(models: Path) -> None:
    with raises(UsageError, code="no-pairs", value=("Disease",), mentions="Chemical and Gene"):
        run(models, "--relations", "--types", "Disease")
    assert run(models, "--relations", "--types", "Disease,Gene")


def test_a_relation_model_that_is_not_there_is_described(tmp_path: Path, models: Path) -> None:
    with raises(UsageError, code="missing-model", value="relations", mentions="models/relations"):
        resolve_model("relations", search_path=[tmp_path])
    assert resolve_model("relations", search_path=[tmp_path, models]) == models / "relations"


def test_python_loads_the_model_by_its_name(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").symlink_to(models)
    monkeypatch.chdir(tmp_path)
    annotator = lexome.load("words", relations=True, link=False, threads=1)
    assert [model.kind for model in annotator.models] == ["ner", "document-relation"]
    assert len(lexome.load("words", "relations", relations=True, link=False, threads=1).models) == 2
    assert {one.type for one in annotator(TEXT).relations} == {"INHIBITOR", "Association"}
    (doc,) = annotator.annotate([TEXT], relation_types=["INHIBITOR"])
    assert {one.type for one in doc.relations} == {"INHIBITOR"}


def test_bulk_annotation_has_the_same_relations(models: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    options = ["--models-path", str(models), "--model", "words", "--relations", "--no-link", "--jobs", "0", "--quiet"]
    arguments = ["annotate", str(tmp_path / "a.txt"), *options, "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, [*arguments, "--relation-types", "Association"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    (doc,) = lexome.read(tmp_path / "out")
    assert {one.type for one in doc.relations} == {"Association"}
    # With other relation types the folder would have other files.
    assert CliRunner().invoke(app, [*arguments, "--relation-types", "Bind"]).exit_code == 1
