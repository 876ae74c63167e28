"""annotate --relations: mentions, ids and relations of one command, filtered, and what cannot work is said."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from dictionary_models import INHIBITS, dictionary_model, relation_model
from errors import raises
from typer.testing import CliRunner

import lexome
from lexome import Argument
from lexome.cli import app
from lexome.errors import UsageError
from lexome.infer.annotator import Annotator, calibrated
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


def test_relations_of_types_that_are_not_asked_for_stay(models: Path, tmp_path: Path) -> None:
    """As they are: their scores are neither calibrated again nor held against a minimum."""
    shutil.copytree(models / "relations", tmp_path / "relations")
    settings = tmp_path / "relations" / "model.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"calibration": {"Association": [0.5, 0.0]}}))
    (found,) = Annotator.open(models / "words", models / "relations", threads=1).annotate([TEXT])
    curated = replace(
        found.relations[-1], id="R1", arguments=(Argument("a", "T1"), Argument("b", "T4")), novel=None, score=0.1
    )
    lexome.write(tmp_path / "curated.jsonl", [replace(found, relations=(curated,))])
    options = [
        "--models-path",
        str(tmp_path),
        "--model",
        "relations",
        "--no-link",
        "--out",
        str(tmp_path / "out.jsonl"),
    ]
    chosen = ["--relation-types", "INHIBITOR", "--min-relation-score", "0.5", "--json"]
    arguments = ["annotate", str(tmp_path / "curated.jsonl"), *options, *chosen]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    (doc,) = lexome.read(tmp_path / "out.jsonl")
    assert curated.type == "Association"
    assert doc.relations[0] == curated
    assert [(one.id, one.type) for one in doc.relations[1:]] == [("R2", "INHIBITOR"), ("R3", "INHIBITOR")]
    assert json.loads(done.stdout)["relations"] == {"INHIBITOR": 2}
    lost = CliRunner().invoke(app, [*arguments, "--model", str(models / "words")], catch_exceptions=False)
    assert json.loads(lost.stdout)["notes"] == {"relation dropped with a replaced mention": 1}


def test_a_table_is_one_of_relations(models: Path, tmp_path: Path) -> None:
    assert run(models, "--relations", "--to", "tsv").splitlines()[1].split("\t")[2:9:6] == ["olaparib", "INHIBITOR"]
    mentions = run(models, "--relations", "--to", "tsv", "--set", "table=mentions").splitlines()
    assert len(mentions) == 6
    assert "INHIBITOR" not in "".join(mentions)


def test_relations_are_explained_by_their_mentions_and_other_labels(models: Path) -> None:
    said = run(models, "--relations", "--explain", "--quiet")
    assert "related olaparib - INHIBITOR - brca1 0.84: others: ACTIVATOR 0.11, no relation 0.04" in said
    assert "0.84 0-8 and 12-17: 'olaparib w1 brca1 , tp53 . w2 melanoma" in said
    one = json.loads(run(models, "--relations", "--explain", "--json", "--min-relation-score", "0.86"))["related"][0]
    assert (one["label"], one["reason"]) == ("INHIBITOR", "score 0.84 is below 0.86")
    assert list(one["probabilities"]) == ["INHIBITOR", "ACTIVATOR", "none"]
    assert one["evidence"][0]["sentences"] == [[0, len(TEXT)]]


def test_pairs_that_came_near_are_explained_and_unwanted_types_are_not(models: Path, tmp_path: Path) -> None:
    relation_model(tmp_path / "shy", {"olaparib": {"INHIBITOR": -0.5}})
    annotator = Annotator.open(models / "words", tmp_path / "shy", threads=1)
    doc = annotator(TEXT)
    assert doc.relations == ()
    near = annotator.explain_relations(doc)
    assert {(one.label, one.first, one.second) for one in near} == {
        (None, "olaparib", "brca1"),
        (None, "olaparib", "tp53"),
    }
    assert near[0].reason is not None
    assert near[0].score == near[0].probabilities["INHIBITOR"]
    sure = Annotator.open(models / "words", models / "relations", threads=1)
    explained = sure.explain_relations(sure(TEXT), relation_types=["INHIBITOR"])
    assert {one.label for one in explained} == {"INHIBITOR"}


def test_calibrated_scores_replace_those_of_the_model(models: Path, tmp_path: Path) -> None:
    shutil.copytree(models / "relations", tmp_path / "relations")
    settings = tmp_path / "relations" / "model.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"calibration": {"INHIBITOR": [0.5, 0.0]}}))
    annotator = Annotator.open(models / "words", tmp_path / "relations", threads=1)
    raw = Annotator.open(models / "words", models / "relations", threads=1)
    curve = {"INHIBITOR": (0.5, 0.0)}
    doc = annotator(TEXT)
    assert [one.score for one in doc.relations] == [
        pytest.approx(calibrated(one.score or 0.0, curve.get(one.type))) for one in raw(TEXT).relations
    ]
    assert annotator.explain_relations(doc)[0].score == doc.relations[0].score


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


def test_a_relation_model_alone_relates_the_mentions_of_documents(models: Path, tmp_path: Path) -> None:
    (doc,) = lexome.load(models / "words", link=False, threads=1).annotate([TEXT])
    lexome.write(tmp_path / "mentions.jsonl", [doc])
    options = ["--models-path", str(models), "--model", "relations", "--relations", "--no-link", "--json", "--quiet"]
    arguments = ["annotate", str(tmp_path / "mentions.jsonl"), *options]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert {one["type"] for one in json.loads(done.stdout)["relations"]} == {"INHIBITOR", "Association"}


def test_documents_without_mentions_are_counted_where_no_model_finds_them(models: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT)
    out = str(tmp_path / "a.jsonl")
    for model, noted in (("relations", 1), ("words", 0)):
        options = ["--models-path", str(models), "--model", model, "--relations", "--no-link", "--json", "--out", out]
        done = CliRunner().invoke(app, ["annotate", str(tmp_path / "a.txt"), *options], catch_exceptions=False)
        notes = json.loads(done.stdout)["notes"]
        assert sum(count for note, count in notes.items() if note.startswith("document without mentions")) == noted


def test_pairs_that_models_relate_are_named_once(models: Path, tmp_path: Path) -> None:
    back = {"name": "back", "labels": ["Bind"], "pairs": [["Gene", "Chemical"]]}
    relation_model(tmp_path / "relations", schemas=(INHIBITS, back))
    annotator = Annotator.open(models / "words", tmp_path / "relations", threads=1)
    with raises(UsageError, code="no-pairs", mentions="relate Chemical and Gene. ") as error:
        annotator.require_pairs(["disease"])
    assert error.value.value == ("Disease",)
    with raises(UsageError, code="unknown-type", value="Dizease"):
        annotator.require_pairs(["Dizease"])


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


def test_a_document_of_two_thousand_entities_has_bounded_pairs_that_are_counted(models: Path, tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_text("brca1 tp53 melanoma olaparib " * 500)
    options = ["--models-path", str(models), "--model", "words", "--relations", "--no-link", "--json"]
    arguments = ["annotate", str(tmp_path / "long.txt"), *options, "--out", str(tmp_path / "long.jsonl")]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    counts = json.loads(done.stdout)
    assert sum(counts["mentions"].values()) == 2000
    (skipped,) = (count for note, count in counts["notes"].items() if note.startswith("mention pair skipped"))
    assert skipped > 100_000
    assert 0 < sum(counts["relations"].values()) < 20_000
