"""Exported graphs give torch's numbers for every architecture and kind; a difference leaves nothing behind."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from errors import raises
from tiny_models import CARD, hf_model, tokenizer_folder

from lexome.corpus.vocab.tokenizers import tokenizer_sha256
from lexome.errors import CheckpointError, UsageError
from lexome.export import export as stage
from lexome.export import onnx_graph
from lexome.export.export import export
from lexome.infer.predictor import Predictor, read_settings
from lexome.models.checkpoint import build, load, save
from lexome.models.encoder import ACTIVATIONS, EncoderConfig, Packing
from lexome.models.exported import read_exported
from lexome.models.heads import HiddenLayers
from lexome.models.hf import ARCHITECTURES

CLOSE = 1e-4
# Longer than ModernBERT's window here, and padded against shorter ones.
ROWS = [[2, *range(5, 36), 3], [2, 7, 3], [2, *range(20, 30), 3]]


def checkpoint(folder: Path, architecture: str, kind: str = "masked", **changes: Any) -> Path:
    hf_model(ARCHITECTURES[architecture].classes[kind], architecture, **changes).save_pretrained(folder)
    return tokenizer_folder(folder)


def expected(folder: Path, row: list[int], *more: torch.Tensor, kind: str | None = None) -> np.ndarray[Any, Any]:
    with torch.no_grad():
        numbers: np.ndarray[Any, Any] = (
            load(folder, kind=kind).model(torch.tensor(row), Packing.of([len(row)]), *more).numpy()
        )
    return numbers


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_masked_lm_and_hidden_states_equal_torch(architecture: str, tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "theirs", architecture)
    settings = export(str(source), str(tmp_path / "onnx"))
    predictor = Predictor.open(tmp_path / "onnx", threads=1)
    words = expected(source, ROWS[0], torch.tensor([1, 30]))
    assert 0 < settings.difference < CLOSE
    assert np.abs(words).max() > 1
    assert np.abs(predictor.words(ROWS[0], [1, 30]) - words).max() < CLOSE
    for row, hidden_TD in zip(ROWS, predictor.hidden(ROWS, batch=3), strict=True):
        assert np.abs(hidden_TD - expected(source, row, kind="encoder")).max() < CLOSE


@pytest.mark.parametrize("kind", ["token", "sequence", "span"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_label_heads_equal_torch(architecture: str, kind: str, tmp_path: Path) -> None:
    changes = {} if kind == "span" else {"id2label": {0: "O", 1: "B", 2: "I"}}
    source = checkpoint(tmp_path / "theirs", architecture, kind, **changes)
    export(source, tmp_path / "onnx")
    predictor = Predictor.open(tmp_path / "onnx", threads=1)
    for row, logits in zip(ROWS, predictor.logits(ROWS, batch=3), strict=True):
        assert np.abs(logits - expected(source, row)).max() < CLOSE


@pytest.mark.parametrize("heads", [2, 3, 4])
def test_attention_by_heads_equals_full_attention(heads: int) -> None:
    torch.manual_seed(2)
    config = EncoderConfig(
        vocab=64, layers=2, hidden_size=8 * heads, heads=heads, intermediate_size=48, max_tokens=40, initial_std=0.3
    )
    graph = onnx_graph.build_graph(build(config, "token", labels=3).eval(), "token")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])
    ids = np.array([ROWS[0], ROWS[0]])
    for mask in (np.ones_like(ids), np.ones_like(ids) - (np.arange(ids.shape[1]) > [[99], [9]])):
        plain, by_heads = (
            session.run(["logits"], {"ids": ids, "mask": mask} | given)[0] for given in ({}, {"by_heads": np.array(1)})
        )
        seen = mask.astype(bool)
        assert np.abs(plain).max() > 0.1
        assert np.abs(plain - by_heads)[seen].max() < CLOSE


def test_segments_are_an_input_for_text_pairs(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "theirs", "bert", "sequence", id2label={0: "no", 1: "yes"})
    settings = export(source, tmp_path / "onnx")
    segments = [[0] * 10 + [1] * (len(row) - 10) if len(row) > 10 else [0] * len(row) for row in ROWS]
    predictor = Predictor.open(tmp_path / "onnx", threads=1)
    found = predictor.logits(ROWS, segments=segments, batch=3)
    for row, kinds, logits in zip(ROWS, segments, found, strict=True):
        assert np.abs(logits - expected(source, row, torch.tensor(kinds))).max() < CLOSE
    assert np.abs(found[0] - predictor.logits(ROWS)[0]).max() > 0.01
    assert (settings.segments, settings.labels) == (True, ("no", "yes"))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_and_a_head_with_hidden_layers(activation: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    config = EncoderConfig(
        vocab=64, layers=1, hidden_size=32, heads=2, intermediate_size=48, max_tokens=40, initial_std=0.3
    )
    hidden = HiddenLayers(2, hidden_size=24, activation=activation, norm=True)
    model = build(config, "sequence", labels=2, hidden=hidden, pooling="mean")
    tokenizer = tokenizer_folder(tmp_path / "tokenizer")
    save(tmp_path / "ours", model, architecture="bert", tokenizer=tokenizer, card=CARD, labels=("no", "yes"))
    assert export(tmp_path / "ours", tmp_path / "onnx").difference < CLOSE


@pytest.mark.parametrize("activation", ["gelu", "tanh"])
def test_an_exported_head_with_hidden_layers_is_read_back(activation: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    config = EncoderConfig(
        vocab=64, layers=2, hidden_size=32, heads=2, intermediate_size=48, max_tokens=40, initial_std=0.3
    )
    model = build(config, "token", labels=3, hidden=HiddenLayers(1, hidden_size=24, activation=activation)).eval()
    tokenizer = tokenizer_folder(tmp_path / "tokenizer")
    save(tmp_path / "ours", model, architecture="bert", tokenizer=tokenizer, card=CARD, labels=("a", "b", "c"))
    export(tmp_path / "ours", tmp_path / "onnx")
    again = read_exported(tmp_path / "onnx" / "model.onnx", kind="token", labels=3)
    ids, packing = torch.tensor(ROWS[0]), Packing.of([len(ROWS[0])])
    with torch.no_grad():
        assert (again(ids, packing) - model(ids, packing)).abs().max() < CLOSE


@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_an_exported_classifier_is_read_back_with_its_pooling(pooling: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    config = EncoderConfig(
        vocab=64, layers=1, hidden_size=32, heads=2, intermediate_size=48, max_tokens=40, initial_std=0.3
    )
    model = build(config, "sequence", labels=2, pooling=pooling).eval()
    tokenizer = tokenizer_folder(tmp_path / "tokenizer")
    save(tmp_path / "ours", model, architecture="bert", tokenizer=tokenizer, card=CARD, labels=("no", "yes"))
    export(tmp_path / "ours", tmp_path / "onnx")
    again = read_exported(tmp_path / "onnx" / "model.onnx", kind="sequence", labels=2)
    ids, packing = torch.tensor(ROWS[0]), Packing.of([len(ROWS[0])])
    with torch.no_grad():
        assert (again(ids, packing) - model(ids, packing)).abs().max() < CLOSE


def test_an_exported_reader_is_read_back_with_both_segments(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "theirs", "bert", "span")
    export(source, tmp_path / "onnx")
    again = read_exported(tmp_path / "onnx" / "model.onnx", kind="span", labels=2)
    segments = torch.tensor([0] * 10 + [1] * (len(ROWS[0]) - 10))
    with torch.no_grad():
        numbers = again(torch.tensor(ROWS[0]), Packing.of([len(ROWS[0])]), segments).numpy()
    assert np.abs(numbers - expected(source, ROWS[0], segments, kind="span")).max() < CLOSE


def test_a_checkpoint_with_a_pair_head_is_a_masked_model(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "theirs", "bert", "paired")
    assert export(source, tmp_path / "onnx").kind == "masked"


def test_the_exported_folder_is_self_describing(tmp_path: Path) -> None:
    model = load(checkpoint(tmp_path / "theirs", "bert")).model
    tokenizer = tokenizer_folder(tmp_path / "tokenizer")
    save(tmp_path / "tiny", model, architecture="bert", tokenizer=tokenizer, card=CARD)
    settings = export(tmp_path / "tiny", tmp_path / "onnx")
    assert settings == read_settings(tmp_path / "onnx")
    assert {path.name for path in (tmp_path / "onnx").iterdir()} == {
        "README.md",
        "checksums.json",
        "model.json",
        "model.onnx",
        "tokenizer.json",
    }
    assert settings.tokenizer_sha256 == tokenizer_sha256(tokenizer)
    assert (settings.max_tokens, settings.width, settings.before, settings.after) == (40, 32, (2,), (3,))
    assert settings.source["checkpoint"] == "tiny"
    card = (tmp_path / "onnx" / "README.md").read_text()
    assert card.startswith('---\nlicense: "apache-2.0"\n')
    assert "library_name: onnx\n" in card
    assert "# onnx\n" in card
    assert "# A tiny model\n" in card


def test_the_embedding_is_stored_once_and_operators_are_onnxs_own(tmp_path: Path) -> None:
    export(checkpoint(tmp_path / "theirs", "bert"), tmp_path / "onnx")
    model = onnx.load(tmp_path / "onnx" / "model.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert [tuple(weight.dims) for weight in model.graph.initializer].count((64, 32)) == 1
    assert {opset.domain for opset in model.opset_import} == {""}


def test_large_weights_are_external_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_graph, "INLINE_BYTES", 1000)
    export(checkpoint(tmp_path / "theirs", "bert"), tmp_path / "onnx")
    assert (tmp_path / "onnx" / "model.onnx.data").stat().st_size > 50_000
    assert len(Predictor.open(tmp_path / "onnx").hidden(ROWS)) == 3


def test_missing_parity_is_an_error_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = checkpoint(tmp_path / "theirs", "bert")
    # The smallest wrong thing: a norm with another epsilon, as a mistake in the graph would have it.
    right = stage.build_graph

    def wrong(*given: Any) -> onnx.ModelProto:
        model = right(*given)
        for node in model.graph.node:
            for attribute in node.attribute:
                if attribute.name == "epsilon":
                    attribute.f = 1e-2
        return model

    monkeypatch.setattr(stage, "build_graph", wrong)
    before = sorted(tmp_path.iterdir())
    with raises(CheckpointError, code="no-parity") as caught:
        export(source, tmp_path / "onnx")
    assert CLOSE < caught.value.value < 1
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_that_is_not_empty_is_kept(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "theirs", "bert")
    with raises(CheckpointError, code="folder-exists", value=source):
        export(source, source)


def test_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    with raises(UsageError, code="unknown-kind", value="pairs", mentions="masked"):
        export(tmp_path, tmp_path / "onnx", kind="pairs")


def test_an_unsupported_architecture_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "config.json").write_text(json.dumps({"model_type": "deberta-v2"}))
    with raises(CheckpointError, code="unknown-architecture", mentions="deberta-v2"):
        export(tmp_path / "theirs", tmp_path / "onnx")
