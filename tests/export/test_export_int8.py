"""int8 is written only where predictions agree with fp32, and the certificate records what was measured."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from errors import raises
from finetuning import (
    class_documents,
    ner_documents,
    question_documents,
    recipe_of,
    relation_documents,
    tiny_model,
    write_splits,
)
from onnx import numpy_helper
from typer.testing import CliRunner

import lexome
from lexome.cli.options import app
from lexome.errors import CheckpointError, UsageError
from lexome.export import int8
from lexome.export.export import export
from lexome.export.int8 import (
    AGREEMENT,
    DIFFERENCE,
    HeldOutEvaluation,
    SourceScores,
    Thresholds,
    Trial,
    agreement,
    load_held_out,
)
from lexome.files import file_sha256
from lexome.infer.annotator import Annotator
from lexome.infer.predictor import read_settings
from lexome.tasks import Classes, Ner, Questions, Relations
from lexome.tasks.metrics.spans import Counts
from lexome.training.finetune.stage import finetune


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("int8")


@pytest.fixture(scope="module")
def data(folder: Path) -> Path:
    """Documents that the model learns by heart, so that its answers are firm; many, so that scores can be judged."""
    docs = ner_documents(10)
    many = [replace(doc, id=f"{doc.id}-{turn}") for turn in range(3) for doc in docs]
    (folder / "genes").mkdir()
    return write_splits(folder / "genes", train=docs, dev=many)


@pytest.fixture(scope="module")
def learned(folder: Path, data: Path) -> Path:
    """A tiny model that finds genes and drugs."""
    start = tiny_model(folder / "tiny")
    done = finetune(recipe_of(start, data, folder / "run", {"kind": "ner", "types": ["Gene", "Drug"]}))
    assert done.model is not None
    return done.model


@pytest.fixture(scope="module")
def small(folder: Path, learned: Path, data: Path) -> Path:
    export(learned, folder / "small", precision="int8", evaluation=HeldOutEvaluation((str(data),)))
    return folder / "small"


def certificate(folder: Path) -> dict[str, Any]:
    held: dict[str, Any] = json.loads((folder / "certificate.json").read_bytes())
    return held


def test_int8_predictions_equal_fp32(small: Path, learned: Path, folder: Path) -> None:
    export(learned, folder / "exact")
    docs = ner_documents(10)
    found = [list(Annotator.open(own, threads=1).annotate(docs)) for own in (small, folder / "exact")]
    places = [[[(span.parts, span.type) for span in doc.spans] for doc in own] for own in found]
    assert places[0] == places[1]
    assert any(places[0])
    kinds = {weight.data_type for weight in onnx.load(small / "model.onnx").graph.initializer}
    assert onnx.TensorProto.INT8 in kinds
    assert (small / "model.onnx").stat().st_size < (folder / "exact" / "model.onnx").stat().st_size


def test_the_certificate_says_what_was_measured(small: Path, data: Path) -> None:
    said = certificate(small)
    assert said["precision"] == read_settings(small).precision == "int8"
    assert said["agreement"] == {
        "value": 1.0,
        "at_least": AGREEMENT,
        "both": 60,
        "only_fp32": 0,
        "only_int8": 0,
    }
    assert said["score"]["value"] == said["score"]["fp32"]["value"] == 1.0
    assert said["score"]["at_most"] == DIFFERENCE
    assert (said["left_in_fp32"], said["bar_lowered"]) == ([], False)
    assert said["model_sha256"] == file_sha256(small / "model.onnx")
    (held,) = said["held_out"]
    task = Ner(["Gene", "Drug"])
    assert held == load_held_out(str(data), split="dev", task=task).as_json()
    assert (held["source"], held["split"], held["documents"]) == ("genes", "dev", 30)
    assert {"onnxruntime", "lexome", "numpy"} <= said["versions"].keys()
    card = (small / "README.md").read_text()
    assert "certificate.json" in card
    assert {"| scores of | held-out predictions | right | ECE raw | ECE calibrated |"} <= set(card.splitlines())
    assert any(line.startswith("| Gene | ") for line in card.splitlines())


def test_the_annotator_applies_the_calibration(small: Path) -> None:
    settings = read_settings(small)
    assert settings.calibration is not None
    assert settings.calibration.keys() == {"Gene", "Drug"}
    assert settings.calibration["Gene"][0] > 0
    doc = ner_documents(1)[0]
    plain = Annotator.open(small, threads=1)
    # The same model without curves.
    plain.models[0].settings = replace(settings, calibration=None)
    bent = Annotator.open(small, threads=1)
    assert [span.score for span in plain(doc).spans] != [span.score for span in bent(doc).spans]


def test_fp32_is_calibrated_too(learned: Path, data: Path, tmp_path: Path) -> None:
    settings = export(learned, tmp_path / "exact", evaluation=HeldOutEvaluation((str(data),)))
    said = certificate(tmp_path / "exact")
    assert (settings.precision, said["precision"]) == ("fp32", "fp32")
    assert settings.calibration is not None
    assert said["score"] == {"measure": "f1", "value": 1.0, "sources": {"genes": 1.0}}
    assert "agreement" not in said


def spoil(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Round these weights so that they say the opposite."""
    right = int8.quantize

    def wrong(model: onnx.ModelProto, **options: Any) -> onnx.ModelProto:
        made = right(model, **options)
        bad = {f"{name}.int8" for name in names}
        for number, weight in enumerate(made.graph.initializer):
            if weight.name in bad:
                held = numpy_helper.to_array(weight)
                made.graph.initializer[number].CopyFrom(numpy_helper.from_array(-held, weight.name))
        return made

    monkeypatch.setattr(int8, "quantize", wrong)


