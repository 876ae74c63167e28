"""Calibrated scores keep their order and stay probabilities; a model folder carries the curves."""

import json
from pathlib import Path

import pytest
from dictionary_models import dictionary_model
from errors import raises
from hypothesis import given
from hypothesis import strategies as st

from lexome.errors import CheckpointError
from lexome.infer.annotator import Annotator, calibrated

TEXT = "brca1 in breast cancer"


def with_curves(folder: Path, curves: object) -> Path:
    path = folder / "model.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "calibration": curves}))
    return folder


@given(scores=st.tuples(st.floats(0, 1), st.floats(0, 1)), slope=st.floats(0.01, 1000), offset=st.floats(-1000, 1000))
def test_scores_stay_probabilities_in_their_order(scores: tuple[float, float], slope: float, offset: float) -> None:
    low, high = (calibrated(score, (slope, offset)) for score in sorted(scores))
    assert 0 <= low <= high <= 1


def test_a_curve_is_a_line_on_the_scale_of_log_odds() -> None:
    assert calibrated(0.8, (0.5, 0.0)) == pytest.approx(2 / 3)
    assert calibrated(0.5, (2.0, 1.0)) == pytest.approx(0.7310586)
    assert calibrated(0.3, None) == 0.3


def test_mentions_carry_calibrated_scores_of_their_type(tmp_path: Path) -> None:
    plain = Annotator.open(dictionary_model(tmp_path / "plain"), threads=1)(TEXT)
    made = with_curves(dictionary_model(tmp_path / "made"), {"Gene": [0.5, -0.2]})
    found = Annotator.open(made, threads=1)(TEXT)
    gene, disease = (span.score for span in plain.spans)
    assert gene is not None
    assert [span.score for span in found.spans] == [pytest.approx(calibrated(gene, (0.5, -0.2))), disease]


def test_the_least_score_is_compared_with_the_calibrated_one(tmp_path: Path) -> None:
    annotator = Annotator.open(with_curves(dictionary_model(tmp_path / "m"), {"Gene": [1.0, -9.0]}), threads=1)
    (doc,) = annotator.annotate([annotator.document(TEXT)], min_score=0.5)
    assert [span.type for span in doc.spans] == ["Disease"]


@pytest.mark.parametrize("curves", [{"Gene": [1.0]}, {"Gene": ["a", "b"]}, [1, 2], {"Gene": [1.0, float("inf")]}])
def test_curves_that_are_none_are_refused(tmp_path: Path, curves: object) -> None:
    with raises(CheckpointError, code="invalid-calibration"):
        Annotator.open(with_curves(dictionary_model(tmp_path / "m"), curves))


def test_a_folder_from_before_there_were_curves_is_read(tmp_path: Path) -> None:
    folder = dictionary_model(tmp_path / "m")
    held = json.loads((folder / "model.json").read_text())
    del held["calibration"]
    (folder / "model.json").write_text(json.dumps(held))
    assert Annotator.open(folder, threads=1).models[0].settings.calibration is None
