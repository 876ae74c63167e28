"""int8 graphs are close to fp32, smaller, and made of ONNX's own operators."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from onnx import numpy_helper

from lexome.export.int8 import WEIGHT_MAX, linear_weights, quantize
from lexome.export.onnx_graph import build_graph
from lexome.models.checkpoint import build
from lexome.models.encoder import EncoderConfig

ROW = np.arange(5, 45)[None] % 64


@pytest.fixture(scope="module")
def exact() -> onnx.ModelProto:
    torch.manual_seed(0)
    config = EncoderConfig(
        vocab=64, layers=2, hidden_size=32, heads=2, intermediate_size=48, max_tokens=40, initial_std=0.2
    )
    return build_graph(build(config, "token", labels=5).eval(), "token")


def logits(model: onnx.ModelProto, **options: Any) -> NDArray[np.float32]:
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    for name, held in options.items():
        setattr(settings, name, held)
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    found: NDArray[np.float32] = session.run(["logits"], {"ids": ROW, "mask": np.ones_like(ROW)})[0]
    return found


def test_logits_change_a_little(exact: onnx.ModelProto) -> None:
    before, after = logits(exact), logits(quantize(exact))
    moved = np.abs(after - before).mean() / np.abs(before).mean()
    assert 1e-4 < moved < 0.05


def test_every_linear_weight_outside_the_head_is_int8(exact: onnx.ModelProto) -> None:
    small = quantize(exact)
    kinds = {weight.name: numpy_helper.to_array(weight).dtype for weight in small.graph.initializer}
    assert len(linear_weights(exact)) == 8
    assert {name.removesuffix(".int8") for name, kind in kinds.items() if kind == np.int8} == {
        *linear_weights(exact),
        "embed.tokens",
        "embed.positions",
    }
    assert kinds["head.out.weight"] == np.float32
    assert not set(linear_weights(exact)) & kinds.keys()
    assert small.ByteSize() < exact.ByteSize() / 2


def test_operators_are_onnxs_own_and_onnxruntime_fuses_them(exact: onnx.ModelProto, tmp_path: Path) -> None:
    small = quantize(exact)
    onnx.checker.check_model(small, full_check=True)
    assert {opset.domain for opset in small.opset_import} == {""}
    logits(small, optimized_model_filepath=str(tmp_path / "joined.onnx"), log_severity_level=3)
    joined = [node.op_type for node in onnx.load(tmp_path / "joined.onnx").graph.node]
    assert joined.count("DynamicQuantizeMatMul") == len(linear_weights(exact))


def test_kept_weights_are_stored_in_fp16_and_multiplied_in_fp32(exact: onnx.ModelProto, tmp_path: Path) -> None:
    kept = linear_weights(exact)[3]
    small = quantize(exact, keep=[kept])
    held = {weight.name: numpy_helper.to_array(weight) for weight in small.graph.initializer}
    original = {weight.name: numpy_helper.to_array(weight) for weight in exact.graph.initializer}
    assert held[f"{kept}.half"].dtype == np.float16
    assert np.allclose(held[f"{kept}.half"], original[kept], rtol=1e-3, atol=1e-6)
    assert {kept, f"{kept}.int8"}.isdisjoint(held)
    logits(small, optimized_model_filepath=str(tmp_path / "joined.onnx"), log_severity_level=3)
    joined = [node.op_type for node in onnx.load(tmp_path / "joined.onnx").graph.node]
    assert joined.count("DynamicQuantizeMatMul") == len(linear_weights(exact)) - 1


def test_one_int8_weight_changes_logits_less_than_all(exact: onnx.ModelProto) -> None:
    before = logits(exact)
    moved = [np.abs(logits(quantize(exact, only=[name])) - before).mean() for name in linear_weights(exact)]
    assert min(moved) > 0
    assert max(moved) < np.abs(logits(quantize(exact)) - before).mean()


def test_quantization_is_per_channel_and_per_row(exact: onnx.ModelProto) -> None:
    small = {weight.name: numpy_helper.to_array(weight) for weight in quantize(exact).graph.initializer}
    original = {weight.name: numpy_helper.to_array(weight) for weight in exact.graph.initializer}
    for name, axis in ((linear_weights(exact)[0], 0), ("embed.tokens", 1)):
        step = small[f"{name}.step"]
        apart = np.abs(small[f"{name}.int8"] * step - original[name])
        assert (apart <= step * 0.5001).all()
        assert (np.abs(small[f"{name}.int8"]).max(axis) == WEIGHT_MAX).all()


def test_a_column_of_zeros_stays_one(exact: onnx.ModelProto) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(exact)
    name = linear_weights(model)[0]
    place = [weight.name for weight in model.graph.initializer].index(name)
    array = numpy_helper.to_array(model.graph.initializer[place]).copy()
    array[:, 2] = 0
    model.graph.initializer[place].CopyFrom(numpy_helper.from_array(array, name))
    small = {weight.name: numpy_helper.to_array(weight) for weight in quantize(model).graph.initializer}
    assert not small[f"{name}.int8"][:, 2].any()
    assert np.isfinite(logits(quantize(model))).all()


def test_an_outlier_token_keeps_the_precision_of_the_others() -> None:
    rng = np.random.default_rng(0)
    left_TR, weight_RC = rng.normal(size=(1, 9, 32)).astype(np.float32), rng.normal(size=(32, 6)).astype(np.float32)
    left_TR[0, 0] *= -60
    left_TR[0, 8] = 0
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    given = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 9, 32])
    made = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 9, 6])
    graph = onnx.helper.make_graph([node], "product", [given], [made], [numpy_helper.from_array(weight_RC, "w")])
    exact = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9)
    off = []
    for by_token in ((), ("w",)):
        small = quantize(exact, by_token=by_token)
        session = onnxruntime.InferenceSession(small.SerializeToString(), providers=["CPUExecutionProvider"])
        off.append(np.abs(session.run(None, {"x": left_TR})[0] - left_TR @ weight_RC)[0])
    plain_TC, better_TC = off
    assert better_TC[1:8].mean() < plain_TC[1:8].mean() / 10
    assert better_TC[0].mean() < plain_TC[0].mean() * 1.5
    assert not better_TC[8].any()


def test_a_token_without_activation_keeps_the_precision_of_the_others() -> None:
    rng = np.random.default_rng(0)
    left_TR, weight_RC = rng.normal(size=(1, 6, 32)).astype(np.float32), rng.normal(size=(32, 8)).astype(np.float32)
    left_TR[0, 0] = -0.7
    nodes = [
        onnx.helper.make_node("Gelu", ["x"], ["g"], approximate="tanh"),
        onnx.helper.make_node("MatMul", ["g", "w"], ["y"]),
    ]
    given = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 6, 32])
    made = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 6, 8])
    graph = onnx.helper.make_graph(nodes, "product", [given], [made], [numpy_helper.from_array(weight_RC, "w")])
    exact = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9)
    found = []
    for model in (exact, quantize(exact, by_token=["w"])):
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        found.append(session.run(None, {"x": left_TR})[0])
    assert np.abs(found[1] - found[0]).max() < 0.05 * np.abs(found[0]).max()