def test_a_weight_that_quantization_spoils_stays_in_fp32(
    learned: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, "layers.1.mlp.down.weight")
    told: list[str] = []
    export(learned, tmp_path / "small", precision="int8", evaluation=HeldOutEvaluation((str(data),)), log=told.append)
    said = certificate(tmp_path / "small")
    assert said["left_in_fp32"] == ["layers.1.mlp.down.weight"]
    assert [one["left_in_fp32"] for one in said["tried"]] == [0, 1]
    assert said["agreement"]["value"] == 1.0
    assert "0 weights in fp32" in told[0]
    names = {weight.name for weight in onnx.load(tmp_path / "small" / "model.onnx").graph.initializer}
    assert {name for name in names if name.startswith("layers.1.mlp.down.weight")} == {"layers.1.mlp.down.weight.half"}
    assert "layers.0.mlp.down.weight.int8" in names


def test_int8_with_other_predictions_is_rejected(
    learned: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, "embed.tokens")
    with raises(CheckpointError, code="int8-rejected", mentions="5 trials") as caught:
        export(learned, tmp_path / "small", precision="int8", evaluation=HeldOutEvaluation((str(data),)))
    assert 0 <= caught.value.value < AGREEMENT
    assert list(tmp_path.iterdir()) == []


def test_lowered_thresholds_are_recorded(
    learned: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, "embed.tokens")
    low = Thresholds.checked(agreement=0.0, difference=1.0, relax=True)
    export(learned, tmp_path / "small", precision="int8", evaluation=HeldOutEvaluation((str(data),), thresholds=low))
    assert certificate(tmp_path / "small")["bar_lowered"] is True


@pytest.mark.parametrize(
    ("agreed", "mean", "passes"),
    [
        (Counts(995, 5, 5), 0.8, True),
        (Counts(994, 6, 6), 0.8, False),
        (Counts(1000, 0, 0), 0.802, False),
        (Counts(1000, 0, 0), 0.7985, False),
        (Counts(1000, 0, 0), 0.8005, True),
    ],
)
def test_both_agreement_and_score_must_hold(agreed: Counts, mean: float, passes: bool) -> None:
    trial = Trial((), agreed, SourceScores("f1", mean, {}), [], 0)
    assert trial.accepted(Thresholds(), SourceScores("f1", 0.8, {})) is passes


@pytest.mark.parametrize(("least", "most"), [(0.99, None), (None, 0.01)])
def test_lowered_thresholds_need_a_flag(least: float | None, most: float | None) -> None:
    expected = (AGREEMENT if least is None else least, DIFFERENCE if most is None else most)
    with raises(UsageError, code="lowered-thresholds", value=expected):
        Thresholds.checked(agreement=least, difference=most)
    assert Thresholds.checked(agreement=0.999, difference=0.0) == Thresholds(0.999, 0.0)
    with raises(UsageError, code="not-a-fraction", value=99.5):
        Thresholds.checked(agreement=99.5, relax=True)


