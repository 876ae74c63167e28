"""A BERT read back from its ONNX export, compared with onnxruntime's outputs."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from errors import raises
from foreign_writers import SHAPE, assert_same_logits, onnx_folder, state_of, tiny, tiny_bert
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer
from transformers import BertConfig, BertModel

from lexome.errors import CheckpointError, MissingExtraError
from lexome.models.checkpoint import load
from lexome.models.encoder import Packing
from lexome.models.foreign import detect, read_foreign

LENGTHS = (20, 3, 9)


def tiny_encoder() -> Any:
    return tiny(BertModel, BertConfig(**SHAPE))


@pytest.fixture
def release(tmp_path: Path) -> Path:
    return onnx_folder(tmp_path / "release", tiny_encoder())


@pytest.fixture
def graph(release: Path) -> Any:
    """The graph, to be changed and saved again."""
    return onnx.load(release / "onnx" / "model.onnx")


def refused(release: Path, graph: Any, code: str, mentions: str) -> None:
    onnx.save(graph, release / "onnx" / "model.onnx")
    with raises(CheckpointError, code=code, mentions=mentions):
        read_foreign(release)


def test_our_encoder_computes_what_onnxruntime_does(release: Path) -> None:
    assert detect(release) == "onnx"
    found = load(release)
    assert (found.kind, found.backend, found.layout) == ("encoder", "lexome", "onnx")
    session = onnxruntime.InferenceSession(release / "onnx" / "model.onnx")
    ids_T = torch.randint(5, 48, (sum(LENGTHS),), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        ours_TD = found.model(ids_T, Packing.of(torch.tensor(LENGTHS).cumsum(0).tolist()))
    for ids, ours in zip(ids_T.split(LENGTHS), ours_TD.split(LENGTHS), strict=True):
        row = ids[None].numpy()
        given = {"input_ids": row, "attention_mask": np.ones_like(row), "token_type_ids": np.zeros_like(row)}
        theirs = session.run(None, {name.name: given[name.name] for name in session.get_inputs()})[0][0]
        assert theirs.std() > 0.01
        assert np.abs(ours.numpy() - theirs).max() < 1e-4


def test_every_weight_comes_back_under_its_own_name(tmp_path: Path) -> None:
    model = tiny_bert()
    foreign = read_foreign(onnx_folder(tmp_path / "release", model))
    assert_same_logits(foreign, model)
    wanted = state_of(model)
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in foreign.weights.items())
    assert wanted.keys() - foreign.weights.keys() == {"cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}
    assert foreign.left_out == ("cls.predictions.decoder.weight",)


def test_weights_that_are_equal_and_saved_once_come_back_for_each_layer(tmp_path: Path) -> None:
    """An exporter gives a tensor that is there twice a second name by Identity."""
    model = tiny_encoder()
    for layer in model.encoder.layer:
        torch.nn.init.zeros_(layer.attention.self.query.bias)
        torch.nn.init.eye_(layer.attention.self.query.weight)
    release = onnx_folder(tmp_path / "release", model)
    operators = {node.op_type for node in onnx.load(release / "onnx" / "model.onnx").graph.node}
    assert "Identity" in operators
    wanted = state_of(model)
    found = read_foreign(release).weights
    assert all(torch.equal(tensor, wanted[name.removeprefix("bert.")]) for name, tensor in found.items())


def test_an_embedding_that_is_named_as_the_matrix_for_words_is_both(tmp_path: Path) -> None:
    """torch's newer exporter saves the one tensor under the name that comes last."""
    model = tiny_bert()
    release = onnx_folder(tmp_path / "release", model)
    graph = onnx.load(release / "onnx" / "model.onnx")
    first, last = "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"
    gather = next(node for node in graph.graph.node if first in node.input)
    embeddings = next(tensor for tensor in graph.graph.initializer if tensor.name == first)
    gather.input[0] = embeddings.name = last
    onnx.save(graph, release / "onnx" / "model.onnx")
    foreign = read_foreign(release)
    assert torch.equal(foreign.weights[first], state_of(model)[first])
    assert foreign.left_out == (last,)


