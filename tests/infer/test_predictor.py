"""Exported models give torch's numbers, one by one and padded, and say what is wrong with a folder."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from errors import raises
from tiny_models import hf_model, tokenizer_folder

from lexome.errors import CheckpointError, UsageError
from lexome.export.export import export
from lexome.infer.embed import windows
from lexome.infer.predictor import BY_HEADS, LONG_TOKENS, Predictor, open_session
from lexome.infer.tokenizer import open_tokenizer
from lexome.models.checkpoint import load
from lexome.models.encoder import Packing

ROWS = [[2, 9, 3], [2, *range(10, 40), 3], [2, 3], [2, 11, 12, 13, 14, 3]]


class Heard:
    """A session that keeps what it was given beside ids and mask."""

    def __init__(self, session: Any) -> None:
        self.session, self.more = session, list[set[str]]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    def run(self, outputs: list[str], given: dict[str, Any]) -> Any:
        self.more.append(set(given) - {"ids", "mask"})
        return self.session.run(outputs, given)


@pytest.mark.parametrize(("threads", "more"), [(1, {BY_HEADS}), (2, set())])
def test_one_core_computes_long_rows_by_heads_and_the_same(tmp_path: Path, threads: int, more: set[str]) -> None:
    hf_model("BertModel", "bert", max_position_embeddings=LONG_TOKENS + 9).save_pretrained(tmp_path / "tiny")
    settings = export(tokenizer_folder(tmp_path / "tiny"), tmp_path / "onnx")
    heard = Heard(open_session(tmp_path / "onnx" / "model.onnx", threads))
    predictor = Predictor(tmp_path / "onnx", settings, open_tokenizer(tmp_path / "onnx" / "tokenizer.json"), heard)
    rows = [[7] * (LONG_TOKENS - 1), [2, *(number % 60 for number in range(LONG_TOKENS)), 3]]
    found = predictor.hidden(rows)
    assert heard.more == [set(), more]
    with torch.no_grad():
        expected_TD = load(tmp_path / "tiny", kind="encoder").model(
            torch.tensor(rows[1]), Packing.of([LONG_TOKENS + 2])
        )
    assert np.abs(found[1] - expected_TD.numpy()).max() < 1e-4


@pytest.fixture
def copied(exported: Path, tmp_path: Path) -> Path:
    """A folder that a test may damage."""
    return shutil.copytree(exported, tmp_path / "copy")


@pytest.mark.parametrize("batch", [1, 3, 8])
def test_hidden_states_are_torchs_in_the_order_of_the_rows(predictor: Predictor, checkpoint: Path, batch: int) -> None:
    model = load(checkpoint, kind="encoder").model
    found = predictor.hidden(ROWS, batch=batch)
    for row, hidden_TD in zip(ROWS, found, strict=True):
        with torch.no_grad():
            expected_TD = model(torch.tensor(row), Packing.of([len(row)])).numpy()
        assert np.abs(hidden_TD - expected_TD).max() < 1e-4


@pytest.mark.parametrize("batch", [1, 3])
def test_pooled_is_the_mean_or_the_first_hidden_state(predictor: Predictor, batch: int) -> None:
    hidden = predictor.hidden(ROWS)
    means = np.stack([hidden_TD.mean(axis=0) for hidden_TD in hidden])
    firsts = np.stack([hidden_TD[0] for hidden_TD in hidden])
    assert np.allclose(predictor.pooled(ROWS, batch=batch), means, atol=1e-5)
    assert np.allclose(predictor.pooled(ROWS, pooling="cls", batch=batch), firsts, atol=1e-5)


def test_a_row_has_its_special_tokens(predictor: Predictor) -> None:
    assert predictor.row("w0 w1") == [2, 5, 6, 3]


def test_a_row_over_the_limit_is_refused(predictor: Predictor) -> None:
    with raises(UsageError, code="too-long", value=41):
        predictor.row("w0 " * 39)
    with raises(UsageError, code="invalid-length", value=41):
        predictor.hidden([[5] * 41])


def test_labels_are_asked_of_labelers_only(predictor: Predictor) -> None:
    with raises(UsageError, code="wrong-kind", value="masked"):
        predictor.logits(ROWS)


def test_a_checkpoint_is_to_be_exported_first(checkpoint: Path) -> None:
    with raises(CheckpointError, code="not-exported", value=checkpoint, mentions="lexome export"):
        Predictor.open(checkpoint)


@pytest.mark.parametrize(("name", "code"), [("nowhere", "missing-folder"), (".", "missing-file")])
def test_what_is_no_model_is_said(tmp_path: Path, name: str, code: str) -> None:
    with raises(CheckpointError, code=code, value=tmp_path / name):
        Predictor.open(tmp_path / name)


def test_another_tokenizer_is_refused(copied: Path) -> None:
    path = copied / "tokenizer.json"
    path.write_text(path.read_text().replace("w17", "w71"))
    with raises(CheckpointError, code="tokenizer-mismatch"):
        Predictor.open(copied)


@pytest.mark.parametrize("name", ["model.onnx", "tokenizer.json"])
def test_a_missing_file_is_named(copied: Path, name: str) -> None:
    (copied / name).unlink()
    with raises(CheckpointError, code="missing-file", value=name):
        Predictor.open(copied)


def test_a_cut_graph_is_said_to_be_one(copied: Path) -> None:
    path = copied / "model.onnx"
    path.write_bytes(path.read_bytes()[:-5000])
    (copied / "checksums.json").unlink()
    with raises(CheckpointError, code="invalid-graph", value=path):
        Predictor.open(copied)


@pytest.mark.parametrize(
    ("change", "code", "value"),
    [
        ({"version": 99}, "unsupported-version", 99),
        ({"shape": 1}, "unknown-key", "shape"),
        ({"kind": None}, "missing-key", "kind"),
    ],
)
def test_settings_of_another_form_are_refused(
    copied: Path, change: dict[str, int | None], code: str, value: object
) -> None:
    path = copied / "model.json"
    held = {**json.loads(path.read_text()), **change}
    path.write_text(json.dumps({key: content for key, content in held.items() if content is not None or key == "mask"}))
    with raises(CheckpointError, code=code, value=value):
        Predictor.open(copied)


@pytest.mark.parametrize("count", range(1, 30))
def test_windows_lose_nothing_and_are_of_about_one_length(count: int) -> None:
    cut = windows(list(range(count)), 7)
    assert [id_ for window in cut for id_ in window] == list(range(count))
    assert max(map(len, cut)) <= 7
    assert max(map(len, cut)) - min(map(len, cut)) <= 1