def test_int8_needs_held_out_documents(learned: Path, tmp_path: Path) -> None:
    with raises(UsageError, code="no-held-out", value="int8"):
        export(learned, tmp_path / "small", precision="int8")
    with raises(UsageError, code="unknown-precision", value="int4"):
        export(learned, tmp_path / "small", precision="int4")
    with raises(UsageError, code="unknown-dataset", value="nowhere"):
        export(learned, tmp_path / "small", precision="int8", evaluation=HeldOutEvaluation(("nowhere",)))


def test_a_model_without_a_task_cannot_be_evaluated(folder: Path, learned: Path, data: Path, tmp_path: Path) -> None:
    with raises(UsageError, code="no-task"):
        export(folder / "tiny", tmp_path / "small", evaluation=HeldOutEvaluation((str(data),)))


def test_a_file_is_held_out_as_a_whole(tmp_path: Path) -> None:
    lexome.write(tmp_path / "mine.jsonl", ner_documents(4))
    found = load_held_out(str(tmp_path / "mine.jsonl"), split="dev", task=Ner(["Gene"]))
    assert (found.name, found.split, len(found.docs)) == ("mine", None, 4)


def test_sources_of_one_name_are_refused(learned: Path, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        lexome.write(tmp_path / folder / "dev.jsonl", ner_documents(2))
    held = tuple(str(tmp_path / folder / "dev.jsonl") for folder in ("a", "b"))
    with raises(UsageError, code="duplicate-source", value="dev"):
        export(learned, tmp_path / "onnx", evaluation=HeldOutEvaluation(held))


def test_types_are_renamed_as_in_training(learned: Path, data: Path, folder: Path, tmp_path: Path) -> None:
    theirs = [
        replace(doc, spans=tuple(replace(span, type=f"their {span.type}") for span in doc.spans))
        for doc in lexome.read(data / "dev.jsonl")
    ]
    lexome.write(tmp_path / "theirs.jsonl", theirs)
    checkpoint = shutil.copytree(learned, tmp_path / "model")
    record = json.loads((checkpoint / "run.json").read_text())
    assert record["recipe"] == {"data": {"rename": {}, "dev_fraction": None}}
    record["recipe"]["data"]["rename"] = {"theirs": {"their Gene": "Gene", "their Drug": "Drug"}}
    (checkpoint / "run.json").write_text(json.dumps(record))
    export(checkpoint, tmp_path / "onnx", evaluation=HeldOutEvaluation((str(tmp_path / "theirs.jsonl"),)))
    assert certificate(tmp_path / "onnx")["score"]["value"] == 1.0


def test_agreement_by_kind_of_task() -> None:
    one, other = ner_documents(1)[0], ner_documents(1)[0]
    other = replace(other, spans=other.spans[:1])
    assert agreement(Ner(["Gene", "Drug"]), [[one]], [[other]]) == Counts(1, 0, 1)
    related = relation_documents(1)[0]
    apart = replace(related, relations=())
    task = Relations(["none", "blocks"], none="none", pairs=[("Drug", "Gene")])
    assert agreement(task, [[apart]], [[related]]) == Counts(0, 1, 0)
    labeled = class_documents(several=True, count=3)
    assert agreement(Classes(["gene", "drug"], several=True), [labeled], [labeled]) == Counts(4, 0, 0)
    asked = question_documents(2)
    assert agreement(Questions("factoid"), [asked], [[asked[0], replace(asked[1], questions=())]]) == Counts(1, 0, 1)


def test_the_command_reports_and_refuses(learned: Path, data: Path, tmp_path: Path) -> None:
    words = ["export", str(learned), str(tmp_path / "small"), "--precision", "int8", "--held-out", str(data)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "f1 100.00 on 30 documents (fp32: 100.00)" in done.stdout
    assert "Gene: calibration error" in done.stdout
    refused = CliRunner().invoke(app, [*words[:2], str(tmp_path / "other"), *words[3:], "--agreement", "0.9"])
    assert isinstance(refused.exception, UsageError)