def test_a_configuration_with_a_head_does_not_make_one(release: Path) -> None:
    settings = json.loads((release / "config.json").read_text())
    (release / "config.json").write_text(json.dumps(settings | {"architectures": ["BertForMaskedLM"]}))
    assert read_foreign(release).config["architectures"] == ["BertModel"]


def test_the_tokenizer_neither_truncates_nor_pads(release: Path) -> None:
    before = Tokenizer.from_file(str(release / "tokenizer.json"))
    after = Tokenizer.from_str(read_foreign(release).tokenizer_files["tokenizer.json"].decode())
    assert len(before.encode("gene").ids) == 8
    assert after.encode("gene").tokens == ["[CLS]", "gene", "[SEP]"]
    assert len(after.encode("gene " * 20).ids) == 22


def test_a_graph_beside_its_configuration_is_found_and_named(tmp_path: Path) -> None:
    release = onnx_folder(tmp_path / "release", tiny_encoder(), graph="encoder.onnx")
    assert (detect(release), detect(release / "encoder.onnx")) == ("onnx", "onnx")
    assert "bert.embeddings.word_embeddings.weight" in read_foreign(release / "encoder.onnx").weights


def test_weights_are_preferred_over_a_graph(release: Path) -> None:
    torch.save(state_of(tiny_encoder()), release / "pytorch_model.bin")
    assert detect(release) == "pickle"


def test_a_quantized_graph_is_refused(release: Path, graph: Any) -> None:
    eight = numpy_helper.from_array(np.ones((16, 16), np.int8), "onnx::MatMul_quantized")
    graph.graph.initializer.append(eight)
    refused(release, graph, "quantized-weights", "INT8")


def test_an_optimized_graph_is_refused(release: Path, graph: Any) -> None:
    graph.graph.node[-1].domain, graph.graph.node[-1].op_type = "com.microsoft", "SkipLayerNormalization"
    refused(release, graph, "optimized-graph", "SkipLayerNormalization")


def test_external_weights_are_refused(release: Path, graph: Any) -> None:
    for tensor in graph.graph.initializer:
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="../../secret")
    (release / "onnx" / "model.onnx").write_bytes(graph.SerializeToString())
    with raises(CheckpointError, code="external-weights"):
        read_foreign(release)


def test_an_unidentified_matrix_is_refused(release: Path, graph: Any) -> None:
    add = next(node for node in graph.graph.node if node.op_type == "Add" and node.input[0].endswith("query.bias"))
    add.input[0] = "nameless"
    graph.graph.initializer.append(numpy_helper.from_array(np.zeros(16, np.float32), "nameless"))
    refused(release, graph, "unknown-weights", "(16, 16)")


def test_two_matrices_before_one_bias_are_refused(release: Path, graph: Any) -> None:
    first, second = [n for n in graph.graph.node if n.op_type == "Add" and n.input[0].endswith("query.bias")]
    second.input[0] = first.input[0]
    refused(release, graph, "ambiguous-weights", "encoder.layer.0.attention.self.query.weight")


def test_a_graph_that_is_no_bert_is_refused(release: Path, graph: Any) -> None:
    named = [tensor for tensor in graph.graph.initializer if "position_embeddings" not in tensor.name]
    del graph.graph.initializer[:]
    graph.graph.initializer.extend(named)
    refused(release, graph, "missing-weights", "bert.embeddings.position_embeddings.weight")
    empty = helper.make_model(helper.make_graph([], "nothing", [], []))
    refused(release, empty, "damaged-file", "model.onnx")
    (release / "onnx" / "model.onnx").write_bytes(b"not a graph")
    with raises(CheckpointError, code="damaged-file", value=str(release / "onnx" / "model.onnx")):
        read_foreign(release)
    (release / "config.json").write_text('{"model_type": "distilbert"}')
    with raises(CheckpointError, code="unsupported-model", value="distilbert"):
        read_foreign(release)


def test_a_damaged_tensor_is_refused(release: Path, graph: Any) -> None:
    graph.graph.initializer[0].dims[0] = 1_000_000_000
    refused(release, graph, "damaged-file", "embeddings.word_embeddings.weight")


def test_the_error_without_onnx_names_the_extra(release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with raises(MissingExtraError, code="missing-extra", value="onnx", mentions="lexome[train]"):
        read_foreign(release)
